package stream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds against slips of the keyboard.
const (
	maxNames   = 1 << 20 // that patterns expand to
	maxPattern = 1 << 16 // bytes
	maxNesting = 64
)

// List returns the streams that names and patterns mean, in their order: braces
// expanded, then patterns (doublestar's *, ?, **) matched and folders walked, each in
// the order of their files' names. Of a folder, and of no other, come the files that
// want accepts, without hidden ones. What lies on a disk must be there.
func List(patterns []string, want func(path string) bool) ([]string, error) {
	var all []string
	for _, pattern := range patterns {
		if pattern == Stdin || isThere(pattern) {
			found, err := listOne(pattern, want)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			continue
		}
		names, err := Expand(pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found, err := listOne(name, want)
			if err != nil {
				return nil, err
			}
			if len(all)+len(found) > maxNames {
				return nil, fmt.Errorf("%q: %w: more than %d streams", pattern, fs.ErrInvalid, maxNames)
			}
			all = append(all, found...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no streams are named")
	}
	if first := slices.Index(all, Stdin); first >= 0 && slices.Contains(all[first+1:], Stdin) {
		return nil, fmt.Errorf("standard input, %q, %w: it is named twice", Stdin, fs.ErrInvalid)
	}
	return all, nil
}

// isThere says that a name with whatever braces is that of a file.
func isThere(name string) bool {
	if IsHTTP(name) {
		return false
	}
	_, err := os.Lstat(name)
	return err == nil
}

func listOne(name string, want func(string) bool) ([]string, error) {
	if name == Stdin || IsHTTP(name) {
		return []string{name}, nil
	}
	path, err := pathOf(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	var found []string
	switch {
	case err == nil && info.IsDir():
		found, err = walk(path, want)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s: %w: no shards in this folder", path, fs.ErrNotExist)
		}
	case err == nil:
		found = []string{path}
	case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?["):
		found, err = doublestar.FilepathGlob(path, doublestar.WithFilesOnly())
		slices.Sort(found)
		if err != nil {
			err = fmt.Errorf("%q: %w", path, err)
		} else if len(found) == 0 {
			err = fmt.Errorf("%q: %w: the pattern fits no file", path, fs.ErrNotExist)
		}
	}
	return found, err
}

// walk lists the files of a folder.
func walk(dir string, want func(string) bool) (found []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && want(path):
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// Expand expands the braces of a pattern, as bash and Python's braceexpand do, which
// webdataset uses:
//
//	{a,b,c}        each of them; they may hold braces, and be empty
//	{000..146}     numbers, padded with zeros to the longer one's length if one has any
//	{0..100..10}   every tenth; also downwards
//	{a..f}         letters
//
// Braces without comma or range stay as they are; \{, \} and \, stand for themselves.
// A brace without its other half is an error, and so are more than 1,048,576 results.
func Expand(pattern string) ([]string, error) {
	fault := func(format string, args ...any) ([]string, error) {
		shown := Shown(pattern)
		if len(shown) > 200 {
			shown = shown[:200] + "…"
		}
		return nil, fmt.Errorf("pattern %q: %w: %s", shown, fs.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if len(pattern) > maxPattern {
		return fault("it has %d bytes, the most is %d", len(pattern), maxPattern)
	}
	if !strings.ContainsAny(pattern, `{}\`) {
		return []string{pattern}, nil
	}
	p := parser{text: pattern}
	whole, err := p.sequence(0)
	if err != nil {
		return fault("%v", err)
	}
	if p.at < len(pattern) {
		return fault("the } at byte %d closes nothing; write \\} for one that stands for itself", p.at)
	}
	n, bytes := whole.count()
	if n > maxNames || bytes > maxNames*128 {
		return fault("it expands to more than %d names", maxNames)
	}
	return whole.expand(), nil
}

// node is a part of a pattern: a text, a sequence of nodes, a choice among them, or a
// range.
type node struct {
	text   string
	parts  []node
	choice bool
	rng    *numbers
}

// numbers is a range, of numbers or of letters.
type numbers struct {
	from, to, step int64 // step has the direction
	width          int
	letters        bool
}

// alphabet is the order of letters in braceexpand.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

type parser struct {
	text string
	at   int
}

// sequence parses up to the end, or within braces to the comma or brace that ends it.
func (p *parser) sequence(depth int) (node, error) {
	var seq node
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			seq.parts = append(seq.parts, node{text: text.String()})
			text.Reset()
		}
	}
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '\\' && p.at+1 < len(p.text) && strings.IndexByte("{},", p.text[p.at+1]) >= 0:
			text.WriteByte(p.text[p.at+1])
			p.at += 2
		case c == '{':
			flush()
			n, err := p.braces(depth + 1)
			if err != nil {
				return seq, err
			}
			seq.parts = append(seq.parts, n)
		case c == '}', c == ',' && depth > 0:
			flush()
			return seq, nil
		default:
			text.WriteByte(c)
			p.at++
		}
	}
	flush()
	return seq, nil
}

var rangePattern = regexp.MustCompile(`^(-?[0-9]+)\.\.(-?[0-9]+)(?:\.\.(-?[0-9]+))?$|^([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?[0-9]+))?$`)

// braces parses from a brace to the one that closes it.
func (p *parser) braces(depth int) (node, error) {
	open := p.at
	if depth > maxNesting {
		return node{}, fmt.Errorf("braces within braces, %d deep", depth)
	}
	p.at++
	if end := strings.IndexByte(p.text[p.at:], '}'); end >= 0 {
		if r := rangeOf(p.text[p.at : p.at+end]); r != nil {
			p.at += end + 1
			return node{rng: r}, nil
		}
	}
	choice := node{choice: true}
	for {
		seq, err := p.sequence(depth)
		if err != nil {
			return node{}, err
		}
		choice.parts = append(choice.parts, seq)
		if p.at == len(p.text) {
			return node{}, fmt.Errorf("the { at byte %d is not closed; write \\{ for one that stands for itself", open)
		}
		p.at++
		if p.text[p.at-1] == '}' {
			break
		}
	}
	if len(choice.parts) == 1 {
		return node{parts: []node{{text: "{"}, choice.parts[0], {text: "}"}}}, nil
	}
	return choice, nil
}

// rangeOf is the range that stands between braces; nil where there is none.
func rangeOf(text string) *numbers {
	m := rangePattern.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	r := &numbers{step: 1}
	left, right, step := m[1], m[2], m[3]
	if left == "" {
		r.letters = true
		step = m[6]
		r.from, r.to = int64(strings.Index(alphabet, m[4])), int64(strings.Index(alphabet, m[5]))
	} else {
		var err1, err2 error
		r.from, err1 = strconv.ParseInt(left, 10, 64)
		r.to, err2 = strconv.ParseInt(right, 10, 64)
		const most = 1 << 60 // differences are no overflow
		if err1 != nil || err2 != nil || max(r.from, -r.from) > most || max(r.to, -r.to) > most || len(left) > 64 || len(right) > 64 {
			return nil
		}
		for _, s := range []string{left, right} {
			if digits := strings.TrimPrefix(s, "-"); len(digits) > 1 && digits[0] == '0' {
				r.width = max(len(left), len(right))
			}
		}
	}
	if step != "" {
		n, err := strconv.ParseInt(step, 10, 32)
		if err != nil {
			return nil
		}
		if n = max(n, -n); n > 0 {
			r.step = n
		}
	}
	if r.from > r.to {
		r.step = -r.step
	}
	return r
}

func (r *numbers) len() int64 { return (r.to-r.from)/r.step + 1 }

// count is the number of results, and the bytes of all; more than maxNames is any
// number above.
func (n *node) count() (results, bytes int64) {
	const much = 1 << 40
	clamp := func(a int64) int64 { return min(a, much) }
	switch {
	case n.rng != nil:
		k := clamp(n.rng.len())
		return k, clamp(k * int64(max(n.rng.width, 20)))
	case n.choice:
		for i := range n.parts {
			r, b := n.parts[i].count()
			results, bytes = clamp(results+r), clamp(bytes+b)
		}
		return results, bytes
	}
	results, bytes = 1, int64(len(n.text))
	for i := range n.parts {
		r, b := n.parts[i].count()
		if results > maxNames || r > maxNames || bytes > maxNames*128 || b > maxNames*128 {
			return much, much
		}
		results, bytes = clamp(results*r), clamp(bytes*r+b*results)
	}
	return results, bytes
}

func (n *node) expand() []string {
	switch {
	case n.rng != nil:
		list := make([]string, 0, n.rng.len())
		for i, v := int64(0), n.rng.from; i < n.rng.len(); i, v = i+1, v+n.rng.step {
			if n.rng.letters {
				list = append(list, alphabet[v:v+1])
			} else {
				list = append(list, fmt.Sprintf("%0*d", n.rng.width, v))
			}
		}
		return list
	case n.choice:
		var list []string
		for i := range n.parts {
			list = append(list, n.parts[i].expand()...)
		}
		return list
	}
	list := []string{n.text}
	for i := range n.parts {
		more := n.parts[i].expand()
		next := make([]string, 0, len(list)*len(more))
		for _, head := range list {
			for _, tail := range more {
				next = append(next, head+tail)
			}
		}
		list = next
	}
	return list
}
