package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
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
// keeps 4 bytes for each chosen sample, 12 where there are weights; Config.Memory does
// not count them.
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

// members are the samples of an epoch: rows of shards, those that come more than once
// side by side.
type members struct {
	counts []int64 // of each shard
	rows   [][]uint32
	starts []int64 // number of each shard's first sample in the split
}

// number returns what entry k of a shard is: the sample's number in the split, and how
// many entries before it are the same sample.
func (m *members) number(shard int, k int64) (n, copies int64) {
	rows := m.rows[shard]
	row := rows[k]
	if k > 0 && rows[k-1] == row {
		first, _ := slices.BinarySearch(rows[:k], row)
		copies = k - int64(first)
	}
	return m.starts[shard] + int64(row), copies
}

// chosen are the samples that Sampling chooses, flat over the shards, and their weights.
type chosen struct {
	ends   []int64 // of each shard, in rows
	rows   []uint32
	starts []int64
	seed   uint64
	// length is that of an epoch. whole and fraction (in 2^-32) are how often a
	// sample comes; nil: once. Of the fractions, whose sum is sum, picks count in
	// each epoch.
	length   int64
	whole    []uint32
	fraction []uint32
	sum      uint64
	picks    int64

	mu    sync.Mutex
	epoch int // of last
	last  *members
}

// choose reads the indexes. Errors that are the sampling's own fault wrap ErrConfig.
func (s *Sampling) choose(ctx context.Context, sets []set, split *index.Split, seed uint64) (*chosen, error) {
	wrong := func(err error) error { return fmt.Errorf("%w: sampling: %w", ErrConfig, err) }
	if n := len(s.Shares); n > 0 && n != len(sets) {
		return nil, wrong(fmt.Errorf("shares: %d of them for %d data sets", n, len(sets)))
	}
	c := &chosen{seed: seed, ends: make([]int64, len(split.Shards)), starts: make([]int64, len(split.Shards)+1)}
	for i := range split.Shards {
		c.starts[i+1] = c.starts[i] + split.Shards[i].Samples
	}
	f := chooser{Sampling: s, chosen: c, keys: map[string]bool{}, weighed: map[string]bool{}}
	for _, k := range s.Keys {
		f.keys[k] = false
	}
	var ends []int // of the sets
	for i := range sets {
		if err := f.prepare(sets[i].data); err != nil {
			return nil, wrong(err)
		}
		if err := f.add(ctx, &sets[i], int64(i)); err != nil {
			return nil, err
		}
		ends = append(ends, len(c.rows))
	}
	if err := f.missing(split.Name); err != nil {
		return nil, wrong(err)
	}
	if c.length = int64(len(c.rows)); c.length == 0 {
		return nil, wrong(fmt.Errorf("no sample of split %q is chosen", split.Name))
	}
	if !s.weighs() {
		return c, nil
	}
	if s.Balanced {
		balance(f.weights, f.classes)
	}
	if len(s.Shares) > 0 {
		if err := share(f.weights, ends, s.Shares); err != nil {
			return nil, wrong(err)
		}
	}
	if err := c.weigh(f.weights, s); err != nil {
		return nil, wrong(err)
	}
	return c, nil
}

// chooser goes through the indexes.
type chooser struct {
	*Sampling
	chosen *chosen
	// Those of the data set in hand.
	labels    map[int64]bool
	rules     []*where.Filter
	selection dataset.Selection
	// Whether each of Keys, and which of KeyWeights, was met.
	keys, weighed map[string]bool

	weights []float64
	classes [][2]int64 // with Shares, the data set's number is the first
}

// prepare checks the conditions for a data set.
func (f *chooser) prepare(d *dataset.Dataset) (err error) {
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
	c, selection := f.chosen, f.selection
	selection.Split = s.split.Name
	at := 0
	for row, err := range s.data.Select(ctx, selection) {
		if err != nil {
			return err
		}
		for row.Shard != &s.split.Shards[at] {
			c.ends[s.first+at] = int64(len(c.rows))
			at++
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
		c.rows = append(c.rows, uint32(row.Number))
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
	for ; at < len(s.split.Shards); at++ {
		c.ends[s.first+at] = int64(len(c.rows))
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

// weigh sets how often each sample comes.
func (c *chosen) weigh(weights []float64, s *Sampling) error {
	total, positive := 0.0, int64(0)
	for _, w := range weights {
		total += w
		if w > 0 {
			positive++
		}
	}
	c.length = s.Samples
	scale := 1.0
	if c.length == 0 {
		if total > maxDrawn {
			return fmt.Errorf("weights: they sum up to %g samples in an epoch, more than %d; set samples", total, int64(maxDrawn))
		}
		c.length = int64(math.Round(total))
	} else if total > 0 {
		scale = float64(c.length) / total
	}
	if s.Distinct {
		if s.Samples == 0 {
			c.length = min(c.length, positive)
		}
		if c.length > positive {
			return fmt.Errorf("samples: %d distinct ones in an epoch, of %d that have a weight", c.length, positive)
		}
		scale = capped(weights, float64(c.length), scale)
	}
	if total == 0 || c.length == 0 {
		return fmt.Errorf("weights: they sum up to %g, so that an epoch has no samples", total)
	}
	c.whole, c.fraction = make([]uint32, len(weights)), make([]uint32, len(weights))
	c.picks = c.length
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
			return fmt.Errorf("weights: a sample that comes %g times in an epoch", whole)
		}
		c.whole[i], c.fraction[i] = uint32(whole), uint32(fraction*(1<<32))
		c.sum += uint64(c.fraction[i])
		c.picks -= int64(whole)
	}
	if c.picks < 0 || c.picks > 0 && c.sum == 0 {
		panic(fmt.Sprintf("reader: %d picks of fractions that sum up to %d", c.picks, c.sum))
	}
	return nil
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

// draw returns the samples of an epoch.
func (c *chosen) draw(epoch int) *members {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && (c.epoch == epoch || c.whole == nil) {
		return c.last
	}
	m := &members{counts: make([]int64, len(c.ends)), rows: make([][]uint32, len(c.ends)), starts: c.starts}
	rows := c.rows
	var ends []int64
	if c.whole == nil {
		ends = c.ends
	} else {
		rows, ends = c.repeat(c.pick(epoch))
	}
	from := int64(0)
	for i, to := range ends {
		m.rows[i] = rows[from:to:to]
		m.counts[i] = to - from
		from = to
	}
	c.epoch, c.last = epoch, m
	return m
}

// pick says for which samples the fraction counts in an epoch: exactly picks of them.
// They are those on which the points of a grid fall, when all fractions are laid end
// to end in a random order.
func (c *chosen) pick(epoch int) []bool {
	picked := make([]bool, len(c.rows))
	if c.picks == 0 {
		return picked
	}
	key := hashKey(c.seed, uint64(epoch), purposeDraw)
	order := newPermutation(int64(len(c.rows)), key)
	offset := mix64(key) >> 32 // of the grid, in 2^-32 of its step
	point := func(k int64) uint64 {
		hi, lo := bits.Mul64(uint64(k)<<32|offset, c.sum)
		q, _ := bits.Div64(hi, lo, uint64(c.picks)<<32)
		return q
	}
	k, at := int64(0), uint64(0)
	next := point(0)
	for g := range int64(len(c.rows)) {
		i := order.at(g)
		at += uint64(c.fraction[i])
		// Two points never fall on one sample, as no fraction is larger than the
		// step; but for rounding, when the second is left to the next one.
		if k < c.picks && next < at {
			picked[i] = true
			if k++; k < c.picks {
				next = point(k)
			}
		}
	}
	for g := int64(0); k < c.picks; g++ { // what rounding has left
		if i := order.at(g); !picked[i] && c.fraction[i] > 0 {
			picked[i] = true
			k++
		}
	}
	return picked
}

// repeat lists the rows of an epoch, and the shards' ends in them.
func (c *chosen) repeat(picked []bool) (rows []uint32, ends []int64) {
	rows = make([]uint32, 0, c.length)
	ends = make([]int64, len(c.ends))
	i := int64(0)
	for shard, end := range c.ends {
		for ; i < end; i++ {
			times := c.whole[i]
			if picked[i] {
				times++
			}
			for range times {
				rows = append(rows, c.rows[i])
			}
		}
		ends[shard] = int64(len(rows))
	}
	return rows, ends
}

// differingSampling explains two fingerprints of samplings.
func differingSampling(state, reader string) error {
	show := func(s string) string {
		if s == "" {
			return "none"
		}
		return strings.ToValidUTF8(s, "?")
	}
	return fmt.Errorf("sampling: the state has %s, the reader %s", show(state), show(reader))
}
