package entropy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"shardify/imaging/internal/fault"
	"shardify/internal/peers"
)

// picture is a PPM or PGM of a smooth image with some noise.
func picture(channels, w, h int) []byte {
	var b bytes.Buffer
	kind := map[int]string{1: "P5", 3: "P6"}[channels]
	fmt.Fprintf(&b, "%s\n%d %d\n255\n", kind, w, h)
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	for y := range h {
		for x := range w {
			for c := range channels {
				v := 128 + 100*((x*(c+2)/9+y*(3-c)/7)%3-1) + r.IntN(41) - 20
				b.WriteByte(byte(min(max(v, 0), 255)))
			}
		}
	}
	return b.Bytes()
}

// scripts are scan scripts for cjpeg -scans.
var scripts = map[string]string{
	"planes":      "0; 1; 2;",
	"luma-chroma": "0; 1,2;",
	"spectral":    "0,1,2: 0-0, 0, 0; 0: 1-5, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0; 0: 6-63, 0, 0;",
	"successive":  "0,1,2: 0-0, 0, 3; 0: 1-63, 0, 2; 1: 1-63, 0, 2; 2: 1-63, 0, 2; 0,1,2: 0-0, 3, 2; 0: 1-63, 2, 1; 1: 1-63, 2, 1; 2: 1-63, 2, 1; 0,1,2: 0-0, 2, 1; 0,1,2: 0-0, 1, 0; 0: 1-63, 1, 0; 1: 1-63, 1, 0; 2: 1-63, 1, 0;",
	"unfinished":  "0,1,2: 0-0, 0, 1; 0: 1-5, 0, 2; 1: 1-63, 0, 2;",
	"dc-only":     "0,1,2: 0-0, 0, 0;",
}

// files made by cjpeg, by name.
var corpus = sync.OnceValues(func() (map[string][]byte, error) {
	cjpeg, err := exec.LookPath("cjpeg")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "corpus")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	files := map[string][]byte{}
	add := func(channels, w, h int, args ...string) error {
		cmd := exec.Command(cjpeg, args...)
		cmd.Stdin = bytes.NewReader(picture(channels, w, h))
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("cjpeg %v: %w", args, err)
		}
		for i, a := range args {
			if strings.HasPrefix(a, dir) {
				args[i] = filepath.Base(a)
			}
		}
		files[fmt.Sprintf("%dx%dx%d %s", w, h, channels, strings.Join(args, " "))] = out
		return nil
	}
	var errs error
	try := func(err error) {
		if err != nil && errs == nil {
			errs = err
		}
	}
	for _, sampling := range []string{"1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "4x2", "2x4", "4x4", "3x1", "1x1,2x2,1x1", "2x2,1x2,2x1", "2x2,2x1,1x1", "2x1,1x1,2x1"} {
		if sampling == "4x4" || sampling == "2x4" || sampling == "4x2" { // too many blocks for an interleaved scan
			try(script(dir, "planes"))
			try(add(3, 70, 41, "-sample", sampling, "-scans", filepath.Join(dir, "planes")))
			continue
		}
		for _, more := range [][]string{{}, {"-progressive"}, {"-restart", "1"}, {"-restart", "3B", "-optimize"}, {"-restart", "2B", "-progressive"}} {
			try(add(3, 70, 41, append([]string{"-sample", sampling}, more...)...))
		}
	}
	for _, size := range [][2]int{{1, 1}, {7, 1}, {1, 9}, {8, 8}, {16, 16}, {17, 17}, {15, 33}, {200, 3}} {
		for _, more := range [][]string{{}, {"-progressive"}, {"-sample", "1x1"}, {"-quality", "100", "-sample", "1x1"}} {
			try(add(3, size[0], size[1], more...))
		}
		try(add(1, size[0], size[1], "-restart", "1"))
		try(add(1, size[0], size[1], "-progressive", "-quality", "95"))
	}
	for name := range scripts {
		try(script(dir, name))
		try(add(3, 83, 61, "-scans", filepath.Join(dir, name)))
		try(add(3, 83, 61, "-scans", filepath.Join(dir, name), "-restart", "5B", "-sample", "2x1", "-quality", "90"))
	}
	try(add(3, 83, 61, "-quality", "100", "-rgb"))
	try(add(3, 83, 61, "-quality", "1"))
	try(add(3, 83, 61, "-quality", "3", "-progressive"))
	try(add(1, 83, 61, "-sample", "2x2"))
	try(add(3, 300, 200, "-quality", "97"))
	try(add(3, 300, 200, "-quality", "97", "-progressive"))
	return files, errs
})

func script(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(scripts[name]), 0o600)
}

func made(t testing.TB) map[string][]byte {
	t.Helper()
	peers.Program(t, "cjpeg")
	files, err := corpus()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCorpus(t *testing.T) {
	l := newLibjpeg(t)
	d := Decoder{Raw: true}
	for name, data := range made(t) {
		planes, err := read(&d, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := fmt.Sprintf("ok %d", d.Count)+line(planes), l.bytes(t, data); got != want {
			t.Errorf("%s: %v\n%s\n%s", name, d.First, got, want)
		}
	}
}

// What libjpeg only warns of gives its coefficients and a fault; where it gives up,
// so do we.
func TestDamaged(t *testing.T) {
	l := newLibjpeg(t)
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	d := Decoder{Raw: true}
	r := rand.New(rand.NewPCG(1, 2))
	files := made(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for i := range rounds {
			data := files[name]
			bad := damage(r, data)
			if bytes.Contains(bad, []byte{0xff, 0xff, 0}) {
				// libjpeg-turbo's fast loop takes the FF before it for a marker and
				// zeros for what follows; it then decodes the MCU again, correctly,
				// but leaves some of what it had made of the zeros.
				continue
			}
			planes, err := read(&d, bad)
			want := l.bytes(t, bad)
			var got string
			switch {
			case err != nil:
				got = "error"
			case d.Count > 0:
				got = "ok with faults" + line(planes)
			default:
				got = "ok" + line(planes)
			}
			var warnings int
			if n, _ := fmt.Sscanf(want, "ok %d", &warnings); n == 1 {
				want = want[len(fmt.Sprint("ok ", warnings)):]
				if warnings > 0 || d.kinds == 1<<Extraneous { // see Decoder.finish
					want = " with faults" + want
				}
				want = "ok" + want
			}
			// Where a file ends inside of a segment, libjpeg reads end markers in its
			// place, of which it mostly makes an error; we keep what came before. And
			// what follows the only scan cannot spoil pixels that libjpeg's callers
			// have before it looks at that.
			if d.Inside && err == nil {
				continue
			}
			var malformed *fault.FormatError
			if errors.Is(err, fault.ErrTruncated) || errors.As(err, &malformed) && malformed.Msg == codedTwice {
				continue
			}
			if strings.HasPrefix(want, "error") && (err != nil || d.Has(Behind)) {
				continue
			}
			if got != want {
				file := filepath.Join(os.TempDir(), "damaged.jpg")
				os.WriteFile(file, bad, 0o600)
				t.Fatalf("%s, %d: %v %+v\n%s\n%s\n%s", name, i, err, d.Faults, got, want, file)
			}
		}
	}
}

func damage(r *rand.Rand, data []byte) []byte {
	bad := bytes.Clone(data)
	scan := bytes.Index(bad, []byte{0xff, mSOS})
	if r.IntN(8) == 0 {
		scan = 2
	}
	at := scan + r.IntN(len(bad)-scan)
	switch r.IntN(6) {
	case 0:
		bad = bad[:at]
	case 1:
		bad[at] ^= 1 << r.IntN(8)
	case 2:
		bad[at] = byte(r.Uint32())
	case 3: // a hole
		end := at + r.IntN(min(64, len(bad)-at))
		bad = append(bad[:at], bad[end:]...)
	case 4:
		for range 1 + r.IntN(9) {
			bad[scan+r.IntN(len(bad)-scan)] = byte(r.Uint32())
		}
	case 5: // a marker, perhaps a restart
		bad = append(bad[:at:at], append([]byte{0xff, byte(0xd0 + r.IntN(10))}, bad[at:]...)...)
	}
	return bad
}
