package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/reader"
	"shardify/store"
	"shardify/store/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// data writes a data set of 4 × 20 samples.
func data(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	datasettest.Write(t, file.New(dir), datasettest.Options{Shards: 4, Samples: 20})
	return dir
}

func serve(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		if len(s.sessions)+len(s.bases)+len(s.memory.loans) > 0 || s.memory.used != 0 {
			t.Errorf("the server has %d sessions, %d data sets and %d bytes left", len(s.sessions), len(s.bases), s.memory.used)
		}
	})
	return s
}

// pair is two ends of a connection: of a Unix socket, or else of TCP.
func pair(t testing.TB, network string) (server, client net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

// attach is a client of a server.
func attach(t testing.TB, s *Server, network string) *Client {
	t.Helper()
	there, here := pair(t, network)
	s.wg.Go(func() { s.ServeConn(there) })
	c, err := NewClient(context.Background(), here, DialConfig{Name: "test", Token: s.config.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func open(t testing.TB, c *Client, dir string, config reader.Config) *Reader {
	t.Helper()
	r, err := c.Open(t.Context(), dir, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// crop is the transform of most tests.
var crop = transform.List{transform.RandomResizedCrop{Size: transform.Size{24}}}

// said is what a batch says, on either side.
type said interface {
	Epoch() int
	Number() int64
	Bucket() int
	Len() int
	Tensors() []reader.Tensor
	Samples() []int64
	Keys() []string
	Fields() []string
	Field(i int, name string) ([]byte, bool)
	State() reader.State
	Release()
}

// copied is a copy of it.
type copied struct {
	epoch, bucket, n int
	number           int64
	tensors          []reader.Tensor
	samples          []int64
	keys, fields     []string
	bad              []Sample
	state            reader.State
}

func copyOf(b said) copied {
	c := copied{
		epoch: b.Epoch(), bucket: b.Bucket(), n: b.Len(), number: b.Number(),
		samples: append([]int64(nil), b.Samples()...), keys: append([]string(nil), b.Keys()...), state: b.State(),
	}
	for _, x := range b.Tensors() {
		x.Data, x.Shape = bytes.Clone(x.Data), slices.Clone(x.Shape)
		if len(x.Data) == 0 {
			x.Data = nil
		}
		c.tensors = append(c.tensors, x)
	}
	for i := range b.Len() {
		for _, name := range b.Fields() {
			field, ok := b.Field(i, name)
			c.fields = append(c.fields, fmt.Sprintf("%d %s %v %x", i, name, ok, field))
		}
	}
	switch b := b.(type) {
	case *reader.Batch:
		for _, e := range b.Bad() {
			c.bad = append(c.bad, *sampleOf(e))
		}
	case *Batch:
		for _, e := range b.Bad() {
			c.bad = append(c.bad, *e)
		}
	}
	return c
}

// all copies the batches of a pass.
func all[B said](t testing.TB, batches iter.Seq2[B, error]) (list []copied) {
	t.Helper()
	for b, err := range batches {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, copyOf(b))
		b.Release()
	}
	return list
}

func same(t testing.TB, got, want []copied) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d batches, want %d", len(got), len(want))
		return
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("batch %d is another one:\n%.300s\n%.300s", i, fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]))
		}
	}
}

// configs are those of TestBatches.
func configs() map[string]reader.Config {
	return map[string]reader.Config{
		"default":    {},
		"order":      {BatchSize: 7, Seed: 5, Ends: reader.EndsExact, Transform: crop, World: 3, Rank: 1},
		"fields":     {BatchSize: 8, Transform: crop, DType: reader.DTypeFloat16, Layout: reader.LayoutNHWC, Fields: []string{"cls", "seg.png", "jpg"}},
		"none":       {BatchSize: 8, Decode: reader.DecodeNone},
		"tensors":    {BatchSize: 8, Transform: crop, Tensors: []reader.TensorSpec{{Field: "cls"}, {Field: "cls", Name: "text", Kind: reader.KindText, Collate: reader.CollateRagged}}},
		"skip":       {BatchSize: 8, Transform: crop, OnBad: reader.OnBadSkip, Fields: []string{"cls"}},
		"substitute": {BatchSize: 8, Transform: crop, OnBad: reader.OnBadSubstitute, Fields: []string{"cls", "jpg", "seg.png"}},
		"empty":      {BatchSize: 1, Transform: crop, OnBad: reader.OnBadSkip, Fields: []string{"cls"}},
	}
}

// The batches are those of the reader, to the last byte: over either way, of any
// configuration, with damaged samples, and from a state on.
func TestBatches(t *testing.T) {
	dir := data(t)
	damage(t, dir, 3, 17, 44)
	for _, network := range []string{"unix", "tcp"} {
		s := serve(t, Config{})
		for name, config := range configs() {
			t.Run(network+" "+name, func(t *testing.T) {
				if config.OnBad == "" {
					config.OnBad, config.SkipChecksums = reader.OnBadSkip, true
				}
				local, err := reader.Open(t.Context(), dir, config)
				if err != nil {
					t.Fatal(err)
				}
				defer local.Close()
				r := open(t, attach(t, s, network), dir, config)
				got, want := r.Config(), local.Config()
				got.Memory, want.Memory = 0, 0 // there are tables in the slabs
				if got, want := string(text(got)), string(text(want)); got != want {
					t.Errorf("config: %s\nwant %s", got, want)
				}
				if got, want := r.Tensors(), local.Tensors(); !reflect.DeepEqual(got, want) {
					t.Errorf("tensors: %v, want %v", got, want)
				}
				if r.Len() != int64(local.Len()) || r.Samples() != local.Samples() {
					t.Errorf("%d batches of %d samples, want %d of %d", r.Len(), r.Samples(), local.Len(), local.Samples())
				}
				for epoch := range 2 {
					same(t, all(t, r.Epoch(t.Context(), epoch)), all(t, local.Epoch(t.Context(), epoch)))
				}
				state, err := r.State(t.Context(), 1, 1)
				if err != nil {
					t.Fatal(err)
				}
				if want, err := local.State(1, 1); err != nil || !reflect.DeepEqual(state, want) {
					t.Errorf("state: %+v, %v, want %+v", state, err, want)
				}
				same(t, all(t, r.Resume(t.Context(), state)), all(t, local.Epochs(t.Context(), state, state.Epoch+1)))
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// damage flips a bit in some samples' images.
func damage(t testing.TB, dir string, samples ...int64) {
	t.Helper()
	st := file.New(dir)
	r, err := reader.Open(t.Context(), dir, reader.Config{BatchSize: 1, Decode: reader.DecodeNone})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range b.Samples() {
			if !slices.Contains(samples, n) {
				continue
			}
			image, _ := b.Field(i, "jpg")
			for k := range 4 {
				name := fmt.Sprintf("train-%06d.tar", k)
				whole, err := store.ReadAll(t.Context(), st, name, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				if at := bytes.Index(whole, image); at >= 0 {
					whole[at+len(image)/2] ^= 0x40
					if err := os.WriteFile(filepath.Join(dir, name), whole, 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		b.Release()
	}
}

// Shards without an index come as they come from the reader, and their length as it is
// known.
func TestStream(t *testing.T) {
	dir := data(t)
	config := reader.Config{BatchSize: 8, Transform: crop, Fields: []string{"cls"}, Window: 20}
	names := []string{filepath.Join(dir, "*.tar")}
	local, err := reader.OpenStream(t.Context(), names, config)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, network := range []string{"unix", "tcp"} {
		r, err := attach(t, serve(t, Config{}), network).OpenStream(t.Context(), names, config)
		if err != nil {
			t.Fatal(err)
		}
		if r.Len() != -1 || r.Samples() != -1 {
			t.Errorf("%d batches of %d samples; nobody can know", r.Len(), r.Samples())
		}
		got, want := all(t, r.Epoch(t.Context(), 0)), all(t, local.Epoch(t.Context(), 0))
		same(t, got, want)
		same(t, all(t, r.Resume(t.Context(), want[3].state)), want[4:])
		if _, err := r.Manifest(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the manifest of a stream: %v", err)
		}
	}
}

// What a reader knows besides.
func TestFacts(t *testing.T) {
	dir := data(t)
	config := reader.Config{BatchSize: 7, World: 2, Rank: 1, Transform: crop}
	local, err := reader.Open(t.Context(), dir, config)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	r := open(t, attach(t, serve(t, Config{}), "unix"), dir, config)
	m, err := r.Manifest(t.Context())
	if err != nil || !reflect.DeepEqual(m, local.Manifest()) {
		t.Errorf("manifest: %+v, %v", m, err)
	}
	if got, want := r.Classes(), local.Manifest().Classes; !slices.Equal(got, want) {
		t.Errorf("classes: %q, want %q", got, want)
	}
	plan, err := local.Plan(3)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := r.Plan(t.Context(), 3, 1, 3)
	if want := [][]int64{plan.Batch(nil, 1, 1), plan.Batch(nil, 2, 1)}; err != nil || !reflect.DeepEqual(numbers, want) {
		t.Errorf("plan: %v, %v, want %v", numbers, err, want)
	}
	all(t, r.Epoch(t.Context(), 0))
	st, err := r.Stats(t.Context())
	if err != nil || st.Batches != r.Len() || st.Samples != 7*r.Len() {
		t.Errorf("stats: %d batches, %d samples, %v; want %d batches", st.Batches, st.Samples, err, r.Len())
	}
}

// A loop that has the batch before still in hand when it asks for the next one goes on with
// the credit that it gets by default, however large batches are beside what they may take.
func TestHoldingOne(t *testing.T) {
	config := reader.Config{
		BatchSize: 16, DType: reader.DTypeFloat32, Memory: 52 << 20,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{224}}, transform.ImageNet},
	}
	dir := data(t)
	direct, err := reader.Open(t.Context(), dir, config)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if b, most := direct.BatchBytes(), direct.Lendable(); most < 2*b || most >= 4*b {
		t.Fatalf("batches of %d bytes, of which %d may be lent: they are to be two or three", b, most)
	}
	r := open(t, attach(t, serve(t, Config{}), "unix"), dir, config)
	var before *Batch
	n := 0
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if before != nil {
			before.Release()
		}
		before = b
		n++
	}
	before.Release()
	if n != 5 {
		t.Errorf("%d batches, want 5", n)
	}
}

// What cannot be done is said with a code, and the connection goes on.
func TestErrors(t *testing.T) {
	dir := data(t)
	c := attach(t, serve(t, Config{Memory: 1 << 30}), "unix")
	r := open(t, c, dir, reader.Config{BatchSize: 8, Transform: crop})
	state, err := r.State(t.Context(), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, c, dir, reader.Config{BatchSize: 4, Transform: crop})
	first := func(batches iter.Seq2[*Batch, error]) error {
		for b, err := range batches {
			if err == nil {
				b.Release()
			}
			return err
		}
		return nil
	}
	damaged := data(t)
	damage(t, damaged, 5)
	bad := open(t, c, damaged, reader.Config{BatchSize: 8, Transform: crop, Shuffle: reader.ShuffleNone})
	closed := open(t, c, dir, reader.Config{BatchSize: 8, Transform: crop})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	openWith := func(dir string, config reader.Config) error {
		_, err := c.Open(t.Context(), dir, config)
		return err
	}
	for _, x := range []struct {
		err  error
		code Code
		want string
	}{
		{openWith(filepath.Join(dir, "none"), reader.Config{}), CodeNotFound, "none"},
		{openWith(dir, reader.Config{BatchSize: -1, Workers: -1}), CodeConfig, "workers"},
		{openWith(dir, reader.Config{Split: "val"}), CodeConfig, `"val"`},
		{openWith(dir, reader.Config{Memory: 2 << 30}), CodeMemory, "--memory"},
		{c.call(t.Context(), &request{Op: "open", Data: text(dir), Config: []byte(`{"batchsize":3}`)}, nil), CodeConfig, `no setting "batchsize"; did you mean "batch_size"?`},
		{c.call(t.Context(), &request{Op: "open", Data: []byte(`[]`)}, nil), CodeConfig, "want a path"},
		{c.call(t.Context(), &request{Op: "open", Stream: true, Data: []byte(`[7]`)}, nil), CodeConfig, "list of names"},
		{c.call(t.Context(), &request{Op: "open", Data: []byte(fmt.Sprintf(`[{"url":%q,"share":1},{"url":%q}]`, dir, dir))}, nil), CodeConfig, "1 of 2 have a share"},
		{first(other.Resume(t.Context(), state)), CodeState, "batch_size"},
		{first(r.Epoch(t.Context(), -1)), CodeState, "epoch -1"},
		{c.call(t.Context(), &request{Op: "start", Reader: r.opened.Reader, Credit: -1}, nil), CodeConfig, "credit"},
		{first(bad.Epoch(t.Context(), 0)), CodeData, "checksum"},
		{first(closed.Epoch(t.Context(), 0)), CodeNotFound, "not open"},
		{closed.Close(), CodeNotFound, "not open"},
		{c.call(t.Context(), &request{Op: "stop", Pass: 99}, nil), CodeNotFound, "no pass 99"},
		{c.call(t.Context(), &request{Op: "dance"}, nil), CodeProtocol, `"dance"`},
		{c.call(t.Context(), &request{Op: "plan", Reader: r.opened.Reader, From: 11}, nil), CodeConfig, "the epoch has 10"},
	} {
		var e *Error
		if !errors.As(x.err, &e) || e.Code != x.code || !strings.Contains(e.Message, x.want) {
			t.Errorf("%v, want %s with %s", x.err, x.code, x.want)
		}
		if e != nil && x.code == CodeData && (e.Sample == nil || e.Sample.Sample != 5) {
			t.Errorf("the damaged sample is %+v", e.Sample)
		}
	}
	if n := len(all(t, r.Epoch(t.Context(), 0))); int64(n) != r.Len() {
		t.Errorf("%d batches after all that, want %d", n, r.Len())
	}
}

// Leaving the loop ends the pass, on the server, too; batches that are held stay good.
func TestLeaving(t *testing.T) {
	dir := data(t)
	for _, network := range []string{"unix", "tcp"} {
		s := serve(t, Config{})
		c := attach(t, s, network)
		r := open(t, c, dir, reader.Config{BatchSize: 4, Transform: crop})
		want := all(t, r.Epoch(t.Context(), 0))
		var held []*Batch
		for range 3 {
			for b, err := range r.Epoch(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, b)
				if b.Number() == 1 {
					break
				}
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		enough := errors.New("enough")
		var last error
		for b, err := range r.Epoch(ctx, 0) {
			if last = err; err == nil {
				b.Release()
			}
			cancel(enough)
		}
		if last != nil && !errors.Is(last, enough) {
			t.Errorf("cancelled: %v", last)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for i, b := range held {
			if got := copyOf(b); !reflect.DeepEqual(got, want[i%2]) {
				t.Errorf("batch %d of pass %d has changed", i%2, i/2)
			}
			b.Release()
		}
		// Nothing is left of it, not even for this client.
		eventually(t, "the server forgets the passes", func() bool {
			s.memory.mu.Lock()
			defer s.memory.mu.Unlock()
			return s.memory.used == 0 && len(s.memory.loans) == 0
		})
	}
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// Several clients of one server are ranks of one epoch: together they get each sample
// once, from one open data set, and close it together.
func TestRanks(t *testing.T) {
	dir := data(t)
	s := serve(t, Config{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]int{}
	const world = 4
	ready := make(chan struct{})
	var attached sync.WaitGroup
	attached.Add(world)
	for rank := range world {
		c := attach(t, s, []string{"unix", "tcp"}[rank%2])
		wg.Go(func() {
			r, err := c.Open(t.Context(), dir, reader.Config{BatchSize: 5, World: world, Rank: rank, Transform: crop})
			attached.Done()
			if err != nil {
				t.Error(err)
				return
			}
			<-ready
			for b, err := range r.Epoch(t.Context(), 2) {
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, n := range b.Samples() {
					seen[n]++
				}
				mu.Unlock()
				b.Release()
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	attached.Wait()
	s.mu.Lock()
	if len(s.bases) != 1 {
		t.Errorf("%d data sets are open, want 1", len(s.bases))
	}
	s.mu.Unlock()
	close(ready)
	wg.Wait()
	for n := range int64(80) {
		if seen[n] != 1 {
			t.Errorf("sample %d came %d times", n, seen[n])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bases) != 0 {
		t.Errorf("%d data sets stay open", len(s.bases))
	}
}
