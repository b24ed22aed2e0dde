package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shardify/store"
	"shardify/store/file"
	"shardify/store/mem"
	"shardify/store/storetest"
)

func TestStore(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store {
			return New(file.New(filepath.Join(t.TempDir(), "not", "made")), Config{})
		})
	})
	t.Run("mem", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) store.Store { return New(mem.New(), Config{}) })
	})
}

// work copies in/a and in/b, in two writes each, to out/, under a lock, and
// removes them; it goes on where an earlier run has stopped.
func work(ctx context.Context, s store.Store) (err error) {
	unlock, err := s.Lock(ctx, "lock", "work")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := s.Sweep(ctx, "out/"); err != nil {
		return err
	}
	var names []string
	for info, err := range s.List(ctx, "in/") {
		if err != nil {
			return err
		}
		names = append(names, info.Name)
	}
	for _, name := range names {
		data, err := store.ReadAll(ctx, s, name, 1<<20)
		if err != nil {
			return err
		}
		if err := write(ctx, s, "out/"+strings.TrimPrefix(name, "in/"), data); err != nil {
			return err
		}
		if err := s.Remove(ctx, name); err != nil {
			return err
		}
	}
	w, err := s.Create(ctx, "out/never")
	if err != nil {
		return err
	}
	return w.Abort()
}

func write(ctx context.Context, s store.Store, name string, data []byte) error {
	w, err := s.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	for half := range slices.Chunk(data, (len(data)+1)/2) {
		if _, err := w.Write(half); err != nil {
			return err
		}
	}
	return w.Commit(ctx)
}

var inputs = map[string][]byte{"in/a": bytes.Repeat([]byte("a"), 1000), "in/b": bytes.Repeat([]byte("b"), 2000)}

// stores are the inner stores, with the inputs of work in them.
var stores = map[string]func(t *testing.T) store.Store{
	"mem": func(t *testing.T) store.Store { return filled(t, mem.New()) },
	"file": func(t *testing.T) store.Store {
		return filled(t, file.New(t.TempDir()))
	},
}

func filled(t *testing.T, s store.Store) store.Store {
	for name, data := range inputs {
		if err := store.WriteAll(t.Context(), s, name, data); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// content is all that is visible in s.
func content(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := store.ReadAll(t.Context(), s, info.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = string(data)
	}
	return all
}

// whole fails the test unless s holds every input, here or there, and no part of
// one.
func whole(t *testing.T, s store.Store, when string) {
	t.Helper()
	all := content(t, s)
	for in, data := range inputs {
		out := "out/" + strings.TrimPrefix(in, "in/")
		if _, ok := all[in]; !ok {
			if _, ok := all[out]; !ok {
				t.Errorf("%s: %s is lost", when, in)
			}
		}
		for _, name := range []string{in, out} {
			if got, ok := all[name]; ok && got != string(data) {
				t.Errorf("%s: %s has %d bytes of %d", when, name, len(got), len(data))
			}
			delete(all, name)
		}
	}
	if len(all) != 0 {
		t.Errorf("%s: there are also %q", when, all)
	}
}

var finished = map[string]string{"out/a": string(inputs["in/a"]), "out/b": string(inputs["in/b"])}

func temps(t *testing.T, root string) (n int) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), store.TempPrefix) {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOps(t *testing.T) {
	var got []string
	s := New(stores["mem"](t), Config{Before: func(op Op) error {
		got = append(got, fmt.Sprintf("%d %s %s", op.N, op.Kind, op.Name))
		return nil
	}})
	if err := work(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 lock lock", "2 sweep out/", "3 list in/",
		"4 open in/a", "5 readat in/a", "6 create out/a", "7 write out/a", "8 write out/a", "9 commit out/a", "10 remove in/a",
		"11 open in/b", "12 readat in/b", "13 create out/b", "14 write out/b", "15 write out/b", "16 commit out/b", "17 remove in/b",
		"18 create out/never", "19 abort out/never", "20 unlock lock",
	}
	if !slices.Equal(got, want) {
		t.Errorf("operations\n%q; want\n%q", got, want)
	}
	if s.Ops() != 20 || s.Crashed() {
		t.Errorf("Ops() = %d, Crashed() = %v", s.Ops(), s.Crashed())
	}
}

func TestCrashEverywhere(t *testing.T) {
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) {
			crashes, left := 0, 0
			for n := int64(1); ; n++ {
				inner := open(t)
				s := New(inner, Config{CrashAt: n})
				err := work(t.Context(), s)
				if !s.Crashed() {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				when := fmt.Sprintf("crashed at %d", n)
				crashes++
				if !errors.Is(err, ErrCrashed) {
					t.Fatalf("%s: %v", when, err)
				}
				whole(t, inner, when)
				if kind == "file" {
					left += temps(t, inner.URL())
				}
				if err := work(t.Context(), inner); err != nil {
					t.Fatalf("%s, then resumed: %v", when, err)
				}
				if got := content(t, inner); !reflect.DeepEqual(got, finished) {
					t.Errorf("%s, then resumed: %d objects", when, len(got))
				}
				if kind == "file" && temps(t, inner.URL()) != 0 {
					t.Errorf("%s, then resumed: temporary files are left", when)
				}
			}
			if crashes != 20 {
				t.Errorf("%d crashes; want 20", crashes)
			}
			// Struck at either write, at Commit of either object, and at Abort.
			if kind == "file" && left != 7 {
				t.Errorf("the crashes left %d temporary files; want 7", left)
			}
		})
	}
}

func TestCrashIsFinal(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	inner := filled(t, file.New(dir))
	s := New(inner, Config{Before: func(op Op) error {
		if op.Kind == Write && op.N > 6 {
			return fmt.Errorf("the power is gone: %w", ErrCrashed)
		}
		return nil
	}})
	unlock, err := s.Lock(ctx, "lock", "x")
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Open(ctx, "in/a")
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Create(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Write(make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	second, err := s.Create(ctx, "y")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := second.Write(make([]byte, 100)); n != 100 || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
	n, err := second.Write(make([]byte, 100))
	if n != 0 || !errors.Is(err, ErrCrashed) {
		t.Fatalf("Write = %d, %v", n, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, store.TempPrefix+"y-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("temporary files %q, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Size() != 150 {
		t.Errorf("the crash left %d bytes, %v; want 150", info.Size(), err)
	}

	dead := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrCrashed) {
			t.Errorf("%s after the crash: %v", what, err)
		}
	}
	before := s.Ops()
	dead("Abort", first.Abort())
	dead("Commit", second.Commit(ctx))
	if err := second.Commit(ctx); err == nil {
		t.Error("a second Commit after the crash succeeded")
	}
	if err := first.Commit(ctx); err == nil {
		t.Error("Commit after Abort after the crash succeeded")
	}
	if err := second.Abort(); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
	_, err = first.Write([]byte("x"))
	dead("Write", err)
	_, err = o.ReadAt(ctx, make([]byte, 1), 0)
	dead("ReadAt", err)
	_, err = s.Open(ctx, "in/a")
	dead("Open", err)
	_, err = s.Create(ctx, "z")
	dead("Create", err)
	dead("Remove", s.Remove(ctx, "in/a"))
	dead("Sweep", s.Sweep(ctx, ""))
	_, err = s.Lock(ctx, "other", "")
	dead("Lock", err)
	dead("unlock", unlock())
	for _, err := range s.List(ctx, "") {
		dead("List", err)
	}
	if err := o.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if s.Ops() != before {
		t.Errorf("%d operations were counted after the crash", s.Ops()-before)
	}
	if n := temps(t, dir); n != 2 {
		t.Errorf("%d temporary files are left; want 2", n)
	}
	unlock, err = inner.Lock(ctx, "lock", "the next")
	if err != nil {
		t.Fatalf("the crash did not free the lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	whole(t, inner, "after the crash")
}

func TestCrashInList(t *testing.T) {
	s := New(stores["mem"](t), Config{})
	n := 0
	var last error
	for _, err := range s.List(t.Context(), "") {
		n++
		last = err
		s.Crash()
	}
	if n != 2 || !errors.Is(last, ErrCrashed) {
		t.Errorf("%d items, then %v", n, last)
	}
}

// Once anybody has been told of the crash, the inner store stands still.
func TestCrashStopsAll(t *testing.T) {
	for range 20 {
		inner := mem.New()
		s := New(inner, Config{CrashAt: 50})
		told := make(chan map[string]string, 1)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := 0; ; j++ {
					err := store.WriteAll(t.Context(), s, fmt.Sprintf("%d/%d", i, j), []byte("x"))
					if err == nil {
						continue
					}
					if !errors.Is(err, ErrCrashed) {
						t.Error(err)
					}
					select {
					case told <- content(t, inner):
					default:
					}
					return
				}
			})
		}
		wg.Wait()
		if before, after := <-told, content(t, inner); !reflect.DeepEqual(before, after) {
			t.Errorf("%d objects when the crash was told, %d later", len(before), len(after))
		}
	}
}

func TestFailEverywhere(t *testing.T) {
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) {
			for n := int64(1); ; n++ {
				inner := open(t)
				var hit Op
				s := New(inner, Config{FailAt: n, Before: func(op Op) error {
					if op.N == n {
						hit = op
					}
					return nil
				}})
				err := work(t.Context(), s)
				if hit.N == 0 {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				when := fmt.Sprintf("failed at %d, %s %s", n, hit.Kind, hit.Name)
				if !errors.Is(err, ErrInjected) || !strings.Contains(err.Error(), string(hit.Kind)) || !strings.Contains(err.Error(), hit.Name) {
					t.Errorf("%s: %v", when, err)
				}
				if hit.Kind == Unlock {
					got := content(t, inner)
					delete(got, "lock") // store/file's lock file
					if !reflect.DeepEqual(got, finished) {
						t.Errorf("%s: %d objects", when, len(got))
					}
					if _, err := inner.Lock(t.Context(), "lock", ""); !errors.Is(err, store.ErrLocked) {
						t.Errorf("%s: the lock is free: %v", when, err)
					}
					continue
				}
				whole(t, inner, when)
				// Only what failed to clean up has left something.
				if kind == "file" {
					want := 0
					if hit.Kind == Abort {
						want = 1
					}
					if n := temps(t, inner.URL()); n != want {
						t.Errorf("%s: %d temporary files are left; want %d", when, n, want)
					}
				}
				if err := work(t.Context(), s); err != nil {
					t.Fatalf("%s, then again: %v", when, err)
				}
				if got := content(t, inner); !reflect.DeepEqual(got, finished) {
					t.Errorf("%s, then again: %d objects", when, len(got))
				}
			}
		})
	}
}

// A Write that failed is not papered over by Commit.
func TestWriteThenCommit(t *testing.T) {
	inner := mem.New()
	s := New(inner, Config{Kinds: []Kind{Write}, FailAt: 2})
	w, err := s.Create(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := w.Write([]byte("x")); (err == nil) != (i == 0) {
			t.Errorf("Write %d: %v", i, err)
		}
	}
	if err := w.Commit(t.Context()); !errors.Is(err, ErrInjected) {
		t.Errorf("Commit: %v", err)
	}
	if got := content(t, inner); len(got) != 0 {
		t.Errorf("visible: %q", got)
	}
}

func TestBefore(t *testing.T) {
	inner := stores["mem"](t)
	s := New(inner, Config{Kinds: []Kind{Commit, Remove}, Before: func(op Op) error {
		if op.Kind == Commit && op.Name == "out/b" {
			return fmt.Errorf("%w: says the test", store.ErrNoSpace)
		}
		return nil
	}})
	err := work(t.Context(), s)
	if !errors.Is(err, store.ErrNoSpace) || errors.Is(err, ErrInjected) || !strings.Contains(err.Error(), "out/b") {
		t.Errorf("work: %v", err)
	}
	if s.Ops() != 3 {
		t.Errorf("%d operations were counted; want commit, remove, commit", s.Ops())
	}
	if got := content(t, inner); got["out/a"] == "" || got["out/b"] != "" {
		t.Errorf("visible: %d objects", len(got))
	}
}

func TestErrorRate(t *testing.T) {
	failures := func(seed uint64) (failed []int) {
		s := New(mem.New(), Config{ErrorRate: 0.1, Seed: seed})
		for i := range 5000 {
			if err := s.Remove(t.Context(), "a"); errors.Is(err, ErrInjected) {
				failed = append(failed, i)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return failed
	}
	one := failures(1)
	// 500 ± 21 are expected; five deviations are allowed.
	if len(one) < 395 || len(one) > 605 {
		t.Errorf("%d of 5000 failed at a rate of 0.1", len(one))
	}
	if again := failures(1); !slices.Equal(one, again) {
		t.Error("the same seed fails other operations")
	}
	other := failures(2)
	both := 0
	for _, i := range other {
		if _, ok := slices.BinarySearch(one, i); ok {
			both++
		}
	}
	if both > len(other)/3 {
		t.Errorf("%d of %d failures are the same under another seed", both, len(other))
	}
}

func TestShortReads(t *testing.T) {
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) {
			s := New(open(t), Config{ShortReadRate: 0.7, Seed: 3})
			o, err := s.Open(t.Context(), "in/b")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			got := make([]byte, 2000)
			short, off := 0, 0
			for off < len(got) {
				n, err := o.ReadAt(t.Context(), got[off:], int64(off))
				switch {
				case err == nil && n == len(got)-off:
				case errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(err, ErrInjected) && n < len(got)-off:
					short++
				default:
					t.Fatalf("ReadAt = %d, %v", n, err)
				}
				off += n
			}
			if !bytes.Equal(got, inputs["in/b"]) {
				t.Error("other bytes")
			}
			if short == 0 {
				t.Error("no read was short")
			}
			if n, err := o.ReadAt(t.Context(), nil, 0); n != 0 || err != nil {
				t.Errorf("ReadAt of nothing = %d, %v", n, err)
			}
		})
	}
	s := New(stores["mem"](t), Config{ShortReadRate: 1, Kinds: []Kind{Open}})
	if _, err := store.ReadAll(t.Context(), s, "in/a", 1<<20); err != nil {
		t.Errorf("a kind that is not to fail does: %v", err)
	}
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(filled(t, mem.New()), Config{StallRate: 1, Stall: time.Second, Kinds: []Kind{Open, Write}})
		took := func(f func()) time.Duration {
			start := time.Now()
			f()
			return time.Since(start)
		}
		if d := took(func() { _, _ = s.Open(t.Context(), "in/a") }); d != time.Second {
			t.Errorf("Open took %v", d)
		}
		if d := took(func() { _ = s.Remove(t.Context(), "in/a") }); d != 0 {
			t.Errorf("Remove took %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		w, err := s.Create(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		d := took(func() { _, err = w.Write([]byte("x")) })
		if d != 300*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Write took %v: %v", d, err)
		}
	})
}

func TestConfig(t *testing.T) {
	c := Config{
		Kinds: []Kind{Open, Sweep}, CrashAt: 1, FailAt: 2, ErrorRate: 0.25, ShortReadRate: 0.5, StallRate: 1,
		Stall: time.Second, Seed: 7,
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("%s comes back as %+v, %v", text, back, err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if text, err := json.Marshal(Config{}); err != nil || string(text) != "{}" {
		t.Errorf("the zero Config is %s, %v", text, err)
	}
	nan := 0.0
	bad := Config{Kinds: []Kind{"chmod"}, CrashAt: -1, FailAt: -1, ErrorRate: 1.1, ShortReadRate: -1, StallRate: nan / nan, Stall: -1}
	err = bad.Validate()
	if err == nil {
		t.Fatal("Validate found nothing")
	}
	for _, field := range []string{"kinds", "crash_at", "fail_at", "error_rate", "short_read_rate", "stall_rate", "stall:"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("Validate does not report %s: %v", field, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New took a Config that is not valid")
		}
	}()
	New(mem.New(), bad)
}
