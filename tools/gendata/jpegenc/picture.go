package jpegenc

import (
	"errors"
	"fmt"
	"image"
	"image/color"
)

// Model is the meaning of a picture's planes.
type Model uint8

const (
	// YCbCr is three planes as JFIF defines them.
	YCbCr Model = iota
	// Gray is one plane.
	Gray
	// CMYK is four planes, marked by Adobe's APP14 segment with transform 0. The
	// samples are Adobe's: 255 is no ink.
	CMYK
	// YCCK is four planes, Adobe's transform 2: JFIF's YCbCr with cyan, magenta and
	// yellow (255 is full ink) in place of red, green and blue, and K as in CMYK.
	YCCK
)

// Planes is the number of planes.
func (m Model) Planes() int {
	switch m {
	case Gray:
		return 1
	case YCbCr:
		return 3
	default:
		return 4
	}
}

// tables is how many quantisation tables, and Huffman tables of each class, serve
// the planes.
func (m Model) tables() int {
	if m == Gray || m == CMYK {
		return 1
	}
	return 2
}

// id is the identifier of a component.
func (m Model) id(i int) byte {
	if m == CMYK {
		return "CMYK"[i]
	}
	return byte(i + 1)
}

// Subsampling is the resolution of planes 1 and 2 of YCbCr and YCCK pictures.
type Subsampling uint8

const (
	// S444 is full resolution.
	S444 Subsampling = iota
	// S422 has half the columns.
	S422
	// S420 has half the columns and half the rows.
	S420
)

func (s Subsampling) String() string {
	switch s {
	case S444:
		return "4:4:4"
	case S422:
		return "4:2:2"
	case S420:
		return "4:2:0"
	default:
		return fmt.Sprintf("Subsampling(%d)", uint8(s))
	}
}

// factors returns the sampling factors of the first plane; those of the others are
// 1 by 1, but for K, which is sampled as the first.
func (s Subsampling) factors() (h, v int) {
	switch s {
	case S422:
		return 2, 1
	case S420:
		return 2, 2
	default:
		return 1, 1
	}
}

// Plane is the samples of one component, row by row.
type Plane struct {
	Pix    []uint8
	Stride int
}

// Picture is what is encoded. The encoder only reads it.
type Picture struct {
	// Width and Height are in pixels, 1 to 65535.
	Width, Height int
	Model         Model
	// Sub must be S444 for Gray and CMYK.
	Sub Subsampling
	// Planes has as many planes as Model says. Subsampled planes have half the
	// columns (and rows), rounded up.
	Planes [4]Plane
}

// ErrPicture is wrapped by the errors for pictures that cannot be encoded.
var ErrPicture = errors.New("jpegenc: illegal picture")

// PlaneSize returns the size of plane i in samples.
func (p *Picture) PlaneSize(i int) (w, h int) {
	if i == 0 || i == 3 {
		return p.Width, p.Height
	}
	fh, fv := p.Sub.factors()
	return (p.Width + fh - 1) / fh, (p.Height + fv - 1) / fv
}

func (p *Picture) validate() error {
	if p.Width < 1 || p.Width > 65535 || p.Height < 1 || p.Height > 65535 {
		return fmt.Errorf("%w: %d×%d pixels; each side is 1 to 65535", ErrPicture, p.Width, p.Height)
	}
	if p.Model > YCCK || p.Sub > S420 {
		return fmt.Errorf("%w: model %d, subsampling %d", ErrPicture, p.Model, p.Sub)
	}
	if p.Sub != S444 && (p.Model == Gray || p.Model == CMYK) {
		return fmt.Errorf("%w: a grey or CMYK picture is not subsampled", ErrPicture)
	}
	for i := range p.Model.Planes() {
		w, h := p.PlaneSize(i)
		pl := p.Planes[i]
		if pl.Stride < w || len(pl.Pix) < (h-1)*pl.Stride+w {
			return fmt.Errorf("%w: plane %d has %d samples at stride %d, needs %d×%d",
				ErrPicture, i, len(pl.Pix), pl.Stride, w, h)
		}
	}
	return nil
}

// NewPicture returns a picture with planes of zeros.
func NewPicture(width, height int, model Model, sub Subsampling) *Picture {
	p := &Picture{Width: width, Height: height, Model: model, Sub: sub}
	for i := range model.Planes() {
		w, h := p.PlaneSize(i)
		p.Planes[i] = Plane{Pix: make([]uint8, w*h), Stride: w}
	}
	return p
}

// FromImage converts an image as libjpeg would: with its fixed-point colour
// conversion and its rounding where planes are subsampled. Transparency is dropped.
func FromImage(img image.Image, model Model, sub Subsampling) *Picture {
	b := img.Bounds()
	p := NewPicture(b.Dx(), b.Dy(), model, S444)
	for y := range p.Height {
		for x := range p.Width {
			r16, g16, b16, _ := img.At(b.Min.X+x, b.Min.Y+y).RGBA()
			r, g, b := uint8(r16>>8), uint8(g16>>8), uint8(b16>>8)
			var s [4]uint8
			switch model {
			case YCbCr:
				s[0], s[1], s[2] = toYCbCr(r, g, b)
			case Gray:
				s[0], _, _ = toYCbCr(r, g, b)
			case CMYK:
				c, m, y, k := color.RGBToCMYK(r, g, b)
				s = [4]uint8{255 - c, 255 - m, 255 - y, 255 - k}
			case YCCK:
				c, m, y, k := color.RGBToCMYK(r, g, b)
				s[0], s[1], s[2] = toYCbCr(c, m, y)
				s[3] = 255 - k
			}
			for c := range model.Planes() {
				p.Planes[c].Pix[y*p.Width+x] = s[c]
			}
		}
	}
	if fh, fv := sub.factors(); fh*fv > 1 {
		p.Sub = sub
		for i := 1; i <= 2; i++ {
			p.Planes[i] = shrink(p.Planes[i], p.Width, p.Height, fh, fv)
		}
	}
	return p
}

// toYCbCr is JFIF's conversion in 1/65536, rounded as libjpeg rounds.
func toYCbCr(r, g, b uint8) (y, cb, cr uint8) {
	const half, centre = 1 << 15, 128<<16 + 1<<15 - 1
	r32, g32, b32 := int32(r), int32(g), int32(b)
	return uint8((19595*r32 + 38470*g32 + 7471*b32 + half) >> 16),
		uint8((-11059*r32 - 21709*g32 + 32768*b32 + centre) >> 16),
		uint8((32768*r32 - 27439*g32 - 5329*b32 + centre) >> 16)
}

// shrink averages cells of fh×fv samples, rounding down and up by turns from
// column to column. Samples over the edge repeat the last one.
func shrink(in Plane, w, h, fh, fv int) Plane {
	ow, oh := (w+fh-1)/fh, (h+fv-1)/fv
	out := Plane{Pix: make([]uint8, ow*oh), Stride: ow}
	for y := range oh {
		for x := range ow {
			sum := (fv - 1) + x&1
			for v := range fv {
				row := in.Pix[min(y*fv+v, h-1)*in.Stride:]
				for u := range fh {
					sum += int(row[min(x*fh+u, w-1)])
				}
			}
			out.Pix[y*ow+x] = uint8(sum / (fh * fv))
		}
	}
	return out
}
