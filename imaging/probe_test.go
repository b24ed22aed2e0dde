package imaging

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// file is a file of testdata/corpus.zip, with the pixels that Pillow 13 makes of it.
type file struct {
	name          string
	data          []byte
	width, height int
	rgb           []byte
}

func corpus(t testing.TB) []file {
	t.Helper()
	z, err := zip.OpenReader("testdata/corpus.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	read := func(f *zip.File) []byte {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var files []file
	for _, f := range z.File {
		if data := read(f); !strings.HasSuffix(f.Name, ".rgb") {
			files = append(files, file{name: f.Name, data: data})
		} else {
			last := &files[len(files)-1]
			last.width, last.height = int(le.Uint32(data)), int(le.Uint32(data[4:]))
			last.rgb = data[8:]
		}
	}
	return files
}

func photographs(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*.JPEG"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = data
	}
	return files
}

// What Probe says of the corpus, by name; of a file not listed here, what its
// format's first entry says.
var probed = map[string]Info{
	".jpg":                      {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"444-progressive.jpg":       {Coding: "progressive", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"422-progressive.jpg":       {Coding: "progressive", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"420-progressive.jpg":       {Coding: "progressive", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"grey.jpg":                  {Coding: "baseline", Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-progressive.jpg":      {Coding: "progressive", Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"cmyk.jpg":                  {Coding: "baseline", Channels: 4, Bits: 8, Colorspace: CMYK, Orientation: 1},
	"ycck.jpg":                  {Coding: "baseline", Channels: 4, Bits: 8, Colorspace: CMYK, Orientation: 1},
	"cmyk-no-adobe.jpg":         {Coding: "baseline", Channels: 4, Bits: 8, Colorspace: CMYK, Orientation: 1},
	"orient-2.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 2},
	"orient-3.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 3},
	"orient-4.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 4},
	"orient-5.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 5},
	"orient-6.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 6},
	"orient-7.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 7},
	"orient-8.jpg":              {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 8},
	"exif-thumbnail.jpg":        {Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 6},
	".png":                      {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"rgba.png":                  {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"rgba8-noise.png":           {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"rgba8-interlaced.png":      {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"rgba16-noise.png":          {Channels: 4, Bits: 16, Colorspace: RGB, Orientation: 1},
	"rgba16-interlaced.png":     {Channels: 4, Bits: 16, Colorspace: RGB, Orientation: 1},
	"rgb16-noise.png":           {Channels: 3, Bits: 16, Colorspace: RGB, Orientation: 1},
	"rgb16-interlaced.png":      {Channels: 3, Bits: 16, Colorspace: RGB, Orientation: 1},
	"grey.png":                  {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-alpha.png":            {Channels: 2, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-alpha8-noise.png":     {Channels: 2, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-alpha16-noise.png":    {Channels: 2, Bits: 16, Colorspace: Gray, Orientation: 1},
	"palette.png":               {Channels: 3, Bits: 4, Colorspace: RGB, Orientation: 1},
	"palette4-trns.png":         {Channels: 3, Bits: 4, Colorspace: RGB, Orientation: 1},
	"palette4-interlaced.png":   {Channels: 3, Bits: 4, Colorspace: RGB, Orientation: 1},
	"palette1.png":              {Channels: 3, Bits: 1, Colorspace: RGB, Orientation: 1},
	"palette2.png":              {Channels: 3, Bits: 2, Colorspace: RGB, Orientation: 1},
	"bilevel.png":               {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"grey16.png":                {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"orient-6.png":              {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 6},
	"grey1-noise.png":           {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"grey1-interlaced.png":      {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"grey1-trns.png":            {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"grey2-noise.png":           {Channels: 1, Bits: 2, Colorspace: Gray, Orientation: 1},
	"grey2-interlaced.png":      {Channels: 1, Bits: 2, Colorspace: Gray, Orientation: 1},
	"grey4-noise.png":           {Channels: 1, Bits: 4, Colorspace: Gray, Orientation: 1},
	"grey4-interlaced.png":      {Channels: 1, Bits: 4, Colorspace: Gray, Orientation: 1},
	"grey8-noise.png":           {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey8-interlaced.png":      {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey8-trns.png":            {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey16-noise.png":          {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"grey16-interlaced.png":     {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"grey16-trns.png":           {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	".gif":                      {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	".webp":                     {Coding: "VP8L", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"lossless-alpha.webp":       {Coding: "VP8L", Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"lossless-orient-8.webp":    {Coding: "VP8L", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 8},
	"lossy.webp":                {Coding: "VP8", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"lossy-alpha.webp":          {Coding: "VP8", Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"lossy-orient-6.webp":       {Coding: "VP8", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 6},
	"animated-inset.webp":       {Coding: "animated", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"animated-inset-lossy.webp": {Coding: "animated", Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"animated.webp":             {Coding: "animated", Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	".bmp":                      {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"bilevel.bmp":               {Channels: 3, Bits: 1, Colorspace: RGB, Orientation: 1},
	"palette1.bmp":              {Channels: 3, Bits: 1, Colorspace: RGB, Orientation: 1},
	"palette4.bmp":              {Channels: 3, Bits: 4, Colorspace: RGB, Orientation: 1},
	"rle4.bmp":                  {Channels: 3, Bits: 4, Colorspace: RGB, Orientation: 1},
	"555.bmp":                   {Channels: 3, Bits: 5, Colorspace: RGB, Orientation: 1},
	"565.bmp":                   {Channels: 3, Bits: 5, Colorspace: RGB, Orientation: 1},
	"565-v4.bmp":                {Channels: 3, Bits: 5, Colorspace: RGB, Orientation: 1},
	"32.bmp":                    {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"32-masks.bmp":              {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"32-rgbx-v5.bmp":            {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	".tif":                      {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"rgba.tif":                  {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"alpha-associated.tif":      {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"alpha-unspecified.tif":     {Channels: 4, Bits: 8, Colorspace: RGB, Orientation: 1},
	"grey.tif":                  {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"white-is-zero.tif":         {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-alpha.tif":            {Channels: 2, Bits: 8, Colorspace: Gray, Orientation: 1},
	"bilevel.tif":               {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"white-is-zero1.tif":        {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"group3-white-is-zero.tif":  {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"group4-white-is-zero.tif":  {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"group3-2d.tif":             {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"group3-fill.tif":           {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"group3.tif":                {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"group4.tif":                {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"grey4.tif":                 {Channels: 1, Bits: 4, Colorspace: Gray, Orientation: 1},
	"cmyk.tif":                  {Channels: 4, Bits: 8, Colorspace: CMYK, Orientation: 1},
	"cmyk-raw.tif":              {Channels: 4, Bits: 8, Colorspace: CMYK, Orientation: 1},
	"grey16.tif":                {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"grey16-le.tif":             {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"grey16-be.tif":             {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"rgb16-le.tif":              {Channels: 3, Bits: 16, Colorspace: RGB, Orientation: 1},
	"rgb16-be.tif":              {Channels: 3, Bits: 16, Colorspace: RGB, Orientation: 1},
	"rgba16-le.tif":             {Channels: 4, Bits: 16, Colorspace: RGB, Orientation: 1},
	"rgba16-be.tif":             {Channels: 4, Bits: 16, Colorspace: RGB, Orientation: 1},
	"palette4.tif":              {Channels: 3, Bits: 4, Colorspace: RGB, Orientation: 1},
	"orient-6.tif":              {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 6},
	".pnm":                      {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 1},
	"rgb-max16.pnm":             {Channels: 3, Bits: 16, Colorspace: RGB, Orientation: 1},
	"grey.pnm":                  {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-max.pnm":              {Channels: 1, Bits: 8, Colorspace: Gray, Orientation: 1},
	"grey-max16.pnm":            {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"grey16.pnm":                {Channels: 1, Bits: 16, Colorspace: Gray, Orientation: 1},
	"bilevel.pnm":               {Channels: 1, Bits: 1, Colorspace: Gray, Orientation: 1},
	"orient-5-be.tif":           {Channels: 3, Bits: 8, Colorspace: RGB, Orientation: 5},
}

var formats = map[string]string{".jpg": JPEG, ".png": PNG, ".gif": GIF, ".webp": WebP, ".bmp": BMP, ".tif": TIFF, ".pnm": PNM}

func TestProbeTellsWhatTheHeaderSays(t *testing.T) {
	for _, f := range corpus(t) {
		ext := filepath.Ext(f.name)
		want, ok := probed[f.name]
		if !ok {
			want = probed[ext]
		}
		want.Format = formats[ext]
		want.Width, want.Height = f.width, f.height
		if strings.Contains(f.name, "orient") && ext == ".tif" && want.Orientation >= 5 {
			// Pillow turns a TIFF while it opens it.
			want.Width, want.Height = f.height, f.width
		}
		got, err := Probe(f.data)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", f.name, got, err, want)
		}
	}
	for name, data := range photographs(t) {
		if info, err := Probe(data); err != nil || info.Format != JPEG || info.Width < 50 {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

// damaged reports whether err is one that Probe may give for a file cut short.
func damaged(err error) bool {
	var format *FormatError
	return errors.Is(err, ErrTruncated) || errors.As(err, &format)
}

// spare gives the bytes that can be cut off the end of a corpus file without
// losing any of its first image: junk, and a TIFF's second page.
var spare = map[string]int{"junk-after-end.jpg": 12, "pages.tif": 1792 - 881}

func TestProbeFindsACutAtEveryOffset(t *testing.T) {
	for _, f := range corpus(t) {
		cut := len(f.data) - spare[f.name]
		if _, err := Probe(f.data[:cut:cut]); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		for n := range cut {
			if _, err := Probe(f.data[:n:n]); !damaged(err) {
				t.Errorf("%s: cut from %d to %d bytes: %v", f.name, len(f.data), n, err)
				break
			}
		}
	}
}

func TestProbeAllocatesNothing(t *testing.T) {
	for _, f := range corpus(t) {
		if n := testing.AllocsPerRun(3, func() {
			if _, err := Probe(f.data); err != nil {
				t.Fatal(f.name, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", f.name, n)
		}
	}
}

func TestProbeNamesWhatIsNoImage(t *testing.T) {
	for _, data := range []string{"hello, world, this is text", "BMX is a sport and not a bitmap", "RIFF\x10\x00\x00\x00WAVEfmt ", "\x00"} {
		if _, err := Probe([]byte(data)); !errors.Is(err, ErrUnknownFormat) {
			t.Errorf("%q: %v", data, err)
		}
	}
	if _, err := Probe(nil); !errors.Is(err, ErrTruncated) {
		t.Errorf("empty: %v", err)
	}
}

func BenchmarkProbe(b *testing.B) {
	files, size := photographs(b), int64(0)
	for _, data := range files {
		size += int64(len(data))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for name, data := range files {
			if _, err := Probe(data); err != nil {
				b.Fatal(name, err)
			}
		}
	}
}

// Bytes after the end force Probe to read the scan.
func BenchmarkProbeWalk(b *testing.B) {
	var files [][]byte
	size := int64(0)
	for _, data := range photographs(b) {
		files = append(files, append(bytes.Clone(data), 0))
		size += int64(len(data))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, data := range files {
			if _, err := Probe(data); err != nil {
				b.Fatal(err)
			}
		}
	}
}
