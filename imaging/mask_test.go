package imaging

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// makeMasks writes PNGs of every kind that is a mask, and what Pillow and numpy see in
// each. Grey of 2 and 4 bits, and filters, Pillow does not write; zlib does.
const makeMasks = `
import io, struct, sys, zlib
import numpy as np
from PIL import Image
rng = np.random.default_rng(11)

def put(name, data):
    a = np.array(Image.open(io.BytesIO(data)))
    assert a.ndim == 2 and a.dtype in (np.uint8, np.bool_), (name, a.shape, a.dtype)
    for b in (name.encode(), data, a.astype(np.uint8).tobytes()):
        sys.stdout.buffer.write(struct.pack("<I", len(b)) + b)
    sys.stdout.buffer.write(struct.pack("<II", a.shape[1], a.shape[0]))

def save(name, image, **kw):
    b = io.BytesIO()
    image.save(b, format="PNG", **kw)
    put(name, b.getvalue())

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def raw(name, a, bits, kind, *more):
    h, w = a.shape
    rows = b""
    for row in a:
        line = "".join(format(v, "0%db" % bits) for v in row)
        line += "0" * (-len(line) % 8)
        rows += b"\0" + bytes(int(line[i : i + 8], 2) for i in range(0, len(line), 8))
    head = struct.pack(">IIBBBBB", w, h, bits, kind, 0, 0, 0)
    put(name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

for w, h in [(1, 1), (7, 3), (8, 8), (33, 2), (2, 33), (50, 41)]:
    for bits in (1, 2, 4, 8):
        a = rng.integers(0, 2**bits, (h, w), dtype=np.uint8)
        colours = rng.integers(0, 256, 3 * 2**bits, dtype=np.uint8).tobytes()
        name = "%d bits %dx%d" % (bits, w, h)
        raw("grey " + name, a, bits, 0)
        raw("grey, one value transparent " + name, a, bits, 0, chunk(b"tRNS", struct.pack(">H", int(a[0, 0]))))
        raw("palette " + name, a, bits, 3, chunk(b"PLTE", colours))
        raw("palette, transparent " + name, a, bits, 3, chunk(b"PLTE", colours), chunk(b"tRNS", bytes([0, 128])))
        p = Image.fromarray(a, "P")
        p.putpalette(colours)
        save("Pillow's palette " + name, p, bits=bits)
        save("Pillow's palette, optimised " + name, p, optimize=True)
        save("Pillow's grey " + name, Image.fromarray(a), optimize=True)
        save("Pillow's bitmap " + name, Image.fromarray(a > 0))
`

// A mask's bytes are those of np.array(Image.open(f)).
func TestMasksEqualPillow(t *testing.T) {
	cmd := exec.Command(peers.Python(t), "-W", "ignore", "-c", makeMasks)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	number := func() int {
		n := int(binary.LittleEndian.Uint32(out))
		out = out[4:]
		return n
	}
	block := func() []byte {
		n := number()
		b := out[:n]
		out = out[n:]
		return b
	}
	var m Mask
	n := 0
	for ; len(out) > 0; n++ {
		name, data, want := string(block()), block(), block()
		w, h := number(), number()
		if err := DecodeMask(data, &m, 0); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Width != w || m.Height != h || m.Stride != w || !bytes.Equal(m.Pix, want) {
			t.Errorf("%s: %d x %d\n%v\nof Pillow, %d x %d\n%v", name, m.Width, m.Height, m.Pix, w, h, want)
		}
	}
	if n != 6*4*8 {
		t.Errorf("%d files", n)
	}
}

// What is no mask is refused, with what to do about it.
func TestDecodeMaskRefuses(t *testing.T) {
	var m Mask
	kinds := map[string]int{}
	for _, file := range corpus(t) {
		err := DecodeMask(file.data, &m, 0)
		_, faulty := Probe(file.data)
		var unsupported *UnsupportedError
		switch {
		case err == nil && sniff(file.data) != PNG:
			t.Errorf("%s passed", file.name)
		case err != nil && !known(err):
			t.Errorf("%s: %v", file.name, err)
		case errors.As(err, &unsupported):
			kinds[unsupported.Msg]++
			if !strings.Contains(err.Error(), "mask") || !strings.Contains(err.Error(), "convert") {
				t.Errorf("%s: %v", file.name, err)
			}
		case err != nil && faulty == nil && sniff(file.data) == PNG:
			t.Errorf("%s: %v", file.name, err)
		}
	}
	for _, want := range []string{"compresses", "another format", "3 channels", "4 channels", "2 channels", "16 bits"} {
		found := false
		for msg := range kinds {
			found = found || strings.Contains(msg, want)
		}
		if !found {
			t.Errorf("nothing was refused for %q: %v", want, kinds)
		}
	}
	if err := DecodeMask([]byte("no image at all"), &m, 0); !errors.Is(err, ErrUnknownFormat) {
		t.Error(err)
	}
	if err := DecodeMask(nil, &m, -1); err == nil || !strings.Contains(err.Error(), "max_pixels") {
		t.Error(err)
	}
}

func FuzzDecodeMask(f *testing.F) {
	for _, file := range corpus(f) {
		f.Add(file.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Mask
		if err := DecodeMask(data, &m, 1<<16); err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		info, err := Probe(data)
		if err != nil || m.Width != info.Width || m.Height != info.Height || m.Stride != m.Width || len(m.Pix) != m.Width*m.Height || len(m.Pix) > 1<<16 {
			t.Fatalf("%d x %d in rows of %d of %+v, %v", m.Width, m.Height, m.Stride, info, err)
		}
	})
}
