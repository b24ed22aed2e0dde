package compress

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"

	peer "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"

	"shardify/internal/peers"
	"shardify/shard"
)

// TestPeerReads: another implementation of the seekable format reads what we write,
// by its own use of the table, checksums included.
func TestPeerReads(t *testing.T) {
	const n = 3 << 20
	data := content(n, 8)
	c := compressed(t, Zstd, 0, data, boundaries(n, 150_000, 8), 1<<20, 0)
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	r, err := peer.NewReader(bytes.NewReader(c), dec)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	table, err := r.SeekTable()
	if err != nil || !table.HasChecksums() || table.NumFrames() < n/FrameSize/2 || table.Size() != n {
		t.Fatalf("the table has %d frames of %d bytes, checksums %v (%v)", table.NumFrames(), table.Size(), table.HasChecksums(), err)
	}
	got := make([]byte, n)
	if m, err := r.ReadAt(got, 0); m != n || err != nil || !bytes.Equal(got, data) {
		t.Fatalf("ReadAt: %d, %v", m, err)
	}
	if _, err := r.ReadAt(got[:1000], n/2); err != nil || !bytes.Equal(got[:1000], data[n/2:n/2+1000]) {
		t.Fatalf("ReadAt in the middle: %v", err)
	}
}

// TestPeerWrites: we read what the other implementation writes.
func TestPeerWrites(t *testing.T) {
	const n = 3 << 20
	data := content(n, 9)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	var b bytes.Buffer
	w, err := peer.NewWriter(&b, enc)
	if err != nil {
		t.Fatal(err)
	}
	for p := range slices.Chunk(data, 100_001) {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	c := b.Bytes()
	if got := decompressed(t, Zstd, c); !bytes.Equal(got, data) {
		t.Fatal("other bytes, as a stream")
	}
	at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), Zstd)
	if err != nil {
		t.Fatal(err)
	}
	if at.Size() != n {
		t.Fatalf("the size is %d, want %d", at.Size(), n)
	}
	got := make([]byte, 250_000)
	if _, err := at.ReadAt(got, 1<<20); err != nil || !bytes.Equal(got, data[1<<20:1<<20+250_000]) {
		t.Fatalf("other bytes, at an offset (%v)", err)
	}
	// Its frames have no checksum of their own; the table's is what finds a flip.
	flipped := bytes.Clone(c)
	flipped[len(c)/2] ^= 1
	at, err = NewReaderAt(bytes.NewReader(flipped), int64(len(c)), Zstd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at.ReadAt(make([]byte, n), 0); !known(err) {
		t.Fatalf("a flipped bit: %v", err)
	}
}

// TestPrograms: gzip and zstd decode what we write.
func TestPrograms(t *testing.T) {
	const n = 2 << 20
	data := content(n, 10)
	for kind, program := range map[string]string{Gzip: "gzip", Zstd: "zstd"} {
		file := filepath.Join(t.TempDir(), "x."+kind)
		c := compressed(t, kind, 0, data, boundaries(n, 150_000, 10), 1<<20, 0)
		if err := os.WriteFile(file, c, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(peers.Program(t, program), "-dc", file).Output()
		if err != nil || !bytes.Equal(out, data) {
			t.Errorf("%s: %d bytes, %v", program, len(out), err)
		}
	}
}

// tabled puts a seek table behind frames; change may spoil it.
func tabled(t testing.TB, frames [][]byte, sums bool, change func(entries []byte)) (c, data []byte) {
	t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	var entries []byte
	for _, f := range frames {
		z := enc.EncodeAll(f, nil)
		c = append(c, z...)
		data = append(data, f...)
		entries = binary.LittleEndian.AppendUint32(entries, uint32(len(z)))
		entries = binary.LittleEndian.AppendUint32(entries, uint32(len(f)))
		if sums {
			if len(f) == 0 {
				entries = append(entries, 0, 0, 0, 0)
			} else {
				entries = append(entries, z[len(z)-4:]...)
			}
		}
	}
	if change != nil {
		change(entries)
	}
	descriptor := byte(0)
	if sums {
		descriptor = hasChecksums
	}
	c = binary.LittleEndian.AppendUint32(c, skippableMagic)
	c = binary.LittleEndian.AppendUint32(c, uint32(len(entries)+footerSize))
	c = append(c, entries...)
	c = binary.LittleEndian.AppendUint32(c, uint32(len(frames)))
	c = append(c, descriptor)
	return binary.LittleEndian.AppendUint32(c, seekTableMagic), data
}

// TestForeignFrames reads frames that we would not write: empty ones, and some too
// large to be held.
func TestForeignFrames(t *testing.T) {
	large := bytes.Repeat(content(1<<20, 11), (maxWhole>>20)+3)
	frames := [][]byte{nil, content(1000, 1), nil, large, content(2000, 2), large[:maxWhole+1], nil}
	for _, sums := range []bool{true, false} {
		c, data := tabled(t, frames, sums, nil)
		at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), Zstd)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		offsets := []int64{0, 999, 1000, 1001, 1000 + int64(len(large)) - 1, 1000 + int64(len(large)), int64(len(data)) - 1}
		for range 5 {
			offsets = append(offsets, r.Int64N(int64(len(data))))
		}
		for _, off := range offsets {
			p := make([]byte, r.IntN(100_000))
			want := data[off:min(off+int64(len(p)), int64(len(data)))]
			n, err := at.ReadAt(p, off)
			if !bytes.Equal(p[:n], want) || err != nil && (err != io.EOF || len(want) == len(p)) {
				t.Fatalf("ReadAt(%d bytes, %d) = %d, %v", len(p), off, n, err)
			}
		}
		got := make([]byte, len(data))
		if n, err := at.ReadAt(got, 0); n != len(data) || err != nil || !bytes.Equal(got, data) {
			t.Fatalf("ReadAt of everything: %d, %v", n, err)
		}
	}
	// A wrong checksum of a large frame is found where its end is read.
	c, data := tabled(t, frames[3:4], true, func(entries []byte) { entries[8] ^= 1 })
	at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), Zstd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at.ReadAt(make([]byte, 1000), int64(len(data))-1000); !errors.Is(err, shard.ErrChecksum) {
		t.Errorf("a large frame with a wrong checksum: %v", err)
	}
}

// TestLyingTables: a table that contradicts the frames or the file is found, and
// does not make us allocate what it claims.
func TestLyingTables(t *testing.T) {
	frames := [][]byte{content(1000, 1), content(1000, 2)}
	put := func(at int, v uint32) func([]byte) {
		return func(entries []byte) { binary.LittleEndian.PutUint32(entries[at:], v) }
	}
	swap := func(entries []byte) {
		a := binary.LittleEndian.Uint32(entries)
		b := binary.LittleEndian.Uint32(entries[12:])
		binary.LittleEndian.PutUint32(entries, a+1)
		binary.LittleEndian.PutUint32(entries[12:], b-1)
	}
	good, _ := tabled(t, frames, true, nil)
	tail := func(change func(b []byte)) []byte {
		b := bytes.Clone(good)
		change(b)
		return b
	}
	n := len(good)
	spoiled := func(change func([]byte)) []byte { c, _ := tabled(t, frames, true, change); return c }
	for name, c := range map[string][]byte{
		"a compressed size too large":   spoiled(put(0, 1<<31)),
		"a compressed size too small":   spoiled(put(0, 5)),
		"sizes that move a frame's end": spoiled(swap),
		"a size too large":              spoiled(put(4, 1001)),
		"a size of gigabytes":           spoiled(put(4, math32)),
		"a size too small":              spoiled(put(4, 999)),
		"a wrong checksum":              spoiled(put(8, 0)),
		"too many frames":               tail(func(b []byte) { binary.LittleEndian.PutUint32(b[n-9:], 3) }),
		"millions of frames":            tail(func(b []byte) { binary.LittleEndian.PutUint32(b[n-9:], maxFrames) }),
		"billions of frames":            tail(func(b []byte) { binary.LittleEndian.PutUint32(b[n-9:], math32) }),
		"too few frames":                tail(func(b []byte) { binary.LittleEndian.PutUint32(b[n-9:], 1) }),
		"reserved bits":                 tail(func(b []byte) { b[n-5] |= 4 }),
		"another kind of skippable":     tail(func(b []byte) { b[n-footerSize-24-8] = 0x50 }),
		"a wrong frame size":            tail(func(b []byte) { b[n-footerSize-24-4]++ }),
		"something before the frames":   append([]byte("x"), good...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), Zstd)
		if err == nil {
			_, err = at.ReadAt(make([]byte, 3000), 0)
		}
		runtime.ReadMemStats(&after)
		if !known(err) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

const math32 = 1<<32 - 1

// TestReaderErrors: the errors of what lies below come back as they are.
func TestReaderErrors(t *testing.T) {
	fault := errors.New("cable pulled")
	data := content(100_000, 1)
	for name, v := range variants(t, data) {
		r, err := NewReader(io.MultiReader(bytes.NewReader(v.c[:len(v.c)/2]), iotest.ErrReader(fault)), v.kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); !errors.Is(err, fault) {
			t.Errorf("%s: %v", name, err)
		}
		failing := true
		at, err := NewReaderAt(readerAt(func(p []byte, off int64) (int, error) {
			if failing && off < int64(len(v.c))-20 {
				return 0, fault
			}
			return bytes.NewReader(v.c).ReadAt(p, off)
		}), int64(len(v.c)), v.kind)
		if err == nil {
			_, err = at.ReadAt(make([]byte, 10), 0)
		}
		if !errors.Is(err, fault) {
			t.Errorf("%s, ReadAt: %v", name, err)
		}
		if at == nil {
			continue // its table could not be read
		}
		failing = false
		p := make([]byte, 10)
		if _, err := at.ReadAt(p, 0); err != nil || !bytes.Equal(p, data[:10]) {
			t.Errorf("%s, ReadAt after the fault: %v", name, err)
		}
	}
	for _, kind := range Kinds() {
		w, err := NewWriter(writer(func(p []byte) (int, error) { return 0, fault }), kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(content(MaxFrame+1, 1))
		if kind == None && !errors.Is(err, fault) {
			t.Errorf("%q: Write: %v", kind, err)
		}
		if err := w.Close(); kind != None && !errors.Is(err, fault) {
			t.Errorf("%q: Close: %v", kind, err)
		}
	}
}

type readerAt func([]byte, int64) (int, error)

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r(p, off) }

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestClosed: what is closed says so.
func TestClosed(t *testing.T) {
	for _, kind := range []string{Gzip, Zstd} {
		var b bytes.Buffer
		w, err := NewWriter(&b, kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Errorf("%q: closing twice: %v", kind, err)
		}
		if _, err := w.Write([]byte("x")); err == nil {
			t.Errorf("%q: Write after Close works", kind)
		}
		r, err := NewReader(&b, kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Errorf("%q: closing a reader twice: %v", kind, err)
		}
		if _, err := r.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("%q: Read after Close: %v", kind, err)
		}
	}
}

// FuzzSeekTable parses arbitrary ends of files, and compares with the other
// implementation.
func FuzzSeekTable(f *testing.F) {
	c, _ := tabled(f, [][]byte{[]byte("abc"), []byte("defg")}, true, nil)
	f.Add(c)
	c, _ = tabled(f, [][]byte{[]byte("abc"), nil}, false, nil)
	f.Add(c)
	f.Fuzz(func(t *testing.T, file []byte) {
		table, err := readSeekTable(context.Background(), withContext{bytes.NewReader(file)}, int64(len(file)))
		if err != nil {
			if !known(err) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if table == nil {
			return
		}
		last := table.frames[len(table.frames)-1]
		other, err := peer.NewSeekTable(file[last.at:])
		if err != nil {
			t.Fatalf("we read the table, the other does not: %v", err)
		}
		if other.NumFrames() != int64(len(table.frames)-1) || other.Size() != uint64(last.raw) {
			t.Fatalf("%d frames of %d bytes, the other reads %d of %d", len(table.frames)-1, last.raw, other.NumFrames(), other.Size())
		}
		for i := range len(table.frames) - 1 {
			e, _ := other.EntryByID(int64(i))
			compressed, raw := table.size(i)
			if int64(e.CompressedOffset) != table.frames[i].at || int64(e.CompressedSize) != compressed || int64(e.DecompressedSize) != raw || table.checksums && e.Checksum != table.frames[i].sum {
				t.Fatalf("frame %d is %+v, the other reads %+v", i, table.frames[i], e)
			}
		}
	})
}

// FuzzReaders reads arbitrary data as a stream and at offsets: both find the same.
func FuzzReaders(f *testing.F) {
	data := content(300, 12)
	for _, v := range variants(f, data) {
		f.Add(v.c, v.kind == Gzip)
	}
	c, _ := tabled(f, [][]byte{data[:100], data[100:], nil}, true, nil)
	f.Add(c, false)
	f.Fuzz(func(t *testing.T, c []byte, gz bool) {
		kind := Zstd
		if gz {
			kind = Gzip
		}
		const most = 1 << 20
		r, err := NewReader(bytes.NewReader(c), kind)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.LimitReader(r, most))
		if err != nil && !known(err) {
			t.Fatalf("an error of another kind: %v", err)
		}
		whole := err == nil && len(got) < most
		if err := r.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), kind)
		if err != nil {
			if !known(err) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		p := make([]byte, most)
		n, err := at.ReadAt(p, 0)
		if err != nil && err != io.EOF && !known(err) {
			t.Fatalf("an error of another kind: %v", err)
		}
		if whole && err == io.EOF && !bytes.Equal(p[:n], got) {
			t.Fatalf("the stream has %d bytes, ReadAt %d, and not the same", len(got), n)
		}
		if n > 3 && err == io.EOF {
			q := make([]byte, n/2)
			if m, err := at.ReadAt(q, int64(n/3)); err != nil || !bytes.Equal(q[:m], p[n/3:n/3+n/2]) {
				t.Fatalf("ReadAt in the middle: %d of %d bytes, %v", m, len(q), err)
			}
		}
	})
}
