package entropy

import "shardify/imaging/jpeg/internal/blocks"

// lanes is how many streams are decoded at once: as many as their state fits the
// registers of amd64.
const lanes = 4

// Group decodes with several lanes. Its zero value is ready.
type Group struct {
	kernel kernel
	lane   [lanes]*strand
	owner  [lanes]int
	n      int
}

// Decode decodes the windows that the decoders have begun, and gives every strip to
// sink, with the number of its decoder; those of one decoder come in order. An
// error that sink returns, or that a file makes, ends that decoder's part, and is
// in errs at its number; the other decoders go on. errs has a place for each.
func (g *Group) Decode(ds []*Decoder, errs []error, sink func(i int, s *blocks.Strip) error) {
	g.n = 0
	for i, d := range ds {
		errs[i] = nil
		if d.several {
			errs[i] = sink(i, &d.strip)
		}
	}
	first := 0 // decoders before it have nothing more to begin
	for {
		for i := first; g.n < lanes && i < len(ds); {
			var t *strand
			if errs[i] == nil {
				t = ds[i].take()
			}
			if t == nil {
				if i == first && (errs[i] != nil || ds[i].begun()) {
					first++
				}
				i++
				continue
			}
			g.begin(i, t, ds, errs, sink)
		}
		if g.n == 0 {
			return
		}
		j := g.kernel.run(g.lane[:g.n])
		t, i := g.lane[j], g.owner[j]
		if errs[i] != nil { // another strand of its met an error
			g.remove(j)
			continue
		}
		t.done()
		more, err := ds[i].more(t, func(s *blocks.Strip) error { return sink(i, s) })
		errs[i] = err
		if more && err == nil {
			g.kernel.load(j, t)
		} else {
			g.remove(j)
		}
	}
}

// begin puts a strand into a lane.
func (g *Group) begin(i int, t *strand, ds []*Decoder, errs []error, sink func(i int, s *blocks.Strip) error) {
	more, err := ds[i].more(t, func(s *blocks.Strip) error { return sink(i, s) })
	errs[i] = err
	if !more || err != nil {
		return
	}
	g.lane[g.n], g.owner[g.n] = t, i
	g.kernel.load(g.n, t)
	g.n++
}

// remove closes lane j; the last one takes its place.
func (g *Group) remove(j int) {
	g.n--
	g.lane[j], g.owner[j] = g.lane[g.n], g.owner[g.n]
	g.lane[g.n] = nil
	g.kernel.move(j, g.n)
}

// begun tells whether all of the decoder's strands have been taken.
func (d *Decoder) begun() bool {
	if d.entries != nil {
		return d.opened == d.window.Y1
	}
	return d.busy || d.several
}
