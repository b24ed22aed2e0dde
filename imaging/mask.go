package imaging

// Mask is one byte a pixel, such as the class of each pixel in a segmentation: the
// pixel in column x of row y is Pix[y*Stride+x]. The bytes are names, not levels:
// they are copied, never interpolated.
type Mask struct {
	Pix           []uint8
	Width, Height int
	// Stride is the distance between two rows in bytes, at least Width.
	Stride int
}

// Reset gives m the dimensions and rows without gaps, in the memory it has where
// that is enough; the pixels are then whatever lay there. Dimensions must not be
// negative.
func (m *Mask) Reset(width, height int) {
	m.Width, m.Height, m.Stride = width, height, width
	if n := width * height; n <= cap(m.Pix) {
		m.Pix = m.Pix[:n]
	} else {
		m.Pix = make([]uint8, n)
	}
}
