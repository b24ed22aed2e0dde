package jpeg

import (
	"shardify/imaging/jpeg/internal/entropy"
)

// Seek has a file's seek points: the state that is needed to begin decoding at an
// MCU, at the beginning of every row of MCUs and, if so made, within the rows. With
// it a region is entered where it begins, and one file fills all lanes. It may be
// used from several goroutines.
//
// Points belong to a file's bytes. Store them with a checksum of these, and check it
// before they are used: points of other bytes give wrong pixels, of which only some
// are noticed (the file is then decoded without them).
type Seek struct{ points entropy.Seek }

// MakeSeek decodes a file to find its seek points: of every row of MCUs the first,
// and where every is not 0, further ones every so many MCUs. On photographs of
// ImageNet, rows take about 260 bytes a file, and points every 8 MCUs 1900; of
// files of one component MCUs are blocks.
//
// A file that has several scans, as progressive ones do, has none: the error is an
// *UnsupportedError. Nor has one with any damage. Of many files, find them with
// [Job.Find], several at a time: that takes little more than half the time.
func (d *Decoder) MakeSeek(data []byte, every int) (*Seek, error) {
	s := new(Seek)
	d.one[0] = Job{Data: data, Find: s, FindEvery: every}
	d.DecodeAll(d.one[:])
	err := d.one[0].Err
	if d.one[0] = (Job{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Append appends the points to b in the form that ParseSeek reads.
func (s *Seek) Append(b []byte) []byte { return s.points.Append(b) }

// ParseSeek reads the seek points of the file data from b into s, in whose memory
// there may be other ones before. An error says that b is damaged, or that the
// points are those of another file; that they are the file's is not checked
// further.
func (d *Decoder) ParseSeek(s *Seek, b, data []byte) error {
	e := &d.first().entropy
	if err := e.ReadHeader(data); err != nil {
		return err
	}
	return s.points.Parse(b, e, len(data))
}

// Extent tells from stored seek points, without the file, which of its size bytes are
// needed to decode its rows of pixels [y0, y1), as they are stored, and somewhat more: the
// header, which is the first head bytes, and those from from to to. A [Job] takes them, or
// more, with a [Gap].
func Extent(points []byte, size, y0, y1 int) (head, from, to int, err error) {
	return entropy.Extent(points, size, y0, y1)
}

func (d *Decoder) first() *slot {
	if d.slot[0] == nil {
		d.slot[0] = new(slot)
	}
	return d.slot[0]
}
