package augment

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"shardify/imaging"
	"shardify/internal/guardtest"
	"shardify/internal/simd"
)

// assembly runs a test at every level that has assembly.
func assembly(t *testing.T, test func(t *testing.T, level simd.Level)) {
	for _, l := range simd.All()[1:] {
		t.Run(l.String(), func(t *testing.T) { test(t, l) })
	}
}

func workspaceAt(l simd.Level) *Workspace { return &Workspace{level: l + 1} }

// guarded is an image against a page that may not be touched, with rows of any length
// and gaps between some.
func guarded(t *testing.T, r *rand.Rand, side guardtest.Side) *imaging.Image {
	w, h := 1+r.IntN(150), 1+r.IntN(12)
	if r.IntN(4) == 0 {
		w, h = 1+r.IntN(12), 1+r.IntN(150)
	}
	m := &imaging.Image{Width: w, Height: h, Stride: 3 * w}
	if r.IntN(2) == 0 {
		m.Stride += 1 + r.IntN(40)
	}
	m.Pix = guardtest.Bytes(t, (h-1)*m.Stride+3*w, side)
	rough := r.IntN(3)
	for i := range m.Pix {
		switch v := uint8(r.Uint32()); rough {
		case 0:
			m.Pix[i] = v
		case 1: // many equal ones, and the ends of the range
			m.Pix[i] = uint8(int8(v) >> 6)
		default:
			m.Pix[i] = 100 + v&31 + uint8(i%3)*40
		}
	}
	return m
}

// anyOp draws an operation with a value that it takes.
func anyOp(r *rand.Rand) Op {
	op := Op{Kind: Kind(r.IntN(int(kinds))), Interpolation: Interpolation(r.IntN(2)), Fill: Color{1, 2, 3}}
	switch op.Kind {
	case ShearX, ShearY:
		op.Value = r.Float64() - 0.5
	case TranslateX, TranslateY:
		op.Value = float64(r.IntN(41) - 20)
	case Rotate:
		op.Value = r.Float64() * 360
		if r.IntN(4) == 0 {
			op.Value = float64(r.IntN(4) * 90)
		}
	case Posterize:
		op.Value = float64(1 + r.IntN(8))
	case Solarize:
		op.Value = r.Float64() * 256
	case Hue:
		op.Value = r.Float64() - 0.5
	case Blur:
		op.Value, op.Kernel = 0.1+4*r.Float64(), [2]int{1 + 2*r.IntN(14), 1 + 2*r.IntN(14)}
	default:
		op.Value = []float64{0, 0.3, 1, 1.7, 40}[r.IntN(5)] * r.Float64()
	}
	return op
}

// Whatever instructions there are, the pixels are the same, and nothing but the pixels
// is touched.
func TestLevelsAgree(t *testing.T) {
	for _, side := range []guardtest.Side{guardtest.After, guardtest.Before} {
		assembly(t, func(t *testing.T, level simd.Level) {
			r := rand.New(rand.NewPCG(31, uint64(side)))
			ws, generic := workspaceAt(level), workspaceAt(simd.Generic)
			for range 1200 / every {
				m, op := guarded(t, r, side), anyOp(r)
				want := *m
				want.Pix = bytes.Clone(m.Pix)
				if err := generic.apply(&want, op); err != nil {
					t.Fatal(err)
				}
				if err := ws.apply(m, op); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(m.Pix, want.Pix) {
					count, most := difference(m.Pix, want.Pix)
					t.Fatalf("%+v of %d x %d in rows of %d: %d bytes differ from generic, by up to %d", op, m.Width, m.Height, m.Stride, count, most)
				}
			}
		})
	}
}

func (ws *Workspace) apply(m *imaging.Image, op Op) error { return op.Apply(ws, m) }

// The assembly takes another way to a hue than generic Go: it takes every colour to where
// Go takes it.
func TestHueOfAllColors(t *testing.T) {
	levels := simd.All()[1:]
	colors, want, got := make([]uint8, 3<<16), make([]uint8, 3<<16), make([]uint8, 3<<16)
	for red := 0; red < 256 && len(levels) > 0; red += every {
		for i := range 1 << 16 {
			copy(colors[3*i:], []uint8{uint8(red), uint8(i >> 8), uint8(i)})
		}
		shift := uint8(red * 7)
		copy(want, colors)
		hueGeneric(want, shift)
		for _, level := range levels {
			copy(got, colors)
			turnHue(got, shift, level)
			for i := 0; !bytes.Equal(got, want); i += 3 {
				if c := colors[i:][:3]; !bytes.Equal(got[i:][:3], want[i:][:3]) {
					t.Fatalf("%v: %v turned by %d: %v; generic %v", level, c, shift, got[i:][:3], want[i:][:3])
				}
			}
		}
	}
}

// Rows of all lengths are mirrored at their places.
func TestFlipsOfAllLengths(t *testing.T) {
	for _, level := range simd.All() {
		for _, side := range []guardtest.Side{guardtest.After, guardtest.Before} {
			for w := range 120 {
				pix := guardtest.Bytes(t, 3*w, side)
				for i := range pix {
					pix[i] = uint8(i)
				}
				flip(pix, level)
				for x := range w {
					for c := range 3 {
						if got, want := pix[3*x+c], uint8(3*(w-1-x)+c); got != want {
							t.Fatalf("%v: of %d pixels, channel %d of number %d is %d; want %d", level, w, c, x, got, want)
						}
					}
				}
			}
		}
	}
}

// Warps of all sorts agree, near and far and where numbers become large or tiny.
func TestLevelsWarpAlike(t *testing.T) {
	assembly(t, func(t *testing.T, level simd.Level) {
		r := rand.New(rand.NewPCG(77, 7))
		ws, generic := workspaceAt(level), workspaceAt(simd.Generic)
		for range 1500 / every {
			src := guarded(t, r, guardtest.Side(r.IntN(2)))
			got := guarded(t, r, guardtest.After)
			want := imaging.Image{Width: got.Width, Height: got.Height}
			m := affine(float64(src.Width)/2, float64(src.Height)/2, r.Float64()*360, r.Float64()*9, r.Float64()*9, 0.2+2*r.Float64(), r.Float64()*60-30, r.Float64()*60-30)
			for i := range m {
				switch r.IntN(20) {
				case 0:
					m[i] = 0
				case 1:
					m[i] = float64(r.IntN(5) - 2)
				case 2:
					m[i] *= math.Pow(10, float64(r.IntN(41)-20))
				}
			}
			ip := Interpolation(r.IntN(2))
			if err := generic.Warp(&want, src, m, ip, Color{7, 8, 9}); err != nil {
				t.Fatal(err)
			}
			if err := ws.Warp(got, src, m, ip, Color{7, 8, 9}); err != nil {
				t.Fatal(err)
			}
			if count, most := difference(packed(got), want.Pix); count > 0 {
				t.Fatalf("%v, %v, of %d x %d to %d x %d: %d bytes differ from generic, by up to %d", m, ip, src.Width, src.Height, got.Width, got.Height, count, most)
			}
		}
	})
}

// A row's bounds may be too wide, never too narrow.
func TestBoundsOfSlopes(t *testing.T) {
	r := rand.New(rand.NewPCG(78, 7))
	inside := 0
	for range 200000 / every {
		v := func() float64 { return (r.Float64() - 0.5) * math.Pow(10, float64(r.IntN(9)-4)) }
		s := slope{0.5, v(), v(), v(), v(), v(), v()}
		if r.IntN(3) == 0 {
			s.stepX *= 1e-14
		}
		const n, w, h = 40, 30, 20
		from, to := s.within(n, w, h)
		for i := range n {
			u := s.u + float64(i)
			x, y := float64(s.stepX*u)+s.fromX+s.addX, float64(s.stepY*u)+s.fromY+s.addY
			if x >= 0 && x < w && y >= 0 && y < h {
				inside++
				if i < from || i >= to {
					t.Fatalf("%+v: pixel %d lies within, and not in [%d, %d)", s, i, from, to)
				}
			}
		}
	}
	if inside == 0 {
		t.Error("no pixel lies within")
	}
}

// Of tables, every entry is found, wherever the byte lies.
func TestTablesAreLookedUp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var tables [3]table
	for c := range tables {
		for i := range tables[c] {
			tables[c][i] = uint8(r.Uint32())
		}
	}
	assembly(t, func(t *testing.T, level simd.Level) {
		for n := 0; n < 900; n += 3 {
			one, three := make([]uint8, n), make([]uint8, n)
			for i := range one {
				one[i] = uint8(i / 3)
			}
			copy(three, one)
			lookup(one, &tables[0], level)
			lookup3(three, &tables, level)
			for i := range one {
				if one[i] != tables[0][uint8(i/3)] || three[i] != tables[i%3][uint8(i/3)] {
					t.Fatalf("byte %d of %d: %d, of three tables %d", i, n, one[i], three[i])
				}
			}
		}
	})
}
