// Package storetest is the suite that every store must pass. It holds a store to
// each sentence of package store; call [Run] from the store's own tests.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"shardify/store"
)

// Run runs the suite. open returns a store that does not exist yet, a new one in
// every call. An object that is open must outlive its replacement and removal.
func Run(t *testing.T, open func(t *testing.T) store.Store) { run(t, open, testReplace) }

// RunChanged is Run for stores that keep no version but the last, so that an object
// which was replaced or removed while it was open is store.ErrChanged.
func RunChanged(t *testing.T, open func(t *testing.T) store.Store) { run(t, open, testChanged) }

// suite is a test by its name.
type suite []struct {
	name string
	test func(t *testing.T, s store.Store)
}

func (all suite) run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			if s.URL() == "" {
				t.Error("the store has no URL")
			}
			c.test(t, s)
		})
	}
}

func run(t *testing.T, open func(t *testing.T) store.Store, replace func(t *testing.T, s store.Store)) {
	suite{
		{"Missing", testMissing},
		{"Sizes", testSizes},
		{"ReadAt", testReadAt},
		{"Commit", testCommit},
		{"CommitCancelled", testCommitCancelled},
		{"Abort", testAbort},
		{"Done", testDone},
		{"Replace", replace},
		{"WithSize", testWithSize},
		{"List", testList},
		{"ListPrefix", testListPrefix},
		{"ListPasses", testListPasses},
		{"ListFrom", testListFrom},
		{"Stat", testStat},
		{"Remove", testRemove},
		{"Lock", testLock},
		{"LockContended", testLockContended},
		{"Sweep", testSweep},
		{"Names", testNames},
		{"LongNames", testLongNames},
		{"Cancelled", testCancelled},
		{"ConcurrentNames", testConcurrentNames},
		{"ConcurrentName", testConcurrentName},
		{"ConcurrentFolder", testConcurrentFolder},
		{"ConcurrentReads", testConcurrentReads},
	}.run(t, open)
}

// RunReadOnly runs what of the suite is about reading, for stores that can only be
// read. open returns such a store, of nothing yet, and one that shows the same objects,
// through which they come and go. An object that was replaced or removed while it was
// open must be store.ErrChanged.
func RunReadOnly(t *testing.T, open func(t *testing.T) (s, behind store.Store)) {
	suite{
		{"Missing", testMissing},
		{"Sizes", testSizes},
		{"ReadAt", testReadAt},
		{"Commit", testCommit},
		{"Replace", testChanged},
		{"WithSize", testWithSize},
		{"Remove", testRemove},
		{"Names", testNames},
		{"LongNames", testLongNames},
		{"Cancelled", testCancelled},
		{"ConcurrentNames", testConcurrentNames},
		{"ConcurrentName", testConcurrentName},
		{"ConcurrentReads", testConcurrentReads},
	}.run(t, func(t *testing.T) store.Store {
		s, behind := open(t)
		return shown{behind, s}
	})
	t.Run("ReadOnly", func(t *testing.T) {
		s, behind := open(t)
		testReadOnly(t, s, behind)
	})
}

// shown is a store that is written behind what it is read through.
type shown struct {
	store.Store
	reads store.Store
}

func (s shown) URL() string { return s.reads.URL() }

func (s shown) Open(ctx context.Context, name string) (store.Object, error) {
	return s.reads.Open(ctx, name)
}

// What writes is refused, and says what and where.
func testReadOnly(t *testing.T, s, behind store.Store) {
	ctx := t.Context()
	put(t, behind, "a", []byte("x"))
	_, err := s.Create(ctx, "b")
	is(t, "Create", err, store.ErrReadOnly, s.URL()+"/b")
	_, err = s.Create(ctx, "a")
	is(t, "Create", err, store.ErrReadOnly, s.URL()+"/a")
	_, err = s.Lock(ctx, "c", "x")
	is(t, "Lock", err, store.ErrReadOnly, s.URL()+"/c")
	is(t, "Lock", err, errors.ErrUnsupported, "")
	is(t, "Remove", s.Remove(ctx, "a"), store.ErrReadOnly, s.URL()+"/a")
	is(t, "Sweep", s.Sweep(ctx, ""), store.ErrReadOnly, s.URL())
	visible(t, behind, "a")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for _, name := range []string{"", "/a", "../a"} {
		_, err := s.Create(ctx, name)
		is(t, "Create", err, store.ErrName, fmt.Sprintf("%q", name))
		is(t, "Remove", s.Remove(ctx, name), store.ErrName, fmt.Sprintf("%q", name))
		_, err = s.Lock(ctx, name, "")
		is(t, "Lock", err, store.ErrName, fmt.Sprintf("%q", name))
	}
	_, err = s.Create(cancelled, "a")
	is(t, "Create", err, context.Canceled, "a")
	is(t, "Sweep", s.Sweep(cancelled, ""), context.Canceled, "")

	// A list is right, or there is none.
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{ctx, errors.ErrUnsupported}, {cancelled, context.Canceled}} {
		n := 0
		for info, err := range s.List(c.ctx, "") {
			if n++; n > 1 {
				t.Fatalf("List goes on: %+v, %v", info, err)
			}
			if c.ctx == ctx && err == nil && info.Name == "a" {
				continue
			}
			is(t, "List", err, c.want, s.URL())
		}
		if n != 1 {
			t.Errorf("List yields %d items", n)
		}
	}
}

// pattern returns n bytes that differ with seed and with the place.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{0: byte(seed), 1: byte(seed >> 8)}).Read(b)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails the test unless err wraps want and names the object.
func is(t *testing.T, what string, err, want error, name string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v; want an error that wraps %q", what, err, want)
	} else if !strings.Contains(err.Error(), name) {
		t.Errorf("%s: %q does not name %q", what, err, name)
	}
}

func put(t *testing.T, s store.Store, name string, data []byte) {
	t.Helper()
	must(t, store.WriteAll(t.Context(), s, name, data))
}

func create(t *testing.T, s store.Store, name string, data []byte) store.Writer {
	t.Helper()
	w, err := s.Create(t.Context(), name)
	must(t, err)
	n, err := w.Write(data)
	if n != len(data) || err != nil {
		t.Fatalf("Write of %d bytes = %d, %v", len(data), n, err)
	}
	return w
}

func get(t *testing.T, s store.Store, name string) []byte {
	t.Helper()
	data, err := store.ReadAll(t.Context(), s, name, 1<<30)
	must(t, err)
	return data
}

func names(t *testing.T, s store.Store, prefix string) []string {
	t.Helper()
	var all []string
	for info, err := range s.List(t.Context(), prefix) {
		must(t, err)
		all = append(all, info.Name)
	}
	return all
}

// visible fails the test unless the store holds just these names.
func visible(t *testing.T, s store.Store, want ...string) {
	t.Helper()
	if got := names(t, s, ""); !slices.Equal(got, want) {
		t.Fatalf("the store holds %q; want %q", got, want)
	}
}

func testMissing(t *testing.T, s store.Store) {
	ctx := t.Context()
	visible(t, s)
	if got := names(t, s, "a/b"); len(got) != 0 {
		t.Errorf("a store that does not exist lists %q", got)
	}
	for _, name := range []string{"a", "a/b/c"} {
		_, err := s.Open(ctx, name)
		is(t, "Open", err, fs.ErrNotExist, name)
		if err := s.Remove(ctx, name); err != nil {
			t.Errorf("Remove(%q) of nothing: %v", name, err)
		}
	}
	if err := s.Sweep(ctx, ""); err != nil {
		t.Errorf("Sweep of nothing: %v", err)
	}
	visible(t, s)

	put(t, s, "folder/a", []byte("x"))
	for _, name := range []string{"folder", "folder/b", "folder/a/b", "other/a", "folde", "A"} {
		_, err := s.Open(ctx, name)
		is(t, "Open", err, fs.ErrNotExist, name)
		if err := s.Remove(ctx, name); err != nil {
			t.Errorf("Remove(%q) of nothing: %v", name, err)
		}
	}
	visible(t, s, "folder/a")
}

func testSizes(t *testing.T, s store.Store) {
	for i, size := range []int{0, 1, 511, 4096, 65537, 1 << 20, 9<<20 + 3} {
		name := fmt.Sprintf("sizes/%d", size)
		data := pattern(uint64(i), size)
		w, err := s.Create(t.Context(), name)
		must(t, err)
		// In pieces, from a buffer that is the writer's only during the call.
		buffer := make([]byte, max(1, size/3))
		for rest := data; len(rest) > 0; {
			n := copy(buffer, rest)
			wrote, err := w.Write(buffer[:n])
			if wrote != n || err != nil {
				t.Fatalf("Write of %d bytes = %d, %v", n, wrote, err)
			}
			rest = rest[n:]
			clear(buffer)
		}
		must(t, w.Commit(t.Context()))
		if got := get(t, s, name); !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
		for info, err := range s.List(t.Context(), name) {
			must(t, err)
			if info.Size != int64(size) {
				t.Errorf("List: size %d, want %d", info.Size, size)
			}
			if !info.ModTime.IsZero() && time.Since(info.ModTime).Abs() > time.Minute {
				t.Errorf("List: written at %v", info.ModTime)
			}
		}
	}
}

func testReadAt(t *testing.T, s store.Store) {
	ctx := t.Context()
	data := pattern(1, 3000)
	put(t, s, "a", data)
	o, err := s.Open(ctx, "a")
	must(t, err)
	if info := o.Info(); info.Name != "a" || info.Size != 3000 {
		t.Errorf("Info() = %+v", info)
	}
	for _, c := range []struct {
		off, size, n int
		end          bool // io.EOF, must be
	}{
		{0, 3000, 3000, false}, {0, 1, 1, false}, {2999, 1, 1, false}, {100, 50, 50, false}, {7, 0, 0, false},
		{0, 3001, 3000, true}, {2999, 2, 1, true}, {3000, 1, 0, true}, {3001, 1, 0, true}, {1 << 40, 10, 0, true},
	} {
		p := bytes.Repeat([]byte{0xAA}, c.size+1)
		n, err := o.ReadAt(ctx, p[:c.size], int64(c.off))
		if n != c.n {
			t.Errorf("ReadAt(%d bytes, %d) = %d, %v; want %d", c.size, c.off, n, err, c.n)
			continue
		}
		if c.n > 0 && !bytes.Equal(p[:n], data[c.off:c.off+n]) {
			t.Errorf("ReadAt(%d bytes, %d): other bytes", c.size, c.off)
		}
		if p[c.size] != 0xAA {
			t.Errorf("ReadAt(%d bytes, %d) wrote past its buffer", c.size, c.off)
		}
		// io.ReaderAt leaves it open whether a full read that ends at the end says
		// io.EOF; a short one must.
		atEnd := c.off+c.size >= len(data)
		if c.end && err != io.EOF || !c.end && err != nil && !(atEnd && err == io.EOF) {
			t.Errorf("ReadAt(%d bytes, %d): error %v", c.size, c.off, err)
		}
	}
	if n, err := o.ReadAt(ctx, make([]byte, 1), -1); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("ReadAt at -1 = %d, %v", n, err)
	}
	if err := iotest.TestReader(io.NewSectionReader(store.ReaderAt(ctx, o), 0, 3000), data); err != nil {
		t.Error(err)
	}

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	n, err := o.ReadAt(cancelled, make([]byte, 1), 0)
	is(t, fmt.Sprintf("ReadAt = %d under a cancelled context", n), err, context.Canceled, "a")
	must(t, o.Close())
	if n, err := o.ReadAt(ctx, make([]byte, 1), 0); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("ReadAt after Close = %d, %v", n, err)
	}

	put(t, s, "empty", nil)
	o, err = s.Open(ctx, "empty")
	must(t, err)
	defer o.Close()
	if n, err := o.ReadAt(ctx, make([]byte, 1), 0); n != 0 || err != io.EOF {
		t.Errorf("ReadAt of an empty object = %d, %v", n, err)
	}
}

func testCommit(t *testing.T, s store.Store) {
	ctx := t.Context()
	w := create(t, s, "d/a", []byte("one"))
	defer w.Abort()
	hidden := func(when string) {
		t.Helper()
		if got := names(t, s, ""); len(got) != 0 {
			t.Errorf("%s the store lists %q", when, got)
		}
		_, err := s.Open(ctx, "d/a")
		is(t, when, err, fs.ErrNotExist, "d/a")
	}
	hidden("before Commit")
	_, err := w.Write([]byte("two"))
	must(t, err)
	hidden("before Commit")
	must(t, w.Commit(ctx))
	visible(t, s, "d/a")
	if got := get(t, s, "d/a"); string(got) != "onetwo" {
		t.Errorf("committed onetwo, read %q", got)
	}
}

func testCommitCancelled(t *testing.T, s store.Store) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	w := create(t, s, "a", []byte("x"))
	is(t, "Commit", w.Commit(cancelled), context.Canceled, "a")
	visible(t, s)
	if err := w.Commit(t.Context()); err == nil {
		t.Error("a second Commit succeeded after one that failed")
	}
	must(t, w.Abort())
	visible(t, s)

	put(t, s, "a", []byte("old"))
	w = create(t, s, "a", []byte("new"))
	is(t, "Commit", w.Commit(cancelled), context.Canceled, "a")
	if got := get(t, s, "a"); string(got) != "old" {
		t.Errorf("after a Commit that failed the object is %q", got)
	}
}

func testAbort(t *testing.T, s store.Store) {
	w := create(t, s, "d/e/a", pattern(1, 100_000))
	must(t, w.Abort())
	must(t, w.Abort())
	visible(t, s)

	put(t, s, "a", []byte("old"))
	w = create(t, s, "a", []byte("new"))
	must(t, w.Abort())
	if got := get(t, s, "a"); string(got) != "old" {
		t.Errorf("Abort changed the object to %q", got)
	}
	w = create(t, s, "a", []byte("new"))
	must(t, w.Commit(t.Context()))
	must(t, w.Abort())
	if got := get(t, s, "a"); string(got) != "new" {
		t.Errorf("after Commit and Abort the object is %q", got)
	}
}

func testDone(t *testing.T, s store.Store) {
	for _, end := range []string{"Commit", "Abort"} {
		w := create(t, s, "a", []byte("x"))
		if end == "Commit" {
			must(t, w.Commit(t.Context()))
		} else {
			must(t, w.Abort())
		}
		if n, err := w.Write([]byte("y")); n != 0 || err == nil {
			t.Errorf("Write after %s = %d, %v", end, n, err)
		}
		if err := w.Commit(t.Context()); err == nil {
			t.Errorf("Commit after %s succeeded", end)
		}
		must(t, w.Abort())
		if got := get(t, s, "a"); string(got) != "x" {
			t.Errorf("the object is %q", got)
		}
	}
}

func testReplace(t *testing.T, s store.Store) {
	ctx := t.Context()
	old, new := pattern(1, 200_000), pattern(2, 300_001)
	put(t, s, "a", old)
	o, err := s.Open(ctx, "a")
	must(t, err)
	defer o.Close()
	same := func(when string) {
		t.Helper()
		got := make([]byte, len(old))
		if n, err := o.ReadAt(ctx, got, 0); n != len(old) || err != nil && err != io.EOF || !bytes.Equal(got, old) {
			t.Errorf("%s the open object shows other bytes: %d, %v", when, n, err)
		}
		if n, err := o.ReadAt(ctx, got[:1], int64(len(old))); n != 0 || err != io.EOF {
			t.Errorf("%s the open object goes on past its end: %d, %v", when, n, err)
		}
		if size := o.Info().Size; size != int64(len(old)) {
			t.Errorf("%s the open object has %d bytes", when, size)
		}
	}
	w := create(t, s, "a", new)
	defer w.Abort()
	if got := get(t, s, "a"); !bytes.Equal(got, old) {
		t.Error("before Commit the object has changed")
	}
	must(t, w.Commit(ctx))
	if got := get(t, s, "a"); !bytes.Equal(got, new) {
		t.Error("after Commit the object is not the new one")
	}
	same("after Commit")
	must(t, s.Remove(ctx, "a"))
	same("after Remove")
	visible(t, s)
}

func testChanged(t *testing.T, s store.Store) {
	ctx := t.Context()
	old := pattern(1, 200_000)
	for _, sized := range []bool{false, true} {
		for _, change := range []string{"another size", "the same size", "the same bytes", "removed"} {
			put(t, s, "a", old)
			with := ctx
			if sized {
				with = store.WithSize(ctx, int64(len(old)))
			}
			o, err := s.Open(with, "a")
			must(t, err)
			got := make([]byte, len(old))
			if n, err := o.ReadAt(ctx, got, 0); n != len(old) || err != nil && err != io.EOF || !bytes.Equal(got, old) {
				t.Fatalf("%d bytes, %v", n, err)
			}
			switch change {
			case "another size":
				put(t, s, "a", pattern(2, 200_001))
			case "the same size":
				put(t, s, "a", pattern(2, len(old)))
			case "the same bytes":
				put(t, s, "a", old)
			default:
				must(t, s.Remove(ctx, "a"))
			}
			n, err := o.ReadAt(ctx, got, 0)
			if !bytes.Equal(got[:n], old[:n]) {
				t.Errorf("%s: the open object shows other bytes", change)
			}
			if change == "the same bytes" && err == nil {
				continue
			}
			is(t, change, err, store.ErrChanged, "a")
			if size := o.Info().Size; size != int64(len(old)) {
				t.Errorf("%s: the open object has %d bytes", change, size)
			}
			must(t, o.Close())
		}
	}
}

// A size that Open is told may save it a request, and changes nothing else.
func testWithSize(t *testing.T, s store.Store) {
	ctx := t.Context()
	data := pattern(1, 3000)
	put(t, s, "a", data)
	put(t, s, "empty", nil)
	read := func(name string, size int64) ([]byte, error) {
		o, err := s.Open(store.WithSize(ctx, size), name)
		if err != nil {
			return nil, err
		}
		defer o.Close()
		got := make([]byte, o.Info().Size)
		n, err := o.ReadAt(ctx, got, 0)
		if err == io.EOF {
			err = nil
		}
		return got[:n], err
	}
	for name, want := range map[string][]byte{"a": data, "empty": {}} {
		if got, err := read(name, int64(len(want))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	_, err := read("b", 10)
	is(t, "reading what is missing", err, fs.ErrNotExist, "b")
	for _, size := range []int64{1, 2999, 3001, 1 << 40} {
		if size > 1<<30 {
			// Nobody allocates that; the first bytes will do.
			o, err := s.Open(store.WithSize(ctx, size), "a")
			must(t, err)
			got := make([]byte, 3000)
			if n, err := o.ReadAt(ctx, got, 0); err == nil && (!bytes.Equal(got[:n], data[:n]) || o.Info().Size == size) || err != nil && err != io.EOF && !errors.Is(err, store.ErrChanged) {
				t.Errorf("with a size of %d: %d bytes, %v", size, n, err)
			}
			must(t, o.Close())
			continue
		}
		if got, err := read("a", size); err == nil && !bytes.Equal(got, data) || err != nil && !errors.Is(err, store.ErrChanged) {
			t.Errorf("with a size of %d: %d bytes, %v", size, len(got), err)
		}
	}
}

func testList(t *testing.T, s store.Store) {
	want := []string{
		"B", "a", "a-b", "a.txt", "a0", "ab/c", "b-/x", "b/-", "b/a", "b/a.b/c", "b/aa/b/c", "b0", "c/d/e/f", "é", "éa/x",
	}
	if !slices.IsSorted(want) {
		t.Fatal("the test's names are not in order")
	}
	for i, j := range rand.New(rand.NewPCG(1, 2)).Perm(len(want)) {
		put(t, s, want[j], pattern(uint64(i), j))
	}
	create(t, s, "a1", []byte("x"))
	create(t, s, "b/a1", []byte("x"))
	create(t, s, "z/a", []byte("x"))
	i := 0
	for info, err := range s.List(t.Context(), "") {
		must(t, err)
		if i == len(want) || info.Name != want[i] || info.Size != int64(i) {
			t.Fatalf("object %d is %+v; want %q", i, info, want[min(i, len(want)-1)])
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d objects; want %d", i, len(want))
	}
}

func testListPrefix(t *testing.T, s store.Store) {
	all := []string{"a", "ab/c", "ab/d/e", "ab/d/f", "abc", "b/c"}
	for _, name := range all {
		put(t, s, name, nil)
	}
	for _, prefix := range []string{
		"", "a", "ab", "ab/", "ab/d", "ab/d/", "ab/d/e", "ab/d/e/", "ab/x", "abc", "b", "b/c", "c", "x/y/z",
		"/", "/a", "ab//", "../", "..", ".", "./a", "ab/../", "ab/../a", "a\x00", ".tmp-", "ab/.tmp-",
	} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if got := names(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("List(%q) = %q; want %q", prefix, got, want)
		}
	}
}

// A list from a name on, and one of folders, are what one sees in all of the list.
func testListFrom(t *testing.T, s store.Store) {
	all := []string{"a!", "a-b", "a/b", "a/c/d", "a/c/e", "a0", "b/x/1", "b/x/2", "b/y", "c"}
	for _, name := range all {
		put(t, s, name, []byte(name))
	}
	for _, prefix := range []string{"", "a", "a/", "a/c/", "b", "b/x", "d", "a//", "../"} {
		for _, after := range append([]string{"", "a/", "a/c/", "a/c/zz", "b/", "b/x/", "A", "zz", "é"}, all...) {
			for _, folders := range []bool{false, true} {
				var want []string
				for _, name := range all {
					rest, ok := strings.CutPrefix(name, prefix)
					if !ok {
						continue
					}
					if first, _, more := strings.Cut(rest, "/"); more && folders {
						name = prefix + first + "/"
					}
					if name > after && !slices.Contains(want, name) {
						want = append(want, name)
					}
				}
				var got []string
				for info, err := range store.ListFrom(t.Context(), s, prefix, after, folders) {
					must(t, err)
					got = append(got, info.Name)
					if folder := strings.HasSuffix(info.Name, "/"); folder && info != (store.Info{Name: info.Name}) || !folder && info.Size != int64(len(info.Name)) {
						t.Errorf("%+v", info)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("ListFrom(%q, after %q, folders %v) = %q; want %q", prefix, after, folders, got, want)
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range store.ListFrom(ctx, s, "", "a", true) {
		is(t, "ListFrom", err, context.Canceled, "")
	}
}

// Stat, a list and an open object say the same; and where there are versions, another
// content has another one.
func testStat(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, err := store.Stat(ctx, s, "d/a")
	is(t, "Stat", err, fs.ErrNotExist, "d/a")
	_, err = store.Stat(ctx, s, "../a")
	is(t, "Stat", err, store.ErrName, "../a")
	version := ""
	for _, data := range [][]byte{[]byte("one"), []byte("two"), pattern(1, 6<<20)} {
		put(t, s, "d/a", data)
		stat, err := store.Stat(ctx, s, "d/a")
		must(t, err)
		if stat.Name != "d/a" || stat.Size != int64(len(data)) || stat.Version == version && version != "" {
			t.Errorf("Stat = %+v, after version %s", stat, version)
		}
		version = stat.Version
		for listed, err := range s.List(ctx, "d/") {
			must(t, err)
			if listed.Version != version || listed.Size != stat.Size || !listed.ModTime.Truncate(time.Second).Equal(stat.ModTime.Truncate(time.Second)) {
				t.Errorf("List says %+v, Stat %+v", listed, stat)
			}
		}
		for _, ctx := range []context.Context{ctx, store.WithSize(ctx, int64(len(data)))} {
			o, err := s.Open(ctx, "d/a")
			must(t, err)
			if n, err := o.ReadAt(ctx, make([]byte, 1), 1); n != 1 {
				t.Error(err)
			}
			if info := o.Info(); info.Version != version || info.Size != stat.Size {
				t.Errorf("an open object says %+v, Stat %+v", info, stat)
			}
			must(t, o.Close())
		}
	}
}

func testListPasses(t *testing.T, s store.Store) {
	put(t, s, "a", nil)
	put(t, s, "b/c", nil)
	list := s.List(t.Context(), "")
	for range 2 {
		for info, err := range list {
			must(t, err)
			if info.Name != "a" {
				t.Errorf("a pass begins at %q", info.Name)
			}
			break
		}
	}
	put(t, s, "b/d", nil)
	var got []string
	for info, err := range list {
		must(t, err)
		got = append(got, info.Name)
	}
	if want := []string{"a", "b/c", "b/d"}; !slices.Equal(got, want) {
		t.Errorf("a later pass yields %q; want %q", got, want)
	}

	// The store can be changed while it is listed.
	for info, err := range list {
		must(t, err)
		must(t, s.Remove(t.Context(), info.Name))
	}
	visible(t, s)
	put(t, s, "a", nil)
	put(t, s, "b", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	n := 0
	for _, err := range s.List(ctx, "") {
		if last != nil {
			t.Fatal("List goes on after an error")
		}
		last = err
		n++
		cancel()
	}
	if n != 2 || !errors.Is(last, context.Canceled) {
		t.Errorf("List cancelled after the first of two objects: %d items, the last %v", n, last)
	}
}

func testRemove(t *testing.T, s store.Store) {
	ctx := t.Context()
	put(t, s, "a/b/c", []byte("1"))
	put(t, s, "a/d", []byte("2"))
	must(t, s.Remove(ctx, "a/b/c"))
	must(t, s.Remove(ctx, "a/b/c"))
	_, err := s.Open(ctx, "a/b/c")
	is(t, "Open", err, fs.ErrNotExist, "a/b/c")
	visible(t, s, "a/d")
	// The folder is gone, so an object can take its name.
	put(t, s, "a/b", []byte("3"))
	visible(t, s, "a/b", "a/d")
	must(t, s.Remove(ctx, "a"))
	visible(t, s, "a/b", "a/d")
	must(t, s.Remove(ctx, "a/b"))
	must(t, s.Remove(ctx, "a/d"))
	visible(t, s)
	put(t, s, "a", []byte("4"))
	visible(t, s, "a")
}

func testLock(t *testing.T, s store.Store) {
	ctx := t.Context()
	const name = ".shardify/lock"
	unlock, err := s.Lock(ctx, name, "pid 17 on host ape, a rather long line")
	must(t, err)
	for range 2 {
		_, err = s.Lock(ctx, name, "the second")
		is(t, "Lock", err, store.ErrLocked, name)
		if err != nil && !strings.Contains(err.Error(), "pid 17 on host ape, a rather long line") {
			t.Errorf("%q does not quote the owner", err)
		}
	}
	other, err := s.Lock(ctx, "other/lock", "x")
	must(t, err)
	must(t, unlock())
	unlock, err = s.Lock(ctx, name, "pid 18")
	must(t, err)
	_, err = s.Lock(ctx, name, "the fourth")
	is(t, "Lock", err, store.ErrLocked, name)
	if err != nil && (!strings.Contains(err.Error(), "pid 18") || strings.Contains(err.Error(), "ape")) {
		t.Errorf("%q quotes another owner than pid 18", err)
	}
	must(t, unlock())
	must(t, unlock())
	unlock, err = s.Lock(ctx, name, "pid 19")
	must(t, err)
	must(t, unlock())
	must(t, other())
	put(t, s, "a", nil)
	if got := names(t, s, "a"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after the locks the store lists %q", got)
	}
}

func testLockContended(t *testing.T, s store.Store) {
	var holders, taken int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				unlock, err := s.Lock(t.Context(), "d/lock", fmt.Sprint("goroutine ", i))
				if errors.Is(err, store.ErrLocked) {
					continue
				}
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				mu.Lock()
				holders++
				taken++
				if holders != 1 {
					t.Errorf("%d hold the lock", holders)
				}
				mu.Unlock()
				time.Sleep(time.Microsecond)
				mu.Lock()
				holders--
				mu.Unlock()
				if err := unlock(); err != nil {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if taken == 0 {
		t.Error("nobody got the lock")
	}
}

func testSweep(t *testing.T, s store.Store) {
	ctx := t.Context()
	put(t, s, "a/kept", []byte("kept"))
	left := map[string]store.Writer{}
	for _, name := range []string{"a/x-1", "a/x-2", "a/y", "b/c/d", "a/kept"} {
		left[name] = create(t, s, name, pattern(1, 10_000))
	}
	swept := func(name string) {
		t.Helper()
		if err := left[name].Commit(ctx); err == nil {
			t.Errorf("%s: Commit succeeded after Sweep", name)
		} else {
			is(t, "Commit after Sweep", err, fs.ErrNotExist, name)
		}
		must(t, left[name].Abort())
	}
	must(t, s.Sweep(ctx, "a/x-1/"))
	must(t, s.Sweep(ctx, "x"))
	must(t, s.Sweep(ctx, "../"))
	must(t, s.Sweep(ctx, "a/x-1"))
	swept("a/x-1")
	must(t, left["a/x-2"].Commit(ctx))
	visible(t, s, "a/kept", "a/x-2")
	must(t, s.Sweep(ctx, "b"))
	swept("b/c/d")
	must(t, s.Sweep(ctx, ""))
	swept("a/y")
	swept("a/kept")
	if got := get(t, s, "a/kept"); string(got) != "kept" {
		t.Errorf("Sweep changed an object to %q", got)
	}
	visible(t, s, "a/kept", "a/x-2")
	put(t, s, "b", nil) // its folders are gone
}

func testNames(t *testing.T, s store.Store) {
	ctx := t.Context()
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/..", "a/../b", "a/./b",
		".tmp-a", "a/.tmp-b", ".tmp-a/b", "a\x00b", `a\b`, `..\a`,
	} {
		_, err := s.Open(ctx, name)
		is(t, "Open", err, store.ErrName, fmt.Sprintf("%q", name))
		is(t, "Open", err, fs.ErrInvalid, "")
		_, err = s.Create(ctx, name)
		is(t, "Create", err, store.ErrName, fmt.Sprintf("%q", name))
		is(t, "Remove", s.Remove(ctx, name), store.ErrName, fmt.Sprintf("%q", name))
		_, err = s.Lock(ctx, name, "")
		is(t, "Lock", err, store.ErrName, fmt.Sprintf("%q", name))
	}
	visible(t, s)
	legal := []string{" a", "%2E", ".a", ".tmp", "...", "..a", "a b/c'd", "a=b,c;d", "é/日本語", "~", "-a", "100%/#?&"}
	for i, name := range legal {
		put(t, s, name, pattern(uint64(i), 50))
	}
	for i, name := range legal {
		if !bytes.Equal(get(t, s, name), pattern(uint64(i), 50)) {
			t.Errorf("%q has other bytes", name)
		}
	}
	slices.Sort(legal)
	visible(t, s, legal...)
}

func testLongNames(t *testing.T, s store.Store) {
	for _, name := range []string{
		strings.Repeat("a", 255),
		"d/" + strings.Repeat("b", 250) + ".jpg",
		strings.Repeat("é", 127),
		"x" + strings.Repeat("é", 127),
		strings.Repeat(strings.Repeat("c", 100)+"/", 10) + "d",
	} {
		put(t, s, name, []byte(name))
		if string(get(t, s, name)) != name {
			t.Errorf("%q has other bytes", name)
		}
		w := create(t, s, name, []byte("x"))
		must(t, s.Sweep(t.Context(), name[:20]))
		is(t, "Commit after Sweep", w.Commit(t.Context()), fs.ErrNotExist, name)
		must(t, s.Remove(t.Context(), name))
	}
	visible(t, s)
}

func testCancelled(t *testing.T, s store.Store) {
	put(t, s, "a", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Open(ctx, "a")
	is(t, "Open", err, context.Canceled, "a")
	_, err = s.Create(ctx, "b")
	is(t, "Create", err, context.Canceled, "b")
	is(t, "Remove", s.Remove(ctx, "a"), context.Canceled, "a")
	_, err = s.Lock(ctx, "c", "")
	is(t, "Lock", err, context.Canceled, "c")
	is(t, "Sweep", s.Sweep(ctx, ""), context.Canceled, "")
	n := 0
	for _, err := range s.List(ctx, "") {
		is(t, "List", err, context.Canceled, "")
		n++
	}
	if n != 1 {
		t.Errorf("List under a cancelled context yields %d items, want the error only", n)
	}
	visible(t, s, "a")
}

func testConcurrentNames(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				name := fmt.Sprintf("d%d/%d-%d", j%3, i, j)
				data := pattern(uint64(100*i+j), 5000+i)
				if err := store.WriteAll(t.Context(), s, name, data); err != nil {
					t.Error(err)
					return
				}
				got, err := store.ReadAll(t.Context(), s, name, 1<<20)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: other bytes, %v", name, err)
				}
				for _, err := range s.List(t.Context(), "d1") {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := names(t, s, ""); len(got) != 80 {
		t.Errorf("%d objects; want 80", len(got))
	}
}

// Whoever reads a name that others write sees one whole version of it.
func testConcurrentName(t *testing.T, s store.Store) {
	const versions, size = 4, 50_000
	version := func(v int) []byte { return bytes.Repeat([]byte{byte(v)}, size+v) }
	put(t, s, "d/a", version(0))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers, readers sync.WaitGroup
	for v := range versions {
		writers.Go(func() {
			for range 10 {
				if err := store.WriteAll(t.Context(), s, "d/a", version(v)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				got, err := store.ReadAll(t.Context(), s, "d/a", 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if v := int(got[0]); v >= versions || !bytes.Equal(got, version(v)) {
					t.Errorf("%d bytes that begin with %d are no version", len(got), v)
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
	visible(t, s, "d/a")
}

// A folder that is emptied, and so removed, while others write into it.
func testConcurrentFolder(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("d/e/%d", i)
			for range 20 {
				if err := store.WriteAll(t.Context(), s, name, []byte("x")); err != nil {
					t.Error(err)
				}
				if err := s.Remove(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	visible(t, s)
}

func testConcurrentReads(t *testing.T, s store.Store) {
	data := pattern(1, 1<<20)
	put(t, s, "a", data)
	o, err := s.Open(t.Context(), "a")
	must(t, err)
	defer o.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			p := make([]byte, 10_000)
			for range 200 {
				off := r.IntN(len(data))
				n, err := o.ReadAt(t.Context(), p, int64(off))
				if want := min(len(p), len(data)-off); n != want || err != nil && err != io.EOF || !bytes.Equal(p[:n], data[off:off+n]) {
					t.Errorf("ReadAt at %d = %d, %v", off, n, err)
				}
			}
		})
	}
	wg.Wait()
}
