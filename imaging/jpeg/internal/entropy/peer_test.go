package entropy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/internal/peers"
)

// libjpeg reads coefficients with the system's library.
type libjpeg struct {
	in  io.Writer
	out *bufio.Scanner
	dir string
}

func newLibjpeg(t testing.TB) *libjpeg {
	t.Helper()
	cc := peers.Program(t, "gcc")
	peers.Header(t, "jpeglib.h")
	dir := t.TempDir()
	bin := filepath.Join(dir, "coefficients")
	if out, err := exec.Command(cc, "-O2", "-o", bin, "testdata/coefficients.c", "-ljpeg").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(bin)
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
	return &libjpeg{in: in, out: bufio.NewScanner(out), dir: dir}
}

// file returns libjpeg's line about a file.
func (l *libjpeg) file(t testing.TB, name string) string {
	t.Helper()
	fmt.Fprintln(l.in, name)
	if !l.out.Scan() {
		t.Fatalf("%s: libjpeg says nothing", name)
	}
	return l.out.Text()
}

// bytes does the same with the bytes of a file.
func (l *libjpeg) bytes(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(l.dir, "x.jpg")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return l.file(t, name)
}

// read decodes all coefficients, and returns them by component and by rows of
// blocks, in natural order.
func read(d *Decoder, data []byte) ([][]int16, error) { return readSeek(d, data, nil) }

func readSeek(d *Decoder, data []byte, seek *Seek) ([][]int16, error) {
	if err := d.ReadHeader(data); err != nil {
		return nil, err
	}
	x, y := d.Frame.MCUs()
	planes, err := window(d, blocks.Window{X1: x, Y1: y}, seek)
	if errors.Is(err, ErrSeek) && seek == nil {
		return readSeek(d, data, Plain)
	}
	return planes, err
}

// window decodes the blocks of a window that are the image's.
func window(d *Decoder, w blocks.Window, seek *Seek) ([][]int16, error) {
	if err := d.Begin(w, seek); err != nil {
		return nil, err
	}
	planes := make([][]int16, d.Frame.N)
	next := w.Y0
	errs := decode(new(Group), []*Decoder{d}, func(_ int, s *blocks.Strip) error {
		if s.X0 != w.X0 || s.X1 != w.X1 || s.Y0 != next {
			return fmt.Errorf("a strip %+v after row %d of %+v", s.Window, next, w)
		}
		next = s.Y1
		for c := range planes {
			p, f := &s.Plane[c], &d.Frame.Component[c]
			for r := range (s.Y1 - s.Y0) * f.V {
				if s.Y0*f.V+r >= d.component[c].high {
					break
				}
				for b := range min(d.component[c].wide, w.X1*f.H) - w.X0*f.H {
					at := r*p.Stride + b
					blk := p.Coef[64*at:][:64]
					var n [64]int16
					blocks.Natural(&n, blk)
					planes[c] = append(planes[c], n[:]...)
				}
			}
		}
		return nil
	})
	if errs[0] == nil && next != w.Y1 {
		errs[0] = fmt.Errorf("the window ends at row %d, not %d", next, w.Y1)
	}
	return planes, errs[0]
}

// list is a source of decoders that have begun.
type list struct {
	ds    []*Decoder
	next  int
	strip func(i int, s *blocks.Strip) error
	errs  []error
}

func (l *list) Next() (int, *Decoder) {
	if l.next == len(l.ds) {
		return 0, nil
	}
	l.next++
	return l.next - 1, l.ds[l.next-1]
}

func (l *list) Strip(i int, s *blocks.Strip) error { return l.strip(i, s) }

func (l *list) End(i int, err error) {
	if l.ds[i] == nil {
		panic("a file ends twice")
	}
	l.ds[i], l.errs[i] = nil, err
}

// decode decodes what several decoders have begun, and returns their errors.
func decode(g *Group, ds []*Decoder, strip func(i int, s *blocks.Strip) error) []error {
	l := &list{ds: slices.Clone(ds), strip: strip, errs: make([]error, len(ds))}
	g.Decode(l)
	for i, d := range l.ds {
		if d != nil {
			l.errs[i] = fmt.Errorf("file %d did not end", i)
		}
	}
	return l.errs
}

// line is what libjpeg would print.
func line(planes [][]int16) string {
	var b bytes.Buffer
	for _, p := range planes {
		h := uint64(14695981039346656037)
		for _, v := range p {
			h = (h ^ uint64(uint16(v))) * 1099511628211
		}
		fmt.Fprintf(&b, " %016x", h)
	}
	return b.String()
}

func photographs(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*"))
	if err != nil || len(names) == 0 {
		t.Fatal("no photographs", err)
	}
	return names
}

func TestPhotographs(t *testing.T) {
	names := photographs(t)
	l := newLibjpeg(t)
	if testing.Short() {
		names = names[:25]
	}
	d := Decoder{Raw: true}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		planes, err := read(&d, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := fmt.Sprintf("ok %d", d.Count)+line(planes), l.file(t, name); got != want {
			t.Errorf("%s:\n%s\n%s", name, got, want)
		}
	}
}

// The photographs' header, whole window and seek points.
func prepare(t testing.TB, every int) (files [][]byte, seeks []*Seek) {
	t.Helper()
	var d Decoder
	for _, name := range photographs(t) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.ReadHeader(data); err != nil {
			t.Fatal(err)
		}
		seek, err := makeSeek(&d, every)
		if err != nil {
			t.Fatal(err)
		}
		files, seeks = append(files, data), append(seeks, seek)
	}
	return files, seeks
}

func BenchmarkPhotographs(b *testing.B) {
	files, seeks := prepare(b, 0)
	sink := func(int, *blocks.Strip) error { return nil }
	for _, c := range []struct {
		name   string
		images int
		seek   bool
	}{{"one stream", 1, false}, {"rows", 1, true}, {"4 images", 4, false}, {"4 images, rows", 4, true}} {
		b.Run(c.name, func(b *testing.B) {
			var g Group
			ds := make([]*Decoder, c.images)
			for i := range ds {
				ds[i] = new(Decoder)
			}
			n := 0
			for b.Loop() {
				for _, d := range ds {
					i := n % len(files)
					n++
					if err := d.ReadHeader(files[i]); err != nil {
						b.Fatal(err)
					}
					x, y := d.Frame.MCUs()
					var seek *Seek
					if c.seek {
						seek = seeks[i]
					}
					if err := d.Begin(blocks.Window{X1: x, Y1: y}, seek); err != nil {
						b.Fatal(err)
					}
				}
				if err := errors.Join(decode(&g, ds, sink)...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/image")
		})
	}
}
