// Package jpeg decodes JPEG files, for training above all: of a file it decodes what
// a crop needs, several files at a time, straight into their places in a batch. The
// pixels are libjpeg-turbo's, and so Pillow's, byte for byte. It makes JPEG files too, of
// pixels and of other JPEG files, for data sets to be.
//
// [Decoder.Decode] makes an image of a file, or of a region of it.
// [Decoder.DecodeAll] does so with many, scales them, and puts them where a batch
// wants them. [ReadHeader] tells what a file is without decoding it. [Decoder.MakeSeek]
// finds the points from which a file can be decoded without what is before them.
//
// # What is decoded
//
// Baseline, extended and progressive files of 8 and 12 bits a sample, with Huffman
// codes: all sampling factors whose ratios are whole numbers, restart intervals,
// interleaved or not; grey, YCbCr, RGB, CMYK and YCCK. Lossless, hierarchical and
// arithmetic-coded files, and those whose height only a DNL marker tells give an
// *UnsupportedError.
//
// Pixels have 8 bits. Of a file of 12, they are the upper 8 of what libjpeg-turbo 3
// shows (jpeg12_read_scanlines): everything up to RGB is done with 12.
//
// # Equality
//
// The pixels are those of libjpeg-turbo 3 on x86-64 with its defaults (inverse DCT
// "islow", "fancy" upsampling, smoothing of progressive files that were cut): also
// at a scale, also of damaged files of which libjpeg would only warn. Three cases
// are known to differ:
//
//   - Where a file ends inside a marker segment, libjpeg reads end markers in its
//     place, and mostly gives up; here the image ends there.
//   - Where FF FF 00 stands in damaged data, libjpeg-turbo leaves behind some
//     coefficients that it has decoded in error, and decoded again.
//   - Of a sequential file that codes a component twice, libjpeg-turbo lays one over
//     the other; here it is an error.
//
// # Damaged and hostile files
//
// Any bytes may be passed to any function here. The errors are those of package
// imaging: ErrTruncated, *FormatError, *UnsupportedError, and ErrTooLarge where
// dimensions go beyond [Options.MaxPixels], which is checked before memory is taken
// for them. Time is bounded in proportion to the size of the file and the number of
// pixels: a progressive file that codes next to nothing in very many scans is
// refused.
//
// # How
//
// Files come in two halves: Huffman codes to blocks of quantised coefficients
// (internal/entropy), blocks to pixels (internal/pixel), strip by strip, and the other
// way round (internal/encode). On amd64
// with AVX2 they are in assembly, otherwise in Go (build tag purego, and
// GODEBUG=cpu.avx2=off, choose Go); the result is the same.
package jpeg
