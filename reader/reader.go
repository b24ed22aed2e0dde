package reader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"shardify/dataset"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/store"
	"shardify/store/cache"
	"shardify/store/retry"
)

var (
	// ErrClosed: the reader has been closed.
	ErrClosed = errors.New("reader is closed")
	// ErrConfig: the configuration is at fault, by itself or for this data set.
	ErrConfig = errors.New("reader config")
)

// Reader reads a split of a data set, epoch by epoch. It is safe for concurrent
// use; several passes may run at once, each with Config.Memory of its own but for
// the index, which they share.
type Reader struct {
	sets   []set
	config Config
	split  *index.Split // of all sets
	counts []int64
	// identity is what a State says of the data.
	identity DataState
	// sampling and buckets are fingerprints.
	sampling, buckets string
	wanted            wanted
	// sequential: shards can only be read from front to back; frames: what lies in a
	// frame of theirs is decompressed together.
	sequential, frames bool
	// points: seek points of images are read with them; onlyParts: only those of which not
	// all is read. That is done where it saves partGain bytes; 0 is never.
	points, onlyParts bool
	partGain          int64
	shared            *compress.Frames // where frames is set
	// canvases are Config.Transform's and Config.Tensors': one, or one for each bucket.
	canvases  []canvas
	poolBytes int64
	// batch is about what a batch takes.
	batch int64
	// reserved is for buffers of the cache, decompression and decoding, and for tables
	// of samples.
	reserved int64
	ahead    aheadPlan
	fetchers int
	// indexLoads is how many indexes are read at once; unpacking bounds how many of them
	// are unpacked at once.
	indexLoads int
	unpacking  chan struct{}
	// ready is how many batches wait for the consumer; 0 for as many as memory allows,
	// where they are what is read ahead.
	ready   int
	scratch scratchMemory

	rows     *rowCache
	files    *files
	counters counters
	bad      badSamples
	base     *Plan   // of epoch 0
	stream   *Stream // whose reader it is; nil for one of data sets
	// newDecoder makes the workers' decoders of JPEG.
	newDecoder func() jpegDecoder
	chosen     *chosen // by Config.Sampling; nil: all
	// spare is the pool of a pass that has read its epoch to the end: the next one
	// needs the same memory.
	spare *atomic.Pointer[pool]
	calls calls // of Read
	// begun: there was a pass.
	begun atomic.Bool
	close sync.Once
	done  chan struct{}
}

// Open opens the data set in the store that url names (a folder, or as
// store/open says) for reading. It reads the manifest and nothing else, but for the
// indexes where Config.Sampling or Config.Buckets needs them.
func Open(ctx context.Context, url string, config Config) (*Reader, error) {
	return OpenMix(ctx, []Source{{URL: url}}, config)
}

// New is Open for a data set that is open already. It reads nothing, but for the indexes
// where Config.Sampling or Config.Buckets needs them.
func New(ctx context.Context, data *dataset.Dataset, config Config) (*Reader, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	retried, err := retries(data.Store(), config.Retry)
	if err != nil {
		return nil, err
	}
	s, err := newSet(retried, data.Manifest(), config.Split, config.Cache)
	if err != nil {
		return nil, err
	}
	return build(ctx, []set{s}, config)
}

// retries wraps a store so that its operations are tried again.
func retries(st store.Store, c retry.Config) (*retry.Store, error) {
	return retry.New(st, retryConfig(st.URL(), c))
}

// retryConfig fills in what depends on where a store is: a read of a local disk cannot be
// called back, and none is one too many.
func retryConfig(url string, c retry.Config) retry.Config {
	if store.IsLocal(url) {
		if c.Timeout == 0 {
			c.Timeout = -1
		}
		if c.Reads == 0 {
			c.Reads = -1
		}
	}
	return c
}

// emptyReader makes a reader without anything to read.
func emptyReader(config Config) *Reader {
	r := &Reader{config: config, done: make(chan struct{}), spare: new(atomic.Pointer[pool]), newDecoder: newJPEGDecoder}
	r.unpacking = make(chan struct{}, runtime.GOMAXPROCS(0))
	r.counters.memory = new(meter) // not in r, which a pool must not keep alive
	runtime.AddCleanup(r, dropSpare, r.spare)
	return r
}

// build makes a reader of data sets whose stores are retried.
func build(ctx context.Context, sets []set, config Config) (*Reader, error) {
	split := join(sets)
	r := emptyReader(config)
	r.sets, r.split = sets, split
	if len(sets) == 1 {
		r.config.Split = split.Name
	}
	r.identity, r.sampling = dataState(sets, split), config.Sampling.fingerprint()
	for i := range sets {
		r.sequential = r.sequential || sets[i].data.Manifest().Compression == compress.Gzip
		r.frames = r.frames || sets[i].data.Manifest().Compression == compress.Zstd
	}
	if r.config.Shuffle == ShuffleAuto {
		r.config.Shuffle = r.autoShuffle()
	}
	if b := r.config.WindowBytes; b > 0 {
		r.config.Window, r.config.WindowBytes = windowOf(b, split), 0
	} else if r.config.Shuffle == ShuffleWindow && r.config.Window == 0 {
		r.config.Window = min(DefaultWindow, windowOf(DefaultWindowBytes, split))
	}
	r.config = r.config.withDefaults()
	r.buckets = r.config.Buckets.fingerprint()
	r.counts = make([]int64, len(split.Shards))
	for i := range split.Shards {
		r.counts[i] = split.Shards[i].Samples
	}
	if err := r.chooseFields(); err != nil {
		return nil, err
	}
	if !r.config.Sampling.isZero() || !r.config.Buckets.isZero() {
		var err error
		if r.chosen, err = choose(ctx, &r.config, sets, split); err != nil {
			return nil, err
		}
	}
	plan, err := r.Plan(0)
	if err != nil {
		return nil, err
	}
	if err := r.config.Buckets.filled(plan); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, r.url(), err)
	}
	if r.base = plan; plan.Batches() == 0 {
		if split.Samples == 0 {
			return nil, fmt.Errorf("%s: split %q has no samples", r.url(), split.Name)
		}
		return nil, fmt.Errorf("%w: %s: split %q has %d samples, less than one global batch of %d (batch_size %d × world %d): lower batch_size, or set ends to %q or %q",
			ErrConfig, r.url(), split.Name, plan.Samples(), plan.GlobalBatchSize(), r.config.BatchSize, r.config.World, EndsPad, EndsExact)
	}
	if r.config.MaxBad == 0 {
		r.config.MaxBad = int(max(16, plan.Samples()/int64(r.config.World)/100))
	}
	if err := r.chooseClasses(); err != nil {
		return nil, err
	}
	if r.canvases, err = r.config.canvases(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := r.divideMemory(); err != nil {
		return nil, err
	}
	r.files = newFiles(r.openFile)
	return r, nil
}

// dropSpare frees the memory that lies idle between passes.
func dropSpare(spare *atomic.Pointer[pool]) {
	if p := spare.Swap(nil); p != nil {
		p.end()
	}
}

// windowOf is how many samples of a split make so many bytes.
func windowOf(bytes int64, split *index.Split) int {
	each := max(1, split.Bytes/max(1, split.Samples))
	return int(min(max(1, bytes/each), maxWindow))
}

// remote says that some of the data is not on this machine.
func (r *Reader) remote() bool {
	return slices.ContainsFunc(r.sets, func(s set) bool { return !store.IsLocal(s.data.URL()) })
}

// autoShuffle is what ShuffleAuto stands for.
func (r *Reader) autoShuffle() Shuffle {
	switch {
	case r.sequential:
		return ShuffleShards
	case r.remote():
		return ShuffleWindow
	}
	return ShuffleGlobal
}

// chooseFields decides which fields are read.
func (r *Reader) chooseFields() error {
	var have []string
	for i := range r.split.Shards {
		for _, f := range r.split.Shards[i].Fields {
			if at, found := slices.BinarySearch(have, f.Name); !found {
				have = slices.Insert(have, at, f.Name)
			}
		}
	}
	r.wanted.image = r.config.Decode == DecodeImage
	if r.wanted.image && r.split.Samples > 0 && sample.Image(have, func(f string) string { return f }) < 0 {
		return fmt.Errorf("%w: %s: split %q has no images, its fields are: %s; set decode to %q",
			ErrConfig, r.url(), r.split.Name, strings.Join(have, ", "), DecodeNone)
	}
	r.wanted.choose(&r.config, have)
	for _, name := range r.wanted.names {
		if _, found := slices.BinarySearch(have, name); !found {
			return fmt.Errorf("%w: %s: split %q has no field %q, its fields are: %s", ErrConfig, r.url(), r.split.Name, name, strings.Join(have, ", "))
		}
	}
	return nil
}

// divideMemory divides Config.Memory between the index and the pool of a pass.
func (r *Reader) divideMemory() error {
	c := &r.config
	// What a batch takes: its images, labels and other tensors, of the bucket that has
	// the largest, and about so many bytes of fields.
	batch, guessed := int64(0), int64(0)
	for i := range r.canvases {
		p := &r.canvases[i]
		batch = max(batch, p.sampleBytes()*int64(c.BatchSize)+c.blendBytes(c.BatchSize, p.bytes))
		guessed = max(guessed, p.likely(c, r.likelyPixels())*int64(c.BatchSize))
	}
	makers := r.canvases[0].makers
	var fields int64
	for i := range r.split.Shards {
		for _, f := range r.split.Shards[i].Fields {
			if _, found := slices.BinarySearch(r.wanted.names, f.Name); found && r.wanted.stays(f.Name) {
				fields += f.Bytes + fieldAlign*f.Count
			}
			for k := range makers {
				if m := &makers[k]; !m.fixed() && m.channels == 0 && m.Field == f.Name {
					fields += m.room(f.Bytes) + (m.unit+16)*f.Count
				}
			}
		}
	}
	batch += fields / max(1, r.split.Samples) * int64(c.BatchSize)
	if c.Slabs != nil {
		batch += tableBytes(c.BatchSize, len(r.wanted.names)) + expectedKey*int64(c.BatchSize)
	}
	sure := sizeClass(batch + guessed/4)
	batch = sizeClass(batch + guessed)
	r.batch = batch
	r.ahead = r.planAhead()
	cols := len(r.wanted.names)
	if r.wanted.image {
		cols++
	}
	rows := r.split.Samples*rowBytes(cols)*3/2 + 512*int64(len(r.counts))
	if r.ahead.bytes > 0 {
		rows += r.split.Samples * wantBytes
	}
	if r.chooseSeek(); r.points {
		rows += 8 * r.split.Samples
	}
	whole := rows
	r.fetchers, r.indexLoads = localFetchers, localIndexLoads
	if r.remote() {
		r.fetchers, r.indexLoads = remoteFetchers, remoteIndexLoads
		if c.Cache != (cache.Config{}) {
			r.fetchers = cachedFetchers
		}
	}
	var buffers int64
	if c.Cache != (cache.Config{}) {
		most := int64(maxRead)
		if r.ahead.bytes > 0 {
			most = 2 * spanSize
		}
		buffers = int64(r.fetchers) * c.Cache.Buffer(most)
	}
	if r.frames {
		frames := int64(maxFrames)
		if c.Memory > 0 {
			frames = min(frames, c.Memory/8)
		}
		buffers += frames
		r.shared = compress.NewFrames(frames)
		for i := range r.sets {
			r.sets[i].data = r.sets[i].data.Share(r.shared)
		}
	}
	if r.chosen != nil {
		buffers += r.chosen.bytes()
	}
	if r.wanted.image {
		r.scratch = newScratchMemory(c.Memory, c.Workers)
		buffers += r.scratch.size + r.scratch.small
	}
	if c.Memory == 0 {
		rows = min(rows, 1<<30)
		c.Memory = 4*batch + 128<<20 + rows + buffers + min(r.ahead.bytes, maxAutoAhead)
	} else {
		rows = min(rows, c.Memory/4)
	}
	r.poolBytes = c.Memory - rows - buffers
	if least := 2*sure + 1<<20; r.poolBytes < least {
		least += buffers
		return fmt.Errorf("%w: memory: %d bytes, of which the index has %d, and cache, sampling, decompression and decoding have %d, do not hold two batches of %d: give %d or more, or lower batch_size",
			ErrConfig, c.Memory, rows, buffers, sure, least+least/3+1)
	}
	// Spans leave room for batches and for what is read alone.
	r.ahead.bytes = max(0, min(r.ahead.bytes, r.poolBytes-3*batch-r.poolBytes/8))
	if !r.remote() || r.ahead.bytes > 0 {
		r.ready = localReady(batch, c.BatchSize, c.Workers)
		if r.remote() {
			r.ready = max(r.ready, min(ahead, remoteSamples/c.BatchSize))
		}
	}
	r.reserved = buffers
	r.counters.memory.add(buffers)
	kept := rows
	if r.ahead.rows = rows; r.ahead.bytes > 0 && rows < whole {
		r.ahead.rows = rows / 3
		kept -= r.ahead.rows
	}
	r.rows = newRowCache(kept, r.counters.memory, r.loadRows)
	return nil
}

// expectedKey is about how long a sample's key is.
const expectedKey = 64

// maxFrames is what frames of .zst shards are decompressed into and kept in, where memory
// allows it: 8 reads of spans beside each other, and 500 frames as this program writes
// them.
const maxFrames = 64 << 20

// loadRows reads and packs the index of a shard.
func (r *Reader) loadRows(ctx context.Context, number int) (packed *rows, err error) {
	sh, data := &r.split.Shards[number], r.setOf(number).data
	c := &r.counters.index
	var l lap
	l.enter(ctx, c, nil, "index")
	defer func() {
		l.leave()
		c.items.Add(1)
		c.bytes.Add(sh.Index.Bytes)
		if err != nil {
			c.errors.Add(1)
		}
	}()
	var points []int64
	var beside sync.WaitGroup
	if r.points && sh.Seek != nil {
		beside.Go(func() { points = r.loadPoints(ctx, number) })
		defer beside.Wait()
	}
	raw, err := data.ReadIndex(ctx, sh)
	if errors.Is(err, shard.ErrChecksum) {
		// What the way has spoiled may come whole the next time.
		r.counters.rereads.Add(1)
		raw, err = data.ReadIndex(cache.Fresh(ctx), sh)
	}
	if err == nil {
		select {
		case r.unpacking <- struct{}{}:
			packed, err = r.unpack(number, raw)
			<-r.unpacking
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err != nil {
		if gone(err) || damaged(err) || errors.Is(err, index.ErrInvalid) {
			if _, other := r.setOf(number).replaced(ctx); errors.Is(other, ErrReplaced) {
				return nil, fmt.Errorf("%w (%w)", other, err)
			}
		}
		return nil, err
	}
	beside.Wait()
	if packed.points = points; points == nil && ctx.Err() != nil {
		return nil, context.Cause(ctx) // others may still want them
	}
	return packed, nil
}

// unpack packs the index of a shard.
func (r *Reader) unpack(number int, raw []byte) (*rows, error) {
	sh, data := &r.split.Shards[number], r.setOf(number).data
	table, err := data.DecodeIndex(sh, raw)
	if err != nil {
		return nil, err
	}
	packed, err := r.wanted.pack(table)
	if err != nil {
		return nil, fmt.Errorf("index %s/%s: %w", data.URL(), sh.Index.Name, err)
	}
	return packed, nil
}

// shardPath names a shard for people.
func (r *Reader) shardPath(shard int32) string {
	if r.stream != nil {
		return r.stream.titles[shard]
	}
	return r.setOf(int(shard)).data.URL() + "/" + r.split.Shards[shard].Name
}

// Config returns the configuration with everything that was left to the reader
// filled in.
func (r *Reader) Config() Config {
	c := r.config
	c.Fields, c.Tensors = slices.Clone(c.Fields), slices.Clone(c.Tensors)
	c.Transform = slices.Clone(c.Transform)
	return c
}

// Len is the number of batches in every epoch.
func (r *Reader) Len() int { return int(r.base.Batches()) }

// Samples is the number of samples in every epoch, over all ranks and before Ends drops
// or pads some: that of the split, or what Config.Sampling makes of it.
func (r *Reader) Samples() int64 { return r.base.Samples() }

// Dataset returns the data set that is read, the first one where there are several.
func (r *Reader) Dataset() *dataset.Dataset { return r.sets[0].data }

// Manifest returns the manifest of the data set, of the first one where there are
// several. It must not be changed.
func (r *Reader) Manifest() *index.Manifest { return r.sets[0].data.Manifest() }

// Plan returns the order of an epoch.
func (r *Reader) Plan(epoch int) (*Plan, error) {
	if r.chosen == nil {
		return NewPlan(r.counts, r.config.Order(), epoch)
	}
	if epoch < 0 {
		return nil, fmt.Errorf("epoch %d is negative", epoch)
	}
	m := r.chosen.draw(epoch)
	if r.chosen.bucketed {
		return newBucketPlan(m, r.chosen.split, r.config.Order(), epoch)
	}
	p, err := newPlan(m[0].starts, r.config.Order(), epoch, noBucket, int64(len(m[0].rows)))
	if err == nil {
		p.members, p.split = m[0], r.chosen.split
	}
	return p, err
}

// Key returns the key of a sample by its number in the split.
func (r *Reader) Key(ctx context.Context, n int64) (string, error) {
	if n < 0 || n >= r.split.Samples {
		return "", fmt.Errorf("sample %d of split %q, which has %d", n, r.split.Name, r.split.Samples)
	}
	shard, row := r.base.Locate(n)
	rows, err := r.rows.get(ctx, shard)
	if err != nil {
		return "", err
	}
	return string(rows.key(row)), nil
}

// Stats say how the reader has fared so far.
func (r *Reader) Stats() Stats {
	s := r.counters.stats()
	c := &r.counters
	s.Stages = Stages{
		Index: c.index.stats(r.indexLoads), Store: c.store.stats(r.fetchers), Decode: c.decode.stats(r.config.Workers),
		Transform: c.transform.stats(r.config.Workers), Collate: c.collate.stats(r.config.Workers),
	}
	s.Memory.Limit = r.config.Memory
	if r.shared != nil {
		s.Frames = r.shared.Decoded()
	}
	if r.points {
		s.Seek = c.seek.stats()
	}
	for i := range r.sets {
		st := r.sets[i].retried.Stats()
		s.Retries += st.Retries
		s.Stalls += st.Timeouts
		s.Throttled += st.Throttled
		s.Reads += st.Reads
		if c := r.sets[i].cached; c != nil {
			if s.Cache == nil {
				s.Cache = new(cache.Stats)
			}
			s.Cache.Add(c.Stats())
		}
	}
	return s
}

// Close ends passes and calls of Read that are running, with ErrClosed, and closes the
// shards.
func (r *Reader) Close() error {
	r.end()
	r.calls.close()
	return r.files.close()
}

// end ends passes that are running.
func (r *Reader) end() {
	r.close.Do(func() { close(r.done) })
	dropSpare(r.spare)
}
