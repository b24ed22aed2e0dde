package entropy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"shardify/imaging/jpeg/internal/blocks"
)

// cut returns what window would, of the planes of the whole image.
func cut(d *Decoder, planes [][]int16, w blocks.Window) [][]int16 {
	part := make([][]int16, len(planes))
	for c := range planes {
		f := &d.Frame.Component[c]
		wide, high := d.component[c].wide, d.component[c].high
		x0, x1 := w.X0*f.H, min(w.X1*f.H, wide)
		for y := w.Y0 * f.V; y < min(w.Y1*f.V, high); y++ {
			part[c] = append(part[c], planes[c][64*(y*wide+x0):64*(y*wide+x1)]...)
		}
	}
	return part
}

// makeSeek finds the seek points of the file whose header d has read.
func makeSeek(d *Decoder, every int) (*Seek, error) {
	s := new(Seek)
	if err := d.BeginSeek(s, every); err != nil {
		return nil, err
	}
	none := func(int, *blocks.Strip) error { return errors.New("a strip of a file that is not decoded") }
	if err := decode(new(Group), []*Decoder{d}, none)[0]; err != nil {
		return nil, err
	}
	return s, nil
}

func draw(r *rand.Rand, d *Decoder) blocks.Window {
	x, y := d.Frame.MCUs()
	w := blocks.Window{X0: r.IntN(x), Y0: r.IntN(y)}
	w.X1, w.Y1 = w.X0+1+r.IntN(x-w.X0), w.Y0+1+r.IntN(y-w.Y0)
	return w
}

// same reports the first difference.
func same(a, b [][]int16) error {
	for c := range b {
		if len(a) != len(b) || len(a[c]) != len(b[c]) {
			return errors.New("another number of blocks")
		}
		for i, v := range b[c] {
			if a[c][i] != v {
				return fmt.Errorf("component %d, block %d, coefficient %d: %d, not %d", c, i/64, i%64, a[c][i], v)
			}
		}
	}
	return nil
}

// Every window has the blocks of the whole image, with and without seek points.
func TestWindows(t *testing.T) {
	files := made(t)
	for i, name := range photographs(t) {
		if i%80 == 0 {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[fmt.Sprint("photograph ", i)] = data
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for name, data := range files {
		var d Decoder
		whole, err := read(&d, data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		seeks := []*Seek{nil, Plain}
		for _, every := range []int{0, 1, 3, 8, 1000} {
			if err := d.ReadHeader(data); err != nil {
				t.Fatal(err)
			}
			if d.Seekable() != nil {
				break
			}
			s, err := makeSeek(&d, every)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := d.ReadHeader(data); err != nil {
				t.Fatal(err)
			}
			stored := s.Append(nil)
			back := new(Seek)
			if err := back.Parse(stored, &d, len(data)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if back.every != s.every || !slices.Equal(back.points, s.points) {
				t.Fatalf("%s: seek points come back as others", name)
			}
			for n := range len(stored) {
				if err := back.Parse(stored[:n], &d, len(data)); err == nil {
					t.Fatalf("%s: %d of %d bytes of seek points pass", name, n, len(stored))
				}
			}
			seeks = append(seeks, s)
		}
		for _, s := range seeks {
			for i := range 5 {
				if err := d.ReadHeader(data); err != nil {
					t.Fatal(err)
				}
				w := draw(r, &d)
				if i == 0 {
					w.X0, w.Y0 = 0, 0
					w.X1, w.Y1 = d.Frame.MCUs()
				}
				got, err := window(&d, w, s)
				if err == nil {
					err = same(got, cut(&d, whole, w))
				}
				if err != nil || d.Count > 0 && !d.Has(Missing) && d.bits[0][0] < 0 {
					t.Fatalf("%s, window %+v, seek %v: %v %v", name, w, s, err, d.Faults)
				}
			}
		}
	}
}

// Several files in several lanes come out as one by one.
func TestGroup(t *testing.T) {
	files, rows := prepare(t, 0)
	_, fine := prepare(t, 8)
	files = files[:100]
	r := rand.New(rand.NewPCG(5, 6))
	var g Group
	var alone Decoder
	for i := 0; i < len(files); {
		n := min(1+r.IntN(9), len(files)-i)
		ds, ws, got := make([]*Decoder, n), make([]blocks.Window, n), make([]uint64, n)
		for j := range ds {
			d := new(Decoder)
			if err := d.ReadHeader(files[i+j]); err != nil {
				t.Fatal(err)
			}
			ds[j], ws[j] = d, draw(r, d)
			if err := d.Begin(ws[j], []*Seek{nil, rows[i+j], fine[i+j]}[r.IntN(3)]); err != nil {
				t.Fatal(err)
			}
		}
		fail := r.IntN(2 * n) // this one's sink gives up
		errs := decode(&g, ds, func(j int, s *blocks.Strip) error {
			got[j] = hash(got[j], ds[j], s)
			if j == fail {
				return errGiveUp
			}
			return nil
		})
		for j := range ds {
			if err := alone.ReadHeader(files[i+j]); err != nil {
				t.Fatal(err)
			}
			if err := alone.Begin(ws[j], Plain); err != nil {
				t.Fatal(err)
			}
			want := uint64(0)
			var wantErr error
			if j == fail {
				wantErr = errGiveUp
			}
			err := decode(new(Group), []*Decoder{&alone}, func(_ int, s *blocks.Strip) error {
				want = hash(want, &alone, s)
				return wantErr
			})
			if got[j] != want || errs[j] != wantErr || err[0] != wantErr {
				t.Errorf("file %d: %x, %v; alone %x, %v", i+j, got[j], errs[j], want, err[0])
			}
		}
		i += n
	}
}

var errGiveUp = errors.New("give up")

func hash(h uint64, d *Decoder, s *blocks.Strip) uint64 {
	for c := range d.Frame.N {
		p, f := &s.Plane[c], &d.Frame.Component[c]
		for y := range (s.Y1 - s.Y0) * f.V {
			for _, v := range p.Coef[64*y*p.Stride:][:64*(s.X1-s.X0)*f.H] {
				h = (h ^ uint64(uint16(v))) * 1099511628211
			}
		}
	}
	return h
}

// Points that are not the file's are noticed, or do no harm; and none take a row's
// bytes for another's where whole rows are decoded.
func TestWrongSeek(t *testing.T) {
	files, seeks := prepare(t, 0)
	r := rand.New(rand.NewPCG(7, 8))
	var d Decoder
	for i, data := range files[:50] {
		if err := d.ReadHeader(data); err != nil {
			t.Fatal(err)
		}
		x, y := d.Frame.MCUs()
		s := *seeks[i]
		s.points = slices.Clone(s.points)
		p := &s.points[1+r.IntN(len(s.points)-1)]
		switch r.IntN(3) {
		case 0:
			p.byte += 1 - 2*r.IntN(2)
		case 1:
			p.bit ^= 1 << r.IntN(3)
		case 2:
			p.pred[r.IntN(d.Frame.N)]++
		}
		if _, err := window(&d, blocks.Window{X1: x, Y1: y}, &s); !errors.Is(err, ErrSeek) {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

// The size that docs state.
func TestSeekSize(t *testing.T) {
	for _, every := range []int{0, 8} {
		files, seeks := prepare(t, every)
		n, size := 0, 0
		for i := range files {
			n += len(seeks[i].Append(nil))
			size += len(files[i])
		}
		t.Logf("every %d: %d bytes a file of %d", every, n/len(files), size/len(files))
		if limit := map[int]int{0: 300, 8: 2200}[every]; n/len(files) > limit {
			t.Errorf("every %d: %d bytes a file", every, n/len(files))
		}
	}
}

func FuzzSeek(f *testing.F) {
	var d Decoder
	data := made(f)["70x41x3 -sample 2x2"]
	if err := d.ReadHeader(data); err != nil {
		f.Fatal(err)
	}
	for _, every := range []int{0, 2} {
		s, err := makeSeek(&d, every)
		if err != nil {
			f.Fatal(err)
		}
		if err := d.ReadHeader(data); err != nil {
			f.Fatal(err)
		}
		f.Add(s.Append(nil))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		if err := d.ReadHeader(data); err != nil {
			t.Fatal(err)
		}
		var s Seek
		if s.Parse(stored, &d, len(data)) != nil {
			return
		}
		if again := s.Append(nil); len(again) > len(stored) {
			t.Errorf("%d bytes from %d", len(again), len(stored))
		}
		x, y := d.Frame.MCUs()
		window(&d, blocks.Window{X1: x, Y1: y}, &s)
	})
}

// Any bytes are decoded or refused, in any number of lanes, alike.
func FuzzDecode(f *testing.F) {
	for _, data := range made(f) {
		if len(data) < 4000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		if d.ReadHeader(data) != nil || d.Frame.Width*d.Frame.Height > 1<<20 {
			return
		}
		first, err := read(&d, data)
		faults := d.Faults
		second, err2 := readSeek(&d, data, Plain)
		if (err == nil) != (err2 == nil) || err == nil && (same(first, second) != nil || faults.Count != d.Count) {
			t.Errorf("%v %v; %v %v", err, faults, err2, d.Faults)
		}
		d.ICC()
		if bytes.Contains(data, []byte(iccID)) {
			return
		}
	})
}
