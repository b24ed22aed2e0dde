package typed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// NumPy's format, as numpy.lib.format has it:
//
//	offset  bytes
//	0       6      "\x93NUMPY"
//	6       2      version: major (1, 2 or 3), minor
//	8       2 or 4 length of the header, little-endian; 2 bytes in version 1
//	10, 12  …      the header, a Python dictionary such as
//	               {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//	               filled up with spaces, and a newline at its end
//	…       …      the elements
const npyMagic = "\x93NUMPY"

const (
	// maxHeader bounds an npy header; NumPy itself reads no more than 10,000 bytes
	// of strangers'.
	maxHeader = 1 << 16
	// maxElements bounds a shape.
	maxElements = math.MaxInt64 / 16
)

// NPY is what the header of an npy file says, and where the elements are.
type NPY struct {
	// DType is the type of the elements, in the byte order BigEndian.
	DType     DType
	BigEndian bool
	// Fortran: the first index varies fastest.
	Fortran bool
	Shape   []int
	// Data are the elements; they are part of what was parsed.
	Data []byte
}

// Parse reads an npy file, versions 1 to 3, whose elements are of one of our types. It
// must hold as many elements as the shape says, and nothing behind them. The memory of
// Shape is used again.
func (n *NPY) Parse(data []byte) error {
	*n = NPY{Shape: n.Shape[:0]}
	return n.parse(data)
}

// DecodeNPY reads an npy file; by default as the type it has. An array in Fortran's
// order becomes one in C's.
func (a *Array) DecodeNPY(data []byte) error {
	n := NPY{Shape: a.Shape}
	if err := n.Parse(data); err != nil {
		return err
	}
	return a.ConvertNPY(&n)
}

// ConvertNPY is DecodeNPY for a file that is parsed already.
func (a *Array) ConvertNPY(n *NPY) error {
	if err := a.natural(n.DType); err != nil {
		return err
	}
	a.Shape = append(a.Shape, n.Shape...)
	return a.convert(n)
}

func (n *NPY) parse(data []byte) error {
	if len(data) < 10 || string(data[:6]) != npyMagic {
		return malformed("npy", 0, "it does not begin as an npy file, with %q and its version", npyMagic)
	}
	from, size := 10, int64(binary.LittleEndian.Uint16(data[8:]))
	switch data[6] {
	case 1:
	case 2, 3:
		if len(data) < 12 {
			return malformed("npy", len(data), "it ends in its header")
		}
		from, size = 12, int64(binary.LittleEndian.Uint32(data[8:]))
	default:
		return unsupported("npy", "version %d.%d", data[6], data[7])
	}
	if size > int64(len(data)-from) {
		return malformed("npy", len(data), "it ends in its header, of %d bytes", size)
	}
	if size > maxHeader {
		return unsupported("npy", "a header of %d bytes", size)
	}
	h := npyHeader{text: data[from : from+int(size)], from: from}
	if err := h.parse(n); err != nil {
		return err
	}
	n.Data = data[from+int(size):]
	elements := int64(1)
	for _, d := range n.Shape {
		if d != 0 && elements > maxElements/int64(d) {
			return malformed("npy", from, "a shape of %s", shapeText(n.Shape))
		}
		elements *= int64(d)
	}
	have, want := int64(len(n.Data)), elements*int64(n.DType.Size())
	switch {
	case have < want:
		return malformed("npy", len(data), "it ends early: %s elements of %s take %d bytes, %d are there", shapeText(n.Shape), n.DType, want, have)
	case have > want:
		return malformed("npy", len(data)-int(have-want), "%d bytes stand behind its %s elements of %s", have-want, shapeText(n.Shape), n.DType)
	}
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// npyHeader parses the dictionary: three keys, each once, in any order.
type npyHeader struct {
	text []byte
	at   int
	from int // of the header in the file
}

func (h *npyHeader) fault(msg string, args ...any) error {
	return malformed("npy", h.from+h.at, "in its header: "+msg, args...)
}

func (h *npyHeader) space() {
	for h.at < len(h.text) && isSpace(h.text[h.at]) {
		h.at++
	}
}

// take skips white space and then c, if it is there.
func (h *npyHeader) take(c byte) bool {
	h.space()
	if h.at < len(h.text) && h.text[h.at] == c {
		h.at++
		return true
	}
	return false
}

func (h *npyHeader) word(w string) bool {
	h.space()
	if bytes.HasPrefix(h.text[h.at:], []byte(w)) {
		h.at += len(w)
		return true
	}
	return false
}

func (h *npyHeader) parse(n *NPY) error {
	if !h.take('{') {
		return h.fault("no dictionary")
	}
	seen := 0
	for !h.take('}') {
		if seen > 0 && !h.take(',') {
			return h.fault("no comma")
		}
		if seen > 0 && h.take('}') {
			break
		}
		key, err := h.string()
		if err != nil {
			return err
		}
		if !h.take(':') {
			return h.fault("no colon behind %q", key)
		}
		bit := 0
		switch string(key) {
		case "descr":
			bit, err = 1, h.descr(n)
		case "fortran_order":
			bit = 2
			if n.Fortran = h.word("True"); !n.Fortran && !h.word("False") {
				err = h.fault("fortran_order is neither True nor False")
			}
		case "shape":
			bit, err = 4, h.shape(n)
		default:
			err = h.fault("a key %q", shorten(key))
		}
		if err != nil {
			return err
		}
		if seen&bit != 0 {
			return h.fault("%s stands there twice", key)
		}
		seen |= bit
	}
	if h.space(); h.at != len(h.text) {
		return h.fault("something behind the dictionary")
	}
	if seen != 7 {
		return h.fault("it lacks one of descr, fortran_order and shape")
	}
	return nil
}

// string is a Python string without escapes.
func (h *npyHeader) string() ([]byte, error) {
	for _, quote := range []byte{'\'', '"'} {
		if h.take(quote) {
			end := bytes.IndexByte(h.text[h.at:], quote)
			if end < 0 {
				return nil, h.fault("a string without an end")
			}
			s := h.text[h.at : h.at+end]
			h.at += end + 1
			return s, nil
		}
	}
	return nil, h.fault("no string where one should be")
}

func (h *npyHeader) descr(n *NPY) error {
	if h.space(); h.at < len(h.text) && h.text[h.at] == '[' {
		return unsupported("npy", "a structured type")
	}
	s, err := h.string()
	if err != nil {
		return err
	}
	if len(s) < 3 {
		return unsupported("npy", "elements of type %q", shorten(s))
	}
	n.BigEndian = s[0] == '>'
	switch string(s[1:]) {
	case "b1":
		n.DType = Bool
	case "u1":
		n.DType = Uint8
	case "i1":
		n.DType = Int8
	case "u2":
		n.DType = Uint16
	case "u4":
		n.DType = Uint32
	case "u8":
		n.DType = Uint64
	case "i2":
		n.DType = Int16
	case "i4":
		n.DType = Int32
	case "i8":
		n.DType = Int64
	case "f2":
		n.DType = Float16
	case "V2":
		// What ml_dtypes writes, whose bfloat16 NumPy does not know. Two bytes that are
		// no number at all it writes as |V2.
		n.DType = BFloat16
	case "f4":
		n.DType = Float32
	case "f8":
		n.DType = Float64
	default:
		return unsupported("npy", "elements of type %q", shorten(s))
	}
	if s[0] != '<' && s[0] != '>' && (s[0] != '|' || n.DType.Size() > 1) {
		return unsupported("npy", "elements of type %q", shorten(s))
	}
	return nil
}

// shape is a tuple of integers.
func (h *npyHeader) shape(n *NPY) error {
	if !h.take('(') {
		return h.fault("the shape is no tuple")
	}
	n.Shape = n.Shape[:0]
	for !h.take(')') {
		h.space()
		from := h.at
		for h.at < len(h.text) && h.text[h.at] >= '0' && h.text[h.at] <= '9' {
			h.at++
		}
		d, err := strconv.ParseInt(string(h.text[from:h.at]), 10, strconv.IntSize)
		if err != nil {
			return h.fault("a dimension is no number")
		}
		if len(n.Shape) == maxRank {
			return unsupported("npy", "more than %d dimensions", maxRank)
		}
		n.Shape = append(n.Shape, int(d))
		h.take('L') // Python 2's
		if comma := h.take(','); !comma {
			if len(n.Shape) == 1 || !h.take(')') {
				return h.fault("the shape is no tuple")
			}
			break
		}
	}
	return nil
}

// chunk is how many elements are converted at once.
const chunk = 256

// convert appends the elements.
func (a *Array) convert(n *NPY) error {
	size := n.DType.Size()
	count := len(n.Data) / size
	a.grow(count * a.DType.Size())
	fortran := n.Fortran && len(n.Shape) > 1
	same := a.DType == n.DType && a.DType != Bool // bits stay as they are, of NaNs too
	if same && !fortran {
		from := len(a.Data)
		a.Data = append(a.Data, n.Data...)
		if n.BigEndian != bigEndian {
			swap(a.Data[from:], size)
		}
		return nil
	}
	var place [maxRank]int // in C's order, of the next element to be moved
	var moved [8 * chunk]byte
	for from := 0; from < count; from += chunk {
		k := min(chunk, count-from)
		data := n.Data[from*size:][:k*size]
		if fortran {
			data = moved[:k*size]
			for i := range k {
				copy(data[i*size:][:size], n.Data[n.offset(&place)*size:])
				for d := len(n.Shape) - 1; d >= 0; d-- {
					if place[d]++; place[d] < n.Shape[d] {
						break
					}
					place[d] = 0
				}
			}
		}
		if order := same && bigEndian; n.BigEndian != order {
			data = moved[:copy(moved[:], data)]
			swap(data, size)
		}
		if same {
			a.Data = append(a.Data, data...)
		} else if at := a.put(n.DType, data, k); at < k {
			return mismatch("element %d does not fit %s", from+at, a.DType)
		}
	}
	return nil
}

// swap reverses the bytes of each element.
func swap(data []byte, size int) {
	if size == 1 {
		return
	}
	for ; len(data) >= size; data = data[size:] {
		slices.Reverse(data[:size])
	}
}

// offset is where the element at a place lies in Fortran's order.
func (n *NPY) offset(place *[maxRank]int) (at int) {
	for d := len(n.Shape) - 1; d >= 0; d-- {
		at = at*n.Shape[d] + place[d]
	}
	return at
}

// bigEndian is the machine's order.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// put appends k little-endian elements of type d, or as many as fit, and returns how
// many.
func (a *Array) put(d DType, data []byte, k int) int {
	order := binary.LittleEndian
	for i := range k {
		fits := false
		switch d {
		case Bool:
			fits = a.putInt(int64(b2i(data[i] != 0)))
		case Uint8:
			fits = a.putInt(int64(data[i]))
		case Int8:
			fits = a.putInt(int64(int8(data[i])))
		case Uint16:
			fits = a.putInt(int64(order.Uint16(data[2*i:])))
		case Int16:
			fits = a.putInt(int64(int16(order.Uint16(data[2*i:]))))
		case Uint32:
			fits = a.putInt(int64(order.Uint32(data[4*i:])))
		case Int32:
			fits = a.putInt(int64(int32(order.Uint32(data[4*i:]))))
		case Uint64:
			fits = a.putUint(order.Uint64(data[8*i:]))
		case Int64:
			fits = a.putInt(int64(order.Uint64(data[8*i:])))
		case Float16:
			fits = a.putFloat(float64(Half(order.Uint16(data[2*i:])).Float32()))
		case BFloat16:
			fits = a.putFloat(float64(BHalf(order.Uint16(data[2*i:])).Float32()))
		case Float32:
			fits = a.putFloat(float64(math.Float32frombits(order.Uint32(data[4*i:]))))
		case Float64:
			fits = a.putFloat(math.Float64frombits(order.Uint64(data[8*i:])))
		}
		if !fits {
			return i
		}
	}
	return k
}

// AppendNPYHeader appends the header of an npy file, version 1.0, for an array in C's
// order and little-endian; its elements belong behind it. The header's length is a
// multiple of 64, as NumPy makes it. BFloat16 is the "<V2" that ml_dtypes writes, which
// NumPy loads as two bytes: see it as ml_dtypes.bfloat16 (a.view). It panics on a type
// that there is not.
func AppendNPYHeader(dst []byte, d DType, shape []int) []byte {
	descr, ok := npyDescr[d]
	if !ok {
		panic(fmt.Sprintf("typed: no type is called %q", d))
	}
	dims := make([]string, len(shape))
	for i, n := range shape {
		dims[i] = strconv.Itoa(n)
	}
	tuple := strings.Join(dims, ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, tuple)
	const before = 10
	size := (before+len(dict)+1+63)/64*64 - before
	dst = append(dst, npyMagic...)
	dst = append(dst, 1, 0, byte(size), byte(size>>8))
	dst = append(dst, dict...)
	dst = append(dst, strings.Repeat(" ", size-len(dict)-1)...)
	return append(dst, '\n')
}

var npyDescr = map[DType]string{
	Bool: "|b1", Uint8: "|u1", Uint16: "<u2", Uint32: "<u4", Uint64: "<u8",
	Int8: "|i1", Int16: "<i2", Int32: "<i4", Int64: "<i8", Float16: "<f2", BFloat16: "<V2", Float32: "<f4", Float64: "<f8",
}
