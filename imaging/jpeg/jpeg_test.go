package jpeg

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

func TestReadHeader(t *testing.T) {
	files := corpora(t)
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	profile := bytes.Repeat(all, 300)
	for name, want := range map[string]Header{
		"70x41-sample2x2_1x2_2x1-restart3B-optimize.jpg": {
			Width: 70, Height: 41, Components: 3, Bits: 8, Coding: "baseline", Model: YCbCr,
			Sampling: [4][2]int{{2, 2}, {1, 2}, {2, 1}}, Orientation: 1, RestartInterval: 3, JFIF: true,
		},
		"3x200-restart1.jpg": {
			Width: 3, Height: 200, Components: 1, Bits: 8, Coding: "baseline", Model: Gray,
			Sampling: [4][2]int{{1, 1}}, Orientation: 1, RestartInterval: 1, JFIF: true,
		},
		"exif6.jpg": {
			Width: 37, Height: 22, Components: 3, Bits: 8, Coding: "baseline", Model: YCbCr,
			Sampling: [4][2]int{{2, 2}, {1, 1}, {1, 1}}, Orientation: 6, JFIF: true,
		},
		"12bits-70x41-sample2x1-progressive.jpg": {
			Width: 70, Height: 41, Components: 3, Bits: 12, Coding: "progressive", Model: YCbCr,
			Sampling: [4][2]int{{2, 1}, {1, 1}, {1, 1}}, Orientation: 1, JFIF: true,
		},
		"cmyk-progressive.jpg": {
			Width: 70, Height: 41, Components: 4, Bits: 8, Coding: "progressive", Model: CMYK,
			Sampling: [4][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}}, Orientation: 1, Adobe: true,
		},
		"icc.jpg": {
			Width: 70, Height: 41, Components: 3, Bits: 8, Coding: "baseline", Model: YCbCr,
			Sampling: [4][2]int{{2, 2}, {1, 1}, {1, 1}}, Orientation: 1, JFIF: true,
		},
	} {
		h, err := ReadHeader(files[name])
		want.OneScan = h.Coding != "progressive"
		want.Size, want.ICC = h.Size, h.ICC // which are compared below
		if err != nil || !reflect.DeepEqual(h, want) {
			t.Errorf("%s: %v\n%.300v\n%.300v", name, err, h, want)
		}
		if name == "icc.jpg" != bytes.Equal(h.ICC, profile) {
			t.Errorf("%s: a profile of %d bytes", name, len(h.ICC))
		}
		if w, hh := h.Upright(); name == "exif6.jpg" && (w != 22 || hh != 37) {
			t.Errorf("upright %d x %d", w, hh)
		}
		scan := bytes.LastIndex(files[name][:len(files[name])-2], []byte{0xff, 0xda})
		if h.Coding == "progressive" {
			scan = bytes.Index(files[name], []byte{0xff, 0xda})
		}
		// The header may be all there is; one byte less is not enough.
		head := files[name][:scan+2+4+2+2*h.Components]
		if h.Size != len(head) {
			t.Errorf("%s: a header of %d bytes; want %d", name, h.Size, len(head))
		}
		if _, err := ReadHeader(head); err != nil {
			t.Errorf("%s: the header alone: %v", name, err)
		}
		for n := range head {
			if _, err := ReadHeader(head[:n]); !errors.Is(err, ErrTruncated) {
				t.Fatalf("%s: %d of %d bytes: %v", name, n, len(head), err)
			}
		}
	}
}

// A profile in one piece is the file's own bytes, and nothing is allocated for it.
func TestICC(t *testing.T) {
	file := corpus(t)["70x41-sample2x2.jpg"]
	profile := []byte("a profile")
	segment := append([]byte{0xff, 0xe2, 0, byte(2 + 14 + len(profile))}, "ICC_PROFILE\x00\x01\x01a profile"...)
	one := slices.Insert(slices.Clone(file), 2, segment...)
	if n := testing.AllocsPerRun(10, func() {
		if h, err := ReadHeader(one); err != nil || !bytes.Equal(h.ICC, profile) || &h.ICC[0] != &one[2+18] {
			t.Fatalf("%q, %v", h.ICC, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for name, change := range map[string]func(b []byte){
		"of two":        func(b []byte) { b[2+17] = 2 },
		"number 0":      func(b []byte) { b[2+16] = 0 },
		"number 2 of 1": func(b []byte) { b[2+16] = 2 },
		"another name":  func(b []byte) { b[2+4] = 'X' },
	} {
		bad := slices.Clone(one)
		change(bad)
		if h, err := ReadHeader(bad); err != nil || h.ICC != nil {
			t.Errorf("%s: %q, %v", name, h.ICC, err)
		}
	}
	if h, err := ReadHeader(slices.Insert(slices.Clone(one), 2, segment...)); err != nil || h.ICC != nil {
		t.Errorf("twice: %q, %v", h.ICC, err)
	}
}

// One change to a file, and what comes of it.
func TestErrors(t *testing.T) {
	good := corpus(t)["70x41-sample2x2.jpg"]
	sof := bytes.Index(good, []byte{0xff, 0xc0})
	sos := bytes.Index(good, []byte{0xff, 0xda})
	dht := bytes.Index(good, []byte{0xff, 0xc4})
	var format *FormatError
	var unsupported *UnsupportedError
	set := func(at int, b ...byte) func([]byte) []byte {
		return func(data []byte) []byte { copy(data[at:], b); return data }
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		as     any
		is     error
		text   string
	}{
		"empty":          {func([]byte) []byte { return nil }, nil, ErrTruncated, ""},
		"no JPEG":        {set(0, 'x'), &format, nil, "start marker (at byte 0)"},
		"lossless":       {set(sof+1, 0xc3), &unsupported, nil, "lossless coding"},
		"arithmetic":     {set(sof+1, 0xc9), &unsupported, nil, "extended arithmetic coding"},
		"hierarchical":   {set(sof+1, 0xc5), &unsupported, nil, "hierarchical"},
		"16 bits":        {set(sof+4, 16), &unsupported, nil, "16 bits"},
		"7 bits":         {set(sof+4, 7), &unsupported, nil, "7 bits"},
		"width 0":        {set(sof+7, 0, 0), &format, nil, "width 0"},
		"height 0":       {set(sof+5, 0, 0), &unsupported, nil, "DNL"},
		"2 components":   {set(sof+9, 2), &format, nil, "wrong length"},
		"sampling 0":     {set(sof+11, 0), &format, nil, "sampling factor"},
		"sampling 5":     {set(sof+11, 0x51), &format, nil, "sampling factor"},
		"sampling 2/3":   {set(sof+11, 0x31, 0, 2, 0x21), &unsupported, nil, "whole number"},
		"MCU of 11":      {set(sof+11, 0x44), &format, nil, "more than 10"},
		"quantisation":   {set(sof+12, 3), &format, nil, "quantisation table 3 is missing"},
		"Huffman":        {set(sos+6, 0x33), &format, nil, "Huffman table 3 is missing"},
		"no component":   {set(sos+5, 9), &format, nil, "names a component"},
		"codes too many": {set(dht+5, 255, 255), &format, nil, "too many codes"},
		"codes too long": {set(dht+5, 2, 1, 3), &format, nil, "makes no sense"},
		"two frames":     {func(d []byte) []byte { return slices.Insert(d, sof, d[sof:sof+19]...) }, &format, nil, "two frame headers"},
		"no frame":       {func(d []byte) []byte { return slices.Delete(d, sof, sof+19) }, &format, nil, "before the frame header"},
		"no scan":        {func(d []byte) []byte { return append(d[:sos], 0xff, 0xd9) }, &format, nil, "before any image data"},
		"unknown marker": {func(d []byte) []byte { return slices.Insert(d, sof, 0xff, 0xf1, 0, 2) }, &format, nil, "unknown marker 0xf1"},
		"huge":           {set(sof+5, 0xff, 0xff, 0xff, 0xff), nil, ErrTooLarge, "65535 x 65535"},
		"large":          {set(sof+5, 0x2f, 0xff, 0x2f, 0xff), nil, ErrTruncated, "cannot hold"},
		"cut":            {func(d []byte) []byte { return d[:len(d)/2] }, nil, ErrTruncated, "inside the image data"},
		"no end marker":  {func(d []byte) []byte { return d[:len(d)-2] }, nil, ErrTruncated, ""},
		"rest":           {func(d []byte) []byte { return slices.Insert(d, len(d)-2, 1, 2, 3) }, &format, nil, "belong to nothing"},
	} {
		data := c.change(slices.Clone(good))
		var m raster.Image
		var d Decoder
		err := d.Decode(data, &m, Options{})
		if err == nil || c.as != nil && !errors.As(err, c.as) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	data := corpus(t)["70x41-sample2x2.jpg"]
	var d Decoder
	var m raster.Image
	for _, o := range []Options{
		{Color: 3}, {Color: -1}, {Scale: 3}, {Scale: -2}, {X: 1}, {Width: 2}, {Height: 1}, {X: -1, Width: 1, Height: 1},
		{Width: -1, Height: -1}, {MaxPixels: -1}, {Damaged: 3},
		{Width: 71, Height: 1}, {X: 70, Width: 1, Height: 1}, {Y: math.MaxInt, Width: 1, Height: 1},
		{Scale: 8, Width: 10, Height: 6}, {MaxPixels: 70*41 - 1}, {Color: ToGray},
	} {
		if err := d.Decode(data, &m, o); err == nil {
			t.Errorf("%+v passes", o)
		}
	}
	want := Options{Color: ToGray, Scale: 2, Orient: true, X: 1, Y: 2, Width: 3, Height: 4, MaxPixels: 5, Damaged: Keep}
	text, err := json.Marshal(want)
	var back Options
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || back != want || !strings.Contains(string(text), `"color":"gray"`) || !strings.Contains(string(text), `"damaged":"keep"`) {
		t.Errorf("%s: %+v %v", text, back, err)
	}
	for _, text := range []string{`{"color": "green"}`, `{"damaged": "hide"}`} {
		if err := json.Unmarshal([]byte(text), &back); err == nil {
			t.Errorf("%s passes", text)
		}
	}
	if _, err := json.Marshal(Options{Damaged: 9}); err == nil || Policy(9).String() != "Policy(9)" || AsPillow.String() != "as-pillow" {
		t.Errorf("%v", err)
	}
}

// A region of an image that is turned upright is that of the upright image.
func TestOrientation(t *testing.T) {
	files := corpus(t)
	r := rand.New(rand.NewPCG(7, 8))
	var d Decoder
	for o := range 8 {
		data := files["exif"+string(rune('1'+o))+".jpg"]
		for _, scale := range []int{1, 4} {
			var whole raster.Image
			if err := d.Decode(data, &whole, Options{Orient: true, Scale: scale}); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				j := Job{Data: data, Image: new(raster.Image), Options: Options{Orient: true, Scale: scale}}
				j.Width, j.Height = 1+r.IntN(whole.Width), 1+r.IntN(whole.Height)
				j.X, j.Y = r.IntN(whole.Width-j.Width+1), r.IntN(whole.Height-j.Height+1)
				jobs := []Job{j}
				d.DecodeAll(jobs)
				if err := part(&whole, &jobs[0]); err != nil {
					t.Fatalf("orientation %d, %+v: %v", o+1, j.Options, err)
				}
			}
		}
	}
}

// A target gets what resizing the region as an image makes, in every layout,
// colour and orientation.
func TestTargets(t *testing.T) {
	files := corpora(t)
	r := rand.New(rand.NewPCG(9, 10))
	table := tensor.Normalize{}.Table()
	var d Decoder
	var z resize.Resizer
	for _, name := range sorted(files) {
		var region raster.Image
		var whole raster.Image
		o := Options{Orient: true, Scale: 1 << r.IntN(3)}
		if err := d.Decode(files[name], &whole, o); err != nil {
			t.Fatal(err)
		}
		o.Width, o.Height = 1+r.IntN(whole.Width), 1+r.IntN(whole.Height)
		o.X, o.Y = r.IntN(whole.Width-o.Width+1), r.IntN(whole.Height-o.Height+1)
		if err := d.Decode(files[name], &region, o); err != nil {
			t.Fatal(err)
		}
		w, h := 1+r.IntN(40), 1+r.IntN(40)
		task := resize.Task{Part: resize.Full(&region), Width: w, Height: h, FlipX: r.IntN(2) == 0, FlipY: r.IntN(2) == 0}
		var jobs []Job
		var want []resize.Target
		for _, layout := range []tensor.Layout{tensor.NCHW, tensor.NHWC} {
			for range 2 {
				target := resize.Target{Width: w, Height: h, Layout: layout, Uint8: make([]uint8, 3*w*h)}
				expect := target
				expect.Uint8 = make([]uint8, 3*w*h)
				j := Job{Data: files[name], Options: o, Task: task, Target: target}
				if len(jobs)%2 == 1 {
					j.Target.Uint8, expect.Uint8 = nil, nil
					j.Target.Float32, expect.Float32 = make([]float32, 3*w*h), make([]float32, 3*w*h)
					j.Target.Table, expect.Table = table, table
				}
				jobs, want = append(jobs, j), append(want, expect)
			}
		}
		// Unscaled: the region itself.
		j := Job{Data: files[name], Options: o, Target: resize.Target{Width: o.Width, Height: o.Height, Layout: tensor.NHWC, Uint8: make([]uint8, len(region.Pix))}}
		jobs = append(jobs, j)
		d.DecodeAll(jobs)
		for i := range want {
			if jobs[i].Err != nil {
				t.Fatalf("%s: %v", name, jobs[i].Err)
			}
			if err := z.ResizeInto(want[i], &region, task); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(want[i].Uint8, jobs[i].Target.Uint8) || !slices.Equal(want[i].Float32, jobs[i].Target.Float32) {
				t.Fatalf("%s, %+v, target %d differs from resizing the region", name, o, i)
			}
		}
		if last := jobs[len(jobs)-1]; last.Err != nil || !bytes.Equal(last.Target.Uint8, region.Pix) {
			t.Fatalf("%s: %v", name, last.Err)
		}
	}
}

// Grey is the luma that the file has.
func TestColors(t *testing.T) {
	files := corpora(t)
	var d Decoder
	for _, name := range []string{"70x41-sample2x2.jpg", "exif1.jpg", "exif3.jpg", "exif6.jpg", "3x200-restart1.jpg", "cmyk.jpg", "70x41-rgb-quality90.jpg"} {
		h, err := ReadHeader(files[name])
		if err != nil {
			t.Fatal(err)
		}
		w, hh := h.Upright()
		grey := Job{Data: files[name], Options: Options{Color: ToGray, Orient: true}, Target: resize.Target{Width: w, Height: hh, Channels: 1, Uint8: make([]uint8, w*hh)}}
		ycbcr := Job{Data: files[name], Options: Options{Color: ToYCbCr, Orient: true}, Image: new(raster.Image)}
		jobs := []Job{grey, ycbcr}
		d.DecodeAll(jobs)
		if jobs[0].Err != nil {
			t.Fatalf("%s: %v", name, jobs[0].Err)
		}
		if h.Model != YCbCr && h.Model != Gray {
			var rgb raster.Image
			if err := d.Decode(files[name], &rgb, Options{}); err != nil {
				t.Fatal(err)
			}
			for i, v := range grey.Target.Uint8 {
				p := rgb.Pix[3*i:]
				if want := uint8((19595*uint32(p[0]) + 38470*uint32(p[1]) + 7471*uint32(p[2]) + 0x8000) >> 16); v != want {
					t.Fatalf("%s: pixel %d is %d, not %d", name, i, v, want)
				}
			}
			if jobs[1].Err == nil {
				t.Errorf("%s has no luma and chroma", name)
			}
			continue
		}
		if jobs[1].Err != nil {
			t.Fatalf("%s: %v", name, jobs[1].Err)
		}
		for i, v := range grey.Target.Uint8 {
			if y := ycbcr.Image.Pix[3*i]; v != y {
				t.Fatalf("%s: pixel %d is %d, its luma %d", name, i, v, y)
			}
		}
	}
}

// Damage below a region does not matter to it; damage in it is told with its place.
func TestDamagedRegion(t *testing.T) {
	data := slices.Clone(corpus(t)["3x200-restart1.jpg"])
	data = data[:len(data)*3/4]
	var d Decoder
	var m raster.Image
	if err := d.Decode(data, &m, Options{Width: 3, Height: 80}); err != nil {
		t.Error(err)
	}
	var damaged *DamagedError
	err := d.Decode(data, &m, Options{Damaged: Keep})
	if !errors.As(err, &damaged) || !errors.Is(err, ErrTruncated) || damaged.Row < 100 || damaged.Row >= 200 || m.Height != 200 {
		t.Errorf("%+v", err)
	}
	if got, want := m.Pix[3*3*199], uint8(128); got != want {
		t.Errorf("the end is %d, not %d", got, want)
	}
}

// A good file among bad ones, in any order, comes out as it does alone.
func TestDecodeAllMixed(t *testing.T) {
	files := corpora(t)
	names := sorted(files)
	want := sums(t)
	r := rand.New(rand.NewPCG(11, 12))
	var d Decoder
	for range 10 {
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		jobs := make([]Job, len(names))
		for i, name := range names {
			data := files[name]
			if i%3 == 1 {
				data = damage(r, data)
			}
			jobs[i] = Job{Data: data, Image: new(raster.Image), Options: Options{Orient: true, MaxPixels: 1 << 24}}
			if i%5 == 0 {
				if s, err := new(Decoder).MakeSeek(files[name], 1+i%4); err == nil {
					jobs[i].Seek = s
				}
			}
		}
		d.DecodeAll(jobs)
		for i, name := range names {
			if i%3 == 1 {
				continue
			}
			if jobs[i].Err != nil || sum(jobs[i].Image) != atScale(want[name], 1) {
				t.Fatalf("%s: %v", name, jobs[i].Err)
			}
		}
	}
}

// Stored seek points come back, and those of another file are refused.
func TestSeek(t *testing.T) {
	files := corpus(t)
	var d Decoder
	data := files["120x90-quality98.jpg"]
	s, err := d.MakeSeek(data, 2)
	if err != nil {
		t.Fatal(err)
	}
	stored := s.Append([]byte("x"))
	var back Seek
	if err := d.ParseSeek(&back, stored[1:], data); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.Append(nil), stored[1:]) {
		t.Error("other points come back")
	}
	if err := d.ParseSeek(&back, stored[1:], files["70x41-sample2x2.jpg"]); err == nil {
		t.Error("points of another file pass")
	}
	var unsupported *UnsupportedError
	if _, err := d.MakeSeek(files["70x41-sample2x2-progressive.jpg"], 0); !errors.As(err, &unsupported) {
		t.Errorf("progressive: %v", err)
	}
	if _, err := d.MakeSeek(data[:len(data)/2], 0); err == nil {
		t.Error("half a file has points")
	}
	if _, err := d.MakeSeek(data, -1); err == nil {
		t.Error("every -1 passes")
	}
	// Points of other bytes: noticed, or without effect, never a fault.
	var m, want raster.Image
	if err := d.Decode(data, &want, Options{}); err != nil {
		t.Fatal(err)
	}
	other, err := d.MakeSeek(files["120x90-quality98.jpg"], 0)
	if err != nil {
		t.Fatal(err)
	}
	j := []Job{{Data: data, Image: &m, Seek: other}}
	d.DecodeAll(j)
	if j[0].Err != nil || !bytes.Equal(m.Pix, want.Pix) {
		t.Errorf("%v", j[0].Err)
	}
}

// Stored points do what those do that are parsed before, for several files at once; where
// they make no sense, or are another file's, the pixels are the same and SeekErr tells.
func TestJobPoints(t *testing.T) {
	files := corpus(t)
	var d Decoder
	names := []string{"120x90-quality98.jpg", "70x41-sample2x2.jpg"}
	for round := range 2 { // with the memory of the first
		for _, spoil := range []string{"", "cut", "more", "other"} {
			var jobs []Job
			var wants []*raster.Image
			for i := range 6 {
				name := names[i%2]
				s, err := d.MakeSeek(files[name], i/2)
				if err != nil {
					t.Fatal(err)
				}
				points := s.Append(nil)
				switch spoil {
				case "cut":
					points = points[:len(points)-1]
				case "more":
					points = append(points, 0)
				case "other":
					if s, err = d.MakeSeek(files[names[1-i%2]], 0); err != nil {
						t.Fatal(err)
					}
					points = s.Append(nil)
				}
				want := new(raster.Image)
				if err := d.Decode(files[name], want, Options{}); err != nil {
					t.Fatal(err)
				}
				wants = append(wants, want)
				jobs = append(jobs, Job{Data: files[name], Points: points, Image: new(raster.Image)})
			}
			d.DecodeAll(jobs)
			for i := range jobs {
				j := &jobs[i]
				if j.Err != nil || !bytes.Equal(j.Image.Pix, wants[i].Pix) {
					t.Errorf("round %d, %q, job %d: %v, or other pixels", round, spoil, i, j.Err)
				}
				if (j.SeekErr != nil) != (spoil != "") {
					t.Errorf("round %d, %q, job %d: SeekErr %v", round, spoil, i, j.SeekErr)
				}
			}
		}
	}
}

// With seek points, what comes before a region's rows is not looked at.
func TestSeekSkips(t *testing.T) {
	data := corpus(t)["120x90-quality98.jpg"]
	var d Decoder
	var want, got raster.Image
	if err := d.Decode(data, &want, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, every := range []int{0, 3} {
		s, err := d.MakeSeek(data, every)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{X: 50, Y: 40, Width: 60, Height: 30}
		spoilt := slices.Clone(data)
		sos := bytes.Index(data, []byte{0xff, 0xda}) + 14
		clear(spoilt[sos : sos+(len(data)-sos)/4])
		jobs := []Job{{Data: spoilt, Seek: s, Image: &got, Options: o}}
		d.DecodeAll(jobs)
		if err := part(&want, &jobs[0]); err != nil {
			t.Errorf("every %d: %v", every, err)
		}
	}
}

// Once warm, nothing is allocated.
func TestAllocations(t *testing.T) {
	files := corpora(t)
	var jobs []Job
	var d Decoder
	for _, name := range []string{"70x41-sample2x2.jpg", "70x41-sample1x1-progressive.jpg", "120x90-quality98.jpg", "3x200-restart1.jpg", "cmyk.jpg", "exif6.jpg", "17x17-progressive.jpg", "12bits-70x41-sample2x2.jpg"} {
		j := Job{Data: files[name], Options: Options{Orient: true}, Task: resize.Task{Part: resize.Rect{X1: 3, Y1: 5}, Width: 20, Height: 20}}
		j.Target = resize.Target{Width: 20, Height: 20, Uint8: make([]uint8, 1200)}
		j.Seek, _ = d.MakeSeek(files[name], 2)
		jobs = append(jobs, j)
	}
	if n := testing.AllocsPerRun(20, func() {
		d.DecodeAll(jobs)
		for i := range jobs {
			if jobs[i].Err != nil {
				t.Fatal(jobs[i].Err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReadHeader(f *testing.F) {
	for _, data := range corpora(f) {
		f.Add(data[:min(len(data), 700)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(data)
		if err == nil && (h.Width < 1 || h.Height < 1 || h.Orientation < 1 || h.Orientation > 8 || h.Sampling[h.Components-1][0] < 1 || h.Size > len(data)) {
			t.Errorf("%+v", h)
		}
	})
}

// Any bytes: no fault, and a region is part of the whole if both come out.
func FuzzDecode(f *testing.F) {
	for _, data := range corpora(f) {
		f.Add(data, uint16(3), uint16(2), uint16(9), uint16(7), uint8(0))
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, data []byte, x, y, w, h uint16, scale uint8) {
		o := Options{MaxPixels: 1 << 18, Damaged: Keep, Scale: 1 << (scale % 4), Orient: scale&8 != 0}
		var whole raster.Image
		err := d.Decode(data, &whole, o)
		var damaged *DamagedError
		if err != nil && !errors.As(err, &damaged) {
			return
		}
		if int(w) == 0 || int(h) == 0 || int(x)+int(w) > whole.Width || int(y)+int(h) > whole.Height {
			return
		}
		o.X, o.Y, o.Width, o.Height = int(x), int(y), int(w), int(h)
		jobs := []Job{{Data: data, Options: o, Image: new(raster.Image)}}
		d.DecodeAll(jobs)
		if jobs[0].Err != nil && !errors.As(jobs[0].Err, &damaged) {
			t.Fatalf("the region gives %v, the whole %v", jobs[0].Err, err)
		}
		jobs[0].Err = nil
		if err := part(&whole, &jobs[0]); err != nil {
			t.Error(err)
		}
	})
}
