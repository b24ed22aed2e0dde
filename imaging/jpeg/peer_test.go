package jpeg

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
)

// pillow opens the files whose names it reads, and says what their pixels are.
const pillow = `
import sys, hashlib
from PIL import Image, ImageFile, ImageOps
ImageFile.LOAD_TRUNCATED_IMAGES = True
for line in sys.stdin:
    try:
        with Image.open(line.rstrip("\n")) as i:
            i = ImageOps.exif_transpose(i).convert("RGB")
    except Exception as e:
        print("error", e, flush=True)
        continue
    print(*i.size, hashlib.sha256(i.tobytes()).hexdigest(), flush=True)
`

// bothWays opens them as Pillow does by default, and with LOAD_TRUNCATED_IMAGES.
const bothWays = `
import sys, hashlib
from PIL import Image, ImageFile
for line in sys.stdin:
    for ImageFile.LOAD_TRUNCATED_IMAGES in False, True:
        try:
            with Image.open(line.rstrip("\n")) as i:
                i.load()
                black = not any(high for low, high in (i.getextrema() if len(i.getbands()) > 1 else [i.getextrema()]))
                i = i.convert("RGB")
        except Exception as e:
            print("error", e, flush=True)
            continue
        # Of what libjpeg gives up, Pillow shows a black image when it is not to complain.
        print("error, black" if black else "%d %d %s" % (*i.size, hashlib.sha256(i.tobytes()).hexdigest()), flush=True)
`

// python is a running Pillow.
type python struct {
	in  io.Writer
	out *bufio.Scanner
}

func newPython(t testing.TB, script string) *python {
	t.Helper()
	cmd := exec.Command(peers.Python(t), "-c", script)
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
	return &python{in, bufio.NewScanner(out)}
}

func (p *python) file(t testing.TB, name string) string {
	t.Helper()
	fmt.Fprintln(p.in, name)
	return p.line(t)
}

func (p *python) line(t testing.TB) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatal("Pillow says nothing")
	}
	return p.out.Text()
}

// sum is what python prints.
func sum(m *raster.Image) string {
	h := sha256.Sum256(m.Pix)
	return fmt.Sprintf("%d %d %s", m.Width, m.Height, hex.EncodeToString(h[:]))
}

func photographs(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*"))
	if err != nil || len(names) == 0 {
		t.Fatal("no photographs", err)
	}
	return names
}

// All photographs are Pillow's, whole; and 20 regions of each are those of the
// whole, one by one and several at once, with seek points and without.
func TestPhotographs(t *testing.T) {
	names := photographs(t)
	if testing.Short() {
		names = names[:25]
	}
	p := newPython(t, pillow)
	var d Decoder
	var whole raster.Image
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(data, &whole, Options{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := sum(&whole), p.file(t, name); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
		rows, err := d.MakeSeek(data, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fine, err := d.MakeSeek(data, 1+r.IntN(12))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		jobs := make([]Job, 20)
		for i := range jobs {
			j := &jobs[i]
			*j = Job{Data: data, Image: new(raster.Image), Seek: []*Seek{nil, rows, fine}[i%3]}
			j.Width, j.Height = 1+r.IntN(whole.Width), 1+r.IntN(whole.Height)
			j.X, j.Y = r.IntN(whole.Width-j.Width+1), r.IntN(whole.Height-j.Height+1)
		}
		d.DecodeAll(jobs)
		for i := range jobs {
			if err := part(&whole, &jobs[i]); err != nil {
				t.Fatalf("%s, %+v: %v", name, jobs[i].Options, err)
			}
		}
	}
}

// part checks that a job has made its part of the whole.
func part(whole *raster.Image, j *Job) error {
	if j.Err != nil {
		return j.Err
	}
	m := j.Image
	for y := range j.Height {
		if !bytes.Equal(m.Pix[y*m.Stride:][:3*m.Width], whole.Pix[(j.Y+y)*whole.Stride+3*j.X:][:3*j.Width]) {
			return fmt.Errorf("row %d is not that of the whole image", y)
		}
	}
	return nil
}

// djpeg returns what libjpeg-turbo shows of a file, and its messages.
func djpeg(t testing.TB, data []byte, args ...string) (*raster.Image, string) {
	t.Helper()
	cmd := exec.Command(peers.Program(t, "djpeg"), append(args, "-ppm")...)
	cmd.Stdin = bytes.NewReader(data)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	m := new(raster.Image)
	var kind string
	var depth int
	if n, _ := fmt.Sscan(out.String(), &kind, &m.Width, &m.Height, &depth); n != 4 {
		return nil, messages.String() + fmt.Sprint(err)
	}
	m.Stride = 3 * m.Width
	pix := out.Bytes()
	channels := map[string]int{"P5": 1, "P6": 3}[kind]
	if err != nil && !strings.Contains(messages.String(), "Corrupt") && !strings.Contains(messages.String(), "Premature") {
		return nil, messages.String()
	}
	if missing := m.Width*m.Height*channels - len(pix); missing > 0 {
		return nil, messages.String() + fmt.Sprint(err)
	}
	pix = pix[len(pix)-m.Width*m.Height*channels:]
	if channels == 3 {
		m.Pix = pix
	} else {
		for _, v := range pix {
			m.Pix = append(m.Pix, v, v, v)
		}
	}
	return m, messages.String()
}

// At every scale, files are what djpeg shows, and so are regions and orders of them.
func TestScales(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var d Decoder
	files, golden := corpora(t), sums(t)
	for name, data := range files {
		h, err := ReadHeader(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Components == 4 {
			continue // djpeg has another idea of CMYK as RGB
		}
		if name == "unfinished.jpg" || name == "dc-only.jpg" {
			continue // libjpeg-turbo 2.1 smooths otherwise than 3
		}
		for _, scale := range []int{1, 2, 4, 8} {
			var m raster.Image
			if err := d.Decode(data, &m, Options{Scale: scale}); err != nil {
				t.Errorf("%s, 1/%d: %v", name, scale, err)
				continue
			}
			var want string
			if twelve(name) {
				want = atScale(golden[name], scale)
			} else {
				image, messages := djpeg(t, data, "-scale", fmt.Sprintf("1/%d", scale))
				if image == nil {
					t.Fatalf("%s: djpeg: %s", name, messages)
				}
				want = sum(image)
			}
			if got := sum(&m); got != want {
				t.Errorf("%s, 1/%d: %s, not %s", name, scale, got, want)
			}
			jobs := make([]Job, 5)
			for i := range jobs {
				j := &jobs[i]
				*j = Job{Data: data, Image: new(raster.Image), Options: Options{Scale: scale}}
				j.Width, j.Height = 1+r.IntN(m.Width), 1+r.IntN(m.Height)
				j.X, j.Y = r.IntN(m.Width-j.Width+1), r.IntN(m.Height-j.Height+1)
			}
			d.DecodeAll(jobs)
			for i := range jobs {
				if err := part(&m, &jobs[i]); err != nil {
					t.Fatalf("%s, %+v: %v", name, jobs[i].Options, err)
				}
			}
		}
	}
}

// Damaged files look as they do in Pillow under Keep; under Refuse, those are refused
// of which djpeg warns.
func TestDamaged(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	r := rand.New(rand.NewPCG(5, 6))
	p := newPython(t, pillow)
	file := filepath.Join(t.TempDir(), "damaged.jpg")
	var d Decoder
	shown, failed := 0, 0
	files := corpus(t)
	for _, name := range sorted(files) {
		for range rounds {
			bad := damage(r, files[name])
			if bytes.Contains(bad, []byte{0xff, 0xff, 0}) {
				continue // see Equality
			}
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			var m raster.Image
			err := d.Decode(bad, &m, Options{Damaged: Keep, Orient: true, MaxPixels: 1 << 24})
			// Asked to show damaged files, Pillow makes them black where libjpeg gives
			// up; djpeg tells the two apart.
			image, messages := djpeg(t, bad)
			var damaged *DamagedError
			switch {
			case err != nil && !errors.As(err, &damaged):
				failed++
				if image != nil && !strings.Contains(err.Error(), "twice") && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrTruncated) {
					keep(t, bad)
					t.Fatalf("%s: %v; djpeg shows it: %s", name, err, messages)
				}
				continue
			case image == nil, err != nil && strings.Contains(err.Error(), insideSegment):
				failed++ // such as errors behind the image
				continue
			}
			shown++
			if got, want := sum(&m), p.file(t, file); got != want {
				keep(t, bad)
				t.Fatalf("%s: %v: %s, not %s", name, err, got, want)
			}
			if e := d.Decode(bad, &m, Options{MaxPixels: 1 << 24}); (e == nil) != (err == nil) {
				t.Errorf("%s: under Keep %v, under Refuse %v", name, err, e)
			}
			if strings.Contains(messages, "Corrupt") && err == nil {
				t.Errorf("%s: no error where djpeg warns: %s", name, messages)
			}
		}
	}
	t.Logf("%d shown, %d not", shown, failed)
}

// keep keeps a file that fails a test.
func keep(t *testing.T, data []byte) {
	name := filepath.Join(os.TempDir(), fmt.Sprintf("shardify-failed-%d.jpg", len(data)))
	os.WriteFile(name, data, 0o600)
	t.Log("see ", name)
}

func damage(r *rand.Rand, data []byte) []byte {
	bad := bytes.Clone(data)
	scan := bytes.Index(bad, []byte{0xff, 0xda})
	at := scan + r.IntN(len(bad)-scan)
	switch r.IntN(5) {
	case 0, 1:
		bad = bad[:at]
	case 2:
		bad[at] ^= 1 << r.IntN(8)
	case 3:
		end := at + r.IntN(min(64, len(bad)-at))
		bad = append(bad[:at], bad[end:]...)
	case 4:
		for range 1 + r.IntN(9) {
			bad[scan+r.IntN(len(bad)-scan)] = byte(r.Uint32())
		}
	}
	return bad
}
