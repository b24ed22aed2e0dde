package entropy

import "bytes"

// A Huffman table's definition is 16 counts of codes by length, then the symbols in
// the order of their codes. All codes of a length are consecutive numbers, so that
// a code is recognised by comparison with the largest of its length (T.81, Annex F,
// DECODE).

// long finds the codes that are too long for a look-up.
type long struct {
	// limit[l] is what 16 bits are less than if they begin with a code of at most
	// l bits.
	limit [17]uint32
	// first[l] is the index in symbols of the first code of l bits, less that
	// code.
	first   [17]int32
	symbols [256]uint8
	n       int
}

// badLength is how many bits are skipped where no code fits: libjpeg notices when
// it has read one bit more than the longest code has.
const badLength = 17

// decode returns the length and the symbol of the code that the 16 bits of x begin
// with, which is at least min bits long; badLength and 0 if there is none.
func (t *long) decode(x uint32, min int) (length int, symbol uint8) {
	for l := min; l <= 16; l++ {
		if x < t.limit[l] {
			return l, t.symbols[uint8(int32(x>>(16-l))+t.first[l])]
		}
	}
	return badLength, 0
}

// define reads a definition. It returns false if the codes do not fit: libjpeg
// refuses those tables too, and a code of ones only.
func (t *long) define(def []byte) bool {
	t.n = copy(t.symbols[:], def[16:])
	code, k := uint32(0), int32(0)
	for l := 1; l <= 16; l++ {
		n := uint32(def[l-1])
		t.first[l] = k - int32(code)
		code += n
		k += int32(n)
		if n > 0 && code >= 1<<l {
			return false
		}
		t.limit[l] = code << (16 - l)
		code <<= 1
	}
	return true
}

// symbolBits is the number of bits that a symbolTable looks up.
const symbolBits = 9

// symbolTable decodes the symbols of progressive scans. An entry is symbol | length<<8; 0 if the code is longer.
type symbolTable struct {
	entry [1 << symbolBits]uint16
	long
}

func (t *symbolTable) build(def []byte, dc bool) bool {
	if !t.define(def) {
		return false
	}
	at, k := 0, 0
	for l := 1; l <= symbolBits; l++ {
		for range def[l-1] {
			e := uint16(t.symbols[k]) | uint16(l)<<8
			k++
			to := t.entry[at : at+1<<(symbolBits-l)]
			for i := range to {
				to[i] = e
			}
			at += len(to)
		}
	}
	clear(t.entry[at:])
	if dc {
		for _, s := range t.symbols[:t.n] {
			if s > 15 {
				return false
			}
		}
	}
	return true
}

// symbol returns the length and the symbol of the code at the top of x.
func (t *symbolTable) symbol(x uint64) (length uint, symbol uint) {
	e := t.entry[x>>(64-symbolBits)]
	if e == 0 {
		l, s := t.decode(uint32(x>>48), symbolBits+1)
		return uint(l), uint(s)
	}
	return uint(e >> 8), uint(e & 255)
}

// codeBits is the number of bits that a codeTable looks up: more make the tables
// fall out of the first-level cache, fewer find fewer values together with their
// codes (of photographs, 3.4% are longer). Of 56 bits, five look-ups are certain.
const codeBits = 11

// codeTable decodes the coefficients of sequential scans, the code and the value
// behind it in one look-up, and the end of the block with it where that is the next
// code. An entry is
//
//	bits 0-7    how many bits that takes together
//	bits 8-15   by how much the zigzag index advances
//	bits 16-31  the value
//
// The end of the block by itself advances by acEnd and has value 0; together with
// the last coefficient before it, by acLast and what that advances. DC coefficients,
// whose value is a difference, advance by dcDone. So one comparison, index >= 63,
// catches the last coefficient, the end of the block and a run beyond it.
//
// An escape stands where the code is too long, or its value is not in the bits looked
// up. It has escape in bits 0 to 15; in place of the value it then has the symbol
// and, in the upper byte, the code's length, or 0. An index to which it is added
// leaves 8 bits, and so does one to which acLast is added that is then 63: a block's
// last coefficient has no end of the block behind it, and what looked like one is
// the next block's. So one carry catches both.
//
// Symbols that end the block are 0 in symbols: libjpeg takes all that have size 0
// for that, but for the run of 16 zeros.
type codeTable struct {
	entry [1 << codeBits]uint32
	long
	// By how much a symbol without a run advances, and symbol 0.
	base, zero uint32
	// What an entry with the end of the block has more than one without: acLast,
	// and in the lower byte the bits of the end's code.
	last uint32
}

const (
	dcDone = 100
	acEnd  = 129
	acLast = 256 - 63
	escape = 1<<16 - 1
)

func (t *codeTable) build(def []byte, dc bool) bool {
	if !t.define(def) {
		return false
	}
	t.base, t.zero = 1, acEnd
	if dc {
		t.base, t.zero = dcDone, dcDone
	}
	for i, s := range t.symbols[:t.n] {
		switch {
		case dc && s > 15:
			return false
		case !dc && s&15 == 0 && s != 0xf0:
			t.symbols[i] = 0
		}
	}
	end, endBits := t.end(def)
	t.last = acLast<<8 | uint32(endBits)
	if dc {
		endBits = codeBits
	}
	at, k := 0, 0
	for l := 1; l <= codeBits; l++ {
		for range def[l-1] {
			rs := t.symbols[k]
			k++
			s := int(rs & 15)
			to := t.entry[at : at+1<<(codeBits-l)]
			at += len(to)
			advance := uint32(rs>>4) + t.base
			switch {
			case rs == 0:
				fill(to, t.zero<<8|uint32(l))
			case l+s > codeBits:
				fill(to, uint32(l)<<24|uint32(rs)<<16|escape)
			default:
				e := advance<<8 | uint32(l+s)
				if s == 0 {
					fill(to, e)
					break
				}
				// Of each value's entries, those that go on with the end.
				each, half := len(to)>>s, 1<<(s-1)
				rest := codeBits - l - s
				from, n := 0, 0
				if rest >= endBits {
					from, n = int(end)<<(rest-endBits), 1<<(rest-endBits)
				}
				// Values with a leading 0 are negative.
				v := 1 - 1<<s
				for ; len(to) > 0; to = to[each:] {
					if v == 1-half {
						v = half
					}
					e := uint32(v)<<16 | e
					fill(to[:each], e)
					fill(to[from:from+n], e+t.last)
					v++
				}
			}
		}
	}
	fill(t.entry[at:], escape)
	return true
}

// end returns the shortest code that ends the block, and how many bits it has: more
// than codeBits if there is none.
func (t *codeTable) end(def []byte) (code uint32, length int) {
	k := 0
	for l := 1; l <= codeBits; l++ {
		for range def[l-1] {
			if t.symbols[k] == 0 {
				return code, l
			}
			code++
			k++
		}
		code <<= 1
	}
	return 0, codeBits + 1
}

// symbol resolves the escape e: it returns the length and the symbol of the code at
// the top of x, and x without it.
func (t *codeTable) symbol(e uint32, x uint64) (length, symbol uint, rest uint64) {
	length, symbol = uint(e>>24), uint(e>>16&255)
	if length == 0 {
		l, s := t.decode(uint32(x>>48), codeBits+1)
		length, symbol = uint(l), uint(s)
	}
	return length, symbol, x << (length & 63)
}

func buildDC(t *codeTable, def []byte) bool { return t.build(def, true) }

func buildAC(t *codeTable, def []byte) bool { return t.build(def, false) }

func fill(to []uint32, v uint32) {
	for i := range to {
		to[i] = v
	}
}

// extend gives s bits the value that they stand for (T.81, EXTEND): the top s bits
// of x.
func extend(x uint64, s uint) int32 {
	v := int32(x >> 1 >> (63 - s&63))
	if int64(x) >= 0 {
		v += 1 - 1<<(s&31)
	}
	return v
}

// tables keeps the tables that were last built: the images of many data sets share
// theirs. What the last scan got stays valid until the next one asks.
type tables struct {
	dc, ac     cache[codeTable]
	dcs, bands cache[symbolTable] // of progressive scans
}

type cache[T any] struct {
	slot  [8]*kept[T]
	clock uint64
}

type kept[T any] struct {
	def   [16 + 256]byte
	n     int // bytes of def
	used  uint64
	table T
}

// get returns the table of a definition; build makes one that is not there. It
// returns nil if the definition is none.
func (c *cache[T]) get(def []byte, build func(*T, []byte) bool) *T {
	c.clock++
	oldest := &c.slot[0]
	for i, k := range c.slot {
		if k == nil {
			oldest = &c.slot[i]
			break
		}
		if bytes.Equal(k.def[:k.n], def) {
			k.used = c.clock
			return &k.table
		}
		if k.used < (*oldest).used {
			oldest = &c.slot[i]
		}
	}
	if *oldest == nil {
		*oldest = new(kept[T])
	}
	k := *oldest
	if !build(&k.table, def) {
		k.n, k.used = 0, 0
		return nil
	}
	k.n, k.used = copy(k.def[:], def), c.clock
	return &k.table
}
