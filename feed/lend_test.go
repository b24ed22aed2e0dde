package feed

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/imaging/transform"
	"shardify/reader"
)

// Nothing more than the credit is sent before something comes back; then the client is
// told what it holds, and each release that makes room lets another batch come.
func TestCredit(t *testing.T) {
	dir := data(t)
	for _, network := range []string{"unix", "tcp"} {
		s := serve(t, Config{})
		x := talk(t, s, network)
		x.ask(&request{Op: "hello", Protocol: 1, Client: "raw", Token: ""}, nil)
		var opened openOK
		x.ask(&request{Op: "open", Data: text(dir), Config: text(reader.Config{BatchSize: 4, Transform: crop})}, &opened)
		var one startOK
		x.ask(&request{Op: "start", Reader: opened.Reader, Credit: 1}, &one)
		// One batch comes, however little the credit is.
		first := x.event("batch")
		if first["number"] != 0.0 {
			t.Errorf("the first batch is %v", first["number"])
		}
		held := x.event("held")
		if held["batches"] != 1.0 || held["released"] != 0.0 || held["bytes"] != first["bytes"] {
			t.Errorf("held: %v", held)
		}
		x.send(`{"op":"release","pass":2,"batches":[0]}`)
		if second := x.event("batch"); second["number"] != 1.0 {
			t.Errorf("the second batch is %v", second["number"])
		}
		if held := x.event("held"); held["released"] != 1.0 {
			t.Errorf("held: %v", held)
		}
		x.ask(&request{Op: "stop", Pass: one.Pass}, nil)
		// As many as there is room for come.
		size := int64(first["bytes"].(float64))
		var three startOK
		x.ask(&request{Op: "start", Reader: opened.Reader, Credit: 3*size + size/2}, &three)
		for i := range 3 {
			if b := x.event("batch"); b["number"] != float64(i) || b["pass"] != float64(three.Pass) {
				t.Errorf("batch %v of pass %v, want %d of %d", b["number"], b["pass"], i, three.Pass)
			}
		}
		if held := x.event("held"); held["batches"] != 3.0 {
			t.Errorf("held: %v", held)
		}
		// Nothing comes of a pass that has been stopped, and its batches may come back.
		x.ask(&request{Op: "stop", Pass: three.Pass}, nil)
		x.send(`{"op":"release","pass":3,"batches":[2,0,1]}`)
		x.ask(&request{Op: "close", Reader: opened.Reader}, nil)
		x.end()
	}
}

// More credit than the pass can spare is not granted.
func TestCreditBound(t *testing.T) {
	dir := data(t)
	c := attach(t, serve(t, Config{}), "unix")
	r := open(t, c, dir, reader.Config{BatchSize: 4, Memory: 24 << 20, Workers: 2, Transform: transform.List{transform.CenterCrop{Size: transform.Size{224}}}})
	r.SetCredit(1 << 40)
	batches := make(chan *Batch, r.Len())
	done := make(chan int)
	go func() {
		n := 0
		for b, err := range r.Epoch(t.Context(), 0) {
			if err != nil {
				t.Error(err)
				break
			}
			batches <- b
			n++
		}
		done <- n
	}()
	// The pass stops where all is held, and goes on when it is released.
	n, total := 0, 0
	var held []*Batch
	for n == 0 {
		select {
		case b := <-batches:
			held = append(held, b)
			total++
		case n = <-done:
		case <-time.After(200 * time.Millisecond):
			for _, b := range held {
				b.Release()
			}
			held = nil
		}
	}
	for len(batches) > 0 {
		held = append(held, <-batches)
	}
	for _, b := range held {
		b.Release()
	}
	if int64(n) != r.Len() {
		t.Errorf("%d batches, want %d", n, r.Len())
	}
}

// A batch that is dropped without Release ends the pass, where it would wait for ever.
func TestDropped(t *testing.T) {
	dir := data(t)
	c := attach(t, serve(t, Config{}), "unix")
	r := open(t, c, dir, reader.Config{BatchSize: 4, Transform: crop})
	r.SetCredit(1)
	var last error
	for _, err := range r.Epoch(t.Context(), 0) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "dropped without Release") {
		t.Errorf("the pass ends with %v", last)
	}
}

// A client may go while many passes of it end.
func TestLeavingPasses(t *testing.T) {
	dir := data(t)
	s := serve(t, Config{})
	for range 5 {
		x := greeted(t, s, "unix")
		var opened openOK
		x.ask(&request{Op: "open", Data: text(dir), Config: text(reader.Config{BatchSize: 4, Transform: crop, Memory: 16 << 20, Workers: 1})}, &opened)
		for range 8 {
			x.ask(&request{Op: "start", Reader: opened.Reader, Credit: 1}, nil)
		}
		x.end()
	}
}

// A server lends what it has, and who asks for more is told who has it. What lies between
// two epochs of a reader is taken from it for others.
func TestMemory(t *testing.T) {
	dir := data(t)
	s := serve(t, Config{Memory: 64 << 20})
	config := reader.Config{BatchSize: 4, Transform: crop, Memory: 24 << 20, Workers: 2}
	begin := func(r *Reader) (*Batch, func(), error) {
		next, stop := pull(t.Context(), r)
		b, err := next()
		return b, stop, err
	}
	one, two, three := open(t, attach(t, s, "unix"), dir, config), open(t, attach(t, s, "unix"), dir, config), open(t, attach(t, s, "tcp"), dir, config)
	for _, r := range []*Reader{one, two, three} {
		r.SetCredit(1) // so that the passes do not end by themselves
	}
	b1, stop1, err := begin(one)
	if err != nil {
		t.Fatal(err)
	}
	b2, stop2, err := begin(two)
	if err != nil {
		t.Fatal(err)
	}
	_, stop3, err := begin(three)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeMemory || !strings.Contains(e.Message, "test has 25 MB for 1 passes of "+dir) || !strings.Contains(e.Message, "only 17 MB are left") {
		t.Errorf("the third pass: %v", err)
	}
	stop3()
	b1.Release()
	stop1()
	b3, stop3, err := begin(three)
	if err != nil {
		t.Errorf("after the first pass has ended: %v", err)
	} else {
		b3.Release()
	}
	stop3()
	b2.Release()
	stop2()
	// By default a reader takes no more than there is.
	small := serve(t, Config{Memory: 40 << 20})
	r := open(t, attach(t, small, "unix"), dir, reader.Config{BatchSize: 4, Transform: crop})
	if got := r.Config().Memory; got != 40<<20 {
		t.Errorf("memory is %d", got)
	}
	if n := len(all(t, r.Epoch(t.Context(), 0))); n != 20 {
		t.Errorf("%d batches, want 20", n)
	}
}

// pull returns a function that returns the next batch of an epoch.
func pull(ctx context.Context, r *Reader) (next func() (*Batch, error), stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		b   *Batch
		err error
	}
	results, asks, ended := make(chan result), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for b, err := range r.Epoch(ctx, 0) {
			select {
			case <-asks:
				results <- result{b, err}
			case <-ctx.Done():
				if b != nil {
					b.Release()
				}
				return
			}
		}
	}()
	return func() (*Batch, error) {
		asks <- struct{}{}
		x := <-results
		return x.b, x.err
	}, sync.OnceFunc(func() { cancel(); <-ended })
}

// Any samples can be read, by several clients at once, and are those of the epoch.
func TestRead(t *testing.T) {
	dir := data(t)
	config := reader.Config{BatchSize: 8, Transform: crop, Fields: []string{"cls"}}
	local, err := reader.Open(t.Context(), dir, config)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	s := serve(t, Config{})
	for _, network := range []string{"unix", "tcp"} {
		r := open(t, attach(t, s, network), dir, config)
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				samples := []int64{int64(k), 79, int64(7 * k), int64(k)}
				b, err := r.Read(t.Context(), samples, k)
				if err != nil {
					t.Error(err)
					return
				}
				defer b.Release()
				want, err := local.Read(t.Context(), samples, k)
				if err != nil {
					t.Error(err)
					return
				}
				defer want.Release()
				got, exp := copyOf(b), copyOf(want)
				got.number, exp.number = 0, 0
				if !reflect.DeepEqual(got, exp) {
					t.Errorf("%v:\n%+v\nwant\n%+v", samples, got, exp)
				}
			})
		}
		wg.Wait()
		if _, err := r.Read(t.Context(), []int64{80}, 0); err == nil || !strings.Contains(err.Error(), "sample 80") {
			t.Errorf("sample 80 of 80: %v", err)
		}
		held, err := r.Read(t.Context(), []int64{5}, 0)
		if err != nil {
			t.Fatal(err)
		}
		before := copyOf(held)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if after := copyOf(held); !reflect.DeepEqual(before, after) {
			t.Error("a batch that is held has changed")
		}
		held.Release()
	}
}
