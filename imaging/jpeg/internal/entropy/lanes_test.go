//go:build amd64 && linux && !purego

package entropy

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded returns n bytes that end where memory ends that may be touched, and
// others that begin where it begins.
func guarded(t *testing.T, n int) (last, first []byte) {
	t.Helper()
	page := unix.Getpagesize()
	size := (n+page-1)/page*page + 2*page
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	for _, edge := range [][]byte{m[:page], m[size-page:]} {
		if err := unix.Mprotect(edge, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return m[size-page-n : size-page : size-page], m[page : page+n : page+n]
}

func words(b []byte) []int16 { return unsafe.Slice((*int16)(unsafe.Pointer(&b[0])), len(b)/2) }

// The kernels write their blocks, read their bytes, and nothing beside: on good
// data, on noise, and on data that end early. They decode what Go does.
func TestGuardPages(t *testing.T) {
	if !assembly {
		t.Skip("SKIPPED LOUDLY: the kernels need amd64 with AVX2 and BMI2, and no purego")
	}
	const mcus = 5
	files := made(t)
	for i, name := range slices.Sorted(maps.Keys(files)) {
		if i%4 > 0 {
			continue
		}
		data := files[name]
		var ds [lanes]Decoder
		var lane [lanes]*strand
		n := 0
		for i := range ds {
			d := &ds[i]
			if err := d.ReadHeader(data); err != nil {
				t.Fatal(err)
			}
			if d.multi() || d.sequential() != nil {
				continue
			}
			d.main.start(d)
			n++
		}
		if n == 0 {
			continue
		}
		for variant := range 8 {
			for i := range ds {
				d := &ds[i]
				tr := &d.main
				clean := slices.Clone(tr.clean[:tr.s.end])
				switch variant % 4 {
				case 1: // other bytes
					for j := range clean {
						clean[j] ^= byte(37*j + i)
					}
				case 2: // too few
					clean = clean[:min(len(clean), 3+i)]
				case 3: // only ones, and longest codes
					for j := range clean {
						clean[j] = 0xff
					}
				}
				bytesLast, bytesFirst := guarded(t, len(clean)+pad)
				mem := bytesLast
				if i%2 == 1 {
					mem = bytesFirst
				}
				copy(mem, clean)
				tr.s = stream{data: mem, end: len(clean)}
				tr.part, tr.n = &tr.lay, mcus
				if variant >= 4 {
					tr.part = &tr.waste
				}
				for j := range tr.lay.slot[:tr.lay.n] {
					b := &tr.lay.slot[j]
					coefLast, coefFirst := guarded(t, 128*mcus)
					b.coef, b.at, b.step = words(coefLast), 0, 1
					if j%2 == 1 {
						b.coef = words(coefFirst)
					}
				}
				lane[i] = tr
			}
			for width := 1; width <= lanes; width++ {
				var k kernel
				for i := range width {
					lane[i].s.p, lane[i].s.used, lane[i].s.bad = 0, 0, false
					lane[i].s.pred = [4]int32{}
					k.order = rawOrder
					last, first := guarded(t, rawBlock*mcus*lane[i].lay.n)
					k.raw[i].memory = last
					if i%2 == 1 {
						k.raw[i].memory = first
					}
					k.load(i, lane[i])
				}
				var open []*strand
				for i := range width {
					open = append(open, lane[i])
				}
				for len(open) > 0 {
					j := k.run(open)
					check(t, name, open[j])
					last := len(open) - 1
					open[j] = open[last]
					open = open[:last]
					k.move(j, last)
				}
			}
		}
	}
}

// check compares what a strand has decoded with what Go makes of it.
func check(t *testing.T, name string, tr *strand) {
	t.Helper()
	l := tr.lay
	for j := range l.slot[:l.n] {
		b := &l.slot[j]
		b.coef = make([]int16, len(b.coef))
	}
	s := stream{data: tr.s.data, end: tr.s.end}
	s.run(&l, tr.n)
	if s.over() != tr.s.over() || !s.over() && s.bit() != tr.s.bit() || s.bad != tr.s.bad || s.pred != tr.s.pred {
		t.Fatalf("%s: bit %d, bad %v, pred %v; Go: %d, %v, %v", name, tr.s.bit(), tr.s.bad, tr.s.pred, s.bit(), s.bad, s.pred)
	}
	for j := range l.slot[:l.n] {
		if b := &tr.lay.slot[j]; tr.part == &tr.lay && !slices.Equal(b.coef, l.slot[j].coef) {
			t.Fatalf("%s: slot %d differs from Go", name, j)
		}
	}
}

// All tests of this package that decode have run with the kernels; the photographs
// come out the same without.
func TestWithoutAssembly(t *testing.T) {
	if !assembly {
		t.Skip("SKIPPED LOUDLY: the kernels need amd64 with AVX2 and BMI2, and no purego")
	}
	assembly = false
	defer func() { assembly = true }()
	TestGroup(t)
	TestCorpus(t)
}

// The bytes without stuffing are the same, read nowhere beside, for any place of FF.
func TestUnstuff(t *testing.T) {
	if !assembly {
		t.Skip("SKIPPED LOUDLY: the kernels need amd64 with AVX2 and BMI2, and no purego")
	}
	r := rand.New(rand.NewPCG(9, 10))
	for n := range 300 {
		last, first := guarded(t, n)
		for range 20 {
			for _, src := range [][]byte{last, first} {
				for i := range src {
					src[i] = byte(r.Uint32())
					if r.IntN(9) == 0 {
						src[i] = 0xff
					}
					if i > 0 && src[i-1] == 0xff && r.IntN(20) > 0 {
						src[i] = 0
					}
				}
				got, read, marker := unstuff(nil, src)
				assembly = false
				want, wantRead, wantMarker := unstuff(nil, src)
				assembly = true
				if !bytes.Equal(got, want) || read != wantRead || marker != wantMarker || cap(got) < len(got)+pad {
					t.Fatalf("%x: %x, %d, %x; want %x, %d, %x", src, got, read, marker, want, wantRead, wantMarker)
				}
			}
		}
	}
}
