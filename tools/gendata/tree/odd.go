package tree

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/png"
	"math/rand/v2"

	"github.com/HugoSmits86/nativewebp"
	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"shardify/tools/gendata/jpegenc"
	"shardify/tools/gendata/photo"
)

// Kind is a kind of files that are not baseline colour JPEGs.
type Kind string

// The kinds.
const (
	// PNG is by turns 8-bit RGB, 16-bit RGB, palette, 8-bit grey, 8-bit RGBA.
	PNG  Kind = "png"
	WebP Kind = "webp" // lossless
	GIF  Kind = "gif"
	BMP  Kind = "bmp"
	// TIFF is by turns uncompressed and deflated.
	TIFF        Kind = "tiff"
	Progressive Kind = "progressive"
	Grey        Kind = "grey"
	// CMYK is a JPEG that is by turns CMYK and YCCK.
	CMYK Kind = "cmyk"
	// Exif is a JPEG with orientation 1 to 8 by turns, stored so that it is upright
	// when the orientation is applied.
	Exif Kind = "exif"
	// Truncated is a JPEG cut off within its entropy-coded data. It is bad.
	Truncated Kind = "truncated"
	// NotImage is some other file by the name of a JPEG. It is bad.
	NotImage Kind = "notimage"
	// Empty is a file of no bytes by the name of a JPEG. It is bad.
	Empty Kind = "empty"
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{PNG, WebP, GIF, BMP, TIFF, Progressive, Grey, CMYK, Exif, Truncated, NotImage, Empty}
}

// kindFacts is what is known of a kind before a file is made.
type kindFacts struct {
	ext string
	// bad says why a file of the kind is no image; empty if it is one.
	bad string
}

var kinds = map[Kind]kindFacts{
	PNG: {ext: "png"}, WebP: {ext: "webp"}, GIF: {ext: "gif"}, BMP: {ext: "bmp"}, TIFF: {ext: "tiff"},
	Progressive: {ext: "JPEG"}, Grey: {ext: "JPEG"}, CMYK: {ext: "JPEG"}, Exif: {ext: "JPEG"},
	Truncated: {ext: "JPEG", bad: "the file ends within its entropy-coded data"},
	NotImage:  {ext: "JPEG", bad: "the file is not an image"},
	Empty:     {ext: "JPEG", bad: "the file is empty"},
}

// oddities makes odd files, for one goroutine.
type oddities struct {
	seed    uint64
	painter *photo.Painter
	enc     jpegenc.Encoder
}

func newOddities(seed uint64) *oddities {
	return &oddities{seed: seed, painter: photo.NewPainter(photo.NewLibrary())}
}

// oddNumbers is where the numbers of the photographs in odd files begin.
const oddNumbers = 1 << 40

// file returns the i-th file of a kind; n numbers all odd files of the tree.
func (o *oddities) file(kind Kind, i, n int) ([]byte, error) {
	switch kind {
	case Empty:
		return nil, nil
	case NotImage:
		return notImage(i), nil
	}
	spec := photo.Draw(o.seed, oddNumbers+uint64(n))
	spec.Model, spec.Sub = jpegenc.YCbCr, jpegenc.S444
	encode := func() ([]byte, error) {
		return o.enc.Append(nil, o.painter.Paint(&spec), &spec.Options)
	}
	switch kind {
	case Progressive:
		spec.Options.Progressive = true
		spec.Sub = []jpegenc.Subsampling{jpegenc.S444, jpegenc.S420, jpegenc.S422}[i%3]
		return encode()
	case Grey:
		spec.Model = jpegenc.Gray
		return encode()
	case Truncated:
		data, err := encode()
		if err != nil {
			return nil, err
		}
		begin := scanBegin(data)
		share := 0.05 + 0.9*rand.New(rand.NewPCG(uint64(n), 0)).Float64()
		return data[:begin+int(share*float64(len(data)-begin))], nil
	case CMYK:
		model := []jpegenc.Model{jpegenc.CMYK, jpegenc.YCCK}[i%2]
		return o.enc.Append(nil, jpegenc.FromImage(toRGBA(o.painter.Paint(&spec)), model, jpegenc.S444), &spec.Options)
	case Exif:
		orientation := i%8 + 1
		pic := unorient(o.painter.Paint(&spec), orientation)
		spec.Options.Segments = append([]jpegenc.Segment{jpegenc.Exif(orientation)}, spec.Options.Segments...)
		return o.enc.Append(nil, pic, &spec.Options)
	}

	// Formats without loss would be large.
	for spec.Width*spec.Height > 200*200 {
		spec.Width, spec.Height = spec.Width*3/4+1, spec.Height*3/4+1
	}
	img := toRGBA(o.painter.Paint(&spec))
	var buf bytes.Buffer
	var err error
	switch kind {
	case PNG:
		err = png.Encode(&buf, pngVariant(img, i))
	case WebP:
		err = nativewebp.Encode(&buf, img, nil)
	case GIF:
		err = gif.Encode(&buf, img, nil)
	case BMP:
		err = bmp.Encode(&buf, img)
	case TIFF:
		compression := []tiff.CompressionType{tiff.Uncompressed, tiff.Deflate}[i%2]
		err = tiff.Encode(&buf, img, &tiff.Options{Compression: compression, Predictor: i%2 == 1})
	default:
		panic(fmt.Sprintf("kind %q has no maker", kind))
	}
	return buf.Bytes(), err
}

// scanBegin returns where the entropy-coded data of a whole JPEG file begins.
func scanBegin(data []byte) int {
	at := 2
	for {
		size := 2 + int(data[at+2])<<8 + int(data[at+3])
		if at += size; data[at-size+1] == 0xda {
			return at
		}
	}
}

// toRGBA converts a 4:4:4 picture.
func toRGBA(p *jpegenc.Picture) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, p.Width, p.Height))
	for y := range p.Height {
		for x := range p.Width {
			at := func(c int) uint8 { return p.Planes[c].Pix[y*p.Planes[c].Stride+x] }
			r, g, b := color.YCbCrToRGB(at(0), at(1), at(2))
			img.SetRGBA(x, y, color.RGBA{r, g, b, 255})
		}
	}
	return img
}

func pngVariant(img *image.RGBA, i int) image.Image {
	b := img.Bounds()
	var to draw.Image
	switch i % 5 {
	case 0:
		return img
	case 1:
		wide := image.NewRGBA64(b)
		draw.Draw(wide, b, img, b.Min, draw.Src)
		for j := 1; j < len(wide.Pix); j += 2 {
			if j%8 != 7 { // alpha stays opaque
				wide.Pix[j] ^= uint8(j * 37) // the low bytes differ from the high ones
			}
		}
		return wide
	case 2:
		to = image.NewPaletted(b, palette.WebSafe)
	case 3:
		to = image.NewGray(b)
	default:
		rgba := image.NewNRGBA(b)
		draw.Draw(rgba, b, img, b.Min, draw.Src)
		for y := range b.Dy() {
			for x := range b.Dx() {
				rgba.Pix[rgba.PixOffset(x, y)+3] = uint8(255 * (x + y) / (b.Dx() + b.Dy()))
			}
		}
		return rgba
	}
	draw.Draw(to, b, img, b.Min, draw.Src)
	return to
}

// unorient returns the 4:4:4 picture that looks like p when a viewer applies the
// Exif orientation o to it.
func unorient(p *jpegenc.Picture, o int) *jpegenc.Picture {
	w, h := p.Width, p.Height
	if o >= 5 {
		w, h = h, w
	}
	out := jpegenc.NewPicture(w, h, p.Model, p.Sub)
	for c := range p.Model.Planes() {
		from, to := p.Planes[c], out.Planes[c]
		for y := range p.Height {
			for x := range p.Width {
				// Where the viewer finds the pixel that he shows at (x, y).
				u, v := x, y
				switch o {
				case 2:
					u = w - 1 - x
				case 3:
					u, v = w-1-x, h-1-y
				case 4:
					v = h - 1 - y
				case 5:
					u, v = y, x
				case 6:
					u, v = y, h-1-x
				case 7:
					u, v = w-1-y, h-1-x
				case 8:
					u, v = w-1-y, x
				}
				to.Pix[v*to.Stride+u] = from.Pix[y*from.Stride+x]
			}
		}
	}
	return out
}

// notImage returns what one finds under the names of images in scraped data.
func notImage(i int) []byte {
	switch i % 4 {
	case 0:
		return []byte("<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head>\n<body><h1>Not Found</h1><p>The photograph is no longer available.</p></body></html>\n")
	case 1:
		return []byte("{\"error\":\"rate limit exceeded\",\"status\":429}\n")
	case 2:
		return append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), bytes.Repeat([]byte{0x5a, 0xa5, byte(i)}, 500)...)
	default:
		return make([]byte, 4096)
	}
}
