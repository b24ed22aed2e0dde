package pack

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"shardify/index"
	"shardify/index/seek"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/store"
)

// DefaultShardSize is a compromise of three: a shard is read in a fraction of a
// second from a disk and in seconds from a bucket, so that shuffling shards and
// starting over are cheap; ImageNet becomes 548 of them, enough to deal to hundreds
// of ranks; and requests, index files and file-system entries stay few. See
// docs/decisions/006-shard-size.md.
const DefaultShardSize = 256 << 20

// The values of Config.Order.
const (
	OrderShuffle     = "shuffle"
	OrderPath        = "path"
	OrderInterleaved = "class-interleaved"
)

// The values of Config.Check.
const (
	CheckNone   = "none"
	CheckHeader = "header"
	CheckDecode = "decode"
)

// The values of Config.OnBad.
const (
	OnBadFail       = "fail"
	OnBadSkip       = "skip"
	OnBadQuarantine = "quarantine"
)

// Config says what the data set shall be. It is kept in the manifest; whatever
// cannot change the bytes is in [Env]. The zero value of every field is its default.
type Config struct {
	// Source says what is packed.
	Source Source `json:"source"`
	// Name is the data set's name in the manifest; default: the base name of DST.
	Name string `json:"name,omitempty"`
	// Format is the shards' format by its file ending: "tar" (the default),
	// "tar.gz", "tar.zst", "tfrecord", "tfrecord.gz".
	Format string `json:"format,omitempty"`
	// Level is the compressor's level; 0 is its default.
	Level int `json:"level,omitempty"`
	// At most one of these is set. ShardSize is the size that shards shall have at
	// most, in bytes before compression (they are cut evenly, to within one sample;
	// default DefaultShardSize; where images are converted, it goes by an estimate), ShardSamples the number of samples a shard shall
	// have at most, Shards the number of shards of each split.
	ShardSize    int64 `json:"shard_size,omitempty"`
	ShardSamples int64 `json:"shard_samples,omitempty"`
	Shards       int64 `json:"shards,omitempty"`
	// Template names the shards, without their ending: {split}, {shard} (from 0)
	// and {shards} (how many) are replaced, {shard:05} with at least five digits.
	// Default "{split}-{shard:06}"; for tfrecord, as TensorFlow's tools want it,
	// "{split}-{shard:05}-of-{shards:05}".
	Template string `json:"template,omitempty"`
	// Order is the order of samples: "shuffle" (the default: a permutation of each
	// split by a keyed hash of the sample's key), "path" (as sorted by path), or
	// "class-interleaved" (every stretch has each class in its share).
	Order string `json:"order,omitempty"`
	// Seed is the key of the permutation.
	Seed uint64 `json:"seed,omitempty"`
	// Classes, if given, numbers the classes; a class outside it is an error. By
	// default class names are numbered in the order of their bytes, as torchvision's
	// ImageFolder does.
	Classes []string `json:"classes,omitempty"`
	// Check says how images are checked: "header" (the default: format, dimensions,
	// and that the file does not end early), "none", or "decode".
	Check string `json:"check,omitempty"`
	// OnBad says what becomes of a sample with a bad file: "quarantine" (the
	// default: left out, listed in bad.jsonl, its files copied to quarantine/),
	// "skip" (left out and listed) or "fail".
	OnBad string `json:"on_bad,omitempty"`
	// Convert says what becomes of images; by default they stay as they are.
	Convert Convert `json:"convert,omitzero"`
	// JPEGSeek says where a JPEG shall have seek points, which let a reader decode a
	// crop of it without what is before: "row" (at the beginning of each row of MCUs) or
	// a number (and so many MCUs further on, too). They lie in a side file of each
	// shard; "" (the default) is none. docs/seek.md says what they cost and bring.
	JPEGSeek string `json:"jpeg_seek,omitempty"`
}

// withDefaults returns the configuration with every default filled in.
func (c Config) withDefaults() Config {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.Format, "tar")
	def(&c.Order, OrderShuffle)
	def(&c.Check, CheckHeader)
	def(&c.OnBad, OnBadQuarantine)
	def(&c.Source.Split, "train")
	if strings.HasPrefix(c.Format, "tfrecord") {
		def(&c.Template, "{split}-{shard:05}-of-{shards:05}")
	}
	def(&c.Template, "{split}-{shard:06}")
	if c.ShardSize == 0 && c.ShardSamples == 0 && c.Shards == 0 {
		c.ShardSize = DefaultShardSize
	}
	c.Convert = c.Convert.withDefaults()
	return c
}

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := c.Source.Validate(); err != nil {
		faults = append(faults, err)
	}
	if f, err := formats.Parse(c.Format); err != nil {
		faults = append(faults, err)
	} else if err := compress.CheckLevel(f.Compression, c.Level); err != nil {
		faults = append(faults, err)
	}
	oneOf := func(name, value string, values ...string) {
		if !slices.Contains(values, value) {
			fault("%s %q: want one of %s", name, value, strings.Join(values, ", "))
		}
	}
	oneOf("order", c.Order, OrderShuffle, OrderPath, OrderInterleaved)
	oneOf("check", c.Check, CheckHeader, CheckNone, CheckDecode)
	oneOf("on-bad", c.OnBad, OnBadQuarantine, OnBadSkip, OnBadFail)
	if err := c.Convert.Validate(); err != nil {
		faults = append(faults, err)
	}
	if _, err := c.seekEvery(); err != nil {
		fault("jpeg-seek: %w", err)
	} else if c.JPEGSeek != "" && c.Convert.Store == StoreRaw {
		fault("jpeg-seek is about JPEGs, and with store raw there are none")
	}
	set := 0
	for _, n := range []int64{c.ShardSize, c.ShardSamples, c.Shards} {
		if n != 0 {
			set++
		}
		if n < 0 {
			fault("a shard size or count of %d", n)
		}
	}
	if set > 1 {
		fault("shard-size, shard-samples and shards are three ways to say one thing: give one")
	}
	if _, err := c.shardName("train", 0, 1); err != nil {
		faults = append(faults, err)
	} else if a, _ := c.shardName("train", 0, 2); a == second(c.shardName("train", 1, 2)) {
		fault("template %q gives all shards one name: it needs {shard}", c.Template)
	}
	seen := map[string]bool{}
	for _, name := range c.Classes {
		if name == "" || !utf8.ValidString(name) {
			fault("class %q: want a name in UTF-8", name)
		}
		if seen[name] {
			fault("class %q is listed twice", name)
		}
		seen[name] = true
	}
	return errors.Join(faults...)
}

func second(name string, _ error) string { return name }

var (
	braced      = regexp.MustCompile(`\{[^{}]*\}`)
	placeholder = regexp.MustCompile(`^\{(split|shard|shards)(?::0?(\d))?\}$`)
)

// shardName returns the name of a shard's file.
func (c *Config) shardName(split string, n, of int64) (string, error) {
	var bad error
	name := braced.ReplaceAllStringFunc(c.Template, func(p string) string {
		m := placeholder.FindStringSubmatch(p)
		if m == nil {
			bad = fmt.Errorf("template %q: %s is none of {split}, {shard} and {shards}, or {shard:06} and the like with up to nine digits", c.Template, p)
			return p
		}
		width, _ := strconv.Atoi(m[2])
		switch m[1] {
		case "split":
			return split
		case "shard":
			return fmt.Sprintf("%0*d", width, n)
		case "shards":
			return fmt.Sprintf("%0*d", width, of)
		}
		panic("the expression has three names")
	})
	if bad != nil {
		return "", bad
	}
	f, err := formats.Parse(c.Format)
	if err != nil {
		return "", err
	}
	name += f.Extension()
	if err := store.CheckName(name); err != nil {
		return "", fmt.Errorf("template %q: %w", c.Template, err)
	}
	if !index.LegalName(name) || name == index.ManifestName || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") ||
		strings.HasPrefix(name, index.QuarantinePrefix) || name == index.BadName {
		return "", fmt.Errorf("template %q: a shard cannot be called %q", c.Template, name)
	}
	return name, nil
}

// seekEvery is the spacing of seek points; -1 for none.
func (c *Config) seekEvery() (int, error) {
	if c.JPEGSeek == "" {
		return -1, nil
	}
	return seek.ParseSpacing(c.JPEGSeek)
}

// indexName returns the name of the index of a shard, seekName that of its side file of
// seek points.
func indexName(shard string, f formats.Format) string {
	return strings.TrimSuffix(shard, f.Extension()) + ".parquet"
}

func seekName(shard string, f formats.Format) string {
	return strings.TrimSuffix(shard, f.Extension()) + ".seek"
}

// shardFiles are the names that a shard's files may have.
func shardFiles(shard string, f formats.Format) []string {
	return []string{shard, indexName(shard, f), seekName(shard, f)}
}

// Env says how the work is done, which leaves no trace in the data set.
type Env struct {
	// Workers is the number of goroutines that read, check and convert; default: the
	// cores.
	Workers int
	// Memory bounds the bytes of samples in flight, and the sorting of the plan;
	// default 128 MiB. A sample that is larger than all of it is packed alone. Where
	// images are converted, half of it is for that: what decoding them takes, and what
	// they become until it is written; default 64 MiB more for each worker.
	Memory int64
	// Worker and Of say which part is done here: the shards whose number is Worker
	// modulo Of. Default: all.
	Worker, Of int
	// TempDir is where the plan is sorted, and where shards that can only be read
	// from their start are unpacked; default: the system's.
	TempDir string
	// Restart drops an unfinished data set in DST first, instead of going on.
	Restart bool
	// Tool names the program, for the manifest.
	Tool string
	// Stdin is read for Source.FilesFrom "-".
	Stdin io.Reader
	// Progress, if not nil, is kept up to date.
	Progress *Progress
	// Stop, if not nil, ends the run when closed: shards in flight are finished,
	// no other is begun, and Run returns ErrStopped.
	Stop <-chan struct{}
}

// Validate reports every fault at once.
func (e Env) Validate() error {
	var faults []error
	if e.Of < 0 || e.Worker < 0 || e.Worker >= max(e.Of, 1) {
		faults = append(faults, fmt.Errorf("worker %d of %d", e.Worker, e.Of))
	}
	if e.Restart && e.Of > 1 {
		faults = append(faults, errors.New("restart goes with a run of its own, not with one of several workers"))
	}
	return errors.Join(faults...)
}

func (e Env) withDefaults(c *Config) Env {
	if e.Workers <= 0 {
		e.Workers = runtime.GOMAXPROCS(0)
	}
	if e.Memory <= 0 {
		e.Memory = 128 << 20
		if c.Convert.any() {
			e.Memory += int64(e.Workers) << 26
		}
	}
	if e.Of <= 0 {
		e.Worker, e.Of = 0, 1
	}
	if e.Tool == "" {
		e.Tool = "shardify"
	}
	if e.Progress == nil {
		e.Progress = new(Progress)
	}
	return e
}
