package pixel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/internal/peers"
	"shardify/internal/simd"
)

// picture is a frame with all of its coefficients.
type picture struct {
	frame  blocks.Frame
	memory blocks.Memory
	strip  blocks.Strip
}

// newPicture makes an image of random coefficients. wild is how far they go: 0 as
// in photographs, 1 beyond what pixels can show, 2 as far as a file can hold.
func newPicture(r *rand.Rand, w, h int, model blocks.Model, factors [][2]int, wild int) *picture {
	p := &picture{frame: blocks.Frame{Width: w, Height: h, Precision: 8, Model: model, N: len(factors), MaxH: 1, MaxV: 1}}
	f := &p.frame
	for c, s := range factors {
		k := &f.Component[c]
		k.H, k.V = s[0], s[1]
		f.MaxH, f.MaxV = max(f.MaxH, k.H), max(f.MaxV, k.V)
		for i := range k.Quant {
			k.Quant[i] = uint16(1 + r.IntN(60))
			if wild == 2 {
				k.Quant[i] = uint16(1 + r.IntN(255))
			}
		}
	}
	x, y := f.MCUs()
	p.memory.Shape(&p.strip, f, blocks.Window{X1: x, Y1: y}, y)
	for c := range f.N {
		plane := &p.strip.Plane[c]
		clear(plane.Coef)
		for b := range len(plane.Coef) / 64 {
			block := plane.Coef[64*b:][:64]
			last := r.IntN(64)
			if r.IntN(3) == 0 {
				last = r.IntN(3)
			}
			for z := range last + 1 {
				at := blocks.Order[z]
				q := int(f.Component[c].Quant[at])
				limit := 1 + (900/(1+3*z))/q
				switch wild {
				case 1:
					limit = 1 + 12000/q
				case 2:
					if limit = 16383; r.IntN(3) == 0 {
						limit = 1 + 9000/q
					}
				}
				if r.IntN(3) > 0 {
					block[at] = int16(r.IntN(2*limit+1) - limit)
				}
			}
			// The first row alone, and that and row 4: libjpeg-turbo's short cuts.
			if only := r.IntN(6); wild == 2 && only < 2 {
				for i, at := range blocks.Place {
					if i >= 8 && (only == 0 || i/8 != 4) {
						block[at] = 0
					}
				}
			}
		}
	}
	return p
}

// file writes the picture as a baseline JPEG file, whose Huffman codes are the
// simplest there can be: 5 bits for DC, 9 for AC.
func (p *picture) file() []byte {
	f := &p.frame
	out := []byte{0xff, 0xd8}
	segment := func(marker byte, data ...byte) {
		out = append(out, 0xff, marker)
		out = binary.BigEndian.AppendUint16(out, uint16(2+len(data)))
		out = append(out, data...)
	}
	switch f.Model {
	case blocks.RGB, blocks.CMYK:
		segment(0xee, []byte("Adobe\x00\x64\x00\x00\x00\x00\x00")...)
	case blocks.YCCK:
		segment(0xee, []byte("Adobe\x00\x64\x00\x00\x00\x00\x02")...)
	default:
		segment(0xe0, []byte("JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00")...)
	}
	frame := []byte{8}
	frame = binary.BigEndian.AppendUint16(frame, uint16(f.Height))
	frame = binary.BigEndian.AppendUint16(frame, uint16(f.Width))
	frame = append(frame, byte(f.N))
	scan := []byte{byte(f.N)}
	for c := range f.N {
		k := &f.Component[c]
		table := []byte{byte(c)}
		for z := range 64 {
			table = append(table, byte(k.Quant[blocks.Order[z]]))
		}
		segment(0xdb, table...)
		frame = append(frame, byte(c+1), byte(k.H<<4|k.V), byte(c))
		scan = append(scan, byte(c+1), 0)
	}
	segment(0xc0, frame...)
	lengths := make([]byte, 16)
	lengths[4] = 16
	dc := append([]byte{0}, lengths...)
	for i := range 16 {
		dc = append(dc, byte(i))
	}
	segment(0xc4, dc...)
	// 9 bits for all but one of the symbols; a count is a byte.
	lengths[4], lengths[8], lengths[9] = 0, 255, 1
	ac := append([]byte{0x10}, lengths...)
	for i := range 256 {
		ac = append(ac, byte(i))
	}
	segment(0xc4, ac...)
	segment(0xda, append(scan, 0, 63, 0)...)

	var acc uint64
	n := 0
	put := func(v uint32, size int) {
		acc, n = acc<<size|uint64(v), n+size
		for ; n >= 8; n -= 8 {
			b := byte(acc >> (n - 8))
			if out = append(out, b); b == 0xff {
				out = append(out, 0)
			}
		}
	}
	value := func(v int) (size int, raw uint32) {
		size = bits.Len(uint(max(v, -v)))
		if v < 0 {
			v += 1<<size - 1
		}
		return size, uint32(v)
	}
	symbol := func(s int) {
		if s == 255 {
			put(255<<1, 10)
			return
		}
		put(uint32(s), 9)
	}
	var last [4]int
	mx, my := f.MCUs()
	for y := range my {
		for x := range mx {
			for c := range f.N {
				k, plane := &f.Component[c], &p.strip.Plane[c]
				for b := range k.H * k.V {
					block := plane.Coef[64*((y*k.V+b/k.H)*plane.Stride+x*k.H+b%k.H):][:64]
					size, raw := value(int(block[0]) - last[c])
					last[c] = int(block[0])
					put(uint32(size), 5)
					put(raw, size)
					run := 0
					for z := 1; z < 64; z++ {
						v := int(block[blocks.Order[z]])
						if v == 0 {
							run++
							continue
						}
						for ; run >= 16; run -= 16 {
							symbol(0xf0)
						}
						size, raw := value(v)
						symbol(run<<4 | size)
						put(raw, size)
						run = 0
					}
					if run > 0 {
						symbol(0)
					}
				}
			}
		}
	}
	put(0x7f, 7)
	return append(out, 0xff, 0xd9)
}

// decode decodes the picture: strips of the window come with so many MCU rows each
// as r says.
func (p *picture) decode(t testing.TB, d *Decoder, r *rand.Rand, s Spec, target resize.Target) {
	t.Helper()
	f := &p.frame
	w, err := d.Begin(f, s, target)
	if err != nil {
		t.Fatal(err)
	}
	var memory blocks.Memory
	for y := w.Y0; y < w.Y1; {
		rows := min(1+r.IntN(3), w.Y1-y)
		var strip blocks.Strip
		memory.Shape(&strip, f, blocks.Window{X0: w.X0, X1: w.X1, Y0: y, Y1: y + rows}, rows)
		for c := range f.N {
			k, from, to := &f.Component[c], &p.strip.Plane[c], &strip.Plane[c]
			for i := range to.Coef { // what nobody may look at
				to.Coef[i] = int16(r.Uint32())
			}
			for by := range rows * k.V {
				n := 64 * (w.X1 - w.X0) * k.H
				copy(to.Coef[64*by*to.Stride:][:n], from.Coef[64*((y*k.V+by)*from.Stride+w.X0*k.H):][:n])
			}
		}
		if err := d.Strip(&strip); err != nil {
			t.Fatal(err)
		}
		y += rows
	}
	if !d.Done() {
		t.Fatalf("%+v: not done", s)
	}
}

// whole decodes all of it.
func (p *picture) whole(t testing.TB, level simd.Level, color Color, size int) (pix []byte, w, h int) {
	t.Helper()
	w, h = Scaled(p.frame.Width, size), Scaled(p.frame.Height, size)
	target := resize.Target{Width: w, Height: h, Layout: tensor.NHWC}
	if color == Gray {
		target.Channels = 1
		target.Uint8 = make([]uint8, w*h)
	} else {
		target.Uint8 = make([]uint8, 3*w*h)
	}
	d := Decoder{level: level + 1}
	p.decode(t, &d, rand.New(rand.NewPCG(1, 1)), Spec{Color: color, Size: size}, target)
	return target.Uint8, w, h
}

// pillow decodes files at block sizes and colours.
func pillow(t *testing.T, files [][]byte, sizes []int, colors []Color) []byte {
	t.Helper()
	dir := t.TempDir()
	var list bytes.Buffer
	for i, f := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), f, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&list, i, 8/sizes[i], []string{"RGB", "L", "YCbCr"}[colors[i]])
	}
	cmd := exec.Command(peers.Python(t), "-c", `
import sys, os
from PIL import Image
for line in sys.stdin:
    i, scale, mode = line.split()
    im = Image.open(os.path.join(sys.argv[1], i))
    scale = int(scale)
    size = tuple((n + scale - 1) // scale for n in im.size)
    d, e, o, a = im.tile[0][:4]
    if mode != "RGB" and im.mode == "RGB" and im.info.get("adobe_transform") is None:
        im._mode = mode
        a = (mode, "")
    im._size = size
    im.tile = [im.tile[0]._replace(codec_name=d, extents=(0, 0) + size, offset=o, args=a)]
    im.decoderconfig = (scale, 0)
    if mode == "L" and im.mode == "CMYK":
        im = im.convert("RGB")
    sys.stdout.buffer.write(im.convert(mode).tobytes())
`, dir)
	cmd.Stdin, cmd.Stderr = &list, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var samplings = []struct {
	model   blocks.Model
	factors [][2]int
}{
	{blocks.Gray, [][2]int{{1, 1}}},
	{blocks.YCbCr, [][2]int{{1, 1}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{2, 1}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{2, 2}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{1, 2}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{4, 1}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{4, 2}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{4, 2}, {2, 1}, {2, 1}}},
	{blocks.YCbCr, [][2]int{{1, 4}, {1, 1}, {1, 2}}},
	{blocks.YCbCr, [][2]int{{3, 1}, {1, 1}, {1, 1}}},
	{blocks.YCbCr, [][2]int{{3, 3}, {1, 1}, {3, 1}}},
	{blocks.YCbCr, [][2]int{{2, 2}, {2, 1}, {1, 2}}},
	{blocks.YCbCr, [][2]int{{1, 1}, {2, 2}, {2, 2}}},
	{blocks.YCbCr, [][2]int{{2, 1}, {1, 2}, {1, 1}}},
	{blocks.RGB, [][2]int{{1, 1}, {1, 1}, {1, 1}}},
	{blocks.RGB, [][2]int{{2, 2}, {1, 1}, {1, 2}}},
	{blocks.CMYK, [][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
	{blocks.YCCK, [][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
	{blocks.YCCK, [][2]int{{2, 2}, {1, 1}, {1, 1}, {2, 2}}},
}

// All samplings and colour models, at all sizes of a block, at odd dimensions, of
// coefficients as in photographs and as in damaged files: equal to libjpeg-turbo,
// at every level.
func TestEqualsLibjpegTurbo(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	var pictures []*picture
	var files [][]byte
	var sizes []int
	var colors []Color
	for _, s := range samplings {
		for _, wh := range [][2]int{{1, 1}, {2, 3}, {5, 17}, {17, 16}, {33, 4}, {8, 40}, {100, 65}, {130, 90}} {
			for wild := range 3 {
				n := 0
				for _, f := range s.factors {
					n += f[0] * f[1]
				}
				if n > 10 || r.IntN(every) > 0 { // of blocks in an MCU, files may have 10
					continue
				}
				p := newPicture(r, wh[0], wh[1], s.model, s.factors, wild)
				file := p.file()
				for _, size := range []int{8, 4, 2, 1} {
					if size < 8 && r.IntN(3) > 0 {
						continue
					}
					color := RGB
					if r.IntN(4) == 0 {
						color = Gray
					}
					if r.IntN(4) == 0 && s.model == blocks.YCbCr {
						color = YCbCr
					}
					pictures, files, sizes, colors = append(pictures, p), append(files, file), append(sizes, size), append(colors, color)
				}
			}
		}
	}
	want := pillow(t, files, sizes, colors)
	failed := 0
	for i, p := range pictures {
		var n int
		for _, level := range simd.All() {
			got, w, _ := p.whole(t, level, colors[i], sizes[i])
			n = len(got)
			if len(want) < n {
				t.Fatal("Pillow gave too few pixels")
			}
			if !bytes.Equal(got, want[:n]) {
				if failed++; failed > 20 {
					t.FailNow()
				}
				for at := range got {
					if got[at] != want[at] {
						f := &p.frame
						t.Errorf("%v: %d x %d, model %d, %v %v %v %v, size %d, colour %d: byte %d (row %d) is %d; want %d", level, f.Width, f.Height, f.Model,
							f.Component[0].H<<4|f.Component[0].V, f.Component[1].H<<4|f.Component[1].V, f.Component[2].H<<4|f.Component[2].V, f.Component[3].H<<4|f.Component[3].V,
							sizes[i], colors[i], at, at/(n/Scaled(f.Height, sizes[i])), got[at], want[at])
						_ = w
						break
					}
				}
			}
		}
		want = want[n:]
	}
	if len(want) != 0 {
		t.Errorf("Pillow gave %d bytes more", len(want))
	}
	t.Logf("%d images", len(pictures))
}

func int16s(b []byte) []int16 { return unsafe.Slice((*int16)(unsafe.Pointer(&b[0])), len(b)/2) }
