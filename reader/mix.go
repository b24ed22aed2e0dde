package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"shardify/dataset"
	"shardify/index"
	"shardify/store"
	"shardify/store/cache"
	"shardify/store/open"
	"shardify/store/retry"
)

// Source is a data set that is read together with others.
type Source struct {
	// URL is as Open's, and Split as Config's, which must then be empty.
	URL   string `json:"url"`
	Split string `json:"split,omitempty"`
}

// OpenMix opens several data sets to read them as one: their shards stand one behind the
// other, in the order of sources, and so do sample numbers. Everything is as with one
// data set; Sampling.Shares says how much of an epoch each has. Labels are those of
// each data set: they must mean the same in all, or be told apart by Reader.Source.
func OpenMix(ctx context.Context, sources []Source, config Config) (*Reader, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: no sources", ErrConfig)
	}
	for _, s := range sources {
		if s.Split != "" && config.Split != "" {
			return nil, fmt.Errorf("%w: source %s has split %q, the config %q; give one of them", ErrConfig, s.URL, s.Split, config.Split)
		}
	}
	sets := make([]set, len(sources))
	for i, s := range sources {
		st, err := open.URL(ctx, s.URL)
		if err != nil {
			return nil, err
		}
		retried, err := retries(st, config.Retry)
		if err != nil {
			return nil, err
		}
		data, err := dataset.Open(ctx, retried)
		if err != nil {
			return nil, err
		}
		if sets[i], err = newSet(retried, data.Manifest(), or(s.Split, config.Split), config.Cache); err != nil {
			return nil, err
		}
	}
	return build(ctx, sets, config)
}

// set is one of the data sets of a reader.
type set struct {
	data    *dataset.Dataset // in cached, or where that is nil in retried
	retried *retry.Store
	cached  *cache.Store
	split   *index.Split
	first   int // its first shard in the reader
}

// newSet returns the set of a split of the data set that m describes. What is read of
// it stays on the disk if c says so.
func newSet(retried *retry.Store, m *index.Manifest, split string, c cache.Config) (set, error) {
	sp, err := m.Split(split)
	if err != nil {
		return set{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s := set{retried: retried, split: sp}
	var st store.Store = retried
	if c != (cache.Config{}) {
		if s.cached, err = cache.New(retried, c); err != nil {
			return set{}, err
		}
		for i := range sp.Shards {
			sh := &sp.Shards[i]
			s.cached.Expect(sh.Name, sh.Bytes, string(sh.Checksum))
			s.cached.Expect(sh.Index.Name, sh.Index.Bytes, string(sh.Index.Checksum))
			if p := sh.Seek; p != nil {
				s.cached.Expect(p.Name, p.Bytes, string(p.Checksum))
			}
		}
		st = s.cached
	}
	s.data, err = dataset.New(st, m)
	return s, err
}

// join numbers the sets' shards, and returns the split that all of them make.
func join(sets []set) *index.Split {
	if len(sets) == 1 {
		return sets[0].split
	}
	var all index.Split
	var names []string
	for i := range sets {
		s := &sets[i]
		s.first = len(all.Shards)
		all.Shards = append(all.Shards, s.split.Shards...)
		all.Samples += s.split.Samples
		all.Bytes += s.split.Bytes
		if !slices.Contains(names, s.split.Name) {
			names = append(names, s.split.Name)
		}
	}
	all.Name = strings.Join(names, "+")
	return &all
}

// setOf is the set that a shard is of.
func (r *Reader) setOf(shard int) *set {
	if len(r.sets) == 1 {
		return &r.sets[0]
	}
	return &r.sets[sort.Search(len(r.sets), func(i int) bool { return r.sets[i].first > shard })-1]
}

// Source is the number of the source, from 0, that a sample is of, by its number in the
// split. It is 0 but after OpenMix.
func (r *Reader) Source(n int64) (int, error) {
	if n < 0 || n >= r.split.Samples {
		return 0, fmt.Errorf("sample %d of split %q, which has %d", n, r.split.Name, r.split.Samples)
	}
	shard, _ := r.base.Locate(n)
	return sort.Search(len(r.sets), func(i int) bool { return r.sets[i].first+len(r.sets[i].split.Shards) > shard }), nil
}

// ShardName is the name of a shard, by its number in Plan.Locate; where several data
// sets are read, with its data set before it.
func (r *Reader) ShardName(shard int) string {
	if len(r.sets) == 1 {
		return r.split.Shards[shard].Name
	}
	return r.shardPath(int32(shard))
}

// openShard opens a shard.
func (r *Reader) openShard(ctx context.Context, shard int32) (*dataset.ShardFile, error) {
	return r.setOf(int(shard)).data.OpenShard(ctx, &r.split.Shards[shard])
}

// url names the data sets for people.
func (r *Reader) url() string {
	names := make([]string, len(r.sets))
	for i := range r.sets {
		names[i] = r.sets[i].data.URL()
	}
	return strings.Join(names, " + ")
}

// share scales weights so that each set's sum is its share of their number; ends are
// those of the sets.
func share(weights []float64, ends []int, shares []float64) error {
	total := 0.0
	for _, s := range shares {
		total += s
	}
	if total == 0 {
		return errors.New("shares: they sum up to 0")
	}
	from := 0
	for i, end := range ends {
		sum := 0.0
		for _, w := range weights[from:end] {
			sum += w
		}
		if sum == 0 && shares[i] > 0 {
			return fmt.Errorf("shares: source %d has no sample that could come", i+1)
		}
		for k := range weights[from:end] {
			if sum > 0 {
				weights[from+k] *= shares[i] / total * float64(len(weights)) / sum
			}
		}
		from = end
	}
	return nil
}
