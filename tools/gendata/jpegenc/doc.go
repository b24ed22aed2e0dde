// Package jpegenc writes the kinds of JPEG that image data sets consist of and
// image/jpeg does not write: grey, 4:4:4, 4:2:2, 4:2:0, CMYK and YCCK; with
// standard or optimised Huffman tables; baseline or progressive; with restart
// intervals, Exif orientation and any other marker segments.
//
// Call [FromImage] for a [Picture], or fill one with planes of samples, and give
// it to [Encoder.Append].
//
// # Promises
//
// A picture's bytes depend on the picture and the [Options] only. They are the
// bytes that libjpeg writes for the same samples with its integer transform
// ("islow"), its quality scale and, for progressive files, its default script
// (jpeg_simple_progression); a test holds this against Pillow. One thing is left
// to the encoder: what subsampled planes hold over the picture's edge, up to the
// next whole block. We repeat their last sample.
//
// The sources: ITU-T T.81 for the format, its annex K for the standard tables and
// for optimal code lengths, annex G for the progressive mode; Loeffler, Ligtenberg
// and Moschytz 1989, "Practical fast 1-D DCT algorithms with 11 multiplications",
// for the transform.
//
// # Stages
//
//	samples → coefficients   transform.go   forward DCT and quantisation
//	coefficients → tokens    scan.go        symbols and extra bits of a scan
//	tokens → tables          huffman.go     standard, or made for this scan
//	tokens → bytes           bits.go        codes, byte stuffing, restart markers
package jpegenc
