package jpeg

import (
	"fmt"

	"shardify/imaging/internal/fault"
	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/jpeg/internal/entropy"
)

// FormatError is a breach of the format's rules: the file is damaged.
type FormatError = fault.FormatError

// UnsupportedError is a legal file of a kind that is not decoded.
type UnsupportedError = fault.UnsupportedError

var (
	// ErrTruncated is wrapped by errors for files that end early.
	ErrTruncated = fault.ErrTruncated
	// ErrTooLarge is wrapped by errors for images of more pixels than
	// Options.MaxPixels.
	ErrTooLarge = fault.ErrTooLarge
)

// DamagedError says that a file is damaged, though not so that nothing could be
// made of it. It wraps ErrTruncated or a *FormatError: the first damage that was
// met, and where.
type DamagedError struct {
	// Count is how many places of damage were met.
	Count int
	// Row is the first row of the stored image, at full size, that suffers from the
	// damage where it was met: -1 if none does. Rows above it are sound where the file
	// ends early; otherwise, the last ones may be wrong too, since spoilt bits that are
	// codes all the same go unnoticed. In a file of several scans all rows suffer.
	Row int
	// Err is the first damage.
	Err error
}

func (e *DamagedError) Error() string {
	if e.Count > 1 {
		return fmt.Sprintf("%v; and %d more places are damaged", e.Err, e.Count-1)
	}
	return e.Err.Error()
}

// Unwrap returns the first damage.
func (e *DamagedError) Unwrap() error { return e.Err }

// Model says what a file's components are.
type Model int

// The colour models of files.
const (
	Gray Model = iota
	YCbCr
	RGB
	CMYK
	YCCK
)

var models = []string{"Gray", "YCbCr", "RGB", "CMYK", "YCCK"}

func (m Model) String() string { return nameOf(models, int(m), "Model") }

// Header is what a file says of its image before the first pixel.
type Header struct {
	// Width and Height are in pixels, as stored, before any rotation; 1 to 65535.
	Width, Height int
	// Components is 1, 3 or 4, Bits the number of bits of one sample.
	Components, Bits int
	// Coding is "baseline", "extended", "progressive", "lossless", or one of the
	// last three with " arithmetic" behind it. The first three are decoded.
	Coding string
	// Model is found as libjpeg finds it, by the JFIF and Adobe segments and the
	// components' identifiers.
	Model Model
	// Sampling has the horizontal and vertical sampling factors of each
	// component, 1 to 4; {1, 1} where there is only one. Behind the last component it
	// is 0.
	Sampling [4][2]int
	// Orientation is EXIF's, 1 to 8; 1 (upright) if the file gives none.
	Orientation int
	// RestartInterval is how many MCUs lie between two restart markers, 0 if
	// there are none.
	RestartInterval int
	// JFIF and Adobe tell whether the file has these segments.
	JFIF, Adobe bool
	// ICC is the colour profile, nil if there is none, or none that is whole. It is
	// part of the file's data where it lies there in one piece; a longer one is put
	// together in memory of its own.
	ICC []byte
	// Size is the header's, in bytes: there the data of the first scan begin.
	Size int
	// OneScan says that this scan has all of the image.
	OneScan bool
}

// Upright returns the image's dimensions after the rotation that Orientation asks
// for.
func (h *Header) Upright() (width, height int) {
	if h.Orientation >= 5 {
		return h.Height, h.Width
	}
	return h.Width, h.Height
}

// ReadHeader reads the header of a file, data: all up to its first scan, which may
// end there. Files of a kind that is not decoded have a header too. It allocates nothing
// unless there is an error, or a colour profile in several pieces.
func ReadHeader(data []byte) (Header, error) {
	var f entropy.File
	if err := f.ReadHeader(data); err != nil {
		return Header{}, err
	}
	fr := &f.Frame
	h := Header{
		Width: fr.Width, Height: fr.Height, Components: fr.N, Bits: fr.Precision,
		Coding: f.Coding.String(), Model: model(fr.Model), Orientation: f.Orientation,
		RestartInterval: f.Restart, JFIF: f.JFIF, Adobe: fr.Adobe, ICC: f.ICC(), Size: f.Size(), OneScan: f.OneScan(),
	}
	for i, c := range fr.Component[:fr.N] {
		h.Sampling[i] = [2]int{c.H, c.V}
	}
	return h, nil
}

func model(m blocks.Model) Model {
	return [...]Model{blocks.Gray: Gray, blocks.YCbCr: YCbCr, blocks.RGB: RGB, blocks.CMYK: CMYK, blocks.YCCK: YCCK}[m]
}
