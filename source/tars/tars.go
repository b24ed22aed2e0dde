// Package tars lists and reads the samples of existing shards: tar files such as
// WebDataset's, TFRecord files, each plain or compressed, and our own data sets.
// Start with [Open].
//
// # What is listed
//
// Shards are read front to back, several side by side, to find their samples: that
// takes as long as reading all of their bytes once. Each field of a sample is an
// entry with the sample's key and the field's name.
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
// whole.)
//
// # Reading
//
// A field is read at its place: of a plain shard, with the same four system calls
// as a file; of .zst with a seek table, by decoding the frame around it. In a .gz,
// or a .zst without a table, a place can only be reached from the one read before
// it, or from the start; so read those in the order of their offsets, or decompress
// them first. A few compressed shards are kept open.
package tars

import (
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
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/source"
	"shardify/source/internal/pass"
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
	// Workers is the number of shards read at once; by default one a core.
	Workers int `json:"workers,omitempty"`
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
	path   string // absolute
	format formats.Format
	split  string
}

// Tars is a source of the samples in shards. Its methods are safe for concurrent
// use.
type Tars struct {
	name    string
	files   []file
	formats map[string]formats.Format // by path
	cfg     Config
	classes []string
	numeric atomic.Bool
	open    cache
}

var _ source.Source = (*Tars)(nil)

// Open returns the source of the samples in the given shards. A path is a shard, a
// pattern for several (doublestar's *, ?, **, {a,b}, for where no shell has
// expanded it), or a folder: that of one of our data sets, told by its manifest,
// whose splits it has; or of another, of which all files with a shard's ending are
// taken. Close it after use.
func Open(paths []string, cfg Config) (*Tars, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Tars{name: strings.Join(paths, " "), cfg: cfg, formats: make(map[string]formats.Format)}
	if len(paths) == 0 {
		return nil, errors.New("no shards are named")
	}
	for i, p := range paths {
		before := len(t.files)
		classes, err := t.add(p)
		if err != nil {
			return nil, err
		}
		if i > 0 && !slices.Equal(classes, t.classes) {
			return nil, fmt.Errorf("%q and %q give their labels other names; pack them one by one", paths[0], p)
		}
		t.classes = classes
		if len(t.files) == before {
			return nil, fmt.Errorf("%q: no shards (%s) there", p, strings.Join(formats.Names(), ", "))
		}
	}
	for _, f := range t.files {
		if _, twice := t.formats[f.path]; twice {
			return nil, fmt.Errorf("%q is named twice", f.name)
		}
		t.formats[f.path] = f.format
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
		return nil, t.addFile(p, t.cfg.Split)
	case !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(p, "*?[{"):
		return nil, err
	}
	found, err := doublestar.FilepathGlob(p, doublestar.WithFilesOnly())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", p, err)
	}
	slices.Sort(found)
	for _, f := range found {
		if err := t.addFile(f, t.cfg.Split); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (t *Tars) addFile(p, split string) error {
	format, err := formats.OfFile(p)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return fmt.Errorf("%q: %w", p, err)
	}
	t.files = append(t.files, file{name: p, path: abs, format: format, split: split})
	return nil
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
		for _, sh := range s.Shards {
			if err := t.addFile(filepath.Join(dir, filepath.FromSlash(sh.Name)), s.Name); err != nil {
				return nil, err
			}
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
		if _, err := formats.OfFile(p); err != nil || !d.Type().IsRegular() && d.Type() != fs.ModeSymlink {
			return nil // no shard
		}
		return t.addFile(p, t.cfg.Split)
	})
}

// Close closes the shards that are kept open. There must be no Read.
func (t *Tars) Close() error { return t.open.close() }

// Name returns the paths given to Open.
func (t *Tars) Name() string { return t.name }

// Numeric says, after a pass, whether all classes were numbers.
func (t *Tars) Numeric() bool { return t.numeric.Load() }

// Classes returns the names that the manifest of a data set of ours gives to the
// numbers; nil if there is none.
func (t *Tars) Classes() []string { return slices.Clone(t.classes) }

// Entries lists the fields of all samples. It reads every shard once.
func (t *Tars) Entries(ctx context.Context) iter.Seq2[source.Entry, error] {
	return pass.Run(ctx, func() []func(*pass.Pass) {
		workers := t.cfg.Workers
		if workers == 0 {
			workers = runtime.GOMAXPROCS(0)
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
					s := scanner{t: t, file: &t.files[n], pass: p}
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
	batch []pass.Item
	// modTime is the shard's.
	modTime int64
	// prefix is put before keys.
	prefix string
	// fields keeps the names of fields, which repeat.
	fields map[string]string
	// numbers and names count the classes.
	numbers, names int64
}

// batchItems is about how many entries are handed over at once.
const batchItems = 256

func (s *scanner) fault(path string, err error) {
	s.batch = append(s.batch, pass.Item{Err: &source.EntryError{Path: path, Err: err}})
}

// scan returns false when the pass is over.
func (s *scanner) scan() bool {
	s.fields = make(map[string]string)
	s.batch = s.pass.Batch()
	over := false
	if err := s.samples(&over); err != nil {
		s.fault(s.file.name, err)
	}
	return !over && s.pass.Send(s.batch)
}

func (s *scanner) samples(over *bool) error {
	f, err := os.Open(s.file.path)
	if err != nil {
		return bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return bare(err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	s.modTime = info.ModTime().UnixNano()
	if s.t.cfg.ShardKeys {
		s.prefix = sample.KeyOf(stem(s.file)) + "/"
	}
	plain, err := compress.NewReader(&watched{s.pass.Context(), f}, s.file.format.Compression)
	if err != nil {
		return err
	}
	defer plain.Close()
	limit := s.t.cfg.MaxSample
	if limit == 0 {
		limit = 1 << 30
	}
	for located, err := range s.file.format.Container.Scan(plain, limit) {
		if err != nil {
			if s.pass.Context().Err() != nil {
				*over = true
				return nil
			}
			return err
		}
		s.add(located)
		if len(s.batch) >= batchItems {
			if !s.pass.Send(s.batch) {
				*over = true
				return nil
			}
			s.batch = s.pass.Batch()
		}
	}
	return nil
}

// watched is a reader that ends with its context.
type watched struct {
	ctx context.Context
	r   io.Reader
}

func (w *watched) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

// add adds the entries of a sample.
func (s *scanner) add(l *shard.Located) {
	key := l.Key
	if strings.HasPrefix(key, "./") {
		key = path.Clean(key)
	}
	if sample.CheckKey(key) != nil {
		key = sample.KeyOf(key)
	}
	key = s.prefix + key
	class := ""
	if cls, ok := l.Field("cls"); ok {
		var err error
		if class, err = s.class(cls); err != nil {
			s.fault(s.file.name+", sample "+sample.Shorten(key), err)
			return
		}
	}
	if len(l.Sample.Fields) == 1 && class != "" {
		s.fault(s.file.name+", sample "+sample.Shorten(key), errors.New("it has no field but cls"))
		return
	}
	for i, f := range l.Sample.Fields {
		if f.Name == "cls" {
			continue
		}
		name, ok := s.fields[f.Name]
		if !ok {
			if len(s.fields) >= source.MaxFields {
				clear(s.fields)
			}
			name = strings.Clone(f.Name)
			s.fields[name] = name
		}
		e := source.Entry{Split: s.file.split, Class: class, Key: key, Field: name, Path: sample.Join(key, name)}
		if at := l.Placement.Fields[i]; at.Offset >= 0 {
			e.Location = source.Location{Name: s.file.path, Offset: at.Offset, Size: at.Size, ModTime: s.modTime}
		} else {
			e.Inline = append([]byte{}, f.Data...)
			e.Size = int64(len(e.Inline))
		}
		s.batch = append(s.batch, pass.Item{Entry: e})
	}
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
