package tar

// Where the parts of a header are.
const (
	modeAt     = 100
	sizeAt     = 124
	checksumAt = 148
	kindAt     = 156
	magicAt    = 257
	deviceAt   = 329
	prefixAt   = 345
	starPrefix = 131 // length of the prefix in star's headers
	starMagic  = 508
)

// template is a header of a regular file without its name, size and checksum, and
// templateSum the sum of its bytes, those of the checksum taken for spaces.
var template, templateSum = func() (b [blockSize]byte, sum uint32) {
	for _, at := range []int{modeAt, 108, 116, deviceAt, deviceAt + 8} { // mode, uid, gid, device
		putOctal(b[at:at+7], 0)
	}
	putOctal(b[modeAt:modeAt+7], 0o444)
	putOctal(b[136:147], 0) // mtime
	b[kindAt] = '0'
	copy(b[magicAt:], "ustar\x0000")
	return b, checksum(&b)
}()

// put copies s and returns the sum of its bytes.
func put(b []byte, s string) (sum uint32) {
	copy(b, s)
	for i := range len(s) {
		sum += uint32(s[i])
	}
	return sum
}

// putOctal writes n as len(b) octal digits and returns the sum of these.
func putOctal(b []byte, n int64) (sum uint32) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = '0' + byte(n&7)
		sum += uint32(b[i])
		n >>= 3
	}
	return sum
}

func putChecksum(b *[blockSize]byte, sum uint32) {
	putOctal(b[checksumAt:checksumAt+6], int64(sum))
	b[checksumAt+6] = 0
	b[checksumAt+7] = ' '
}

// checksum sums the bytes of a header, those of the checksum itself taken for
// spaces.
func checksum(b *[blockSize]byte) (sum uint32) {
	for i := range b {
		sum += uint32(b[i])
	}
	for _, c := range b[checksumAt : checksumAt+8] {
		sum -= uint32(c)
	}
	return sum + 8*' '
}

// signedChecksum is checksum over signed bytes, which some old programs write.
func signedChecksum(b *[blockSize]byte) (sum int32) {
	for i, c := range b {
		if i >= checksumAt && i < checksumAt+8 {
			c = ' '
		}
		sum += int32(int8(c))
	}
	return sum
}

// octal parses a number of octal digits among spaces and NULs. An empty one is 0.
func octal(b []byte) (n int64, ok bool) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == 0) {
		b = b[1:]
	}
	for i, c := range b {
		switch {
		case c == 0:
			return n, true
		case c == ' ':
			// Only spaces and NULs may follow.
			for _, c := range b[i:] {
				if c == 0 {
					return n, true
				}
				if c != ' ' {
					return 0, false
				}
			}
			return n, true
		case c < '0' || c > '7' || n >= 1<<60:
			return 0, false
		}
		n = n<<3 | int64(c-'0')
	}
	return n, true
}

// number parses a size: octal digits or, if the first bit is set, a signed number
// in base 256, as GNU tar writes it.
func number(b []byte) (n int64, ok bool) {
	if b[0]&0x80 == 0 {
		return octal(b)
	}
	if b[0]&0x40 != 0 {
		return 0, false // negative
	}
	for i, c := range b {
		if i == 0 {
			c &= 0x3f
		}
		if n >= 1<<55 {
			return 0, false
		}
		n = n<<8 | int64(c)
	}
	return n, true
}

// text returns b up to its first NUL.
func text(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
