package resize

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"shardify/imaging/internal/raster"
	"shardify/imaging/tensor"
	"shardify/internal/guardtest"
	"shardify/internal/simd"
)

// assembly runs a test at every level that has assembly.
func assembly(t *testing.T, test func(t *testing.T, level simd.Level)) {
	for _, l := range simd.All()[1:] {
		t.Run(l.String(), func(t *testing.T) { test(t, l) })
	}
}

func at(l simd.Level) *Resizer { return &Resizer{level: l + 1} }

// draw draws a task and a window, of all shapes: large scales, small ones, one pixel.
func draw(r *rand.Rand, sw, sh int) (task Task, w, h int) {
	side := func() int {
		switch r.IntN(4) {
		case 0:
			return 1 + r.IntN(8)
		case 1:
			return 1 + r.IntN(500)
		}
		return 1 + r.IntN(120)
	}
	task = Task{SourceWidth: sw, SourceHeight: sh, Filter: Filter(r.IntN(len(filters))), Width: side(), Height: side(), FlipX: r.IntN(2) == 0, FlipY: r.IntN(2) == 0}
	task.Part = Rect{0, 0, float64(sw), float64(sh)}
	if r.IntN(3) > 0 {
		x, y := r.Float64()*float64(sw)*0.8, r.Float64()*float64(sh)*0.8
		task.Part = Rect{x, y, x + 0.1 + r.Float64()*(float64(sw)-x-0.1), y + 0.1 + r.Float64()*(float64(sh)-y-0.1)}
	}
	switch r.IntN(6) {
	case 0:
		task.Width, task.Part.X0, task.Part.X1 = sw, 0, float64(sw)
	case 1:
		task.Height, task.Part.Y0, task.Part.Y1 = sh, 0, float64(sh)
	}
	w, h = task.Width, task.Height
	if r.IntN(3) == 0 {
		w, h = 1+r.IntN(w), 1+r.IntN(h)
		task.X, task.Y = r.IntN(task.Width-w+1), r.IntN(task.Height-h+1)
	}
	return task, w, h
}

func sized(r *rand.Rand) (w, h int) {
	w, h = 1+r.IntN(640), 1+r.IntN(60)
	if r.IntN(2) == 0 {
		w, h = 1+r.IntN(60), 1+r.IntN(640)
	}
	return w, h
}

func TestLevelsAgree(t *testing.T) {
	m := noise(640, 640)
	assembly(t, func(t *testing.T, level simd.Level) {
		r := rand.New(rand.NewPCG(7, 8))
		z, generic := at(level), at(simd.Generic)
		for range 300 / every {
			src, err := Crop(m, 0, 0, 1, 1)
			if err == nil {
				w, h := sized(r)
				src, err = Crop(m, 0, 0, w, h)
			}
			if err != nil {
				t.Fatal(err)
			}
			task, w, h := draw(r, src.Width, src.Height)
			got, want := raster.Image{Width: w, Height: h}, raster.Image{Width: w, Height: h}
			if err := generic.ResizeWindow(&want, &src, task.Part, task.Filter, task.Width, task.Height, task.X, task.Y); err != nil {
				t.Fatal(err)
			}
			if err := z.ResizeWindow(&got, &src, task.Part, task.Filter, task.Width, task.Height, task.X, task.Y); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Pix, want.Pix) {
				t.Fatalf("%+v, window of %d x %d: differs from generic", task, w, h)
			}
		}
	})
}

// Rows that are pushed a few at a time make what the whole image makes, in every
// layout and type, mirrored or not, of grey or colour, with whatever lies around
// the rows and columns that are needed.
func TestPushedRowsMakeTheSame(t *testing.T) {
	m := noise(640, 640)
	table := tensor.ImageNet.Table()
	table16 := table.BFloat16()
	for _, level := range simd.All() {
		t.Run(level.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(9, 10))
			z, whole := at(level), at(simd.Generic)
			for i := range 200 / every {
				w, h := sized(r)
				src, err := Crop(m, 0, 0, w, h)
				if err != nil {
					t.Fatal(err)
				}
				planes := 3
				if r.IntN(4) == 0 {
					planes = 1
					var grey raster.Image
					grey.Reset(w, h)
					for y := range h {
						for x := range w {
							v := src.Pix[y*src.Stride+3*x]
							copy(grey.Pix[y*grey.Stride+3*x:], []byte{v, v, v})
						}
					}
					src = grey
				}
				task, ww, wh := draw(r, w, h)
				want := raster.Image{Width: ww, Height: wh}
				if err := whole.ResizeWindow(&want, &src, task.Part, task.Filter, task.Width, task.Height, task.X, task.Y); err != nil {
					t.Fatal(err)
				}
				target := Target{Width: ww, Height: wh, Layout: tensor.Layout(r.IntN(2)), Channels: []int{0, 1, 3}[r.IntN(3)]}
				n := target.channels() * ww * wh
				switch r.IntN(3) {
				case 0:
					if target.Layout == tensor.NHWC {
						target.Stride = target.channels()*ww + 5
						n = target.Stride * wh
					}
					target.Uint8 = make([]uint8, n)
				case 1:
					target.Float32, target.Table = make([]float32, n), table
				case 2:
					target.Half, target.Table16 = make([]uint16, n), table16
				}
				span, err := z.Begin(task, target)
				if err != nil {
					t.Fatal(err)
				}
				from := r.IntN(span.X0 + 1)
				to := span.X1 + r.IntN(w-span.X1+1)
				if err := z.Columns(from, to-from, planes); err != nil {
					t.Fatal(err)
				}
				for y := span.Y0; !z.Done(); {
					rows := 1 + r.IntN(17)
					skip := r.IntN(min(rows, y+1))
					room := z.Room(rows)
					for j := range rows {
						for c := range planes {
							row := room.Pix[j*room.Stride+c*room.Pitch:][:room.Pitch]
							for x := range row {
								row[x] = uint8(r.Uint32())
							}
							if sy := y - skip + j; sy < h {
								for x := span.X0; x < span.X1; x++ {
									row[x-from] = src.Pix[sy*src.Stride+3*x+c]
								}
							}
						}
					}
					z.Push(skip, rows)
					if y += rows - skip; y > span.Y1+40 {
						t.Fatalf("case %d: %+v: not done", i, task)
					}
				}
				if err := same(target, &want, &task, table, table16); err != nil {
					t.Fatalf("case %d: %+v, window of %d x %d, %d planes, %v: %v", i, task, ww, wh, planes, target.Layout, err)
				}
			}
		})
	}
}

// same compares a target with an image of what it should hold.
func same(target Target, want *raster.Image, task *Task, table *tensor.Table, table16 *tensor.Table16) error {
	w, h := want.Width, want.Height
	for y := range h {
		for x := range w {
			for c := range 3 {
				if c >= target.channels() {
					break
				}
				at := y*max(target.Stride, target.channels()*w) + target.channels()*x + c
				if target.Layout == tensor.NCHW {
					at = (c*h+y)*w + x
				}
				sx, sy := x, y
				if task.FlipX {
					sx = w - 1 - x
				}
				if task.FlipY {
					sy = h - 1 - y
				}
				v := want.Pix[sy*want.Stride+3*sx+c]
				switch {
				case target.Uint8 != nil && target.Uint8[at] != v,
					target.Float32 != nil && target.Float32[at] != table[c][v],
					target.Half != nil && target.Half[at] != table16[c][v]:
					return fmt.Errorf("channel %d of (%d, %d) differs", c, x, y)
				}
			}
		}
	}
	return nil
}

func TestResizeInto(t *testing.T) {
	m := noise(300, 200)
	var z Resizer
	want := raster.Image{Width: 64, Height: 48}
	if err := z.Resize(&want, m, Full(m), Bilinear); err != nil {
		t.Fatal(err)
	}
	for _, layout := range []tensor.Layout{tensor.NCHW, tensor.NHWC} {
		for _, flip := range []bool{false, true} {
			target := Target{Width: 64, Height: 48, Layout: layout, Uint8: make([]uint8, 3*64*48)}
			task := Task{Part: Full(m), Width: 64, Height: 48, FlipX: flip}
			if err := z.ResizeInto(target, m, task); err != nil {
				t.Fatal(err)
			}
			if err := same(target, &want, &task, nil, nil); err != nil {
				t.Errorf("%v, flip %v: %v", layout, flip, err)
			}
		}
	}
	full := Task{SourceWidth: 300, SourceHeight: 200, Part: Full(m), Width: 8, Height: 8}
	for name, target := range map[string]Target{
		"no size":     {Uint8: make([]uint8, 3)},
		"no elements": {Width: 8, Height: 8},
		"two kinds":   {Width: 8, Height: 8, Uint8: make([]uint8, 192), Float32: make([]float32, 192)},
		"too few":     {Width: 8, Height: 8, Uint8: make([]uint8, 191)},
		"no table":    {Width: 8, Height: 8, Float32: make([]float32, 192)},
		"no layout":   {Width: 8, Height: 8, Uint8: make([]uint8, 192), Layout: 2},
		"gaps":        {Width: 8, Height: 8, Uint8: make([]uint8, 300), Stride: 30},
		"4 channels":  {Width: 8, Height: 8, Uint8: make([]uint8, 256), Channels: 4},
		"too large":   {Width: 9, Height: 8, Uint8: make([]uint8, 216)},
	} {
		if _, err := z.Begin(full, target); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	span, err := z.Begin(full, Target{Width: 8, Height: 8, Uint8: make([]uint8, 192)})
	if err != nil {
		t.Fatal(err)
	}
	if z.Columns(span.X0+1, 300, 3) == nil || z.Columns(0, span.X1-1, 3) == nil || z.Columns(0, 300, 2) == nil {
		t.Error("columns that do not cover what is needed passed")
	}
}

// Source and destination lie against pages that may not be touched.
func TestNothingBeyondTheImageIsTouched(t *testing.T) {
	for _, side := range []guardtest.Side{guardtest.After, guardtest.Before} {
		assembly(t, func(t *testing.T, level simd.Level) {
			r := rand.New(rand.NewPCG(11, 12))
			z := at(level)
			for range 60 / every {
				w, h := sized(r)
				src := raster.Image{Width: w, Height: h, Stride: 3 * w, Pix: guardtest.Bytes(t, 3*w*h, side)}
				task, ww, wh := draw(r, w, h)
				dst := raster.Image{Width: ww, Height: wh, Stride: 3 * ww, Pix: guardtest.Bytes(t, 3*ww*wh, side)}
				if err := z.ResizeWindow(&dst, &src, task.Part, task.Filter, task.Width, task.Height, task.X, task.Y); err != nil {
					t.Fatal(err)
				}
				target := Target{Width: ww, Height: wh, Uint8: guardtest.Bytes(t, 3*ww*wh, side)}
				if err := z.ResizeInto(target, &src, task); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The horizontal kernels read rows no further than they say, and write whole blocks
// of 32.
func TestHorizontalKernelsStayInside(t *testing.T) {
	assembly(t, func(t *testing.T, level simd.Level) {
		r := rand.New(rand.NewPCG(13, 14))
		seen := map[string]bool{}
		for range 400 {
			source, n := 1+r.IntN(3000), 1+r.IntN(300)
			var a axis
			a.set(axisKey{source, 0, float32(source), n, 0, n, Filter(r.IntN(len(filters))), r.IntN(2) == 0, r.IntN(2) == 0, true, level})
			seen[fmt.Sprint(a.form, a.fine)] = true
			const rows = 2
			stride, out := a.end-a.base+a.over(), (n+31)&^31
			src, dst := guardtest.Bytes(t, rows*stride, guardtest.After), guardtest.Bytes(t, rows*out, guardtest.After)
			for i := range src {
				src[i] = uint8(r.Uint32())
			}
			horizontal(dst, out, src, stride, rows, &a)
			want := make([]uint8, rows*out)
			horizontalGeneric(want, out, src, stride, rows, &a)
			for y := range rows {
				if !bytes.Equal(dst[y*out:][:n], want[y*out:][:n]) {
					t.Fatalf("%+v: differs from generic", a.key)
				}
			}
		}
		for _, f := range []form{formShort, formLong, formWide} {
			if !seen[fmt.Sprint(f, level == simd.AVX512 && f != formWide)] {
				t.Errorf("no case took form %v: %v", f, seen)
			}
		}
	})
}

// Weights as large as they get, and sums that leave the range on both sides.
func TestVerticalKernelsOnExtremes(t *testing.T) {
	assembly(t, func(t *testing.T, level simd.Level) {
		r := rand.New(rand.NewPCG(15, 16))
		for range 500 {
			taps, n := 1+r.IntN(20), 32+r.IntN(200)
			a := axis{key: axisKey{level: level}, stride: taps, taps: taps}
			a.first, a.count, a.weights = []int32{0}, []int32{int32(taps)}, make([]int32, taps)
			for i := range a.weights { // the sum of all must fit
				a.weights[i] = int32(r.IntN(2*most/taps+1) - most/taps)
			}
			a.prepareRows()
			src := make([]uint8, taps*n)
			for i := range src {
				src[i] = uint8(-r.IntN(2))
				if r.IntN(3) == 0 {
					src[i] = uint8(r.Uint32())
				}
			}
			got, want := make([]uint8, n), make([]uint8, n)
			vertical(got, src, n, &a, 0)
			for x := range want {
				sum := int64(half)
				for i, w := range a.weights {
					sum += int64(w) * int64(src[i*n+x])
				}
				want[x] = uint8(min(max(sum>>precision, 0), 255))
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%d taps of %v, %d bytes: differs from exact sums", taps, a.weights, n)
			}
		}
	})
}

// Every byte, at every length that has a tail, without a touch beyond.
func TestLookupKernels(t *testing.T) {
	var table32 [256]float32
	var table16 [256]uint16
	for i := range table32 {
		table32[i], table16[i] = float32(i)*1.5-7, uint16(i*257+3)
	}
	assembly(t, func(t *testing.T, level simd.Level) {
		for _, n := range []int{1, 7, 8, 9, 15, 16, 31, 32, 33, 47, 100, 256} {
			src := guardtest.Bytes(t, n, guardtest.After)
			raw32, raw16 := guardtest.Bytes(t, 4*n, guardtest.After), guardtest.Bytes(t, 2*n, guardtest.After)
			out32 := unsafe.Slice((*float32)(unsafe.Pointer(&raw32[0])), n)
			out16 := unsafe.Slice((*uint16)(unsafe.Pointer(&raw16[0])), n)
			for first := range 256 {
				for i := range src {
					src[i] = uint8(first + i)
				}
				lookup32(out32, src, &table32, level)
				lookup16(out16, src, &table16, level)
				for i, v := range src {
					if out32[i] != table32[v] || out16[i] != table16[v] {
						t.Fatalf("%d bytes: %d is %v, %d", n, v, out32[i], out16[i])
					}
				}
			}
		}
	})
}

func TestDigits(t *testing.T) {
	for _, w := range []int32{0, 1, -1, 127, 128, 255, 256, 32767, 32768, -32768, -32769, 1 << 22, -1 << 22, most, -most} {
		h, m, l := digits(w)
		if got := int32(int8(h))<<16 + int32(int8(m))<<8 + int32(int8(l)); got != w {
			t.Errorf("%d: %d", w, got)
		}
	}
}
