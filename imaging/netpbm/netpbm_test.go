package netpbm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shardify/imaging/internal/fault"
	"shardify/imaging/internal/raster"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

func TestReadHeader(t *testing.T) {
	for _, c := range []struct {
		data string
		want Header
	}{
		{"P6\n2 1\n255\nRGBrgb", Header{Kind: '6', Width: 2, Height: 1, Channels: 3, Max: 255, Size: 11, Row: 6}},
		{"P5 2 1 255 ab", Header{Kind: '5', Width: 2, Height: 1, Channels: 1, Max: 255, Size: 11, Row: 2}},
		{"P5#x\n# 7 7\r\t002\v1\f#\n65535\n\n#ab", Header{Kind: '5', Width: 2, Height: 1, Channels: 1, Max: 65535, Size: 26, Row: 4}},
		{"P4\n9 2\n\x00\x01\x02\x03", Header{Kind: '4', Width: 9, Height: 2, Channels: 1, Max: 1, Size: 7, Row: 2}},
		{"P5\n1 1\n1\n\x01 and behind it", Header{Kind: '5', Width: 1, Height: 1, Channels: 1, Max: 1, Size: 9, Row: 1}},
		{"P3 1 1 255 1 2 3", Header{Kind: '3', Width: 1, Height: 1, Channels: 3, Max: 255, Size: 11}},
		{"P1 3 1 101", Header{Kind: '1', Width: 3, Height: 1, Channels: 1, Max: 1, Size: 7}},
	} {
		if got, err := ReadHeader([]byte(c.data)); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.data, got, err, c.want)
		}
	}
}

func TestReadHeaderSaysWhatIsWrong(t *testing.T) {
	huge := strings.Repeat("9", 30)
	for _, c := range []struct{ data, want string }{
		{"P7\n1 1 255\nx", "it does not begin as P1 to P6 do"},
		{"P65 1 1 255\nx", "it does not begin as P1 to P6 do"},
		{"P6\n0 1\n255\n", "a width of 0 (at byte 3)"},
		{"P6\n-1 1\n255\n", "the width is no number (at byte 3)"},
		{"P6\n2147483648 1\n255\n", "a width of more than 2147483647 (at byte 3)"},
		{"P6\n" + huge + " 1\n255\n", "a width of more than"},
		{"P6\n1 1\n65536\n", "a maximum of more than 65535 (at byte 7)"},
		{"P6\n1 1\n0\n", "a maximum of 0"},
		{"P6\n1 1x\n255\n", "no white space behind the height (at byte 6)"},
		{"P5\n1 1\n255#\nx", "no white space behind the maximum (at byte 10)"},
		{"P6\n2147483647 2147483647\n65535\nx", "stops inside its rows"},
		{"P3\n2147483647 2147483647\n65535\nx", "stops inside its pixels"},
		{"P4\n9 2\n\x00\x01\x02", "stops inside its rows"},
		{"P1 3 1 10", "stops inside its pixels"},
		{"P6\n1 1 # a comment without an end", "stops inside its header"},
		{"P6", "stops inside its header"},
		{"P6\n1 1\n255", "stops inside its header"},
	} {
		_, err := ReadHeader([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.data, err, c.want)
		}
	}
}

// Every file that is cut anywhere is refused.
func TestCut(t *testing.T) {
	for _, head := range []string{"P6 3 5 255\n", "P6\n3\n5\n300\n", "P5 # x\n 3 5 255\n", "P5 3 5 1000 ", "P4 17 5\n"} {
		data := append([]byte(head), make([]byte, 200)...)
		h, err := ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		for n := range h.Size + h.Row*h.Height {
			if _, err := ReadHeader(data[:n:n]); err == nil || n >= 2 && !errors.Is(err, fault.ErrTruncated) {
				t.Errorf("%q cut to %d bytes: %v", head, n, err)
			}
		}
	}
}

// file makes a file of random pixels, and those.
func file(rng *rand.Rand, w, h, channels int) (data, pix []byte) {
	pix = make([]byte, w*h*channels)
	for i := range pix {
		pix[i] = byte(rng.Uint32())
	}
	return append(AppendHeader(nil, w, h, channels), pix...), pix
}

func TestViewSharesTheFilesBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, channels := range []int{1, 3} {
		data, pix := file(rng, 7, 5, channels)
		v, err := View(append(data, "behind"...), 35)
		if err != nil || v.Width != 7 || v.Height != 5 || v.Channels != channels || !bytes.Equal(v.Pix, pix) || cap(v.Pix) != len(pix) {
			t.Errorf("%d channels: %+v, %v", channels, v, err)
		}
		if _, err := View(data, 34); !errors.Is(err, fault.ErrTooLarge) || !strings.Contains(err.Error(), "7 x 5; the bound (max_pixels) is 34") {
			t.Error(err)
		}
		if n := testing.AllocsPerRun(10, func() {
			if _, err := View(data, 0); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	var unsupported *fault.UnsupportedError
	for _, data := range []string{"P4 1 1\n\x00", "P5 1 1 254\n\x00", "P6 1 1 65535\n\x00\x00\x00\x00\x00\x00", "P2 1 1 255\n0"} {
		if _, err := View([]byte(data), 0); !errors.As(err, &unsupported) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

// A crop that is scaled where it lies is one that is cut out, spread over three channels,
// and scaled.
func TestResizeInto(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var z, plain resize.Resizer
	table := tensor.ImageNet.Table()
	for range 300 {
		w, h, channels := 1+rng.IntN(60), 1+rng.IntN(60), []int{1, 3}[rng.IntN(2)]
		data, pix := file(rng, w, h, channels)
		v, err := View(data, 0)
		if err != nil {
			t.Fatal(err)
		}
		width, height := 1+rng.IntN(w), 1+rng.IntN(h)
		x, y := rng.IntN(w-width+1), rng.IntN(h-height+1)
		var m raster.Image
		m.Reset(width, height)
		for r := range height {
			for c := range width {
				for k := range 3 {
					m.Pix[r*m.Stride+3*c+k] = pix[((y+r)*w+x+c)*channels+min(k, channels-1)]
				}
			}
		}
		tw, th := 1+rng.IntN(40), 1+rng.IntN(40)
		if rng.IntN(4) == 0 {
			tw, th = width, height
		}
		task := resize.Task{Part: resize.Rect{X1: float64(width), Y1: float64(height)}, Width: tw, Height: th,
			Filter: resize.Filter(rng.IntN(4)), FlipX: rng.IntN(2) == 0, FlipY: rng.IntN(2) == 0}
		layout := tensor.Layout(rng.IntN(2))
		what := fmt.Sprintf("%d x %d x %d, %d x %d at (%d, %d), %+v, %v", w, h, channels, width, height, x, y, task, layout)
		got, want := make([]uint8, 3*tw*th), make([]uint8, 3*tw*th)
		if err := v.ResizeInto(&z, x, y, width, height, task, resize.Target{Width: tw, Height: th, Layout: layout, Uint8: got}); err != nil {
			t.Fatal(what, err)
		}
		if err := plain.ResizeInto(resize.Target{Width: tw, Height: th, Layout: layout, Uint8: want}, &m, task); err != nil {
			t.Fatal(what, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal(what, "differs")
		}
		floats, wanted := make([]float32, 3*tw*th), make([]float32, 3*tw*th)
		if err := v.ResizeInto(&z, x, y, width, height, task, resize.Target{Width: tw, Height: th, Layout: layout, Float32: floats, Table: table}); err != nil {
			t.Fatal(what, err)
		}
		if err := plain.ResizeInto(resize.Target{Width: tw, Height: th, Layout: layout, Float32: wanted, Table: table}, &m, task); err != nil {
			t.Fatal(what, err)
		}
		if !slices.Equal(floats, wanted) {
			t.Fatal(what, "differs in floats")
		}
	}
}

func TestResizeIntoRefusesCropsOutside(t *testing.T) {
	var z resize.Resizer
	target := resize.Target{Width: 1, Height: 1, Uint8: make([]uint8, 3)}
	for _, channels := range []int{1, 3} {
		v := Pixels{Pix: make([]uint8, 12*channels), Width: 4, Height: 3, Channels: channels}
		for _, c := range [][4]int{{-1, 0, 1, 1}, {0, -1, 1, 1}, {0, 0, 0, 1}, {0, 0, 1, 0}, {4, 0, 1, 1}, {0, 3, 1, 1}, {1, 0, 4, 1}, {0, 1, 1, 3}, {0, 0, 1 << 62, 1}} {
			task := resize.Task{Part: resize.Rect{X1: float64(c[2]), Y1: float64(c[3])}, Width: 1, Height: 1}
			if err := v.ResizeInto(&z, c[0], c[1], c[2], c[3], task, target); err == nil {
				t.Errorf("%v: no error", c)
			}
		}
	}
}

func FuzzReadHeader(f *testing.F) {
	for _, s := range []string{"P6\n2 1\n255\nRGBrgb", "P5#x\n1 2 1000\nabcd", "P4 9 1\nab", "P3 1 1 255 1 2 3", "P1 1 1 1", "P6 99999999999 1 255\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(data)
		if err != nil {
			var format *fault.FormatError
			if h != (Header{}) || !errors.Is(err, fault.ErrTruncated) && !errors.As(err, &format) {
				t.Fatalf("%+v, %v", h, err)
			}
			return
		}
		if h.Width < 1 || h.Height < 1 || h.Max < 1 || h.Size > len(data) || h.Row*h.Height > len(data)-h.Size || h.Row == 0 != (h.Kind < '4') {
			t.Fatalf("%+v of %d bytes", h, len(data))
		}
		if h.Row == 0 || h.Width > 1<<16 {
			return
		}
		line := make([]uint8, 3*h.Width)
		h.RGB(line, data, 0)
		h.RGB(line, data, h.Height-1)
		if !h.Direct() {
			return
		}
		// The file that we would write of its pixels has them, too.
		v, err := View(data, 0)
		if err != nil {
			t.Fatal(err)
		}
		again, err := View(append(AppendHeader(nil, v.Width, v.Height, v.Channels), v.Pix...), 0)
		if err != nil || again.Width != v.Width || again.Height != v.Height || again.Channels != v.Channels || !bytes.Equal(again.Pix, v.Pix) {
			t.Fatalf("%+v, %v; want %+v", again, err, v)
		}
	})
}
