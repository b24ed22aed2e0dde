package typed

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// maxNumber bounds the text of a single number.
const maxNumber = 400

// trim takes white space from both ends, and returns how much in front.
func trim(data []byte) ([]byte, int) {
	from, to := 0, len(data)
	for from < to && isSpace(data[from]) {
		from++
	}
	for from < to && isSpace(data[to-1]) {
		to--
	}
	return data[from:to], from
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// Int reads a decimal integer, with white space round it: "7", "-1\n".
func Int(data []byte) (int64, error) {
	text, at := trim(data)
	if len(text) > maxNumber {
		return 0, malformed("integer", at, "%d bytes are no integer", len(text))
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, mismatch("%s does not fit int64", text)
	case err != nil:
		return 0, malformed("integer", at, "%q is none", shorten(text))
	}
	return v, nil
}

// Float reads a number in decimal, with white space round it: "0.5", "1e-3\n", "nan".
func Float(data []byte) (float64, error) {
	text, at := trim(data)
	if len(text) > maxNumber {
		return 0, malformed("number", at, "%d bytes are no number", len(text))
	}
	for _, c := range text { // Go's own hexadecimals and underscores
		if c == '_' || c == 'x' || c == 'X' {
			return 0, malformed("number", at, "%q is none", shorten(text))
		}
	}
	v, err := strconv.ParseFloat(string(text), 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, mismatch("%s does not fit float64", text)
	case err != nil:
		return 0, malformed("number", at, "%q is none", shorten(text))
	}
	return v, nil
}

// CheckText reports where data is not UTF-8.
func CheckText(data []byte) error {
	if utf8.Valid(data) {
		return nil
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			return malformed("text", at, "byte %#02x is not UTF-8", data[at])
		}
		at += n
	}
}

// shorten cuts what is quoted in an error.
func shorten(text []byte) []byte { return text[:min(len(text), 40)] }

// DecodeInt reads an integer as Int does; by default as Int64. The shape is that of a
// single number.
func (a *Array) DecodeInt(data []byte) error {
	if err := a.natural(Int64); err != nil {
		return err
	}
	v, err := Int(data)
	if err == nil && !a.putInt(v) {
		err = mismatch("%d does not fit %s", v, a.DType)
	}
	return err
}

// DecodeFloat reads a number as Float does; by default as Float32. The shape is that of
// a single number.
func (a *Array) DecodeFloat(data []byte) error {
	if err := a.natural(Float32); err != nil {
		return err
	}
	v, err := Float(data)
	if err == nil && !a.putFloat(v) {
		err = mismatch("%v does not fit %s", v, a.DType)
	}
	return err
}

// DecodeText takes a text as its bytes, by default as Uint8; it must be UTF-8. The shape
// is [bytes].
func (a *Array) DecodeText(data []byte) error {
	if err := a.natural(Uint8); err != nil {
		return err
	}
	if err := CheckText(data); err != nil {
		return err
	}
	return a.putText(data)
}

func (a *Array) putText(text []byte) error {
	a.Shape = append(a.Shape, len(text))
	if a.DType == Uint8 {
		a.Data = append(a.Data, text...)
		return nil
	}
	for _, c := range text {
		if !a.putInt(int64(c)) {
			return mismatch("byte %d does not fit %s", c, a.DType)
		}
	}
	return nil
}
