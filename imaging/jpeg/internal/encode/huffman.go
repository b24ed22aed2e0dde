package encode

import (
	"sync"

	"shardify/imaging/jpeg/internal/entropy"
)

// A Huffman table's definition is 16 counts of codes by length, then the symbols in
// the order of their codes.

// near is one more than the largest value whose code and bits are looked up together.
const near = 32

// lengthBits is how many bits an entry of codes has for the length.
const lengthBits = 6

// codes are a component's DC and AC tables. An entry is a code << lengthBits | its
// length, 0 where the table has no such symbol.
type codes struct {
	// dc is by the difference's size, ac by run << 4 | size.
	dc [16]uint32
	ac [256]uint32
	// small is by run << 6 | value+near, and has the value's bits behind the code.
	small [16 * 2 * near]uint32
}

// set reads the definitions.
func (c *codes) set(dc, ac []byte) {
	*c = codes{}
	assign(dc, func(symbol uint8, e uint32) { c.dc[symbol&15] = e })
	assign(ac, func(symbol uint8, e uint32) {
		c.ac[symbol] = e
		size := symbol & 15
		if size == 0 || size > 6 {
			return
		}
		code, length := e>>lengthBits<<size, e&63+uint32(size)
		to := c.small[int(symbol>>4)*2*near:][:2*near]
		for v := int32(1) << (size - 1); v < 1<<size; v++ {
			if v < near {
				to[near+v] = (code|uint32(v))<<lengthBits | length
			}
			if v <= near {
				to[near-v] = (code|uint32(v)^(1<<size-1))<<lengthBits | length
			}
		}
	})
}

// assign gives out the codes of a definition, in the order of its symbols (T.81,
// Annex C).
func assign(def []byte, take func(symbol uint8, e uint32)) {
	code, k := uint32(0), 16
	for l := range uint32(16) {
		for range def[l] {
			take(def[k], code<<lengthBits|(l+1))
			code++
			k++
		}
		code <<= 1
	}
}

// standard are the codes of the standard's own tables, luma's and chroma's.
var standard = sync.OnceValue(func() *[2]codes {
	c := new([2]codes)
	for i := range c {
		c[i].set(entropy.Standard[0][i], entropy.Standard[1][i])
	}
	return c
})

// frequencies counts symbols.
type frequencies [256]int64

// optimal writes into def the definition of the best table for some frequencies, as
// libjpeg finds it (jpeg_gen_optimal_table; T.81, K.2): ties go to the larger symbol,
// no code is all ones, and codes longer than 16 bits are shortened at the expense of
// others.
func optimal(def []byte, f *frequencies) []byte {
	var freq [257]int64
	var size, next [257]int
	used := make([]int16, 0, 257)
	for i, n := range f {
		next[i] = -1
		if freq[i] = n; n > 0 {
			used = append(used, int16(i))
		}
	}
	next[256] = -1
	freq[256] = 1 // gets the longest code, of ones only
	used = append(used, 256)
	for len(used) > 1 {
		// The two rarest, of equals those with the larger numbers.
		a, b := -1, -1
		for i, s := range used {
			switch {
			case a < 0 || freq[s] <= freq[used[a]]:
				a, b = i, a
			case b < 0 || freq[s] <= freq[used[b]]:
				b = i
			}
		}
		one, other := int(used[a]), int(used[b])
		freq[one] += freq[other]
		used = append(used[:b], used[b+1:]...)
		for {
			size[one]++
			if next[one] < 0 {
				break
			}
			one = next[one]
		}
		next[one] = other
		for ; other >= 0; other = next[other] {
			size[other]++
		}
	}
	var counts [258]int
	longest := 0
	for i := range 257 {
		if size[i] > 0 {
			counts[size[i]]++
			longest = max(longest, size[i])
		}
	}
	for l := longest; l > 16; l-- {
		for counts[l] > 0 {
			j := l - 2
			for counts[j] == 0 {
				j--
			}
			counts[l] -= 2   // two of the longest
			counts[l-1]++    // one is shorter by a bit,
			counts[j+1] += 2 // the other goes beside one
			counts[j]--      // that was shorter still
		}
	}
	last := 16
	for counts[last] == 0 {
		last--
	}
	counts[last]-- // the code of ones only
	def = def[:0]
	for l := 1; l <= 16; l++ {
		def = append(def, uint8(counts[l]))
	}
	for l := 1; l <= longest; l++ {
		for i := range 256 {
			if size[i] == l {
				def = append(def, uint8(i))
			}
		}
	}
	return def
}
