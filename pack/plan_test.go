package pack

import (
	"math/rand/v2"
	"testing"
)

// Shards are as many as asked for, none is empty, and, where they are cut by size,
// none is larger than its share by more than a sample.
func TestCutter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		sizes := make([]int64, 1+r.IntN(60))
		total, largest := int64(0), int64(0)
		for i := range sizes {
			sizes[i] = 1 + r.Int64N(1000)
			if r.IntN(20) == 0 {
				sizes[i] *= 100
			}
			total += sizes[i]
			largest = max(largest, sizes[i])
		}
		n := int64(len(sizes))
		var cfg Config
		want := int64(0)
		switch r.IntN(3) {
		case 0:
			cfg.Shards = 1 + r.Int64N(40)
			want = min(cfg.Shards, n)
		case 1:
			cfg.ShardSamples = 1 + r.Int64N(40)
			want = (n + cfg.ShardSamples - 1) / cfg.ShardSamples
		case 2:
			cfg.ShardSize = 1 + r.Int64N(5000)
			want = min((total+cfg.ShardSize-1)/cfg.ShardSize, n)
		}
		c := newCutter(&cfg, n, total)
		var shards, samples []int64
		for _, size := range sizes {
			if c.next(size) {
				shards, samples = append(shards, 0), append(samples, 0)
			}
			shards[len(shards)-1] += size
			samples[len(samples)-1]++
		}
		if int64(len(shards)) != want {
			t.Fatalf("%+v: %d samples in %d bytes: %d shards, want %d", cfg, n, total, len(shards), want)
		}
		for i := range shards {
			if cfg.ShardSamples > 0 && (samples[i] > cfg.ShardSamples || samples[i] < n/want) {
				t.Fatalf("%+v: shard %d of %d has %d of %d samples", cfg, i, want, samples[i], n)
			}
			if cfg.ShardSamples == 0 && shards[i] > total/want+1+largest {
				t.Fatalf("%+v: shard %d of %d has %d of %d bytes", cfg, i, want, shards[i], total)
			}
		}
	}
}

func TestShardName(t *testing.T) {
	for _, c := range []struct{ template, format, want string }{
		{"", "tar", "train-000007.tar"},
		{"", "tfrecord", "train-00007-of-00012.tfrecord"},
		{"{split}/{shard}", "tar.zst", "train/7.tar.zst"},
		{"x-{shard:3}", "tar", "x-007.tar"},
	} {
		cfg := Config{Template: c.template, Format: c.format}.withDefaults()
		if got, err := cfg.shardName("train", 7, 12); got != c.want || err != nil {
			t.Errorf("template %q: %q, %v; want %q", c.template, got, err, c.want)
		}
	}
	for _, template := range []string{"x", "{nope}-{shard}", "../{shard}", "/{shard}", ".shardify/{shard}", "{shard}/", "quarantine/{shard}"} {
		cfg := Config{Template: template, Source: Source{Paths: []string{"x"}}}
		if err := cfg.Validate(); err == nil {
			t.Errorf("template %q is accepted", template)
		}
	}
}
