package tree

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"strconv"

	"shardify/tools/gendata/jpegenc"
)

// tiny makes the smallest files that are whole images: 8×8 pixels of one colour,
// and the file's number in a comment.
type tiny struct {
	// Each file is head, comment, tail. Heads end where the comment begins.
	jpegHead, pngHead []byte
	jpegTail, pngTail [256][]byte
}

// Where the comment stands in JPEG files: after SOI and the JFIF segment. In PNG
// files: after the signature and IHDR.
const (
	jpegCut = 2 + 18
	pngCut  = 8 + 25
)

func newTiny() (*tiny, error) {
	t := new(tiny)
	var enc jpegenc.Encoder
	for i := range 256 {
		pic := jpegenc.NewPicture(8, 8, jpegenc.Gray, jpegenc.S444)
		for j := range pic.Planes[0].Pix {
			pic.Planes[0].Pix[j] = uint8(i)
		}
		data, err := enc.Append(nil, pic, &jpegenc.Options{Optimize: true})
		if err != nil {
			return nil, err
		}
		t.jpegHead, t.jpegTail[i] = data[:jpegCut], data[jpegCut:]

		img := image.NewPaletted(image.Rect(0, 0, 8, 8), color.Palette{color.RGBA{uint8(i), uint8(i * 7), uint8(i * 31), 255}})
		var buf bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, img); err != nil {
			return nil, err
		}
		t.pngHead, t.pngTail[i] = buf.Bytes()[:pngCut], buf.Bytes()[pngCut:]
	}
	return t, nil
}

// file appends the i-th file of a seed to dst.
func (t *tiny) file(dst []byte, seed uint64, i int) (data []byte, ext string) {
	var text [48]byte
	comment := strconv.AppendUint(text[:0], seed, 10)
	comment = append(comment, ' ')
	comment = strconv.AppendInt(comment, int64(i), 10)
	if i%8 != 7 {
		dst = append(dst, t.jpegHead...)
		dst = append(dst, 0xff, 0xfe, 0, byte(len(comment)+2))
		dst = append(dst, comment...)
		return append(dst, t.jpegTail[i&255]...), ".JPEG"
	}
	dst = append(dst, t.pngHead...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len("Comment\x00")+len(comment)))
	begin := len(dst)
	dst = append(dst, "tEXtComment\x00"...)
	dst = append(dst, comment...)
	dst = binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[begin:]))
	return append(dst, t.pngTail[i>>3&255]...), ".png"
}
