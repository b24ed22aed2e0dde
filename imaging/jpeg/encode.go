package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"

	"shardify/imaging/internal/exif"
	"shardify/imaging/internal/raster"
	"shardify/imaging/jpeg/internal/encode"
)

// Subsampling says how many pixels share a sample of chroma.
type Subsampling string

// The subsamplings. The zero value is Sub420: libjpeg's and Pillow's default, and that
// of most photographs.
const (
	Sub444 Subsampling = "4:4:4" // each pixel has its own
	Sub422 Subsampling = "4:2:2" // two side by side
	Sub440 Subsampling = "4:4:0" // two, one above the other
	Sub420 Subsampling = "4:2:0" // two by two
	Sub411 Subsampling = "4:1:1" // four side by side
)

// factors returns luma's sampling factors; chroma's are 1.
func (s Subsampling) factors() (h, v int, ok bool) {
	switch s {
	case Sub444:
		return 1, 1, true
	case Sub422:
		return 2, 1, true
	case Sub440:
		return 1, 2, true
	case "", Sub420:
		return 2, 2, true
	case Sub411:
		return 4, 1, true
	}
	return 0, 0, false
}

// DefaultQuality is what a Quality of 0 means: libjpeg's and Pillow's default.
const DefaultQuality = 75

// EncodeOptions say how to encode. The zero value does it as Pillow does by default:
// quality 75, 4:2:0, the standard's Huffman tables.
type EncodeOptions struct {
	// Quality is 1 to 100 on libjpeg's scale; 0 means DefaultQuality.
	Quality int `json:"quality,omitempty"`
	// Subsampling is that of chroma; "" means Sub420. Grey images have none.
	Subsampling Subsampling `json:"subsampling,omitempty"`
	// Optimize makes Huffman tables for the image: its file gets some per cent smaller
	// at the same pixels, and takes longer to make. It takes memory for all of the
	// image's coefficients, up to 7 bytes a pixel.
	Optimize bool `json:"optimize,omitempty"`
	// Segments are marker segments to be written as they are, such as a colour
	// profile: see [Segments], [AppendICC], [AppendEXIF] and [AppendComment].
	Segments []byte `json:"-"`
}

// Validate reports every fault of the options.
func (o *EncodeOptions) Validate() error {
	var faults []error
	if o.Quality < 0 || o.Quality > 100 {
		faults = append(faults, fmt.Errorf("jpeg: quality is %d; want 1 to 100, or 0 for the default of %d", o.Quality, DefaultQuality))
	}
	if _, _, ok := o.Subsampling.factors(); !ok {
		faults = append(faults, fmt.Errorf("jpeg: subsampling is %q; want 4:4:4, 4:2:2, 4:4:0, 4:2:0 or 4:1:1", string(o.Subsampling)))
	}
	for rest := o.Segments; len(rest) > 0; {
		n, err := segment(rest)
		if err != nil {
			faults = append(faults, err)
			break
		}
		rest = rest[n:]
	}
	return errors.Join(faults...)
}

// Encoder makes baseline JPEG files of pixels: byte for byte those that Pillow 13 makes
// of the same pixels at the same quality and subsampling, optimised or not. It keeps its
// memory between images, and allocates nothing once it has seen the largest, but for dst
// where that is too short. Its zero value is ready; one goroutine may use it at a time.
type Encoder struct {
	encode encode.Encoder
}

// Encode appends a file with m to dst, which may be nil, and returns that. After an
// error dst is as it was. m is neither changed nor kept.
func (e *Encoder) Encode(dst []byte, m *raster.Image, o EncodeOptions) ([]byte, error) {
	return e.append(dst, encode.Source{Pix: m.Pix, Width: m.Width, Height: m.Height, Stride: m.Stride, Channels: 3}, &o)
}

// EncodeGray appends a grey file to dst, as Encode does: the pixel in column x of row y
// is pix[y*stride+x].
func (e *Encoder) EncodeGray(dst, pix []uint8, width, height, stride int, o EncodeOptions) ([]byte, error) {
	return e.append(dst, encode.Source{Pix: pix, Width: width, Height: height, Stride: stride, Channels: 1}, &o)
}

// maxSide is a JPEG's largest width and height.
const maxSide = 65535

func (e *Encoder) append(dst []byte, s encode.Source, o *EncodeOptions) ([]byte, error) {
	if err := o.Validate(); err != nil {
		return dst, err
	}
	if s.Width < 1 || s.Height < 1 || s.Width > maxSide || s.Height > maxSide {
		return dst, fmt.Errorf("jpeg: an image of %d x %d cannot be encoded; want 1 to %d", s.Width, s.Height, maxSide)
	}
	if row := s.Width * s.Channels; s.Stride < row || len(s.Pix) < row || (len(s.Pix)-row)/s.Stride < s.Height-1 {
		return dst, fmt.Errorf("jpeg: %d bytes of pixels with a stride of %d are too few for %d x %d pixels of %d channels", len(s.Pix), s.Stride, s.Width, s.Height, s.Channels)
	}
	spec := encode.Spec{Quality: o.Quality, Optimize: o.Optimize, Segments: o.Segments}
	if spec.Quality == 0 {
		spec.Quality = DefaultQuality
	}
	spec.H, spec.V, _ = o.Subsampling.factors()
	return e.encode.Encode(dst, s, spec), nil
}

// segment returns the length of the marker segment that s begins with, which must be
// one that says nothing of the coding: APPn or COM.
func segment(s []byte) (int, error) {
	if len(s) < 4 || s[0] != 0xff || s[1] < 0xe0 || s[1] > 0xef && s[1] != 0xfe {
		return 0, errors.New("jpeg: segments holds something else than whole APPn and COM segments")
	}
	n := 2 + int(binary.BigEndian.Uint16(s[2:]))
	if n < 4 || n > len(s) {
		return 0, errors.New("jpeg: segments holds a segment that is not whole")
	}
	return n, nil
}

const (
	exifID = "Exif\x00\x00"
	iccID  = "ICC_PROFILE\x00"
	// maxPayload is what fits into a marker segment.
	maxPayload = 65533
)

// AppendICC appends to segments those that hold a colour profile (ICC.1, B.4), for
// EncodeOptions.Segments.
func AppendICC(segments, profile []byte) ([]byte, error) {
	const most = maxPayload - len(iccID) - 2
	count := (len(profile) + most - 1) / most
	if count > 255 {
		return segments, fmt.Errorf("jpeg: a colour profile of %d bytes does not fit; the most is %d", len(profile), 255*most)
	}
	for i := range count {
		part := profile[i*most : min((i+1)*most, len(profile))]
		segments = appendHead(segments, 0xe2, len(iccID)+2+len(part))
		segments = append(append(segments, iccID...), byte(i+1), byte(count))
		segments = append(segments, part...)
	}
	return segments, nil
}

// AppendEXIF appends to segments one that holds EXIF data, which is a TIFF file and
// begins with II or MM.
func AppendEXIF(segments, data []byte) ([]byte, error) {
	return appendPayload(segments, 0xe1, exifID, data)
}

// AppendComment appends to segments one that holds a comment.
func AppendComment(segments []byte, text string) ([]byte, error) {
	return appendPayload(segments, 0xfe, "", []byte(text))
}

func appendPayload(segments []byte, marker byte, id string, data []byte) ([]byte, error) {
	if n := maxPayload - len(id); len(data) > n {
		return segments, fmt.Errorf("jpeg: %d bytes do not fit into a marker segment; the most is %d", len(data), n)
	}
	segments = appendHead(segments, marker, len(id)+len(data))
	return append(append(segments, id...), data...), nil
}

func appendHead(segments []byte, marker byte, n int) []byte {
	return binary.BigEndian.AppendUint16(append(segments, 0xff, marker), uint16(2+n))
}

// Upright makes the EXIF orientation in segments say that the pixels stand upright, as
// they do once [Options.Orient] has turned them. It changes segments in place.
func Upright(segments []byte) error {
	for rest := segments; len(rest) > 0; {
		n, err := segment(rest)
		if err != nil {
			return err
		}
		if p := rest[4:n]; rest[1] == 0xe1 && len(p) >= len(exifID) && string(p[:len(exifID)]) == exifID {
			exif.SetUpright(p[len(exifID):])
		}
		rest = rest[n:]
	}
	return nil
}
