package entropy

import "shardify/imaging/jpeg/internal/blocks"

// lanes is how many streams are decoded at once: as many as their state fits the
// registers of amd64.
const lanes = 4

// Files is how many files [Group.Decode] has open at most: each fills one lane at
// least.
const Files = lanes

// Source is where a group takes files from, and where it brings their blocks. A file
// goes by the number that Next gave it.
type Source interface {
	// Next returns a decoder that has begun, nil if there are no more.
	Next() (file int, d *Decoder)
	// Strip takes the next strip of a file. An error ends the file.
	Strip(file int, s *blocks.Strip) error
	// End says that a file has ended: all its strips have been taken, or there was
	// an error. Its decoder is free; Next is asked again, even if it had no more.
	End(file int, err error)
}

// Group decodes with several lanes. Its zero value is ready.
type Group struct {
	kernel kernel
	lane   [lanes]*strand
	n      int
	open   []opened
	source Source
	more   bool // the source may have another file
}

// opened is a file on its way.
type opened struct {
	d    *Decoder
	file int
}

// Decode decodes all files of the source, up to [Files] of them at once.
func (g *Group) Decode(source Source) {
	g.source, g.n, g.open = source, 0, g.open[:0]
	defer func() { g.source = nil }()
	g.more = true
	for {
		for g.n < lanes {
			t := g.take()
			if t == nil {
				break
			}
			if g.ready(t) {
				g.lane[g.n] = t
				g.kernel.load(g.n, t)
				g.n++
			}
		}
		if g.n == 0 {
			return
		}
		j := g.kernel.run(g.lane[:g.n])
		t := g.lane[j]
		t.done()
		if g.ready(t) {
			g.kernel.load(j, t)
		} else if j < g.n && g.lane[j] == t {
			g.remove(j)
		}
	}
}

// take returns a strand that no lane has yet; it opens files where the open ones
// have none.
func (g *Group) take() *strand {
	for i := range g.open {
		if t := g.open[i].d.take(); t != nil {
			return t
		}
	}
	for g.more && len(g.open) < Files {
		file, d := g.source.Next()
		if d == nil {
			g.more = false
			break
		}
		if d.several {
			g.source.End(file, g.source.Strip(file, &d.strip))
			g.more = true
			continue
		}
		g.open = append(g.open, opened{d, file})
		return d.take()
	}
	return nil
}

// ready prepares the next part of a strand, and tells whether there is one. What is
// finished goes to the source.
func (g *Group) ready(t *strand) bool {
	i := 0
	for g.open[i].d != t.d {
		i++
	}
	o := g.open[i]
	more, err := o.d.more(t, g, o.file)
	if err == nil && (more || o.d.given < o.d.window.Y1) {
		return more
	}
	for j := g.n - 1; j >= 0; j-- {
		if g.lane[j].d == o.d {
			g.kernel.drop(j)
			g.remove(j)
		}
	}
	g.open = append(g.open[:i], g.open[i+1:]...)
	g.source.End(o.file, err)
	g.more = true
	return false
}

// remove closes lane j; the last one takes its place.
func (g *Group) remove(j int) {
	g.n--
	g.lane[j] = g.lane[g.n]
	g.lane[g.n] = nil
	g.kernel.move(j, g.n)
}
