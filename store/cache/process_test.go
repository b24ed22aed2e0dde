package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"shardify/store"
	"shardify/store/fault"
	"shardify/store/file"
)

// childEnv, set to an order in JSON, makes the test binary a process that reads
// through a cache.
const childEnv = "SHARDIFY_TEST_CACHE_CHILD"

type order struct {
	Origin string  `json:"origin"` // the folder of the inner store
	Config Config  `json:"config"`
	Global bool    `json:"global"` // random ranges, otherwise everything in order
	Reads  int     `json:"reads"`  // random ranges; -1: until killed
	Rank   int     `json:"rank"`
	World  int     `json:"world"` // ranks that share the objects; 0: all read everything
	Stalls float64 `json:"stalls"`
	// Patience is that of the process, in nanoseconds; 0: the usual.
	Patience time.Duration `json:"patience"`
}

// object returns the object i as every process knows it.
func objectData(i int) []byte { return pattern(byte(i), 500_000+977*i) }

func child() {
	var o order
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &o)
	var stats Stats
	if err == nil {
		stats, err = o.read()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(stats); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// read does as ordered, with four goroutines, and compares what it gets.
func (o order) read() (Stats, error) {
	ctx := context.Background()
	slow := fault.New(file.New(o.Origin), fault.Config{
		Kinds: []fault.Kind{fault.ReadAt}, StallRate: o.Stalls, Stall: 2 * time.Millisecond, Seed: uint64(o.Rank),
	})
	s, err := New(&aged{slow, time.Hour}, o.Config)
	if err != nil {
		return Stats{}, err
	}
	if o.Patience > 0 {
		s.patience, s.folder.patience = o.Patience, o.Patience
	}
	type shard struct {
		object store.Object
		data   []byte
	}
	var shards []shard
	for info, err := range s.List(ctx, "") {
		if err != nil {
			return Stats{}, err
		}
		var i int
		if _, err := fmt.Sscanf(info.Name, "%d.tar", &i); err != nil {
			return Stats{}, err
		}
		if o.World > 0 && i%o.World != o.Rank {
			continue
		}
		shards = append(shards, shard{data: objectData(i)})
		x := &shards[len(shards)-1]
		if x.object, err = s.Open(ctx, info.Name); err != nil {
			return Stats{}, err
		}
	}
	fmt.Fprintln(os.Stderr, "reading")
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(g)))
			read := func(x shard, off, size int) error {
				p := make([]byte, size)
				n, err := x.object.ReadAt(ctx, p, int64(off))
				if err != nil && err != io.EOF {
					return err
				}
				if !bytes.Equal(p[:n], x.data[off:min(off+size, len(x.data))]) {
					return fmt.Errorf("%s: other bytes, %d at %d", x.object.Info().Name, size, off)
				}
				return nil
			}
			for n := 0; o.Global && (n < o.Reads || o.Reads < 0); n++ {
				x := shards[r.IntN(len(shards))]
				if errs[g] = read(x, r.IntN(len(x.data)), 1+r.IntN(40_000)); errs[g] != nil {
					return
				}
			}
			if o.Global {
				return
			}
			const piece = 100_000
			for _, x := range shards {
				for off := g * piece; off < len(x.data); off += len(errs) * piece {
					if errs[g] = read(x, off, piece); errs[g] != nil {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, x := range shards {
		x.object.Close()
	}
	return s.Stats(), errors.Join(errs...)
}

// process is one that does as ordered.
type process struct {
	*exec.Cmd
	started  chan struct{} // closed when it begins to read
	out, err bytes.Buffer  // what it has said, once it has ended
}

// start starts a process.
func (o order) start(t *testing.T) *process {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0]), started: make(chan struct{})}
	p.Env = append(os.Environ(), childEnv+"="+string(text))
	p.Stdout, p.Stderr = &p.out, (*notice)(p)
	must(t, p.Start())
	return p
}

// notice is stderr of a process: of its lines the first says that it reads.
type notice process

func (n *notice) Write(p []byte) (int, error) {
	if rest, ok := bytes.CutPrefix(p, []byte("reading\n")); ok {
		close(n.started)
		n.err.Write(rest)
		return len(p), nil
	}
	return n.err.Write(p)
}

// run runs the orders at once and returns what each process counted.
func run(t *testing.T, orders ...order) []Stats {
	t.Helper()
	all := make([]Stats, len(orders))
	var wg sync.WaitGroup
	for i, o := range orders {
		p := o.start(t)
		wg.Go(func() {
			err := p.Wait()
			if err == nil {
				err = json.Unmarshal(p.out.Bytes(), &all[i])
			}
			if err != nil {
				t.Errorf("process %d: %v: %s", i, err, &p.err)
			}
		})
	}
	wg.Wait()
	return all
}

func origin(t *testing.T, n int) (dir string, size int64) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		data := objectData(i)
		must(t, store.WriteAll(t.Context(), file.New(dir), fmt.Sprintf("%03d.tar", i), data))
		size += int64(len(data))
	}
	return dir, size
}

// Processes that read the same at the same time fetch every byte once between them;
// started again, nothing.
func TestProcesses(t *testing.T) {
	for _, global := range []bool{false, true} {
		dir := t.TempDir()
		from, size := origin(t, 6)
		o := order{Origin: from, Config: Config{Dir: dir, MaxBytes: 1 << 30, Block: 16 << 10}, Global: global, Reads: 200, Stalls: 0.5}
		var sum Stats
		for _, stats := range run(t, o, o, o, o) {
			sum.Add(stats)
		}
		if sum.UnkeptBytes+sum.Corrupt+sum.Faults+sum.Evictions != 0 {
			t.Errorf("counted %+v", sum)
		}
		if sum.Waits == 0 {
			t.Error("nobody waited: the processes did not run at the same time")
		}
		if !global && sum.OriginBytes != size {
			t.Errorf("fetched %d bytes; want %d", sum.OriginBytes, size)
		}
		o.Global = false
		if stats := run(t, o)[0]; sum.OriginBytes+stats.OriginBytes != size || !global && stats.Misses != 0 {
			t.Errorf("fetched %d bytes, then %d; want %d", sum.OriginBytes, stats.OriginBytes, size)
		}
	}
}

// The folder never holds more than its bound while processes fight for it, although
// the shards that each of them has open do not fit.
func TestBoundAcrossProcesses(t *testing.T) {
	from, size := origin(t, 12)
	dir := t.TempDir()
	o := order{Origin: from, Config: Config{Dir: dir, MaxBytes: size / 3, Block: 16 << 10}, Global: true, Reads: 100, World: 4}
	s := wrap(t, file.New(from), o.Config)
	stop := make(chan struct{})
	var most int64
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			// Under the lock, as otherwise what has gone and what has come in its place
			// could be counted both.
			err := s.folder.locked(t.Context(), func() error { most = max(most, takenBy(t, dir)); return nil })
			if err != nil {
				t.Error(err)
			}
		}
	})
	var sum Stats
	for round := range 2 {
		var orders []order
		for p := range 3 {
			o.Rank = (2*round + p) % o.World
			orders = append(orders, o)
		}
		for _, stats := range run(t, orders...) {
			sum.Add(stats)
		}
	}
	close(stop)
	watcher.Wait()
	if sum.Corrupt+sum.Faults+sum.UnkeptBytes != 0 {
		t.Errorf("counted %+v", sum)
	}
	if most > o.Config.MaxBytes || most < o.Config.MaxBytes/2 || sum.Evictions == 0 {
		t.Errorf("at most %d bytes on the disk, the bound is %d; %d evictions", most, o.Config.MaxBytes, sum.Evictions)
	}
}

// Processes are killed at random moments while they fetch, with others beside them
// that go on. Nothing wrong is ever read, what the dead were at is free, the bound
// holds, and in the end all is there.
func TestKill(t *testing.T) {
	from, size := origin(t, 6)
	dir := t.TempDir()
	o := order{Origin: from, Config: Config{Dir: dir, MaxBytes: 2 * size, Block: 16 << 10}, Global: true, Reads: -1, Stalls: 1}
	kills := 9 // odd: the last one begins anew, so that something is missing in the end
	if testing.Short() {
		kills = 5
	}
	left := 0
	for i := range kills {
		if i%2 == 0 { // begin anew, as one that is full has nothing to fetch
			must(t, os.RemoveAll(dir))
		}
		p := o.start(t)
		beside := o
		beside.Reads = 5
		other := beside.start(t)
		<-p.started
		time.Sleep(time.Duration(2000+rand.IntN(13_000)) * time.Microsecond)
		must(t, p.Process.Kill())
		if err := p.Wait(); err == nil || p.err.Len() > 0 {
			t.Fatalf("it ended by itself: %v, %s", err, &p.err)
		}
		if err := other.Wait(); err != nil {
			t.Fatalf("beside one that was killed: %v: %s", err, &other.err)
		}
		left += unfilled(t, dir)
	}
	if left == 0 {
		t.Errorf("%d kills have left no unfilled block: they do not strike during a fetch", kills)
	}
	start := time.Now()
	o.Global = false
	after := run(t, o)[0]
	if after.UnkeptBytes+after.Corrupt+after.Faults+after.Waits != 0 && after.OriginReads == 0 {
		t.Errorf("counted %+v", after)
	}
	if warm := run(t, o)[0]; warm.Misses != 0 {
		t.Errorf("warm: %+v", warm)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("the dead were waited for: %v", took)
	}
	// What the dead have had counted is counted for what was there later.
	s := wrap(t, file.New(from), o.Config)
	if got, there := used(t, s), takenBy(t, dir); got < there || got > there+int64(kills)*5*page || unfilled(t, dir) != 0 {
		t.Errorf("%d bytes counted, %d there, %d blocks unfilled", got, there, unfilled(t, dir))
	}
}

// unfilled counts the blocks that nobody has written.
func unfilled(t *testing.T, dir string) (n int) {
	t.Helper()
	for _, path := range files(t, dir) {
		data, err := os.ReadFile(path)
		must(t, err)
		if len(data) < len(magic) || string(data[:len(magic)]) != magic {
			n++
		}
	}
	return n
}

// A process that was stopped in the middle of a fetch, and wakes up when others
// have lost their patience, does no harm.
func TestStopped(t *testing.T) {
	from, _ := origin(t, 3)
	dir := t.TempDir()
	o := order{Origin: from, Config: Config{Dir: dir, MaxBytes: 1 << 30, Block: 16 << 10}, Global: true, Reads: 300, Stalls: 1, Patience: 100 * time.Millisecond}
	p := o.start(t)
	<-p.started
	time.Sleep(10 * time.Millisecond)
	stop(t, p.Process)
	beside := o
	beside.Reads = 50
	run(t, beside, beside)
	wake(t, p.Process)
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, &p.err)
	}
	o.Global, o.Patience = false, 0
	run(t, o)
	if stats := run(t, o)[0]; stats.Misses != 0 || stats.Corrupt != 0 {
		t.Errorf("warm: %+v", stats)
	}
}
