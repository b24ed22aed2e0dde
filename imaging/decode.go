package imaging

import (
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"strings"

	"golang.org/x/image/tiff"

	"shardify/imaging/internal/raster"
)

// Image is 8-bit RGB, interleaved: the pixel in column x of row y is
// Pix[y*Stride+3*x:][:3].
type Image = raster.Image

// DefaultMaxPixels is what DecodeOptions.MaxPixels means when it is 0: Pillow's
// bound, above which its Image.open raises DecompressionBombError.
const DefaultMaxPixels = raster.DefaultMaxPixels

// DecodeOptions says how to decode. The zero value decodes as Pillow does.
type DecodeOptions struct {
	// MaxPixels is the largest width times height to decode, 0 means
	// DefaultMaxPixels. Decoding takes up to about 20 bytes of memory a pixel:
	// 3 in the Image, and the library's own.
	MaxPixels int64 `json:"max_pixels,omitempty"`
	// Orient turns the image upright as its EXIF orientation asks for, as
	// Pillow's ImageOps.exif_transpose does. (Pillow does so unasked with TIFF,
	// and with nothing else.)
	Orient bool `json:"orient,omitempty"`
	// Strict refuses a JPEG with any damage, also such of which libjpeg only warns and
	// Pillow says nothing: for finding damaged files, not for looking at them.
	Strict bool `json:"strict,omitempty"`
}

// Validate reports every fault of the options.
func (o DecodeOptions) Validate() error {
	if o.MaxPixels < 0 {
		return fmt.Errorf("max_pixels is %d; want 0 for the default of %d, or more", o.MaxPixels, DefaultMaxPixels)
	}
	return nil
}

// Decoder decodes image files.
type Decoder interface {
	// Decode makes the pixels of data, a whole image file, in dst, whose memory
	// it uses again where it is large enough. After an error, dst holds nothing
	// of use. data is neither changed nor retained.
	//
	// A decoder may keep memory between calls: unless it says otherwise, use one
	// for each goroutine.
	Decode(data []byte, dst *Image, opt DecodeOptions) error
}

// Std decodes JPEG with package imaging/jpeg, the other formats with the decoders of the
// standard library and golang.org/x/image. It may be used from any goroutine.
//
// It refuses what [Probe] refuses. All formats (of GIF and animated WebP the first frame)
// come out as from Pillow 13, byte for byte; also where Pillow clips: a grey image of 16
// bits (PNG, TIFF, PGM) shows 255 for every value above 255; and also where a JPEG is damaged in
// a way of which libjpeg only warns, unless it ends early (see [jpeg.AsPillow]) or Strict is
// set. JPEG of 12 bits, which Pillow does not read, shows the upper 8.
//
// Not supported: JPEG that is arithmetic-coded or lossless; TIFF
// other than 1, 8 and 16 bits a sample of grey, palette, RGB and RGBA, uncompressed
// or by PackBits, LZW, Deflate or CCITT; BMP with an embedded JPEG or PNG; netpbm as text
// (P1 to P3).
var Std Decoder = std{}

type std struct{}

func (std) Decode(data []byte, dst *Image, opt DecodeOptions) error {
	if err := opt.Validate(); err != nil {
		return err
	}
	c := canvas{dst: dst, opt: opt}
	switch sniff(data) {
	case JPEG:
		return c.jpeg(data)
	case PNG:
		return c.png(data)
	case GIF:
		return c.gif(data)
	case WebP:
		return c.webp(data)
	case BMP:
		return c.bmp(data)
	case TIFF:
		return c.tiff(data)
	case PNM:
		return c.pnm(data)
	}
	_, err := Probe(data)
	return err
}

// canvas puts rows of pixels where the orientation wants them.
type canvas struct {
	dst  *Image
	opt  DecodeOptions
	info Info
	line []uint8 // a row on its way to another place
}

// open checks the dimensions and takes memory for them; every decoder calls it
// before it decodes.
func (c *canvas) open(info Info) error {
	if err := bounded(info, c.opt.MaxPixels); err != nil {
		return err
	}
	if !c.opt.Orient {
		info.Orientation = 1
	}
	c.info = info
	c.dst.Reset(info.Upright())
	if info.Orientation != 1 {
		c.line = make([]uint8, 3*info.Width)
	}
	return nil
}

// bounded checks dimensions before memory is taken for them; 0 is the default bound.
func bounded(info Info, limit int64) error {
	if limit == 0 {
		limit = DefaultMaxPixels
	}
	limit = min(limit, math.MaxInt/8) // no size in bytes overflows
	if int64(info.Height) > limit/int64(info.Width) {
		return fmt.Errorf("%s: %w: %d x %d; the bound (max_pixels) is %d", info.Format, ErrTooLarge, info.Width, info.Height, limit)
	}
	return nil
}

// row returns where to write row y of the stored image; done must follow.
func (c *canvas) row(y int) []uint8 {
	if c.line != nil {
		return c.line
	}
	return c.dst.Pix[y*c.dst.Stride:][:3*c.info.Width]
}

// done ends row y.
func (c *canvas) done(y int) {
	if c.line == nil {
		return
	}
	// The first pixel's place, and the step to the next one's.
	s, w, h := c.dst.Stride, c.info.Width, c.info.Height
	var at, step int
	switch c.info.Orientation {
	case 2:
		at, step = y*s+3*(w-1), -3
	case 3:
		at, step = (h-1-y)*s+3*(w-1), -3
	case 4:
		at, step = (h-1-y)*s, 3
	case 5:
		at, step = 3*y, s
	case 6:
		at, step = 3*(h-1-y), s
	case 7:
		at, step = (w-1)*s+3*(h-1-y), -s
	case 8:
		at, step = (w-1)*s+3*y, -s
	}
	pix := c.dst.Pix
	for line := c.line; len(line) >= 3; line = line[3:] {
		copy(pix[at:at+3], line)
		at += step
	}
}

// rows writes all rows: fill writes row y into line.
func (c *canvas) rows(fill func(y int, line []uint8)) {
	for y := range c.info.Height {
		fill(y, c.row(y))
		c.done(y)
	}
}

// library calls a decoder that is not ours. A panic in it becomes an error, and its
// errors become ours.
func library[T any](format string, r io.Reader, decode func(io.Reader) (T, error)) (m T, err error) {
	defer gaveUp(format, &err)
	if m, err = decode(r); err != nil {
		err = decodeError(format, err)
	}
	return m, err
}

// gaveUp, deferred, makes an error of a panic.
func gaveUp(format string, err *error) {
	if p := recover(); p != nil {
		*err = malformed(format, -1, fmt.Sprintf("the decoder gave up: %v", p))
	}
}

// decodeError gives an error of the decoder of format our kind. The container is
// known to be whole.
func decodeError(format string, err error) error {
	var (
		pngUnsupported  png.UnsupportedError
		tiffUnsupported tiff.UnsupportedError
	)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w: its compressed data stop before the last pixel", format, ErrTruncated)
	case errors.As(err, &pngUnsupported):
		return &UnsupportedError{Format: format, Msg: string(pngUnsupported)}
	case errors.As(err, &tiffUnsupported):
		return &UnsupportedError{Format: format, Msg: string(tiffUnsupported)}
	}
	msg := err.Error()
	for _, prefix := range []string{"png: invalid format: ", "tiff: invalid format: "} {
		msg = strings.TrimPrefix(msg, prefix)
	}
	return malformed(format, -1, msg)
}

// grey spreads grey samples over RGB pixels.
func grey(line, samples []uint8) {
	for i, v := range samples[:len(line)/3] {
		p := line[3*i : 3*i+3]
		p[0], p[1], p[2] = v, v, v
	}
}

// grey16 does the same with big-endian samples of 16 bits; it clips, as Pillow's
// convert does with the modes I;16 and I;16B.
func grey16(line, samples []uint8, step int) {
	for i := range len(line) / 3 {
		v := samples[i*step+1]
		if samples[i*step] != 0 {
			v = 255
		}
		p := line[3*i : 3*i+3]
		p[0], p[1], p[2] = v, v, v
	}
}

// pick takes three samples of every pixel of samples, whose pixels are step bytes
// apart and their samples width bytes, of which the first is kept.
func pick(line, samples []uint8, step, width int) {
	for i := range len(line) / 3 {
		p, s := line[3*i:3*i+3], samples[i*step:i*step+2*width+1]
		p[0], p[1], p[2] = s[0], s[width], s[2*width]
	}
}

// lookup makes pixels of a palette's indices.
func lookup(line, indices []uint8, palette *[256][3]uint8) {
	for i, v := range indices[:len(line)/3] {
		copy(line[3*i:3*i+3], palette[v][:])
	}
}
