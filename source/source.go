// Package source is where samples come from before they are packed: a [Source]
// lists the files of a data set, millions of them, without holding them, and reads
// one when asked.
//
// The kinds: source/folder (ImageFolder trees, flat folders, lists of files),
// source/table (CSV, JSON Lines and Parquet tables of paths, labels and fields),
// source/tars (existing tar shards).
//
// # From files to samples
//
// A source yields an [Entry] for each file, in any order. An entry of a folder has
// only a path, and which files make one sample is decided by the rule of [Groups],
// for which all entries are first sorted by [Entry.SortKey] (package pack does
// that, outside memory). An entry of a table or of a tar shard already has its key
// and field.
package source

import (
	"context"
	"iter"
)

// Entry is one field of a sample that is to be: a file, a part of a file, or a
// value from a table.
type Entry struct {
	// Split is the split the sample belongs to ("train"); empty where the source
	// has no splits.
	Split string
	// Class is the name of the sample's class, or its number in decimal where the
	// source's Numeric says so; empty where there is none. Within a sample, the
	// entries that have a class must agree.
	Class string
	// Path is the entry's path within the source, slash-separated, its bytes as
	// they are on disk. It is kept in the index (under sample.Escape), so that
	// extract can restore the tree. An entry with an empty Path and a Class only
	// declares that the class exists.
	Path string
	// KeyPath is the part of Path that the sample's key is made of: Path without
	// the name of a split's folder. Empty means Path.
	KeyPath string
	// Key and Field are the sample's key and the field's name where the source
	// knows them; both empty where Groups is to find them.
	Key, Field string
	// Location says where the content is.
	Location
}

// Location says where an entry's bytes are.
type Location struct {
	// Name is the file that holds them, as Read wants it; empty for Inline.
	Name string
	// Source is the number of the source that reads it, for package pack, which
	// may have several; sources leave it 0.
	Source int
	// Offset and Size are the bytes' place in the file, as Read understands it: in
	// a compressed shard they count bytes before compression.
	Offset, Size int64
	// ModTime is the file's time of modification in nanoseconds since 1970, which
	// tells whether it has changed between planning and packing; 0 means unknown. Of an
	// object that has a version, as an ETag, it is a number made of that.
	ModTime int64
	// CRC32C is the checksum of the bytes, as index.FieldChecksum makes it, where
	// HasCRC32C says that the source knew it; then Read compares it.
	CRC32C    uint32
	HasCRC32C bool
	// Inline is the content itself, for values of tables.
	Inline []byte
}

// Source lists and reads the files of a data set. Its methods are safe for
// concurrent use.
type Source interface {
	// Name is what the user called it, for errors.
	Name() string
	// Entries yields every entry once, in any order; every range is a fresh pass.
	// An error that is an [*EntryError] concerns one entry only and the listing
	// goes on; any other error ends it. Entries may list folders concurrently
	// but yields from one goroutine, and leaves none behind.
	Entries(ctx context.Context) iter.Seq2[Entry, error]
	// Numeric says, after a full pass of Entries, whether classes are numbers
	// rather than names: the entries' Class is then the label itself.
	Numeric() bool
	// Read returns the content at loc, in buf if that is large enough (its old
	// content is lost). It allocates loc.Size bytes otherwise: mind what a hostile
	// source may say there. A file that is gone, or whose size or time of
	// modification is no longer as in loc, is an [*EntryError] that wraps
	// ErrChanged; what else concerns this file alone, such as a lack of permission,
	// is an [*EntryError], too. Other errors (no memory, too many open files, a
	// cancelled ctx) are none: they would be met with the next file as well.
	Read(ctx context.Context, loc Location, buf []byte) ([]byte, error)
}
