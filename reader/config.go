package reader

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
	"shardify/sample"
	"shardify/sample/typed"
	"shardify/store/cache"
	"shardify/store/retry"
)

// Config says what to read of a data set, in what order, and what to make of it.
// The zero value is good: it reads the only split (or "train"), shuffled, as uint8
// batches of 64 images of 224 × 224. It is plain data with a JSON form; a zero
// field means its default, and Reader.Config shows what was chosen.
type Config struct {
	// Split is the split to read: by default the only one, or "train" where there
	// are several.
	Split string `json:"split,omitempty"`

	// Sampling says which of its samples an epoch has, and how often.
	Sampling Sampling `json:"sampling,omitzero"`
	// Buckets divides them into such as share batches.
	Buckets Buckets `json:"buckets,omitzero"`

	// The order; see Order for these fields. Shuffle may be ShuffleAuto. WindowBytes
	// gives Window in bytes of the shards instead, by the mean size of the split's
	// samples. With neither it is DefaultWindow, or what makes DefaultWindowBytes where
	// that is less.
	BatchSize   int     `json:"batch_size,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`
	Shuffle     Shuffle `json:"shuffle,omitempty"`
	Window      int     `json:"window,omitempty"`
	WindowBytes int64   `json:"window_bytes,omitempty"`
	Lanes       int     `json:"lanes,omitempty"`
	Interleave  int     `json:"interleave,omitempty"`
	Block       int     `json:"block,omitempty"`
	Ends        Ends    `json:"ends,omitempty"`
	// World is the number of ranks (processes that share an epoch), 1 by default,
	// and Rank, from 0, is which of them this is.
	World int `json:"world,omitempty"`
	Rank  int `json:"rank,omitempty"`

	// Decode says what a sample's image becomes.
	Decode Decode `json:"decode,omitempty"`
	// Transform is what is done to each image, in this order; by default what
	// ImageNet's models are evaluated with: Resize 256, CenterCrop 224. Under
	// CollateStack the result must have one size for all images, so a transform that
	// sets the size must be there; otherwise there need be none, and by default there is
	// none. Package imaging/transform has all of them; docs/transforms.md lists them.
	Transform transform.List `json:"transform,omitempty"`
	// Collate says how the images become the tensor "image". CollateStack, the default,
	// is for images of one size. Under CollateRagged and CollatePad each has the size that
	// it comes with, or that Transform gives it:
	//
	//	ragged  "image" [elements of all]      the images one behind the other
	//	        "image_offsets" int64 [n+1]    image i is the elements from offset i to i+1
	//	        "image_sizes" int64 [n, 2]     its height and width
	//	pad     "image" [n, 3, most, most]     at the top left of its place; Fill elsewhere
	//	        "image_sizes" int64 [n, 2]
	//
	// each image as Layout says: [3, height, width], or [height, width, 3]. Other images
	// and masks (Tensors) are put together in the same way. Memory is taken before
	// anything is decoded, by the dimensions that the index has; where it has none, by the
	// header of the file, which costs a read of its own.
	Collate Collate `json:"collate,omitempty"`
	// PadTo, for CollatePad, is the height and width to which all batches are padded; an
	// image that is larger is a damaged sample. By default it is, in each batch, that of
	// its highest and that of its widest image. A single number is a square's side.
	PadTo transform.Size `json:"pad_to,omitzero"`
	// Fill is the value of elements in padding, as they are in the tensor: behind
	// Normalize, 0 is the mean.
	Fill float64 `json:"fill,omitempty"`
	// DType and Layout are those of Batch.Images: by default DTypeUint8 and
	// LayoutNCHW. DTypeFloat32, DTypeFloat16 and DTypeBFloat16 are 0 … 1 without
	// Normalize. Those of 16 bits are the float32 values, rounded to nearest, ties to
	// even: half the memory, and half the way to the GPU.
	DType  DType  `json:"dtype,omitempty"`
	Layout Layout `json:"layout,omitempty"`
	// MixUp and CutMix blend the images of every batch with each other, as torchvision's
	// transforms of these names; where both are given, one of them, equally likely. The
	// batches have the tensors "soft_label" and "partner_label" then (see Batch.Blend).
	// MixUp needs DTypeFloat32; neither goes with Tensors that lie on the image.
	//
	// What is drawn is keyed by (Seed, epoch, number of the batch), and the same on all
	// ranks and in every World. With whom an image is blended is not: with the sample
	// before it in its rank's batch, the first with the last.
	MixUp  *augment.MixUp  `json:"mixup,omitempty"`
	CutMix *augment.CutMix `json:"cutmix,omitempty"`
	// Classes is the length of a soft label: by default the number of the data set's
	// classes; -1 for no soft labels. A sample whose label is not below it is damaged.
	Classes int `json:"classes,omitempty"`
	// Fields are those fields of the samples whose bytes the batches carry,
	// besides the images: by default none, and all under DecodeNone without Tensors.
	Fields []string `json:"fields,omitempty"`
	// Tensors are what else is decoded of the samples' fields, and put together in each
	// batch: texts, numbers, boxes, masks.
	Tensors []TensorSpec `json:"tensors,omitempty"`

	// OnBad says what becomes of a sample that is damaged, and MaxBad how many such
	// samples a pass bears under OnBadSkip and OnBadSubstitute: one more ends it
	// with ErrTooManyBad. It counts this rank's, and anew in each pass. The default
	// is a hundredth of a rank's samples, or 16 where that is more; -1 is no limit.
	OnBad  OnBad `json:"on_bad,omitempty"`
	MaxBad int   `json:"max_bad,omitempty"`
	// MaxPixels is the largest image, as width times height, that is decoded. A
	// larger one is a damaged sample, found before memory is taken for its pixels.
	// The default is imaging.DefaultMaxPixels, Pillow's bound.
	MaxPixels int64 `json:"max_pixels,omitempty"`
	// SkipChecksums leaves the fields' CRC-32C unverified.
	SkipChecksums bool `json:"skip_checksums,omitempty"`

	// Retry says how often an operation of the store that failed or stalled is tried
	// again before its error ends the pass. The zero value is store/retry's, but
	// that a local disk has no timeout, as a read there cannot be called back, and no
	// limit of reads at once.
	Retry retry.Config `json:"retry,omitzero"`
	// Cache keeps what is read of the store in a folder on a local disk, for the next
	// epoch and for all processes of the host, as package store/cache says: give it for
	// a remote or slow store. The zero value keeps nothing. The manifest is always read
	// from the store itself.
	Cache cache.Config `json:"cache,omitzero"`

	// ReadAhead is how many bytes of batches to come are read before their turn, with
	// what lies beside them: spans of some 4 MiB, as far as Shuffle lets the order be
	// local. 0 leaves it to the reader: none on a local disk, which answers at once, but
	// for .tar.zst with several samples in a frame; and what a window and a half, or the shards
	// open at a time, take on other stores. -1 is none. Memory bounds it. It changes
	// nothing but the speed: set it for a slow disk or a network that is mounted.
	ReadAhead int64 `json:"read_ahead,omitempty"`
	// Seek says whether the seek points of a data set's JPEGs are used (`shardify pack
	// --jpeg-seek`). It changes nothing but the speed.
	Seek Seek `json:"seek,omitempty"`
	// Workers is the number of goroutines that verify and decode; by default
	// runtime.GOMAXPROCS. It changes nothing but the speed.
	Workers int `json:"workers,omitempty"`
	// Memory is how many bytes a pass may hold: batches (those that the caller has not
	// released, too), bytes read and not yet decoded, and the index. A single sample that
	// is larger is read while nothing else is. The default is room for four batches, 128
	// MiB, the index up to 1 GiB, ReadAhead up to 2 GiB, with Cache what that fetches into
	// (48 MiB with blocks of 1 MiB), and 64 MiB to decompress .zst shards. What images are
	// decoded into counts, too, with what transforms make of them: by default 128 MiB and
	// 15 for each worker, otherwise up to a quarter, and for a larger image what it needs.
	// The tables of Sampling and Buckets count, 4 to 20 bytes for each sample. Not counted
	// are the samples that stand in for damaged ones.
	Memory int64 `json:"memory,omitempty"`

	// Slabs, if not nil, is where the memory of batches is taken from. It is no part of
	// the JSON form.
	Slabs Slabs `json:"-"`
}

// Decode says what a sample's image becomes.
type Decode string

const (
	// DecodeImage, the default, makes pixels of the sample's image, which is the
	// first of its fields jpg, png, webp, gif, bmp, tiff, pnm, ppm, pgm and pbm.
	DecodeImage Decode = "image"
	// DecodeNone leaves all fields as they are.
	DecodeNone Decode = "none"
)

// DType is the type of a tensor's elements.
type DType = typed.DType

const (
	DTypeBool     = typed.Bool
	DTypeUint8    = typed.Uint8
	DTypeUint16   = typed.Uint16
	DTypeUint32   = typed.Uint32
	DTypeUint64   = typed.Uint64
	DTypeInt8     = typed.Int8
	DTypeInt16    = typed.Int16
	DTypeInt32    = typed.Int32
	DTypeInt64    = typed.Int64
	DTypeFloat16  = typed.Float16
	DTypeBFloat16 = typed.BFloat16
	DTypeFloat32  = typed.Float32
	DTypeFloat64  = typed.Float64
)

// imageDTypes are those that images can have.
var imageDTypes = []DType{DTypeUint8, DTypeFloat32, DTypeFloat16, DTypeBFloat16}

// Layout is the order of the dimensions of images.
type Layout = tensor.Layout

const (
	// LayoutNCHW, the default as it is PyTorch's, has an image's channels one after
	// the other.
	LayoutNCHW = tensor.NCHW
	// LayoutNHWC has the three channels of a pixel side by side.
	LayoutNHWC = tensor.NHWC
)

// OnBad says what becomes of a sample whose bytes do not match their checksum, also
// when they are read again from a file opened anew, whose image cannot be decoded, or a
// field of which a tensor cannot be made (Config.Tensors).
// Batch.Bad and Reader.BadSamples report it. A shard that is missing or cut is that many
// damaged samples, for the rest of the pass. Without its index nothing is known of them,
// so a missing or broken index ends the pass; and so does a shard or manifest that was
// replaced since the data set was opened (ErrReplaced).
type OnBad string

const (
	// OnBadFail, the default, ends the pass with a *SampleError.
	OnBadFail OnBad = "fail"
	// OnBadSkip leaves the sample out of its batch, which has that many samples
	// less, and may have none. The number of batches stays, so that all ranks have
	// the same number, and the other samples stay where they are.
	OnBadSkip OnBad = "skip"
	// OnBadSubstitute puts another sample in its place, so that batches keep their
	// size. It is drawn at random from the same shard (should several there be
	// damaged, from all), by (Seed, epoch, number of the damaged one): the same
	// for any World, any number of workers, and after a resume. Where eight drawn
	// ones are damaged, too, the pass ends.
	OnBadSubstitute OnBad = "substitute"
)

// Order is the part of the configuration that decides the order of samples.
func (c Config) Order() Order {
	return Order{
		Shuffle: c.Shuffle, Seed: c.Seed, Window: c.Window, Lanes: c.Lanes, Interleave: c.Interleave,
		Block: c.Block, BatchSize: c.BatchSize, World: c.World, Ends: c.Ends,
	}.withDefaults()
}

// withDefaults fills in what does not depend on the data set.
func (c Config) withDefaults() Config {
	o := c.Order()
	c.BatchSize, c.World, c.Ends = o.BatchSize, o.World, o.Ends
	if c.Shuffle != ShuffleAuto {
		c.Lanes, c.Window, c.Interleave, c.Block = o.Lanes, o.Window, o.Interleave, o.Block
	}
	c.Buckets = c.Buckets.withDefaults()
	c.Decode = or(c.Decode, DecodeImage)
	c.Collate = or(c.Collate, CollateStack)
	c.DType = or(c.DType, DTypeUint8)
	c.Tensors = slices.Clone(c.Tensors)
	for i := range c.Tensors {
		c.Tensors[i] = c.Tensors[i].withDefaults(&c)
	}
	c.OnBad = or(c.OnBad, OnBadFail)
	c.MaxPixels = or(c.MaxPixels, imaging.DefaultMaxPixels)
	c.Seek = or(c.Seek, SeekAuto)
	c.Workers = or(c.Workers, runtime.GOMAXPROCS(0))
	if c.Decode == DecodeImage && c.Collate == CollateStack && c.Transform == nil {
		c.Transform = DefaultTransform()
	}
	return c
}

// DefaultTransform is what is done to images where Config.Transform says nothing and they
// are stacked: the middle 224 x 224 pixels of what is scaled to 256 along the shorter side.
func DefaultTransform() transform.List {
	return transform.List{transform.Resize{Size: transform.Size{256}}, transform.CenterCrop{Size: transform.Size{224}}}
}

func or[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	window := c.Window
	c = c.withDefaults()
	o := c.Order()
	if o.Shuffle == ShuffleAuto {
		o.Shuffle = ShuffleWindow
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := o.Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.WindowBytes < 0 {
		fault("window_bytes: %d", c.WindowBytes)
	} else if c.WindowBytes > 0 && window != 0 {
		fault("window: %d samples and %d bytes; give one of window and window_bytes", window, c.WindowBytes)
	}
	if err := c.Sampling.Validate(); err != nil {
		fault("sampling: %w", err)
	}
	if err := c.Buckets.Validate(); err != nil {
		fault("buckets: %w", err)
	}
	if c.Rank < 0 || c.Rank >= max(1, c.World) {
		fault("rank: %d is not between 0 and %d, the world less one", c.Rank, max(1, c.World)-1)
	}
	choice(&faults, "decode", c.Decode, DecodeImage, DecodeNone)
	choice(&faults, "dtype", c.DType, imageDTypes...)
	if _, err := c.Layout.MarshalText(); err != nil {
		fault("layout: %w", err)
	}
	choice(&faults, "on_bad", c.OnBad, OnBadFail, OnBadSkip, OnBadSubstitute)
	if c.MaxBad < -1 {
		fault("max_bad: %d; want -1 for no limit, 0 for the default, or more", c.MaxBad)
	}
	if c.MaxPixels < 0 {
		fault("max_pixels: %d; want 0 for the default of %d, or more", c.MaxPixels, int64(imaging.DefaultMaxPixels))
	}
	if err := c.Retry.Validate(); err != nil {
		fault("retry: %w", err)
	}
	if c.Cache != (cache.Config{}) {
		if err := c.Cache.Validate(); err != nil {
			fault("cache: %w", err)
		}
	}
	between(&faults, "workers", c.Workers, 1, 1<<12)
	choice(&faults, "seek", c.Seek, SeekAuto, SeekOn, SeekOff)
	if c.ReadAhead < -1 {
		fault("read_ahead: %d; want -1 for none, 0 for the default, or bytes", c.ReadAhead)
	}
	if c.Memory < 0 {
		fault("memory: %d bytes", c.Memory)
	}
	for i, name := range c.Fields {
		if err := sample.CheckField(name); err != nil {
			fault("fields: %w", err)
		} else if slices.Contains(c.Fields[:i], name) {
			fault("fields: %q is listed twice", name)
		}
	}
	faults = append(faults, c.validateCollate()...)
	faults = append(faults, c.validateTensors()...)
	if c.Decode == DecodeNone && c.Transform != nil {
		fault("transform: there are no images to transform with decode %q", DecodeNone)
	} else if c.Decode == DecodeImage {
		faults = append(faults, c.validateTransform()...)
	}
	return errors.Join(append(faults, c.validateBlend()...)...)
}

// validateTransform reports the faults of the transforms.
func (c Config) validateTransform() (faults []error) {
	canvases, err := c.canvases()
	if err != nil {
		return []error{err}
	}
	if !c.varies() && canvases[0].width == 0 {
		faults = append(faults, fmt.Errorf("transform: images would differ in size; add a random_resized_crop, center_crop or random_crop, or a resize to [height, width]; or set collate to %q or %q", CollateRagged, CollatePad))
	}
	if _, ok := canvases[0].program.Normalize(); ok && c.DType == DTypeUint8 {
		faults = append(faults, fmt.Errorf("transform %d: normalize: makes fractions; set dtype to %q, %q or %q", len(c.Transform), DTypeFloat32, DTypeFloat16, DTypeBFloat16))
	}
	return faults
}
