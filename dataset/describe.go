package dataset

import (
	"slices"
	"strings"

	"shardify/index"
	"shardify/sample"
	"shardify/shard"
)

// Describe returns the index row of a sample: where it lies, what its image is, and
// the size and CRC-32C of each field. It is the one place that fills an index row,
// so that packing samples and indexing shards that are already there give the same
// rows for the same bytes.
//
// at is what shard.Writer.Write or Container.Scan says of s. facts are those that
// Write was given; Facts finds them for a sample that was read from a shard.
// orientation is the image's EXIF orientation, 1 to 8, and 0 where there is no
// image or it was not looked at. paths are the original paths of the fields,
// escaped as by sample.Escape, in the order of s.Fields, "" for a field without
// one; nil means that none has one.
//
// Nothing of s and at is kept: the strings of the row are those of s, the rest is
// copied. Two allocations.
func Describe(s *sample.Sample, at shard.Placement, facts *shard.Facts, orientation int, paths []string) index.Row {
	row := index.Row{Key: s.Key, Offset: at.Offset, Size: at.Size}
	if facts.Label >= 0 {
		label := facts.Label
		row.Label = &label
	}
	row.LabelName = facts.LabelName
	if facts.Image >= 0 && facts.Format != "" {
		row.Format = facts.Format
		row.Width, row.Height = int32(facts.Width), int32(facts.Height)
		row.Channels = int32(facts.Channels)
		row.Orientation = int32(orientation)
	}
	row.Fields = make([]index.FieldRow, len(s.Fields))
	for i := range s.Fields {
		f := &row.Fields[i]
		f.Name = s.Fields[i].Name
		f.HeaderOffset, f.Offset, f.Size = at.Fields[i].HeaderOffset, at.Fields[i].Offset, at.Fields[i].Size
		f.CRC32C = index.FieldChecksum(s.Fields[i].Data)
		if paths != nil {
			f.Path = paths[i]
		}
	}
	return row
}

// FieldStats sums up the fields of a shard for the manifest. The zero value is
// empty and ready.
type FieldStats struct {
	fields []index.FieldStat
}

// Add counts a row's fields.
func (t *FieldStats) Add(row *index.Row) {
	for i := range row.Fields {
		t.add(row.Fields[i].Name, 1, row.Fields[i].Size)
	}
}

// Merge adds the sums of another shard.
func (t *FieldStats) Merge(stats []index.FieldStat) {
	for _, s := range stats {
		t.add(s.Name, s.Count, s.Bytes)
	}
}

func (t *FieldStats) add(name string, count, bytes int64) {
	// Samples have few fields: a search is cheaper than a hash.
	at, found := slices.BinarySearchFunc(t.fields, name, func(s index.FieldStat, name string) int {
		return strings.Compare(s.Name, name)
	})
	if !found {
		t.fields = slices.Insert(t.fields, at, index.FieldStat{Name: name})
	}
	t.fields[at].Count += count
	t.fields[at].Bytes += bytes
}

// List returns the sums, sorted by name; it never is nil.
func (t *FieldStats) List() []index.FieldStat {
	if t.fields == nil {
		return []index.FieldStat{}
	}
	return slices.Clone(t.fields)
}
