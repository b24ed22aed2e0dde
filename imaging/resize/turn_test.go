package resize

import (
	"math/rand/v2"
	"slices"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/imaging/tensor"
	"shardify/internal/simd"
)

// upright turns an image upright, pixel by pixel, as EXIF says what an orientation is: by
// which side of the picture its first row and its first column are.
func upright(m *raster.Image, orientation int) *raster.Image {
	var u raster.Image
	u.Reset(m.Width, m.Height)
	if orientation >= 5 {
		u.Reset(m.Height, m.Width)
	}
	for y := range m.Height {
		for x := range m.Width {
			// The first row is the top, top, bottom, bottom, left, right, right, left; the
			// first column left, right, right, left, top, top, bottom, bottom.
			left, top := x, y
			switch orientation {
			case 2:
				left = m.Width - 1 - x
			case 3:
				left, top = m.Width-1-x, m.Height-1-y
			case 4:
				top = m.Height - 1 - y
			case 5:
				left, top = y, x
			case 6:
				left, top = m.Height-1-y, x
			case 7:
				left, top = m.Height-1-y, m.Width-1-x
			case 8:
				left, top = y, m.Width-1-x
			}
			copy(u.Pix[top*u.Stride+3*left:][:3], m.Pix[y*m.Stride+3*x:])
		}
	}
	return &u
}

// Of a source that lies on its side or its head, a task makes what it makes of it when it
// was turned upright before: every orientation, kind of elements, layout, window and
// filter, at every level; whether the source is there whole or comes row by row, grey or
// not.
func TestTurn(t *testing.T) {
	for _, level := range simd.All() {
		t.Run(level.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(21, 22))
			z, ref := at(level), at(level)
			table := tensor.ImageNet.Table()
			for i := range 1200 / every {
				turn := 1 + i%8
				var m raster.Image
				m.Reset(sized(r))
				for i := range m.Pix {
					m.Pix[i] = uint8(r.Uint32())
				}
				grey := r.IntN(4) == 0
				if grey {
					for i := range m.Pix {
						m.Pix[i] = m.Pix[i/3*3]
					}
				}
				u := upright(&m, turn)
				task, w, h := draw(r, u.Width, u.Height)
				target := Target{Width: w, Height: h, Layout: tensor.Layout(r.IntN(2))}
				if grey && r.IntN(2) == 0 {
					target.Channels = 1
				}
				n := target.channels() * w * h
				want := target
				switch r.IntN(4) {
				case 0:
					target.Float32, want.Float32 = make([]float32, n), make([]float32, n)
					target.Table, want.Table = table, table
				case 1:
					target.Half, want.Half = make([]uint16, n), make([]uint16, n)
					target.Table16, want.Table16 = table.Float16(), table.Float16()
				default:
					if target.Layout == tensor.NHWC && r.IntN(2) == 0 {
						target.Stride = target.channels()*w + r.IntN(9)
						n = (h-1)*target.Stride + target.channels()*w
						want.Stride = target.Stride
					}
					target.Uint8, want.Uint8 = make([]uint8, n), make([]uint8, n)
				}
				if err := ref.ResizeInto(want, u, task); err != nil {
					t.Fatal(err)
				}
				task.Turn = turn
				if r.IntN(2) == 0 {
					if err := z.ResizeInto(target, &m, task); err != nil {
						t.Fatal(err)
					}
				} else {
					feedRows(t, r, z, target, &m, task, grey)
				}
				if !z.Done() {
					t.Fatalf("%+v: not done", task)
				}
				if !slices.Equal(target.Uint8, want.Uint8) || !slices.Equal(target.Float32, want.Float32) || !slices.Equal(target.Half, want.Half) {
					t.Fatalf("%d x %d, %+v, %d x %d, %v: differs", m.Width, m.Height, task, w, h, target.Layout)
				}
			}
		})
	}
}

// feedRows brings an image to a task row by row, some at a time.
func feedRows(t *testing.T, r *rand.Rand, z *Resizer, target Target, m *raster.Image, task Task, grey bool) {
	t.Helper()
	span, err := z.Begin(task, target)
	if err != nil {
		t.Fatal(err)
	}
	planes := 3
	if grey {
		planes = 1
	}
	from := r.IntN(span.X0 + 1)
	width := span.X1 - from + r.IntN(m.Width-span.X1+1)
	if err := z.Columns(from, width, planes); err != nil {
		t.Fatal(err)
	}
	for y := span.Y0; y < span.Y1; {
		n := min(1+r.IntN(20), span.Y1-y)
		room := z.Room(n)
		for i := range n {
			for c := range planes {
				for x := range width {
					room.Pix[i*room.Stride+c*room.Pitch+x] = m.Pix[(y+i)*m.Stride+3*(from+x)+c]
				}
			}
		}
		z.Push(0, n)
		y += n
	}
}

func TestTurnRefuses(t *testing.T) {
	var z Resizer
	for _, turn := range []int{-1, 9} {
		if _, err := z.Begin(Task{SourceWidth: 4, SourceHeight: 4, Part: Rect{X1: 4, Y1: 4}, Width: 4, Height: 4, Turn: turn}, Target{Width: 4, Height: 4, Uint8: make([]uint8, 48)}); err == nil {
			t.Errorf("orientation %d passes", turn)
		}
	}
}
