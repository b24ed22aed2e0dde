package photo

import "testing"

func BenchmarkPaint(b *testing.B) {
	p := NewPainter(NewLibrary())
	pixels, n := 0, uint64(0)
	for b.Loop() {
		s := Draw(1, n)
		n++
		p.Paint(&s)
		pixels += s.Width * s.Height
	}
	b.SetBytes(int64(pixels / b.N))
}

func BenchmarkLibrary(b *testing.B) {
	for b.Loop() {
		makeLibrary()
	}
}
