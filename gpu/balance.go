package gpu

import (
	"math"
	"math/bits"
	"time"
)

// balance says which files of a batch the card decodes, and which the CPU: so many that both
// take the same time, by the rates that both have shown. It knows no clock: it is told what
// was done in which time. Work is in bytes of files; any measure of it would do.
//
// With a fixed share, a file's side depends on its sample's number alone. With measured
// rates it depends on the machine and the moment.
type balance struct {
	// fixed is the share of the card: 0 means by rates, below 0 none.
	fixed float64
	rates [2]float64 // work a second, smoothed; 0 while nothing is known
	// debt is how much work is the card's that it was not given, as files are not divided.
	debt float64
}

// The sides.
const (
	byCPU = iota
	byCard
)

const (
	// probe is the least share of either side: a rate that is not measured any more would
	// never be found to have changed. It is two files of a batch of 256.
	probe = 1. / 128
	// smoothing is the weight of the last batch in a rate: half of a change is in after two
	// or three batches, and noise of 30% shows as one of 11%.
	smoothing = 0.25
)

// done tells of work that a side has done alone, and how long it was busy with it.
func (b *balance) done(side int, work int64, busy time.Duration) {
	if work <= 0 || busy <= 0 {
		return
	}
	r := float64(work) / busy.Seconds()
	if b.rates[side] > 0 {
		r = b.rates[side] + smoothing*(r-b.rates[side])
	}
	b.rates[side] = r
}

// share is the part of the work that is the card's.
func (b *balance) share() float64 {
	switch {
	case b.fixed != 0:
		return min(1, max(0, b.fixed))
	case b.rates[byCPU] == 0 || b.rates[byCard] == 0:
		return 0.5
	}
	return min(1-probe, max(probe, b.rates[byCard]/(b.rates[byCard]+b.rates[byCPU])))
}

// split marks the card's files in card, which on entry has those that it is able to decode.
// samples are their numbers, work what each takes.
func (b *balance) split(card []bool, samples, work []int64) {
	share := b.share()
	if b.fixed != 0 {
		for i, able := range card {
			card[i] = able && lot(samples[i]) < share
		}
		return
	}
	var all, able float64
	for i, w := range work {
		all += float64(w)
		if card[i] {
			able += float64(w)
		}
	}
	if able == 0 {
		return
	}
	share = min(1, share*all/able)
	most := 0.
	for i, is := range card {
		if !is {
			continue
		}
		w := float64(work[i])
		most = max(most, w)
		b.debt += share * w
		if card[i] = b.debt >= w/2; card[i] {
			b.debt -= w
		}
	}
	b.debt = min(most, max(-most, b.debt))
}

// lot is a number in [0, 1) that is a sample's own: SplitMix64's mixing of its number.
func lot(sample int64) float64 {
	x := uint64(sample) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	hi, _ := bits.Mul64(x^x>>31, 1<<53)
	return math.Ldexp(float64(hi), -53)
}
