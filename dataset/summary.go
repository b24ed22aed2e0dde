package dataset

import (
	"cmp"
	"context"
	"math"
	"slices"

	"shardify/index"
	"shardify/index/seek"
)

// Summary is what is worth knowing of a data set, or of one split. It can be written
// as JSON.
type Summary struct {
	// Name, Tool, Container and Compression are the manifest's.
	Name        string `json:"name"`
	Tool        string `json:"tool"`
	Container   string `json:"container"`
	Compression string `json:"compression,omitempty"`
	// Shards, Samples, Bytes (of the shards' files) and RawBytes (of the containers
	// before compression) are sums over Splits; IndexBytes that of the indexes.
	Shards     int64 `json:"shards"`
	Samples    int64 `json:"samples"`
	Bytes      int64 `json:"bytes"`
	RawBytes   int64 `json:"raw_bytes"`
	IndexBytes int64 `json:"index_bytes"`
	// Seek sums up the side files of seek points; null where no shard has one.
	Seek   *SeekSummary   `json:"seek,omitempty"`
	Splits []SplitSummary `json:"splits"`
	// Fields are summed over the shards.
	Fields []index.FieldStat `json:"fields"`
	// Classes is the number of classes, whether they have samples or not.
	Classes int64 `json:"classes"`
	// Options are those of the manifest.
	Options any `json:"options,omitempty"`
	// Contents is what the indexes say; null if they were not read.
	Contents *Contents `json:"contents,omitempty"`
}

// SeekSummary sums up side files of seek points.
type SeekSummary struct {
	// Shards have side files, of so many Bytes together, with the points of Samples.
	Shards  int64 `json:"shards"`
	Bytes   int64 `json:"bytes"`
	Samples int64 `json:"samples"`
	// Spacing is "row" or a number of MCUs, as seek.Spacing says; of several, the first
	// shard's.
	Spacing string `json:"spacing"`
}

// SplitSummary sums up a split.
type SplitSummary struct {
	Name    string `json:"name"`
	Shards  int64  `json:"shards"`
	Samples int64  `json:"samples"`
	Bytes   int64  `json:"bytes"`
	// Smallest and Largest are the sizes of the shards' files.
	Smallest int64 `json:"smallest_shard"`
	Largest  int64 `json:"largest_shard"`
}

// Contents sums up the rows of the indexes.
type Contents struct {
	// Unlabelled counts the samples without a label.
	Unlabelled int64 `json:"unlabelled"`
	// Labels has the number of samples of each class that has any, or has a name,
	// by class number.
	Labels []LabelCount `json:"labels,omitempty"`
	// Images counts the samples whose image is known, Formats those of each format,
	// Rotated those whose orientation is not 1.
	Images  int64       `json:"images"`
	Formats []NameCount `json:"formats,omitempty"`
	Rotated int64       `json:"rotated"`
	// SampleBytes are the sizes of the samples' fields together, Width and Height
	// (pixels, as stored) and Pixels (width times height) those of the images.
	SampleBytes Histogram `json:"sample_bytes"`
	Width       Histogram `json:"width"`
	Height      Histogram `json:"height"`
	Pixels      Histogram `json:"pixels"`
}

// LabelCount is the number of samples of a class.
type LabelCount struct {
	Label   int64  `json:"label"`
	Name    string `json:"name,omitempty"`
	Samples int64  `json:"samples"`
}

// NameCount is the number of samples with a name of something.
type NameCount struct {
	Name    string `json:"name"`
	Samples int64  `json:"samples"`
}

// Histogram counts values in buckets that grow by an eighth of an octave, so that
// its quantiles are right to within 4.5%. The zero value is empty.
type Histogram struct {
	Count int64 `json:"count"`
	Min   int64 `json:"min"`
	Max   int64 `json:"max"`
	Sum   int64 `json:"sum"`
	// Buckets are those that are not empty, by their lower bounds.
	Buckets []Bucket `json:"buckets,omitempty"`

	counts []int64
}

// Bucket counts the values v with From <= v < To.
type Bucket struct {
	From  int64 `json:"from"`
	To    int64 `json:"to"`
	Count int64 `json:"count"`
}

const perOctave = 8

// bucketFrom returns the lower bound of bucket i: bucket 0 holds 0.
func bucketFrom(i int) int64 {
	if i == 0 {
		return 0
	}
	if i > 62*perOctave {
		return math.MaxInt64
	}
	return int64(math.Ceil(math.Exp2(float64(i-1) / perOctave)))
}

// bucketOf returns the bucket of a value.
func bucketOf(v int64) int {
	if v <= 0 {
		return 0
	}
	i := 1 + int(math.Log2(float64(v))*perOctave)
	// The logarithm is rounded; the bounds are the truth.
	for i > 1 && v < bucketFrom(i) {
		i--
	}
	for v >= bucketFrom(i+1) && bucketFrom(i+1) != math.MaxInt64 {
		i++
	}
	return i
}

// Add counts a value, which is not negative.
func (h *Histogram) Add(v int64) {
	i := bucketOf(v)
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	if h.Count == 0 || v < h.Min {
		h.Min = v
	}
	h.Max = max(h.Max, v)
	h.Sum += v
	h.Count++
}

// Finish fills Buckets from what was added; Quantile and Rows look at them.
func (h *Histogram) Finish() {
	h.Buckets = nil
	for i, n := range h.counts {
		if n > 0 {
			h.Buckets = append(h.Buckets, Bucket{bucketFrom(i), bucketFrom(i + 1), n})
		}
	}
}

// Rows sums up the buckets, step of them at a time, in rows without gaps between
// the first and the last: 8 make rows that double.
func (h *Histogram) Rows(step int) []Bucket {
	if len(h.Buckets) == 0 {
		return nil
	}
	row := func(b Bucket) int {
		if i := bucketOf(b.From); i > 0 {
			return (i - 1) / step
		}
		return -1
	}
	from := func(row int) int64 {
		if row < 0 {
			return 0
		}
		return bucketFrom(1 + row*step)
	}
	first, last := row(h.Buckets[0]), row(h.Buckets[len(h.Buckets)-1])
	rows := make([]Bucket, last-first+1)
	for i := range rows {
		rows[i].From, rows[i].To = from(first+i), from(first+i+1)
	}
	for _, b := range h.Buckets {
		rows[row(b)-first].Count += b.Count
	}
	// Between small numbers there may be no room for a row.
	return slices.DeleteFunc(rows, func(b Bucket) bool { return b.From == b.To })
}

// Mean returns the average; 0 of nothing.
func (h *Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return float64(h.Sum) / float64(h.Count)
}

// Quantile returns the value that a share q of the values, 0 to 1, is not above: to
// within the width of a bucket.
func (h *Histogram) Quantile(q float64) int64 {
	left := int64(math.Ceil(q * float64(h.Count)))
	if left <= 0 {
		return h.Min
	}
	for _, b := range h.Buckets {
		if left -= b.Count; left <= 0 {
			return min(max((b.From+b.To-1)/2, h.Min), h.Max)
		}
	}
	return h.Max
}

// Summarize sums up a data set, or one split of it: what the manifest says in
// O(shards), and with contents also what the indexes say, in O(samples) with memory
// for the indexes of a few shards.
func Summarize(ctx context.Context, d *Dataset, split string, contents bool) (*Summary, error) {
	shards, err := d.Shards(split)
	if err != nil {
		return nil, err
	}
	m := d.manifest
	s := &Summary{Name: m.Name, Tool: m.Tool, Container: m.Container, Compression: m.Compression,
		Classes: int64(len(m.Classes)), Splits: []SplitSummary{}}
	if m.Options != nil {
		s.Options = m.Options
	}
	for i := range m.Splits {
		sp := &m.Splits[i]
		if split != "" && sp.Name != split {
			continue
		}
		sum := SplitSummary{Name: sp.Name, Shards: int64(len(sp.Shards)), Samples: sp.Samples, Bytes: sp.Bytes}
		for j := range sp.Shards {
			if n := sp.Shards[j].Bytes; j == 0 || n < sum.Smallest {
				sum.Smallest = n
			}
			sum.Largest = max(sum.Largest, sp.Shards[j].Bytes)
		}
		s.Splits = append(s.Splits, sum)
		s.Shards += sum.Shards
		s.Samples += sum.Samples
		s.Bytes += sum.Bytes
	}
	var fields FieldStats
	for _, sh := range shards {
		s.RawBytes += RawBytes(sh)
		s.IndexBytes += sh.Index.Bytes
		if p := sh.Seek; p != nil {
			if s.Seek == nil {
				s.Seek = &SeekSummary{Spacing: seek.Spacing(p.Every)}
			}
			s.Seek.Shards++
			s.Seek.Bytes += p.Bytes
			s.Seek.Samples += p.Samples
		}
		fields.Merge(sh.Fields)
	}
	s.Fields = fields.List()
	if !contents {
		return s, nil
	}
	s.Contents = new(Contents)
	labels := map[int64]*LabelCount{}
	for i, name := range m.Classes {
		labels[int64(i)] = &LabelCount{Label: int64(i), Name: name}
	}
	formats := map[string]int64{}
	for t, err := range readTables(ctx, d, split, 0, d.Rows) {
		if err != nil {
			return nil, err
		}
		for i := range t.rows {
			s.Contents.add(&t.rows[i], labels, formats)
		}
	}
	c := s.Contents
	for _, l := range labels {
		c.Labels = append(c.Labels, *l)
	}
	slices.SortFunc(c.Labels, func(a, b LabelCount) int { return cmp.Compare(a.Label, b.Label) })
	for name, n := range formats {
		c.Formats = append(c.Formats, NameCount{name, n})
	}
	slices.SortFunc(c.Formats, func(a, b NameCount) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Name, b.Name))
	})
	for _, h := range []*Histogram{&c.SampleBytes, &c.Width, &c.Height, &c.Pixels} {
		h.Finish()
	}
	return s, nil
}

func (c *Contents) add(row *index.Row, labels map[int64]*LabelCount, formats map[string]int64) {
	if row.Label == nil {
		c.Unlabelled++
	} else {
		l := labels[*row.Label]
		if l == nil {
			l = &LabelCount{Label: *row.Label, Name: row.LabelName}
			labels[*row.Label] = l
		}
		l.Samples++
	}
	size := int64(0)
	for i := range row.Fields {
		size += row.Fields[i].Size
	}
	c.SampleBytes.Add(size)
	if row.Format == "" {
		return
	}
	c.Images++
	formats[row.Format]++
	if row.Orientation > 1 {
		c.Rotated++
	}
	w, h := max(int64(row.Width), 0), max(int64(row.Height), 0)
	c.Width.Add(w)
	c.Height.Add(h)
	c.Pixels.Add(w * h)
}
