package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"shardify/index"
	"shardify/index/seek"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/store"
	"shardify/store/ahead"
)

// Problem is one thing that Verify found.
type Problem struct {
	// Warning: the data set is whole; something beside it deserves a look.
	Warning bool
	// Kind sorts problems: one of the Kind constants.
	Kind Kind
	// File is the file of the data set it is about.
	File string
	// Key and Field name the sample and the field; empty where it is not about one.
	Key, Field string
	// Offset is where in the container, before compression; -1 where that is not
	// known.
	Offset int64
	// Samples is how many samples it keeps from being read, or sheds doubt on.
	Samples int64
	// Err says what is wrong.
	Err error
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Key != "" {
		fmt.Fprintf(&b, ": sample %q", sample.Shorten(p.Key))
	}
	if p.Field != "" {
		fmt.Fprintf(&b, " field %q", sample.Shorten(p.Field))
	}
	if p.Offset >= 0 {
		fmt.Fprintf(&b, " at %d", p.Offset)
	}
	fmt.Fprintf(&b, ": %v", p.Err)
	return b.String()
}

// Kind sorts problems.
type Kind string

const (
	// KindMissing: a file of the data set is not there.
	KindMissing Kind = "missing"
	// KindUnreadable: a file cannot be read.
	KindUnreadable Kind = "unreadable"
	// KindSize: a file has another size than the manifest says.
	KindSize Kind = "size"
	// KindChecksum: the bytes of a file or of a field are not those that were
	// written.
	KindChecksum Kind = "checksum"
	// KindFormat: the bytes are not what the container's format allows.
	KindFormat Kind = "format"
	// KindIndex: the container and its index, or index and manifest, contradict
	// each other.
	KindIndex Kind = "index"
	// KindMore: there are more problems of this shard than were to be reported.
	KindMore Kind = "more"
	// KindExtra: a file that is not part of the data set (a warning).
	KindExtra Kind = "extra"
	// KindLeftover: what an unfinished pack has left (a warning).
	KindLeftover Kind = "leftover"
)

// VerifyOptions are the options of Verify. The zero value checks everything.
type VerifyOptions struct {
	// Split limits the work to one split; empty means all.
	Split string `json:"split,omitempty"`
	// Workers is how many shards are checked at once; 0 means GOMAXPROCS.
	Workers int `json:"workers,omitempty"`
	// MaxProblems is how many problems are reported of one shard before a last one
	// sums up the rest; 0 means 20: a shard that is wrong throughout (another
	// shard's bytes under its name) should not hide the others.
	MaxProblems int `json:"max_problems,omitempty"`
	// Progress, if not nil, is counted up.
	Progress *Progress `json:"-"`
}

// Validate reports every fault of the options.
func (o *VerifyOptions) Validate() error {
	var faults []error
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers: %d is negative", o.Workers))
	}
	if o.MaxProblems < 0 {
		faults = append(faults, fmt.Errorf("max_problems: %d is negative", o.MaxProblems))
	}
	return errors.Join(faults...)
}

// VerifyResult sums up what Verify did.
type VerifyResult struct {
	// Shards, Samples, Fields and Bytes (of the shards' files) were checked.
	Shards  int64 `json:"shards"`
	Samples int64 `json:"samples"`
	Fields  int64 `json:"fields"`
	Bytes   int64 `json:"bytes"`
	// Problems and Warnings were reported; problems above MaxProblems count too.
	Problems int64 `json:"problems"`
	Warnings int64 `json:"warnings"`
}

// maxFrame is up to what size a sample is held in memory to be parsed. Of a larger
// one only the fields' bytes are compared with the index.
const maxFrame = 64 << 20

// Verify compares every byte of the data set with what its manifest and indexes
// say: each shard's size and checksum; each index's size, checksum and rows; and in
// each shard, sample for sample, keys, field names, offsets, sizes and CRC-32C
// against the rows, with no sample between or behind those that the rows name. Each
// file is read once, front to back.
//
// report is called with every problem, in the manifest's order of shards, never
// from two goroutines at once. Damage stays local: after a sample that cannot be
// parsed, the index says where the next one begins. Files of the store that are no
// part of the data set are reported as warnings.
//
// A data set that is broken is no error of Verify; the error says why the work
// could not be done: bad options, ctx, or a store that cannot be listed.
func Verify(ctx context.Context, d *Dataset, opts VerifyOptions, report func(Problem)) (VerifyResult, error) {
	if err := opts.Validate(); err != nil {
		return VerifyResult{}, err
	}
	shards, err := d.Shards(opts.Split)
	if err != nil {
		return VerifyResult{}, err
	}
	v := &verifier{d: d, opts: opts, bySum: map[index.Checksum]string{}}
	if v.opts.MaxProblems == 0 {
		v.opts.MaxProblems = 20
	}
	if v.opts.Progress == nil {
		v.opts.Progress = new(Progress)
	}
	if v.opts.Workers == 0 {
		v.opts.Workers = runtime.GOMAXPROCS(0)
	}
	for _, sh := range shards {
		v.bySum[sh.Checksum] = sh.Name
		v.opts.Progress.Total.Add(sh.Bytes)
	}

	var result VerifyResult
	var emitLock sync.Mutex
	emit := func(problems []Problem) {
		for _, p := range problems {
			report(p)
		}
	}
	damage := v.manifest(ctx)
	result.Problems += int64(len(damage))
	emit(damage)

	// Shards end in any order; what was found is held back until those before it
	// have ended.
	found := make([]*shardCheck, len(shards))
	next := 0
	group, gctx := errgroup.WithContext(ctx)
	v.turns = ahead.NewTurns(v.opts.Workers)
	group.SetLimit(goroutines(v.turns, v.opts.Workers, d.store.URL()))
	windows := sync.Pool{New: func() any { return newWindow(nil) }}
	for i, sh := range shards {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error {
			c := &shardCheck{v: v, shard: sh, windows: &windows}
			c.run(gctx)
			if err := gctx.Err(); err != nil {
				return err
			}
			v.opts.Progress.Shards.Add(1)
			emitLock.Lock()
			defer emitLock.Unlock()
			for found[i] = c; next < len(found) && found[next] != nil; next++ {
				c := found[next]
				result.Shards++
				result.Samples += c.samples
				result.Fields += c.fields
				result.Bytes += c.bytes
				result.Problems += c.errors.all
				result.Warnings += c.warnings.all
				emit(c.problems)
				c.problems = nil
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return result, err
	}
	if err := ctx.Err(); err != nil {
		return result, err
	}
	extra, err := v.extra(ctx)
	result.Warnings += int64(len(extra))
	emit(extra)
	return result, err
}

// Shards returns the shards of a split, or of all splits where the name is empty,
// in the manifest's order.
func (d *Dataset) Shards(split string) ([]*index.Shard, error) {
	if split != "" {
		if _, err := d.manifest.Split(split); err != nil {
			return nil, err
		}
	}
	var shards []*index.Shard
	for i := range d.manifest.Splits {
		s := &d.manifest.Splits[i]
		if split != "" && s.Name != split {
			continue
		}
		for j := range s.Shards {
			shards = append(shards, &s.Shards[j])
		}
	}
	return shards, nil
}

type verifier struct {
	d    *Dataset
	opts VerifyOptions
	// bySum finds the shard that has a checksum, to recognise swapped files.
	bySum map[index.Checksum]string
	turns *ahead.Turns
}

// extra lists the files that are no part of the data set; none where the store has no
// lists, as a web server.
func (v *verifier) extra(ctx context.Context) ([]Problem, error) {
	known := map[string]bool{index.ManifestName: true, index.BadName: true}
	for i := range v.d.manifest.Splits {
		for j := range v.d.manifest.Splits[i].Shards {
			sh := &v.d.manifest.Splits[i].Shards[j]
			known[sh.Name], known[sh.Index.Name] = true, true
			if sh.Seek != nil {
				known[sh.Seek.Name] = true
			}
		}
	}
	var found []Problem
	for info, err := range v.d.store.List(ctx, "") {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, nil
		}
		if err != nil {
			return found, fmt.Errorf("data set %s: %w", v.d.URL(), err)
		}
		switch {
		case known[info.Name], strings.HasPrefix(info.Name, index.QuarantinePrefix):
		case strings.HasPrefix(info.Name, WorkDir):
			found = append(found, Problem{Warning: true, Kind: KindLeftover, File: info.Name, Offset: -1,
				Err: errors.New("left by a pack that did not end")})
		default:
			found = append(found, Problem{Warning: true, Kind: KindExtra, File: info.Name, Offset: -1,
				Err: errors.New("not part of the data set")})
		}
	}
	return found, nil
}

// shardCheck checks one shard.
type shardCheck struct {
	v       *verifier
	shard   *index.Shard
	windows *sync.Pool
	window  *window // while it is its turn

	problems               []Problem
	errors, warnings       tally
	samples, fields, bytes int64
}

// tally counts problems, and of these those that were not reported.
type tally struct{ all, suppressed int64 }

// found reports a problem, up to the limit.
func (c *shardCheck) found(p Problem) {
	if p.File == "" {
		p.File = c.shard.Name
	}
	n := &c.errors
	if p.Warning {
		n = &c.warnings
	}
	if n.all++; n.all > int64(c.v.opts.MaxProblems) {
		n.suppressed++
		return
	}
	c.problems = append(c.problems, p)
}

// more sums up what was not reported.
func (c *shardCheck) more() {
	if n := c.errors.suppressed; n > 0 {
		c.problems = append(c.problems, Problem{Kind: KindMore, File: c.shard.Name, Offset: -1, Err: fmt.Errorf("%d more problems in this shard", n)})
	}
	if n := c.warnings.suppressed; n > 0 {
		c.problems = append(c.problems, Problem{Warning: true, Kind: KindMore, File: c.shard.Name, Offset: -1, Err: fmt.Errorf("%d more warnings in this shard", n)})
	}
}

// file reports a problem of the whole file.
func (c *shardCheck) file(kind Kind, file string, samples int64, format string, args ...any) {
	c.found(Problem{Kind: kind, File: file, Offset: -1, Samples: samples, Err: fmt.Errorf(format, args...)})
}

// run checks the shard. That ctx has ended says nothing of it.
func (c *shardCheck) run(ctx context.Context) {
	turn, err := c.v.turns.Begin(ctx, c.shard.Bytes)
	if err != nil {
		return
	}
	defer turn.Done()
	rows, ok := c.index(ctx)
	take := func() bool {
		if turn.Take(ctx) != nil {
			return false
		}
		c.window = c.windows.Get().(*window)
		return true
	}
	if !c.container(ctx, rows, ok, take) {
		return
	}
	if c.shard.Seek != nil {
		c.seek(ctx, rows, ok)
	}
	c.more()
	if cap(c.window.buf) <= maxFrame {
		c.windows.Put(c.window)
	}
	c.window = nil
}

// index reads the rows and compares them with the manifest.
func (c *shardCheck) index(ctx context.Context) (rows []index.Row, ok bool) {
	d, sh := c.v.d, c.shard
	data, err := d.ReadIndex(ctx, sh)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		c.file(KindMissing, sh.Index.Name, sh.Samples, "%w", err)
		return nil, false
	case errors.Is(err, ErrMismatch):
		c.file(KindSize, sh.Index.Name, sh.Samples, "%w", err)
		return nil, false
	case errors.Is(err, shard.ErrChecksum):
		c.file(KindChecksum, sh.Index.Name, sh.Samples, "%w", err)
		return nil, false
	default:
		c.file(KindUnreadable, sh.Index.Name, sh.Samples, "%w", err)
		return nil, false
	}
	rows, err = d.DecodeIndex(sh, data)
	if err != nil {
		c.file(KindIndex, sh.Index.Name, sh.Samples, "%w", err)
		return nil, false
	}
	var stats FieldStats
	keys := make(map[string]bool, len(rows))
	classes := d.manifest.Classes
	for i := range rows {
		row := &rows[i]
		stats.Add(row)
		fault := func(format string, args ...any) {
			c.found(Problem{Kind: KindIndex, File: sh.Index.Name, Key: row.Key, Offset: -1, Samples: 1, Err: fmt.Errorf(format, args...)})
		}
		if keys[row.Key] {
			fault("row %d: the key occurs twice", i)
		}
		keys[row.Key] = true
		if row.Label != nil && len(classes) > 0 {
			if *row.Label < 0 || *row.Label >= int64(len(classes)) {
				fault("row %d: label %d, but the data set has %d classes", i, *row.Label, len(classes))
			} else if name := classes[*row.Label]; row.LabelName != name {
				fault("row %d: class %d is %q here and %q in the manifest", i, *row.Label, row.LabelName, name)
			}
		}
	}
	if got := stats.List(); !equalStats(got, sh.Fields) {
		c.file(KindIndex, sh.Index.Name, 0, "its rows have the fields %v, the manifest says %v", got, sh.Fields)
	}
	return rows, true
}

// seek compares the side file of seek points with the manifest, and with the rows. What
// is wrong with it keeps no sample from being read.
func (c *shardCheck) seek(ctx context.Context, rows []index.Row, haveRows bool) {
	d, sh := c.v.d, c.shard
	name := sh.Seek.Name
	f, err := d.OpenSeek(ctx, sh)
	if err != nil {
		kind := KindUnreadable
		switch {
		case errors.Is(err, fs.ErrNotExist):
			kind = KindMissing
		case errors.Is(err, ErrMismatch):
			kind = KindSize
		}
		c.file(kind, name, 0, "%w", err)
		return
	}
	defer f.Close()
	file := newObjectReader(ctx, d.store.URL(), f.object, ahead.Ranges, func(int) {})
	defer file.close()
	c.window.reset(file, 0)
	if err := c.window.skip(1<<62, nil); !errors.Is(err, io.EOF) {
		c.file(KindUnreadable, name, 0, "at byte %d of the file: %w", file.off, err)
		return
	}
	if sum := index.NewChecksum(file.hash.Sum64()); sum != sh.Seek.Checksum {
		c.file(KindChecksum, name, 0, "%w: the file has %s, the manifest says %s; `shardify index --jpeg-seek` makes it anew", shard.ErrChecksum, sum, sh.Seek.Checksum)
		return
	}
	t, err := f.Table(ctx)
	if err != nil {
		c.file(KindIndex, name, 0, "%w", err)
		return
	}
	if t.Every != sh.Seek.Every || t.With != sh.Seek.Samples {
		c.file(KindIndex, name, 0, "it has points every %d MCUs of %d samples, the manifest says %d and %d", t.Every, t.With, sh.Seek.Every, sh.Seek.Samples)
	}
	if !haveRows {
		return
	}
	again := newObjectReader(ctx, d.store.URL(), f.object, ahead.Ranges, func(int) {})
	defer again.close()
	c.window.reset(again, 0)
	for i := range rows {
		at, size := t.Extent(i)
		if size == 0 {
			continue
		}
		var entry []byte
		err := c.window.skip(at-c.window.pos, nil)
		if err == nil {
			entry, err = c.window.next(size)
		}
		if err != nil {
			c.file(KindUnreadable, name, 0, "at byte %d of the file: %w", at, err)
			return
		}
		field := imageOf(&rows[i])
		if field == nil {
			err = errors.New("seek points of a sample without an image")
		} else {
			_, err = seek.ParseEntry(entry, field.CRC32C, field.Size)
		}
		if err != nil {
			c.found(Problem{Kind: KindIndex, File: name, Key: rows[i].Key, Offset: -1, Err: fmt.Errorf("at byte %d of the file: %w", at, err)})
		}
	}
}

func equalStats(a, b []index.FieldStat) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// container reads the shard's file, once, and takes the shard's turn as soon as that has
// begun; it is false if that does not come.
func (c *shardCheck) container(ctx context.Context, rows []index.Row, haveRows bool, take func() bool) bool {
	d, sh := c.v.d, c.shard
	o, err := d.store.Open(ctx, sh.Name)
	if err != nil {
		kind := KindUnreadable
		if errors.Is(err, fs.ErrNotExist) {
			kind = KindMissing
		}
		c.file(kind, "", sh.Samples, "%w", err)
		return take()
	}
	defer o.Close()
	file := newObjectReader(ctx, d.store.URL(), o, c.v.turns.Ranges(), func(n int) {
		c.bytes += int64(n)
		c.v.opts.Progress.Bytes.Add(int64(n))
	})
	defer file.close()
	file.begin()
	if !take() {
		return false
	}
	c.bytesOf(ctx, o, file, rows, haveRows)
	return true
}

// bytesOf checks the shard's bytes.
func (c *shardCheck) bytesOf(ctx context.Context, o store.Object, file *objectReader, rows []index.Row, haveRows bool) {
	d, sh := c.v.d, c.shard
	sizeErr := checkSize("shard "+d.path(sh.Name), o.Info().Size, sh.Bytes)
	if sizeErr != nil {
		c.file(KindSize, "", 0, "%w", sizeErr)
	}
	raw, err := streamRaw(d.format, file)
	if err != nil {
		c.file(KindFormat, "", sh.Samples, "%w", err)
	} else {
		c.window.reset(raw, 0)
		before := c.errors.all
		if haveRows {
			if rest := c.walk(rows); len(rest) > 0 {
				c.apart(ctx, o, rest)
			}
		} else {
			c.scan(0, -1, true)
		}
		if sh.RawBytes > 0 && c.errors.all == before && c.window.pos != sh.RawBytes {
			c.file(KindSize, "", 0, "%d bytes before compression, the manifest says %d", c.window.pos, sh.RawBytes)
		}
		raw.Close()
	}
	// The rest of the file, if the container ended early, belongs to its checksum.
	c.window.reset(file, 0)
	if err := c.window.skip(1<<62, nil); !errors.Is(err, io.EOF) {
		c.file(KindUnreadable, "", sh.Samples, "at byte %d of the file: %w", file.off, err)
		return
	}
	if sum := index.NewChecksum(file.hash.Sum64()); sum != sh.Checksum && sizeErr == nil {
		if other := c.v.bySum[sum]; other != "" {
			c.file(KindChecksum, "", sh.Samples, "%w: these are the bytes of shard %s", shard.ErrChecksum, other)
			return
		}
		note := ""
		if c.errors.all == 0 && haveRows {
			note = "; every sample is as its index says, so the damage is in bytes that hold none, such as padding"
		}
		c.file(KindChecksum, "", 0, "%w: the file has %s, the manifest says %s%s", shard.ErrChecksum, sum, sh.Checksum, note)
	}
}

// walk compares the container with the rows, front to back. Where it cannot be read
// further, it returns the rows from there on.
func (c *shardCheck) walk(rows []index.Row) (rest []index.Row) {
	for i := range rows {
		row := &rows[i]
		if gap := row.Offset - c.window.pos; gap > 0 && !c.scan(c.window.pos, gap, false) {
			return rows[i:]
		}
		if row.Size > maxFrame && verbatim(row) {
			if err := c.large(row); err != nil {
				c.stopped(err)
				return rows[i:]
			}
		} else {
			frame, err := c.window.next(row.Size)
			if err != nil {
				c.stopped(err)
				return rows[i:]
			}
			c.sample(row, frame)
		}
		c.checked(row)
	}
	c.scan(c.window.pos, -1, false)
	return nil
}

// checked counts a sample.
func (c *shardCheck) checked(row *index.Row) {
	c.samples++
	c.fields += int64(len(row.Fields))
	c.v.opts.Progress.Samples.Add(1)
}

// apart goes on behind a place where a compressed container cannot be read, by the
// seek table, if there is one: damage of one frame is not that of the next.
func (c *shardCheck) apart(ctx context.Context, o store.Object, rows []index.Row) {
	raw, err := openRaw(ctx, c.v.d.format, o, nil)
	z, ok := raw.(compress.SourceReader)
	if err != nil || !ok || z.Size() < 0 {
		c.lost(rows)
		return
	}
	f := &ShardFile{d: c.v.d, shard: c.shard, object: o, raw: raw, size: RawBytes(c.shard)}
	var buf []byte
	for i := range rows {
		row := &rows[i]
		if ctx.Err() != nil {
			return
		}
		frame, err := f.ReadSample(ctx, row, buf)
		if err != nil {
			c.found(Problem{Kind: c.kind(err), Key: row.Key, Offset: row.Offset, Samples: 1, Err: err})
			continue
		}
		buf = frame
		c.sample(row, frame)
		c.checked(row)
	}
}

// stopped reports why the container cannot be read further, where that is not just
// its end.
func (c *shardCheck) stopped(err error) {
	if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.found(Problem{Kind: c.kind(err), Offset: c.window.pos, Err: err})
	}
}

// kind sorts an error of reading a container.
func (c *shardCheck) kind(err error) Kind {
	var format *shard.FormatError
	var unsupported *shard.UnsupportedError
	switch {
	case errors.Is(err, shard.ErrChecksum):
		return KindChecksum
	case errors.As(err, &format), errors.As(err, &unsupported), errors.Is(err, shard.ErrTruncated), errors.Is(err, io.ErrUnexpectedEOF):
		return KindFormat
	}
	return KindUnreadable
}

// lost reports the samples that cannot be reached any more.
func (c *shardCheck) lost(rows []index.Row) {
	c.found(Problem{Kind: KindMissing, Key: rows[0].Key, Offset: rows[0].Offset, Samples: int64(len(rows)),
		Err: fmt.Errorf("%w: this sample and all after it, %d in all, cannot be read", shard.ErrTruncated, len(rows))})
}

// verbatim says whether all fields stand verbatim in the container.
func verbatim(row *index.Row) bool {
	for i := range row.Fields {
		if row.Fields[i].Offset < 0 {
			return false
		}
	}
	return true
}

// sample compares one sample with its row.
func (c *shardCheck) sample(row *index.Row, frame []byte) {
	fault := func(kind Kind, field string, offset int64, format string, args ...any) {
		c.found(Problem{Kind: kind, Key: row.Key, Field: field, Offset: offset, Samples: 1, Err: fmt.Errorf(format, args...)})
	}
	s, err := c.v.d.format.Container.Parse(frame, row.Offset)
	if err != nil {
		at := row.Offset
		var format *shard.FormatError
		if errors.As(err, &format) {
			at = format.Offset
		}
		fault(c.kind(err), "", at, "%w", err)
		// The other fields may still be whole, or broken as well.
		for i := range row.Fields {
			if f := &row.Fields[i]; f.Offset >= 0 {
				c.content(row, f, frame[f.Offset-row.Offset:][:f.Size])
			}
		}
		return
	}
	if s.Key != row.Key {
		fault(KindIndex, "", row.Offset, "the container has sample %q here", sample.Shorten(s.Key))
		return
	}
	if s.Offset != row.Offset || s.Size != row.Size {
		fault(KindIndex, "", row.Offset, "the sample has %d bytes at %d, the index says %d at %d", s.Size, s.Offset, row.Size, row.Offset)
	}
	// Both are sorted by name.
	i, j := 0, 0
	for i < len(row.Fields) || j < len(s.Sample.Fields) {
		switch {
		case j == len(s.Sample.Fields) || i < len(row.Fields) && row.Fields[i].Name < s.Sample.Fields[j].Name:
			fault(KindIndex, row.Fields[i].Name, row.Fields[i].HeaderOffset, "the index has this field, the container does not")
			i++
		case i == len(row.Fields) || row.Fields[i].Name > s.Sample.Fields[j].Name:
			fault(KindIndex, s.Sample.Fields[j].Name, s.Placement.Fields[j].HeaderOffset, "the container has this field, the index does not")
			j++
		default:
			f, at := &row.Fields[i], &s.Placement.Fields[j]
			if at.HeaderOffset != f.HeaderOffset || at.Offset != f.Offset || at.Size != f.Size {
				fault(KindIndex, f.Name, at.HeaderOffset, "the field has header, content and size %d, %d, %d, the index says %d, %d, %d",
					at.HeaderOffset, at.Offset, at.Size, f.HeaderOffset, f.Offset, f.Size)
			}
			c.content(row, f, s.Sample.Fields[j].Data)
			i, j = i+1, j+1
		}
	}
}

// content compares the bytes of a field with its row.
func (c *shardCheck) content(row *index.Row, f *index.FieldRow, data []byte) {
	if sum := index.FieldChecksum(data); sum != f.CRC32C {
		c.found(Problem{Kind: KindChecksum, Key: row.Key, Field: f.Name, Offset: f.Offset, Samples: 1,
			Err: fmt.Errorf("%w: the %d bytes have CRC-32C %08x, the index says %08x", shard.ErrChecksum, len(data), sum, f.CRC32C)})
	}
}

// large compares the fields of a sample that is too large to be held. Its headers
// are covered by the checksum of the file.
func (c *shardCheck) large(row *index.Row) error {
	for i := range row.Fields {
		f := &row.Fields[i]
		if f.Offset < c.window.pos {
			c.found(Problem{Kind: KindIndex, Key: row.Key, Field: f.Name, Offset: f.Offset, Samples: 1,
				Err: errors.New("the index has the fields of this sample out of order")})
			continue
		}
		if err := c.window.skip(f.Offset-c.window.pos, nil); err != nil {
			return err
		}
		sum := uint32(0)
		if err := c.window.skip(f.Size, func(p []byte) { sum = index.UpdateFieldChecksum(sum, p) }); err != nil {
			return err
		}
		if sum != f.CRC32C {
			c.found(Problem{Kind: KindChecksum, Key: row.Key, Field: f.Name, Offset: f.Offset, Samples: 1,
				Err: fmt.Errorf("%w: the %d bytes have CRC-32C %08x, the index says %08x", shard.ErrChecksum, f.Size, sum, f.CRC32C)})
		}
	}
	return c.window.skip(row.Offset+row.Size-c.window.pos, nil)
}

// scan goes through n bytes of the container from base on, or to its end where n is
// -1, in which there should be no sample; unless wanted, because there is no index
// to compare with: then it counts them. It returns false where the container ends
// before.
func (c *shardCheck) scan(base, n int64, wanted bool) bool {
	var r io.Reader = c.window
	end := int64(1) << 62
	if n >= 0 {
		r, end = io.LimitReader(c.window, n), base+n
	}
	var samples int64
	for s, err := range c.v.d.format.Container.Scan(r, maxFrame) {
		if err != nil {
			at := base
			var format *shard.FormatError
			if errors.As(err, &format) {
				at += format.Offset
			}
			c.found(Problem{Kind: c.kind(err), Offset: at, Err: err})
			break
		}
		samples++
		if !wanted {
			c.found(Problem{Warning: true, Kind: KindExtra, Key: s.Key, Offset: base + s.Offset, Err: errors.New("the container has this sample, the index leaves it out")})
		}
	}
	if wanted {
		c.samples += samples
		c.v.opts.Progress.Samples.Add(samples)
		if samples != c.shard.Samples {
			c.file(KindIndex, "", 0, "it has %d samples, the manifest says %d", samples, c.shard.Samples)
		}
	}
	err := c.window.skip(end-c.window.pos, nil)
	if err != nil {
		c.stopped(err)
	}
	return err == nil
}

// manifest compares the manifest with its own checksum.
func (v *verifier) manifest(ctx context.Context) []Problem {
	data, err := store.ReadAll(ctx, v.d.store, index.ManifestName, index.MaxManifest)
	if err == nil {
		err = index.CheckManifest(data)
	}
	if err != nil {
		return []Problem{{Kind: KindChecksum, File: index.ManifestName, Offset: -1, Err: err}}
	}
	return nil
}
