package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"shardify/imaging/jpeg"
	"shardify/index"
	"shardify/index/seek"
	"shardify/sample"
	"shardify/shard"
	"shardify/store"
	"shardify/store/ahead"
)

// SeekName returns the name of the side file of seek points that goes with a shard: that
// of its index, with .seek for .parquet.
func SeekName(shard string) string {
	return strings.TrimSuffix(IndexName(shard), ".parquet") + ".seek"
}

// SeekMaker finds the seek points of images for side files, on goroutines of its own, each
// of which has several images in hand. It is the one place that does, so that packing and
// indexing make the same of the same bytes. Its methods are safe for concurrent use.
type SeekMaker struct {
	every   int
	tasks   chan *SeekTask
	group   sync.WaitGroup
	entries sync.Pool // of *seekEntry, for their memory
}

// SeekTask is an image whose seek points are wanted.
type SeekTask struct {
	// File is the image's file. It must not change before the points are found.
	File []byte
	// Found, if there is one, is called when Entry and JPEG are set, by a goroutine of
	// the maker; it must not wait for anything.
	Found func()
	// Entry is what the side file has of the image, as seek.Append makes it, in the memory
	// that was there, and JPEG says whether it is a JPEG. There is no entry of one that has
	// several scans, as progressive ones have, or any damage, or that is of a kind that is
	// not decoded: that is no fault here, as it is decoded, or not, without seek points.
	Entry []byte
	JPEG  bool
}

// NewSeekMaker starts a maker with so many goroutines; every is as seek.NewWriter's.
func NewSeekMaker(every, workers int) *SeekMaker {
	m := &SeekMaker{every: every, tasks: make(chan *SeekTask, 8*workers)}
	for range workers {
		m.group.Go(m.work)
	}
	return m
}

// Find begins to find an image's seek points; it waits while there are many before it. The
// task is the maker's until Found is called.
func (m *SeekMaker) Find(t *SeekTask) { m.tasks <- t }

// Close finds what has been begun, and ends the goroutines. Find must not be called any
// more.
func (m *SeekMaker) Close() {
	close(m.tasks)
	m.group.Wait()
}

func (m *SeekMaker) work() {
	var d jpeg.Decoder
	q := seekQueue{every: m.every, tasks: m.tasks}
	for t := range m.tasks {
		q.first = t
		d.DecodeQueue(&q)
	}
}

// seekQueue is the decoder's queue of one of a maker's goroutines. It waits for no task
// while others are in hand.
type seekQueue struct {
	every int
	tasks <-chan *SeekTask
	first *SeekTask
	jobs  []*seekJob
}

// seekJob is a task in hand, if task is not nil.
type seekJob struct {
	jpeg.Job
	seek   jpeg.Seek
	points []byte
	task   *SeekTask
}

func (q *seekQueue) Next() *jpeg.Job {
	for {
		t := q.first
		if q.first = nil; t == nil {
			select {
			case t = <-q.tasks:
			default:
			}
		}
		if t == nil { // none there, or no more to come
			return nil
		}
		t.Entry = t.Entry[:0]
		if t.JPEG = bytes.HasPrefix(t.File, []byte("\xff\xd8\xff")); !t.JPEG {
			t.found()
			continue
		}
		j := q.idle()
		j.task, j.Job = t, jpeg.Job{Data: t.File, Find: &j.seek, FindEvery: q.every}
		return &j.Job
	}
}

// idle is a job without a task.
func (q *seekQueue) idle() *seekJob {
	for _, j := range q.jobs {
		if j.task == nil {
			return j
		}
	}
	j := new(seekJob)
	q.jobs = append(q.jobs, j)
	return j
}

func (q *seekQueue) Done(job *jpeg.Job) {
	for _, j := range q.jobs {
		if &j.Job == job {
			t := j.task
			j.task = nil
			if job.Err == nil {
				j.points = j.seek.Append(j.points[:0])
				t.Entry = seek.Append(t.Entry, t.File, j.points)
			}
			j.Job = jpeg.Job{}
			t.found()
			return
		}
	}
}

func (t *SeekTask) found() {
	if t.Found != nil {
		t.Found()
	}
}

// seekMemory bounds what is held of images whose points are being found, in all shards
// together; an image that is larger is looked at alone.
const seekMemory = 64 << 20

// seekShard makes the side file of a shard whose samples come one by one, while the
// points of those before are found. It is not for concurrent use.
type seekShard struct {
	maker  *SeekMaker
	memory *semaphore.Weighted // seekMemory bytes
	w      *seek.Writer
	ahead  []*seekEntry // in their order, not yet written
	jpegs  int64
}

// seekEntry is a sample whose entry is not yet written.
type seekEntry struct {
	SeekTask
	crc    uint32
	weight int64
	found  chan struct{} // gets a value
}

// seekAhead bounds the samples that are ahead of the one whose points are awaited.
const seekAhead = 256

func newSeekShard(out io.Writer, m *SeekMaker, memory *semaphore.Weighted) *seekShard {
	return &seekShard{maker: m, memory: memory, w: seek.NewWriter(out, m.every)}
}

// add adds a sample: its image's file, of which a copy is made, and the CRC-32C of that.
// Where file is empty, it has no points.
func (s *seekShard) add(ctx context.Context, crc uint32, file []byte) error {
	if len(s.ahead) >= seekAhead {
		if err := s.write(1); err != nil {
			return err
		}
	}
	weight := min(int64(len(file)), seekMemory)
	if !s.memory.TryAcquire(weight) {
		// Who waits for memory has none itself, so that somebody has it that goes on.
		if err := s.write(len(s.ahead)); err != nil {
			return err
		}
		if err := s.memory.Acquire(ctx, weight); err != nil {
			return context.Cause(ctx)
		}
	}
	e, _ := s.maker.entries.Get().(*seekEntry)
	if e == nil {
		e = &seekEntry{found: make(chan struct{}, 1)}
		e.Found = func() { e.found <- struct{}{} }
	}
	e.crc, e.weight = crc, weight
	e.File = append(e.File[:0], file...)
	s.ahead = append(s.ahead, e)
	s.maker.Find(&e.SeekTask)
	return nil
}

// write writes the first n entries, when they are found.
func (s *seekShard) write(n int) error {
	for range n {
		e := s.next()
		if e.JPEG {
			s.jpegs++
		}
		if err := s.w.Add(e.crc, e.Entry); err != nil {
			return err
		}
		s.maker.entries.Put(e)
	}
	return nil
}

// next takes the first entry, when it is found.
func (s *seekShard) next() *seekEntry {
	e := s.ahead[0]
	s.ahead = s.ahead[1:]
	<-e.found
	s.memory.Release(e.weight)
	return e
}

// close ends the file, which is that of a shard.
func (s *seekShard) close(shard *index.File) (index.Seek, error) {
	if err := s.write(len(s.ahead)); err != nil {
		return index.Seek{}, err
	}
	return s.w.Close(shard)
}

// end drops what is not yet written, when nobody works at it any more. Call it always.
func (s *seekShard) end() {
	for len(s.ahead) > 0 {
		s.next()
	}
}

// SeekFile is a side file of seek points open for reading. Its methods are safe for
// concurrent use.
type SeekFile struct {
	d      *Dataset
	shard  *index.Shard
	object store.Object
}

// OpenSeek opens the side file of a shard that has one; sh.Seek must not be nil. It must
// have the size that the manifest gives: another one is ErrMismatch.
func (d *Dataset) OpenSeek(ctx context.Context, sh *index.Shard) (*SeekFile, error) {
	o, err := d.store.Open(store.WithSize(ctx, sh.Seek.Bytes), sh.Seek.Name)
	if err != nil {
		return nil, fmt.Errorf("seek points of shard %s: %w", sh.Name, err)
	}
	if err := checkSize("seek points "+d.path(sh.Seek.Name), o.Info().Size, sh.Seek.Bytes); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &SeekFile{d: d, shard: sh, object: o}, nil
}

// ReadAt fills p from byte off of the file on: one read of the store. The bytes are not
// checked; seek.ParseEntry does that.
func (f *SeekFile) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := f.object.ReadAt(ctx, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("seek points %s: %w", f.d.path(f.shard.Seek.Name), err)
	}
	return n, err
}

// Table reads where the entries lie, with one read of 8 bytes a sample. It is checked
// against its checksum and that of the shard in the manifest. Errors name the file and
// wrap those of seek.ParseTail, or what the store says.
func (f *SeekFile) Table(ctx context.Context) (*seek.Table, error) {
	name, said := f.d.path(f.shard.Seek.Name), f.shard.Seek
	n := seek.TailBytes(f.shard.Samples)
	if n > said.Bytes {
		return nil, fmt.Errorf("%s: seek points %w: %d bytes are too few for %d samples", name, index.ErrInvalid, said.Bytes, f.shard.Samples)
	}
	tail := make([]byte, n)
	if got, err := f.ReadAt(ctx, tail, said.Bytes-n); got < len(tail) {
		return nil, fmt.Errorf("%s: %d bytes at %d: %w", name, n, said.Bytes-n, err)
	}
	t, err := seek.ParseTail(tail, said.Bytes, &f.shard.File, f.shard.Samples)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// Close ends reading.
func (f *SeekFile) Close() error { return f.object.Close() }

// imageOf returns the field that a sample's seek points are of; nil if there is none.
func imageOf(row *index.Row) *index.FieldRow {
	at := sample.Image(row.Fields, func(f index.FieldRow) string { return f.Name })
	if at < 0 {
		return nil
	}
	return &row.Fields[at]
}

// SeekOptions are the options of AddSeek. The zero value adds points at the beginning of
// each row of MCUs to all shards that have none.
type SeekOptions struct {
	// Every is how many MCUs lie between the points of a row; 0: each row has one.
	Every int `json:"every,omitempty"`
	// Workers is how many shards are read, and goroutines look for points, at once; 0
	// means GOMAXPROCS.
	Workers int `json:"workers,omitempty"`
	// Progress, if not nil, is counted up: Bytes of the shards' files.
	Progress *Progress `json:"-"`
}

// Validate reports every fault of the options.
func (o *SeekOptions) Validate() error {
	var faults []error
	if o.Every < 0 || o.Every > seek.MaxEvery {
		faults = append(faults, fmt.Errorf("every: %d is not from 0 to %d", o.Every, seek.MaxEvery))
	}
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers: %d is negative", o.Workers))
	}
	return errors.Join(faults...)
}

// AddSeek gives the shards of a data set side files of seek points, and the manifest
// their names. Nothing else is touched: of the shards only their images are read, of the
// indexes nothing changes. A shard without JPEGs gets none. A side file that is there
// already, with that spacing and the manifest's checksum, stays: so a data set that has
// grown is brought up to date, and a damaged side file is replaced.
//
// An image whose bytes are not those that were written has no points: it is given to
// report, never from two goroutines at once. The manifest that is returned is that of the
// data set from now on; d still has the old one.
func AddSeek(ctx context.Context, d *Dataset, opts SeekOptions, report func(BadSample)) (*index.Manifest, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Progress == nil {
		opts.Progress = new(Progress)
	}
	m := *d.manifest
	m.Splits = slices.Clone(m.Splits)
	var todo []*index.Shard
	for i := range m.Splits {
		s := &m.Splits[i]
		s.Shards = slices.Clone(s.Shards)
		for j := range s.Shards {
			todo = append(todo, &s.Shards[j])
			opts.Progress.Total.Add(s.Shards[j].Bytes)
		}
	}
	a := &seekAdding{d: d, opts: opts, report: report, maker: NewSeekMaker(opts.Every, opts.Workers), memory: semaphore.NewWeighted(seekMemory)}
	defer a.maker.Close()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(opts.Workers)
	for _, sh := range todo {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error {
			defer opts.Progress.Shards.Add(1)
			if sh.Seek != nil && sh.Seek.Every == opts.Every && d.intactSeek(gctx, sh) {
				opts.Progress.Bytes.Add(sh.Bytes)
				opts.Progress.Samples.Add(sh.Samples)
				return nil
			}
			return a.one(gctx, sh)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return writeManifest(ctx, d.store, &m)
}

// intactSeek says whether the side file of a shard is what the manifest describes, and of
// use.
func (d *Dataset) intactSeek(ctx context.Context, sh *index.Shard) bool {
	f, err := d.OpenSeek(ctx, sh)
	if err != nil {
		return false
	}
	defer f.Close()
	file := newObjectReader(ctx, f.d.store.URL(), f.object, ahead.Ranges, func(int) {})
	defer file.close()
	if _, err = io.Copy(io.Discard, file); err != nil || index.NewChecksum(file.hash.Sum64()) != sh.Seek.Checksum {
		return false
	}
	_, err = f.Table(ctx) // of a form that is read no more, or of what the shard was before
	return err == nil
}

// seekAdding is one run of AddSeek.
type seekAdding struct {
	d      *Dataset
	opts   SeekOptions
	maker  *SeekMaker
	memory *semaphore.Weighted
	mu     sync.Mutex // of report
	report func(BadSample)
}

func (a *seekAdding) bad(b BadSample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report(b)
}

// one makes the side file of a shard, and sets its entry in the manifest.
func (a *seekAdding) one(ctx context.Context, sh *index.Shard) error {
	was := sh.Seek
	sh.Seek = nil
	rows, err := a.d.Rows(ctx, sh)
	if err != nil {
		return err
	}
	progress := a.opts.Progress
	if !mayHaveJPEGs(rows) {
		progress.Bytes.Add(sh.Bytes)
		progress.Samples.Add(sh.Samples)
		return nil
	}
	file, err := a.d.OpenShard(ctx, sh)
	if err != nil {
		return err
	}
	defer file.Close()
	name := SeekName(sh.Name)
	if was != nil {
		name = was.Name
	}
	if err := a.d.store.Sweep(ctx, name); err != nil { // what a killed run left
		return err
	}
	out, err := a.d.store.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := newSeekShard(out, a.maker, a.memory)
	defer w.end()
	in := chunks{file: file}
	done := int64(0) // of the file's bytes, for the progress
	for i := range rows {
		row := &rows[i]
		field := imageOf(row)
		var data []byte
		var crc uint32
		if field != nil {
			crc = field.CRC32C
			if data, err = in.field(ctx, row, field); err != nil {
				if !isDamage(err) {
					return err
				}
				a.bad(BadSample{Shard: sh.Name, Key: row.Key, Field: field.Name, Offset: field.Offset, Err: err})
				data = nil
			}
		}
		if err := w.add(ctx, crc, data); err != nil {
			return err
		}
		progress.Samples.Add(1)
		if at := int64(float64(i+1) / float64(len(rows)) * float64(sh.Bytes)); at > done {
			progress.Bytes.Add(at - done)
			done = at
		}
	}
	points, err := w.close(&sh.File)
	if err != nil {
		return err
	}
	if w.jpegs == 0 {
		if was != nil {
			return a.d.store.Remove(ctx, name)
		}
		return nil
	}
	points.Name = name
	if err := out.Commit(ctx); err != nil {
		return err
	}
	sh.Seek = &points
	return nil
}

// mayHaveJPEGs says whether any image may be a JPEG. Where images were not looked at, any
// may be.
func mayHaveJPEGs(rows []index.Row) bool {
	return slices.ContainsFunc(rows, func(r index.Row) bool {
		return r.Format == "jpeg" || r.Format == "" && imageOf(&r) != nil
	})
}

// isDamage says that an error is about the bytes of a sample, and not that they could not
// be read.
func isDamage(err error) bool {
	var format *shard.FormatError
	return errors.Is(err, shard.ErrChecksum) || errors.Is(err, shard.ErrTruncated) || errors.As(err, &format)
}

// chunks reads fields of a shard in the order in which they lie, in reads of some
// megabytes: stores that answer late are asked seldom.
type chunks struct {
	file *ShardFile
	buf  []byte
	at   int64 // of buf in the container
	one  []byte
}

const chunkSize = 4 << 20

// field returns a field's content, checked against its CRC-32C, until the next call.
func (c *chunks) field(ctx context.Context, row *index.Row, field *index.FieldRow) ([]byte, error) {
	if field.Offset < 0 {
		frame, err := c.read(ctx, row.Offset, row.Size)
		if err != nil {
			return nil, err
		}
		return c.file.ParseField(frame, row, field)
	}
	data, err := c.read(ctx, field.Offset, field.Size)
	if err != nil {
		return nil, err
	}
	if sum := index.FieldChecksum(data); sum != field.CRC32C {
		return nil, fmt.Errorf("%w: the %d bytes have CRC-32C %08x, the index says %08x", shard.ErrChecksum, len(data), sum, field.CRC32C)
	}
	return data, nil
}

// read returns some bytes of the container.
func (c *chunks) read(ctx context.Context, off, size int64) ([]byte, error) {
	if end := c.at + int64(len(c.buf)); off < c.at || off+size > end {
		if size > chunkSize {
			var err error
			c.one, err = c.file.read(ctx, off, size, c.one)
			return c.one, err
		}
		n := min(chunkSize, max(size, c.file.size-off))
		buf, err := c.file.read(ctx, off, n, c.buf)
		if err != nil { // perhaps in what is not wanted
			c.buf = nil
			c.one, err = c.file.read(ctx, off, size, c.one)
			return c.one, err
		}
		c.buf, c.at = buf, off
	}
	return c.buf[off-c.at:][:size], nil
}
