// Package augment draws the parameters of augmentations: which part of an image to
// crop, whether to flip it. It touches no pixels; imaging/resize and
// imaging/tensor do what it says.
//
// Parameters are pure functions of a [Rand], and a Rand is a pure function of
// (seed, epoch, sample number): whichever worker handles a sample, whenever and
// after whatever others, it sees the same crop. What a Rand yields, and what the
// functions here make of it, will not change; tests hold literal values.
package augment

import "math/bits"

// Rand yields random numbers: Philox4x64-10 (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a block cipher on a
// counter, as numpy.random.Philox has it. The key is (seed, epoch), the counter
// (block, sample, 0, 0), so every sample of every epoch has a stream of its own,
// of 2^66 numbers. It is a value of a few words; nothing is allocated.
type Rand struct {
	seed, epoch, sample uint64
	block               uint64    // the next one
	ready               [4]uint64 // numbers of the last block
	left                int       // how many of them are still to be used
}

// NewRand returns the random numbers of one sample in one epoch.
func NewRand(seed, epoch, sample uint64) Rand {
	return Rand{seed: seed, epoch: epoch, sample: sample}
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	if r.left == 0 {
		r.ready = philox([4]uint64{r.block, r.sample}, [2]uint64{r.seed, r.epoch})
		r.block++
		r.left = len(r.ready)
	}
	r.left--
	return r.ready[len(r.ready)-1-r.left]
}

// Float64 returns a number in [0, 1): a multiple of 2^-53.
func (r *Rand) Float64() float64 { return float64(r.Uint64()>>11) * 0x1p-53 }

// Uniform returns a number in [low, high).
func (r *Rand) Uniform(low, high float64) float64 {
	return low + float64((high-low)*r.Float64())
}

// IntN returns a number in [0, n), all equally likely (Lemire, "Fast random integer
// generation in an interval", 2019). It panics if n < 1.
func (r *Rand) IntN(n int) int {
	if n < 1 {
		panic("augment: IntN of a number below 1")
	}
	high, low := bits.Mul64(r.Uint64(), uint64(n))
	if low < uint64(n) {
		for reject := -uint64(n) % uint64(n); low < reject; {
			high, low = bits.Mul64(r.Uint64(), uint64(n))
		}
	}
	return int(high)
}

func philox(c [4]uint64, k [2]uint64) [4]uint64 {
	for round := range 10 {
		if round > 0 {
			k[0] += 0x9e3779b97f4a7c15
			k[1] += 0xbb67ae8584caa73b
		}
		h0, l0 := bits.Mul64(0xd2e7470ee14c6c93, c[0])
		h1, l1 := bits.Mul64(0xca5a826395121157, c[2])
		c = [4]uint64{h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0}
	}
	return c
}
