package augment

import (
	"math"
	"math/bits"
)

// Rand yields random numbers: Philox4x64-10 (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a block cipher on a
// counter, as numpy.random.Philox has it. The key is (seed, epoch), the counter
// (block, sample, use, 0), so every sample and every batch of every epoch has a stream
// of its own, of 2^66 numbers. It is a value of a few words; nothing is allocated.
type Rand struct {
	seed, epoch, sample uint64
	use                 uint64    // what for: one of the constants below
	block               uint64    // the next one
	ready               [4]uint64 // numbers of the last block
	left                int       // how many of them are still to be used
}

const (
	forSample = iota
	forBatch
	forNoise
)

// NewRand returns the random numbers of one sample in one epoch.
func NewRand(seed, epoch, sample uint64) Rand {
	return Rand{seed: seed, epoch: epoch, sample: sample}
}

// NewBatchRand returns the random numbers of one batch in one epoch, for [MixUp] and
// [CutMix]. They have nothing in common with those of the sample of that number.
func NewBatchRand(seed, epoch, batch uint64) Rand {
	return Rand{seed: seed, epoch: epoch, sample: batch, use: forBatch}
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	if r.left == 0 {
		r.ready = philox([4]uint64{r.block, r.sample, r.use}, [2]uint64{r.seed, r.epoch})
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

// Normal returns a number of the standard normal distribution (Marsaglia's polar
// method, 1964, of whose two numbers the second is dropped).
func (r *Rand) Normal() float64 {
	for {
		u, v := r.Uniform(-1, 1), r.Uniform(-1, 1)
		if s := float64(u*u) + float64(v*v); s > 0 && s < 1 {
			return u * math.Sqrt(-2*math.Log(s)/s)
		}
	}
}

// Beta returns a number of the distribution Beta(alpha, alpha), alpha above 0: as
// X/(X+Y) with X and Y of the distribution Gamma(alpha), which are drawn as their
// logarithms, so that a small alpha makes neither vanish.
func (r *Rand) Beta(alpha float64) float64 {
	if alpha == 1 {
		return r.Float64()
	}
	x := r.logGamma(alpha)
	y := r.logGamma(alpha)
	return 1 / (1 + math.Exp(y-x))
}

// logGamma returns the logarithm of a number of the distribution Gamma(alpha)
// (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; below
// 1 by their section 6: Gamma(alpha+1) times U^(1/alpha)).
func (r *Rand) logGamma(alpha float64) float64 {
	boost := 0.0
	if alpha < 1 {
		boost = math.Log(1-r.Float64()) / alpha
		alpha++
	}
	d := alpha - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.Normal()
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := 1 - r.Float64()
		if math.Log(u) < float64(0.5*x*x)+float64(d*(1-v+math.Log(v))) {
			return math.Log(d) + math.Log(v) + boost
		}
	}
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
