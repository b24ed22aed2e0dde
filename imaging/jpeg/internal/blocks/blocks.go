// Package blocks is the contract between the two halves of the JPEG engine: the
// entropy layer makes quantised coefficients, the pixel layer makes pixels of
// them, and neither knows the other. Any source of coefficients can stand before
// the pixel layer, and it decodes no more of an image than a crop needs.
//
// A decode goes as follows. The entropy layer fills a [Frame], which holds for the
// whole image. The pixel layer says which [Window] of it the wanted pixels need.
// The entropy layer then hands over that window as a sequence of [Strip], from top
// to bottom without a gap, each of one or more rows of MCUs. A strip is a window
// into memory that is filled anew for the next one, so that the coefficients stay
// in the processor's cache; of a progressive image, all strips lie in memory at
// once, and may come as a single one.
//
// # Units
//
// A block is 8 x 8 samples of one component. An MCU, here, is the smallest
// rectangle of whole blocks that all components share: 8·MaxH x 8·MaxV pixels, and
// of component c, H x V blocks. Where the image's edge cuts an MCU, its blocks
// beyond the edge are there too, with coefficients that nobody may look at: of
// component c only the first [Frame.Samples] columns and rows of samples are the
// image's, and upsampling must take no notice of the others.
package blocks

import "unsafe"

// Model says what an image's components are.
type Model uint8

// The colour models. Libjpeg's rules (JFIF and Adobe markers, component
// identifiers) have been applied to find it.
const (
	Gray  Model = iota // 1 component
	YCbCr              // 3 components
	RGB                // 3 components
	CMYK               // 4 components, as they are stored; see Frame.Adobe
	YCCK               // 4 components: YCbCr of inverted CMY, and K
)

// MaxComponents is the largest number of components of a frame.
const MaxComponents = 4

// Component is what holds for one component in all of the image.
type Component struct {
	// H and V are the sampling factors, 1 to 4, and divide MaxH and MaxV. Those
	// of an image with one component are 1.
	H, V int
	// Quant has the quantisation steps in the order of the coefficients
	// ([Order]).
	Quant [64]uint16
}

// Frame is what holds for all of an image.
type Frame struct {
	Width, Height int // in pixels, 1 to 65535
	Precision     int // bits of a sample: 8 or 12
	Model         Model
	// Adobe says that the file has an Adobe marker: its CMYK values are then
	// stored inverted by custom, which libjpeg leaves to its caller.
	Adobe      bool
	MaxH, MaxV int
	N          int // components
	Component  [MaxComponents]Component
}

// MCUs returns how many MCUs the image is wide and high.
func (f *Frame) MCUs() (x, y int) {
	return (f.Width + 8*f.MaxH - 1) / (8 * f.MaxH), (f.Height + 8*f.MaxV - 1) / (8 * f.MaxV)
}

// Samples returns how many samples of component c are the image's (libjpeg's
// downsampled_width and downsampled_height).
func (f *Frame) Samples(c int) (width, height int) {
	p := &f.Component[c]
	return (f.Width*p.H + f.MaxH - 1) / f.MaxH, (f.Height*p.V + f.MaxV - 1) / f.MaxV
}

// Window is a rectangle of MCUs, [X0, X1) by [Y0, Y1).
type Window struct{ X0, Y0, X1, Y1 int }

// Plane is the part of one component that a strip holds.
//
// The block in column x and row y of the strip (both count from its first block)
// has its coefficients at Coef[64*(y*Stride+x):][:64]; all 64 are written.
//
// Coef is aligned to 64 bytes and Stride is even; the blocks that it counts beyond
// the strip's width may be read, and hold anything, as may one row's worth of
// padding: Coef holds at least 64*Stride*rows values.
type Plane struct {
	Coef   []int16
	Stride int // blocks
}

// Strip is a run of whole rows of MCUs of a window: MCU columns [X0, X1) and rows
// [Y0, Y1) of the image. It is valid until the next one is asked for; the pixel
// layer may not write to it.
type Strip struct {
	Window
	Plane [MaxComponents]Plane
}

// A coefficient's place in a block. The inverse DCT in SIMD wants the rows of the
// natural order in pairs: (0,4) (2,6) (1,7) (5,3); in a pair the columns in the
// order 0,4,2,6,1,7,5,3; of each column the pair's two rows side by side. So its
// multiplications need no shuffling, the last two pairs add up to (1+5,7+3), which
// it needs too, and the entropy layer pays nothing for it: only its zigzag table is
// another.
var (
	// Place is where the coefficient at natural index 8·row+column is stored.
	Place = places()
	// Order is where the coefficient at a zigzag index is stored.
	Order = order()
	// Zigzag is the natural index of a zigzag index.
	Zigzag = zigzag()
)

func places() (place [64]uint8) {
	rows := [8]int{0, 4, 2, 6, 1, 7, 5, 3}
	columns := rows
	for i, r := range rows {
		for j, c := range columns {
			place[8*r+c] = uint8(i/2*16 + j*2 + i%2)
		}
	}
	return place
}

func zigzag() (natural [64]uint8) {
	r, c, step := 0, 0, -1 // up and to the right first
	for i := range natural {
		natural[i] = uint8(8*r + c)
		switch {
		case step < 0 && c == 7, step > 0 && r == 7:
			if step < 0 {
				r++
			} else {
				c++
			}
			step = -step
		case step < 0 && r == 0, step > 0 && c == 0:
			if step < 0 {
				c++
			} else {
				r++
			}
			step = -step
		default:
			r, c = r+step, c-step
		}
	}
	return natural
}

func order() (o [64]uint8) {
	for i, n := range zigzag() {
		o[i] = Place[n]
	}
	return o
}

// Natural writes a stored block in natural order.
func Natural(dst *[64]int16, block []int16) {
	for i, p := range Place {
		dst[i] = block[p]
	}
}

// Memory is the store of a strip's planes, used again from strip to strip and from
// image to image. Its zero value is ready.
type Memory struct {
	coef []int16
}

// Shape gives s planes for the window, in m's memory, and room for rows rows of
// MCUs. What the planes hold is not defined. The planes of the strip that was
// shaped before lose their memory.
func (m *Memory) Shape(s *Strip, f *Frame, w Window, rows int) {
	*s = Strip{Window: w}
	blocks := 0
	for c := range f.N {
		p := &f.Component[c]
		stride := ((w.X1-w.X0)*p.H + 1) &^ 1
		s.Plane[c].Stride = stride
		blocks += stride * rows * p.V
	}
	blocks += s.Plane[f.N-1].Stride // for Crop
	m.coef = coefs(m.coef, 64*blocks)
	at := 0
	for c := range f.N {
		n := s.Plane[c].Stride * rows * f.Component[c].V
		s.Plane[c].Coef = m.coef[64*at : 64*(at+n)]
		at += n
	}
}

// Crop makes of a strip that was shaped, or cropped, the part that shows window w.
func (s *Strip) Crop(f *Frame, w Window) {
	for c := range f.N {
		p, k := &s.Plane[c], &f.Component[c]
		at := (w.Y0-s.Y0)*k.V*p.Stride + (w.X0-s.X0)*k.H
		end := at + (w.Y1-w.Y0)*k.V*p.Stride // in the last row, beyond the plane
		p.Coef = p.Coef[64*at : 64*end]
	}
	s.Window = w
}

// coefs returns s with length n, new memory aligned to 64 bytes.
func coefs(s []int16, n int) []int16 {
	if n <= cap(s) {
		return s[:n]
	}
	s = make([]int16, n+32)
	at := -int(uintptr(unsafe.Pointer(&s[0]))/2) & 31
	return s[at : at+n]
}

// Clear makes all coefficients of the strip zero.
func (m *Memory) Clear() { clear(m.coef) }
