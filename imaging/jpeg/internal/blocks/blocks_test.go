package blocks

import (
	"testing"
	"unsafe"
)

// The order of T.81, figure A.6, and the stored order, as literals.
func TestOrders(t *testing.T) {
	zig := [64]uint8{
		0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
		12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
		35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
		58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
	}
	if Zigzag != zig {
		t.Errorf("zigzag order is %v", Zigzag)
	}
	stored := [16]uint8{0, 32, 4, 36, 2, 34, 6, 38, 1, 33, 7, 39, 5, 37, 3, 35} // rows 0 and 4
	for i, n := range stored {
		if Place[n] != uint8(i) {
			t.Errorf("natural %d is stored at %d, want %d", n, Place[n], i)
		}
	}
	var seen [64]bool
	for i, o := range Order {
		if seen[o] || o != Place[Zigzag[i]] {
			t.Errorf("zigzag %d is stored at %d", i, o)
		}
		seen[o] = true
	}
}

func TestShape(t *testing.T) {
	f := &Frame{Width: 100, Height: 50, Precision: 8, Model: YCbCr, MaxH: 2, MaxV: 2, N: 3}
	f.Component[0] = Component{H: 2, V: 2}
	f.Component[1] = Component{H: 1, V: 1}
	f.Component[2] = Component{H: 1, V: 1}
	if x, y := f.MCUs(); x != 7 || y != 4 {
		t.Errorf("%d x %d MCUs", x, y)
	}
	if w, h := f.Samples(1); w != 50 || h != 25 {
		t.Errorf("%d x %d samples of Cb", w, h)
	}
	var m Memory
	var s Strip
	for range 2 {
		m.Shape(&s, f, Window{1, 0, 4, 4}, 2)
		for c, want := range []struct{ stride, blocks int }{{6, 24}, {4, 8}, {4, 8}} {
			p := s.Plane[c]
			if p.Stride != want.stride || len(p.Coef) != 64*want.blocks {
				t.Errorf("plane %d: stride %d, %d coefficients", c, p.Stride, len(p.Coef))
			}
			if uintptr(unsafe.Pointer(&p.Coef[0]))%64 != 0 {
				t.Errorf("plane %d is not aligned", c)
			}
		}
	}
	// A crop reads on into what follows.
	w := Window{3, 1, 4, 2}
	s.Y1 = 2
	whole := s
	s.Crop(f, w)
	for c := range 3 {
		p, q, k := &s.Plane[c], &whole.Plane[c], &f.Component[c]
		at := k.V*q.Stride + 2*k.H
		if s.Window != w || p.Stride != q.Stride || len(p.Coef) != 64*k.V*p.Stride || &p.Coef[0] != &q.Coef[64*at] {
			t.Errorf("plane %d is cropped wrongly", c)
		}
	}
	if n := testing.AllocsPerRun(10, func() { m.Shape(&s, f, Window{0, 0, 2, 1}, 1) }); n != 0 {
		t.Errorf("%v allocations in memory that is large enough", n)
	}
}
