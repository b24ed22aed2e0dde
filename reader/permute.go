package reader

import "math/bits"

// permutation is a keyed permutation of 0 … n-1 that is evaluated place by place
// and stored nowhere: a Feistel network over the smallest power of two that holds
// n (and not less than 64), with cycle walking for the places beyond n (J. Black
// and P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, methods 2
// and 3). The two halves take turns, as in an alternating unbalanced Feistel
// network, so that an odd number of bits is no special case and less than two
// evaluations are needed on average. It mixes well, it is no cipher.
type permutation struct {
	n            uint64
	key          uint64
	low          uint // bits of the lower half
	maskL, maskH uint64
}

// rounds of the network. With six, each of the n! orders of a few elements is
// equally frequent over the keys (TestPermutationUniform); with four it is not.
const rounds = 6

func newPermutation(n int64, key uint64) permutation {
	width := uint(6)
	if n > 64 {
		width = uint(bits.Len64(uint64(n - 1)))
	}
	low := width / 2
	return permutation{
		n: uint64(n), key: key, low: low,
		maskL: 1<<low - 1, maskH: 1<<(width-low) - 1,
	}
}

// at returns the element at place i, which must lie in 0 … n-1.
func (p *permutation) at(i int64) int64 {
	x := uint64(i)
	for {
		h, l := x>>p.low, x&p.maskL
		k := p.key
		for range rounds / 2 {
			h ^= roundHash(l+k) & p.maskH
			k += golden
			l ^= roundHash(h+k) & p.maskL
			k += golden
		}
		if x = h<<p.low | l; x < p.n {
			return int64(x)
		}
	}
}

// golden is 2^64 divided by the golden ratio, the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// roundHash is the round function. One multiplication would be linear in the few
// bits of x that a round decides; the fold and the second make it not so.
func roundHash(x uint64) uint64 {
	x *= 0xbf58476d1ce4e5b9
	x = (x ^ x>>32) * 0x94d049bb133111eb
	return x >> 32
}

// mix64 is a bijection in which every bit of x decides every bit of the result:
// the output function of SplitMix64 (G. Steele, D. Lea and C. Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014).
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashKey hashes a list of words to a key. Keys of (seed, epoch) and (seed+1,
// epoch-1) have nothing in common.
func hashKey(words ...uint64) uint64 {
	h := uint64(golden)
	for _, w := range words {
		h = mix64(h ^ w)
		h += golden
	}
	return mix64(h)
}

// epochKey is the key of an epoch for a purpose; each bucket has its own.
func epochKey(seed uint64, epoch int, purpose uint64, bucket int) uint64 {
	if bucket == noBucket {
		return hashKey(seed, uint64(epoch), purpose)
	}
	return hashKey(seed, uint64(epoch), purpose, uint64(bucket))
}

// noBucket is the number of the only bucket where there are no buckets.
const noBucket = -1

// The purposes for which keys are derived from (seed, epoch); part of the order that
// a seed stands for.
const (
	purposeShards = 1 + iota
	purposeWindow
	purposeGlobal
	purposeSubstitute
	purposeDraw
	purposeCopy
	purposeTurns
	purposeStream
	purposeSlide
)
