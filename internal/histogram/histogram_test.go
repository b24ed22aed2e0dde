package histogram

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Quantiles are within 7% of those of the sorted durations, for all sizes of them.
func TestQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for _, most := range []int64{3, 15, 1000, 1e6, 1e12, 1 << 62} {
		var h Durations
		if h.Quantile(0.5) != 0 {
			t.Error("a quantile of nothing")
		}
		var all []time.Duration
		for range 1000 {
			d := time.Duration(random.Int64N(most))
			h.Add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			got, want := h.Quantile(q), all[int(q*float64(len(all)-1))]
			if off := float64(got-want) / max(1, float64(want)); off < -0.07 || off > 0.07 {
				t.Errorf("below %d, quantile %v: %d, want %d", most, q, got, want)
			}
		}
	}
	var h Durations
	h.Add(-5)
	if h.Quantile(1) != 0 {
		t.Error("a duration below 0 counts as", h.Quantile(1))
	}
}
