// Package shard is the contract between samples and the bytes of a container
// file: what a shard format must do, whether its container is tar, TFRecord, or
// one of those to come.
//
// The containers: shard/tar, shard/tfrecord. shard/compress puts gzip or seekable
// zstd round either. shard/formats is the table of all of them, by file ending;
// start there.
//
// # Offsets
//
// All offsets count bytes of the container before compression. In an uncompressed
// shard they are file offsets; in a .zst shard the seek table leads from them to
// the frame; in a .gz shard they can only be reached from the start.
package shard

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"shardify/sample"
)

var (
	// ErrTruncated: the shard ends too early.
	ErrTruncated = errors.New("truncated")
	// ErrChecksum: bytes and checksum differ.
	ErrChecksum = errors.New("checksum mismatch")
)

// FormatError says that bytes are not what the format allows: the data is broken,
// or is of another kind.
type FormatError struct {
	Format string // "tar", "tfrecord", "zstd"
	Offset int64  // where, in bytes of the container before compression
	Msg    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("bad %s at offset %d: %s", e.Format, e.Offset, e.Msg)
}

// UnsupportedError says that the data may be sound, but that we do not read it.
type UnsupportedError struct {
	Format string
	Offset int64
	Msg    string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("unsupported %s at offset %d: %s", e.Format, e.Offset, e.Msg)
}

// Facts are what is known of a sample besides its bytes. Formats that have room
// for them (TFRecord's image/height, image/class/text, …) write them.
type Facts struct {
	// Label is the class number; -1 if there is none.
	Label int64
	// LabelName is the class name; empty if there is none.
	LabelName string
	// Path is the original path of the image, escaped as by sample.Escape; empty
	// if it is not known.
	Path string
	// Image is the number of the field that holds the image; -1 if there is none.
	Image int
	// Format is the image's kind ("jpeg", "png", …), Colorspace "RGB", "Gray" or
	// "CMYK", Width, Height (pixels, as stored) and Channels its dimensions; zero
	// if they are not known.
	Format, Colorspace      string
	Width, Height, Channels int
}

// Placement says where a sample lies in the container: Size bytes from Offset on,
// which are all of it and nothing else.
type Placement struct {
	Offset, Size int64
	// Fields has a row for each of the sample's fields, in their order.
	Fields []FieldPlacement
}

// FieldPlacement says where a field lies.
type FieldPlacement struct {
	// HeaderOffset is where the field's frame begins: the tar header (the first of
	// them, where extended headers precede it), or the TFRecord's frame.
	HeaderOffset int64
	// Offset is where the field's bytes begin; -1 where they do not stand verbatim
	// in the container (a number in a tf.train.Example), so that the whole sample
	// must be parsed to get them.
	Offset int64
	// Size is the length of the field's bytes.
	Size int64
}

// Located is a sample read from a container, and where it lies.
type Located struct {
	sample.Sample
	Placement
}

// Writer writes samples into a container. It is not for concurrent use. The same
// samples give the same bytes.
type Writer interface {
	// Write appends a sample, whose fields must be sorted by name, each name once.
	// It has read all of s when it returns. Placement.Fields is valid until the
	// next call. A sample the container cannot hold is an error that leaves the
	// container as it was; after an error of the underlying writer nothing more
	// can be written.
	Write(s *sample.Sample, facts *Facts) (Placement, error)
	// Close ends the container with what the format wants at its end. It does not
	// close the underlying writer.
	Close() error
}

// Room gives Container.Load memory for n bytes of a sample: for its field of that name
// or, where field is empty, for all of it (a record, into which its fields then
// point, but for those whose FieldPlacement has no offset: their data is valid until
// the next iteration).
//
// What Room returns has n bytes and begins with the content of old, which it gave
// before for the same field and which is its own again. So memory grows with what is
// there, and not with what a header claims: the first bytes of a large field come
// before it asks for the rest. Room may return nil for a field: it is skipped, and has
// no Data. An error ends Load.
type Room func(field string, old []byte, n int64) ([]byte, error)

// FirstRoom is the most that Load asks of Room before it has read something.
const FirstRoom = 4 << 20

// FieldSize is a field's name and length, for Container.Size.
type FieldSize struct {
	Name string
	Size int64
}

// Container is a format of shards, before compression.
type Container interface {
	// Name is the format's name: "tar".
	Name() string
	// Extension is the file ending: ".tar".
	Extension() string
	// NewWriter starts a container on w, which gets few and large writes.
	NewWriter(w io.Writer) Writer
	// Size returns how many bytes Write will add for such a sample: the exact
	// number for tar, within 1% + 512 bytes for others. Sizes of shards are
	// planned with it.
	Size(key string, fields []FieldSize) int64
	// Scan reads a container front to back. What it yields, and the data in it, is
	// valid until the next iteration. A sample of more than limit bytes is an
	// error, and is found before memory is allocated for it. A non-nil error is
	// the last thing yielded: ErrTruncated, ErrChecksum, *FormatError or
	// *UnsupportedError, wrapped with the offset, or the error of r.
	Scan(r io.Reader, limit int64) iter.Seq2[*Located, error]
	// Load is Scan into the caller's memory, for which it asks room. It has no limit
	// of its own, and holds nothing of what it reads but 64 KiB. A field that comes
	// twice in a sample is left to the caller to find, side by side.
	Load(r io.Reader, room Room) iter.Seq2[*Located, error]
	// Parse parses one sample from frame, the Placement.Size bytes at offset.
	// The result's data points into frame where it can. Errors as for Scan.
	Parse(frame []byte, offset int64) (*Located, error)
}
