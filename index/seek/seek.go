// Package seek has the form of the side files of seek points: for each sample of a
// shard the state with which its JPEG can be entered inside (see package
// imaging/jpeg, whose form the points themselves have), found by the sample's number
// with one ranged read. [Writer] makes such a file, of what [Append] says of each sample,
// [ParseTail] reads its table and [ParseEntry] what it has of a sample. The package does no
// I/O of its own.
//
// With the points of a JPEG lie the checksums of its parts, so that whoever reads only
// what a crop needs can check that, too: the index has the checksum of the whole alone.
//
// A side file is an aid, and no part of the data: whoever finds it missing, damaged or
// of other bytes goes on without it. Nothing that it holds may be believed before it is
// held against checksums: the table against its own and the shard's, an entry against its
// own and that of the JPEG's bytes. That is what the two functions do.
//
// # Format
//
// All numbers are little-endian. There are n samples, as in the shard's index.
//
//	offset      bytes
//	0           8         "seekpts\n"
//	8                     the entries, in the order of the samples
//	t           8 × n     the table: where the entry of each sample begins,
//	                      the first at 8
//	t + 8n      8         where the last entry ends, which is t
//	t + 8n + 8  56        the footer
//
// The entry of a sample whose image has no seek points is empty. Others are
//
//	0           4         CRC-32C of the JPEG's bytes, as in the index
//	4           1         p: parts have 2^p bytes, the last one perhaps less;
//	                      0: there are none
//	5           4 × k     CRC-32C of each part of the JPEG
//	5 + 4k      m         the points, as imaging/jpeg's Seek.Append writes them
//	5 + 4k + m  4         CRC-32C of the bytes before
//
// with p as [PartSize] says for the size of the JPEG,
// and the footer is
//
//	0           8         n
//	8           8         size of the shard's file
//	16          8         CRC-64/NVME of its bytes, as in the manifest
//	24          8         how many entries are not empty
//	32          4         MCUs between the points of a row; 0: each row has one
//	36          4         version: 2
//	40          4         CRC-32C of the table and the 8 bytes behind it
//	44          4         CRC-32C of the 44 bytes of the footer before
//	48          8         "seekpts\n"
//
// Since the table and the footer have a size that the number of samples tells, they are
// found from the end of the file without looking.
package seek

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"math/bits"
	"strconv"

	"shardify/index"
)

const (
	magic      = "seekpts\n"
	version    = 2
	footerSize = 56
	// overhead is what an entry has at least besides its points.
	overhead = 9
	// MaxEvery bounds the MCUs between points: no JPEG is wider.
	MaxEvery = 1<<16 - 1
)

// HeadSize is how much of a file IsHead wants.
const HeadSize = len(magic)

// IsHead says whether a file that begins so is one of seek points.
func IsHead(b []byte) bool { return len(b) >= HeadSize && string(b[:HeadSize]) == magic }

// ErrStale: the seek points are those of other bytes.
var ErrStale = errors.New("seek points of other bytes")

// ParseSpacing reads how far apart points are to be: "row" is the beginning of each row
// of MCUs, which it returns as 0, and a number so many MCUs further on as well.
func ParseSpacing(text string) (every int, err error) {
	if text == "row" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxEvery {
		return 0, fmt.Errorf("seek points %q: want row, or a number of MCUs from 1 to %d", text, MaxEvery)
	}
	return n, nil
}

// Spacing is the text that ParseSpacing reads.
func Spacing(every int) string {
	if every == 0 {
		return "row"
	}
	return strconv.Itoa(every)
}

// Writer writes a side file as the samples come, holding 8 bytes a sample. It is not for
// concurrent use.
type Writer struct {
	w     io.Writer
	every int
	hash  hash.Hash64
	table []byte // the offsets of the entries
	at    int64
	with  int64
	entry []byte
}

// NewWriter starts a side file on w, of points every so many MCUs; 0 for each row only.
func NewWriter(w io.Writer, every int) *Writer {
	return &Writer{w: w, every: every, hash: index.NewHash()}
}

// With is how many samples had points so far.
func (w *Writer) With() int64 { return w.with }

// PartSize is how large the parts are whose checksums lie with the points of a JPEG of so
// many bytes: there are 16 to 32 of them, of 4 KiB at least. It is 0, and there are none,
// where the JPEG is so small that it is not worth while to read less than all.
func PartSize(size int64) int64 {
	if size < minParted {
		return 0
	}
	return max(minPart, int64(1)<<bits.Len64(uint64(size-1)/32))
}

const (
	minPart   = 4 << 10
	minParted = 32 << 10
)

// Append appends to b what the entry of a sample has about its JPEG, file, besides that
// one's own checksum: points as imaging/jpeg's Seek.Append writes them.
func Append(b, file, points []byte) []byte {
	part := PartSize(int64(len(file)))
	if part == 0 {
		return append(append(b, 0), points...)
	}
	b = append(b, byte(bits.TrailingZeros64(uint64(part))))
	for at := 0; at < len(file); at += int(part) {
		b = binary.LittleEndian.AppendUint32(b, index.FieldChecksum(file[at:min(at+int(part), len(file))]))
	}
	return append(b, points...)
}

// Add writes the entry of the next sample, of what Append says: crc is the CRC-32C of its
// JPEG's bytes. Where what is empty, the sample has no points. Neither is kept.
func (w *Writer) Add(crc uint32, what []byte) error {
	if w.at == 0 {
		if err := w.put([]byte(magic)); err != nil {
			return err
		}
	}
	w.table = binary.LittleEndian.AppendUint64(w.table, uint64(w.at))
	if len(what) == 0 {
		return nil
	}
	w.with++
	b := binary.LittleEndian.AppendUint32(w.entry[:0], crc)
	b = append(b, what...)
	w.entry = binary.LittleEndian.AppendUint32(b, index.FieldChecksum(b))
	return w.put(w.entry)
}

func (w *Writer) put(b []byte) error {
	w.hash.Write(b)
	w.at += int64(len(b))
	_, err := w.w.Write(b)
	return err
}

// Close ends the file, which is that of a shard, and returns what the manifest says of
// it, but for its name. It does not close the underlying writer.
func (w *Writer) Close(shard *index.File) (index.Seek, error) {
	if err := shard.Checksum.Validate(); err != nil {
		return index.Seek{}, err
	}
	if w.at == 0 {
		if err := w.put([]byte(magic)); err != nil {
			return index.Seek{}, err
		}
	}
	samples := len(w.table) / 8
	le := binary.LittleEndian
	w.table = le.AppendUint64(w.table, uint64(w.at))
	b := le.AppendUint64(w.entry[:0], uint64(samples))
	b = le.AppendUint64(b, uint64(shard.Bytes))
	b = le.AppendUint64(b, shard.Checksum.Sum64())
	b = le.AppendUint64(b, uint64(w.with))
	b = le.AppendUint32(b, uint32(w.every))
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, index.FieldChecksum(w.table))
	b = le.AppendUint32(b, index.FieldChecksum(b))
	b = append(b, magic...)
	for _, part := range [][]byte{w.table, b} {
		if err := w.put(part); err != nil {
			return index.Seek{}, err
		}
	}
	return index.Seek{
		File:  index.File{Bytes: w.at, Checksum: index.NewChecksum(w.hash.Sum64())},
		Every: w.every, Samples: w.with,
	}, nil
}

// TailBytes is how many bytes at the end of a side file ParseTail wants, of one for so
// many samples.
func TailBytes(samples int64) int64 { return 8*samples + 8 + footerSize }

// Table says where the entries of a side file lie.
type Table struct {
	// Every is as in NewWriter, and With how many samples have points.
	Every int
	With  int64
	// Offsets are those of the samples' entries, and where the last one ends.
	Offsets []int64
}

// Extent is where the entry of a sample lies; size 0 says that it has none.
func (t *Table) Extent(sample int) (offset, size int64) {
	return t.Offsets[sample], t.Offsets[sample+1] - t.Offsets[sample]
}

// ParseTail reads the table out of the last TailBytes of a side file of size bytes, which
// is to be that of a shard with so many samples. Errors wrap index.ErrInvalid,
// index.ErrVersion, or ErrStale where the file is that of another shard.
func ParseTail(tail []byte, size int64, shard *index.File, samples int64) (*Table, error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("seek points %w: "+format, append([]any{index.ErrInvalid}, args...)...)
	}
	if samples < 0 || samples > index.MaxIndexRows {
		return nil, invalid("%d samples", samples)
	}
	n := TailBytes(samples)
	if int64(len(tail)) != n || size < n+int64(len(magic)) {
		return nil, invalid("%d bytes for %d samples, %d of them at its end", size, samples, len(tail))
	}
	le := binary.LittleEndian
	table, b := tail[:n-footerSize], tail[n-footerSize:]
	switch {
	case string(b[48:]) != magic:
		return nil, invalid("it does not end as such a file does")
	case le.Uint32(b[44:]) != index.FieldChecksum(b[:44]):
		return nil, invalid("the checksum of its footer is wrong")
	case le.Uint32(b[36:]) > version:
		return nil, fmt.Errorf("seek points: %w: version %d, this one reads up to %d", index.ErrVersion, le.Uint32(b[36:]), version)
	case le.Uint32(b[36:]) != version || le.Uint32(b[32:]) > MaxEvery:
		return nil, invalid("version %d, spacing %d; `shardify index --jpeg-seek` makes them anew", le.Uint32(b[36:]), le.Uint32(b[32:]))
	}
	if got := int64(le.Uint64(b)); got != samples {
		return nil, fmt.Errorf("%w: of a shard with %d samples, and this one has %d", ErrStale, got, samples)
	}
	if sum := index.NewChecksum(le.Uint64(b[16:])); int64(le.Uint64(b[8:])) != shard.Bytes || sum != shard.Checksum {
		return nil, fmt.Errorf("%w: of a shard of %d bytes with %s, and this one has %d with %s", ErrStale, le.Uint64(b[8:]), sum, shard.Bytes, shard.Checksum)
	}
	if le.Uint32(b[40:]) != index.FieldChecksum(table) {
		return nil, invalid("the checksum of its table is wrong")
	}
	t := &Table{Every: int(le.Uint32(b[32:])), With: int64(le.Uint64(b[24:])), Offsets: make([]int64, samples+1)}
	end, with := int64(len(magic)), int64(0)
	for i := range t.Offsets {
		at := le.Uint64(table[8*i:])
		if at > math.MaxInt64 || int64(at) < end || i == 0 && int64(at) != end {
			return nil, invalid("entry %d at %d, after one at %d", i, at, end)
		}
		if gap := int64(at) - end; gap > 0 {
			if gap <= overhead {
				return nil, invalid("entry %d has %d bytes", i-1, gap)
			}
			with++
		}
		end = int64(at)
		t.Offsets[i] = end
	}
	if end != size-n || with != t.With {
		return nil, invalid("%d entries that end at %d, where %d should end at %d", with, end, t.With, size-n)
	}
	return t, nil
}

// Entry is what a side file has of a sample.
type Entry struct {
	// Points are the JPEG's seek points, for imaging/jpeg.
	Points []byte
	// Part is the size of the parts that have checksums; 0 if there are none.
	Part int64
	size int64
	sums []byte
}

// ParseEntry reads an entry, which lies in b and stays there, for a JPEG of size bytes with
// the checksum crc. Errors wrap index.ErrInvalid where the entry is damaged, and ErrStale
// where it is about other bytes.
func ParseEntry(b []byte, crc uint32, size int64) (Entry, error) {
	if len(b) <= overhead {
		return Entry{}, fmt.Errorf("seek points %w: %d bytes", index.ErrInvalid, len(b))
	}
	le := binary.LittleEndian
	end := len(b) - 4
	if le.Uint32(b[end:]) != index.FieldChecksum(b[:end]) {
		return Entry{}, fmt.Errorf("seek points %w: their checksum is wrong", index.ErrInvalid)
	}
	if of := le.Uint32(b); of != crc {
		return Entry{}, fmt.Errorf("%w: of a JPEG with CRC-32C %08x, and this one has %08x", ErrStale, of, crc)
	}
	e := Entry{Part: PartSize(size), size: size}
	parts := int64(0)
	if e.Part > 0 {
		parts = (size + e.Part - 1) / e.Part
	}
	if p := b[4]; p >= 63 || p == 0 && e.Part != 0 || p > 0 && 1<<p != e.Part || 5+4*parts >= int64(end) {
		return Entry{}, fmt.Errorf("seek points %w: their %d bytes and parts of 2^%d are not of a JPEG of %d bytes", index.ErrInvalid, len(b), p, size)
	}
	e.sums, e.Points = b[5:5+4*parts], b[5+4*parts:end]
	return e, nil
}

// Parts returns which bytes, [from, to), of the JPEG have those between from and to and
// can be checked.
func (e *Entry) Parts(from, to int64) (int64, int64) {
	return from / e.Part * e.Part, min((to+e.Part-1)/e.Part*e.Part, e.size)
}

// Check compares bytes of the JPEG, which begin at from and end with a part or the file,
// with the checksums of their parts. They are of other bytes, or damaged, where it is false.
func (e *Entry) Check(data []byte, from int64) bool {
	if e.Part == 0 || from < 0 || from%e.Part != 0 || int64(len(data)) > e.size-from ||
		int64(len(data))%e.Part != 0 && from+int64(len(data)) != e.size {
		return false
	}
	for i := 4 * (from / e.Part); len(data) > 0; i += 4 {
		n := min(int64(len(data)), e.Part)
		if binary.LittleEndian.Uint32(e.sums[i:]) != index.FieldChecksum(data[:n]) {
			return false
		}
		data = data[n:]
	}
	return true
}
