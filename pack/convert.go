package pack

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"

	"shardify/imaging"
	"shardify/imaging/jpeg"
	"shardify/imaging/netpbm"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/sample"
)

// The values of Convert.Store.
const (
	// StoreJPEG makes JPEGs of images in other formats, too.
	StoreJPEG = "jpeg"
	// StoreRaw keeps pixels as they are, in netpbm files.
	StoreRaw = "raw"
)

// DefaultQuality is the quality of JPEGs that are made, where none is given: FFCV's, and
// that at which images are scaled without a difference that shows.
const DefaultQuality = 90

// maxSide is a JPEG's largest width and height.
const maxSide = 65535

// Convert says what becomes of samples' images while they are packed. The zero value leaves
// them as they are.
//
// It is about the image of each sample (sample.Image), never about masks or other images
// beside it; and where a sample has such, its image is not scaled, as they are in the same
// pixels. What an image becomes is a function of its bytes and of Convert; one that
// need not change keeps its bytes. docs/convert.md says more.
type Convert struct {
	// MaxSide scales images down so that their longer side is no longer than that, MinSide
	// so that their shorter side is no longer than that; both hold where both are given.
	// The shape is kept, the other side is rounded, and no image gets larger. Only JPEGs
	// are scaled, unless Store says otherwise.
	MaxSide int `json:"max_side,omitempty"`
	MinSide int `json:"min_side,omitempty"`
	// Filter is the filter that scales: "lanczos" (the default), "bicubic", "bilinear" or
	// "box", as Pillow has them: all see every pixel.
	Filter string `json:"filter,omitempty"`
	// Quality is that of JPEGs that are made, 1 to 100 on libjpeg's scale; default
	// DefaultQuality. Without MaxSide and MinSide it means that every JPEG is made anew,
	// and replaced if that is smaller.
	Quality int `json:"quality,omitempty"`
	// Subsampling is that of JPEGs that are made: "4:4:4", "4:2:2", "4:4:0", "4:2:0" (the
	// default) or "4:1:1".
	Subsampling jpeg.Subsampling `json:"subsampling,omitempty"`
	// JPEGBaseline makes baseline files of progressive JPEGs, with Huffman tables of their
	// own, without a change to any pixel. The new file is decoded beside the old one before
	// it takes its place.
	JPEGBaseline bool `json:"jpeg_baseline,omitempty"`
	// Store says how images are stored: "" (as they come), "jpeg" (other formats become
	// JPEGs, too), or "raw" (pixels as they are, in a field "pnm": grey as PGM, all others
	// as PPM).
	Store string `json:"store,omitempty"`
}

// any says that images may change.
func (c *Convert) any() bool { return *c != (Convert{}) }

// sides says that large images are scaled.
func (c *Convert) sides() bool { return c.MaxSide > 0 || c.MinSide > 0 }

// withDefaults fills in what scaling goes by. (Elsewhere a quality says something by being
// there.)
func (c Convert) withDefaults() Convert {
	if !c.sides() {
		return c
	}
	if c.Filter == "" {
		c.Filter = resize.Lanczos.String()
	}
	if c.Store != StoreRaw {
		if c.Quality == 0 {
			c.Quality = DefaultQuality
		}
		if c.Subsampling == "" {
			c.Subsampling = jpeg.Sub420
		}
	}
	return c
}

// Validate reports every fault at once.
func (c Convert) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	side := func(name string, n int) {
		if n < 0 || n > maxSide {
			fault("%s: %d is no side of an image; want 1 to %d", name, n, maxSide)
		}
	}
	side("max-side", c.MaxSide)
	side("min-side", c.MinSide)
	if c.MaxSide > 0 && c.MinSide >= c.MaxSide {
		fault("min-side %d says nothing beside max-side %d: no side is longer than the longer one", c.MinSide, c.MaxSide)
	}
	var filter resize.Filter
	if err := filter.UnmarshalText([]byte(c.Filter)); err != nil {
		fault("filter %q: want lanczos, bicubic, bilinear or box", c.Filter)
	}
	if c.Filter != "" && !c.sides() {
		fault("filter goes with max-side or min-side: without them nothing is scaled")
	}
	o := jpeg.EncodeOptions{Quality: c.Quality, Subsampling: c.Subsampling}
	if err := o.Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.Subsampling != "" && c.Quality == 0 && !c.sides() && c.Store == "" {
		fault("subsampling goes with quality, max-side, min-side or store jpeg: without them no JPEG is made")
	}
	switch c.Store {
	case "", StoreJPEG:
	case StoreRaw:
		if c.Quality != 0 || c.Subsampling != "" || c.JPEGBaseline {
			fault("quality, subsampling and jpeg-baseline are about JPEGs, and with store raw there are none")
		}
	default:
		fault("store %q: want %s or %s", c.Store, StoreJPEG, StoreRaw)
	}
	return errors.Join(faults...)
}

// scaled returns the dimensions of an image of w x h after scaling.
func (c *Convert) scaled(w, h int) (int, int) {
	long, short := max(w, h), min(w, h)
	// The side that is given, and what it becomes: the one that scales down more.
	from, to := 1, 1
	if c.MaxSide > 0 && long > c.MaxSide {
		from, to = long, c.MaxSide
	}
	if c.MinSide > 0 && short > c.MinSide && int64(c.MinSide)*int64(from) < int64(to)*int64(short) {
		from, to = short, c.MinSide
	}
	side := func(n int) int { return max(1, int((2*int64(n)*int64(to)+int64(from))/(2*int64(from)))) }
	return side(w), side(h)
}

// Conversions count what became of samples' images under Convert.
type Conversions struct {
	// Converted is how many were replaced; From and To are their bytes before and after.
	// Scaled is how many of them were made smaller, Baseline how many were transcoded
	// without a change to their pixels.
	Converted int64 `json:"converted"`
	Scaled    int64 `json:"scaled"`
	Baseline  int64 `json:"baseline"`
	From      int64 `json:"from_bytes"`
	To        int64 `json:"to_bytes"`
	// Alpha is how many of these had an alpha channel, which is dropped.
	Alpha int64 `json:"alpha"`
	// Fixed is how many images were not scaled, though larger than MaxSide and MinSide say,
	// since their samples have masks or other images that would not fit any more.
	Fixed int64 `json:"fixed"`
	// Kept is how many kept their bytes. Large is how many of these are larger than MaxSide
	// and MinSide say, since they are no JPEGs, or cannot be converted; Other how many cannot be: they are of a kind
	// that is not decoded, or have more than 8 bits a sample, or the sample has a field of
	// the new name; of a JPEG that was to be baseline it may also be that it is damaged.
	Kept  int64 `json:"kept"`
	Large int64 `json:"large"`
	Other int64 `json:"other"`
}

// add adds the counts of another part.
func (c *Conversions) add(o *Conversions) {
	c.Converted += o.Converted
	c.Scaled += o.Scaled
	c.Baseline += o.Baseline
	c.From += o.From
	c.To += o.To
	c.Alpha += o.Alpha
	c.Fixed += o.Fixed
	c.Kept += o.Kept
	c.Large += o.Large
	c.Other += o.Other
}

// action is what is done with an image.
type action uint8

const (
	actKeep     action = iota // leave it as it is
	actBaseline               // make a baseline JPEG of the same pixels
	actJPEG                   // make a JPEG of its pixels
	actSmaller                // as actJPEG, if that has fewer bytes
	actRaw                    // store its pixels
)

// intent is what is to become of an image.
type intent struct {
	action
	info          imaging.Info
	width, height int // of the result
	channels      int // 3 or 1
	large, other  bool
	fixed         bool
}

// intend decides what becomes of an image by its header. A fixed one is not scaled.
func (c *Convert) intend(info imaging.Info, fixed bool) intent {
	it := intent{info: info, channels: 3}
	it.width, it.height = c.scaled(info.Width, info.Height)
	if fixed && (it.width != info.Width || it.height != info.Height) {
		it.fixed, it.width, it.height = true, info.Width, info.Height
	}
	if info.Colorspace == imaging.Gray {
		it.channels = 1
	}
	larger := it.width != info.Width || it.height != info.Height
	switch {
	case info.Bits > 8, int64(info.Width)*int64(info.Height) > imaging.DefaultMaxPixels:
		it.other = true
	case c.Store == StoreRaw:
		if larger || info.Format != imaging.PNM || info.Bits < 8 {
			it.action = actRaw
		}
	case info.Format != imaging.JPEG:
		if c.Store == StoreJPEG {
			it.action = actJPEG
		}
	case larger:
		it.action = actJPEG
	case c.Quality > 0 && !c.sides():
		it.action = actSmaller
	case c.JPEGBaseline && info.Coding == "progressive":
		it.action = actBaseline
	}
	it.large = larger && it.action == actKeep
	return it
}

// What decoding takes for each pixel, as in package reader: a progressive JPEG's
// coefficients; the library's 16 bits and alpha of other formats, and 3 bytes of ours.
const (
	jpegBytes  = 8
	otherBytes = 11
	// transcodeBytes is what transcoding a progressive JPEG of three whole components
	// takes.
	transcodeBytes = 12
)

// memory is what converting may take, the result included.
func (it *intent) memory() int64 {
	stored := int64(it.info.Width) * int64(it.info.Height)
	result := int64(it.width)*int64(it.height)*int64(it.channels) + headRoom
	switch {
	case it.action == actKeep:
		return 0
	case it.action == actBaseline:
		return transcodeBytes * stored
	case it.info.Format != imaging.JPEG:
		result += otherBytes * stored
	case it.info.Coding == "progressive":
		result += jpegBytes * stored
	default: // some rows
		result += 64 * 4 * int64(it.info.Width)
	}
	if it.action != actRaw {
		// The pixels and the file of them, which is mostly much smaller.
		result += int64(it.width)*int64(it.height)*int64(it.channels) + maxMeta
	} else if it.info.Format != imaging.JPEG {
		result += 3 * int64(it.width) * int64(it.height)
	}
	return result
}

const (
	// headRoom is more than the header of a raw image.
	headRoom = 64
	// maxMeta bounds a colour profile that is kept: those of CMYK, which are not kept, are
	// the largest there are in use.
	maxMeta = 4 << 20
)

// converter converts images. It keeps its memory between them; one goroutine may use it at a
// time.
type converter struct {
	cfg      Convert
	filter   resize.Filter
	encode   jpeg.EncodeOptions
	decoder  *jpeg.Decoder
	encoder  jpeg.Encoder
	trans    jpeg.Transcoder
	resizer  resize.Resizer
	decoded  imaging.Image
	scaled   imaging.Image
	segments []byte
	file     []byte
	most     int64 // the most memory that an image has taken
}

func newConverter(cfg Convert) (*converter, error) {
	cfg = cfg.withDefaults()
	c := &converter{cfg: cfg, encode: jpeg.EncodeOptions{Quality: cfg.Quality, Subsampling: cfg.Subsampling}}
	if c.encode.Quality == 0 {
		c.encode.Quality = DefaultQuality
	}
	if err := c.filter.UnmarshalText([]byte(cfg.Filter)); err != nil {
		return nil, err
	}
	return c, nil
}

// shrink drops memory that a large image has grown, beyond most bytes.
func (c *converter) shrink(most int64) {
	if c.most <= most {
		return
	}
	*c = converter{cfg: c.cfg, filter: c.filter, encode: c.encode}
}

// convert does with data, an image file, what it says, and changes that to actKeep where the
// file should stay after all. The new file is in memory that room gives. An error says that
// data is damaged, unless it is jpeg.ErrVerify.
func (c *converter) convert(it *intent, data []byte, room func(n int) []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // a decoder that meets hostile bytes loses a sample
			*c = converter{cfg: c.cfg, filter: c.filter, encode: c.encode}
			err = fmt.Errorf("the decoder panicked: %v\n%s", p, debug.Stack())
		}
	}()
	c.most = max(c.most, it.memory())
	switch it.action {
	case actRaw:
		out, err = c.raw(it, data, room)
	case actJPEG, actSmaller:
		out, err = c.jpeg(it, data, room)
		if err != nil || out != nil {
			break
		}
		// Its file would not have been smaller.
		if it.action = actKeep; c.cfg.JPEGBaseline && it.info.Coding == "progressive" {
			it.action = actBaseline
			out, err = c.baseline(it, data, room)
		}
	case actBaseline:
		out, err = c.baseline(it, data, room)
	}
	var unsupported *imaging.UnsupportedError
	if errors.As(err, &unsupported) || errors.Is(err, imaging.ErrTooLarge) {
		it.keep()
		return nil, nil
	}
	return out, err
}

// raw makes a netpbm file of an image's pixels.
func (c *converter) raw(it *intent, data []byte, room func(n int) []byte) ([]byte, error) {
	n := it.width * it.height * it.channels
	var out []byte
	err := c.pixels(it, data, func() []byte {
		out = netpbm.AppendHeader(room(n + headRoom)[:0], it.width, it.height, it.channels)
		head := len(out)
		out = out[:head+n]
		return out[head:]
	})
	return out, err
}

// pixels makes the pixels of an image, scaled, rows without gaps. Where they go it asks
// when it is sure that the file may hold them.
func (c *converter) pixels(it *intent, data []byte, pix func() []byte) error {
	target := resize.Target{Width: it.width, Height: it.height, Channels: it.channels, Layout: tensor.NHWC}
	task := resize.Task{Width: it.width, Height: it.height, Filter: c.filter,
		Part: resize.Rect{X1: float64(it.info.Width), Y1: float64(it.info.Height)}}
	if it.info.Format != imaging.JPEG {
		if err := imaging.Std.Decode(data, &c.decoded, imaging.DecodeOptions{}); err != nil {
			return err
		}
		target.Uint8 = pix()
		return c.resizer.ResizeInto(target, &c.decoded, task)
	}
	// An MCU has at most 32 by 32 pixels and takes at least a bit.
	if int64(it.info.Width)*int64(it.info.Height) > 8*32*32*int64(len(data)) {
		return fmt.Errorf("jpeg: %w: its %d bytes cannot hold %d x %d pixels", imaging.ErrTruncated, len(data), it.info.Width, it.info.Height)
	}
	if c.decoder == nil {
		c.decoder = new(jpeg.Decoder)
	}
	target.Uint8 = pix()
	job := [1]jpeg.Job{{Data: data, Target: target, Task: task, Options: jpeg.Options{Damaged: jpeg.AsPillow}}}
	if it.channels == 1 {
		job[0].Color = jpeg.ToGray
	}
	c.decoder.DecodeAll(job[:])
	return job[0].Err
}

// jpeg makes a JPEG of an image; nil if that was to be smaller, and is not.
func (c *converter) jpeg(it *intent, data []byte, room func(n int) []byte) ([]byte, error) {
	m := &c.scaled
	var pix []byte
	if err := c.pixels(it, data, func() []byte {
		m.Reset(it.width, it.height)
		pix = m.Pix[:it.width*it.height*it.channels]
		return pix
	}); err != nil {
		return nil, err
	}
	if err := c.meta(it, data); err != nil {
		return nil, err
	}
	o, file := c.encode, c.file[:0]
	o.Segments = c.segments
	var err error
	if it.channels == 1 {
		file, err = c.encoder.EncodeGray(file, pix, it.width, it.height, it.width, o)
	} else {
		file, err = c.encoder.Encode(file, m, o)
	}
	if err != nil {
		return nil, err
	}
	c.file = file
	if it.action == actSmaller && len(file) >= len(data) {
		return nil, nil
	}
	return append(room(len(file))[:0], file...), nil
}

// meta collects what a JPEG that is made anew keeps of the old file: its orientation and
// its colour profile.
func (c *converter) meta(it *intent, data []byte) (err error) {
	c.segments = c.segments[:0]
	if o := it.info.Orientation; o > 1 {
		// A TIFF directory of one entry: the tag 0x112, a short.
		tiff := []byte("II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
		tiff[18] = byte(o)
		if c.segments, err = jpeg.AppendEXIF(c.segments, tiff); err != nil {
			return err
		}
	}
	if it.info.Format != imaging.JPEG || it.info.Colorspace == imaging.CMYK {
		return nil
	}
	h, err := jpeg.ReadHeader(data)
	if err != nil || len(h.ICC) == 0 || len(h.ICC) > maxMeta {
		return err
	}
	c.segments, err = jpeg.AppendICC(c.segments, h.ICC)
	return err
}

// baseline makes a baseline JPEG of a progressive one; nil where that cannot be done
// without a change to a pixel: it is damaged, or of a kind that is not decoded. The error
// is jpeg.ErrVerify.
func (c *converter) baseline(it *intent, data []byte, room func(n int) []byte) ([]byte, error) {
	file, err := c.trans.Transcode(c.file[:0], data, jpeg.TranscodeOptions{Verify: true})
	switch {
	case err == nil:
		c.file = file
		return append(room(len(file))[:0], file...), nil
	case errors.Is(err, jpeg.ErrVerify):
		return nil, err
	}
	it.keep()
	return nil, nil
}

// keep leaves an image as it is, since it cannot be converted.
func (it *intent) keep() {
	it.action, it.other = actKeep, true
	it.large = it.width != it.info.Width || it.height != it.info.Height
}

// fixed says that a sample's image must keep its dimensions: there are others of the same
// pixels, such as masks.
func fixed[F any](fields []F, image int, name func(F) string) bool {
	for i, f := range fields {
		if i != image && sample.IsImage(name(f)) {
			return true
		}
	}
	return false
}

// fieldOf is what the field of an image is called when it is converted.
func (it *intent) fieldOf(name string) string {
	switch {
	case it.action == actRaw:
		return "pnm"
	case it.action == actJPEG && it.info.Format != imaging.JPEG && sample.FieldOf(name) != "jpg":
		return "jpg"
	}
	return name
}

// pathOf is the path of an image when its field is called so.
func pathOf(path, field string) string {
	if path == "" {
		return ""
	}
	base := strings.LastIndexByte(path, '/') + 1
	if dot := strings.LastIndexByte(path[base:], '.'); dot > 0 {
		path = path[:base+dot]
	}
	return path + "." + field
}

// count counts an image: what was meant for it, and the sizes before and after.
func (c *Conversions) count(it *intent, from, to int) {
	if it.fixed {
		c.Fixed++
	}
	if it.action == actKeep {
		c.Kept++
		if it.large {
			c.Large++
		}
		if it.other {
			c.Other++
		}
		return
	}
	c.Converted++
	c.From += int64(from)
	c.To += int64(to)
	if it.width != it.info.Width || it.height != it.info.Height {
		c.Scaled++
	}
	if it.action == actBaseline {
		c.Baseline++
	}
	if it.info.Channels == 2 || it.info.Channels == 4 && it.info.Colorspace != imaging.CMYK {
		c.Alpha++
	}
}

// estimate is what an image of a size is reckoned to become, by a ratio that others have
// shown.
func (r *ratio) estimate(size int64) int64 {
	if r == nil || r.from == 0 {
		return size
	}
	return int64(min(float64(size)*float64(r.to)/float64(r.from), math.MaxInt64/1024))
}

// ratio is how sizes change.
type ratio struct{ from, to int64 }
