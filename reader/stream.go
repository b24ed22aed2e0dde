package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"shardify/index"
	"shardify/shard/formats"
	"shardify/store/cache"
	"shardify/store/stream"
)

// Stream reads shards that have no index, epoch by epoch: tar and TFRecord files,
// plain or compressed, wherever they can be read from front to back. It gives the same
// batches as a Reader, with the same transforms, workers and memory. It is safe for
// concurrent use.
//
// # Order
//
// Nobody knows what is in the shards before they are read, so that an epoch is no
// permutation that could be computed. It is made thus:
//
//  1. The shards are permuted, by a keyed hash of (Seed, epoch), and dealt to the ranks
//     in turn: the i-th goes to rank i mod World. Where there are fewer shards than
//     ranks, every rank reads all of them and takes each World-th sample, decoding
//     only these.
//  2. A rank has Interleave of its shards open at a time, and takes Block samples of
//     each in turn; where one ends, the next takes its place.
//  3. They pass through a sliding buffer of Window samples: for each that comes in, one
//     drawn at random goes out. The buffer, and the batch that is being filled from
//     it, also hold no more than WindowBytes, by the size of the samples in their
//     shards: by default half of Config.Memory, or 256 MiB.
//
// So the order is a function of the streams' names and contents, the Config and the
// epoch, and of nothing else: not of workers, of what came first, or of which fields
// are read. ShuffleAuto is ShuffleWindow here; ShuffleShards does without step 3,
// ShuffleNone takes the streams as they were named, one after the other. ShuffleGlobal
// needs an index.
//
// A sample's number is its shard's, as List has it, times 2^32, and its place in the
// shard.
//
// # Length
//
// How many batches a rank has is known when its shards end, and differs between the
// ranks. (Where every rank reads all shards, they have equally many.) A training step
// that all ranks take together must not wait for a rank that has none left: set
// Sampling.Samples to the number of samples an epoch shall have, over all ranks. Then
// every rank gets the same number of batches, Len; where its shards end before, it
// reads them again, in another order; where they hold more, the rest is left out,
// others in each epoch.
//
// # What cannot be
//
// What needs to know all samples first is an ErrConfig: splits, choosing and weighing,
// buckets, substitutes for damaged samples. `shardify index` writes the index beside
// the shards, without touching them, and then Open reads them.
//
// Shards of others have no checksums but those of TFRecord, gzip and zstd: in a tar,
// a flipped bit shows only where it spoils a header or an image. Under OnBadSkip a
// shard that is missing, damaged or ends too early is read up to there; what follows
// counts as one damaged sample. A shard that changes while it is read, or that cannot
// be read for another reason, ends the pass.
type Stream struct {
	core   *Reader // what a pass uses of one
	names  []string
	titles []string
	opener *stream.Opener

	buffer   int64 // bytes that the sliding buffer may hold
	readBuf  int64 // bytes read ahead of each open shard
	consumed atomic.Bool
}

// Defaults of a Stream.
const (
	// DefaultStreamWindow is the sliding buffer's size in samples, in the upper half
	// of what WebDataset's users give it.
	DefaultStreamWindow = 4096
	// DefaultStreamBuffer bounds it in bytes, where Config.Memory does not: 2,400
	// photographs of ImageNet's.
	DefaultStreamBuffer = 256 << 20
)

const (
	// readAheadEach is how much of an open shard is read ahead, where Config.ReadAhead
	// does not say how much of all of them.
	readAheadEach = 4 << 20
	// standby is how many shards are opened before they are needed, so that their
	// servers' answers are not waited for.
	standby = 2
	// streamPixels is how many pixels an image of a stream is thought to have, where it
	// keeps them: those of ImageNet's have 400 x 350 on average.
	streamPixels = 400 * 350
	// scanWindow is what the scan of a shard holds.
	scanWindow = 64 << 10
)

// OpenStream opens shards without an index. Names are files, patterns and folders,
// named pipes, "-" for standard input, http:// and https:// URLs, all of them with
// braces as webdataset has them ("train-{000000..000146}.tar"): package store/stream.
// What kind of shard each is its first bytes say.
//
// It opens none of them: of files it looks whether they are there.
func OpenStream(ctx context.Context, names []string, config Config) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	config, err := streamConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	list, err := stream.List(names, isShard)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(list))
	for _, name := range list {
		if seen[name] && !stream.IsHTTP(name) && !stream.IsFile(name) {
			return nil, fmt.Errorf("%w: %s is named twice, and can be read by one at a time", ErrConfig, stream.Title(name))
		}
		seen[name] = true
	}
	opener, err := stream.New(config.Retry)
	if err != nil {
		return nil, err
	}
	s := &Stream{names: list, titles: make([]string, len(list)), opener: opener}
	for i, name := range list {
		s.titles[i] = stream.Title(name)
	}
	s.core = emptyReader(config)
	s.core.stream = s
	if s.core.canvases, err = config.canvases(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if config.blends() && config.Classes == 0 {
		return nil, fmt.Errorf("%w: classes: soft labels need their number, which streams do not tell: set it, or -1 for no soft labels", ErrConfig)
	}
	s.core.sampling, s.core.identity = config.Sampling.fingerprint(), s.identity()
	s.chooseFields()
	if err := s.divideMemory(); err != nil {
		return nil, err
	}
	return s, nil
}

// isShard says that a file is called as a shard.
func isShard(path string) bool {
	_, err := formats.OfFile(path)
	return err == nil
}

// streamConfig checks a configuration, and fills in what is left to the stream.
func streamConfig(c Config) (Config, error) {
	if c.Shuffle == ShuffleAuto {
		c.Shuffle = ShuffleWindow
	}
	// Either bounds the sliding buffer, and both may.
	bytes := c.WindowBytes
	if c.WindowBytes = 0; bytes > 0 {
		c.Window = or(c.Window, maxWindow)
	}
	c.Window, c.Block = or(c.Window, DefaultStreamWindow), or(c.Block, 1)
	if c.Shuffle == ShuffleNone {
		c.Interleave = or(c.Interleave, 1)
	}
	lanes := c.Lanes
	c.Lanes = max(c.World, 1) // each rank is one
	var faults []error
	needs := func(what string) {
		faults = append(faults, fmt.Errorf("%s: needs an index; `shardify index` writes one beside the shards", what))
	}
	if c.Split != "" {
		faults = append(faults, errors.New("split: streams have none; name the shards of one split"))
	}
	rest := c.Sampling
	rest.Samples = 0
	if !rest.isZero() {
		needs("sampling, but for samples")
	}
	if !c.Buckets.isZero() {
		needs("buckets")
	}
	if c.Cache != (cache.Config{}) {
		needs("cache")
	}
	if c.OnBad == OnBadSubstitute {
		needs(fmt.Sprintf("on_bad %q", OnBadSubstitute))
	}
	switch c.Shuffle {
	case ShuffleGlobal:
		needs(fmt.Sprintf("shuffle %q", ShuffleGlobal))
	case ShuffleNone:
		if c.Interleave != 1 {
			faults = append(faults, fmt.Errorf("interleave: shuffle %q reads one shard after the other", ShuffleNone))
		}
	}
	if lanes != 0 && lanes != c.Lanes {
		faults = append(faults, fmt.Errorf("lanes: %d; a stream has one for each rank, %d: leave it out", lanes, c.Lanes))
	}
	if c.Ends == EndsPad && c.Sampling.Samples == 0 {
		faults = append(faults, fmt.Errorf("ends: %q cannot be, as nobody knows where the other ranks end; set sampling.samples, the length of an epoch", EndsPad))
	}
	if bytes < 0 {
		faults = append(faults, fmt.Errorf("window_bytes: %d", bytes))
	}
	faults = append(faults, c.Validate())
	c.WindowBytes = bytes
	if err := errors.Join(faults...); err != nil {
		return c, err
	}
	c = c.withDefaults()
	c.SkipChecksums = true // there are none
	if c.MaxBad == 0 {
		c.MaxBad = 16
	}
	if n := c.Sampling.Samples; n > 0 && c.batches() == 0 {
		return c, fmt.Errorf("sampling: %d samples are less than one global batch of %d × %d; lower batch_size, or set ends to %q", n, c.BatchSize, c.World, EndsExact)
	}
	return c, nil
}

// batches is the number of batches in an epoch of Sampling.Samples.
func (c *Config) batches() int64 {
	global := int64(c.BatchSize) * int64(c.World)
	if c.Ends == EndsDrop {
		return c.Sampling.Samples / global
	}
	return (c.Sampling.Samples + global - 1) / global
}

// identity is what a State says of the streams.
func (s *Stream) identity() DataState {
	h := index.NewHash()
	for _, title := range s.titles {
		fmt.Fprintf(h, "%q\n", title)
	}
	return DataState{Name: s.titles[0], Shards: len(s.names), Checksum: index.NewChecksum(h.Sum64())}
}

// chooseFields decides which fields are read.
func (s *Stream) chooseFields() {
	w := &s.core.wanted
	w.image = s.core.config.Decode == DecodeImage
	w.choose(&s.core.config, nil)
}

// divideMemory divides Config.Memory among the sliding buffer, what is read ahead, and
// the batches.
func (s *Stream) divideMemory() error {
	c := &s.core.config
	canvas := &s.core.canvases[0]
	each := canvas.sampleBytes() + canvas.likely(c, streamPixels)
	batch := int64(c.BatchSize)*each + c.blendBytes(c.BatchSize, canvas.bytes)
	if c.Slabs != nil {
		batch += tableBytes(c.BatchSize, len(s.core.wanted.names)) + expectedKey*int64(c.BatchSize)
	}
	batch = sizeClass(batch)
	s.core.batch = batch
	open := s.mostOpen()
	s.buffer, s.readBuf = c.WindowBytes, readAheadEach
	if c.ReadAhead > 0 {
		s.readBuf = max(scanWindow, c.ReadAhead/open)
	} else if c.ReadAhead < 0 {
		s.readBuf = scanWindow
	}
	if c.Memory == 0 {
		s.buffer = or(s.buffer, DefaultStreamBuffer)
		c.Memory = s.buffer + open*(s.readBuf+scanWindow) + 4*batch + 128<<20
	} else {
		s.buffer = or(s.buffer, c.Memory/2)
		s.readBuf = min(s.readBuf, c.Memory/8/open)
	}
	s.core.poolBytes = c.Memory - open*(s.readBuf+scanWindow)
	if rest := s.core.poolBytes - s.buffer; s.readBuf < scanWindow || rest < 2*batch+1<<20 {
		least := max(8*open*scanWindow, (open*scanWindow+2*batch+1<<20)*8/3+1)
		if c.WindowBytes > 0 {
			least = max(8*open*scanWindow, (s.buffer+open*scanWindow+2*batch+1<<20)*8/7+1)
		}
		return fmt.Errorf("%w: memory: %d bytes do not hold the sliding buffer, %d open shards and two batches of %d bytes; give %d or more, or lower batch_size, interleave or window_bytes",
			ErrConfig, c.Memory, open, batch, least)
	}
	s.core.scratch = newScratchMemory(c.Memory, c.Workers)
	c.WindowBytes, c.ReadAhead = s.buffer, open*s.readBuf
	return nil
}

// mostOpen is how many shards are open at a time.
func (s *Stream) mostOpen() int64 {
	n := int64(s.core.config.Interleave) + standby
	if s.core.config.Sampling.Samples == 0 {
		n = min(n, int64(len(s.names)))
	}
	return n
}

// ahead is the memory that is not the pool's.
func (s *Stream) ahead() int64 { return s.mostOpen() * (s.readBuf + scanWindow) }

// Names are the streams that an epoch reads, in the order in which they were named. It
// is the caller's.
func (s *Stream) Names() []string { return slices.Clone(s.names) }

// Config returns the configuration with everything that was left to the stream filled
// in.
func (s *Stream) Config() Config { return s.core.Config() }

// Len is the number of batches in every epoch where Sampling.Samples says how long it
// is; known is false where only its end will tell.
func (s *Stream) Len() (batches int64, known bool) {
	c := &s.core.config
	return c.batches(), c.Sampling.Samples > 0
}

// Epoch reads an epoch and yields its batches; see Reader.Epoch.
func (s *Stream) Epoch(ctx context.Context, epoch int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		if epoch < 0 {
			yield(nil, fmt.Errorf("epoch %d is negative", epoch))
			return
		}
		s.read(ctx, epoch, nil, yield)
	}
}

// Epochs reads from a state on until epoch end would begin, which is never where end is
// negative; see Reader.Epochs. Each epoch is a pass of its own: the next one's shards are
// opened when the last batch has been taken.
//
// To find the state's place, the order is made over again: of uncompressed tars on a disk
// only the headers are read for that, all else is read whole, and nothing is decoded. A
// pipe must give the same bytes again; standard input can only where this process has not
// read it. A state that does not fit, or to which the shards do not lead any more, is an
// error that wraps ErrState. One right behind an epoch's last batch is the beginning of the
// next epoch.
func (s *Stream) Epochs(ctx context.Context, from State, end int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		if err := s.CheckState(from); err != nil {
			yield(nil, err)
			return
		}
		state := &from
		for epoch := from.Epoch; end < 0 || epoch < end; epoch++ {
			if !s.read(ctx, epoch, state, yield) {
				return
			}
			state = nil
		}
	}
}

// read yields the batches of an epoch, from a state on where that is not nil. It is false
// where that was not to the end.
func (s *Stream) read(ctx context.Context, epoch int, from *State, yield func(*Batch, error) bool) (whole bool) {
	if s.consumed.Load() && slices.ContainsFunc(s.names, stream.Once) {
		yield(nil, s.again())
		return false
	}
	p := s.core.emptyPass(ctx)
	f := newFiller(s, p, epoch, from)
	p.from = f.from
	p.source = f.fill
	s.core.deliver(p, yield)
	return p.whole || f.past
}

// again is the error for what cannot be read a second time.
func (s *Stream) again() error {
	return fmt.Errorf("%s has been read, and cannot be read again: for several epochs, or to go on within a process, write it to a file and name that", stream.Title(stream.Stdin))
}

// BadSamples reports the damaged samples; see Reader.BadSamples.
func (s *Stream) BadSamples() []BadSample { return s.core.BadSamples() }

// Stats say how the stream has fared so far.
func (s *Stream) Stats() Stats {
	st := s.core.Stats()
	st.Stages.Store.Goroutines = int(s.mostOpen())
	of := s.opener.Stats()
	st.Retries, st.Stalls = of.Retries, of.Timeouts
	return st
}

// Close ends passes that are running, with ErrClosed.
func (s *Stream) Close() error {
	s.core.end()
	s.opener.Close()
	return nil
}
