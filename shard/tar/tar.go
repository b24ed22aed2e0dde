// Package tar is the container of WebDataset: a tar file in which the members
// KEY.FIELD that follow one another under one KEY are a sample. [Container] writes
// it, reads it, and reads the tar files of others.
//
// # What is written
//
// Plain ustar (POSIX.1-1988), so that every program that knows tar reads it. A
// member is a header of 512 bytes and the field's bytes, filled up with zeros to a
// multiple of 512:
//
//	  0 name      the part of KEY.FIELD behind the prefix, at most 100 bytes
//	100 mode      0000444
//	108 uid, gid  0000000, 0000000
//	124 size      11 octal digits
//	136 mtime     00000000000
//	148 checksum  6 octal digits, NUL, space
//	156 type      '0'
//	257 magic     "ustar" NUL "00"; owner and group are empty
//	329 device    0000000, 0000000
//	345 prefix    the part of KEY.FIELD before a slash, at most 155 bytes
//
// Times, owners and modes are the same everywhere, so that the same samples give
// the same bytes. A name that does not fit, or a size of 8 GiB and more, goes into
// a PAX header before the member (two blocks, or more for long names); nothing
// else does. Names that are not ASCII stay in the ustar header as UTF-8: GNU tar,
// libarchive, Python's tarfile and DALI take names as bytes, and a PAX header for
// each would cost 1,024 bytes a member. (DALI 2.4 finds what stands behind a PAX
// header only with an index from its wds2idx; GNU's long names, which it finds
// without one, it reads wrongly with one.)
//
// The archive ends with two zero blocks and nothing more. Padding to 10,240 bytes,
// as tar does for the sake of tape drives, is asked for by no reader.
//
// # What is read
//
// Besides our own: V7, ustar, PAX (x and g headers), GNU (L and K headers, sizes in
// base 256) and star archives. Links, folders and devices are skipped, and names to
// which WebDataset's rule ([sample.Split]) gives no key; neither ends a run of
// members with one key. Sparse files and parts of multi-volume archives are an
// [*shard.UnsupportedError].
//
// A field that comes twice in a run is an error, as it is for webdataset. Other odd
// names are none: one of them in a stranger's archive of millions must not make the
// rest unreadable. A key is yielded as it is written, "./a", "../a" and "/a" among
// them, in whatever bytes, exactly as webdataset yields it. Who makes a path of it
// must look at it first ([sample.CheckKey]).
//
// The archive ends with the first zero block, as for GNU tar, or where the file ends
// between two members; anything behind a zero block is read (so that checksums of a
// compression round it are verified) and ignored. Where the file ends within a
// member, its padding included, that is [shard.ErrTruncated].
package tar

import (
	"io"
	"iter"
	"math"
	"unicode/utf8"

	"shardify/sample"
	"shardify/shard"
	"shardify/shard/internal/stream"
)

// Container is the tar format; see shard.Container.
type Container struct{}

var _ shard.Container = Container{}

// Name returns "tar".
func (Container) Name() string { return "tar" }

// Extension returns ".tar".
func (Container) Extension() string { return ".tar" }

// Size returns how many bytes Writer.Write adds for a sample, exactly.
func (Container) Size(key string, fields []shard.FieldSize) int64 {
	var n int64
	for i := range fields {
		n += memberSize(key, fields[i].Name, fields[i].Size)
	}
	return n
}

// NewWriter starts an archive on w. The writer gathers small members in a buffer
// of 1 MiB; fields from 256 KiB on pass it by.
func (Container) NewWriter(w io.Writer) shard.Writer { return newWriter(w) }

// Scan yields the samples of the archive in r. See shard.Container.
func (Container) Scan(r io.Reader, limit int64) iter.Seq2[*shard.Located, error] {
	return func(yield func(*shard.Located, error) bool) {
		s := scanner{limit: limit, in: stream.NewWindow(r), out: newLocated(), intern: make(map[string]string)}
		s.scan(yield)
	}
}

// Load yields the samples of the archive in r. See shard.Container.
func (Container) Load(r io.Reader, room shard.Room) iter.Seq2[*shard.Located, error] {
	return func(yield func(*shard.Located, error) bool) {
		s := scanner{limit: math.MaxInt64, in: stream.NewSmallWindow(r), out: newLocated(), intern: make(map[string]string), room: room}
		s.scan(yield)
	}
}

// Parse parses the members of one sample from frame, which begins at offset. See
// shard.Container.
func (Container) Parse(frame []byte, offset int64) (*shard.Located, error) {
	return parse(frame, offset)
}

const (
	blockSize  = 512
	nameSize   = 100
	prefixSize = 155
	// ustarSize is the first size that has no room in a ustar header.
	ustarSize = 1 << 33
	// maxSpecial bounds the extended headers that are read, as archive/tar does.
	maxSpecial = 1 << 20
)

// padded returns n rounded up to a multiple of the block size.
func padded(n int64) int64 { return (n + blockSize - 1) &^ (blockSize - 1) }

// memberSize is the number of bytes that a field takes, headers and padding
// included.
func memberSize(key, field string, size int64) int64 {
	n := blockSize + padded(size)
	if records := paxSize(key, field, size); records > 0 {
		n += blockSize + padded(records)
	}
	return n
}

// paxSize is the number of bytes of the PAX records that a member needs; 0 if the
// ustar header does.
func paxSize(key, field string, size int64) (n int64) {
	length := len(key) + 1 + len(field)
	_, fits := splitPoint(key, length)
	if fits && size < ustarSize {
		return 0
	}
	if needsPath(key, length) {
		n += int64(recordSize(len("path"), length))
	}
	if size >= ustarSize {
		n += int64(recordSize(len("size"), decimalDigits(size)))
	}
	return n
}

// needsPath says whether a PAX header must hold the name, of that length, because
// the header behind it cannot.
func needsPath(key string, length int) bool {
	if length > nameSize {
		return true
	}
	for i := range len(key) {
		if key[i] >= utf8.RuneSelf {
			return true
		}
	}
	return false
}

// splitPoint returns where the name key.field, of that length, is cut into prefix
// and name: at the last slash that leaves at most 155 bytes before it. 0 means that
// there is no prefix; ok is false where the name does not fit. As archive/tar does.
func splitPoint(key string, length int) (at int, ok bool) {
	if length <= nameSize {
		return 0, true
	}
	for i := min(len(key)-1, prefixSize); i > 0; i-- {
		if key[i] == '/' {
			return i, length-i-1 <= nameSize
		}
	}
	return 0, false
}

// recordSize is the size of the PAX record "SIZE KEY=VALUE\n" for a key and a value
// of these lengths. SIZE counts its own digits.
func recordSize(key, value int) int {
	n := key + value + 3 // space, '=', newline
	size := n + decimalDigits(int64(n))
	return n + decimalDigits(int64(size))
}

func decimalDigits(n int64) (digits int) {
	for digits = 1; n >= 10; digits++ {
		n /= 10
	}
	return digits
}

// nameOf names a member in errors.
func nameOf(name []byte) string { return sample.Shorten(string(name)) }
