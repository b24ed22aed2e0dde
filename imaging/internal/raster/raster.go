// Package raster has the image of imaging, for imaging and for the packages below it
// that imaging imports. Imaging gives it to its callers under its own name.
package raster

// Image is 8-bit RGB, interleaved: the pixel in column x of row y is
// Pix[y*Stride+3*x:][:3].
type Image struct {
	Pix           []uint8
	Width, Height int
	// Stride is the distance between two rows in bytes, at least 3*Width.
	Stride int
}

// Reset gives m the dimensions and rows without gaps, in the memory it has where
// that is enough; the pixels are then whatever lay there. Dimensions must not be
// negative.
func (m *Image) Reset(width, height int) {
	m.Width, m.Height, m.Stride = width, height, 3*width
	if n := m.Stride * height; n <= cap(m.Pix) {
		m.Pix = m.Pix[:n]
	} else {
		m.Pix = make([]uint8, n)
	}
}

// DefaultMaxPixels is what DecodeOptions.MaxPixels means when it is 0: Pillow's
// bound, above which its Image.open raises DecompressionBombError.
const DefaultMaxPixels = 2 * (1024 * 1024 * 1024 / 4 / 3)
