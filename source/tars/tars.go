// Package tars lists and reads the samples of existing shards: tar files such as
// WebDataset's, TFRecord files, each plain or compressed, and our own data sets.
// Start with [Open].
//
// # What is listed
//
// Shards are read front to back, several side by side, to find their samples: that
// takes as long as reading all of their bytes once. Those of our own data sets are
// not read: their indexes say the same, and are compared with their checksums.
// (Where an index does not, because a field cls is something that its row does not
// spell out, or a field does not stand verbatim in the shard, that shard is read.)
// Each field of a sample is an entry with the sample's key and the field's name.
//
// The field cls is not listed, but is the sample's class: a number from 0, or a
// name (a line of text of at most 256 bytes). If all are numbers they are kept as
// numbers. A sample without it has no class, and so has one whose cls is -1.
//
// Keys are as in the shards, less a leading "./". A key that is no legal one here
// (bytes that are not UTF-8) is made one by sample.KeyOf. Where each shard counts
// its samples anew, Config.ShardKeys keeps them apart.
//
// A shard that is damaged or cut is a *source.EntryError that wraps
// shard.ErrTruncated, shard.ErrChecksum, or a type of package shard; what comes
// before the damage is listed. (A tar that is cut between two of its members looks
// whole, unless it is of our own data sets.)
//
// # Reading
//
// A field is read at its place: of a plain shard, with the same four system calls
// as a file; of .zst with a seek table, by decoding the frame around it; a few of
// these are kept open. What is read is compared with the checksum that listing
// found, so that a field is what was planned or an error that wraps
// shard.ErrChecksum.
//
// Of a shard in a bucket, a plain field takes one request; one of a .zst with a seek
// table, one more for each shard. Shards that are read front to back are asked for in
// ranges of 4 MiB, of which some are under way while one is decoded, and so are the first
// ones of the shards that come next (package store/ahead). What is read is of
// the version (a bucket's ETag) that was listed, or else the error is source.ErrChanged,
// which also ends a pass; so does what a store says otherwise.
//
// A .gz, or a .zst without a seek table, cannot be read at offsets. It is
// decompressed when it is first needed, once, to a temporary file in
// Config.TempDir, and read there; so reading takes time in proportion to the
// shards, in whatever order the fields are read. Readers of one shard wait for it
// together. The same becomes of a .zst with a seek table once reading it at offsets
// has cost as much as reading all of it 16 times (huge frames, or tiny samples), if
// there is room. A shard whose checksum turns out to be wrong is an error wherever
// it is read, one that is damaged otherwise is read up to there.
//
// The temporary file holds 4 GiB of shards; those not used for longest make room
// for others. When one of them is needed after all, the limit doubles: it stays
// where the shards are read one after the other, and soon holds all where they are
// read in no order. If the disk is full before that, and shards had to make room
// more than twice, that is an error that wraps store.ErrNoSpace. The file has no
// name where the system allows that; elsewhere it goes with Close.
package tars

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"shardify/index"
	"shardify/sample"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/source"
	"shardify/source/internal/pass"
	"shardify/store"
	"shardify/store/ahead"
	"shardify/store/http"
	"shardify/store/stream"
)

// Config says how shards are listed.
type Config struct {
	// Split is the split of all samples. Our own data sets have their own.
	Split string `json:"split,omitempty"`
	// ShardKeys puts the shard's name, less its ending, before every key:
	// "train-0003/000017".
	ShardKeys bool `json:"shard_keys,omitempty"`
	// MaxSample is the size in bytes of the largest sample that is read; by default
	// 1 GiB. A larger one is an error of its shard, found before it takes memory.
	MaxSample int64 `json:"max_sample,omitempty"`
	// Workers is the number of shards read at once; by default one a core. Those that lie
	// in a bucket take 256 MiB together, or 32 for each of these where that is more, as the
	// next ones are begun meanwhile.
	Workers int `json:"workers,omitempty"`
	// TempDir is where shards are decompressed that cannot be read at offsets; by
	// default the system's folder for temporary files.
	TempDir string `json:"temp_dir,omitempty"`
}

// Validate reports every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.MaxSample < 0 {
		faults = append(faults, fmt.Errorf("a largest sample of %d bytes", c.MaxSample))
	}
	if c.Workers < 0 {
		faults = append(faults, fmt.Errorf("%d workers", c.Workers))
	}
	return errors.Join(faults...)
}

// file is a shard.
type file struct {
	name   string // as the user would write it
	path   string // absolute, or its URL
	format formats.Format
	split  string
	// st is where it lies as object; nil for a file of this machine. unseen says that the
	// user has named it, and nobody has looked whether it is there.
	st     store.Store
	object string
	unseen bool
	// mu is for its bytes, which may be unknown, and its stamp, 0 if there is none.
	mu          sync.Mutex
	size, stamp int64
	// own and index are the shard's entry in the manifest of a data set of ours, and
	// the path or object of its index; nil and empty for other shards.
	own   *index.Shard
	index string

	// How it is read, if it is compressed.
	access *access
}

// Tars is a source of the samples in shards. Its methods are safe for concurrent
// use.
type Tars struct {
	name    string
	files   []*file
	byPath  map[string]*file
	cfg     Config
	classes []string
	numeric atomic.Bool
	open    cache
	spool   spool
	stores  map[string]store.Store // by the URL that a user wrote
	webs    map[string]*web        // by the URL that they lie below
	clients []*http.Store          // of these
}

var _ source.Source = (*Tars)(nil)

// Open returns the source of the samples in the given shards. A path is a shard, a
// pattern for several (doublestar's *, ?, **, {a,b}, for where no shell has
// expanded it), or a folder: that of one of our data sets, told by its manifest,
// whose splits it has; or of another, of which all files with a shard's ending are
// taken. Each of them may be in a bucket, as s3://bucket/prefix, opened as store/open
// does; ctx is for what is asked there. Of a web server it is a data set of ours,
// https://host/folder, or a shard, whose URL may have braces (stream.Expand) and a
// signature; no error and no location shows that, nor user and password. A shard that is
// missing there ends the pass. Close it after use.
func Open(ctx context.Context, paths []string, cfg Config) (*Tars, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	titles := make([]string, len(paths))
	for i, p := range paths {
		titles[i] = stream.Shown(p)
	}
	t := &Tars{name: strings.Join(titles, " "), cfg: cfg, byPath: make(map[string]*file), stores: make(map[string]store.Store), webs: make(map[string]*web)}
	t.spool.dir, t.spool.limit = cfg.TempDir, spoolSize
	if len(paths) == 0 {
		return nil, errors.New("no shards are named")
	}
	for i, p := range paths {
		before := len(t.files)
		add := t.add
		if !store.IsLocal(p) {
			add = func(p string) ([]string, error) { return t.addURL(ctx, p) }
		}
		classes, err := add(p)
		if err != nil {
			return nil, err
		}
		if i > 0 && !slices.Equal(classes, t.classes) {
			return nil, fmt.Errorf("%q and %q give their labels other names; pack them one by one", titles[0], titles[i])
		}
		t.classes = classes
		if len(t.files) == before {
			return nil, fmt.Errorf("%q: no shards (%s) there", titles[i], strings.Join(formats.Names(), ", "))
		}
	}
	if err := t.openWebs(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	for _, f := range t.files {
		if t.byPath[f.path] != nil {
			return nil, errors.Join(fmt.Errorf("%q is named twice", f.name), t.Close())
		}
		t.byPath[f.path] = f
	}
	return t, nil
}

// add adds the shards that a path means, and returns the names of their labels.
func (t *Tars) add(p string) (classes []string, err error) {
	info, err := os.Stat(p)
	switch {
	case err == nil && info.IsDir():
		return t.addFolder(p)
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is neither a file nor a folder", p)
	case err == nil:
		_, err := t.addFile(p, t.cfg.Split)
		return nil, err
	case !errors.Is(err, fs.ErrNotExist) || !hasMeta(p):
		return nil, err
	}
	found, err := doublestar.FilepathGlob(p, doublestar.WithFilesOnly())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", p, err)
	}
	slices.Sort(found)
	for _, f := range found {
		if _, err := t.addFile(f, t.cfg.Split); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// hasMeta says whether a path has a character that patterns have.
func hasMeta(p string) bool { return strings.ContainsAny(p, metaChars) }

const metaChars = "*?[{"

// IsPattern says whether a path, if nothing has that name, is a pattern for shards: it
// ends as they do.
func IsPattern(p string) bool { return hasMeta(p) && named(p) }

func (t *Tars) addFile(p, split string) (*file, error) {
	format, err := formats.OfFile(p)
	if err != nil {
		return nil, err
	}
	abs := p
	if store.IsLocal(p) {
		if abs, err = filepath.Abs(p); err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
	}
	f := &file{name: p, path: abs, format: format, split: split, access: newAccess(format.Compression)}
	t.files = append(t.files, f)
	return f, nil
}

// addFolder adds the shards of a data set of ours, or those that lie in a folder.
func (t *Tars) addFolder(dir string) (classes []string, err error) {
	f, err := os.Open(filepath.Join(dir, index.ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, t.addLoose(dir)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, index.MaxManifest))
	if err != nil {
		return nil, err
	}
	m, err := index.DecodeManifest(data)
	if errors.Is(err, index.ErrNotManifest) {
		return nil, t.addLoose(dir) // another program's manifest.json
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", f.Name(), err)
	}
	for _, s := range m.Splits {
		for i := range s.Shards {
			own := &s.Shards[i]
			f, err := t.addFile(filepath.Join(dir, filepath.FromSlash(own.Name)), s.Name)
			if err != nil {
				return nil, err
			}
			f.own, f.index = own, filepath.Join(dir, filepath.FromSlash(own.Index.Name))
		}
	}
	return m.Classes, nil
}

func (t *Tars) addLoose(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p != dir && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !named(p) || !d.Type().IsRegular() && d.Type() != fs.ModeSymlink {
			return nil
		}
		_, err = t.addFile(p, t.cfg.Split)
		return err
	})
}

// named says whether a file has a shard's name.
func named(p string) bool {
	_, err := formats.OfFile(p)
	return err == nil
}

// Remote says that shards come over a network, so that many fields should be read at once.
func (t *Tars) Remote() bool {
	return slices.ContainsFunc(t.files, func(f *file) bool { return f.st != nil })
}

// Close closes the shards that are kept open and removes what was decompressed.
// There must be no Read, now or later.
func (t *Tars) Close() error {
	for _, c := range t.clients {
		c.Close()
	}
	return errors.Join(t.open.close(), t.spool.close())
}

// Name returns the paths given to Open.
func (t *Tars) Name() string { return t.name }

// Numeric says, after a pass, whether all classes were numbers.
func (t *Tars) Numeric() bool { return t.numeric.Load() }

// Classes returns the names that the manifest of a data set of ours gives to the
// numbers; nil if there is none.
func (t *Tars) Classes() []string { return slices.Clone(t.classes) }

// Entries lists the fields of all samples. It reads every shard once, of our own
// data sets the indexes.
func (t *Tars) Entries(ctx context.Context) iter.Seq2[source.Entry, error] {
	return pass.Run(ctx, func() []func(*pass.Pass) {
		workers := t.cfg.Workers
		if workers == 0 {
			workers = runtime.GOMAXPROCS(0)
		}
		turns := ahead.NewTurns(workers)
		if t.Remote() {
			workers = turns.Goroutines()
		}
		workers = min(workers, len(t.files))
		var next, numbers, names, done atomic.Int64
		work := make([]func(*pass.Pass), workers)
		for i := range work {
			work[i] = func(p *pass.Pass) {
				for {
					n := int(next.Add(1)) - 1
					if n >= len(t.files) {
						return
					}
					s := scanner{t: t, file: t.files[n], pass: p, turns: turns}
					if !s.scan() {
						return
					}
					numbers.Add(s.numbers)
					names.Add(s.names)
					if int(done.Add(1)) == len(t.files) {
						t.numeric.Store(numbers.Load() > 0 && names.Load() == 0)
					}
				}
			}
		}
		return work
	})
}

// scanner lists the samples of a shard.
type scanner struct {
	t     *Tars
	file  *file
	pass  *pass.Pass
	turns *ahead.Turns // of shards that are read
	batch []pass.Item
	// modTime is the shard's.
	modTime int64
	// prefix is put before keys.
	prefix string
	// fields keeps the names of fields, which repeat.
	fields map[string]string
	// parts are the fields of the sample that is being listed.
	parts []part
	// numbers and names count the classes.
	numbers, names int64
}

// batchItems is about how many entries are handed over at once.
const batchItems = 256

func (s *scanner) fault(path string, err error) {
	s.batch = append(s.batch, pass.Item{Err: &source.EntryError{Path: path, Err: err}})
}

// part is a field of a sample: where it is, or, where offset is negative, what.
type part struct {
	name         string
	offset, size int64
	sum          uint32
	data         []byte
}

// errOver ends the listing of a shard because the pass is over.
var errOver = errors.New("the pass is over")

// scan returns false when the pass is over.
func (s *scanner) scan() bool {
	s.fields = make(map[string]string)
	s.batch = s.pass.Batch()
	if s.t.cfg.ShardKeys {
		s.prefix = sample.KeyOf(stem(s.file)) + "/"
	}
	err := errUntold
	if s.file.own != nil {
		err = s.index()
	}
	if err == errUntold {
		err = s.samples()
	}
	if err == errOver {
		return false
	}
	var of *storeError
	if missing := errors.Is(err, fs.ErrNotExist); errors.As(err, &of) && (!missing || s.file.unseen) {
		if missing {
			of.err = fmt.Errorf("%w: check the URL, and the range of numbers in it", of.err)
		}
		// It is no fault of this shard alone, or the list is not what is there any more.
		if err = of.err; errors.Is(err, store.ErrChanged) {
			err = fmt.Errorf("%w: %w", source.ErrChanged, err)
		}
		s.pass.Send(append(s.batch, pass.Item{Err: err}))
		return false
	}
	if err != nil {
		s.fault(s.file.name, err)
	}
	return s.pass.Send(s.batch)
}

// limit is the size of the largest sample that is read.
func (s *scanner) limit() int64 { return cmp.Or(s.t.cfg.MaxSample, 1<<30) }

// samples lists the samples of the shard by reading it.
func (s *scanner) samples() (err error) {
	ctx := s.pass.Context()
	turn, err := s.turns.Begin(ctx, s.file.beginning())
	if err != nil {
		return errOver
	}
	defer turn.Done()
	h, err := s.file.open(ctx, s.modTime)
	if err != nil {
		return bare(err)
	}
	defer h.Close()
	if _, s.modTime, err = h.state(); err != nil {
		return bare(err)
	}
	in := h.front(ctx, s.turns.Ranges())
	defer in.Close()
	defer func() { // before in is closed
		if failure := in.failure(); failure != nil && err != nil && err != errOver {
			err = failure
		}
	}()
	in.Begin()
	if turn.Take(ctx) != nil {
		return errOver
	}
	plain, err := compress.NewReader(in, s.file.format.Compression)
	if err != nil {
		return err
	}
	defer plain.Close()
	for located, err := range s.file.format.Container.Scan(plain, s.limit()) {
		if err != nil {
			if ctx.Err() != nil {
				return errOver
			}
			return err
		}
		s.parts = s.parts[:0]
		for i := range located.Sample.Fields {
			f, at := &located.Sample.Fields[i], &located.Placement.Fields[i]
			s.parts = append(s.parts, part{name: f.Name, offset: at.Offset, size: at.Size, sum: index.FieldChecksum(f.Data), data: f.Data})
		}
		cls, classed := located.Field("cls")
		if err := s.add(located.Key, cls, classed); err != nil {
			return err
		}
	}
	return nil
}

// add adds the entries of a sample, whose fields are s.parts, and whose field cls
// is cls if classed.
func (s *scanner) add(key string, cls []byte, classed bool) error {
	if strings.HasPrefix(key, "./") {
		key = path.Clean(key)
	}
	if sample.CheckKey(key) != nil {
		key = sample.KeyOf(key)
	}
	key = s.prefix + key
	class := ""
	if classed {
		var err error
		if class, err = s.class(cls); err != nil {
			s.fault(s.file.name+", sample "+sample.Shorten(key), err)
			return nil
		}
	}
	if len(s.parts) == 1 && class != "" {
		s.fault(s.file.name+", sample "+sample.Shorten(key), errors.New("it has no field but cls"))
		return nil
	}
	for i := range s.parts {
		f := &s.parts[i]
		if f.name == "cls" {
			continue
		}
		name, ok := s.fields[f.name]
		if !ok {
			if len(s.fields) >= source.MaxFields {
				clear(s.fields)
			}
			name = strings.Clone(f.name)
			s.fields[name] = name
		}
		e := source.Entry{Split: s.file.split, Class: class, Key: key, Field: name, Path: sample.Join(key, name)}
		if f.offset >= 0 {
			e.Location = source.Location{
				Name: s.file.path, Offset: f.offset, Size: f.size, ModTime: s.modTime,
				CRC32C: f.sum, HasCRC32C: true,
			}
		} else {
			e.Inline = append([]byte{}, f.data...)
			e.Size = int64(len(e.Inline))
		}
		s.batch = append(s.batch, pass.Item{Entry: e})
	}
	if len(s.batch) >= batchItems {
		if !s.pass.Send(s.batch) {
			return errOver
		}
		s.batch = s.pass.Batch()
	}
	return nil
}

// class makes a class of the content of cls.
func (s *scanner) class(cls []byte) (string, error) {
	text := strings.TrimSpace(string(cls))
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil && n == -1:
		return "", nil
	case err == nil && n < 0:
		return "", fmt.Errorf("its class is %d: numbers of classes count from 0", n)
	case err == nil:
		s.numbers++
		return strconv.FormatInt(n, 10), nil
	case text == "" || len(text) > 256 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "", fmt.Errorf("its field cls, %.40q, is neither a number nor a name", text)
	}
	s.names++
	return text, nil
}

// stem returns a shard's name less its ending: "train-00001-of-00010" of
// "train.tfrecord-00001-of-00010".
func stem(f *file) string {
	base := filepath.Base(f.path)
	lower := strings.ToLower(base)
	for _, ending := range []string{f.format.Extension(), f.format.Container.Extension()} {
		if i := strings.LastIndex(lower, ending); i > 0 && len(lower) == len(base) {
			return base[:i] + base[i+len(ending):]
		}
	}
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// bare leaves out the path that package os puts into its errors.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
