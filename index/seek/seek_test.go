package seek

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"shardify/index"
)

var of = index.File{Name: "train-000000.tar", Bytes: 10240, Checksum: index.Sum([]byte("shard"))}

// fileOf is the file that made takes sample i for: small ones, without parts, and others.
func fileOf(i int) []byte {
	return bytes.Repeat([]byte{byte(i), 2, 3}, []int{5, 200, 20_000}[i%3])
}

// made is a side file of samples with these points.
func made(t testing.TB, every int, points ...string) ([]byte, index.Seek) {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, every)
	for i, p := range points {
		var what []byte
		if p != "" {
			what = Append(nil, fileOf(i), []byte(p))
		}
		if err := w.Add(uint32(0x01020304*i), what); err != nil {
			t.Fatal(err)
		}
	}
	said, err := w.Close(&of)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), said
}

// The form of the file, frozen: a change of it is a new version.
func TestGolden(t *testing.T) {
	data, said := made(t, 8, "", "points", "x")
	want := `
		7365656b7074730a
		04030201 00 706f696e7473 bd5d3901
		08060402 0c da469c01 2b8bfdc5 93855736 da469c01 2b8bfdc5 93855736 da469c01 2b8bfdc5
			93855736 da469c01 2b8bfdc5 93855736 da469c01 2b8bfdc5 3b0fa46c 78 0d4272a6
		0800000000000000 0800000000000000 1700000000000000 5d00000000000000
		0300000000000000 0028000000000000 8f2fcbc5f19a29a7 0200000000000000
		08000000 02000000 f7a2ded5 cfc8f319
		7365656b7074730a`
	want = strings.NewReplacer("\n", "", "\t", "", " ", "").Replace(want)
	if got := hex.EncodeToString(data); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if said.Bytes != int64(len(data)) || said.Checksum != index.Sum(data) || said.Samples != 2 || said.Every != 8 {
		t.Errorf("the manifest would say %+v", said)
	}
}

// Whatever was written comes back, by ranges.
func TestRoundTrip(t *testing.T) {
	for _, points := range [][]string{nil, {""}, {"a"}, {"", "", "abc", "", strings.Repeat("z", 5000), ""}} {
		data, said := made(t, 0, points...)
		n := int64(len(points))
		table, err := ParseTail(data[int64(len(data))-TailBytes(n):], int64(len(data)), &of, n)
		if err != nil {
			t.Fatal(err)
		}
		if table.With != said.Samples || table.Every != 0 {
			t.Errorf("%d with points every %d, want %d", table.With, table.Every, said.Samples)
		}
		for i, want := range points {
			at, size := table.Extent(i)
			if want == "" {
				if size != 0 {
					t.Errorf("sample %d has an entry of %d bytes", i, size)
				}
				continue
			}
			got, err := ParseEntry(data[at:at+size], uint32(0x01020304*i), int64(len(fileOf(i))))
			if err != nil || string(got.Points) != want || got.Part != PartSize(int64(len(fileOf(i)))) {
				t.Errorf("sample %d has %+v, %v", i, got, err)
			}
		}
		if !IsHead(data) {
			t.Error("it does not begin as such a file does")
		}
	}
}

// A bit that is flipped anywhere, and bytes that are cut anywhere, are noticed by whoever
// reads them: in an entry by ParseEntry, behind them by ParseTail.
func TestDamage(t *testing.T) {
	data, _ := made(t, 8, "", "points", "x", "")
	const n = 4
	tail := len(data) - int(TailBytes(n))
	whole := bytes.Clone(data)
	for at := len(magic); at < len(data); at++ {
		for bit := range 8 {
			data[at] ^= 1 << bit
			table, err := ParseTail(data[tail:], int64(len(data)), &of, n)
			if at >= tail {
				if err == nil || !errors.Is(err, index.ErrInvalid) {
					t.Fatalf("bit %d of byte %d of the tail flipped: %v", bit, at-tail, err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else {
				bad := 0
				for i := range n {
					from, size := table.Extent(i)
					if size == 0 {
						continue
					}
					if _, err := ParseEntry(data[from:from+size], uint32(0x01020304*i), int64(len(fileOf(i)))); err != nil {
						if !errors.Is(err, index.ErrInvalid) {
							t.Fatal(err)
						}
						bad++
					}
				}
				if bad != 1 {
					t.Fatalf("bit %d of byte %d flipped: %d entries are bad", bit, at, bad)
				}
			}
			data[at] ^= 1 << bit
		}
	}
	if !bytes.Equal(data, whole) {
		t.Fatal("the test spoils its own data")
	}
	for cut := range len(data) {
		tail := data[max(0, cut-int(TailBytes(n))):cut]
		if _, err := ParseTail(tail, int64(cut), &of, n); !errors.Is(err, index.ErrInvalid) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	for cut := range 15 {
		if _, err := ParseEntry(data[8:8+cut], 0x01020304, 600); !errors.Is(err, index.ErrInvalid) {
			t.Fatalf("an entry cut at %d: %v", cut, err)
		}
	}
}

func TestStale(t *testing.T) {
	data, _ := made(t, 0, "points", "", "more")
	tail := data[int64(len(data))-TailBytes(3):]
	for name, change := range map[string]func(*index.File){
		"size":     func(f *index.File) { f.Bytes++ },
		"checksum": func(f *index.File) { f.Checksum = index.Sum([]byte("another")) },
	} {
		other := of
		change(&other)
		if _, err := ParseTail(tail, int64(len(data)), &other, 3); !errors.Is(err, ErrStale) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	// The tail of a file for another number of samples is no tail, or one of theirs.
	for _, n := range []int64{0, 2, 4, -1, 1 << 60} {
		from := max(0, int64(len(data))-max(0, min(TailBytes(n), int64(len(data)))))
		if _, err := ParseTail(data[from:], int64(len(data)), &of, n); err == nil {
			t.Errorf("taken for %d samples", n)
		}
	}
	table, err := ParseTail(tail, int64(len(data)), &of, 3)
	if err != nil {
		t.Fatal(err)
	}
	at, size := table.Extent(2)
	if _, err := ParseEntry(data[at:at+size], 77, 60_000); !errors.Is(err, ErrStale) {
		t.Errorf("an entry of other bytes: %v", err)
	}
}

func TestVersion(t *testing.T) {
	data, _ := made(t, 0, "points")
	tail := data[int64(len(data))-TailBytes(1):]
	foot := tail[len(tail)-footerSize:]
	binary.LittleEndian.PutUint32(foot[36:], version+1)
	binary.LittleEndian.PutUint32(foot[44:], index.FieldChecksum(foot[:44]))
	if _, err := ParseTail(tail, int64(len(data)), &of, 1); !errors.Is(err, index.ErrVersion) {
		t.Errorf("a later version: %v", err)
	}
}

func TestSpacing(t *testing.T) {
	for _, every := range []int{0, 1, 8, MaxEvery} {
		if got, err := ParseSpacing(Spacing(every)); err != nil || got != every {
			t.Errorf("%d comes back as %d, %v", every, got, err)
		}
	}
	for _, bad := range []string{"", "0", "-1", "rows", "8.5", "65536"} {
		if _, err := ParseSpacing(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Nothing that is parsed makes it panic, or believe a table that leaves the file.
func FuzzParseTail(f *testing.F) {
	data, _ := made(f, 8, "", "points", "x")
	f.Add(data, int64(3), true)
	f.Add([]byte{}, int64(0), false)
	f.Fuzz(func(t *testing.T, data []byte, samples int64, mend bool) {
		if samples < 0 || samples > 1000 {
			return
		}
		n := TailBytes(samples)
		tail := bytes.Clone(data[max(0, int64(len(data))-n):])
		if mend && int64(len(tail)) == n { // so that what is behind the checksums is reached
			foot, le := tail[n-footerSize:], binary.LittleEndian
			le.PutUint64(foot, uint64(samples))
			le.PutUint64(foot[8:], uint64(of.Bytes))
			le.PutUint64(foot[16:], of.Checksum.Sum64())
			le.PutUint32(foot[32:], le.Uint32(foot[32:])%MaxEvery)
			le.PutUint32(foot[36:], version)
			le.PutUint32(foot[40:], index.FieldChecksum(tail[:n-footerSize]))
			le.PutUint32(foot[44:], index.FieldChecksum(foot[:44]))
			copy(foot[48:], magic)
		}
		table, err := ParseTail(tail, int64(len(data)), &of, samples)
		if err != nil {
			return
		}
		for i := range int(samples) {
			at, size := table.Extent(i)
			if at < 0 || size < 0 || at+size > int64(len(data)) {
				t.Fatalf("entry %d: %d bytes at %d of %d", i, size, at, len(data))
			}
			if size > 0 {
				_, _ = ParseEntry(data[at:at+size], 0, 1000)
			}
		}
	})
}

// Parts of a JPEG are held against their checksums: any flipped bit is noticed, and any
// run of parts that is another than it is said to be.
func TestParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{32<<10 - 1, 32 << 10, 32<<10 + 1, 100_000, 128 << 10, 128<<10 + 1, 1_000_000, 5 << 20} {
		file := make([]byte, size)
		for i := range file {
			file[i] = byte(r.Uint32())
		}
		what := Append(nil, file, []byte("points"))
		b := binary.LittleEndian.AppendUint32(nil, 7)
		b = append(b, what...)
		b = binary.LittleEndian.AppendUint32(b, index.FieldChecksum(b))
		e, err := ParseEntry(b, 7, int64(size))
		if err != nil || string(e.Points) != "points" {
			t.Fatalf("%d bytes: %+v, %v", size, e, err)
		}
		if size < 32<<10 {
			if e.Part != 0 || e.Check(file, 0) {
				t.Errorf("%d bytes have parts of %d", size, e.Part)
			}
			continue
		}
		if n := (int64(size) + e.Part - 1) / e.Part; n > 32 || n < 8 || e.Part < 4096 || e.Part&(e.Part-1) != 0 {
			t.Errorf("%d bytes: %d parts of %d", size, n, e.Part)
		}
		for _, other := range []int64{int64(size) * 2, int64(size) / 40} {
			if _, err := ParseEntry(b, 7, other); !errors.Is(err, index.ErrInvalid) {
				t.Errorf("taken for that of a file of %d bytes, and it is of %d: %v", other, size, err)
			}
		}
		for _, want := range [][2]int64{{0, 1}, {0, int64(size)}, {int64(size) - 1, int64(size)}, {e.Part, 2 * e.Part}, {e.Part + 1, 2*e.Part + 1}} {
			from, to := e.Parts(want[0], want[1])
			if from > want[0] || to < want[1] || to > int64(size) || to-from >= want[1]-want[0]+2*e.Part {
				t.Fatalf("%d bytes: parts %d to %d for %v", size, from, to, want)
			}
			part := bytes.Clone(file[from:to])
			if !e.Check(part, from) {
				t.Fatalf("%d bytes: sound parts %d to %d are refused", size, from, to)
			}
			if e.Check(part, from+e.Part) || e.Check(part, from-e.Part) || e.Check(part, from+1) || (int64(len(part))-1)%e.Part != 0 && e.Check(part[:len(part)-1], from) {
				t.Fatalf("%d bytes: parts %d to %d pass for others", size, from, to)
			}
			part[len(part)/2] ^= 4
			if e.Check(part, from) {
				t.Fatalf("%d bytes: a bit that is flipped passes", size)
			}
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	data, _ := made(f, 8, "", "points", "", "", "", "more")
	f.Add(data[8:23], uint32(0x01020304), int64(600), false)
	f.Add(data[23:], uint32(0x05060708), int64(60_000), true)
	f.Fuzz(func(t *testing.T, b []byte, crc uint32, size int64, mend bool) {
		if size < 0 || size > 1<<40 {
			return
		}
		if b = bytes.Clone(b); mend && len(b) > overhead { // so that what is behind the checksum is reached
			binary.LittleEndian.PutUint32(b, crc)
			binary.LittleEndian.PutUint32(b[len(b)-4:], index.FieldChecksum(b[:len(b)-4]))
		}
		e, err := ParseEntry(b, crc, size)
		if err != nil {
			return
		}
		if len(e.Points) == 0 || len(e.Points)+len(e.sums) != len(b)-overhead {
			t.Fatalf("%d bytes of points and %d of checksums in %d", len(e.Points), len(e.sums), len(b))
		}
		if e.Part > 0 {
			e.Check(make([]byte, min(size, 3*e.Part)), 0)
			e.Check(make([]byte, size%e.Part), size/e.Part*e.Part)
		}
	})
}
