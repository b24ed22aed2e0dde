package reader

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"sync"

	"shardify/dataset"
	"shardify/dataset/where"
	"shardify/index"
	"shardify/internal/nearest"
)

// Sampling says which samples of the split an epoch has, and how often. The zero value
// means each once.
//
// It is decided by the index, in sample numbers, before anything is read, and then
// planned as any data set: with every Shuffle, over ranks and lanes, resumable, and as
// local as the Shuffle's reads are. Open reads all indexes of the split for it, and
// keeps 4 bytes for each chosen sample; where there are weights 12, and 4 for each that
// an epoch draws. Config.Memory does not count them.
type Sampling struct {
	// Where, Labels and Keys choose samples: those that fulfil the condition, in the
	// language of package dataset/where; and are of one of the classes, by names or
	// numbers; and have one of the keys. Empty ones choose all.
	Where  string   `json:"where,omitempty"`
	Labels []string `json:"labels,omitempty"`
	Keys   []string `json:"keys,omitempty"`

	// Weights says how often samples come in an epoch: 2 is twice, 0.5 in every
	// other epoch on average, 0 never. The first whose condition a sample fulfils
	// is its weight; it is 1 where there is none. KeyWeights goes before them.
	//
	// A sample of weight w comes ⌊w⌋ or ⌈w⌉ times in every epoch; for which the
	// fraction counts is drawn anew, as the systematic sampling of a random order
	// does (W. G. Madow, "On the theory of systematic sampling, II", 1949): the
	// expectation is w, and the epoch's length always the same.
	Weights    []Weight           `json:"weights,omitempty"`
	KeyWeights map[string]float64 `json:"key_weights,omitempty"`
	// Shares says, of several data sets (OpenMix), how much of an epoch each has:
	// [3, 1] is three quarters and one. It scales the weights of each data set's
	// samples. The default is by their numbers, each sample once. With it, Balanced
	// balances the classes of each data set by themselves.
	Shares []float64 `json:"shares,omitempty"`
	// Balanced scales the weights so that all classes have the same sum: each
	// comes equally often.
	Balanced bool `json:"balanced,omitempty"`
	// Samples is the length of an epoch. Other than 0, it scales all weights to that
	// sum. The default is the sum of the weights, rounded, and where Balanced or
	// Shares is set, the number of samples chosen.
	Samples int64 `json:"samples,omitempty"`
	// Distinct draws without replacement: no sample comes twice in an epoch. What
	// weights above 1 lose by that goes to the others.
	Distinct bool `json:"distinct,omitempty"`
}

// Weight gives samples a weight.
type Weight struct {
	// Where is a condition, as Sampling's; empty holds for all.
	Where  string  `json:"where,omitempty"`
	Weight float64 `json:"weight"`
}

// maxDrawn bounds the length of an epoch that is drawn: it is kept in memory.
const maxDrawn = 1 << 32

// isZero says that each sample comes once.
func (s *Sampling) isZero() bool {
	return !s.chooses() && !s.weighs()
}

func (s *Sampling) chooses() bool { return s.Where != "" || len(s.Labels) > 0 || len(s.Keys) > 0 }

func (s *Sampling) weighs() bool {
	return len(s.Weights) > 0 || len(s.KeyWeights) > 0 || s.Balanced || len(s.Shares) > 0 || s.Samples != 0
}

// Validate reports every fault that shows without a data set.
func (s *Sampling) Validate() error {
	var faults []error
	weight := func(what string, w float64) {
		if !(w >= 0 && w <= maxDrawn) {
			faults = append(faults, fmt.Errorf("%s: %v is not between 0 and %d", what, w, int64(maxDrawn)))
		}
	}
	for i, w := range s.Weights {
		weight(fmt.Sprintf("weights %d", i+1), w.Weight)
	}
	for key, w := range s.KeyWeights {
		weight(fmt.Sprintf("key_weights %q", key), w)
	}
	for i, w := range s.Shares {
		weight(fmt.Sprintf("shares %d", i+1), w)
	}
	if s.Samples < 0 || s.Samples > maxDrawn {
		faults = append(faults, fmt.Errorf("samples: %d is not between 0 and %d", s.Samples, int64(maxDrawn)))
	}
	return errors.Join(faults...)
}

// fingerprint is the sampling as a State has it: its JSON, or where that is long, the
// checksum of it.
func (s *Sampling) fingerprint() string {
	if s.isZero() {
		return ""
	}
	data, err := json.Marshal(s) // maps are sorted
	if err != nil {
		panic(fmt.Sprintf("reader: a sampling that was validated has no JSON: %v", err))
	}
	if len(data) > 200 {
		return string(index.Sum(data))
	}
	return string(data)
}

// members are the samples of an epoch, or of a bucket of it: rows of shards, those that
// come more than once side by side.
type members struct {
	rows   []uint32
	starts []int64 // the place in rows of each shard's first one; ends with their number
}

// chosen are the samples that Sampling chooses, divided by Buckets.
type chosen struct {
	seed  uint64
	split []int64 // the first sample of each shard in the split
	// strata has one for each bucket; without buckets, one.
	strata   []stratum
	bucketed bool
	weighted bool
	sum      index.Checksum

	mu    sync.Mutex
	epoch int // of last
	last  []*members
}

// bytes is the memory that the tables of samples take, with three epochs drawn from them:
// that of the reader's own plan, and one that ends while the next begins.
func (c *chosen) bytes() (n int64) {
	for i := range c.strata {
		s := &c.strata[i]
		n += 4*int64(len(s.rows)+len(s.whole)+len(s.fraction)) + 8*int64(len(s.starts))
		if c.weighted {
			n += 3 * (4*s.length + 8*int64(len(s.starts)))
		}
	}
	return n
}

// stratum are the chosen samples of a bucket. What an epoch draws of them has always the
// same length.
type stratum struct {
	members
	length int64
	frequencies
	// Of the fractions, whose sum is sum, picks count in each epoch.
	sum   uint64
	picks int64
}

// frequencies are how often each sample comes, on average; nil: once.
type frequencies struct {
	whole    []uint32
	fraction []uint32 // in 2^-32
}

// choose reads the indexes. Errors that are the configuration's own fault wrap ErrConfig.
func choose(ctx context.Context, config *Config, sets []set, split *index.Split) (*chosen, error) {
	s := &config.Sampling
	wrong := func(err error) error { return fmt.Errorf("%w: sampling: %w", ErrConfig, err) }
	if n := len(s.Shares); n > 0 && n != len(sets) {
		return nil, wrong(fmt.Errorf("shares: %d of them for %d data sets", n, len(sets)))
	}
	c := &chosen{seed: config.Seed, split: make([]int64, len(split.Shards)+1), bucketed: !config.Buckets.isZero(), weighted: s.weighs()}
	for i := range split.Shards {
		c.split[i+1] = c.split[i] + split.Shards[i].Samples
	}
	f := chooser{
		Sampling: s, buckets: &config.Buckets, all: members{starts: make([]int64, len(split.Shards)+1)},
		keys: map[string]bool{}, weighed: map[string]bool{},
	}
	for _, k := range s.Keys {
		f.keys[k] = false
	}
	var ends []int // of the sets
	for i := range sets {
		if err := f.prepare(sets[i].data); err != nil {
			return nil, err
		}
		if err := f.add(ctx, &sets[i], int64(i)); err != nil {
			return nil, err
		}
		ends = append(ends, len(f.all.rows))
	}
	if err := f.missing(split.Name); err != nil {
		return nil, wrong(err)
	}
	length := int64(len(f.all.rows))
	if length == 0 {
		return nil, wrong(fmt.Errorf("no sample of split %q is chosen", split.Name))
	}
	var often frequencies
	if s.weighs() {
		if s.Balanced {
			balance(f.weights, f.classes)
		}
		if len(s.Shares) > 0 {
			if err := share(f.weights, ends, s.Shares); err != nil {
				return nil, wrong(err)
			}
		}
		var err error
		if length, often, err = s.weigh(f.weights); err != nil {
			return nil, wrong(err)
		}
	}
	c.divide(f.all, f.which, len(config.Buckets.Edges)+1, often, length)
	c.sum = c.hash()
	return c, nil
}

// checksum is that of what was chosen; empty where all are.
func (c *chosen) checksum() index.Checksum {
	if c == nil {
		return ""
	}
	return c.sum
}

// hash makes the checksum: of little-endian numbers, those of the strata one behind the
// other.
func (c *chosen) hash() index.Checksum {
	h := index.NewHash()
	for k := range c.strata {
		s := &c.strata[k]
		// A hash takes all that is written.
		_ = binary.Write(h, binary.LittleEndian, []int64{s.length, int64(len(s.starts)), int64(len(s.whole))})
		_ = binary.Write(h, binary.LittleEndian, s.starts)
		for _, part := range [][]uint32{s.rows, s.whole, s.fraction} {
			for block := range slices.Chunk(part, 1<<16) {
				_ = binary.Write(h, binary.LittleEndian, block)
			}
		}
	}
	return index.NewChecksum(h.Sum64())
}

// divide makes the strata: which has the bucket of each row, and length is that of an
// epoch.
func (c *chosen) divide(all members, which []uint8, buckets int, often frequencies, length int64) {
	if !c.bucketed {
		c.strata = []stratum{newStratum(all, often, length)}
		return
	}
	starts := make([][]int64, buckets)
	for k := range starts {
		starts[k] = make([]int64, len(all.starts))
	}
	whole, shares := make([]int64, buckets), make([]uint64, buckets)
	for shard, from := range all.starts[:len(all.starts)-1] {
		for k := range starts {
			starts[k][shard+1] = starts[k][shard]
		}
		for i := from; i < all.starts[shard+1]; i++ {
			k := which[i]
			starts[k][shard+1]++
			if often.whole != nil {
				whole[k] += int64(often.whole[i])
				shares[k] += uint64(often.fraction[i])
			}
		}
	}
	rows := spread(all.rows, which, buckets)
	lengths := make([]int64, buckets)
	each := make([]frequencies, buckets)
	if often.whole == nil {
		for k := range rows {
			lengths[k] = int64(len(rows[k]))
		}
	} else {
		lengths = apportion(length, whole, shares)
		w, f := spread(often.whole, which, buckets), spread(often.fraction, which, buckets)
		for k := range each {
			each[k] = frequencies{w[k], f[k]}
		}
	}
	for k := range rows {
		c.strata = append(c.strata, newStratum(members{rows[k], starts[k]}, each[k], lengths[k]))
	}
}

// newStratum says how many of the fractions count.
func newStratum(m members, often frequencies, length int64) stratum {
	s := stratum{members: m, frequencies: often, length: length}
	if often.whole == nil {
		return s
	}
	s.picks = length
	for i, whole := range often.whole {
		s.sum += uint64(often.fraction[i])
		s.picks -= int64(whole)
	}
	if s.picks < 0 || s.picks > 0 && s.sum == 0 {
		panic(fmt.Sprintf("reader: %d picks of fractions that sum up to %d", s.picks, s.sum))
	}
	return s
}

// chooser goes through the indexes.
type chooser struct {
	*Sampling
	buckets *Buckets
	// all are the samples chosen so far, of the shards so far, and which their buckets.
	all   members
	which []uint8
	// Those of the data set in hand.
	labels    map[int64]bool
	rules     []*where.Filter
	by        *where.Number
	selection dataset.Selection
	// Whether each of Keys, and which of KeyWeights, was met.
	keys, weighed map[string]bool

	weights []float64
	classes [][2]int64 // with Shares, the data set's number is the first
}

// prepare checks the conditions for a data set.
func (f *chooser) prepare(d *dataset.Dataset) (err error) {
	if err := f.prepareSampling(d); err != nil {
		return fmt.Errorf("%w: sampling: %w", ErrConfig, err)
	}
	if !f.buckets.isZero() {
		if f.by, err = where.ParseNumber(f.buckets.By, d.Fields()); err != nil {
			return fmt.Errorf("%w: buckets: by: %w", ErrConfig, err)
		}
	}
	return nil
}

func (f *chooser) prepareSampling(d *dataset.Dataset) (err error) {
	if f.labels, err = f.Sampling.labels(d.Manifest().Classes); err != nil {
		return err
	}
	f.selection.Where = f.Where
	if err := d.Check(f.selection); err != nil {
		return err
	}
	f.rules = make([]*where.Filter, len(f.Weights))
	for i, w := range f.Weights {
		if w.Where == "" {
			continue
		}
		if f.rules[i], err = where.Parse(w.Where, d.Fields()); err != nil {
			return fmt.Errorf("weights %d: %w", i+1, err)
		}
	}
	return nil
}

// add chooses samples of a data set.
func (f *chooser) add(ctx context.Context, s *set, number int64) error {
	selection := f.selection
	selection.Split = s.split.Name
	at := 0
	for row, err := range s.data.Select(ctx, selection) {
		if err != nil {
			return err
		}
		for row.Shard != &s.split.Shards[at] {
			at++
			f.all.starts[s.first+at] = int64(len(f.all.rows))
		}
		label := row.Row.Label
		if len(f.labels) > 0 && (label == nil || !f.labels[*label]) {
			continue
		}
		if len(f.keys) > 0 {
			if _, wanted := f.keys[row.Row.Key]; !wanted {
				continue
			}
			f.keys[row.Row.Key] = true
		}
		f.all.rows = append(f.all.rows, uint32(row.Number))
		if f.by != nil {
			v, ok := f.by.Value(row.Row)
			if !ok {
				return fmt.Errorf("%w: buckets: by: the index knows no %s of sample %q; leave such out with where, or divide by something else", ErrConfig, f.by, row.Row.Key)
			}
			f.which = append(f.which, uint8(f.buckets.of(v)))
		}
		if f.weighs() {
			f.weights = append(f.weights, f.weight(row.Row))
		}
		if f.Balanced {
			if label == nil {
				return fmt.Errorf("%w: sampling: balanced: sample %q has no label; leave such out with where: label is not null", ErrConfig, row.Row.Key)
			}
			class := [2]int64{0, *label}
			if len(f.Shares) > 0 {
				class[0] = number
			}
			f.classes = append(f.classes, class)
		}
	}
	for at < len(s.split.Shards) {
		at++
		f.all.starts[s.first+at] = int64(len(f.all.rows))
	}
	return nil
}

// weight is the weight of a sample.
func (f *chooser) weight(row *index.Row) float64 {
	if w, ok := f.KeyWeights[row.Key]; ok {
		f.weighed[row.Key] = true
		return w
	}
	for i, rule := range f.rules {
		if rule == nil || rule.Match(row) {
			return f.Weights[i].Weight
		}
	}
	return 1
}

// missing reports keys that no chosen sample has.
func (f *chooser) missing(split string) error {
	var missing []string
	for k, found := range f.keys {
		if !found {
			missing = append(missing, k)
		}
	}
	if !f.chooses() {
		for k := range f.KeyWeights {
			if !f.weighed[k] {
				missing = append(missing, k)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("keys: %d are not among the chosen samples of split %q, the first of them %q; `shardify ls` lists the keys", len(missing), split, missing[0])
}

// labels are the class numbers that Labels names.
func (s *Sampling) labels(classes []string) (map[int64]bool, error) {
	numbers := map[int64]bool{}
	for _, l := range s.Labels {
		if at := slices.Index(classes, l); at >= 0 {
			numbers[int64(at)] = true
			continue
		}
		n, err := strconv.ParseInt(l, 10, 64)
		if err != nil || len(classes) > 0 && (n < 0 || n >= int64(len(classes))) {
			hint := "; `shardify info` lists the classes"
			if near := nearest.Name(l, classes); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, fmt.Errorf("labels: no class %q%s", l, hint)
		}
		numbers[n] = true
	}
	return numbers, nil
}

// balance scales weights so that those of each class have the same sum, and all the
// sum of their number.
func balance(weights []float64, classes [][2]int64) {
	sums := map[[2]int64]float64{}
	for i, w := range weights {
		sums[classes[i]] += w
	}
	n := 0
	for _, sum := range sums {
		if sum > 0 {
			n++
		}
	}
	each := float64(len(weights)) / float64(max(1, n))
	for i := range weights {
		if sum := sums[classes[i]]; sum > 0 {
			weights[i] *= each / sum
		}
	}
}

// weigh returns the length of an epoch, and how often each sample comes.
func (s *Sampling) weigh(weights []float64) (length int64, often frequencies, err error) {
	total, positive := 0.0, int64(0)
	for _, w := range weights {
		total += w
		if w > 0 {
			positive++
		}
	}
	length = s.Samples
	scale := 1.0
	if length == 0 {
		if total > maxDrawn {
			return 0, often, fmt.Errorf("weights: they sum up to %g samples in an epoch, more than %d; set samples", total, int64(maxDrawn))
		}
		length = int64(math.Round(total))
	} else if total > 0 {
		scale = float64(length) / total
	}
	if s.Distinct {
		if s.Samples == 0 {
			length = min(length, positive)
		}
		if length > positive {
			return 0, often, fmt.Errorf("samples: %d distinct ones in an epoch, of %d that have a weight", length, positive)
		}
		scale = capped(weights, float64(length), scale)
	}
	if total == 0 || length == 0 {
		return 0, often, fmt.Errorf("weights: they sum up to %g, so that an epoch has no samples", total)
	}
	often = frequencies{make([]uint32, len(weights)), make([]uint32, len(weights))}
	for i, w := range weights {
		w *= scale
		if s.Distinct {
			w = min(w, 1)
		}
		whole, fraction := math.Modf(w)
		// What should be a whole number, but for rounding, is one.
		if near := math.Round(w); math.Abs(w-near) < 1e-9*max(1, w) {
			whole, fraction = near, 0
		}
		if whole > maxDrawn-1 {
			return 0, often, fmt.Errorf("weights: a sample that comes %g times in an epoch", whole)
		}
		often.whole[i], often.fraction[i] = uint32(whole), uint32(fraction*(1<<32))
	}
	return length, often, nil
}

// capped finds the scale with which weights, each at most 1, sum up to n.
func capped(weights []float64, n, from float64) float64 {
	sum := func(scale float64) (s float64) {
		for _, w := range weights {
			s += min(1, w*scale)
		}
		return s
	}
	low, high := 0.0, max(from, 1e-300)
	for sum(high) < n*(1-1e-12) && high < 1e300 {
		low, high = high, high*2
	}
	for range 60 {
		middle := (low + high) / 2
		if sum(middle) < n {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// draw returns the samples of an epoch, by strata.
func (c *chosen) draw(epoch int) []*members {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && (c.epoch == epoch || !c.weighted) {
		return c.last
	}
	drawn := make([]*members, len(c.strata))
	for k := range c.strata {
		bucket := noBucket
		if c.bucketed {
			bucket = k
		}
		drawn[k] = c.strata[k].draw(epochKey(c.seed, epoch, purposeDraw, bucket))
	}
	c.epoch, c.last = epoch, drawn
	return drawn
}

// draw returns the samples of an epoch.
func (s *stratum) draw(key uint64) *members {
	if s.whole == nil {
		return &s.members
	}
	return s.repeat(s.pick(key))
}

// drawBlock is how many neighbours pick puts in a random order: few enough to lie in a
// processor's first cache, as a place in a larger one costs more than all else.
const drawBlock = 4096

// pick says for which samples the fraction counts in an epoch: exactly picks of them.
// They are those on which the points of a grid fall, when all fractions are laid end
// to end, each block of samples in a random order: so each block has its share, too,
// and within a block any two samples come together as often as by chance.
func (s *stratum) pick(key uint64) []bool {
	picked := make([]bool, len(s.rows))
	if s.picks == 0 {
		return picked
	}
	offset := mix64(key) >> 32 // of the grid, in 2^-32 of its step
	point := func(k int64) uint64 {
		hi, lo := bits.Mul64(uint64(k)<<32|offset, s.sum)
		q, _ := bits.Div64(hi, lo, uint64(s.picks)<<32)
		return q
	}
	k, at := int64(0), uint64(0)
	next := point(0)
	for from := 0; from < len(s.rows); from += drawBlock {
		fractions := s.fraction[from:min(from+drawBlock, len(s.rows))]
		order := newPermutation(int64(len(fractions)), hashKey(key, uint64(from)))
		for g := range int64(len(fractions)) {
			i := order.at(g)
			at += uint64(fractions[i])
			// Two points never fall on one sample, as no fraction is larger than the
			// step; but for rounding, when the second is left to the next one.
			if k < s.picks && next < at {
				picked[from+int(i)] = true
				if k++; k < s.picks {
					next = point(k)
				}
			}
		}
	}
	for i := 0; k < s.picks; i++ { // what rounding has left
		if !picked[i] && s.fraction[i] > 0 {
			picked[i] = true
			k++
		}
	}
	return picked
}

// repeat lists the rows of an epoch.
func (s *stratum) repeat(picked []bool) *members {
	m := &members{rows: make([]uint32, 0, s.length), starts: make([]int64, len(s.starts))}
	i := int64(0)
	for shard, end := range s.starts[1:] {
		for ; i < end; i++ {
			times := s.whole[i]
			if picked[i] {
				times++
			}
			for range times {
				m.rows = append(m.rows, s.rows[i])
			}
		}
		m.starts[shard+1] = int64(len(m.rows))
	}
	return m
}
