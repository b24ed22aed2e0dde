package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/reader"
	"shardify/store/cache"
	"shardify/store/retry"
)

// configOptions are the flags of reader.Config. Flags go before --config, which
// goes before what the state of --resume says, and that before the defaults.
type configOptions struct {
	stateOptions
	file  string
	flags reader.Config

	shuffle, ends, decode, dtype, onBad          string
	layout, memory, transform, window, readAhead string
	collate                                      string
	seek                                         string
	tensors                                      string
	cacheSize                                    string
	keysFrom, weights                            string
	mix, sizes                                   []string
	crop, eval                                   int
	streamed                                     bool // see isStream
	mixup, cutmix                                float64
}

// Groups of flags, as not every command has a use for each.
type group uint

const (
	orderFlags group = 1 << iota
	imageFlags
	readFlags
)

// tensorFlags are the flags of the group imageFlags.
var tensorFlags = []string{"crop", "eval", "transform", "mixup", "cutmix", "classes", "dtype", "layout", "decode", "tensors", "collate"}

func (o *configOptions) addFlags(f *pflag.FlagSet, groups group) {
	f.StringVar(&o.file, "config", "", "read the configuration (reader.Config) from this JSON file; flags override it")
	f.StringVar(&o.flags.Split, "split", "", "the split (default: the only one, or train)")
	if groups&orderFlags != 0 {
		o.stateOptions.addFlags(f)
		f.IntVar(&o.flags.BatchSize, "batch", 0, fmt.Sprintf("samples of a batch, of one rank (default %d)", reader.DefaultBatchSize))
		f.Uint64Var(&o.flags.Seed, "seed", 0, "seed of the order and of random transforms")
		f.StringVar(&o.shuffle, "shuffle", "", "none, shards, window or global (default: global; window for a remote DST, shards for .gz shards)")
		f.StringVar(&o.window, "window", "", fmt.Sprintf("samples of the data set within which window shuffles, or with a unit, bytes: 2GiB (default %d, or as many as make %d MiB)", reader.DefaultWindow, reader.DefaultWindowBytes>>20))
		f.IntVar(&o.flags.Lanes, "lanes", 0, fmt.Sprintf("sequences that an epoch is dealt into, a multiple of --world (default %d, or the next multiple)", reader.DefaultLanes))
		f.IntVar(&o.flags.Interleave, "interleave", 0, fmt.Sprintf("shards that a lane mixes (default %d; with --shuffle shards 1)", reader.DefaultInterleave))
		f.IntVar(&o.flags.Block, "block", 0, fmt.Sprintf("samples taken from a shard in a row when mixing (default %d)", reader.DefaultBlock))
		f.IntVar(&o.flags.World, "world", 0, "number of ranks that share an epoch (default 1)")
		f.IntVar(&o.flags.Rank, "rank", 0, "which of the ranks this is, from 0")
		f.StringVar(&o.ends, "ends", "", "samples that fill no batch at the end: exact gives a smaller batch, drop leaves them out, pad repeats some (default exact)")
	}
	if groups&orderFlags != 0 {
		g := &o.flags.Sampling
		f.StringVar(&g.Where, "where", "", "only samples that fulfil this condition on the index: \"width >= 500 and label_name like 'n02%'\"")
		f.StringSliceVar(&g.Labels, "label", nil, "only samples of these classes: names or numbers, with commas between")
		f.StringVar(&o.keysFrom, "keys-from", "", "only the samples whose keys this file lists, one on each line")
		f.StringVar(&o.weights, "weights", "", `how often samples come, as JSON; the first that fits counts: '[{"where":"label = 3","weight":2.5}]'`)
		f.StringArrayVar(&o.mix, "mix", nil, "another data set that is read together with DST, as one; may be given several times")
		f.Var((*numbers)(&g.Shares), "shares", "how much of an epoch DST and each --mix have: 3,1 (default: each sample once)")
		f.BoolVar(&g.Balanced, "balanced", false, "all classes come equally often")
		f.Int64Var(&g.Samples, "samples", 0, "the length of an epoch, in samples of all ranks (default: as the weights say)")
		f.BoolVar(&g.Distinct, "distinct", false, "weights draw without replacement: no sample comes twice in an epoch")
		f.StringVar(&o.flags.Buckets.By, "bucket-by", "", "the value by which --bucket-edges divides the samples: \"txt.size\", \"width * height\" (default \"width / height\")")
		f.Var((*numbers)(&o.flags.Buckets.Edges), "bucket-edges", "every batch has samples of one bucket: of values below the first edge, from the first to below the second, …: 0.8,1.25")
		f.StringSliceVar(&o.sizes, "bucket-sizes", nil, "height x width of the images of each bucket: 320x192,256x256,192x320 (without --bucket-edges: each image comes to the size that is most like it)")
	}
	if groups&imageFlags != 0 {
		f.StringVar(&o.decode, "decode", "", "image, or none: fields as they are (default image)")
		f.IntVar(&o.crop, "crop", 0, "transform for training: a random crop scaled to so many pixels, and flips")
		f.IntVar(&o.eval, "eval", 0, "transform for evaluation: scaled to 8/7 of so many pixels, and the middle (default 224)")
		f.StringVar(&o.transform, "transform", "", `transforms as JSON, with torchvision's names and parameters: '[{"random_resized_crop":224},"random_horizontal_flip",{"color_jitter":{"brightness":0.4}},{"normalize":"imagenet"}]'; there are `+strings.Join(transform.Names(), ", "))
		f.Float64Var(&o.mixup, "mixup", 0, "blend the images of each batch with each other, and their labels: alpha of MixUp")
		f.Float64Var(&o.cutmix, "cutmix", 0, "paste parts of the images of each batch into each other: alpha of CutMix (with --mixup: one of the two for each batch)")
		f.IntVar(&o.flags.Classes, "classes", 0, "the length of soft labels with --mixup and --cutmix (default: the classes of DST)")
		f.StringVar(&o.dtype, "dtype", "", "uint8, float32, float16 or bfloat16 (default uint8)")
		f.StringVar(&o.tensors, "tensors", "", `tensors made of fields, as JSON: '[{"field":"txt"},{"field":"json","name":"ids","path":"/objects/*/id","shape":[-1],"dtype":"int64"}]'; docs/reader.md lists all settings`)
		f.StringVar(&o.layout, "layout", "", "NCHW or NHWC (default NCHW)")
		f.StringVar(&o.collate, "collate", "", "images: stack, all of one size; or of sizes of their own, whole where there is no --transform: ragged, one behind the other, or pad, to the largest of the batch (default stack)")
	}
	if groups&readFlags != 0 {
		f.StringSliceVar(&o.flags.Fields, "fields", nil, "the fields to read besides the images, with commas between")
		f.StringVar(&o.onBad, "on-bad", "", "damaged samples: fail ends, skip leaves them out, substitute takes others of their shards (default fail)")
		f.IntVar(&o.flags.MaxBad, "max-bad", 0, "how many damaged samples an epoch may have; -1: any number (default: a hundredth, and 16 at least)")
		f.Int64Var(&o.flags.MaxPixels, "max-pixels", 0, fmt.Sprintf("images of more pixels are damaged (default %d)", int64(imaging.DefaultMaxPixels)))
		f.DurationVar(&o.flags.Retry.Timeout, "timeout", 0, fmt.Sprintf("how long an operation of a remote store may take before it is made again (default %v)", retry.DefaultTimeout))
		f.IntVar(&o.flags.Retry.Attempts, "attempts", 0, fmt.Sprintf("how often an operation of the store is tried before its error counts (default %d)", retry.DefaultAttempts))
		f.DurationVar(&o.flags.Retry.Hedge, "hedge", 0, "make a read that has no answer after this time a second time (default: never)")
		f.StringVar(&o.flags.Cache.Dir, "cache", "", "keep what is read of a remote or slow DST in this folder on a local disk, for the next epoch and all processes of the host")
		f.StringVar(&o.cacheSize, "cache-size", "", fmt.Sprintf("the most that --cache may take: 500GB, 2TB (default %s)", humanize.Bytes(cache.DefaultMaxBytes)))
		f.StringVar(&o.seek, "seek", "", "use the seek points of `shardify pack --jpeg-seek`: auto, on (also where each is a request of its own, and of files no more than crops need), off (default auto)")
		f.BoolVar(&o.flags.SkipChecksums, "skip-checksums", false, "do not verify the checksums of fields")
		f.IntVar(&o.flags.Workers, "workers", 0, "goroutines that decode (default: the cores)")
		f.StringVar(&o.memory, "memory", "", "memory for batches, reads and index: 512MiB, 2GB (default: four batches, 128 MiB, the index, and up to 2 GiB to read ahead)")
		f.StringVar(&o.readAhead, "read-ahead", "", "how much to read before its turn, with what lies beside it: 1GiB, 0 for none (default: by the store and the order)")
	}
}

// configFor is config for what DST names.
func (o *configOptions) configFor(f *pflag.FlagSet, dst string) (reader.Config, error) {
	o.streamed = isStream(dst)
	return o.config(f)
}

// numbers is a flag of numbers with commas between. Given again, it has more of them.
type numbers []float64

func (n *numbers) Set(text string) error {
	for field := range strings.SplitSeq(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil {
			return fmt.Errorf("%q is no number", field)
		}
		*n = append(*n, v)
	}
	return nil
}

func (n *numbers) String() string {
	var fields []string
	for _, v := range *n {
		fields = append(fields, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return strings.Join(fields, ",")
}

func (n *numbers) Type() string { return "numbers" }

// config merges the file and the flags that were given.
func (o *configOptions) config(f *pflag.FlagSet) (reader.Config, error) {
	var c reader.Config
	if o.file != "" {
		if err := readConfig(o.file, &c); err != nil {
			return c, usage(err)
		}
	}
	var faults []error
	fault := func(flag string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	f.Visit(func(given *pflag.Flag) {
		g := &o.flags
		switch given.Name {
		case "split":
			c.Split = g.Split
		case "batch":
			c.BatchSize = g.BatchSize
		case "seed":
			c.Seed = g.Seed
		case "shuffle":
			c.Shuffle = reader.Shuffle(o.shuffle)
		case "window":
			var err error
			c.Window, c.WindowBytes, err = parseWindow(o.window)
			fault("window", err)
		case "lanes":
			c.Lanes = g.Lanes
		case "interleave":
			c.Interleave = g.Interleave
		case "block":
			c.Block = g.Block
		case "world":
			c.World = g.World
		case "rank":
			c.Rank = g.Rank
		case "ends":
			c.Ends = reader.Ends(o.ends)
		case "crop":
			c.Transform = transform.List{transform.RandomResizedCrop{Size: transform.Size{o.crop}}, transform.RandomHorizontalFlip{}}
		case "eval":
			c.Transform = transform.List{transform.Resize{Size: transform.Size{(8*o.eval + 3) / 7}}, transform.CenterCrop{Size: transform.Size{o.eval}}}
		case "transform":
			fault("transform", reader.DecodeConfig([]byte(o.transform), &c.Transform))
		case "mixup":
			c.MixUp = &augment.MixUp{Alpha: o.mixup}
		case "cutmix":
			c.CutMix = &augment.CutMix{Alpha: o.cutmix}
		case "classes":
			c.Classes = g.Classes
		case "dtype":
			c.DType = reader.DType(o.dtype)
		case "tensors":
			c.Tensors = nil // of --config
			fault("tensors", reader.DecodeConfig([]byte(o.tensors), &c.Tensors))
		case "layout":
			fault("layout", c.Layout.UnmarshalText([]byte(strings.ToUpper(o.layout))))
		case "collate":
			c.Collate = reader.Collate(o.collate)
		case "fields":
			c.Fields = g.Fields
		case "decode":
			c.Decode = reader.Decode(o.decode)
		case "on-bad":
			c.OnBad = reader.OnBad(o.onBad)
		case "where":
			c.Sampling.Where = g.Sampling.Where
		case "label":
			c.Sampling.Labels = g.Sampling.Labels
		case "keys-from":
			var err error
			c.Sampling.Keys, err = readLines(o.keysFrom)
			fault("keys-from", err)
		case "weights":
			fault("weights", reader.DecodeConfig([]byte(o.weights), &c.Sampling.Weights))
		case "shares":
			c.Sampling.Shares = g.Sampling.Shares
		case "balanced":
			c.Sampling.Balanced = g.Sampling.Balanced
		case "samples":
			c.Sampling.Samples = g.Sampling.Samples
		case "distinct":
			c.Sampling.Distinct = g.Sampling.Distinct
		case "bucket-by":
			c.Buckets.By = g.Buckets.By
		case "bucket-edges":
			c.Buckets.Edges = g.Buckets.Edges
		case "bucket-sizes":
			var err error
			c.Buckets.Sizes, err = parseSizes(o.sizes)
			fault("bucket-sizes", err)
		case "max-bad":
			c.MaxBad = g.MaxBad
		case "max-pixels":
			c.MaxPixels = g.MaxPixels
		case "timeout":
			c.Retry.Timeout = g.Retry.Timeout
		case "attempts":
			c.Retry.Attempts = g.Retry.Attempts
		case "hedge":
			c.Retry.Hedge = g.Retry.Hedge
		case "seek":
			c.Seek = reader.Seek(o.seek)
		case "skip-checksums":
			c.SkipChecksums = g.SkipChecksums
		case "workers":
			c.Workers = g.Workers
		case "memory":
			var err error
			c.Memory, err = parseBytes(o.memory)
			fault("memory", err)
		case "read-ahead":
			var err error
			if c.ReadAhead, err = parseBytes(o.readAhead); err == nil && c.ReadAhead == 0 {
				c.ReadAhead = -1
			}
			fault("read-ahead", err)
		case "cache":
			c.Cache.Dir = g.Cache.Dir
		case "cache-size":
			var err error
			c.Cache.MaxBytes, err = parseBytes(o.cacheSize)
			fault("cache-size", err)
		}
	})
	if given := f.Lookup("crop"); given != nil && given.Changed && f.Changed("eval") {
		faults = append(faults, errors.New("--crop and --eval are two different transforms; give one"))
	}
	if err := o.load(); err != nil {
		return c, usage(errors.Join(append(faults, err)...))
	}
	if o.state != nil && o.streamed == (o.state.Stream != nil) { // of other ones, start says so
		c = o.state.Config(c)
	}
	if c.Ends == "" {
		c.Ends = reader.EndsExact
	}
	if !o.streamed { // a stream has rules of its own
		if err := c.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return c, usage(err)
	}
	return c, nil
}

// parseBytes reads a number of bytes as people write it.
func parseBytes(text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no size; write it like 512MiB or 2GB", text)
	}
	if n > 1<<62 {
		return 0, fmt.Errorf("%q is more than any machine has", text)
	}
	return int64(n), nil
}

// open opens DST, and what is mixed with it; configuration faults that only show there
// are the command line's, too.
func (o *configOptions) open(ctx context.Context, dst string, c reader.Config) (*reader.Reader, error) {
	sources := []reader.Source{{URL: dst}}
	for _, url := range o.mix {
		sources = append(sources, reader.Source{URL: url})
	}
	r, err := reader.OpenMix(ctx, sources, c)
	if errors.Is(err, reader.ErrConfig) {
		return nil, usage(err)
	}
	return r, err
}

func readConfig(name string, c *reader.Config) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err == nil {
		err = reader.DecodeConfig(data, c)
	}
	if err != nil {
		return fmt.Errorf("--config %s: %w", name, err)
	}
	return nil
}

// parseWindow reads a number of samples, or one of bytes with their unit.
func parseWindow(text string) (samples int, bytes int64, err error) {
	if samples, err = strconv.Atoi(text); err == nil {
		return samples, 0, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<62 {
		return 0, 0, fmt.Errorf("%q is no number of samples, and no size such as 512MiB or 2GB", text)
	}
	return 0, int64(n), nil
}

// parseSizes reads sizes such as 192x320, height by width.
func parseSizes(texts []string) (sizes []transform.Size, err error) {
	for _, text := range texts {
		h, w, found := strings.Cut(text, "x")
		height, err := strconv.Atoi(h)
		width, err2 := strconv.Atoi(w)
		if !found || err != nil || err2 != nil || height < 1 || width < 1 {
			return nil, fmt.Errorf("%q is no size; want height x width, such as 192x320", text)
		}
		sizes = append(sizes, transform.Size{height, width})
	}
	return sizes, nil
}

// readLines reads a file of lines, of which empty ones do not count.
func readLines(name string) ([]string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	if lines == nil {
		return nil, fmt.Errorf("%s is empty", name)
	}
	return lines, nil
}
