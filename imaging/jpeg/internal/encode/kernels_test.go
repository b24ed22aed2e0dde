package encode

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/internal/guardtest"
	"shardify/internal/simd"
)

// of makes n values of a guarded piece of memory.
func of[T any](t *testing.T, n int, side guardtest.Side) []T {
	var v T
	b := guardtest.Bytes(t, n*int(unsafe.Sizeof(v)), side)
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// noise fills b: at random, with extremes, or with small differences.
func noise(r *rand.Rand, b []uint8) []uint8 {
	kind := r.IntN(4)
	for i := range b {
		switch kind {
		case 0:
			b[i] = uint8(r.Uint32())
		case 1:
			b[i] = uint8(r.IntN(2) * 255)
		case 2:
			b[i] = uint8(100 + r.IntN(9))
		case 3:
			b[i] = uint8(i * 3)
		}
	}
	return b
}

// The kernels do what generic Go does, to the last of their bytes, and touch none
// beyond.
func TestKernels(t *testing.T) {
	if len(simd.All()) == 1 {
		t.Skip("SKIPPED LOUDLY: this processor has no AVX2, or the build no assembly")
	}
	for _, level := range simd.All()[1:] {
		for side, name := range []string{guardtest.After: "after", guardtest.Before: "before"} {
			t.Run(level.String()+"/"+name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, 2))
				for range 60 {
					testSamples(t, r, level, guardtest.Side(side))
					testBlocks(t, r, level, guardtest.Side(side))
				}
			})
		}
	}
}

func testSamples(t *testing.T, r *rand.Rand, level simd.Level, side guardtest.Side) {
	n := chunk * (1 + r.IntN(4))
	rgb := noise(r, guardtest.Bytes(t, 3*n, side))
	var got, want [3][]uint8
	for c := range got {
		got[c], want[c] = guardtest.Bytes(t, n, side), make([]uint8, n)
	}
	ycc(got[0], got[1], got[2], rgb, n, level)
	yccGeneric(want[0], want[1], want[2], rgb, n)
	for c := range got {
		if !bytes.Equal(got[c], want[c]) {
			t.Fatalf("colour of %d pixels: component %d differs from generic", n, c)
		}
	}
	for v := 1; v <= 2; v++ {
		pitch := 2*n + r.IntN(50)
		src := noise(r, guardtest.Bytes(t, (v-1)*pitch+2*n, side))
		downsample(got[0], src, pitch, n, 2, v, level)
		downsampleGeneric(want[0], src, pitch, n, 2, v)
		if !bytes.Equal(got[0], want[0]) {
			t.Fatalf("2 x %d samples into %d: differ from generic", v, n)
		}
	}
}

func testBlocks(t *testing.T, r *rand.Rand, level simd.Level, side guardtest.Side) {
	n := 2 * (1 + r.IntN(6))
	pitch := 8*n + r.IntN(40)
	samples := noise(r, guardtest.Bytes(t, 7*pitch+8*n, side))
	var steps [64]uint16
	scaleSteps(&steps, r.IntN(2), 1+r.IntN(100))
	var d divisors
	d.set(&steps)
	got, want := of[int16](t, 64*n, side), make([]int16, 64*n)
	forward(got, samples, pitch, &d, level)
	forwardGeneric(want, samples, pitch, &d)
	if !slices.Equal(got, want) {
		t.Fatalf("%d blocks: differ from generic", n)
	}
	for range r.IntN(64) {
		got[r.IntN(len(got))] = []int16{1, -1, 256, -256, -32768, 0, 0, 0}[r.IntN(8)]
	}
	for _, l := range []*Layout{Natural, Stored} {
		mask, other := of[uint64](t, n, side), make([]uint64, n)
		masks(mask, got, l, level)
		masksGeneric(other, got, l)
		if !slices.Equal(mask, other) {
			t.Fatalf("masks of %d blocks: %x, not %x", n, mask, other)
		}
	}
}

// Every colour there is.
func TestAllColors(t *testing.T) {
	rgb := make([]uint8, 3*256)
	var got, want [3][256]uint8
	for _, level := range simd.All()[1:] {
		for g := 0; g < 256; g += 3 {
			for b := range 256 {
				for i := range 256 {
					rgb[3*i], rgb[3*i+1], rgb[3*i+2] = uint8(i), uint8(g), uint8(b)
				}
				ycc(got[0][:], got[1][:], got[2][:], rgb, 256, level)
				yccGeneric(want[0][:], want[1][:], want[2][:], rgb, 256)
				if got != want {
					t.Fatalf("%v: green %d, blue %d: differs", level, g, b)
				}
			}
		}
	}
}

// Multiplication is division, rounded to the nearest, for all values of the DCT and all
// steps; also as the kernels do it.
func TestDivisors(t *testing.T) {
	for step := uint16(1); step <= 255; step++ {
		var steps [64]uint16
		for i := range steps {
			steps[i] = step
		}
		var d divisors
		d.set(&steps)
		by := 8 * uint32(step)
		for v := range uint32(1 << 15) {
			want := (v + by/2) / by
			got := (v + uint32(d.round[5])) * uint32(d.recip[5]) >> 16 >> d.shift[5]
			kernel := (v + uint32(d.round[5])) * uint32(d.recip[5]) >> 16 * uint32(d.scale[5]) >> 16
			if got != want || kernel != want {
				t.Fatalf("%d / %d = %d; got %d, and %d in kernels", v, by, want, got, kernel)
			}
		}
	}
}

// Any coefficients: the kernel writes what generic Go does, in any pieces, and touches
// nothing beyond.
func TestWrite(t *testing.T) {
	if len(simd.All()) == 1 || !assembly {
		t.Skip("SKIPPED LOUDLY: this processor has no BMI2, or the build no assembly")
	}
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		side := guardtest.Side(round % 2)
		f := Frame{Width: 1 + r.IntN(200), Height: 1 + r.IntN(60), N: []int{1, 3, 4}[r.IntN(3)], MaxH: 1, MaxV: 1}
		if f.N > 1 {
			f.MaxH, f.MaxV = 1+r.IntN(2), 1+r.IntN(2)
		}
		for c := range f.N {
			f.Component[c] = Component{ID: uint8(c), H: 1, V: 1, FileH: 1, FileV: 1, Table: uint8(c & 1)}
		}
		f.Component[0].H, f.Component[0].V = f.MaxH, f.MaxV
		_, high := f.mcus()
		var files [2][]byte
		w := [2]Writer{}
		for i := range w {
			w[i].Frame, w[i].Level, w[i].Layout = f, simd.All()[i], []*Layout{Natural, Stored}[round/2%2]
			w[i].Shape(high)
		}
		density := r.IntN(64)
		for c := range f.N {
			p, q := &w[0].Plane[c], &w[1].Plane[c]
			for i := range p.Coef {
				p.Coef[i] = 0
				if r.IntN(64) < density {
					p.Coef[i] = int16(r.IntN(41) - 20)
					if r.IntN(8) == 0 {
						p.Coef[i] = int16(r.IntN(2047) - 1023)
					}
				}
			}
			q.Coef, q.Mask = of[int16](t, len(p.Coef), side), of[uint64](t, len(p.Mask), side)
			copy(q.Coef, p.Coef)
		}
		standard := round%3 == 0
		for i := range w {
			w := &w[i]
			w.SetMasks()
			w.Pad(0, high)
			if standard {
				w.Standard()
			} else if err := w.Optimize(high); err != nil {
				t.Fatal(err)
			}
			w.Begin(nil)
			if i == 1 {
				w.raw = guardtest.Bytes(t, maxMCU+r.IntN(3*maxMCU), side)
			}
			w.Header()
			w.Rows(high)
			files[i] = w.End()
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Fatalf("round %d: %d bytes, not those %d of generic Go", round, len(files[1]), len(files[0]))
		}
	}
}

// Coefficients that a baseline file cannot hold are found, and where; the largest that it
// can hold pass.
func TestRange(t *testing.T) {
	for _, level := range simd.All() {
		for _, c := range []struct {
			component, block, k int
			value               int16
			dc                  bool
		}{
			{0, 4, 7, 1023, false}, {0, 4, 7, 1024, false}, {1, 2, 63, -1024, false}, {2, 0, 1, -32768, false},
			{0, 0, 0, 2047, true}, {0, 0, 0, 2048, true}, {2, 1, 0, -2048, true}, {1, 0, 0, -32768, true},
		} {
			var w Writer
			w.Level, w.Layout = level, Stored
			w.Frame = Frame{Width: 33, Height: 20, MaxH: 2, MaxV: 2, N: 3}
			w.Frame.Component = [4]Component{{H: 2, V: 2}, {H: 1, V: 1, Table: 1}, {H: 1, V: 1, Table: 1}}
			w.Shape(2)
			for i := range 3 {
				clear(w.Plane[i].Coef)
			}
			w.Plane[c.component].Coef[64*c.block+int(blocks.Order[c.k])] = c.value
			w.SetMasks()
			err := w.Optimize(2)
			var got *RangeError
			if c.value == 1023 || c.value == 2047 {
				if err != nil {
					t.Errorf("%v, %+v: %v", level, c, err)
				}
			} else if !errors.As(err, &got) || *got != (RangeError{c.component, c.block, 0, c.dc, int(c.value)}) {
				t.Errorf("%v, %+v: %v", level, c, err)
			}
		}
	}
}

// A layout's masks are in zigzag order.
func TestMasks(t *testing.T) {
	for i := range 64 {
		coef := make([]int16, 128)
		coef[blocks.Zigzag[i]], coef[64+int(blocks.Order[i])] = 1, -1
		var mask [2]uint64
		masksGeneric(mask[:], coef, Natural)
		if mask[0] != 1<<i {
			t.Errorf("natural, %d: %x", i, mask[0])
		}
		masksGeneric(mask[:], coef, Stored)
		if mask[1] != 1<<i {
			t.Errorf("stored, %d: %x", i, mask[1])
		}
	}
}

// A code that would be longer than 16 bits is shortened, also by many bits: frequencies
// that grow as Fibonacci's numbers make the longest codes.
func TestOptimalLimits(t *testing.T) {
	for n := range 91 {
		var f frequencies
		a, b := int64(1), int64(1)
		for i := range n {
			f[i*2] = a
			a, b = b, a+b
		}
		if n == 0 {
			f[7] = 1
		}
		def := optimal(nil, &f)
		sum, codes := 0, 0
		for l, c := range def[:16] {
			sum += int(c) << (15 - l)
			codes += int(c)
		}
		if codes != max(n, 1) || len(def) != 16+codes || sum >= 1<<16 {
			t.Fatalf("%d symbols: %d codes, %d of %d", n, codes, sum, 1<<16)
		}
		seen := map[byte]bool{}
		for _, symbol := range def[16:] {
			if seen[symbol] || f[symbol] == 0 {
				t.Fatalf("%d symbols: symbol %d has two codes, or should have none", n, symbol)
			}
			seen[symbol] = true
		}
	}
}

// At every level, whole files are the same.
func TestLevels(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 150 {
		s := Source{Width: 1 + r.IntN(150), Height: 1 + r.IntN(70), Channels: []int{1, 3, 3}[r.IntN(3)]}
		s.Stride = s.Channels*s.Width + r.IntN(9)
		o := Spec{Quality: 1 + r.IntN(100), H: []int{1, 2, 4}[r.IntN(3)], V: 1, Optimize: r.IntN(2) == 0}
		if o.H < 4 {
			o.V += r.IntN(2)
		}
		s.Pix = noise(r, guardtest.Bytes(t, s.Stride*(s.Height-1)+s.Channels*s.Width, guardtest.Side(round%2)))
		var want []byte
		for i, level := range simd.All() {
			var e Encoder
			e.Writer.Level, e.Writer.Layout = level, Natural
			e.prepare(&s, &o)
			got := e.encode(nil, &s, &o)
			if i == 0 {
				want = got
			} else if !bytes.Equal(got, want) {
				t.Fatalf("%v: %d x %d x %d, %+v: %d bytes, not those %d of generic Go", level, s.Width, s.Height, s.Channels, o, len(got), len(want))
			}
		}
	}
}
