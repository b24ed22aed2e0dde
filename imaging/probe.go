package imaging

import (
	"encoding/binary"
	"fmt"

	"shardify/imaging/netpbm"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// The signatures by which files are known. WebP's has a hole: bytes 4 to 7 of a
// RIFF file are its size.
const (
	jpegMagic  = "\xff\xd8\xff"
	pngMagic   = "\x89PNG\r\n\x1a\n"
	gif87Magic = "GIF87a"
	gif89Magic = "GIF89a"
	riffMagic  = "RIFF"
	webpMagic  = "WEBP"
	bmpMagic   = "BM"
	tiffLMagic = "II*\x00"
	tiffBMagic = "MM\x00*"
	bigTIFFLE  = "II+\x00"
	bigTIFFBE  = "MM\x00+"

	riffMagicLen = len(riffMagic) + 4 + len(webpMagic)
)

var magics = [...]string{
	jpegMagic, pngMagic, gif87Magic, gif89Magic, riffMagic, bmpMagic, tiffLMagic, tiffBMagic, bigTIFFLE, bigTIFFBE,
	"P1", "P2", "P3", "P4", "P5", "P6",
}

// Probe reads the header of a whole image file and checks that the file does not
// end early, as far as the structure of its format shows that without decoding:
// a JPEG has its end marker, a PNG all chunks up to IEND, a GIF all blocks up to
// its trailer, a WebP the bytes that its RIFF header promises, a BMP and a netpbm file all
// rows, a TIFF all strips or tiles of its first image. Bytes after the end are no fault.
//
// A nil error does not mean that every pixel is sound, only decoding shows that (a
// JPEG of one scan that ends in the end marker is taken to be whole unread); nor that the image can be decoded: Probe also knows kinds that [Std] does not
// decode, such as lossless and arithmetic-coded JPEG.
//
// It reads only a few bytes of most files, allocates nothing unless there is an
// error (or a JPEG with a colour profile in several pieces), does not retain data, and may be called from any goroutine.
func Probe(data []byte) (Info, error) {
	switch sniff(data) {
	case JPEG:
		return probeJPEG(data)
	case PNG:
		return probePNG(data)
	case GIF:
		return probeGIF(data)
	case WebP:
		return probeWebP(data)
	case BMP:
		return probeBMP(data)
	case TIFF:
		return probeTIFF(data)
	case PNM:
		return probePNM(data)
	}
	if len(data) == 0 {
		return Info{}, fmt.Errorf("%w: it is empty", ErrTruncated)
	}
	for _, magic := range magics {
		if len(data) < len(magic) && magic[:len(data)] == string(data) ||
			magic == riffMagic && len(data) < riffMagicLen && has(data, magic) {
			return Info{}, fmt.Errorf("%w: it has only %d bytes", ErrTruncated, len(data))
		}
	}
	return Info{}, fmt.Errorf("%w: it starts with %q", ErrUnknownFormat, data[:min(len(data), 12)])
}

// sniff names the format of a file by its first bytes; empty if it is none of
// ours.
func sniff(data []byte) string {
	switch {
	case has(data, jpegMagic):
		return JPEG
	case has(data, pngMagic):
		return PNG
	case has(data, gif87Magic), has(data, gif89Magic):
		return GIF
	case has(data, riffMagic) && len(data) >= riffMagicLen && string(data[8:12]) == webpMagic:
		return WebP
	case has(data, tiffLMagic), has(data, tiffBMagic), has(data, bigTIFFLE), has(data, bigTIFFBE):
		return TIFF
	case has(data, bmpMagic):
		// Two letters are a weak signature; the size of the second header is one
		// of a few.
		if len(data) < 18 || bmpHeaderSize(le.Uint32(data[14:])) {
			return BMP
		}
	case netpbm.Is(data):
		return PNM
	}
	return ""
}

func has(data []byte, magic string) bool {
	return len(data) >= len(magic) && string(data[:len(magic)]) == magic
}
