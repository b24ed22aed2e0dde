package pack

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/imaging"
	"shardify/imaging/jpeg"
	"shardify/imaging/netpbm"
	"shardify/index"
	"shardify/internal/peers"
	"shardify/sample"
	"shardify/source"
	"shardify/store"
	"shardify/store/file"
	"shardify/store/mem"
)

func TestScaled(t *testing.T) {
	for _, c := range []struct {
		cfg        Convert
		w, h       int
		wide, high int
	}{
		{Convert{MaxSide: 100}, 200, 100, 100, 50},
		{Convert{MaxSide: 100}, 100, 200, 50, 100},
		{Convert{MaxSide: 100}, 100, 100, 100, 100},
		{Convert{MaxSide: 100}, 3, 99, 3, 99},
		{Convert{MaxSide: 100}, 101, 50, 100, 50}, // 49.504… is rounded
		{Convert{MaxSide: 100}, 10000, 1, 100, 1}, // never nothing
		{Convert{MinSide: 100}, 400, 200, 200, 100},
		{Convert{MinSide: 100}, 50, 4000, 50, 4000},
		{Convert{MinSide: 256}, 500, 375, 341, 256},
		{Convert{MaxSide: 300, MinSide: 100}, 400, 200, 200, 100}, // by the shorter side
		{Convert{MaxSide: 300, MinSide: 100}, 900, 200, 300, 67},  // by the longer
		{Convert{MaxSide: 300, MinSide: 100}, 290, 90, 290, 90},
		{Convert{}, 70000, 70000, 70000, 70000},
	} {
		if w, h := c.cfg.scaled(c.w, c.h); w != c.wide || h != c.high {
			t.Errorf("%+v: %d x %d becomes %d x %d; want %d x %d", c.cfg, c.w, c.h, w, h, c.wide, c.high)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		c := Convert{MaxSide: 1 + r.IntN(1000)}
		if r.IntN(2) == 0 {
			c.MinSide = r.IntN(c.MaxSide)
		}
		if r.IntN(4) == 0 {
			c.MaxSide = 0
		}
		w, h := 1+r.IntN(3000), 1+r.IntN(3000)
		sw, sh := c.scaled(w, h)
		long, short := max(sw, sh), min(sw, sh)
		switch {
		case sw < 1 || sh < 1 || sw > w || sh > h,
			c.MaxSide > 0 && long > c.MaxSide,
			c.MinSide > 0 && short > c.MinSide:
			t.Fatalf("%+v: %d x %d becomes %d x %d", c, w, h, sw, sh)
		case sw == w && sh == h:
			if c.MaxSide > 0 && max(w, h) > c.MaxSide || c.MinSide > 0 && min(w, h) > c.MinSide {
				t.Fatalf("%+v: %d x %d stays", c, w, h)
			}
		case long != c.MaxSide && short != c.MinSide:
			t.Fatalf("%+v: %d x %d becomes %d x %d, smaller than asked for", c, w, h, sw, sh)
		}
		// The shape is kept to within half a pixel of either side.
		if d := int64(sw)*int64(h) - int64(sh)*int64(w); min(sw, sh) > 1 && 2*max(d, -d) > int64(max(w, h)) {
			t.Fatalf("%+v: %d x %d becomes %d x %d, of another shape", c, w, h, sw, sh)
		}
	}
}

func TestConvertValidate(t *testing.T) {
	err := Convert{MaxSide: -1, MinSide: 70000, Filter: "nearest", Quality: 101, Subsampling: "4:2:1", Store: "png"}.Validate()
	for _, want := range []string{"max-side: -1", "min-side: 70000", `filter "nearest"`, "quality is 101", `subsampling is "4:2:1"`, `store "png"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	for _, c := range []Convert{
		{MaxSide: 100, MinSide: 100}, {Filter: "box"}, {Filter: "box", Quality: 90}, {Subsampling: "4:4:4"},
		{Store: StoreRaw, Quality: 90}, {Store: StoreRaw, Subsampling: "4:4:4"}, {Store: StoreRaw, JPEGBaseline: true},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
	for _, c := range []Convert{
		{}, {MaxSide: 1}, {MinSide: 65535}, {MaxSide: 101, MinSide: 100, Filter: "box", Quality: 1, Subsampling: "4:1:1", JPEGBaseline: true, Store: StoreJPEG},
		{Quality: 100, Subsampling: "4:4:4"}, {Store: StoreJPEG, Subsampling: "4:4:4"}, {Store: StoreRaw, MaxSide: 10, Filter: "bilinear"}, {JPEGBaseline: true},
	} {
		cfg := config("x")
		cfg.Convert = c
		if err := cfg.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		once := cfg.withDefaults()
		if again := once.withDefaults(); again.Convert != once.Convert {
			t.Errorf("%+v: its defaults have the defaults %+v", once.Convert, again.Convert)
		}
		if err := once.Validate(); err != nil {
			t.Errorf("%+v: with its defaults %v", c, err)
		}
	}
	cfg := config("x")
	cfg.Convert.Store, cfg.JPEGSeek = StoreRaw, "row"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "jpeg-seek") {
		t.Error(err)
	}
}

// picture is a file of imaging's corpus, with the pixels that Pillow makes of it.
type picture struct {
	name          string
	data          []byte
	width, height int
	rgb           []byte
}

func corpus(t testing.TB) []picture {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join("..", "imaging", "testdata", "corpus.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var list []picture
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f.Name, ".rgb") {
			list = append(list, picture{name: f.Name, data: data})
			continue
		}
		last := &list[len(list)-1]
		last.width, last.height = int(binary.LittleEndian.Uint32(data)), int(binary.LittleEndian.Uint32(data[4:]))
		last.rgb = data[8:]
	}
	return list
}

// gallery is a tree of all kinds of images, with masks and other things beside some.
func gallery(t testing.TB) map[string][]byte {
	files := map[string][]byte{}
	for i, p := range corpus(t) {
		stem := fmt.Sprintf("class %d/%s", i%3, strings.ReplaceAll(p.name, ".", "-"))
		files[stem+path.Ext(p.name)] = p.data
		switch i % 4 {
		case 0:
			files[stem+".seg.png"] = corpusFile(t, "grey.png")
		case 1:
			files[stem+".json"] = []byte(`{"i": 1}`)
		}
	}
	return files
}

func corpusFile(t testing.TB, name string) []byte {
	t.Helper()
	for _, p := range corpus(t) {
		if p.name == name {
			return p.data
		}
	}
	t.Fatalf("the corpus has no %s", name)
	return nil
}

// conversions are one of each sort.
var conversions = []Convert{
	{MaxSide: 11},
	{MinSide: 9, Quality: 50, Subsampling: "4:4:4", Filter: "bilinear", JPEGBaseline: true},
	{MaxSide: 18, MinSide: 5, Store: StoreJPEG},
	{Quality: 40},
	{Quality: 95, JPEGBaseline: true, Store: StoreJPEG},
	{JPEGBaseline: true},
	{Store: StoreJPEG},
	{Store: StoreRaw},
	{Store: StoreRaw, MaxSide: 11, Filter: "box"},
}

// The bytes are the same for any number of workers, any memory, and any number that share
// the work, in all formats; the index tells what is there.
func TestConvertSameBytes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, gallery(t))
	for i, conv := range conversions {
		cfg := config(dir)
		cfg.Convert, cfg.ShardSize = conv, 20_000
		cfg.Format = []string{"tar", "tfrecord", "tar.zst"}[i%3]
		cfg.Order = []string{OrderShuffle, OrderPath, OrderInterleaved}[i/3%3]
		if conv.Store != StoreRaw {
			cfg.JPEGSeek = "row"
		}
		first := mem.New()
		result := mustRun(t, first, cfg, Env{Workers: 1})
		if c := &result.Images; c.Converted == 0 || c.Kept == 0 || c.Converted+c.Kept != int64(len(corpus(t))) {
			t.Errorf("%+v: %+v", conv, c)
		}
		problems(t, first)
		want := content(t, first)
		if n := len(want); n < 7 {
			t.Fatalf("%+v: %d files", conv, n)
		}
		env := []Env{{Workers: 8}, {Workers: 3, Memory: 2000}}[i%2]
		st := mem.New()
		if again := mustRun(t, st, cfg, env); again.Images != result.Images {
			t.Errorf("%+v: %+v, with one worker %+v", conv, again.Images, result.Images)
		}
		same(t, fmt.Sprintf("%+v, %+v", conv, env), content(t, st), want)
		st = mem.New()
		var last *Result
		for i := range 3 {
			r, err := Run(t.Context(), st, cfg, Env{Worker: 2 - i, Of: 3})
			if (i < 2) != errors.Is(err, ErrIncomplete) || i == 2 && err != nil {
				t.Fatalf("worker %d of 3: %v", 2-i, err)
			}
			last = r
		}
		if last.Images != result.Images {
			t.Errorf("%+v: three workers count %+v, one %+v", conv, last.Images, result.Images)
		}
		same(t, fmt.Sprintf("%+v, three workers", conv), content(t, st), want)
	}
}

// packed returns the samples of a data set by key, and their index rows.
func packed(t *testing.T, st store.Store) (map[string]sample.Sample, map[string]index.Row) {
	t.Helper()
	ds, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	samples, rows := map[string]sample.Sample{}, map[string]index.Row{}
	shards, err := ds.Shards("")
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range shards {
		table, err := ds.Rows(t.Context(), sh)
		if err != nil {
			t.Fatal(err)
		}
		f, err := ds.OpenShard(t.Context(), sh)
		if err != nil {
			t.Fatal(err)
		}
		for i := range table {
			s := sample.Sample{Key: table[i].Key}
			for k := range table[i].Fields {
				data, err := f.ReadField(t.Context(), &table[i], &table[i].Fields[k], nil)
				if err != nil {
					t.Fatal(err)
				}
				s.Fields = append(s.Fields, sample.Field{Name: table[i].Fields[k].Name, Data: data})
			}
			samples[s.Key], rows[s.Key] = s, table[i]
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return samples, rows
}

// What becomes of every kind of image, under every sort of conversion, and what stays.
func TestConvertGallery(t *testing.T) {
	dir := t.TempDir()
	files := gallery(t)
	write(t, dir, files)
	byKey := map[string]string{} // of images
	for name := range files {
		if stem := strings.TrimSuffix(name, path.Ext(name)); path.Ext(name) != ".json" && path.Ext(stem) == "" {
			byKey[stem] = name
		}
	}
	pixels := map[string]picture{}
	for _, p := range corpus(t) {
		pixels[strings.ReplaceAll(p.name, ".", "-")] = p
	}
	for _, conv := range conversions {
		st := mem.New()
		cfg := config(dir)
		cfg.Convert = conv
		result := mustRun(t, st, cfg, Env{})
		conv = conv.withDefaults()
		samples, rows := packed(t, st)
		if len(samples) != len(byKey) {
			t.Fatalf("%+v: %d samples; want %d", conv, len(samples), len(byKey))
		}
		var count Conversions
		for key, s := range samples {
			name := byKey[key]
			before := files[name]
			was, err := imaging.Probe(before)
			if err != nil {
				t.Fatal(name, err)
			}
			at := sample.Image(s.Fields, func(f sample.Field) string { return f.Name })
			after, row := s.Fields[at].Data, rows[key]
			is, err := imaging.Probe(after)
			if err != nil {
				t.Errorf("%+v, %s: %v", conv, name, err)
				continue
			}
			if row.Format != is.Format || int(row.Width) != is.Width || int(row.Height) != is.Height || int(row.Channels) != is.Channels || int(row.Orientation) != was.Orientation {
				t.Errorf("%+v, %s: its index says %+v", conv, name, row)
			}
			// All else is as it was.
			stem := strings.TrimSuffix(name, path.Ext(name))
			for _, f := range s.Fields {
				if want, ok := files[stem+"."+f.Name]; ok && f.Name != s.Fields[at].Name && !bytes.Equal(f.Data, want) {
					t.Errorf("%+v, %s: its field %s is another", conv, name, f.Name)
				}
			}
			w, h := conv.scaled(was.Width, was.Height)
			larger := w != was.Width || h != was.Height
			if _, mask := s.Field("seg.png"); mask && larger { // which would not fit
				w, h, larger = was.Width, was.Height, false
				count.Fixed++
			}
			field, wantPath := s.Fields[at].Name, name
			if bytes.Equal(before, after) {
				count.Kept++
				if field != sample.FieldOf(path.Ext(name)[1:]) || row.Field(field).Path != name {
					t.Errorf("%+v, %s: it is field %s of %q", conv, name, field, row.Field(field).Path)
				}
				if larger {
					count.Large++
				}
				_, undecodable := decode(before)
				other := was.Bits > 8 || undecodable != nil
				switch {
				case other:
				case conv.Store == StoreRaw:
					if was.Format != imaging.PNM || larger {
						t.Errorf("%+v, %s: stays as it is", conv, name)
					}
				case was.Format != imaging.JPEG:
					if conv.Store == StoreJPEG {
						t.Errorf("%+v, %s: stays as it is", conv, name)
					}
				case larger || conv.JPEGBaseline && was.Coding == "progressive":
					t.Errorf("%+v, %s: stays as it is", conv, name)
				}
				continue
			}
			count.Converted++
			if larger {
				count.Scaled++
			}
			if is.Width != w || is.Height != h {
				t.Errorf("%+v, %s: %d x %d becomes %d x %d; want %d x %d", conv, name, was.Width, was.Height, is.Width, is.Height, w, h)
			}
			grey := was.Colorspace == imaging.Gray
			if conv.Store == StoreRaw {
				wantPath = stem + ".pnm"
				if is.Format != imaging.PNM || is.Bits != 8 || (is.Channels == 1) != grey || field != "pnm" {
					t.Errorf("%+v, %s: becomes %+v in %s", conv, name, is, field)
				}
				// The pixels are those that the file shows.
				p := pixels[path.Base(stem)]
				if got, err := decode(after); err != nil || !larger && was.Orientation == 1 && !bytes.Equal(got.Pix, p.rgb) {
					t.Errorf("%+v, %s: its pixels are others (%v)", conv, name, err)
				}
			} else {
				if was.Format != imaging.JPEG {
					wantPath = stem + ".jpg"
				}
				if is.Format != imaging.JPEG || is.Coding != "baseline" || (is.Channels == 1) != grey && was.Colorspace != imaging.CMYK || field != "jpg" || is.Orientation != was.Orientation {
					t.Errorf("%+v, %s: becomes %+v in %s", conv, name, is, field)
				}
				if conv.Store == "" && was.Format != imaging.JPEG {
					t.Errorf("%+v, %s: becomes a JPEG", conv, name)
				}
				if !larger && !conv.sides() && was.Format == imaging.JPEG && was.Coding != "progressive" && len(after) >= len(before) {
					t.Errorf("%+v, %s: has %d bytes, before %d", conv, name, len(after), len(before))
				}
				h, err := jpeg.ReadHeader(after)
				if err != nil {
					t.Fatal(err)
				}
				if sub := cmp.Or(conv.Subsampling, jpeg.Sub420); h.Components == 3 && was.Format != imaging.JPEG && h.Sampling[0] != map[jpeg.Subsampling][2]int{"4:2:0": {2, 2}, "4:4:4": {1, 1}}[sub] {
					t.Errorf("%+v, %s: is sampled %v", conv, name, h.Sampling)
				}
			}
			if got := row.Field(field).Path; got != wantPath {
				t.Errorf("%+v, %s: its path is %q; want %q", conv, name, got, wantPath)
			}
		}
		c := &result.Images
		if c.Converted != count.Converted || c.Kept != count.Kept || c.Scaled != count.Scaled || c.Fixed != count.Fixed || c.Large != count.Large {
			t.Errorf("%+v: counts %+v; want %+v", conv, c, count)
		}
		if conv == (Convert{JPEGBaseline: true}) && (c.Converted != c.Baseline || c.Baseline < 4) || c.Alpha > 0 != (conv.Store != "") {
			t.Errorf("%+v: counts %+v", conv, c)
		}
	}
}

func decode(data []byte) (m imaging.Image, err error) {
	err = imaging.Std.Decode(data, &m, imaging.DecodeOptions{})
	return m, err
}

// Progressive files become baseline ones of the same pixels, with all that they carry.
func TestConvertBaseline(t *testing.T) {
	dir, st := t.TempDir(), mem.New()
	files := map[string][]byte{}
	for _, name := range []string{"444-progressive.jpg", "422-progressive.jpg", "420-progressive.jpg", "grey-progressive.jpg"} {
		files[strings.Replace(name, "-", "/", 1)] = corpusFile(t, name)
	}
	// One whose last scan is damaged shows what it showed, untouched.
	broken := bytes.Clone(files["420/progressive.jpg"])
	at := bytes.LastIndex(broken, []byte{0xff, 0xda}) + 12
	copy(broken[at:], []byte{0xff, 0, 0xff, 0, 0xff, 0})
	files["broken/x.jpg"] = broken
	write(t, dir, files)
	cfg := config(dir)
	cfg.Convert.JPEGBaseline = true
	result := mustRun(t, st, cfg, Env{})
	if c := &result.Images; c.Converted != 4 || c.Baseline != 4 || c.Kept != 1 || c.Other != 1 {
		t.Errorf("%+v", c)
	}
	samples, _ := packed(t, st)
	for key, s := range samples {
		before, after := files[key+".jpg"], s.Fields[1].Data
		if key == "broken/x" {
			if !bytes.Equal(before, after) {
				t.Error("a damaged file is changed")
			}
			continue
		}
		want, err := decode(before)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(after)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := imaging.Probe(after); err != nil || info.Coding != "baseline" || !bytes.Equal(got.Pix, want.Pix) {
			t.Errorf("%s: %+v, %v", key, info, err)
		}
	}
}

// A JPEG that is made anew keeps its colour profile.
func TestConvertKeepsTheProfile(t *testing.T) {
	dir, st := t.TempDir(), mem.New()
	profile := bytes.Repeat([]byte("profile "), 10_000) // two segments
	segments, err := jpeg.AppendICC(nil, profile)
	if err != nil {
		t.Fatal(err)
	}
	var m imaging.Image
	m.Reset(40, 30)
	file, err := new(jpeg.Encoder).Encode(nil, &m, jpeg.EncodeOptions{Segments: segments})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string][]byte{"a/x.jpg": file})
	cfg := config(dir)
	cfg.Convert.MaxSide = 20
	mustRun(t, st, cfg, Env{})
	samples, _ := packed(t, st)
	after := samples["a/x"].Fields[1].Data
	if h, err := jpeg.ReadHeader(after); err != nil || !bytes.Equal(h.ICC, profile) {
		t.Errorf("a profile of %d bytes, %v", len(h.ICC), err)
	}
}

// A sample that has a field of the new name keeps its image.
func TestConvertNameTaken(t *testing.T) {
	dir, st := t.TempDir(), mem.New()
	write(t, dir, map[string][]byte{"a/x.png": corpusFile(t, "rgb.png"), "a/x.pnm": []byte("P5 1 1 255 x"), "a/y.png": corpusFile(t, "rgb.png")})
	cfg := config(dir)
	cfg.Convert.Store = StoreRaw
	result := mustRun(t, st, cfg, Env{})
	if c := &result.Images; c.Converted != 1 || c.Kept != 1 || c.Other != 1 {
		t.Errorf("%+v", c)
	}
	samples, _ := packed(t, st)
	if f := samples["a/x"].Fields; f[1].Name != "png" || !bytes.Equal(f[1].Data, corpusFile(t, "rgb.png")) || string(f[2].Data) != "P5 1 1 255 x" {
		t.Errorf("%v", f)
	}
}

// A file that cannot be decoded is bad as the policy says, and copied as it is; one whose
// damage Pillow does not mind becomes what Pillow shows.
func TestConvertBad(t *testing.T) {
	dir := t.TempDir()
	good := corpusFile(t, "444.jpg")
	scan := bytes.Index(good, []byte{0xff, 0xda}) + 14
	short := append(bytes.Clone(good[:(scan+len(good))/2]), 0xff, 0xd9) // libjpeg warns
	png := corpusFile(t, "rgb.png")
	png = append(bytes.Clone(png[:len(png)-30]), 1, 2, 3)
	write(t, dir, map[string][]byte{"a/good.jpg": good, "a/short.jpg": short, "a/cut.jpg": good[:len(good)-20], "b/cut.png": png, "b/none.jpg": nil, "b/text.jpg": []byte("no image at all")})
	for _, check := range []string{CheckNone, CheckHeader} {
		st := mem.New()
		cfg := config(dir)
		cfg.Convert, cfg.Check = Convert{Store: StoreRaw}, check
		result := mustRun(t, st, cfg, Env{})
		if result.Bad != 4 || result.Images.Converted != 2 || result.Images.Kept != 0 {
			t.Errorf("%s: %d bad, %+v", check, result.Bad, result.Images)
		}
		if data, err := store.ReadAll(t.Context(), st, "quarantine/b/cut.png", 1<<20); err != nil || !bytes.Equal(data, png) {
			t.Errorf("%s: quarantined %d bytes, %v", check, len(data), err)
		}
		samples, _ := packed(t, st)
		want, err := decode(short)
		if err != nil {
			t.Fatal(err)
		}
		at := sample.Image(samples["a/short"].Fields, func(f sample.Field) string { return f.Name })
		if got, err := decode(samples["a/short"].Fields[at].Data); err != nil || !bytes.Equal(got.Pix, want.Pix) {
			t.Errorf("%s: the damaged file shows something else (%v)", check, err)
		}
		cfg.OnBad = OnBadFail
		if _, err := Run(t.Context(), mem.New(), cfg, Env{}); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v; want ErrBad", check, err)
		}
	}
}

// A header that promises billions of pixels costs no memory, and nothing is lost.
func TestConvertHostileDimensions(t *testing.T) {
	dir := t.TempDir()
	huge := bytes.Clone(corpusFile(t, "rle8.bmp"))
	binary.LittleEndian.PutUint32(huge[18:], 60_000)
	binary.LittleEndian.PutUint32(huge[22:], 60_000)
	jpg := bytes.Clone(corpusFile(t, "444.jpg"))
	at := bytes.Index(jpg, []byte{0xff, 0xc0})
	binary.BigEndian.PutUint16(jpg[at+5:], 65_000)
	binary.BigEndian.PutUint16(jpg[at+7:], 65_000)
	large := bytes.Clone(jpg) // what the bound lets through
	binary.BigEndian.PutUint16(large[at+5:], 13_000)
	binary.BigEndian.PutUint16(large[at+7:], 13_000)
	write(t, dir, map[string][]byte{"a/bitmap.bmp": huge, "a/huge.jpg": jpg, "a/large.jpg": large, "a/x.jpg": corpusFile(t, "444.jpg")})
	for _, conv := range []Convert{{Store: StoreRaw}, {MaxSide: 10, Store: StoreJPEG}} {
		st := mem.New()
		cfg := config(dir)
		cfg.Convert, cfg.Check = conv, CheckNone
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		result := mustRun(t, st, cfg, Env{Memory: 1 << 20})
		runtime.ReadMemStats(&after)
		if c := &result.Images; c.Converted != 1 || c.Other != 2 || result.Bad != 1 {
			t.Errorf("%+v: %+v and %d bad", conv, c, result.Bad)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 50<<20 {
			t.Errorf("%+v: %d bytes were allocated", conv, n)
		}
	}
}

// Shards are a source like any other: of their samples become the same as of the files that
// they were made from.
func TestConvertShards(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, gallery(t))
	for _, format := range []string{"tar", "tar.gz", "tfrecord"} {
		shards := filepath.Join(t.TempDir(), "shards")
		cfg := config(dir)
		cfg.Format = format
		mustRun(t, file.New(shards), cfg, Env{})
		for _, conv := range []Convert{{MaxSide: 11, Store: StoreJPEG}, {Store: StoreRaw}, {JPEGBaseline: true}} {
			cfg := config(dir)
			cfg.Convert = conv
			direct, repacked := mem.New(), mem.New()
			mustRun(t, direct, cfg, Env{})
			cfg.Source.Paths = []string{shards}
			mustRun(t, repacked, cfg, Env{})
			want, _ := packed(t, direct)
			got, _ := packed(t, repacked)
			if len(got) != len(want) {
				t.Errorf("%s, %+v: %d samples; want %d", format, conv, len(got), len(want))
			}
			for key, s := range want {
				if !slices.EqualFunc(got[key].Fields, s.Fields, func(a, b sample.Field) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }) {
					t.Errorf("%s, %+v: %s differs", format, conv, key)
				}
			}
		}
	}
}

// A dry run tells what the run then does.
func TestConvertDryRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, gallery(t))
	for _, conv := range conversions {
		cfg := config(dir)
		cfg.Convert, cfg.ShardSize = conv, 20_000
		st := mem.New()
		report, err := DryRun(t.Context(), st, cfg, Env{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(content(t, st)); n != 0 {
			t.Errorf("%+v: %d files were written", conv, n)
		}
		result := mustRun(t, st, cfg, Env{})
		if report.Images == nil || *report.Images != result.Images {
			t.Errorf("%+v: %+v, and then %+v", conv, report.Images, result.Images)
		}
		s, m := report.Splits[0], result.Manifest.Splits[0]
		end := int64(len(m.Shards)) * 10240 // a tar's own end, and its padding
		if s.Shards != int64(len(m.Shards)) || s.Bytes > m.Bytes || s.Bytes < m.Bytes-end {
			t.Errorf("%+v: %+v; written are %d bytes in %d shards", conv, s, m.Bytes, len(m.Shards))
		}
	}
}

// Shards get about the size that is asked for, whether images shrink or grow, and of
// whatever formats they are, in whatever order.
func TestConvertShardSize(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{}
	r := rand.New(rand.NewPCG(5, 6))
	var enc jpeg.Encoder
	for i := range 400 {
		var m imaging.Image
		m.Reset(60+r.IntN(80), 60+r.IntN(80))
		noise := 1 + r.IntN(60)
		for k := range m.Pix {
			m.Pix[k] = byte(100 + k/m.Stride + r.IntN(noise))
		}
		jpg, err := enc.Encode(nil, &m, jpeg.EncodeOptions{Quality: 60 + r.IntN(40)})
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("a/%03d.jpg", i)] = jpg
		if i%3 == 0 { // pixels that are stored as they are, many times larger
			files[fmt.Sprintf("b/%03d.ppm", i)] = append(netpbm.AppendHeader(nil, m.Width, m.Height, 3), m.Pix...)
		}
	}
	write(t, dir, files)
	for _, conv := range []Convert{{Store: StoreRaw}, {MaxSide: 50, Store: StoreJPEG}, {Quality: 10, Store: StoreJPEG}} {
		for _, order := range []string{OrderShuffle, OrderPath} {
			size := int64(1_500_000)
			if conv.Store != StoreRaw {
				size = 150_000
			}
			cfg := config(dir)
			cfg.Convert, cfg.Order, cfg.ShardSize = conv, order, size
			st := mem.New()
			result := mustRun(t, st, cfg, Env{})
			shards := result.Manifest.Splits[0].Shards
			total := result.Manifest.Splits[0].Bytes
			for _, s := range shards {
				if s.Bytes > size*5/4 {
					t.Errorf("%+v, %s: a shard of %d bytes; wanted are %d at most", conv, order, s.Bytes, size)
				}
			}
			if n, least := int64(len(shards)), (total-1)/size+1; n < least || n > least+least/4+1 {
				t.Errorf("%+v, %s: %d shards for %d bytes", conv, order, n, total)
			}
			t.Logf("%+v, %s: %d bytes in %d shards", conv, order, total, len(shards))
		}
	}
}

// Of a source that changes while it is sampled for the plan, nothing is packed.
func TestConvertSourceChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(20))
	cfg := config(dir)
	cfg.Convert.MaxSide = 10
	src, err := cfg.withDefaults().Source.open(t.Context(), Env{}.withDefaults(&cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	changed := sources{&changing{Source: src[0], path: filepath.Join(dir, "class 0", "img000.JPEG")}}
	if _, err := makePlan(t.Context(), changed, cfg, Env{}, io.Discard); !errors.Is(err, source.ErrChanged) {
		t.Errorf("%v; want ErrChanged", err)
	}
}

// changing changes a file before the first one is read.
type changing struct {
	source.Source
	path string
}

func (c *changing) Read(ctx context.Context, l source.Location, buf []byte) ([]byte, error) {
	if err := os.WriteFile(c.path, []byte("other"), 0o666); err != nil {
		return nil, err
	}
	return c.Source.Read(ctx, l, buf)
}

// Photographs come out as by Pillow's resize and save, byte for byte.
func TestConvertPhotographsAsPillow(t *testing.T) {
	python, photos := peers.Python(t), peers.Photographs(t)
	list, err := os.ReadDir(photos)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string][]byte{}
	for i, e := range list {
		if i%4 != 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(photos, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files["a/"+e.Name()] = data
	}
	write(t, dir, files)
	for _, c := range []struct {
		conv        Convert
		filter, sub int // Pillow's
	}{
		{Convert{MaxSide: 200}, 1, 2},
		{Convert{MinSide: 100, Quality: 70, Subsampling: "4:4:4", Filter: "bicubic"}, 3, 0},
	} {
		st := mem.New()
		cfg := config(dir)
		cfg.Convert, cfg.ShardSize = c.conv, 1<<20
		result := mustRun(t, st, cfg, Env{})
		if result.Images.Scaled < 40 {
			t.Errorf("%+v", result.Images)
		}
		samples, rows := packed(t, st)
		conv := c.conv.withDefaults()
		var in bytes.Buffer
		var want [][]byte
		for key, s := range samples {
			row := rows[key]
			if !bytes.Equal(s.Fields[1].Data, files[key+".JPEG"]) {
				fmt.Fprintf(&in, "%s %d %d %d %d %d\n", filepath.Join(dir, filepath.FromSlash(key)+".JPEG"), row.Width, row.Height, c.filter, conv.Quality, c.sub)
				want = append(want, s.Fields[1].Data)
			}
		}
		cmd := exec.Command(python, "-c", `
import io, struct, sys
from PIL import Image
for line in sys.stdin:
    name, w, h, filter, quality, sub = line.rsplit(" ", 5)
    i = Image.open(name)
    if i.mode == "CMYK":
        i = i.convert("RGB")
    b = io.BytesIO()
    icc = i.info.get("icc_profile") if i.mode != "CMYK" else None
    i = i.resize((int(w), int(h)), int(filter))
    i.info = {}
    i.save(b, "JPEG", quality=int(quality), subsampling=int(sub), icc_profile=icc)
    sys.stdout.buffer.write(struct.pack("<I", len(b.getvalue())) + b.getvalue())
`)
		cmd.Stdin, cmd.Stderr = &in, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for i, data := range want {
			n := binary.LittleEndian.Uint32(out)
			if !bytes.Equal(out[4:4+n], data) {
				t.Errorf("%+v: image %d differs from Pillow's: %d bytes and %d", c.conv, i, len(data), n)
			}
			out = out[4+n:]
		}
	}
}

// Whatever the bytes are, what they become is an image as intended, or they stay.
func FuzzConvert(f *testing.F) {
	for i, p := range corpus(f) {
		f.Add(p.data, uint8(i))
	}
	var list []*converter
	for _, c := range conversions {
		conv, err := newConverter(c)
		if err != nil {
			f.Fatal(err)
		}
		list = append(list, conv)
	}
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		conv := list[int(which)%len(list)]
		info, err := imaging.Probe(data)
		if err != nil || info.Width*info.Height > 1<<18 {
			return
		}
		it := conv.cfg.intend(info, which >= 128)
		asked := it.memory()
		if it.action == actKeep {
			return
		}
		out, err := conv.convert(&it, data, func(n int) []byte { return make([]byte, 0, n) })
		if err != nil {
			if strings.Contains(err.Error(), "panicked") {
				t.Fatal(err)
			}
			return
		}
		if it.action == actKeep {
			if out != nil || !it.other && it.info.Format != imaging.JPEG {
				t.Fatalf("%+v: %d bytes", it, len(out))
			}
			return
		}
		is, err := imaging.Probe(out)
		if err != nil || is.Width != it.width || is.Height != it.height || int64(len(out)) > asked+1<<16 {
			t.Fatalf("%+v becomes %+v of %d bytes, %v", it, is, len(out), err)
		}
	})
}
