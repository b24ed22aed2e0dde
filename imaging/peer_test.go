package imaging

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// Pillow makes files of random sizes, formats and options, and says what it sees in
// them. Those of a name with "upright" are turned as their EXIF asks for.
const makeFiles = `
import io, struct, sys, warnings
import numpy as np
from PIL import Image, ImageOps
warnings.simplefilter("ignore")
rng = np.random.default_rng(5)

def put(name, data, pixels):
    for b in (name.encode(), data, pixels.tobytes()):
        sys.stdout.buffer.write(struct.pack("<I", len(b)) + b)
    sys.stdout.buffer.write(struct.pack("<II", *pixels.size))

def save(name, image, **kw):
    b = io.BytesIO()
    image.save(b, **kw)
    i = Image.open(io.BytesIO(b.getvalue()))
    if "upright" in name:
        i = ImageOps.exif_transpose(i)
    put("%s %dx%d %s" % (name, *image.size, {k: v for k, v in kw.items() if k != "exif"}), b.getvalue(), i.convert("RGB"))

# Pillow writes no 4:4:0 and 4:1:1, but their entropy-coded data have as many blocks
# as those of a 4:2:2 and 4:2:0 of another shape.
def reshape(name, image, subsampling, sampling, w, h):
    b = io.BytesIO()
    image.save(b, format="JPEG", quality=90, subsampling=subsampling)
    b = bytearray(b.getvalue())
    at = b.index(b"\xff\xc0")
    b[at + 5 : at + 9] = struct.pack(">HH", h, w)
    b[at + 11] = sampling
    put("%s %dx%d" % (name, w, h), bytes(b), Image.open(io.BytesIO(b)).convert("RGB"))

sizes = [(w, h) for w in (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33) for h in (1, 2, 3, 7, 8, 16, 17, 31)]
for w, h in sizes:
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([128 + 120 * np.sin(x / 5 + y / 9), 255 - 6 * x - 2 * y, 40 + 7 * y], -1)
    im = Image.fromarray(np.clip(a + rng.normal(0, 12, a.shape), 0, 255).astype(np.uint8))
    alpha = Image.fromarray(rng.integers(0, 256, (h, w), dtype=np.uint8))
    rgba = im.copy()
    rgba.putalpha(alpha)
    for s in (0, 1, 2):
        save("jpeg", im, format="JPEG", quality=int(rng.integers(60, 100)), subsampling=s, progressive=bool(rng.integers(2)))
    reshape("jpeg 4:4:0", im, 1, 0x12, h, w)
    if h <= 8:
        reshape("jpeg 4:1:1", im, 2, 0x41, 2 * w, h)
    save("jpeg grey", im.convert("L"), format="JPEG", quality=90)
    save("jpeg cmyk", im.convert("CMYK"), format="JPEG", quality=95)
    save("webp", im, format="WEBP", quality=int(rng.integers(20, 100)))
    save("webp", rgba, format="WEBP", quality=80)
    save("webp", im, format="WEBP", lossless=True)
    save("webp", rgba, format="WEBP", lossless=True, exact=bool(rng.integers(2)))
    for m in ("1", "L", "LA", "P", "RGB", "RGBA"):
        save("png", rgba.convert(m), format="PNG")
    for m in ("1", "L", "P"):
        save("gif", im.convert(m), format="GIF", interlace=bool(rng.integers(2)))
    for m in ("1", "L", "P", "RGB"):
        save("bmp", im.convert(m), format="BMP")
    for m in ("1", "L", "P", "RGB", "RGBA"):
        for c in (None, "tiff_lzw", "tiff_deflate", "packbits"):
            save("tiff", rgba.convert(m), format="TIFF", compression=c)
    for c in ("group3", "group4"):
        save("tiff", im.convert("1"), format="TIFF", compression=c)
    exif = Image.Exif()
    exif[0x112] = int(rng.integers(1, 9))
    save("upright jpeg %d" % exif[0x112], im, format="JPEG", quality=95, subsampling=2, exif=exif)
    save("upright png %d" % exif[0x112], im, format="PNG", exif=exif)
    save("upright webp %d" % exif[0x112], im, format="WEBP", lossless=True, exif=exif)
    save("upright tiff %d" % exif[0x112], im, format="TIFF", exif=exif)
`

func TestRandomFilesEqualPillow(t *testing.T) {
	cmd := exec.Command(peers.Python(t), "-c", makeFiles)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(out)
	number := func() int {
		var b [4]byte
		if _, err := r.Read(b[:]); err != nil {
			t.Fatal(err)
		}
		return int(le.Uint32(b[:]))
	}
	block := func() []byte {
		b := make([]byte, number())
		if n, err := r.Read(b); n != len(b) {
			t.Fatal(n, err)
		}
		return b
	}
	var m Image
	n := 0
	for r.Len() > 0 {
		name, data, want := string(block()), block(), block()
		w, h := number(), number()
		if err := Std.Decode(data, &m, DecodeOptions{Orient: strings.HasPrefix(name, "upright")}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Width != w || m.Height != h {
			t.Errorf("%s: %d x %d; want %d x %d", name, m.Width, m.Height, w, h)
			continue
		}
		if most, count := largest(m.Pix, want); count > 0 {
			t.Errorf("%s: differs by up to %d in %d of %d bytes", name, most, count, len(want))
		}
		n++
	}
	if n < 1000 {
		t.Errorf("only %d files", n)
	}
}
