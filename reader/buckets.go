package reader

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"

	"shardify/dataset/where"
	"shardify/imaging/transform"
	"shardify/index"
)

// Buckets puts samples that are alike in length or shape into batches of their own, so
// that padding or cropping wastes little. The zero value means none: any samples share
// a batch.
//
// It is decided by the index, in sample numbers, before anything is read; Open reads all
// indexes of the split for it, and keeps 4 bytes for each sample (more with weights, see
// Sampling), which Config.Memory does not count. Each bucket is then planned as a data set of its own is, and every
// global batch is one of a bucket: in step b all ranks have the same bucket, and the
// same number of batches. Ends is meant of each bucket. The batches of the buckets are
// mixed evenly: the j-th of a bucket's n batches comes at a random place in the j-th of
// n equal parts of the epoch (under ShuffleNone, in its middle). So all buckets go
// through the shards at the same pace, and reads stay as local as Shuffle makes them.
type Buckets struct {
	// By is the value that samples are divided by: an expression of the index's
	// columns, in the language of package dataset/where. Other than "width / height",
	// the default, there are for example "width * height" and "txt.size", the bytes
	// of a field. A sample of which the index does not know it is a fault.
	By string `json:"by,omitempty"`
	// Edges are the values at which a bucket ends and the next one begins, ascending:
	// with the edges 0.8 and 1.25, bucket 0 has values below 0.8, bucket 1 those from
	// 0.8 to below 1.25, and bucket 2 the others.
	//
	// The default, where Sizes are given and By is "width / height", are the geometric
	// means of neighbouring sizes' ratios, so that every image comes to the size that
	// is most like it.
	Edges []float64 `json:"edges,omitempty"`
	// Sizes are the heights and widths of the images in the batches of each bucket, one
	// more than Edges: Config.Transform with its sizes in proportion, as
	// transform.Options says. By default all buckets have Transform's own size. Under
	// DecodeNone they only make the edges.
	Sizes []transform.Size `json:"sizes,omitempty"`
}

const (
	defaultBy = "width / height"
	// maxBuckets keeps the numbers of buckets in a byte.
	maxBuckets = 64
	// maxBy bounds By, which is part of errors.
	maxBy = 256
	// maxPrint bounds the fingerprint of Buckets in a State.
	maxPrint = 500
)

func (b *Buckets) isZero() bool { return b.By == "" && len(b.Edges) == 0 && len(b.Sizes) == 0 }

// withDefaults fills in what is zero.
func (b Buckets) withDefaults() Buckets {
	if b.isZero() {
		return b
	}
	b.By = or(b.By, defaultBy)
	if b.By == defaultBy && len(b.Edges) == 0 && b.checkRatios() == nil {
		for i := 1; i < len(b.Sizes); i++ {
			b.Edges = append(b.Edges, edge(ratio(b.Sizes[i-1]), ratio(b.Sizes[i])))
		}
	}
	return b
}

// ratio is a size's width by its height.
func ratio(s transform.Size) float64 {
	if s[1] == 0 {
		return 1 // a square
	}
	return float64(s[1]) / float64(s[0])
}

// edge is the geometric mean of two ratios, in five digits where these keep it between
// them.
func edge(low, high float64) float64 {
	mean := math.Sqrt(low * high)
	short, err := strconv.ParseFloat(strconv.FormatFloat(mean, 'g', 5, 64), 64)
	if err != nil || short <= low || short >= high {
		return mean
	}
	return short
}

// checkRatios says why Sizes make no edges.
func (b *Buckets) checkRatios() error {
	for i, s := range b.Sizes {
		if s[0] < 1 || s[1] < 0 {
			return fmt.Errorf("sizes: %d x %d is none", s[0], s[1])
		}
		if i > 0 && ratio(b.Sizes[i-1]) >= ratio(s) {
			return fmt.Errorf("sizes: the ratio of width and height must ascend, from %.4g to %.4g it does not; or give edges", ratio(b.Sizes[i-1]), ratio(s))
		}
	}
	return nil
}

// Validate reports every fault that shows without a data set.
func (b *Buckets) Validate() error {
	if b.isZero() {
		return nil
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(b.By) > maxBy {
		fault("by: it is longer than %d bytes", maxBy)
	} else if b.By != "" {
		if _, err := where.ParseNumber(b.By, nil); err != nil {
			fault("by: %w", err)
		}
	}
	switch n := len(b.Sizes); {
	case len(b.Edges) > 0 && n > 0 && n != len(b.Edges)+1:
		fault("sizes: %d of them for %d buckets", n, len(b.Edges)+1)
	case len(b.Edges) > 0:
	case n == 1:
		fault("sizes: a single one makes no buckets; give it to the transforms")
	case n > 0 && or(b.By, defaultBy) == defaultBy:
		if err := b.checkRatios(); err != nil {
			faults = append(faults, err)
		}
	case n > 0:
		fault("edges: there are none; sizes make them only by %q", defaultBy)
	default:
		fault("edges: there are none, where one bucket ends and the next begins")
	}
	if n := len(b.Edges) + 1; n > maxBuckets {
		fault("edges: they make %d buckets, more than %d", n, maxBuckets)
	}
	for i, e := range b.Edges {
		switch {
		case math.IsNaN(e) || math.IsInf(e, 0):
			fault("edges: %v is no number", e)
		case i > 0 && !(b.Edges[i-1] < e):
			fault("edges: %v comes after %v; they must ascend", e, b.Edges[i-1])
		}
	}
	return errors.Join(faults...)
}

// of is the bucket of a value.
func (b *Buckets) of(v float64) int {
	return sort.Search(len(b.Edges), func(i int) bool { return b.Edges[i] > v })
}

// describe names a bucket for people.
func (b *Buckets) describe(k int) string {
	switch n := len(b.Edges); {
	case k == 0:
		return fmt.Sprintf("bucket 0 (%s < %v)", b.By, b.Edges[0])
	case k == n:
		return fmt.Sprintf("bucket %d (%s >= %v)", k, b.By, b.Edges[n-1])
	default:
		return fmt.Sprintf("bucket %d (%v <= %s < %v)", k, b.Edges[k-1], b.By, b.Edges[k])
	}
}

// fingerprint is what a State says of buckets: the JSON of what decides the order, or
// where that is long, the checksum of it.
func (b *Buckets) fingerprint() string {
	if b.isZero() {
		return ""
	}
	data, err := json.Marshal(Buckets{By: b.By, Edges: b.Edges}) // Sizes may be others
	if err != nil {
		panic(fmt.Sprintf("reader: buckets that were validated have no JSON: %v", err))
	}
	if len(data) > maxPrint {
		return string(index.Sum(data))
	}
	return string(data)
}

// filled says of which buckets the samples would never come.
func (b *Buckets) filled(p *Plan) error {
	var faults []error
	for k, sub := range p.buckets {
		if sub.samples > 0 && sub.Batches() == 0 {
			faults = append(faults, fmt.Errorf("buckets: %s has %d samples, less than one global batch of %d, so that none of them would ever come",
				b.describe(k), sub.samples, p.GlobalBatchSize()))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w; set ends to %q or %q, lower batch_size, take an edge away, or leave them out with where",
		errors.Join(faults...), EndsPad, EndsExact)
}

// differingPrints explains two fingerprints of what is called name.
func differingPrints(name, state, reader string) error {
	show := func(s string) string {
		if s == "" {
			return "none"
		}
		return strings.ToValidUTF8(s, "?")
	}
	return fmt.Errorf("%s: the state has %s, the reader %s", name, show(state), show(reader))
}

// newBucketPlan plans an epoch whose buckets have these samples; split has the starts of
// the shards in the split.
func newBucketPlan(buckets []*members, split []int64, order Order, epoch int) (*Plan, error) {
	p := &Plan{order: order.withDefaults(), epoch: epoch, split: split}
	for _, m := range buckets {
		p.samples += int64(len(m.rows))
	}
	for k, m := range buckets {
		sub, err := newPlan(m.starts, order, epoch, k, p.samples)
		if err != nil {
			return nil, fmt.Errorf("bucket %d: %w", k, err)
		}
		sub.members, sub.split = m, split
		p.buckets = append(p.buckets, sub)
	}
	p.turns = newTurns(p)
	return p, nil
}

// turns says which bucket's turn it is in each global batch of an epoch. Batch j of a
// bucket of n comes at the moment (j + u) / n of the epoch, with u in 0 … 1 a hash of
// bucket and j: the batches of all buckets in the order of their moments, equal ones
// by their buckets' numbers, are the epoch. How many batches come before a moment is
// known at once, so any place is found by bisection, in O(buckets · log batches).
type turns struct {
	buckets []turn
	batches int64
}

type turn struct {
	batches int64
	key     uint64
	even    bool // u is one half
}

func newTurns(p *Plan) turns {
	var t turns
	for k, sub := range p.buckets {
		n := sub.Batches()
		t.buckets = append(t.buckets, turn{
			batches: n,
			key:     hashKey(p.order.Seed, uint64(p.epoch), purposeTurns, uint64(k)),
			even:    p.order.Shuffle == ShuffleNone,
		})
		t.batches += n
	}
	return t
}

// wholeEpoch is the moment at which all batches have come.
const (
	momentBits = 62
	wholeEpoch = uint64(1) << momentBits
)

// before is how many batches of the bucket come before a moment.
func (t *turn) before(moment uint64) int64 {
	hi, lo := bits.Mul64(moment, uint64(t.batches))
	j, part := hi<<(64-momentBits)|lo>>momentBits, lo<<(64-momentBits)
	u := uint64(1) << 63
	if !t.even {
		u = mix64(t.key + j*golden)
	}
	if u < part {
		j++
	}
	return int64(j)
}

// before is how many batches come before a moment.
func (t *turns) before(moment uint64) (n int64) {
	for k := range t.buckets {
		n += t.buckets[k].before(moment)
	}
	return n
}

// at returns whose turn global batch b is, 0 ≤ b < batches, and which of that bucket's
// batches it is.
func (t *turns) at(b int64) (bucket int, batch int64) {
	// b comes at from or after, and before to.
	from, to := uint64(0), wholeEpoch
	for have, all := int64(0), t.batches; to-from > 1 && all-have > 1; {
		middle := from + (to-from)/2
		if n := t.before(middle); n <= b {
			from, have = middle, n
		} else {
			to, all = middle, n
		}
	}
	b -= t.before(from)
	for k := range t.buckets {
		first := t.buckets[k].before(from)
		if n := t.buckets[k].before(to) - first; b >= n {
			b -= n
			continue
		}
		return k, first + b
	}
	panic("reader: a batch beyond its epoch")
}

// of returns the plan of the bucket whose turn global batch b is, and the batch's number
// in it.
func (p *Plan) of(b int64) (*Plan, int64) {
	if p.buckets == nil {
		return p, b
	}
	k, batch := p.turns.at(b)
	return p.buckets[k], batch
}

// Bucket is the bucket, from 0, of whose samples batch b is on every rank.
func (p *Plan) Bucket(b int64) int {
	sub, _ := p.of(b)
	return max(0, sub.bucket)
}

// Buckets is the number of buckets: 1 without Config.Buckets.
func (p *Plan) Buckets() int { return max(1, len(p.buckets)) }

// BucketLen is how many samples and batches of an epoch a bucket has.
func (p *Plan) BucketLen(bucket int) (samples, batches int64) {
	sub := p
	if p.buckets != nil {
		sub = p.buckets[bucket]
	}
	return sub.samples, sub.Batches()
}

// spread deals rows to buckets, of each its own; which has the bucket of each row.
func spread[T any](rows []T, which []uint8, buckets int) [][]T {
	sizes := make([]int, buckets)
	for _, k := range which {
		sizes[k]++
	}
	parts := make([][]T, buckets)
	for k, n := range sizes {
		parts[k] = make([]T, 0, n)
	}
	for i, k := range which {
		parts[k] = append(parts[k], rows[i])
	}
	return parts
}

// apportion divides n among buckets: to each the whole part of its share, which is
// whole and so many 2^-32, and of what is left one to each with the largest remainders
// (A. Hamilton's method).
func apportion(n int64, whole []int64, shares []uint64) []int64 {
	parts := make([]int64, len(shares))
	order := make([]int, len(shares))
	for k := range shares {
		parts[k] = whole[k] + int64(shares[k]>>32)
		n -= parts[k]
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(uint32(shares[b]), uint32(shares[a])) })
	for i := 0; n > 0; i = (i + 1) % len(order) {
		parts[order[i]]++
		n--
	}
	return parts
}
