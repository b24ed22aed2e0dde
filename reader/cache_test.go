package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/store"
	"shardify/store/cache"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/mem"
)

// asked is a slow store that notes which objects are opened and read.
func asked(st store.Store, delay time.Duration) (*fault.Store, func() []string) {
	var mu sync.Mutex
	var names []string
	slow := fault.New(st, fault.Config{
		StallRate: 1, Stall: delay,
		Before: func(op fault.Op) error {
			mu.Lock()
			defer mu.Unlock()
			names = append(names, string(op.Kind)+" "+op.Name)
			return nil
		},
	})
	return slow, func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := names
		names = nil
		return all
	}
}

// openCached opens the data set in a store as reader.Open would.
func openCached(t *testing.T, st store.Store, c Config) *Reader {
	t.Helper()
	d, err := dataset.Open(context.Background(), st)
	if err != nil {
		t.Fatal(err)
	}
	return newReader(t, d, c)
}

// The first epoch through a cache reads each byte of the store once; the next ones, in
// this process or another, read nothing but the manifest. The batches are the same.
func TestCacheWarm(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			d := small(t, datasettest.Options{Format: format})
			c := Config{BatchSize: 8, Seed: 1, Lanes: 2, Window: 16, Transform: crop, Fields: []string{"cls"}}
			if format != "tar.gz" {
				c.Shuffle = ShuffleWindow
			}
			plain := newReader(t, d, c)
			var total int64
			for _, sh := range d.Manifest().Splits[0].Shards {
				total += sh.Bytes + sh.Index.Bytes
			}
			st, names := asked(d.Store(), 2*time.Millisecond)
			c.Cache = cache.Config{Dir: t.TempDir(), Block: 4096}
			r := openCached(t, st, c)
			want := epochOf(t, plain, 0)
			if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
				t.Error("cold: other batches")
			}
			if s := r.Stats().Cache; s == nil || s.OriginBytes > total || s.UnkeptBytes != 0 || s.Misses == 0 || s.Faults != 0 {
				t.Errorf("cold: %+v for %d bytes", s, total)
			}
			names()
			if got, want := epochOf(t, r, 1), epochOf(t, plain, 1); !reflect.DeepEqual(got, want) {
				t.Error("the second epoch: other batches")
			}
			names() // what nobody wanted of the first one's may come in the second
			for epoch := range 2 {
				again := openCached(t, st, c)
				if got := epochOf(t, again, epoch); !reflect.DeepEqual(got, epochOf(t, plain, epoch)) {
					t.Error("warm: other batches")
				}
				if s := again.Stats().Cache; s.Misses != 0 || s.OriginReads != 0 || s.Hits == 0 || s.CacheBytes == 0 {
					t.Errorf("warm: %+v", s)
				}
			}
			for _, name := range names() {
				if !strings.HasSuffix(name, " "+index.ManifestName) {
					t.Errorf("warm: %s", name)
				}
			}
		})
	}
	if r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 8}); r.Stats().Cache != nil {
		t.Error("statistics of no cache")
	}
}

// A sample costs the blocks it lies in, not its shard.
func TestCacheReadsRanges(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 2, Samples: 400})
	r := newReader(t, d, Config{BatchSize: 1, Shuffle: ShuffleWindow, Decode: DecodeNone, Cache: cache.Config{Dir: t.TempDir(), Block: 4096}})
	n := 0
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		if n++; n == 3 {
			break
		}
	}
	var most int64 // the indexes, and what the batches read ahead may take
	for _, sh := range d.Manifest().Splits[0].Shards {
		most += sh.Index.Bytes + sh.Bytes/4
	}
	if got := r.Stats().Cache.OriginBytes; got == 0 || got > most {
		t.Errorf("fetched %d bytes, more than %d", got, most)
	}
}

// What has rotten on the cache's disk is fetched again, and never seen.
func TestCacheRot(t *testing.T) {
	d := small(t, datasettest.Options{})
	c := Config{BatchSize: 8, Seed: 1, Decode: DecodeNone}
	want := epochOf(t, newReader(t, d, c), 0)
	dir := t.TempDir()
	c.Cache = cache.Config{Dir: dir, Block: 4096}
	r := newReader(t, d, c)
	epochOf(t, r, 0)
	blocks := 0
	err := filepath.WalkDir(filepath.Join(dir, "blocks"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		blocks++
		data[4096+(blocks*37)%(len(data)-4096)] ^= 1
		return os.WriteFile(path, data, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := r.Stats().Cache
	if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
		t.Error("other batches")
	}
	s := r.Stats()
	if s.Cache.Corrupt == 0 || s.Cache.OriginBytes == before.OriginBytes || s.Rereads != 0 || len(r.BadSamples()) != 0 {
		t.Errorf("%d blocks spoiled: %+v, %d read again", blocks, s.Cache, s.Rereads)
	}
}

// What came wrong from the store is kept wrong, until a checksum of the data set shows
// it: then it is read past the cache, which has it right from then on.
func TestCacheHeals(t *testing.T) {
	for _, format := range []string{"tar", "tfrecord"} {
		d := small(t, datasettest.Options{Format: format})
		c := Config{BatchSize: 8, Decode: DecodeNone}
		want := epochOf(t, newReader(t, d, c), 0)
		// The middle of a field of each shard, and of each index, comes wrong once.
		once := &spoilAt{Store: d.Store(), at: map[string]int64{}}
		fields := 0 // of the damaged samples
		for i := range d.Manifest().Splits[0].Shards {
			sh := &d.Manifest().Splits[0].Shards[i]
			rows, err := d.Rows(context.Background(), sh)
			if err != nil {
				t.Fatal(err)
			}
			once.at[sh.Name], once.at[sh.Index.Name] = rows[4].Offset+rows[4].Size*2/3, 50
			fields += len(rows[4].Fields)
		}
		other, err := dataset.New(once, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		c.Cache = cache.Config{Dir: t.TempDir()}
		r := newReader(t, other, c)
		for epoch := range 2 {
			if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
				t.Errorf("epoch %d: other batches", epoch)
			}
			if epoch == 0 {
				// Fields that are parsed out of one record may all have met the damage
				// before the first of them has healed it.
				most := int64(fields + len(d.Manifest().Splits[0].Shards))
				if s := r.Stats(); s.Rereads < 8 || s.Rereads > most || len(once.at) != 0 {
					t.Errorf("%d places are whole, %d read again", len(once.at), s.Rereads)
				}
			}
		}
		warm := newReader(t, d, c)
		if got := epochOf(t, warm, 0); !reflect.DeepEqual(got, want) {
			t.Error("warm: other batches")
		}
		if s := warm.Stats(); s.Rereads != 0 || s.Cache.Misses != 0 {
			t.Errorf("%s: warm: %d read again, %+v", format, s.Rereads, s.Cache)
		}
	}
}

// spoilAt flips a bit of the byte at an offset of each object, the first time that it is
// read.
type spoilAt struct {
	store.Store
	mu sync.Mutex
	at map[string]int64
}

func (s *spoilAt) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return spoilAtObject{o, s}, err
}

type spoilAtObject struct {
	store.Object
	s *spoilAt
}

func (o spoilAtObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(ctx, p, off)
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if at, left := o.s.at[o.Info().Name]; left && at >= off && at < off+int64(n) {
		p[at-off] ^= 1
		delete(o.s.at, o.Info().Name)
	}
	return n, err
}

// A data set that is packed anew under the same names is never read out of the old
// one's blocks.
func TestCacheOfAnotherVersion(t *testing.T) {
	st := mem.New()
	c := Config{BatchSize: 8, Seed: 1, Decode: DecodeNone, Cache: cache.Config{Dir: t.TempDir()}}
	for version := range 3 {
		d := datasettest.Write(t, st, datasettest.Options{Make: func(n, classes int) datasettest.Made {
			return datasettest.Sample(n+version, classes)
		}})
		want := epochOf(t, newReader(t, d, Config{BatchSize: 8, Seed: 1, Decode: DecodeNone}), 0)
		for range 2 {
			if got := epochOf(t, newReader(t, d, c), 0); !reflect.DeepEqual(got, want) {
				t.Errorf("version %d: other batches", version)
			}
		}
	}
}

// A cache that cannot be used, or has room for next to nothing, changes nothing but
// the speed.
func TestCacheOfNoUse(t *testing.T) {
	d := small(t, datasettest.Options{})
	c := Config{BatchSize: 8, Seed: 1, Transform: crop}
	want := epochOf(t, newReader(t, d, c), 0)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]cache.Config{
		"a file": {Dir: path}, "no room": {Dir: t.TempDir(), MaxBytes: 1}, "little": {Dir: t.TempDir(), MaxBytes: 30_000, Block: 4096},
	} {
		c.Cache = config
		r := newReader(t, d, c)
		for range 2 {
			if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: other batches", name)
			}
		}
		s := r.Stats().Cache
		if (s.Faults > 0 && s.Warning != "") != (name == "a file") || (s.Evictions > 0) != (name == "little") || s.Hits > 0 && name != "little" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// The memory that the cache fetches into is part of the budget.
func TestCacheMemory(t *testing.T) {
	d := small(t, datasettest.Options{})
	c := Config{BatchSize: 8, Decode: DecodeNone}
	without := newReader(t, d, c).Config().Memory
	c.Cache = cache.Config{Dir: t.TempDir()}
	r := newReader(t, d, c)
	if got, want := r.Config().Memory-without, localFetchers*c.Cache.Buffer(maxRead); got != want || want != 48<<20 || r.poolBytes > without {
		t.Errorf("%d bytes more, want %d", got, want)
	}
	c.Memory = 16 << 20
	if _, err := New(context.Background(), d, c); err == nil || !strings.Contains(err.Error(), "cache") {
		t.Errorf("16 MiB: %v", err)
	}
}

func TestCacheConfig(t *testing.T) {
	err := Config{Cache: cache.Config{MaxBytes: 5, Block: 3}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "cache: dir") || !strings.Contains(err.Error(), "block") {
		t.Errorf("%v", err)
	}
	data, err := json.Marshal(Config{Cache: cache.Config{Dir: "d", MaxBytes: 5}})
	if err != nil || string(data) != `{"cache":{"dir":"d","max_bytes":5}}` {
		t.Errorf("%s, %v", data, err)
	}
}

// cacheEnv is set in a process that reads through a cache.
const cacheEnv = "SHARDIFY_TEST_CACHE"

// cacheJob is what such a process does: it reads epochs of the data set in a folder,
// which is slow.
type cacheJob struct {
	Dir    string `json:"dir"`
	Config Config `json:"config"`
	Epochs int    `json:"epochs"`
}

// cacheReport is what it says at its end.
type cacheReport struct {
	Looks []uint64    `json:"looks"` // of each epoch
	Stats cache.Stats `json:"stats"`
}

func runCached(text string) error {
	var j cacheJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx := context.Background()
	st := fault.New(file.New(j.Dir), fault.Config{Kinds: []fault.Kind{fault.ReadAt}, StallRate: 1, Stall: 2 * time.Millisecond})
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	r, err := New(ctx, d, j.Config)
	if err != nil {
		return err
	}
	defer r.Close()
	var report cacheReport
	fmt.Fprintln(os.Stderr, "reading")
	for epoch := range j.Epochs {
		look, err := lookOf(ctx, r, epoch)
		if err != nil {
			return err
		}
		report.Looks = append(report.Looks, look)
	}
	report.Stats = *r.Stats().Cache
	return json.NewEncoder(os.Stdout).Encode(report)
}

// lookOf is a checksum of an epoch.
func lookOf(ctx context.Context, r *Reader, epoch int) (uint64, error) {
	h := fnv.New64a()
	for b, err := range r.Epoch(ctx, epoch) {
		if err != nil {
			return 0, err
		}
		fmt.Fprint(h, b.Number(), b.Samples(), b.Keys())
		for i := range b.Len() {
			for _, name := range b.Fields() {
				data, _ := b.Field(i, name)
				h.Write(data)
			}
		}
		b.Release()
	}
	return h.Sum64(), nil
}

// startCached starts such a process.
func startCached(t *testing.T, j cacheJob) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), cacheEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, errs
}

// Processes of one host fetch each byte once between them, also where some are killed
// (SIGKILL) while they fetch: those that go on see the same batches as without.
func TestCacheProcesses(t *testing.T) {
	dir := t.TempDir()
	d := datasettest.Write(t, file.New(dir), datasettest.Options{Shards: 6, Samples: 40})
	c := Config{BatchSize: 16, Seed: 1, Shuffle: ShuffleGlobal, Decode: DecodeNone}
	plain := newReader(t, d, c)
	var want []uint64
	for epoch := range 2 {
		look, err := lookOf(t.Context(), plain, epoch)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, look)
	}
	var total int64
	for _, sh := range d.Manifest().Splits[0].Shards {
		total += sh.Bytes + sh.Index.Bytes
	}
	for _, kill := range []bool{false, true} {
		c.Cache = cache.Config{Dir: t.TempDir(), Block: 8192}
		j := cacheJob{Dir: dir, Config: c, Epochs: 2}
		for range 3 {
			if !kill {
				break
			}
			victim := j
			victim.Epochs = 1000
			cmd, _, errs := startCached(t, victim)
			time.Sleep(time.Duration(30+rand.IntN(60)) * time.Millisecond)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || strings.TrimPrefix(errs.String(), "reading\n") != "" {
				t.Fatalf("it ended by itself: %v, %s", err, errs)
			}
		}
		var sum cache.Stats
		type process struct {
			cmd       *exec.Cmd
			out, errs *bytes.Buffer
		}
		var all []process
		for range 2 {
			cmd, out, errs := startCached(t, j)
			all = append(all, process{cmd, out, errs})
		}
		for _, p := range all {
			var report cacheReport
			if err := p.cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, p.errs)
			}
			if err := json.Unmarshal(p.out.Bytes(), &report); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(report.Looks, want) {
				t.Error("other batches")
			}
			sum.Add(report.Stats)
		}
		if sum.OriginBytes > total || !kill && sum.OriginBytes < total*9/10 || sum.UnkeptBytes+sum.Corrupt+sum.Faults+sum.Evictions != 0 {
			t.Errorf("killed %v: %+v for %d bytes", kill, sum, total)
		}
	}
}
