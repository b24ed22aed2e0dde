// Package tfrecord is the container of TensorFlow: a TFRecord file of
// tf.train.Example messages, one for each sample. [Container] writes it, reads it,
// and reads the files of others.
//
// # Frames
//
// A record is, little-endian,
//
//	u64 length
//	u32 masked CRC-32C of the 8 bytes of length
//	    data, length bytes: a tf.train.Example
//	u32 masked CRC-32C of data
//
// where masked is ((crc>>15 | crc<<17) + 0xa282ead8). Both checksums are verified
// whenever a record is read.
//
// # Fields to features
//
// The image goes where TensorFlow's ImageNet scripts put it, and the facts about it
// beside it, as far as they are known:
//
//	key                                  bytes  the sample's key
//	image/encoded                        bytes  the field that is the image
//	image/format                         bytes  "JPEG", "PNG", "WEBP", …
//	image/field                          bytes  that field's name, where the format does not tell it
//	image/height, image/width            int64
//	image/channels, image/colorspace     int64, bytes
//	image/filename                       bytes  last part of the original path
//	image/class/label                    int64  the label
//	image/class/text                     bytes  the name of the class
//	cls                                  bytes  the field cls, where it is not the label in decimal;
//	                                            no value where there is a label but no such field
//	NAME                                 bytes  the field NAME; field/image and field/key for fields
//	                                            of these two names
//
// The image is Facts.Image, or else what sample.Image takes for it. Features are
// sorted by name, lists of numbers are packed, so that the same samples give the
// same bytes, which are those of protobuf's deterministic serialisation.
//
// # Features to fields
//
// What is written comes back exactly. Records of others are read by these rules:
//
//   - The key is the feature key. Where there is none, it is "record-" and the
//     record's offset in 12 digits.
//   - image/encoded or else image (as in TensorFlow Datasets) is the image. The
//     field is called by image/field, or by image/format, or by the first bytes of
//     the image: jpg, png, webp, gif, bmp, tiff, pnm; otherwise "image".
//   - image/class/label or else label, if it is one integer, becomes the field cls,
//     unless there is a feature cls.
//   - image/format, image/field, image/height, image/width, image/channels and
//     image/colorspace only repeat what the image says and are left out; so are
//     image/filename and image/class/text where there is a key.
//   - Any other feature of one bytes value is a field, if its name is a field's name.
//   - All that remains is gathered in the field features.json: an object of lists,
//     sorted by name ({"image/object/bbox/xmin":[0.1,0.2]}). Only bytes that are no
//     UTF-8 stand apart: "image/mask/encoded" becomes the field "image.mask.encoded",
//     and where it has several values, "image.mask.encoded.0" and so on.
//   - A feature without values is no field.
//
// Two features that would become one field are a *shard.FormatError.
package tfrecord

import (
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"shardify/shard"
)

// Container is the TFRecord format; see shard.Container.
type Container struct{}

var _ shard.Container = Container{}

// Name returns "tfrecord".
func (Container) Name() string { return "tfrecord" }

// Extension returns ".tfrecord".
func (Container) Extension() string { return ".tfrecord" }

// Size returns about how many bytes Writer.Write adds for a sample: within 1% and
// 512 bytes, as long as the names of file and class together have less than 300.
func (Container) Size(key string, fields []shard.FieldSize) int64 { return estimate(key, fields) }

// NewWriter starts a file on w. The writer gathers small records in a buffer of
// 1 MiB; fields from 256 KiB on pass it by. A record has less than 2 GiB, the limit
// of protobuf.
func (Container) NewWriter(w io.Writer) shard.Writer { return newWriter(w) }

// Scan yields the samples of the records in r. See shard.Container. Of a field cls
// that is stored as a number, Offset is -1.
func (Container) Scan(r io.Reader, limit int64) iter.Seq2[*shard.Located, error] {
	return func(yield func(*shard.Located, error) bool) { scan(r, limit, yield) }
}

// Load yields the samples of the records in r. See shard.Container.
func (Container) Load(r io.Reader, room shard.Room) iter.Seq2[*shard.Located, error] {
	return func(yield func(*shard.Located, error) bool) { load(r, room, yield) }
}

// Parse parses one record, frame and all. See shard.Container.
func (Container) Parse(frame []byte, offset int64) (*shard.Located, error) {
	return parse(frame, offset)
}

const (
	headSize  = 12 // length and its checksum
	frameSize = 16 // what a record has besides its data
	// maxExample is what protobuf allows a message.
	maxExample = 1<<31 - 1
	// maxFeatures bounds the features of a record that is read, each of which
	// takes memory however small it is.
	maxFeatures = 1 << 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mask is applied to checksums so that data with checksums in it has good ones too.
func mask(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

// The features with a meaning.
const (
	keyName        = "key"
	imageName      = "image/encoded"
	formatName     = "image/format"
	fieldName      = "image/field"
	heightName     = "image/height"
	widthName      = "image/width"
	channelsName   = "image/channels"
	colorspaceName = "image/colorspace"
	filenameName   = "image/filename"
	labelName      = "image/class/label"
	textName       = "image/class/text"
	classField     = "cls"
	tfdsImage      = "image"
	tfdsLabel      = "label"
	// ownPrefix precedes fields called "image" and "key".
	ownPrefix = "field/"
	// restField is the field of the features that are no field.
	restField = "features.json"
)

func formatError(offset int64, format string, args ...any) error {
	return &shard.FormatError{Format: "tfrecord", Offset: offset, Msg: fmt.Sprintf(format, args...)}
}

func unsupported(offset int64, format string, args ...any) error {
	return &shard.UnsupportedError{Format: "tfrecord", Offset: offset, Msg: fmt.Sprintf(format, args...)}
}
