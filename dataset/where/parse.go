package where

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"shardify/index"
)

// Parse parses a condition. fields, if not nil, are the names of the fields that
// the data set has: others are then an error. Errors are a *SyntaxError.
func Parse(condition string, fields []string) (*Filter, error) {
	p := &parser{in: condition, what: "condition", fields: fields, example: "label_name = 'tench' and width >= 500"}
	root, err := p.parse((*parser).condition)
	if err != nil {
		return nil, err
	}
	return &Filter{condition, root}, nil
}

// ParseNumber parses an expression that gives a number for a row, such as
// "width / height" or "txt.size". fields and errors are as for Parse.
func ParseNumber(expression string, fields []string) (*Number, error) {
	p := &parser{in: expression, what: "expression", fields: fields, example: "width / height"}
	root, err := p.parse((*parser).number)
	if err != nil {
		return nil, err
	}
	return &Number{expression, root}, nil
}

// limits on a condition: it comes from a command line.
const (
	maxText  = 1 << 20
	maxDepth = 200
)

// The kinds of tokens.
type tokenKind uint8

const (
	end     tokenKind = iota
	word              // a name or a word of the language
	quoted            // "name"
	literal           // 'text'
	number
	sign // an operator or bracket
)

type token struct {
	kind tokenKind
	text string // without quotes
	pos  int
}

// is says whether the token is the word or sign s, which is in lower case.
func (t token) is(s string) bool {
	return t.kind == word && strings.EqualFold(t.text, s) || t.kind == sign && t.text == s
}

func (t token) String() string {
	switch t.kind {
	case end:
		return "the end"
	case literal:
		return "'" + t.text + "'"
	}
	return strconv.Quote(t.text)
}

type parser struct {
	in string
	// what the text is, and example what could be written there.
	what, example string
	fields        []string
	at            int
	tok           token
	depth         int
}

// fault is raised by panic and caught by parse: a recursive parser has one way out.
type fault struct{ err *SyntaxError }

func (p *parser) fail(pos int, format string, args ...any) {
	panic(fault{&SyntaxError{p.in, pos, fmt.Sprintf(format, args...), p.what}})
}

// parse parses all of the text; want makes sure that it is of the right kind.
func (p *parser) parse(want func(p *parser, n node, pos int) node) (n node, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				panic(r)
			}
			err = f.err
		}
	}()
	if len(p.in) > maxText {
		return n, &SyntaxError{p.in[:0], 0, fmt.Sprintf("it is longer than %d bytes", maxText), p.what}
	}
	if !utf8.ValidString(p.in) {
		return n, &SyntaxError{strings.ToValidUTF8(p.in, "?"), 0, "it is not UTF-8", p.what}
	}
	p.next()
	if p.tok.kind == end {
		p.fail(0, "it is empty; write, for example, %s", p.example)
	}
	n = p.or()
	if p.tok.kind != end {
		p.fail(p.tok.pos, "and, or or the end should stand here, not %s", p.tok)
	}
	return want(p, n, 0), nil
}

// next reads the next token.
func (p *parser) next() {
	for p.at < len(p.in) && strings.IndexByte(" \t\r\n", p.in[p.at]) >= 0 {
		p.at++
	}
	start := p.at
	if start == len(p.in) {
		p.tok = token{end, "", start}
		return
	}
	c := p.in[start]
	switch {
	case c == '\'' || c == '"':
		var b strings.Builder
		for i := start + 1; ; i++ {
			if i >= len(p.in) {
				p.fail(start, "the quote %c is not closed", c)
			}
			if p.in[i] == c {
				if i+1 < len(p.in) && p.in[i+1] == c {
					i++
				} else {
					p.at = i + 1
					break
				}
			}
			b.WriteByte(p.in[i])
		}
		kind := literal
		if c == '"' {
			kind = quoted
		}
		p.tok = token{kind, b.String(), start}
	case c >= '0' && c <= '9' || c == '.' && start+1 < len(p.in) && p.in[start+1] >= '0' && p.in[start+1] <= '9':
		i := start
		for i < len(p.in) && (p.in[i] >= '0' && p.in[i] <= '9' || p.in[i] == '.' || isLetter(p.in[i]) ||
			(p.in[i] == '+' || p.in[i] == '-') && (p.in[i-1] == 'e' || p.in[i-1] == 'E')) {
			i++
		}
		p.tok, p.at = token{number, p.in[start:i], start}, i
	case isLetter(c):
		i := start
		for i < len(p.in) && (isLetter(p.in[i]) || p.in[i] >= '0' && p.in[i] <= '9' || p.in[i] == '.') {
			i++
		}
		p.tok, p.at = token{word, p.in[start:i], start}, i
	default:
		for _, op := range []string{"<=", ">=", "<>", "!=", "==", "=", "<", ">", "(", ")", ",", "+", "-", "*", "/", "%"} {
			if strings.HasPrefix(p.in[start:], op) {
				p.tok, p.at = token{sign, op, start}, start+len(op)
				return
			}
		}
		r, _ := utf8.DecodeRuneInString(p.in[start:])
		switch {
		case r == '&' || r == '|':
			p.fail(start, "write and, or")
		case r == '!':
			p.fail(start, "write not, or != for unequal")
		case unicode.IsLetter(r):
			p.fail(start, "a name with %q is written in double quotes, a text in single ones", r)
		}
		p.fail(start, "%q has no meaning here", r)
	}
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// accept takes the next token if it is s.
func (p *parser) accept(s string) bool {
	if !p.tok.is(s) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(s, why string) {
	if !p.accept(s) {
		p.fail(p.tok.pos, "%s should stand here %s, not %s", s, why, p.tok)
	}
}

// condition makes sure that n is true or false.
func (p *parser) condition(n node, pos int) node {
	if n.kind != boolean && n.kind != null {
		p.fail(pos, "this is %s, not a condition: compare it with something (=, <, in, is null …)", n.kind)
	}
	return n
}

// number makes sure that n is a number.
func (p *parser) number(n node, pos int) node {
	if !n.kind.number() {
		p.fail(pos, "this is %s, not a number: write, for example, %s", n.kind, p.example)
	}
	return n
}

func (p *parser) enter() {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.tok.pos, "more than %d levels of brackets", maxDepth)
	}
}

func (p *parser) or() node {
	p.enter()
	defer func() { p.depth-- }()
	pos := p.tok.pos
	a := p.and()
	for p.tok.is("or") {
		p.next()
		right := p.tok.pos
		x, y := p.condition(a, pos), p.condition(p.and(), right)
		a = node{boolean, func(r *index.Row) value {
			v := x.eval(r)
			if v.kind == boolean && v.i != 0 {
				return v
			}
			w := y.eval(r)
			if w.kind == boolean && w.i != 0 || v.kind == boolean {
				return w
			}
			return value{}
		}}
	}
	return a
}

func (p *parser) and() node {
	pos := p.tok.pos
	a := p.not()
	for p.tok.is("and") {
		p.next()
		right := p.tok.pos
		x, y := p.condition(a, pos), p.condition(p.not(), right)
		a = node{boolean, func(r *index.Row) value {
			v := x.eval(r)
			if v.kind == boolean && v.i == 0 {
				return v
			}
			w := y.eval(r)
			if w.kind == boolean && w.i == 0 || v.kind == boolean {
				return w
			}
			return value{}
		}}
	}
	return a
}

func (p *parser) not() node {
	if !p.accept("not") {
		return p.test()
	}
	p.enter()
	defer func() { p.depth-- }()
	pos := p.tok.pos
	return negation(p.condition(p.not(), pos))
}

func negation(n node) node {
	return node{boolean, func(r *index.Row) value {
		v := n.eval(r)
		if v.kind == boolean {
			v.i = 1 - v.i
		}
		return v
	}}
}

// comparisons maps operators to what they make of compare's result.
var comparisons = map[string]func(int) bool{
	"=": func(c int) bool { return c == 0 }, "==": func(c int) bool { return c == 0 },
	"!=": func(c int) bool { return c != 0 }, "<>": func(c int) bool { return c != 0 },
	"<": func(c int) bool { return c < 0 }, "<=": func(c int) bool { return c <= 0 },
	">": func(c int) bool { return c > 0 }, ">=": func(c int) bool { return c >= 0 },
}

func (p *parser) test() node {
	pos := p.tok.pos
	a := p.sum()
	if cmp, ok := comparisons[p.tok.text]; ok && p.tok.kind == sign {
		op := p.tok
		p.next()
		b := p.sum()
		p.comparable(a, b, op.pos)
		if _, chained := comparisons[p.tok.text]; chained && p.tok.kind == sign {
			p.fail(p.tok.pos, "comparisons do not chain: write a < b and b < c")
		}
		return node{boolean, func(r *index.Row) value {
			x, y := a.eval(r), b.eval(r)
			if x.kind == null || y.kind == null {
				return value{}
			}
			return truth(cmp(compare(x, y)))
		}}
	}
	if p.accept("is") {
		negate := p.accept("not")
		p.expect("null", "after is")
		return node{boolean, func(r *index.Row) value {
			return truth((a.eval(r).kind == null) != negate)
		}}
	}
	negate := false
	if p.tok.is("not") {
		p.next()
		negate = true
		if !p.tok.is("in") && !p.tok.is("between") && !p.tok.is("like") && !p.tok.is("ilike") {
			p.fail(p.tok.pos, "in, between, like or ilike should stand here after not, not %s", p.tok)
		}
	}
	var n node
	switch op := p.tok; {
	case p.accept("in"):
		n = p.among(a)
	case p.accept("between"):
		low := p.sum()
		p.comparable(a, low, op.pos)
		p.expect("and", "between the bounds of between")
		high := p.sum()
		p.comparable(a, high, op.pos)
		n = between(a, low, high)
	case p.tok.is("like"), p.tok.is("ilike"):
		p.next()
		n = p.like(a, pos, op.is("ilike"))
	default:
		return a
	}
	if negate {
		return negation(n)
	}
	return n
}

// comparable makes sure that a and b can be compared.
func (p *parser) comparable(a, b node, pos int) {
	if a.kind == null || b.kind == null || a.kind == b.kind || a.kind.number() && b.kind.number() {
		return
	}
	hint := ""
	if a.kind == text && b.kind.number() || b.kind == text && a.kind.number() {
		hint = "; numbers stand without quotes, and class names are in label_name, not label"
	}
	p.fail(pos, "%s cannot be compared with %s%s", a.kind, b.kind, hint)
}

func (p *parser) among(a node) node {
	p.expect("(", "after in")
	var list []node
	for {
		pos := p.tok.pos
		b := p.sum()
		p.comparable(a, b, pos)
		list = append(list, b)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")", "after the values of in")
	return node{boolean, func(r *index.Row) value {
		x := a.eval(r)
		if x.kind == null {
			return value{}
		}
		unknown := false
		for _, b := range list {
			y := b.eval(r)
			if y.kind == null {
				unknown = true
			} else if compare(x, y) == 0 {
				return truth(true)
			}
		}
		if unknown {
			return value{}
		}
		return truth(false)
	}}
}

func between(a, low, high node) node {
	return node{boolean, func(r *index.Row) value {
		x, lo, hi := a.eval(r), low.eval(r), high.eval(r)
		// As in SQL, this is x >= lo and x <= hi.
		switch {
		case x.kind == null:
			return value{}
		case lo.kind != null && compare(x, lo) < 0, hi.kind != null && compare(x, hi) > 0:
			return truth(false)
		case lo.kind == null, hi.kind == null:
			return value{}
		}
		return truth(true)
	}}
}

func (p *parser) like(a node, pos int, fold bool) node {
	if a.kind != text && a.kind != null {
		p.fail(pos, "like compares texts; this is %s", a.kind)
	}
	if p.tok.kind != literal {
		p.fail(p.tok.pos, "a pattern in single quotes should stand here after like, such as 'n014%%', not %s", p.tok)
	}
	prepare := func(s string) []rune {
		if fold {
			s = strings.ToLower(s)
		}
		return []rune(s)
	}
	pattern := prepare(p.tok.text)
	p.next()
	return node{boolean, func(r *index.Row) value {
		x := a.eval(r)
		if x.kind == null {
			return value{}
		}
		return truth(like(prepare(x.s), pattern))
	}}
}

func (p *parser) sum() node {
	pos := p.tok.pos
	a := p.product()
	for p.tok.is("+") || p.tok.is("-") {
		a = p.operator(a, pos, p.product)
	}
	return a
}

func (p *parser) product() node {
	pos := p.tok.pos
	a := p.unary()
	for p.tok.is("*") || p.tok.is("/") || p.tok.is("%") {
		a = p.operator(a, pos, p.unary)
	}
	return a
}

// operator parses the operator that stands next, and its right side.
func (p *parser) operator(a node, pos int, right func() node) node {
	op := p.tok.text[0]
	p.next()
	rightPos := p.tok.pos
	b := right()
	for _, side := range []struct {
		n   node
		pos int
	}{{a, pos}, {b, rightPos}} {
		if !side.n.kind.number() && side.n.kind != null {
			p.fail(side.pos, "%c works on numbers; this is %s", op, side.n.kind)
		}
	}
	k := integer
	if op == '/' || a.kind == real || b.kind == real {
		k = real
	}
	return node{k, func(r *index.Row) value {
		x, y := a.eval(r), b.eval(r)
		if x.kind == null || y.kind == null {
			return value{}
		}
		return arithmetic(op, x, y)
	}}
}

func (p *parser) unary() node {
	t := p.tok
	if p.accept("-") {
		p.enter()
		defer func() { p.depth-- }()
		pos := p.tok.pos
		a := p.unary()
		if !a.kind.number() && a.kind != null {
			p.fail(pos, "- works on numbers; this is %s", a.kind)
		}
		return node{a.kind, func(r *index.Row) value {
			x := a.eval(r)
			if x.kind == null {
				return x
			}
			return arithmetic('-', num(0), x)
		}}
	}
	p.next()
	switch t.kind {
	case number:
		if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			return constant(num(n))
		}
		f, err := strconv.ParseFloat(t.text, 64)
		if errors.Is(err, strconv.ErrRange) {
			p.fail(t.pos, "%s is too large", t.text)
		}
		if err != nil || strings.ContainsAny(t.text, "xXpP_") {
			p.fail(t.pos, "%q is no number", t.text)
		}
		return constant(value{kind: real, f: f})
	case literal:
		return constant(str(t.text))
	case quoted:
		return p.column(t)
	case word:
		switch strings.ToLower(t.text) {
		case "null":
			return constant(value{})
		case "true":
			return constant(truth(true))
		case "false":
			return constant(truth(false))
		case "and", "or", "not", "in", "is", "between", "like", "ilike":
			p.fail(t.pos, "a column or value should stand here, not the word %s", strings.ToLower(t.text))
		}
		return p.column(t)
	case sign:
		if t.text == "(" {
			n := p.or()
			p.expect(")", "after the brackets' content")
			return n
		}
	}
	p.fail(t.pos, "a column or value should stand here, not %s", t)
	panic("unreachable")
}

func (p *parser) column(t token) node {
	n, err := columnNode(t.text, p.fields)
	if err != nil {
		hint := ""
		if t.kind == quoted {
			hint = "; a text stands in single quotes"
		}
		p.fail(t.pos, "%v%s", err, hint)
	}
	return n
}
