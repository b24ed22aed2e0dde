package jpeg

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
)

// saver encodes with Pillow. It reads JSON lines of options, each followed by so many
// bytes of pixels, and answers with a length in a line, and a file.
const saver = `
import sys, io, json
from PIL import Image, ImageFile
ImageFile.MAXBLOCK = 1 << 24  # too little for libjpeg is an error
for line in sys.stdin.buffer:
    o = json.loads(line)
    size = (o.pop("w"), o.pop("h"))
    mode = o.pop("mode")
    pix = sys.stdin.buffer.read(size[0] * size[1] * len(mode))
    for k in ("exif", "icc_profile", "xmp", "comment"):
        if k in o:
            o[k] = bytes.fromhex(o[k])
    b = io.BytesIO()
    Image.frombytes(mode, size, pix).save(b, "JPEG", **o)
    print(len(b.getvalue()), flush=True)
    sys.stdout.buffer.write(b.getvalue())
    sys.stdout.buffer.flush()
`

// pillowEncoder is a running Pillow.
type pillowEncoder struct {
	in  io.Writer
	out *bufio.Reader
}

func newPillowEncoder(t testing.TB) *pillowEncoder {
	t.Helper()
	cmd := exec.Command(peers.Python(t), "-c", saver)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &pillowEncoder{in, bufio.NewReader(out)}
}

// save returns Pillow's file of w x h pixels without gaps between rows.
func (p *pillowEncoder) save(t testing.TB, pix []byte, w, h int, o map[string]any) []byte {
	t.Helper()
	line := map[string]any{"w": w, "h": h, "mode": map[int]string{w * h: "L", 3 * w * h: "RGB"}[len(pix)]}
	for k, v := range o {
		line[k] = v
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.in.Write(append(append(text, '\n'), pix...)); err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Fscanln(p.out, &n); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(p.out, data); err != nil {
		t.Fatal(err)
	}
	return data
}

// drawn is a picture with edges, gradients and noise, its rows further apart than need
// be.
func drawn(w, h, channels int) ([]uint8, int) {
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	stride := channels*w + r.IntN(5)
	pix := make([]uint8, stride*h)
	for i := range pix {
		x, y := i%stride/channels, i/stride
		v := 128 + 100*((x*(i%channels+2)/9+y*(4-i%channels)/7)%3-1) + r.IntN(41) - 20
		pix[i] = uint8(min(max(v, 0), 255))
	}
	if w > 40 { // a part with the largest contrasts
		for i := range pix[:len(pix)/4] {
			pix[i] = uint8(r.IntN(2) * 255)
		}
	}
	return pix, stride
}

// tight leaves gaps between rows away.
func tight(pix []uint8, row, stride int) []uint8 {
	var out []uint8
	for len(pix) >= row {
		out = append(out, pix[:row]...)
		pix = pix[min(stride, len(pix)):]
	}
	return out
}

// differ says where two files differ.
func differ(got, want []byte) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d bytes, not %d; they differ at byte %d", len(got), len(want), i)
}

// Files are Pillow's, byte for byte: every small size, quality and subsampling that
// Pillow has, optimised and not, and grey.
func TestEncodePillow(t *testing.T) {
	p := newPillowEncoder(t)
	var e Encoder
	var out []byte
	check := func(w, h, channels int, o EncodeOptions) {
		t.Helper()
		pix, stride := drawn(w, h, channels)
		options := map[string]any{"optimize": o.Optimize}
		if o.Quality != 0 {
			options["quality"] = o.Quality
		}
		if o.Subsampling != "" {
			options["subsampling"] = o.Subsampling
		}
		var err error
		if channels == 1 {
			out, err = e.EncodeGray(out[:0], pix, w, h, stride, o)
		} else {
			out, err = e.Encode(out[:0], &raster.Image{Pix: pix, Width: w, Height: h, Stride: stride}, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if want := p.save(t, tight(pix, w*channels, stride), w, h, options); !bytes.Equal(out, want) {
			t.Errorf("%d x %d x %d, %+v: %s", w, h, channels, o, differ(out, want))
		}
	}
	for w := 1; w <= 17; w++ {
		for h := 1; h <= 17; h++ {
			for i, s := range []Subsampling{Sub444, Sub422, Sub420, ""} {
				check(w, h, 3, EncodeOptions{Quality: 1 + (w*17*31+h*31+i*7)%100, Subsampling: s, Optimize: (w+h+i)%2 == 0})
			}
			check(w, h, 1, EncodeOptions{Quality: 1 + (w*31+h)%100, Optimize: h%2 == 0})
		}
	}
	for q := range 101 {
		check(67, 41, 3, EncodeOptions{Quality: q, Optimize: q%2 == 1})
	}
	for _, size := range [][2]int{{33, 31}, {65, 64}, {127, 5}, {5, 127}, {500, 375}, {1921, 17}, {65500, 1}, {1, 65500}} {
		for _, s := range []Subsampling{Sub444, Sub422, Sub420} {
			check(size[0], size[1], 3, EncodeOptions{Quality: 95, Subsampling: s})
			check(size[0], size[1], 3, EncodeOptions{Quality: 100, Subsampling: s, Optimize: true})
		}
		check(size[0], size[1], 1, EncodeOptions{Quality: 100})
	}
}

// The samples that make each coefficient as large as it can be, of either sign, are still a
// baseline file, and Pillow's.
func TestEncodeExtremes(t *testing.T) {
	const w, h = 8 * 16, 8 * 8
	pix := make([]uint8, w*h)
	for i := range pix {
		x, y := i%w, i/w
		u, v := x/8%8, y/8
		if c := math.Cos(float64(2*(x%8)+1)*float64(u)*math.Pi/16) * math.Cos(float64(2*(y%8)+1)*float64(v)*math.Pi/16); (c > 0) == (x < w/2) {
			pix[i] = 255
		}
	}
	p := newPillowEncoder(t)
	for _, optimize := range []bool{false, true} {
		got, err := new(Encoder).EncodeGray(nil, pix, w, h, w, EncodeOptions{Quality: 100, Optimize: optimize})
		if err != nil {
			t.Fatal(err)
		}
		if want := p.save(t, pix, w, h, map[string]any{"quality": 100, "optimize": optimize}); !bytes.Equal(got, want) {
			t.Errorf("optimize %v: %s", optimize, differ(got, want))
		}
	}
}

// The subsamplings that Pillow has not are cjpeg's.
func TestEncodeCjpeg(t *testing.T) {
	cjpeg := peers.Program(t, "cjpeg")
	var e Encoder
	for _, size := range [][2]int{{1, 1}, {7, 9}, {17, 15}, {31, 33}, {120, 77}} {
		pix, stride := drawn(size[0], size[1], 3)
		for s, factors := range map[Subsampling]string{Sub440: "1x2", Sub411: "4x1", Sub420: "2x2"} {
			for _, more := range []bool{false, true} {
				got, err := e.Encode(nil, &raster.Image{Pix: pix, Width: size[0], Height: size[1], Stride: stride}, EncodeOptions{Subsampling: s, Quality: 88, Optimize: more})
				if err != nil {
					t.Fatal(err)
				}
				args := []string{"-sample", factors, "-quality", "88"}
				if more {
					args = append(args, "-optimize")
				}
				cmd := exec.Command(cjpeg, args...)
				cmd.Stdin = io.MultiReader(strings.NewReader(fmt.Sprintf("P6\n%d %d\n255\n", size[0], size[1])), bytes.NewReader(tight(pix, 3*size[0], stride)))
				want, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%v, %s: %s", size, s, differ(got, want))
				}
			}
		}
	}
}

// Photographs, decoded and encoded again, are Pillow's too.
func TestEncodePhotographs(t *testing.T) {
	p := newPillowEncoder(t)
	var d Decoder
	var e Encoder
	var m raster.Image
	var out []byte
	names := photographs(t)
	for i, name := range names {
		if i%10 != 0 {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(data, &m, Options{}); err != nil {
			t.Fatal(err)
		}
		for j, o := range []EncodeOptions{{}, {Quality: 95, Subsampling: Sub444}, {Quality: 85, Optimize: true}, {Quality: 60, Subsampling: Sub422}} {
			if out, err = e.Encode(out[:0], &m, o); err != nil {
				t.Fatal(err)
			}
			want := p.save(t, m.Pix, m.Width, m.Height, []map[string]any{{}, {"quality": 95, "subsampling": "4:4:4"}, {"quality": 85, "optimize": true}, {"quality": 60, "subsampling": "4:2:2"}}[j])
			if !bytes.Equal(out, want) {
				t.Errorf("%s, %+v: %s", name, o, differ(out, want))
			}
		}
	}
}

// Segments come where Pillow puts them; a file's are found again.
func TestEncodeSegments(t *testing.T) {
	p := newPillowEncoder(t)
	profile := bytes.Repeat([]byte("profile "), 20000)
	exif := append([]byte("MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00"), 0, 0, 0, 0)
	var segments []byte
	var err error
	if segments, err = AppendEXIF(segments, exif); err != nil {
		t.Fatal(err)
	}
	if segments, err = AppendICC(segments, profile); err != nil {
		t.Fatal(err)
	}
	if segments, err = AppendComment(segments, "a comment"); err != nil {
		t.Fatal(err)
	}
	pix, stride := drawn(30, 20, 3)
	m := &raster.Image{Pix: pix, Width: 30, Height: 20, Stride: stride}
	got, err := new(Encoder).Encode([]byte("before"), m, EncodeOptions{Segments: segments})
	if err != nil {
		t.Fatal(err)
	}
	want := append([]byte("before"), p.save(t, tight(pix, 90, stride), 30, 20, map[string]any{
		"exif": hex.EncodeToString(append([]byte("Exif\x00\x00"), exif...)), "icc_profile": hex.EncodeToString(profile), "comment": hex.EncodeToString([]byte("a comment")),
	})...)
	if !bytes.Equal(got, want) {
		t.Fatal(differ(got, want))
	}
	file := got[6:]
	if back, err := Segments(nil, file); err != nil || !bytes.Equal(back, segments) {
		t.Errorf("%v, or other segments", err)
	}
	if h, err := ReadHeader(file); err != nil || h.Orientation != 6 || !bytes.Equal(h.ICC, profile) {
		t.Errorf("orientation %d, %v, or another profile", h.Orientation, err)
	}
	if err := Upright(segments); err != nil {
		t.Fatal(err)
	}
	upright, err := new(Encoder).Encode(nil, m, EncodeOptions{Segments: segments})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHeader(upright); err != nil || h.Orientation != 1 || len(upright) != len(file) {
		t.Errorf("orientation %d, %v", h.Orientation, err)
	}
	var buf [1 << 16]byte
	if _, err := AppendEXIF(nil, buf[:65528]); err == nil {
		t.Error("too much EXIF passes")
	}
	if s, err := AppendEXIF(nil, buf[:65527]); err != nil || int(binary.BigEndian.Uint16(s[2:])) != 65535 {
		t.Error("as much EXIF as can be does not pass", err)
	}
	if _, err := AppendComment(nil, string(buf[:65534])); err == nil {
		t.Error("too long a comment passes")
	}
	if _, err := AppendICC(nil, make([]byte, 255*65519+1)); err == nil {
		t.Error("too large a profile passes")
	}
}

func TestEncodeErrors(t *testing.T) {
	pix := make([]uint8, 3*4*5)
	good := raster.Image{Pix: pix, Width: 4, Height: 5, Stride: 12}
	var e Encoder
	for name, change := range map[string]func(m *raster.Image, o *EncodeOptions){
		"width":        func(m *raster.Image, _ *EncodeOptions) { m.Width = 0 },
		"height":       func(m *raster.Image, _ *EncodeOptions) { m.Height = 0 },
		"wide":         func(m *raster.Image, _ *EncodeOptions) { m.Width = 65536 },
		"high":         func(m *raster.Image, _ *EncodeOptions) { m.Height = 65536 },
		"stride":       func(m *raster.Image, _ *EncodeOptions) { m.Stride = 11 },
		"stride 0":     func(m *raster.Image, _ *EncodeOptions) { m.Stride = 0 },
		"large stride": func(m *raster.Image, _ *EncodeOptions) { m.Stride = 1 << 62 },
		"pixels":       func(m *raster.Image, _ *EncodeOptions) { m.Pix = m.Pix[:59] },
		"none":         func(m *raster.Image, _ *EncodeOptions) { m.Pix = nil },
		"quality":      func(_ *raster.Image, o *EncodeOptions) { o.Quality = 101 },
		"quality -1":   func(_ *raster.Image, o *EncodeOptions) { o.Quality = -1 },
		"subsampling":  func(_ *raster.Image, o *EncodeOptions) { o.Subsampling = "4:2:1" },
		"segments":     func(_ *raster.Image, o *EncodeOptions) { o.Segments = []byte{0xff, 0xe1, 0, 9} },
		"a table":      func(_ *raster.Image, o *EncodeOptions) { o.Segments = []byte{0xff, 0xdb, 0, 2} },
		"a short one":  func(_ *raster.Image, o *EncodeOptions) { o.Segments = []byte{0xff, 0xe1, 0, 1} },
	} {
		m, o := good, EncodeOptions{}
		change(&m, &o)
		dst := []byte("x")
		if out, err := e.Encode(dst, &m, o); err == nil || string(out) != "x" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	o := EncodeOptions{Quality: -1, Subsampling: "x", Segments: []byte{0}}
	if err := o.Validate(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all faults: %v", err)
	}
	if _, err := e.Encode(nil, &good, EncodeOptions{}); err != nil {
		t.Error(err)
	}
}

// Once warm, encoding allocates nothing.
func TestEncodeAllocations(t *testing.T) {
	var e Encoder
	pix, stride := drawn(130, 70, 3)
	m := raster.Image{Pix: pix, Width: 130, Height: 70, Stride: stride}
	out := make([]byte, 0, 1<<20)
	if n := testing.AllocsPerRun(20, func() {
		for _, o := range []EncodeOptions{{}, {Quality: 90, Optimize: true}, {Subsampling: Sub444}} {
			if _, err := e.Encode(out, &m, o); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.EncodeGray(out, pix, 130, 70, stride, EncodeOptions{}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The bytes are frozen: the same pixels and options give the same file for ever.
func TestEncodeGolden(t *testing.T) {
	h := sha256.New()
	var e Encoder
	for _, size := range [][2]int{{1, 1}, {8, 8}, {17, 16}, {150, 99}} {
		pix, stride := ramp(size[0], size[1])
		for _, s := range []Subsampling{Sub444, Sub422, Sub440, Sub420, Sub411} {
			for _, o := range []EncodeOptions{{Subsampling: s}, {Subsampling: s, Quality: 95, Optimize: true}} {
				out, err := e.Encode(nil, &raster.Image{Pix: pix, Width: size[0], Height: size[1], Stride: stride}, o)
				if err != nil {
					t.Fatal(err)
				}
				h.Write(out)
			}
		}
		out, err := e.EncodeGray(nil, pix, size[0], size[1], stride, EncodeOptions{Quality: 30})
		if err != nil {
			t.Fatal(err)
		}
		h.Write(out)
	}
	if got, want := hex.EncodeToString(h.Sum(nil)), "fc179011868bf2ea0cb94fd8627766cf94b9fa110eaa1912ab55ebb34d83af82"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// ramp is a picture by arithmetic alone.
func ramp(w, h int) ([]uint8, int) {
	pix := make([]uint8, 3*w*h)
	for i := range pix {
		pix[i] = uint8(i*i/97 + i/(3*w)*5)
	}
	return pix, 3 * w
}

// Any pixels and options: an error, or a file that is sound, has the image's dimensions,
// and is already what transcoding makes of it if it was optimised.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("pixels and pixels and pixels"), uint16(3), uint16(2), uint16(9), uint8(75), uint8(3))
	f.Add(bytes.Repeat([]byte{0, 255}, 400), uint16(16), uint16(16), uint16(48), uint8(100), uint8(9))
	var e Encoder
	var d Decoder
	var tr Transcoder
	f.Fuzz(func(t *testing.T, pix []byte, w, h, stride uint16, quality, kind uint8) {
		o := EncodeOptions{Quality: int(quality), Optimize: kind&8 != 0}
		o.Subsampling = []Subsampling{Sub444, Sub422, Sub440, Sub420, Sub411, "", "x", Sub420}[kind&7]
		var out []byte
		var err error
		if kind&16 != 0 {
			out, err = e.EncodeGray(nil, pix, int(w), int(h), int(stride), o)
		} else {
			out, err = e.Encode(nil, &raster.Image{Pix: pix, Width: int(w), Height: int(h), Stride: int(stride)}, o)
		}
		if err != nil {
			return
		}
		var m raster.Image
		if err := d.Decode(out, &m, Options{}); err != nil || m.Width != int(w) || m.Height != int(h) {
			t.Fatalf("%d x %d, %v", m.Width, m.Height, err)
		}
		again, err := tr.Transcode(nil, out, TranscodeOptions{Verify: true})
		if err != nil || o.Optimize && !bytes.Equal(again, out) {
			t.Fatalf("transcoded it is another file: %v", err)
		}
	})
}
