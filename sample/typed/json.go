package typed

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Path leads to a value in a JSON document: a pointer of RFC 6901, such as
// "/image/width" or "/boxes/0", in which "~1" is a slash and "~0" a tilde. Beyond that
// RFC, "*" alone stands for every element of an array: "/objects/*/bbox" are the member
// bbox of each element of objects, one after the other, with one dimension more. (A
// member that is called "*" is "~2".) Empty, it is the whole document.
type Path struct {
	text  string
	steps []step
}

type step struct {
	name string
	all  bool // every element of an array
}

// maxRank bounds the dimensions of arrays.
const maxRank = 32

// ParsePath reads a path.
func ParsePath(text string) (Path, error) {
	p := Path{text: text}
	if text == "" {
		return p, nil
	}
	if text[0] != '/' {
		return p, fmt.Errorf("path %q does not begin with a slash", text)
	}
	stars := 0
	for _, name := range strings.Split(text[1:], "/") {
		if name == "*" {
			stars++
			p.steps = append(p.steps, step{all: true})
			continue
		}
		for rest := name; ; {
			at := strings.IndexByte(rest, '~')
			if at < 0 {
				break
			}
			if rest = rest[at+1:]; rest == "" || rest[0] < '0' || rest[0] > '2' {
				return p, fmt.Errorf("path %q: a tilde is written ~0, a slash ~1, a star ~2", text)
			}
		}
		p.steps = append(p.steps, step{name: unescapeStep.Replace(name)})
	}
	if stars > maxRank {
		return p, fmt.Errorf("path %q has more than %d stars", text, maxRank)
	}
	return p, nil
}

var unescapeStep = strings.NewReplacer("~0", "~", "~1", "/", "~2", "*")

// String is the text that ParsePath was given.
func (p Path) String() string { return p.text }

// ErrNotFound is wrapped by errors that say that a document has nothing at a path.
var ErrNotFound = errors.New("there is nothing")

// DecodeJSON reads the number or numbers at a path; by default as Float32. Arrays within
// arrays become dimensions and must be of equal length; false and true are 0 and 1. An
// object in which a name stands twice has the later value. Where nothing is at the path
// the error wraps ErrNotFound; what only one of several elements lacks is a
// MismatchError.
func (a *Array) DecodeJSON(data []byte, p Path) error {
	if err := a.natural(Float32); err != nil {
		return err
	}
	d, err := parse(data)
	if err != nil {
		return err
	}
	a.rank = -1
	if err := a.walk(d, d.space(0), p.steps, 0); err != nil {
		if p.text != "" {
			err = fmt.Errorf("at %s: %w", p.text, err)
		}
		return err
	}
	return nil
}

// DecodeJSONText reads the string at a path, as DecodeText does its bytes.
func (a *Array) DecodeJSONText(data []byte, p Path) error {
	if err := a.natural(Uint8); err != nil {
		return err
	}
	d, err := parse(data)
	if err != nil {
		return err
	}
	at := d.space(0)
	for _, s := range p.steps {
		if s.all {
			return fmt.Errorf("at %s: %w", p.text, mismatch("a text is a single string, not one of every element"))
		}
		if at, err = d.member(at, s.name); err != nil {
			return fmt.Errorf("at %s: %w", p.text, err)
		}
	}
	text, err := d.text(at)
	if err == nil {
		err = a.putText(text)
	}
	if err != nil && p.text != "" {
		err = fmt.Errorf("at %s: %w", p.text, err)
	}
	return err
}

// document is JSON whose syntax is known to be right.
type document []byte

func parse(data []byte) (document, error) {
	if json.Valid(data) {
		return data, CheckText(data)
	}
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	at, broken := 0, (*json.SyntaxError)(nil)
	if errors.As(err, &broken) {
		at = int(broken.Offset)
	}
	return nil, malformed("JSON", at, "%v", err)
}

// walk appends what is at a path from the value at at.
func (a *Array) walk(d document, at int, steps []step, depth int) error {
	if len(steps) == 0 {
		return a.numbers(d, at, depth)
	}
	if !steps[0].all {
		next, err := d.member(at, steps[0].name)
		if err != nil {
			if depth > 0 && errors.Is(err, ErrNotFound) {
				err = mismatch("one of the elements lacks it: %v", err)
			}
			return err
		}
		return a.walk(d, next, steps[1:], depth)
	}
	if d[at] != '[' {
		return mismatch("%s, where * wants an array", d.kind(at))
	}
	return a.elements(d, at, steps[1:], depth)
}

// numbers appends the number or array at at.
func (a *Array) numbers(d document, at, depth int) error {
	switch c := d[at]; {
	case c == '[':
		return a.elements(d, at, nil, depth)
	case c == '-' || c >= '0' && c <= '9' || c == 't' || c == 'f':
		if a.rank < 0 {
			a.rank = depth
		}
		if a.rank != depth || len(a.Shape) > depth {
			return mismatch("numbers and arrays stand side by side")
		}
		return a.number(d[at:d.end(at)])
	}
	return mismatch("%s, where numbers are wanted", d.kind(at))
}

// elements appends what is at a path from each element of the array at at, which makes
// the dimension depth.
func (a *Array) elements(d document, at int, steps []step, depth int) error {
	if depth == maxRank {
		return mismatch("more than %d dimensions", maxRank)
	}
	if a.rank >= 0 && depth >= a.rank {
		return mismatch("numbers and arrays stand side by side")
	}
	if depth == len(a.Shape) {
		a.Shape = append(a.Shape, -1)
	}
	n := 0
	for at = d.space(at + 1); d[at] != ']'; n++ {
		if err := a.walk(d, at, steps, depth+1); err != nil {
			return err
		}
		if at = d.space(d.end(at)); d[at] == ',' {
			at = d.space(at + 1)
		}
	}
	if a.Shape[depth] >= 0 && a.Shape[depth] != n {
		return mismatch("arrays of different lengths, %d and %d, stand side by side", a.Shape[depth], n)
	}
	a.Shape[depth] = n
	return nil
}

func (a *Array) number(text []byte) error {
	fits := false
	switch {
	case text[0] == 't' || text[0] == 'f':
		v := int64(0)
		if text[0] == 't' {
			v = 1
		}
		fits = a.putInt(v)
	case isInteger(text) && len(text) < 19:
		v := int64(0)
		for _, c := range text {
			if c != '-' {
				v = 10*v + int64(c-'0')
			}
		}
		if text[0] == '-' {
			v = -v
		}
		fits = a.putInt(v)
	case isInteger(text) && len(text) <= 20:
		if v, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			fits = a.putInt(v)
		} else if v, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			fits = a.putUint(v)
		} else if a.isFloat() {
			fits = a.float(text)
		}
	case len(text) > maxNumber:
	default:
		fits = a.float(text)
	}
	if !fits {
		return mismatch("%s does not fit %s", shorten(text), a.DType)
	}
	return nil
}

// float rounds text to a float64, or at once to the float32 that is wanted.
func (a *Array) float(text []byte) bool {
	bits := 64
	if a.DType == Float32 {
		bits = 32
	}
	v, err := strconv.ParseFloat(string(text), bits)
	return err == nil && a.putFloat(v)
}

func (a *Array) isFloat() bool {
	return a.DType == Float16 || a.DType == BFloat16 || a.DType == Float32 || a.DType == Float64
}

func isInteger(text []byte) bool {
	for _, c := range text {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// space is the first place from at on that is no white space.
func (d document) space(at int) int {
	for at < len(d) && isSpace(d[at]) {
		at++
	}
	return at
}

// end is the place behind the value at at.
func (d document) end(at int) int {
	switch d[at] {
	case '"':
		for at++; d[at] != '"'; at++ {
			if d[at] == '\\' {
				at++
			}
		}
		return at + 1
	case '{', '[':
		depth := 0
		for {
			switch d[at] {
			case '"':
				at = d.end(at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if at++; depth == 0 {
				return at
			}
		}
	}
	for at < len(d) && d[at] != ',' && d[at] != ']' && d[at] != '}' && !isSpace(d[at]) {
		at++
	}
	return at
}

// member is the place of the value of a name in the object at at, or of an element in
// the array.
func (d document) member(at int, name string) (int, error) {
	switch d[at] {
	case '{':
		found := -1
		for at = d.space(at + 1); d[at] != '}'; {
			key := at
			at = d.end(at)
			value := d.space(d.space(at) + 1) // behind the colon
			if d.isKey(key, at, name) {
				found = value
			}
			if at = d.space(d.end(value)); d[at] == ',' {
				at = d.space(at + 1)
			}
		}
		if found >= 0 {
			return found, nil
		}
		return 0, fmt.Errorf("%w: no member %q", ErrNotFound, name)
	case '[':
		want, err := strconv.Atoi(name)
		if err != nil || want < 0 || strconv.Itoa(want) != name {
			return 0, mismatch("%q is no place in an array", name)
		}
		n := 0
		for at = d.space(at + 1); d[at] != ']'; n++ {
			if n == want {
				return at, nil
			}
			if at = d.space(d.end(at)); d[at] == ',' {
				at = d.space(at + 1)
			}
		}
		return 0, fmt.Errorf("%w: no element %d of %d", ErrNotFound, want, n)
	}
	return 0, mismatch("%s, where an object with a member %q is wanted", d.kind(at), name)
}

// isKey says that the string from key to end is name.
func (d document) isKey(key, end int, name string) bool {
	raw := d[key+1 : end-1]
	for _, c := range raw {
		if c == '\\' {
			var s string
			return json.Unmarshal(d[key:end], &s) == nil && s == name
		}
	}
	return string(raw) == name
}

// text is the string at at.
func (d document) text(at int) ([]byte, error) {
	if d[at] != '"' {
		return nil, mismatch("%s, where a string is wanted", d.kind(at))
	}
	quoted := d[at:d.end(at)]
	raw := quoted[1 : len(quoted)-1]
	for _, c := range raw {
		if c == '\\' {
			var s string
			if err := json.Unmarshal(quoted, &s); err != nil {
				return nil, malformed("JSON", at, "%v", err)
			}
			return []byte(s), nil
		}
	}
	return raw, nil
}

// kind names the value at at for errors.
func (d document) kind(at int) string {
	switch d[at] {
	case '{':
		return "an object is there"
	case '[':
		return "an array is there"
	case '"':
		return "a string is there"
	case 'n':
		return "null is there"
	case 't', 'f':
		return "a boolean is there"
	}
	return "a number is there"
}
