package pack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"shardify/dataset"
	"shardify/imaging"
	"shardify/imaging/jpeg"
	"shardify/index"
	"shardify/index/seek"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/source"
	"shardify/store"
)

// labelField is the field that holds a sample's class number in decimal.
const labelField = "cls"

// ErrBad ends a run that meets a bad file under OnBadFail.
var ErrBad = errors.New("bad file")

// done is the record of a finished shard.
type done struct {
	Plan  planID      `json:"plan"`
	Shard index.Shard `json:"shard"`
	Bad   []Bad       `json:"bad,omitempty"`
	// Samples and Bytes are what was read for it, for the progress of a later run.
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// Images counts what became of the images, under Config.Convert.
	Images Conversions `json:"images,omitzero"`
}

// packer packs the shards of a plan.
type packer struct {
	st      store.Store
	plan    *plan
	sources sources
	env     Env
	format  formats.Format
	every   int                 // the spacing of seek points; -1 for none
	maker   *dataset.SeekMaker  // that finds them; nil where they are not wanted
	memory  *semaphore.Weighted // for the samples' files: env.Memory bytes, or half of it
	buffers buffers
	// Where images are converted, the other half, and the images that they become.
	half      int64
	pixels    *semaphore.Weighted
	converted buffers
	bad       atomic.Int64 // bad samples met, over all shards
}

func newPacker(st store.Store, pl *plan, src sources, env Env) (*packer, error) {
	format, err := formats.Parse(pl.Config.Format)
	if err != nil {
		return nil, err
	}
	every, err := pl.Config.seekEvery()
	if err != nil {
		return nil, err
	}
	p := &packer{st: st, plan: pl, sources: src, env: env, format: format, every: every}
	if pl.Config.Convert.any() {
		p.half = env.Memory / 2
		p.pixels, p.converted.most = semaphore.NewWeighted(p.half), p.half
		p.env.Memory -= p.half
	}
	p.memory, p.buffers.most = semaphore.NewWeighted(p.env.Memory), p.env.Memory
	return p, nil
}

// job is a sample on its way from the plan to the shard.
type job struct {
	it     item
	size   int64 // of its files
	weight int64 // what its buffer holds of the packer's memory
	ready  chan struct{}
	buf    []byte
	sample sample.Sample
	facts  shard.Facts
	paths  []string
	orient int
	seek   dataset.SeekTask // the main image's seek points, where they are wanted
	reason string           // why the sample is bad; empty if it is not
	path   string           // the bad file
	err    error

	// What becomes of its image, what that takes of the packer's memory for pixels, and
	// the buffer of the new file.
	intent intent
	before int // its bytes
	held   int64
	out    []byte
}

// jobsAhead is how many samples a reading goroutine may be ahead of the writer:
// enough that tiny files do not wait for each other, while memory bounds large ones.
const jobsAhead = 64

// shard packs shard n with readers goroutines that read and check, and returns its
// record. The shard and its index are committed; the record is the caller's to
// write.
func (p *packer) shard(ctx context.Context, n, readers int) (*done, error) {
	planned := &p.plan.Shards[n]
	rec, err := p.write(ctx, n, readers)
	if err != nil {
		return nil, fmt.Errorf("shard %q: %w", planned.Name, err)
	}
	return rec, nil
}

func (p *packer) write(ctx context.Context, n, readers int) (*done, error) {
	planned := &p.plan.Shards[n]
	w, err := p.create(ctx, planned.Name)
	if err != nil {
		return nil, err
	}
	defer w.abort()
	rec := &done{Plan: p.plan.id}
	if err := p.samples(ctx, n, readers, func(j *job) error {
		rec.Samples++
		rec.Bytes += j.size
		if j.reason == "" {
			p.countImage(&rec.Images, j)
			return w.sample(j)
		}
		return p.leaveOut(ctx, rec, planned.Split, j)
	}); err != nil {
		return nil, err
	}
	rec.Shard, err = w.commit(ctx)
	return rec, err
}

// leaveOut deals with a bad sample.
func (p *packer) leaveOut(ctx context.Context, rec *done, split string, j *job) error {
	cfg := &p.plan.Config
	if cfg.OnBad == OnBadFail {
		return fmt.Errorf("%w: %q: %s; mend or remove it, or choose --on-bad skip or quarantine", ErrBad, j.path, j.reason)
	}
	if p.bad.Add(1) > maxBad {
		return ErrTooManyBad
	}
	p.env.Progress.Bad.Add(1)
	rec.Bad = append(rec.Bad, Bad{Split: split, Key: j.it.key, Path: sample.Escape(j.path), Reason: j.reason})
	if cfg.OnBad != OnBadQuarantine {
		return nil
	}
	bad := &rec.Bad[len(rec.Bad)-1]
	for i := range j.sample.Fields {
		if j.paths[i] == "" {
			continue
		}
		name, err := p.quarantine(ctx, j.paths[i], j.sample.Fields[i].Data)
		if err != nil {
			return err
		}
		bad.Copies = append(bad.Copies, name)
	}
	return nil
}

// quarantine writes a copy of a bad sample's file, under its own path or, where no
// file can be called so, under the digest of the path. It returns the copy's name.
func (p *packer) quarantine(ctx context.Context, file string, data []byte) (string, error) {
	name := index.QuarantinePrefix + path.Clean("/" + file)[1:] // shards of others have names like ./x
	err := store.WriteAll(ctx, p.st, name, data)
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrNoSpace) || errors.Is(err, fs.ErrPermission) {
		return name, err
	}
	sum := sha256.Sum256([]byte(file))
	name = index.QuarantinePrefix + hex.EncodeToString(sum[:])
	return name, store.WriteAll(ctx, p.st, name, data)
}

// countImage counts what became of a sample's image.
func (p *packer) countImage(c *Conversions, j *job) {
	if p.pixels == nil || j.facts.Image < 0 {
		return
	}
	var one Conversions
	one.count(&j.intent, j.before, len(j.sample.Fields[j.facts.Image].Data))
	c.add(&one)
	p.env.Progress.convert(&one)
}

// samples reads the samples of shard n, a few at once, and hands them to each in
// their order. each must not keep the job.
//
// Where images are converted, a second step comes between: in the samples' order, each
// takes the memory that it needs by what its header says, and is converted. What a sample
// has of either memory it gives back when it is written; those before it have theirs. So
// none waits for ever.
func (p *packer) samples(ctx context.Context, n, readers int, each func(*job) error) error {
	g, ctx := errgroup.WithContext(ctx)
	ahead := readers * jobsAhead
	work := make(chan *job)
	order := make(chan *job, ahead)
	free := make(chan *job, ahead+1)
	for range cap(free) {
		j := &job{ready: make(chan struct{}, 1)}
		j.seek.Found = func() { j.ready <- struct{}{} }
		free <- j
	}
	g.Go(func() error { // deals out the samples
		defer close(work)
		defer close(order)
		for it, err := range p.plan.items(n) {
			if err != nil {
				return err
			}
			var j *job
			select {
			case j = <-free:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			j.it, j.size = it, 0
			for i := range it.fields {
				j.size += it.fields[i].Size
			}
			j.weight = min(class(j.size), p.env.Memory)
			if err := p.memory.Acquire(ctx, j.weight); err != nil {
				return context.Cause(ctx)
			}
			order <- j // has room for all jobs there are
			select {
			case work <- j:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	ended := order
	var images chan *job
	if p.pixels != nil {
		ended, images = make(chan *job, cap(free)), make(chan *job)
		g.Go(func() error { // takes memory for the conversions
			defer close(images)
			defer close(ended)
			for j := range order {
				select {
				case <-j.ready:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				if j.err != nil || j.reason != "" || j.intent.action == actKeep {
					p.finish(j)
					ended <- j
					continue
				}
				j.held = min(j.intent.memory(), p.half)
				if err := p.pixels.Acquire(ctx, j.held); err != nil {
					return context.Cause(ctx)
				}
				ended <- j // has room for all jobs there are
				select {
				case images <- j:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
	}
	for range readers {
		check := &checker{check: p.plan.Config.Check}
		conv, err := newConverter(p.plan.Config.Convert)
		if err != nil {
			return err
		}
		g.Go(func() error {
			work, images := work, images
			for work != nil || images != nil {
				select {
				case j, ok := <-work:
					if !ok {
						work = nil
						continue
					}
					if p.read(ctx, j, check); p.pixels != nil {
						j.ready <- struct{}{}
					} else {
						p.finish(j)
					}
				case j, ok := <-images:
					if !ok {
						images = nil
						continue
					}
					p.convert(j, conv)
					p.finish(j)
				}
			}
			return nil
		})
	}
	g.Go(func() error { // keeps the order
		for j := range ended {
			select {
			case <-j.ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if j.err != nil {
				return j.err
			}
			if err := each(j); err != nil {
				return err
			}
			p.env.Progress.DoneSamples.Add(1)
			p.env.Progress.DoneBytes.Add(j.size)
			p.buffers.put(j.buf)
			j.buf = nil
			p.memory.Release(j.weight)
			if j.out != nil {
				p.converted.put(j.out)
				j.out = nil
			}
			if j.held > 0 {
				p.pixels.Release(j.held)
				j.held = 0
			}
			free <- j
		}
		return nil
	})
	return g.Wait()
}

// finish ends a job's preparations: it lets its seek points be found, where they are
// wanted, and then it is ready.
func (p *packer) finish(j *job) {
	if p.maker != nil && j.err == nil && j.reason == "" && j.facts.Image >= 0 {
		j.seek.File = j.sample.Fields[j.facts.Image].Data
		p.maker.Find(&j.seek)
		return
	}
	j.ready <- struct{}{}
}

// convert puts what a job's image becomes in its place. What it takes is there.
func (p *packer) convert(j *job, conv *converter) {
	at := j.facts.Image
	data := j.sample.Fields[at].Data
	out, err := conv.convert(&j.intent, data, func(n int) []byte {
		j.out = p.converted.get(int64(n))
		return j.out
	})
	conv.shrink(p.half / int64(p.env.Workers))
	switch {
	case errors.Is(err, jpeg.ErrVerify): // the run ends: what else this machine writes is in doubt
		j.err = fmt.Errorf("sample %q: %s: %w", j.it.key, j.paths[at], err)
	case err != nil:
		j.bad(at, err)
	case j.intent.action != actKeep:
		j.replace(at, out)
	}
	if rest := j.held - int64(cap(j.out)); rest > 0 {
		j.held -= rest
		p.pixels.Release(rest)
	}
}

// read fills a job: the fields' bytes, and what a look at the images tells.
func (p *packer) read(ctx context.Context, j *job, check *checker) {
	it := &j.it
	j.err, j.reason, j.path, j.orient = nil, "", "", 0
	j.seek.JPEG, j.seek.Entry = false, j.seek.Entry[:0]
	j.facts = shard.Facts{Label: it.label, Image: -1}
	if it.label >= 0 && it.label < int64(len(p.plan.Classes)) {
		j.facts.LabelName = p.plan.Classes[it.label]
	}
	j.sample.Key, j.sample.Fields, j.paths = it.key, j.sample.Fields[:0], j.paths[:0]
	j.buf = p.buffers.get(j.size)
	rest := j.buf
	for i := range it.fields {
		f := &it.fields[i]
		data := f.Inline
		if f.Location.Name != "" {
			var err error
			data, err = p.sources[f.Source].Read(ctx, f.Location, rest)
			var fault *source.EntryError
			switch {
			case err == nil:
			case errors.As(err, &fault) && !errors.Is(err, source.ErrChanged):
				j.reason, j.path = fault.Err.Error(), f.Path
				continue
			default:
				j.err = fmt.Errorf("sample %q: %w", it.key, err)
				return
			}
			if n := len(data); n <= cap(rest) {
				rest = rest[n:n:cap(rest)]
			}
		}
		if f.Name == labelField && it.label >= 0 { // written anew
			if text := strings.TrimSpace(string(data)); text != strconv.FormatInt(it.label, 10) {
				j.reason, j.path = fmt.Sprintf("it says that the class is %q, and by its folder or table it is %d", sample.Shorten(text), it.label), f.Path
			}
			continue
		}
		j.sample.Fields = append(j.sample.Fields, sample.Field{Name: f.Name, Data: data})
		path := "" // a value of a table has none
		if f.Location.Name != "" {
			path = sample.Escape(f.Path)
		}
		j.paths = append(j.paths, path)
	}
	if it.label >= 0 {
		at, _ := slices.BinarySearchFunc(j.sample.Fields, labelField, func(f sample.Field, name string) int { return cmp.Compare(f.Name, name) })
		j.sample.Fields = slices.Insert(j.sample.Fields, at, sample.Field{Name: labelField, Data: strconv.AppendInt(nil, it.label, 10)})
		j.paths = slices.Insert(j.paths, at, "")
	}
	if j.reason == "" {
		p.look(j, check)
	}
	if j.reason == "" && p.pixels != nil && j.facts.Image >= 0 {
		p.intend(j)
	}
}

// bad notes that a field's file is bad.
func (j *job) bad(field int, err error) {
	j.reason = err.Error()
	if j.path = sample.Unescape(j.paths[field]); j.path == "" {
		j.path = sample.Unescape(sample.Join(j.it.key, j.sample.Fields[field].Name))
	}
}

// describe notes what is known of the main image.
func (j *job) describe(info imaging.Info) {
	j.facts.Format, j.facts.Colorspace = info.Format, info.Colorspace
	j.facts.Width, j.facts.Height, j.facts.Channels = info.Width, info.Height, info.Channels
}

// intend decides what becomes of a job's image.
func (p *packer) intend(j *job) {
	at := j.facts.Image
	f := &j.sample.Fields[at]
	info, err := imaging.Probe(f.Data)
	if err != nil {
		j.bad(at, err)
		return
	}
	j.describe(info)
	j.orient, j.before = info.Orientation, len(f.Data)
	j.intent = p.plan.Config.Convert.intend(info, fixed(j.sample.Fields, at, func(f sample.Field) string { return f.Name }))
	if name := j.intent.fieldOf(f.Name); name != f.Name {
		if _, taken := j.sample.Field(name); taken {
			j.intent.keep()
		}
	}
}

// replace puts a new file in the place of a field's. The orientation remains: pixels are
// stored as they were.
func (j *job) replace(at int, file []byte) {
	name := j.intent.fieldOf(j.sample.Fields[at].Name)
	path := j.paths[at]
	if name != j.sample.Fields[at].Name {
		path = pathOf(path, name)
	}
	j.sample.Fields, j.paths = slices.Delete(j.sample.Fields, at, at+1), slices.Delete(j.paths, at, at+1)
	to, _ := slices.BinarySearchFunc(j.sample.Fields, name, func(f sample.Field, name string) int { return cmp.Compare(f.Name, name) })
	j.sample.Fields = slices.Insert(j.sample.Fields, to, sample.Field{Name: name, Data: file})
	j.paths = slices.Insert(j.paths, to, path)
	j.facts.Image, j.facts.Path = to, path
	info, err := imaging.Probe(file)
	if err != nil {
		j.err = fmt.Errorf("sample %q: the image that was made of %q is damaged, which is a fault of this program: %w; pack without converting", j.it.key, sample.Unescape(path), err)
		return
	}
	j.describe(info)
}

// look checks the images of a job's sample and notes the facts of the main one.
func (p *packer) look(j *job, check *checker) {
	fields := j.sample.Fields
	j.facts.Image = sample.Image(fields, func(f sample.Field) string { return f.Name })
	if j.facts.Image >= 0 {
		j.facts.Path = j.paths[j.facts.Image]
	}
	for i := range fields {
		if !sample.IsImage(fields[i].Name) {
			continue
		}
		info, err := check.image(fields[i].Data)
		if err != nil {
			j.bad(i, err)
			return
		}
		if i == j.facts.Image && info.Format != "" {
			j.describe(info)
			j.orient = info.Orientation
		}
	}
}

// checker looks at images as Config.Check says. It is not for concurrent use.
type checker struct {
	check  string
	pixels imaging.Image
}

// image returns what is known of an image file, or why it is bad.
func (c *checker) image(data []byte) (imaging.Info, error) {
	if c.check == CheckNone {
		return imaging.Info{}, nil
	}
	if len(data) == 0 {
		return imaging.Info{}, errors.New("the file is empty")
	}
	info, err := imaging.Probe(data)
	if err == nil && c.check == CheckDecode {
		err = imaging.Std.Decode(data, &c.pixels, imaging.DecodeOptions{Strict: true})
	}
	return info, err
}

// shardWriter writes a shard, its index, and where they are wanted its seek points.
type shardWriter struct {
	name      string
	file      store.Writer
	tee       *counter
	compress  compress.Writer
	container shard.Writer
	indexName string
	indexFile store.Writer
	indexTee  *counter
	rows      *index.RowWriter
	seekName  string
	seekFile  store.Writer // nil where points are not wanted
	seek      *seek.Writer
	jpegs     int64
	raw       *counter
	stats     dataset.FieldStats
	samples   int64
}

// counter passes bytes on, counts them and, where there is a hash, hashes them.
type counter struct {
	w io.Writer
	h interface {
		io.Writer
		Sum64() uint64
	}
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if c.h != nil {
		c.h.Write(p[:n])
	}
	return n, err
}

func (p *packer) create(ctx context.Context, name string) (_ *shardWriter, err error) {
	w := &shardWriter{name: name, indexName: indexName(name, p.format), seekName: seekName(name, p.format)}
	defer func() {
		if err != nil {
			w.abort()
		}
	}()
	if w.file, err = p.st.Create(ctx, w.name); err != nil {
		return nil, err
	}
	if w.indexFile, err = p.st.Create(ctx, w.indexName); err != nil {
		return nil, err
	}
	if p.every >= 0 {
		if w.seekFile, err = p.st.Create(ctx, w.seekName); err != nil {
			return nil, err
		}
		w.seek = seek.NewWriter(w.seekFile, p.every)
	}
	w.tee = &counter{w: w.file, h: index.NewHash()}
	if w.compress, err = compress.NewWriter(w.tee, p.format.Compression, p.plan.Config.Level); err != nil {
		return nil, err
	}
	w.raw = &counter{w: w.compress}
	w.container = p.format.Container.NewWriter(w.raw)
	w.indexTee = &counter{w: w.indexFile, h: index.NewHash()}
	w.rows = index.NewRowWriter(w.indexTee)
	return w, nil
}

func (w *shardWriter) sample(j *job) error {
	at, err := w.container.Write(&j.sample, &j.facts)
	if err != nil {
		return fmt.Errorf("sample %q: %w", j.it.key, err)
	}
	w.compress.EndSample(at.Offset + at.Size)
	row := dataset.Describe(&j.sample, at, &j.facts, j.orient, j.paths)
	w.stats.Add(&row)
	w.samples++
	if w.seek != nil {
		var crc uint32
		if j.seek.JPEG {
			w.jpegs++
			crc = row.Fields[j.facts.Image].CRC32C
		}
		if err := w.seek.Add(crc, j.seek.Entry); err != nil {
			return err
		}
	}
	return w.rows.Write(row)
}

// commit makes the shard, then its index, then its seek points durable and visible. A
// shard without a JPEG gets no file of these.
func (w *shardWriter) commit(ctx context.Context) (index.Shard, error) {
	if err := w.container.Close(); err != nil {
		return index.Shard{}, err
	}
	if err := w.compress.Close(); err != nil {
		return index.Shard{}, err
	}
	if err := w.rows.Close(); err != nil {
		return index.Shard{}, err
	}
	if err := w.file.Commit(ctx); err != nil {
		return index.Shard{}, err
	}
	if err := w.indexFile.Commit(ctx); err != nil {
		return index.Shard{}, err
	}
	file := func(name string, c *counter) index.File {
		return index.File{Name: name, Bytes: c.n, Checksum: index.NewChecksum(c.h.Sum64())}
	}
	s := index.Shard{
		File: file(w.name, w.tee), Index: file(w.indexName, w.indexTee),
		Samples: w.samples, Fields: w.stats.List(),
	}
	if w.raw.n != w.tee.n {
		s.RawBytes = w.raw.n
	}
	if w.jpegs == 0 {
		return s, nil
	}
	points, err := w.seek.Close(&s.File)
	if err != nil {
		return index.Shard{}, err
	}
	if err := w.seekFile.Commit(ctx); err != nil {
		return index.Shard{}, err
	}
	points.Name = w.seekName
	s.Seek = &points
	return s, nil
}

func (w *shardWriter) abort() {
	for _, f := range []store.Writer{w.file, w.indexFile, w.seekFile} {
		if f != nil {
			f.Abort()
		}
	}
}
