package gpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// engines are two sides in virtual time: each has a rate in bytes a second, and a time that
// every batch takes it whatever there is to do; noise is by how much times vary.
type engines struct {
	rate    [2]float64
	latency [2]time.Duration
	noise   float64
}

// batch has both sides do a batch, each its part, and returns how long the longer took and
// the card's share of the work.
func (e *engines) batch(b *balance, random *rand.Rand, able float64) (took time.Duration, share float64) {
	const n = 64
	card, samples, work := make([]bool, n), make([]int64, n), make([]int64, n)
	var all int64
	for i := range work {
		card[i] = random.Float64() < able
		samples[i] = random.Int64()
		work[i] = 20_000 + random.Int64N(200_000)
		all += work[i]
	}
	b.split(card, samples, work)
	var of [2]int64
	for i, is := range card {
		side := byCPU
		if is {
			side = byCard
		}
		of[side] += work[i]
	}
	for side, w := range of {
		if w == 0 {
			continue
		}
		d := e.latency[side] + time.Duration(float64(w)/e.rate[side]*float64(time.Second))
		d = time.Duration(float64(d) * (1 + e.noise*(2*random.Float64()-1)))
		b.done(side, w, d)
		took = max(took, d)
	}
	return took, float64(of[byCard]) / float64(all)
}

// ideal is the time of a batch of the mean size that is divided best, in seconds; file that
// of half a file on the slower side, as files are not divided.
func (e *engines) ideal() (batch, file float64) {
	const mean = 120_000
	begun := e.rate[byCPU]*e.latency[byCPU].Seconds() + e.rate[byCard]*e.latency[byCard].Seconds()
	return (64*mean + begun) / (e.rate[byCPU] + e.rate[byCard]), mean / 2 / min(e.rate[byCPU], e.rate[byCard])
}

// From whatever it begins with, both sides soon take the same time, also where they have
// latencies, their times are noisy, or rates change; and neither is ever left without work.
func TestBalanceConverges(t *testing.T) {
	const mega = 1e6
	for _, c := range []struct {
		name string
		e    engines
	}{
		{"equal", engines{rate: [2]float64{100 * mega, 100 * mega}}},
		{"the card ten times as fast", engines{rate: [2]float64{100 * mega, 1000 * mega}}},
		{"the CPU five times as fast", engines{rate: [2]float64{500 * mega, 100 * mega}}},
		{"latencies", engines{rate: [2]float64{300 * mega, 900 * mega}, latency: [2]time.Duration{time.Millisecond, 4 * time.Millisecond}}},
		{"noise", engines{rate: [2]float64{200 * mega, 600 * mega}, noise: 0.3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			b := new(balance)
			phase := func(what string, e engines) {
				var took, shares float64
				const settle, measured = 20, 100
				for i := range settle + measured {
					d, share := e.batch(b, random, 1)
					if i >= settle {
						took += d.Seconds() / measured
						shares += share / measured
					}
				}
				if batch, file := e.ideal(); took > (batch+file)*(1.02+e.noise) {
					t.Errorf("%s: a batch takes %.2f ms, the ideal is %.2f and half a file %.2f (the card's share is %.3f)", what, 1e3*took, 1e3*batch, 1e3*file, shares)
				}
				if shares < probe/2 || shares > 1-probe/2 {
					t.Errorf("%s: the card's share is %.3f", what, shares)
				}
			}
			phase("first", c.e)
			slower := c.e
			slower.rate[byCard] /= 8
			phase("a card that others use, too", slower)
			phase("again alone", c.e)
			slower = c.e
			slower.rate[byCPU] /= 8
			phase("a CPU that others use, too", slower)
		})
	}
}

// A side that is slower than its least share still gets that, so that it may recover; with
// batches so small that it is less than a file, too.
func TestBalanceNeverStarves(t *testing.T) {
	for _, slow := range []int{byCPU, byCard} {
		b := new(balance)
		b.done(slow, 1, time.Second)
		b.done(1-slow, 1<<40, time.Second)
		given := 0
		for i := range 2000 {
			card := []bool{true, true}
			b.split(card, []int64{int64(i), int64(i)}, []int64{1000, 1000})
			for _, is := range card {
				if is == (slow == byCard) {
					given++
				}
			}
		}
		if given < 28 || given > 35 { // 4000/128
			t.Errorf("side %d got %d of 4000 files", slow, given)
		}
	}
}

// What only the CPU can decode is its part of the work first.
func TestBalanceUnable(t *testing.T) {
	e := engines{rate: [2]float64{1e8, 1e8}}
	random := rand.New(rand.NewPCG(3, 4))
	for able, want := range map[float64]float64{1: 0.5, 0.75: 0.5, 0.25: 0.25, 0: 0} {
		b, mean := new(balance), 0.
		for range 200 {
			_, share := e.batch(b, random, able)
			mean += share / 200
		}
		if math.Abs(mean-want) > 0.03 {
			t.Errorf("of files of which the card decodes %.2f it got %.3f, want %.2f", able, mean, want)
		}
	}
}

// A fixed share divides by the samples' numbers alone: whatever else is in the batch, was
// before it, and how long things took. None is none, and all is all.
func TestBalanceFixed(t *testing.T) {
	const n = 20_000
	samples, work := make([]int64, n), make([]int64, n)
	for i := range samples {
		samples[i], work[i] = int64(i), int64(1+i%7)
	}
	all := slices.Repeat([]bool{true}, n)
	for _, fixed := range []float64{-1, 0.2, 0.7, 1} {
		b := &balance{fixed: fixed}
		whole := slices.Clone(all)
		b.split(whole, samples, work)
		count := 0
		for _, is := range whole {
			if is {
				count++
			}
		}
		if got, want := float64(count)/n, max(0, fixed); math.Abs(got-want) > 0.01 || (want == 0 || want == 1) && got != want {
			t.Errorf("share %v: %v", fixed, got)
		}
		b.done(byCard, 1, time.Hour)
		b.done(byCPU, 1<<30, time.Second)
		for from := n - 17; from >= 0; from -= 17 {
			part := slices.Clone(all[:17])
			b.split(part, samples[from:from+17], work[from:from+17])
			if !slices.Equal(part, whole[from:from+17]) {
				t.Fatalf("share %v: other sides for samples %d to %d", fixed, from, from+16)
			}
		}
	}
	// As long as the committed pixels of somebody's run are to be made again.
	var first []int
	for i := range 40 {
		if lot(int64(i)) < 0.25 {
			first = append(first, i)
		}
	}
	if want := []int{3, 10, 18, 20, 21, 33}; !slices.Equal(first, want) {
		t.Errorf("samples %v are the card's at a share of 0.25, want %v", first, want)
	}
}
