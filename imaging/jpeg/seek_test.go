package jpeg

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
)

// Stored points are what they were when the first side files were written: those of the
// corpus, frozen.
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
	const want = "7cb92ae9aeb2857a4101cb3852bbb92020b8d318c133465ed5640bed4b6268e2"
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
