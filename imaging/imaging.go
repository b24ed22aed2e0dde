// Package imaging turns image files into pixels, and tells their dimensions
// without doing so.
//
// [Probe] reads a file's header and checks that the file does not end early; it
// decodes nothing and allocates nothing. A [Decoder] makes 8-bit RGB pixels of a
// whole file; [Std] is one for all formats named here. What the file is shows in its
// content: names and extensions play no part.
//
// Subpackages take it from there, or do more at once: imaging/jpeg decodes what a crop
// needs of several JPEGs, straight into a batch; imaging/netpbm shows pixels that are stored
// as they are; imaging/resize scales pixels as Pillow does,
// imaging/augment draws crops and flips, imaging/tensor writes pixels into a
// batch.
//
// # Colour
//
// Pixels are those of Pillow's Image.open(f).convert("RGB"): grey becomes three
// equal channels, palettes are looked up, alpha is dropped (not blended), CMYK
// becomes RGB by (255-C)(255-K)/255, an embedded colour profile is ignored.
//
// # Damaged and hostile files
//
// Any bytes may be passed to any function here. A file that ends early gives an
// error that wraps [ErrTruncated], one that breaks its format's rules a
// [*FormatError], one that follows them but uses what we do not decode an
// [*UnsupportedError], anything else [ErrUnknownFormat]. Dimensions are checked
// against [DecodeOptions.MaxPixels] before memory is allocated for them.
package imaging

import (
	"errors"

	"shardify/imaging/internal/fault"
)

// The formats that [Info.Format] names.
const (
	JPEG = "jpeg"
	PNG  = "png"
	WebP = "webp"
	GIF  = "gif"
	BMP  = "bmp"
	TIFF = "tiff"
	PNM  = "pnm" // netpbm: PPM, PGM, PBM
)

// The colour spaces that [Info.Colorspace] names.
const (
	RGB  = "RGB"
	Gray = "Gray"
	CMYK = "CMYK"
)

// Info is what a file's header says of its image; of its first, where it holds
// several.
type Info struct {
	// Format is one of the constants above: JPEG, PNG, …
	Format string
	// Coding tells the kinds of one format apart. JPEG: "baseline", "extended",
	// "progressive", "lossless", and the last three with " arithmetic" after it.
	// WebP: "VP8" (lossy), "VP8L" (lossless), "animated". Otherwise empty.
	Coding string
	// Width and Height are in pixels, as stored, before any rotation; both are
	// at least 1. A GIF's are those of its canvas.
	Width, Height int
	// Channels counts the samples of a pixel, alpha included: 1 grey, 2 grey
	// with alpha, 3 RGB, 4 RGB with alpha or CMYK. A palette counts as RGB.
	Channels int
	// Bits is the number of bits of one sample; of a palette's index, where there
	// is a palette.
	Bits int
	// Colorspace is RGB, Gray or CMYK. JPEG's YCbCr counts as RGB, its YCCK as
	// CMYK.
	Colorspace string
	// Orientation is EXIF's, 1 to 8; 1 (upright) if the file gives none.
	Orientation int
}

// Upright returns the dimensions of the image after the rotation that
// Orientation asks for.
func (i Info) Upright() (width, height int) {
	if i.Orientation >= 5 {
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

var (
	// ErrTruncated is wrapped by errors for files that end early.
	ErrTruncated = fault.ErrTruncated
	// ErrUnknownFormat is wrapped by errors for files in no format named here.
	ErrUnknownFormat = errors.New("not an image file we know")
	// ErrTooLarge is wrapped by errors for images of more pixels than
	// DecodeOptions.MaxPixels.
	ErrTooLarge = fault.ErrTooLarge
)

// FormatError is a breach of a format's rules: the file is damaged.
type FormatError = fault.FormatError

// UnsupportedError is a legal file that uses what we do not decode.
type UnsupportedError = fault.UnsupportedError

// truncated is the error for a file of size bytes that ends inside what.
func truncated(format, what string, size int) error { return fault.Truncated(format, what, size) }

func malformed(format string, offset int, msg string) error {
	return fault.Malformed(format, offset, msg)
}
