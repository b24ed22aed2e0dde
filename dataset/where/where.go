// Package where filters the rows of an index by a condition in the language of
// SQL's WHERE:
//
//	label_name = 'tench' and width >= 500
//
// [Parse] checks a condition once, [Filter.Match] then answers for each row.
// [ParseNumber] does the same for an expression that gives a number, a sum in the
// grammar below:
//
//	width / height
//
// The same text means the same to any SQL engine that reads the Parquet index, for
// as long as it names the columns of the index; the tests hold that against DuckDB.
// The columns of fields (jpg.size) are ours.
//
// # Grammar
//
//	condition  = and { "or" and }
//	and        = not { "and" not }
//	not        = [ "not" ] test
//	test       = sum [ ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) sum
//	               | "is" [ "not" ] "null"
//	               | [ "not" ] ( "in" "(" sum { "," sum } ")"
//	                           | "between" sum "and" sum
//	                           | ( "like" | "ilike" ) string ) ]
//	sum        = product { ( "+" | "-" ) product }
//	product    = unary { ( "*" | "/" | "%" ) unary }
//	unary      = [ "-" ] ( number | string | "null" | "true" | "false" | column | "(" condition ")" )
//	string     = "'" … "'"          a quote within is written twice
//	column     = name | '"' … '"'   with '"' where a name has other bytes than
//	             letters, digits, "_" and "."
//
// Words of the language and names of columns may be written in upper or lower case.
// "/" divides as real numbers do; what overflows or is divided by zero is null. In a
// pattern of like, "%" stands for any text and
// "_" for any one character; ilike takes no notice of case.
//
// As in SQL, a comparison with null (a row without a label, a sample without that
// field) is neither true nor false, and what is not true does not match: ask with
// "is null".
//
// # Columns
//
// [Columns] lists those of a row. Moreover, every field has FIELD.size,
// FIELD.offset, FIELD.header_offset, FIELD.crc32c and FIELD.path, null in samples
// without it: "jpg.size > 1000000", "seg.png.path is not null".
package where

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"shardify/index"
	"shardify/internal/nearest"
)

// Filter is a parsed condition. It is safe for concurrent use.
type Filter struct {
	text string
	root node
}

// String returns the text that the filter was parsed from.
func (f *Filter) String() string { return f.text }

// Match says whether the condition is true of the row.
func (f *Filter) Match(row *index.Row) bool {
	v := f.root.eval(row)
	return v.kind == boolean && v.i != 0
}

// Number is a parsed expression that gives a number. It is safe for concurrent use.
type Number struct {
	text string
	root node
}

// String returns the text that the number was parsed from.
func (n *Number) String() string { return n.text }

// Value returns the row's number, which is finite; ok is false where it is null.
func (n *Number) Value(row *index.Row) (x float64, ok bool) {
	v := n.root.eval(row)
	if v.kind == null {
		return 0, false
	}
	return v.float(), true
}

// A SyntaxError says what is wrong with a condition or an expression, and where.
type SyntaxError struct {
	// Text is the condition or expression and Pos the number of bytes before the fault.
	Text string
	Pos  int
	Msg  string
	what string // Text is
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s %q, at character %d: %s", e.what, e.Text, len([]rune(e.Text[:e.Pos]))+1, e.Msg)
}

// kind is the type of a value or of an expression.
type kind uint8

const (
	null kind = iota
	boolean
	integer
	real
	text
)

func (k kind) String() string {
	return [...]string{"null", "a condition", "a number", "a number", "a text"}[k]
}

func (k kind) number() bool { return k == integer || k == real }

// value is what an expression gives for a row.
type value struct {
	kind kind
	i    int64 // integer; boolean as 0 and 1
	f    float64
	s    string
}

func (v value) float() float64 {
	if v.kind == integer {
		return float64(v.i)
	}
	return v.f
}

func truth(b bool) value {
	if b {
		return value{kind: boolean, i: 1}
	}
	return value{kind: boolean}
}

// node is a part of a condition; its kind is known before any row is seen. null
// means that it is always null.
type node struct {
	kind kind
	eval func(*index.Row) value
}

func constant(v value) node {
	return node{v.kind, func(*index.Row) value { return v }}
}

// column is a column of a row.
type column struct {
	name string
	kind kind
	get  func(*index.Row) value
}

func num(n int64) value { return value{kind: integer, i: n} }

// known gives zero, which the index keeps for what is not known, as null.
func known(n int32) value {
	if n == 0 {
		return value{}
	}
	return num(int64(n))
}

func str(s string) value { return value{kind: text, s: s} }

func knownStr(s string) value {
	if s == "" {
		return value{}
	}
	return str(s)
}

var columns = []column{
	{"key", text, func(r *index.Row) value { return str(r.Key) }},
	{"label", integer, func(r *index.Row) value {
		if r.Label == nil {
			return value{}
		}
		return num(*r.Label)
	}},
	{"label_name", text, func(r *index.Row) value { return knownStr(r.LabelName) }},
	{"offset", integer, func(r *index.Row) value { return num(r.Offset) }},
	{"size", integer, func(r *index.Row) value { return num(r.Size) }},
	{"format", text, func(r *index.Row) value { return knownStr(r.Format) }},
	{"width", integer, func(r *index.Row) value { return known(r.Width) }},
	{"height", integer, func(r *index.Row) value { return known(r.Height) }},
	{"orientation", integer, func(r *index.Row) value { return known(r.Orientation) }},
	{"channels", integer, func(r *index.Row) value { return known(r.Channels) }},
}

// fieldColumn is a column that every field has.
type fieldColumn struct {
	name string
	kind kind
	get  func(*index.FieldRow) value
}

var fieldColumns = []fieldColumn{
	{"size", integer, func(f *index.FieldRow) value { return num(f.Size) }},
	{"offset", integer, func(f *index.FieldRow) value { return num(f.Offset) }},
	{"header_offset", integer, func(f *index.FieldRow) value { return num(f.HeaderOffset) }},
	{"crc32c", integer, func(f *index.FieldRow) value { return num(int64(f.CRC32C)) }},
	{"path", text, func(f *index.FieldRow) value { return knownStr(f.Path) }},
}

// Columns returns the names of a row's own columns.
func Columns() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// FieldColumns returns the names of the columns that each field has.
func FieldColumns() []string {
	names := make([]string, len(fieldColumns))
	for i, c := range fieldColumns {
		names[i] = c.name
	}
	return names
}

// A Column is a column of the rows, to look at apart from a condition.
type Column struct {
	Name string
	get  func(*index.Row) value
}

// Lookup finds a column by its name. fields are as for Parse.
func Lookup(name string, fields []string) (Column, error) {
	n, err := columnNode(name, fields)
	return Column{strings.ToLower(name), n.eval}, err
}

// Value returns the row's value: nil for null, an int64 or a string.
func (c Column) Value(row *index.Row) any {
	switch v := c.get(row); v.kind {
	case null:
		return nil
	case text:
		return v.s
	default:
		return v.i
	}
}

// columnNode finds a column by its name. fields, if not nil, are the names that
// fields may have.
func columnNode(name string, fields []string) (node, error) {
	name = strings.ToLower(name)
	for _, c := range columns {
		if c.name == name {
			return node{c.kind, c.get}, nil
		}
	}
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		field := name[:dot]
		for _, c := range fieldColumns {
			if c.name != name[dot+1:] {
				continue
			}
			if fields != nil && !slices.Contains(fields, field) {
				return node{}, fmt.Errorf("no field %q%s; the fields are %s", field, near(field, fields), strings.Join(fields, ", "))
			}
			return node{c.kind, func(r *index.Row) value {
				if f := r.Field(field); f != nil {
					return c.get(f)
				}
				return value{}
			}}, nil
		}
		return node{}, fmt.Errorf("no column %q; of a field there are %s.%s", name, field, strings.Join(FieldColumns(), ", "+field+"."))
	}
	example := "jpg"
	if len(fields) > 0 {
		example = fields[len(fields)-1]
	}
	return node{}, fmt.Errorf("no column %q%s; the columns are %s, and of each field such as %s.size",
		name, near(name, Columns()), strings.Join(Columns(), ", "), example)
}

func near(name string, names []string) string {
	if n := nearest.Name(name, names); n != "" {
		return fmt.Sprintf(" (did you mean %s?)", n)
	}
	return ""
}

// compare returns -1, 0 or 1; both values are numbers, or both are texts. Texts
// compare by their bytes.
func compare(a, b value) int {
	switch {
	case a.kind == text:
		return strings.Compare(a.s, b.s)
	case a.kind == integer && b.kind == integer, a.kind == boolean:
		switch {
		case a.i < b.i:
			return -1
		case a.i > b.i:
			return 1
		}
		return 0
	}
	// No index has NaN, and division by zero is null.
	x, y := a.float(), b.float()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// arithmetic applies + - * / %. What overflows, and division by zero, is null.
func arithmetic(op byte, a, b value) value {
	if a.kind == integer && b.kind == integer && op != '/' {
		x, y := a.i, b.i
		switch op {
		case '+':
			if s := x + y; (s > x) == (y > 0) {
				return num(s)
			}
		case '-':
			if s := x - y; (s < x) == (y > 0) {
				return num(s)
			}
		case '*':
			if x == 0 || y == 0 {
				return num(0)
			}
			if s := x * y; s/y == x && !(x == -1 && y == math.MinInt64) && !(y == -1 && x == math.MinInt64) {
				return num(s)
			}
		case '%':
			if y == -1 {
				return num(0)
			}
			if y != 0 {
				return num(x % y)
			}
		}
		return value{}
	}
	x, y := a.float(), b.float()
	var f float64
	switch op {
	case '+':
		f = x + y
	case '-':
		f = x - y
	case '*':
		f = x * y
	case '/':
		f = x / y
	case '%':
		f = math.Mod(x, y)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value{}
	}
	return value{kind: real, f: f}
}

// like says whether s fits a pattern of "%" and "_". It takes time in
// O(len(s)·len(pattern)), for any pattern.
func like(s, pattern []rune) bool {
	at, star, from := 0, -1, 0
	p := 0
	for at < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '%':
			star, from = p, at
			p++
		case p < len(pattern) && (pattern[p] == '_' || pattern[p] == s[at]):
			p++
			at++
		case star >= 0:
			from++
			p, at = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '%' {
		p++
	}
	return p == len(pattern)
}
