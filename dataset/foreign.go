package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"shardify/imaging"
	"shardify/index"
	"shardify/index/seek"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/formats"
	"shardify/store"
	"shardify/store/ahead"
)

// IndexOptions are the options of Index. The zero value indexes every shard of the
// store.
type IndexOptions struct {
	// Shards are the names of the shards; empty means all files of the store whose
	// names end as those of shards do.
	Shards []string `json:"shards,omitempty"`
	// Name is the data set's name; empty means the last part of the store's URL.
	Name string `json:"name,omitempty"`
	// Tool names the program, for the manifest.
	Tool string `json:"tool,omitempty"`
	// Split is the split of all shards; empty means that their names tell: SplitOf.
	Split string `json:"split,omitempty"`
	// Classes are the class names in the order of their numbers; empty means those
	// that the samples name, see Index.
	Classes []string `json:"classes,omitempty"`
	// LabelFrom says where labels are: a field ("cls"), or a member of the object in
	// a field ("json.category"), or "none"; empty means to look in the usual places,
	// see Index.
	LabelFrom string `json:"label_from,omitempty"`
	// JPEGSeek says where a JPEG shall have seek points: "row", or a number of MCUs; see
	// seek.ParseSpacing. Empty means none. They lie in a side file beside each shard.
	JPEGSeek string `json:"jpeg_seek,omitempty"`
	// Skip leaves bad samples out of the index; otherwise they are an error.
	Skip bool `json:"skip,omitempty"`
	// Update goes on from a manifest that Index has written: shards that are as they
	// were are not read again. Force writes a new manifest and new indexes over
	// whatever is there.
	Update bool `json:"update,omitempty"`
	Force  bool `json:"force,omitempty"`
	// Workers is how many shards are read at once; 0 means GOMAXPROCS.
	Workers int `json:"workers,omitempty"`
	// Progress, if not nil, is counted up: Bytes of the shards' files.
	Progress *Progress `json:"-"`
}

// Validate reports every fault of the options.
func (o *IndexOptions) Validate() error {
	var faults []error
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers: %d is negative", o.Workers))
	}
	if o.Update && len(o.Shards) > 0 {
		faults = append(faults, errors.New("update: it goes over all shards of a folder; name the folder, not shards"))
	}
	if o.Update && o.Force {
		faults = append(faults, errors.New("update keeps what is right, force writes all anew: give one"))
	}
	if o.JPEGSeek != "" {
		if _, err := seek.ParseSpacing(o.JPEGSeek); err != nil {
			faults = append(faults, fmt.Errorf("jpeg_seek: %w", err))
		}
	}
	seen := map[string]bool{}
	for _, c := range o.Classes {
		if seen[c] {
			faults = append(faults, fmt.Errorf("class %q is listed twice", c))
		}
		seen[c] = true
	}
	return errors.Join(faults...)
}

// BadSample is what Index found wrong with a sample, or with a shard from some place
// on.
type BadSample struct {
	Shard string
	// Key and Field name the sample and the field; empty where it is not about one.
	Key, Field string
	// Offset is where in the container, before compression.
	Offset int64
	Err    error
}

func (b BadSample) String() string {
	what := b.Shard
	if b.Key != "" {
		what += fmt.Sprintf(": sample %q", sample.Shorten(b.Key))
	}
	if b.Field != "" {
		what += fmt.Sprintf(" field %q", sample.Shorten(b.Field))
	}
	return fmt.Sprintf("%s at %d: %v", what, b.Offset, b.Err)
}

var (
	// ErrBadSamples: some samples are bad, and were not to be left out.
	ErrBadSamples = errors.New("bad samples")
	// ErrInTheWay: a file is there that Index would have to replace. It is
	// fs.ErrExist, too.
	ErrInTheWay error = &sentinel{"in the way", fs.ErrExist}
)

// maxSample bounds the samples that Index reads.
const maxSample = 2 << 30

// Index writes what makes a data set of shards that others made: an index beside
// each, and a manifest. The shards are read once and never touched. The rows are
// those that packing would have written for the same bytes; only the original paths
// of the files are not known.
//
// # Labels and classes
//
// A sample's label is looked for in the field cls, and then in the members label,
// cls, class, label_name and class_name of the object in the field json; with
// LabelFrom, only there. What is a whole number is the label, and what is text is
// the class name. With Classes, every number and name must be among them. Without,
// and where samples only have names, these are numbered in sorted order, as packing
// does; where they have numbers and names, the names become the classes if every
// number from 0 on has one.
//
// # Bad samples
//
// Every sample is looked at: its key and field names must be UTF-8 without control
// characters, and its images whole, as far as their headers tell. What is bad is
// given to report, never from two goroutines at once. Without Skip, nothing is
// written of a data set with bad samples and the error wraps ErrBadSamples; with it,
// they are left out of the index, so that no reader sees them. Where a shard cannot
// be read from some place on, that counts as one bad sample, and what lies before it
// is kept.
//
// # What is in the way
//
// A manifest.json, or a Parquet file where an index is to be, which is there already
// is ErrInTheWay unless Update (for those of an earlier Index) or Force is given.
func Index(ctx context.Context, st store.Store, opts IndexOptions, report func(BadSample)) (*index.Manifest, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Progress == nil {
		opts.Progress = new(Progress)
	}
	if opts.Name == "" {
		opts.Name = path.Base(strings.TrimRight(strings.ReplaceAll(st.URL(), `\`, "/"), "/:"))
	}
	x := &indexing{st: st, opts: opts, report: report, every: -1, names: map[string]bool{}, named: map[int64]string{}, highest: -1}
	if opts.JPEGSeek != "" {
		var err error
		if x.every, err = seek.ParseSpacing(opts.JPEGSeek); err != nil {
			return nil, err
		}
		x.maker, x.memory = NewSeekMaker(x.every, opts.Workers), semaphore.NewWeighted(seekMemory)
		defer x.maker.Close()
	}
	if err := x.survey(ctx); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "shardify-index-*")
	if err != nil {
		return nil, err
	}
	x.spool = &spool{file: file}
	defer x.spool.close()
	group, gctx := errgroup.WithContext(ctx)
	x.turns = ahead.NewTurns(opts.Workers)
	group.SetLimit(goroutines(x.turns, opts.Workers, st.URL()))
	for i := range x.shards {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error { return x.one(gctx, &x.shards[i]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if x.bad > 0 && !opts.Skip {
		return nil, fmt.Errorf("%d %w; nothing was written; with --on-bad skip they are left out of the index", x.bad, ErrBadSamples)
	}
	classes, err := x.classes()
	if err != nil {
		return nil, err
	}
	m, err := x.commit(ctx, classes)
	if err != nil || x.every < 0 {
		return m, err
	}
	return x.seekKnown(ctx, m)
}

// seekKnown gives shards seek points that were indexed before and have none.
func (x *indexing) seekKnown(ctx context.Context, m *index.Manifest) (*index.Manifest, error) {
	without := slices.ContainsFunc(x.shards, func(f foreign) bool {
		return f.known && (f.shard.Seek == nil || f.shard.Seek.Every != x.every)
	})
	if !without {
		return m, nil
	}
	d, err := New(x.st, m)
	if err != nil {
		return nil, err
	}
	return AddSeek(ctx, d, SeekOptions{Every: x.every, Workers: x.opts.Workers}, x.found)
}

// indexing is one run of Index.
type indexing struct {
	st     store.Store
	opts   IndexOptions
	report func(BadSample)
	format formats.Format
	every  int        // the spacing of seek points; -1 for none
	maker  *SeekMaker // where there are any
	memory *semaphore.Weighted
	turns  *ahead.Turns
	shards []foreign
	// number finds the number of a class of opts.Classes.
	number map[string]int64
	// previous is the manifest that is there, if it is ours, and replaced says that
	// there is one, ours or not.
	previous *index.Manifest
	replaced bool
	spool    *spool

	mu  sync.Mutex
	bad int64
	// names are the class names that came without a number, named those that came
	// with one, and highest the highest number; -1 if there was none.
	names   map[string]bool
	named   map[int64]string
	highest int64
}

// foreign is a shard to be indexed.
type foreign struct {
	split string
	// shard is its entry in the manifest; all but Index is known once it was read.
	shard index.Shard
	// known: the entry is that of the previous manifest, and still right.
	known bool
	// offset and size are where its index lies in the spool, seekAt and the size in
	// shard.Seek where its seek points do.
	offset, size, seekAt int64
}

// spool keeps the indexes until it is certain that they are wanted.
type spool struct {
	mu   sync.Mutex
	file *os.File
	end  int64
}

func (s *spool) add(data []byte) (offset int64, err error) {
	s.mu.Lock()
	offset = s.end
	s.end += int64(len(data))
	s.mu.Unlock()
	_, err = s.file.WriteAt(data, offset)
	return offset, err
}

func (s *spool) close() {
	s.file.Close() // it goes away
	os.Remove(s.file.Name())
}

// maxClasses bounds the classes that are gathered from samples.
const maxClasses = 1 << 20

// survey lists the shards and looks what is in the way.
func (x *indexing) survey(ctx context.Context) error {
	files := map[string]store.Info{}
	var names []string
	for info, err := range x.st.List(ctx, "") {
		if err != nil {
			return err
		}
		files[info.Name] = info
		switch {
		case strings.HasPrefix(info.Name, WorkDir):
			return fmt.Errorf("%s: %w: %s is there: run the same `shardify pack` command again to finish it", x.st.URL(), ErrUnfinished, strings.TrimSuffix(WorkDir, "/"))
		case strings.HasPrefix(info.Name, index.QuarantinePrefix):
		case len(x.opts.Shards) == 0 && isShard(info.Name):
			names = append(names, info.Name)
		}
	}
	for _, name := range x.opts.Shards {
		if _, ok := files[name]; !ok {
			return fmt.Errorf("%s/%s: %w", x.st.URL(), name, fs.ErrNotExist)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return fmt.Errorf("%s: no shards there: their names end in .%s: %w", x.st.URL(), strings.Join(formats.Names(), ", ."), fs.ErrNotExist)
	}
	manifest, present := files[index.ManifestName]
	if present {
		if err := x.inTheWay(ctx); err != nil {
			return err
		}
	}
	if x.previous != nil {
		if len(x.opts.Classes) == 0 {
			x.opts.Classes = x.previous.Classes
		}
		if x.opts.LabelFrom != "" || !slices.Equal(x.opts.Classes, x.previous.Classes) {
			x.previous = nil // nothing of it can be kept
		}
	}
	if len(x.opts.Classes) > 0 {
		x.number = make(map[string]int64, len(x.opts.Classes))
		for i, name := range x.opts.Classes {
			x.number[name] = int64(i)
		}
	}
	taken := map[string]string{}
	for i, name := range names {
		f, err := formats.OfFile(name)
		if err != nil {
			return err
		}
		if i == 0 {
			x.format = f
		} else if f != x.format {
			return fmt.Errorf("%s: shards of several formats, %s (%s) and %s (%s): a data set has one; index them apart, in folders of their own", x.st.URL(), names[0], x.format, name, f)
		}
		sh := foreign{split: x.opts.Split}
		if sh.split == "" {
			sh.split = SplitOf(name)
		}
		sh.shard.Name, sh.shard.Bytes = name, files[name].Size
		sh.shard.Index.Name = IndexName(name)
		if other := taken[sh.shard.Index.Name]; other != "" {
			return fmt.Errorf("%s: %s and %s would have one index, %s: rename one of them", x.st.URL(), other, name, sh.shard.Index.Name)
		}
		taken[sh.shard.Index.Name] = name
		if points := SeekName(name); x.every >= 0 && !x.opts.Force {
			if _, ok := files[points]; ok && !x.oursSeek(ctx, points) {
				return fmt.Errorf("%s/%s: %w: it has no seek points; --force replaces it", x.st.URL(), points, ErrInTheWay)
			}
		}
		if x.known(&sh, files, manifest) {
			sh.known = true
		} else if _, ok := files[sh.shard.Index.Name]; ok && !x.opts.Force && !x.ours(ctx, sh.shard.Index.Name) {
			return fmt.Errorf("%s/%s: %w: it is no index of shardify; --force replaces it", x.st.URL(), sh.shard.Index.Name, ErrInTheWay)
		}
		x.shards = append(x.shards, sh)
		x.opts.Progress.Total.Add(sh.shard.Bytes)
	}
	return nil
}

// inTheWay looks at the manifest that is there.
func (x *indexing) inTheWay(ctx context.Context) error {
	x.replaced = true
	data, err := store.ReadAll(ctx, x.st, index.ManifestName, index.MaxManifest)
	if err != nil {
		return err
	}
	fault := func(what string) error {
		return fmt.Errorf("%s/%s: %w: %s", x.st.URL(), index.ManifestName, ErrInTheWay, what)
	}
	m, err := index.DecodeManifest(data)
	switch {
	case x.opts.Force:
		return nil
	case err != nil:
		return fault("it is not ours (" + err.Error() + "); --force replaces it")
	case m.Options != nil:
		return fault("this is a packed data set, which has its indexes; --force writes new ones, which do not know the files' original paths")
	case !x.opts.Update:
		return fault("there is an index already; --update brings it up to date, --force writes it anew")
	}
	x.previous = m
	return nil
}

// known says whether the previous manifest's entry of a shard is still right, and
// takes it: the shard has the same size and was not modified since.
func (x *indexing) known(sh *foreign, files map[string]store.Info, manifest store.Info) bool {
	if x.previous == nil {
		return false
	}
	for i := range x.previous.Splits {
		for j := range x.previous.Splits[i].Shards {
			was := &x.previous.Splits[i].Shards[j]
			now, rows := files[sh.shard.Name], files[was.Index.Name]
			if was.Name == sh.shard.Name && was.Bytes == now.Size && was.Index.Bytes == rows.Size &&
				was.Index.Name == sh.shard.Index.Name && !now.ModTime.IsZero() && !now.ModTime.After(manifest.ModTime) {
				sh.shard = *was
				if p := was.Seek; p != nil && files[p.Name].Size != p.Bytes {
					sh.shard.Seek = nil
				}
				return true
			}
		}
	}
	return false
}

// ours says whether a file is an index that shardify wrote.
func (x *indexing) ours(ctx context.Context, name string) bool {
	o, err := x.st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	_, err = index.ReadKeys(store.ReaderAt(ctx, o), o.Info().Size)
	return err == nil
}

// oursSeek says whether a file is one of seek points.
func (x *indexing) oursSeek(ctx context.Context, name string) bool {
	o, err := x.st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	var head [seek.HeadSize]byte
	n, _ := o.ReadAt(ctx, head[:], 0)
	return seek.IsHead(head[:n])
}

// found reports a bad sample.
func (x *indexing) found(b BadSample) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bad++
	x.report(b)
}

// one reads a shard.
func (x *indexing) one(ctx context.Context, f *foreign) error {
	progress := x.opts.Progress
	defer progress.Shards.Add(1)
	if f.known {
		progress.Bytes.Add(f.shard.Bytes)
		progress.Samples.Add(f.shard.Samples)
		return nil
	}
	turn, err := x.turns.Begin(ctx, f.shard.Bytes)
	if err != nil {
		return err
	}
	defer turn.Done()
	o, err := x.st.Open(store.WithSize(ctx, f.shard.Bytes), f.shard.Name)
	if err != nil {
		return err
	}
	defer o.Close()
	file := newObjectReader(ctx, x.st.URL(), o, x.turns.Ranges(), func(n int) { progress.Bytes.Add(int64(n)) })
	defer file.close()
	file.begin()
	if err := turn.Take(ctx); err != nil {
		return err
	}
	var points *pointsOf
	if x.every >= 0 {
		points = x.newPointsOf()
		defer points.end()
	}
	rows, raw, err := x.rows(ctx, f, file, points)
	if err != nil {
		return err
	}
	// What the decompressor did not need belongs to the checksum, too.
	if _, err := io.Copy(io.Discard, file); err != nil {
		return err
	}
	if file.off != f.shard.Bytes {
		return fmt.Errorf("shard %s/%s: %d bytes, and %d when it was listed: it changes; index it when it is complete", x.st.URL(), f.shard.Name, file.off, f.shard.Bytes)
	}
	f.shard.Checksum = index.NewChecksum(file.hash.Sum64())
	if raw != f.shard.Bytes {
		f.shard.RawBytes = raw
	}
	f.size = int64(len(rows))
	if f.offset, err = x.spool.add(rows); err != nil || points == nil {
		return err
	}
	said, err := points.close(&f.shard.File)
	if err != nil || points.jpegs == 0 {
		return err
	}
	said.Name = SeekName(f.shard.Name)
	f.shard.Seek = &said
	f.seekAt, err = x.spool.add(points.out.Bytes())
	return err
}

// pointsOf are the seek points of a shard as its samples come.
type pointsOf struct {
	*seekShard
	out bytes.Buffer
}

func (x *indexing) newPointsOf() *pointsOf {
	p := new(pointsOf)
	p.seekShard = newSeekShard(&p.out, x.maker, x.memory)
	return p
}

// sample adds those of a sample; nil adds nothing.
func (p *pointsOf) sample(ctx context.Context, row *index.Row, s *sample.Sample) error {
	if p == nil {
		return nil
	}
	if field := imageOf(row); field != nil {
		data, _ := s.Field(field.Name)
		return p.add(ctx, field.CRC32C, data)
	}
	return p.add(ctx, 0, nil)
}

// rows reads the samples of a shard and returns its index, and the size of the
// container.
func (x *indexing) rows(ctx context.Context, f *foreign, file *objectReader, points *pointsOf) (rows []byte, raw int64, err error) {
	var out bytes.Buffer
	w := index.NewRowWriter(&out)
	var stats FieldStats
	bad := func(offset int64, err error) {
		var format *shard.FormatError
		if errors.As(err, &format) {
			offset = format.Offset
		}
		x.found(BadSample{Shard: f.shard.Name, Offset: offset, Err: err})
	}
	in := &countingReader{}
	stream, err := streamRaw(x.format, file)
	if err != nil {
		bad(0, err)
	} else {
		defer stream.Close()
		in.r = stream
		end := int64(0)
		for s, err := range x.format.Container.Scan(in, maxSample) {
			if file.err != nil || ctx.Err() != nil {
				return nil, 0, errors.Join(file.err, ctx.Err())
			}
			if err != nil {
				bad(end, err)
				in.failed = true
				break
			}
			end = s.Offset + s.Size
			row, ok := x.row(f, s)
			if !ok {
				continue
			}
			stats.Add(&row)
			f.shard.Samples++
			x.opts.Progress.Samples.Add(1)
			if err := errors.Join(w.Write(row), points.sample(ctx, &row, &s.Sample)); err != nil {
				return nil, 0, err
			}
		}
		_, err := io.Copy(io.Discard, in)
		if file.err != nil {
			return nil, 0, file.err
		}
		if err != nil && !in.failed {
			bad(in.n, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, 0, err
	}
	f.shard.Fields = stats.List()
	return out.Bytes(), in.n, nil
}

// countingReader counts what is read.
type countingReader struct {
	r      io.Reader
	n      int64
	failed bool
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// row describes a sample; ok is false if it is bad.
func (x *indexing) row(f *foreign, s *shard.Located) (row index.Row, ok bool) {
	fault := func(field int, err error) (index.Row, bool) {
		b := BadSample{Shard: f.shard.Name, Key: s.Key, Offset: s.Offset, Err: err}
		if field >= 0 {
			b.Field, b.Offset = s.Sample.Fields[field].Name, s.Placement.Fields[field].HeaderOffset
		}
		x.found(b)
		return index.Row{}, false
	}
	if err := CheckKey(s.Key); err != nil {
		return fault(-1, err)
	}
	facts := shard.Facts{Label: -1, Image: sample.Image(s.Sample.Fields, func(f sample.Field) string { return f.Name })}
	orientation := 0
	for i := range s.Sample.Fields {
		field := &s.Sample.Fields[i]
		if err := plainText(field.Name, 255); err != nil {
			return fault(i, fmt.Errorf("the field's name %w", err))
		}
		if !sample.IsImage(field.Name) {
			continue
		}
		info, err := imaging.Probe(field.Data)
		if err != nil {
			return fault(i, err)
		}
		if i == facts.Image {
			facts.Format, facts.Colorspace = info.Format, info.Colorspace
			facts.Width, facts.Height, facts.Channels = info.Width, info.Height, info.Channels
			orientation = info.Orientation
		}
	}
	var err error
	if facts.Label, facts.LabelName, err = x.label(&s.Sample); err != nil {
		return fault(-1, err)
	}
	return Describe(&s.Sample, s.Placement, &facts, orientation, nil), true
}

// CheckKey reports why an index could not hold a key, which may be one that no container
// of ours would be given; nil if it could.
func CheckKey(key string) error {
	if err := plainText(key, 4096); err != nil {
		return fmt.Errorf("the key %w", err)
	}
	return nil
}

// plainText reports why an index could not hold a name.
func plainText(name string, most int) error {
	switch {
	case len(name) > most:
		return fmt.Errorf("is longer than %d bytes", most)
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return errors.New("has a control character")
	}
	return nil
}

// label finds a sample's label and class name, -1 and "" if there is none.
func (x *indexing) label(s *sample.Sample) (n int64, name string, err error) {
	n, name = Label(s, x.opts.LabelFrom)
	if n < 0 && name == "" {
		return -1, "", nil
	}
	if x.number != nil {
		if n < 0 {
			var ok bool
			if n, ok = x.number[name]; !ok {
				return 0, "", fmt.Errorf("the class %q is not in the list of classes", sample.Shorten(name))
			}
			return n, name, nil
		}
		if n >= int64(len(x.opts.Classes)) {
			return 0, "", fmt.Errorf("the label %d, but the list of classes has %d", n, len(x.opts.Classes))
		}
		if want := x.opts.Classes[n]; name != "" && name != want {
			return 0, "", fmt.Errorf("the label %d has the name %q, and %q in the list of classes", n, sample.Shorten(name), want)
		}
		return n, x.opts.Classes[n], nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.highest = max(x.highest, n)
	switch was, ok := x.named[n]; {
	case n < 0 && len(x.names) < maxClasses:
		x.names[name] = true
	case n < 0 && !x.names[name], n >= 0 && !ok && name != "" && len(x.named) == maxClasses:
		return 0, "", fmt.Errorf("more than %d class names: if %q is none, say with --label-from where labels are, or none", maxClasses, sample.Shorten(name))
	case n >= 0 && ok && name != "" && name != was:
		return 0, "", fmt.Errorf("the label %d has the name %q here and %q elsewhere: give the classes with --classes, or say with --label-from where labels are", n, sample.Shorten(name), was)
	case n >= 0 && name != "":
		x.named[n] = name
	}
	return n, name, nil
}

// Label looks for a sample's label where from says, as IndexOptions.LabelFrom: a number,
// or else -1, and a name, or else "".
func Label(s *sample.Sample, from string) (n int64, name string) {
	n = -1
	take := func(number int64, text string) {
		if n < 0 && number >= 0 {
			n = number
		}
		if name == "" {
			name = text
		}
	}
	field, member, _ := strings.Cut(from, ".")
	switch {
	case from == "none":
		return -1, ""
	case from == "":
		if data, ok := s.Field("cls"); ok {
			take(labelText(string(data)))
		}
		if data, ok := s.Field("json"); ok {
			takeMembers(data, []string{"label", "cls", "class", "label_name", "class_name"}, take)
		}
		return n, name
	}
	// A field's name may have dots, too.
	if data, ok := s.Field(from); ok {
		take(labelText(string(data)))
	} else if data, ok := s.Field(field); ok {
		takeMembers(data, []string{member}, take)
	}
	return n, name
}

// takeMembers takes members of a JSON object; anything else gives nothing.
func takeMembers(data []byte, members []string, take func(int64, string)) {
	var object map[string]json.RawMessage
	if len(data) > 1<<20 || json.Unmarshal(data, &object) != nil {
		return
	}
	for _, m := range members {
		var text string
		raw := object[m]
		if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
			// A text is a name, also if it looks like a number.
			if plainText(text, maxName) == nil {
				take(-1, text)
			}
		} else if number, err := strconv.ParseInt(string(raw), 10, 64); err == nil && number >= 0 {
			take(number, "")
		}
	}
}

// maxName bounds a class name in a sample: what is longer is no name.
const maxName = 256

// labelText reads the content of a field as a number or a name.
func labelText(text string) (n int64, name string) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return max(n, -1), ""
	}
	if plainText(text, maxName) != nil {
		return -1, ""
	}
	return -1, text
}

// classes decides on the class names and puts them into the indexes.
func (x *indexing) classes() ([]string, error) {
	if x.number != nil {
		return x.opts.Classes, nil
	}
	var classes []string
	switch {
	case x.highest >= 0:
		// Numbers, and names for all of them; or else the numbers alone.
		if int64(len(x.named)) != x.highest+1 {
			return nil, nil
		}
		for n := range x.highest + 1 {
			classes = append(classes, x.named[n])
		}
		seen := slices.Clone(classes)
		slices.Sort(seen)
		if len(slices.Compact(seen)) < len(classes) {
			return nil, nil
		}
	case len(x.names) > 0:
		classes = slices.Sorted(maps.Keys(x.names))
	default:
		return nil, nil
	}
	x.number = make(map[string]int64, len(classes))
	for i, name := range classes {
		x.number[name] = int64(i)
	}
	for i := range x.shards {
		if err := x.relabel(&x.shards[i], classes); err != nil {
			return nil, err
		}
	}
	return classes, nil
}

// relabel gives the rows of a shard both number and name.
func (x *indexing) relabel(f *foreign, classes []string) error {
	rows, err := index.ReadRows(io.NewSectionReader(x.spool.file, f.offset, f.size), f.size)
	if err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		if row.Label != nil {
			row.LabelName = classes[*row.Label]
		} else if n, ok := x.number[row.LabelName]; ok {
			row.Label = &n
		}
	}
	var out bytes.Buffer
	if err := index.WriteRows(&out, rows); err != nil {
		return err
	}
	f.size = int64(out.Len())
	f.offset, err = x.spool.add(out.Bytes())
	return err
}

// commit writes the indexes and then the manifest. The old manifest goes first: it
// would not fit the new indexes.
func (x *indexing) commit(ctx context.Context, classes []string) (*index.Manifest, error) {
	m := &index.Manifest{Tool: x.opts.Tool, Name: x.opts.Name, Container: x.format.Container.Name(), Compression: x.format.Compression, Classes: classes}
	if x.replaced {
		if err := x.st.Remove(ctx, index.ManifestName); err != nil {
			return nil, err
		}
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range x.shards {
		if f := &x.shards[i]; !f.known {
			group.Go(func() error { return x.write(gctx, f) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	splits := map[string]*index.Split{}
	indexes := map[string]bool{}
	for i := range x.shards {
		f := &x.shards[i]
		indexes[f.shard.Index.Name] = true
		if p := f.shard.Seek; p != nil {
			indexes[p.Name] = true
		}
		s := splits[f.split]
		if s == nil {
			s = &index.Split{Name: f.split}
			splits[f.split] = s
		}
		s.Shards = append(s.Shards, f.shard)
		s.Samples += f.shard.Samples
		s.Bytes += f.shard.Bytes
	}
	for _, name := range slices.Sorted(maps.Keys(splits)) {
		m.Splits = append(m.Splits, *splits[name])
	}
	if x.previous != nil {
		// Indexes of shards that are gone, and seek points of others that are new.
		for i := range x.previous.Splits {
			for j := range x.previous.Splits[i].Shards {
				was := &x.previous.Splits[i].Shards[j]
				names := []string{was.Index.Name}
				if was.Seek != nil {
					names = append(names, was.Seek.Name)
				}
				for _, name := range names {
					if indexes[name] {
						continue
					}
					if err := x.st.Remove(ctx, name); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return writeManifest(ctx, x.st, m)
}

// writers is how many indexes are written at once: each takes some requests, or waits for
// the disk.
const writers = 16

// write writes a shard's index, and its seek points if it has any.
func (x *indexing) write(ctx context.Context, f *foreign) error {
	data := make([]byte, f.size)
	if _, err := x.spool.file.ReadAt(data, f.offset); err != nil {
		return err
	}
	if err := store.WriteAll(ctx, x.st, f.shard.Index.Name, data); err != nil {
		return err
	}
	f.shard.Index.Bytes, f.shard.Index.Checksum = f.size, index.Sum(data)
	if p := f.shard.Seek; p != nil {
		return writeFrom(ctx, x.st, p.Name, io.NewSectionReader(x.spool.file, f.seekAt, p.Bytes))
	}
	return nil
}

// writeManifest commits a manifest, and returns it as it will be read.
func writeManifest(ctx context.Context, st store.Store, m *index.Manifest) (*index.Manifest, error) {
	data, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := store.WriteAll(ctx, st, index.ManifestName, data); err != nil {
		return nil, err
	}
	return index.DecodeManifest(data)
}

// writeFrom writes an object of all that r has.
func writeFrom(ctx context.Context, st store.Store, name string, r io.Reader) error {
	w, err := st.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.Commit(ctx)
}

// splitWords are the words that name a split in the names of files.
var splitWords = []string{"train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval", "trainval"}

// trailing is the number of a shard: "-000012", "_3", "-00000-of-00128".
var trailing = regexp.MustCompile(`[-_.]*[0-9]+([-_.]of[-_.][0-9]+)?$`)

// SplitOf tells the split of a shard from its name: the last of its words, and of
// those of its folders, that is one of train, training, val, valid, validation,
// test, testing, dev, eval and trainval ("imagenet-train-000000.tar",
// "val/000000.tar"); or else what stands before its number ("cats-000.tar" is of the
// split cats); or else "train" ("000000.tar").
func SplitOf(name string) string {
	stem := strings.TrimSuffix(IndexName(name), ".parquet")
	words := strings.FieldsFunc(strings.ToLower(stem), func(r rune) bool { return strings.ContainsRune("/-_. ", r) })
	for _, w := range slices.Backward(words) {
		if slices.Contains(splitWords, w) {
			return w
		}
	}
	base := path.Base(stem)
	if at := trailing.FindStringIndex(base); at != nil && at[0] > 0 {
		return base[:at[0]]
	}
	return "train"
}
