package jpeg

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
)

// The form of stored points is frozen: those of the
// corpus.
func TestSeekGolden(t *testing.T) {
	files := corpus(t)
	var d Decoder
	all, with := sha256.New(), 0
	for _, every := range []int{0, 1, 8} {
		for _, name := range sorted(files) {
			s, err := d.MakeSeek(files[name], every)
			if err != nil {
				continue
			}
			with++
			fmt.Fprintf(all, "%s %d %x\n", name, every, s.Append(nil))
		}
	}
	const want = "deed0390510fba35b23a0efb5661b84f50d4e78f00f1403bbceee36fdd221227"
	if got := hex.EncodeToString(all.Sum(nil)); got != want || with != 312 {
		t.Errorf("%d files have points with the sum %s, want %s", with, got, want)
	}
}

// Several files in several lanes have the points that each has alone, among files whose
// pixels are wanted, damaged ones, and such as have none.
func TestFind(t *testing.T) {
	files := corpus(t)
	names := sorted(files)
	var alone, together Decoder
	r := rand.New(rand.NewPCG(8, 9))
	finds := make([]Seek, 40) // with memory of others
	for round := range 20 {
		jobs := make([]Job, len(finds))
		images := make([]raster.Image, len(jobs))
		for i := range jobs {
			j := &jobs[i]
			j.Data = files[names[r.IntN(len(names))]]
			switch r.IntN(4) {
			case 0:
				j.Image = &images[i]
				continue
			case 1:
				j.Data = bytes.Clone(j.Data)
				for range 3 {
					j.Data[len(j.Data)/2+r.IntN(len(j.Data)/2)] ^= 1 << r.IntN(8)
				}
			}
			j.Find, j.FindEvery = &finds[i], r.IntN(5)
		}
		together.DecodeAll(jobs)
		for i := range jobs {
			j := &jobs[i]
			if j.Find == nil {
				var m raster.Image
				if err := alone.Decode(j.Data, &m, Options{}); err != nil || j.Err != nil || !bytes.Equal(m.Pix, images[i].Pix) {
					t.Fatalf("round %d, job %d: other pixels among files whose points are found: %v, %v", round, i, j.Err, err)
				}
				continue
			}
			want, err := alone.MakeSeek(j.Data, j.FindEvery)
			if fmt.Sprint(err) != fmt.Sprint(j.Err) {
				t.Fatalf("round %d, job %d: %v, alone %v", round, i, j.Err, err)
			}
			if err == nil && !bytes.Equal(want.Append(nil), j.Find.Append(nil)) {
				t.Fatalf("round %d, job %d: other points than alone", round, i)
			}
		}
	}
}

// An image of one bit a pixel and more points than are borne costs no memory.
func TestFindTooMany(t *testing.T) {
	data := bytes.Clone(corpus(t)["120x90-quality98.jpg"])
	at := bytes.Index(data, []byte{0xff, 0xc0})
	for i := range 4 {
		data[at+5+i] = 0xff // 65535 x 65535
	}
	_, err := new(Decoder).MakeSeek(data, 1)
	if err == nil || !strings.Contains(err.Error(), "more than 4194304 seek points") {
		t.Errorf("%v", err)
	}
}

// Any bytes have points or not, alike in any number of lanes; and with them the pixels
// are those that are there without.
func FuzzFind(f *testing.F) {
	files := corpus(f)
	for _, name := range sorted(files) {
		if len(files[name]) < 3000 {
			f.Add(files[name], 3)
		}
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, data []byte, every int) {
		if h, err := ReadHeader(data); err != nil || h.Width*h.Height > 1<<18 {
			return
		}
		s, err := d.MakeSeek(data, every)
		four := make([]Job, 4)
		finds := make([]Seek, 4)
		for i := range four {
			four[i] = Job{Data: data, Find: &finds[i], FindEvery: every}
		}
		d.DecodeAll(four)
		for i := range four {
			if (four[i].Err == nil) != (err == nil) || err == nil && !bytes.Equal(finds[i].Append(nil), s.Append(nil)) {
				t.Fatalf("lane %d: %v, alone %v", i, four[i].Err, err)
			}
		}
		if err != nil {
			return
		}
		var plain, with raster.Image
		jobs := []Job{{Data: data, Image: &plain}, {Data: data, Image: &with, Seek: s}}
		d.DecodeAll(jobs)
		if fmt.Sprint(jobs[0].Err) != fmt.Sprint(jobs[1].Err) || jobs[0].Err == nil && !bytes.Equal(plain.Pix, with.Pix) {
			t.Errorf("%v, with points %v", jobs[0].Err, jobs[1].Err)
		}
	})
}

// BenchmarkFind finds the seek points of photographs, in batches of 24 and one by one.
func BenchmarkFind(b *testing.B) {
	var files [][]byte
	for _, name := range photographs(b) {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, data)
	}
	for _, batch := range []int{1, 24} {
		for _, every := range []int{0, 8} {
			b.Run(fmt.Sprintf("batch=%d,every=%d", batch, every), func(b *testing.B) {
				var d Decoder
				jobs, finds := make([]Job, batch), make([]Seek, batch)
				n := 0
				for b.Loop() {
					for i := range jobs {
						jobs[i] = Job{Data: files[n%len(files)], Find: &finds[i], FindEvery: every}
						n++
					}
					d.DecodeAll(jobs)
					for i := range jobs {
						if jobs[i].Err != nil {
							b.Fatal(jobs[i].Err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/image")
			})
		}
	}
}

// lessen makes of a file the job that has no more of it than Extent says is needed.
func lessen(j *Job, data, points []byte, y0, y1 int) error {
	head, from, to, err := Extent(points, len(data), y0, y1)
	if err != nil {
		return err
	}
	from = max(from, head)
	j.Data = append(bytes.Clone(data[:head]), data[from:to]...)
	j.Points, j.Gap = points, Gap{Size: len(data), Head: head, From: from}
	return nil
}

// Any region of any file with points comes out of the bytes that Extent names as of the
// whole file; with a byte less it may be ErrGap, and never other pixels.
func TestGap(t *testing.T) {
	files := corpus(t)
	for i, name := range photographs(t) {
		if i%50 == 0 {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files["photograph "+name] = data
		}
	}
	var d Decoder
	r := rand.New(rand.NewPCG(10, 11))
	with, saved := 0, 0
	for _, name := range sorted(files) {
		data := files[name]
		for _, every := range []int{0, 1, 3} {
			s, err := d.MakeSeek(data, every)
			if err != nil {
				continue
			}
			points := s.Append(nil)
			h, err := ReadHeader(data)
			if err != nil {
				t.Fatal(err)
			}
			if h.Bits != 8 {
				continue
			}
			for range 6 {
				with++
				var o Options
				o.X, o.Y = r.IntN(h.Width), r.IntN(h.Height)
				o.Width, o.Height = 1+r.IntN(h.Width-o.X), 1+r.IntN(h.Height-o.Y)
				var want, got, cut raster.Image
				if err := d.Decode(data, &want, o); err != nil {
					t.Fatal(err)
				}
				jobs := []Job{{Options: o, Image: &got}, {Options: o, Image: &cut}}
				for i := range jobs {
					if err := lessen(&jobs[i], data, points, o.Y, o.Y+o.Height); err != nil {
						t.Fatal(err)
					}
				}
				saved += len(data) - len(jobs[0].Data)
				if j := &jobs[1]; r.IntN(2) == 0 {
					j.Data = j.Data[:len(j.Data)-1-r.IntN(len(j.Data)-j.Gap.Head)]
				} else {
					n := 1 + r.IntN(len(j.Data)-j.Gap.Head)
					j.Data = append(j.Data[:j.Gap.Head:j.Gap.Head], j.Data[j.Gap.Head+n:]...)
					j.Gap.From += n
				}
				d.DecodeAll(jobs)
				if jobs[0].Err != nil || jobs[0].SeekErr != nil || !bytes.Equal(got.Pix, want.Pix) {
					t.Fatalf("%s, every %d, %+v: %v, %v", name, every, o, jobs[0].Err, jobs[0].SeekErr)
				}
				if err := jobs[1].Err; err == nil && !bytes.Equal(cut.Pix, want.Pix) || err != nil && !errors.Is(err, ErrGap) {
					t.Fatalf("%s, every %d, %+v, less than is needed: %v", name, every, o, err)
				}
			}
		}
	}
	if with < 1000 || saved == 0 {
		t.Errorf("%d regions, %d bytes saved", with, saved)
	}
}

// Points of another file, and parts that make no sense, are errors.
func TestGapRefused(t *testing.T) {
	files := corpus(t)
	data := files["120x90-quality98.jpg"]
	var d Decoder
	s, err := d.MakeSeek(data, 0)
	if err != nil {
		t.Fatal(err)
	}
	points := s.Append(nil)
	var m raster.Image
	try := func(what string, change func(*Job)) {
		t.Helper()
		j := []Job{{Image: &m, Options: Options{Y: 40, Width: 120, Height: 20}}}
		if err := lessen(&j[0], data, points, 40, 60); err != nil {
			t.Fatal(err)
		}
		change(&j[0])
		d.DecodeAll(j)
		if !errors.Is(j[0].Err, ErrGap) {
			t.Errorf("%s: %v", what, j[0].Err)
		}
	}
	try("no points", func(j *Job) { j.Points = nil })
	try("a larger head than there is", func(j *Job) { j.Gap.Head = len(j.Data) + 1 })
	try("a head without the header", func(j *Job) { j.Gap.Head = 20 })
	try("more than the file has", func(j *Job) { j.Gap.Size = j.Gap.Head + 10 })
	try("a part that lies in the header", func(j *Job) { j.Gap.From = 1 })
	try("another place", func(j *Job) { j.Gap.From++ })
	try("another region", func(j *Job) { j.Y, j.Height = 0, 90 })
	try("points that lead astray", func(j *Job) {
		j.Points = bytes.Clone(points)
		j.Points[len(points)-3] ^= 1
		j.Points[len(points)/2] ^= 2
	})
	for _, rows := range [][2]int{{-1, 4}, {4, 4}, {1000, 1001}} {
		if _, _, _, err := Extent(points, len(data), rows[0], rows[1]); err == nil {
			t.Errorf("rows %v pass", rows)
		}
	}
	for n := range points {
		if _, _, to, err := Extent(points[:n], len(data), 80, 90); err == nil && to != len(data) {
			t.Errorf("%d of %d bytes of points pass", n, len(points))
		}
	}
}

// Whatever points say of whatever bytes: no panic, and extents lie in the file.
func FuzzExtent(f *testing.F) {
	data := corpus(f)["120x90-quality98.jpg"]
	var d Decoder
	for _, every := range []int{0, 2} {
		s, err := d.MakeSeek(data, every)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.Append(nil), len(data), 10, 50)
	}
	f.Fuzz(func(t *testing.T, points []byte, size, y0, y1 int) {
		head, from, to, err := Extent(points, size, y0, y1)
		if err != nil {
			return
		}
		if head < 0 || head > size || from < head || to < from || to > size {
			t.Fatalf("%d, %d to %d of %d", head, from, to, size)
		}
		var m raster.Image
		j := []Job{{Image: &m, Options: Options{Y: max(0, min(y0, 80)), Width: 120, Height: 10}}}
		if size == len(data) && lessen(&j[0], data, points, y0, y1) == nil {
			d.DecodeAll(j)
		}
	})
}
