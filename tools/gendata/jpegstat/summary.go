package jpegstat

import (
	"fmt"
	"io"
	"sort"
	"text/tabwriter"
)

// Summary is what a set of files is like.
type Summary struct {
	Files int
	// Measures are the distributions of numbers, in the order they are shown.
	Measures []Measure
	// Shares are parts of the files, or of the blocks or coefficients of all files.
	Shares []Share
}

// Measure is the distribution of a number over files.
type Measure struct {
	Name   string
	values []float64 // sorted
}

// Mean is the arithmetic mean, 0 without values.
func (m *Measure) Mean() float64 {
	sum := 0.0
	for _, v := range m.values {
		sum += v
	}
	return sum / float64(max(len(m.values), 1))
}

// Percentile returns the p-th percentile, by linear interpolation.
func (m *Measure) Percentile(p float64) float64 {
	if len(m.values) == 0 {
		return 0
	}
	at := p / 100 * float64(len(m.values)-1)
	i := min(int(at), max(len(m.values)-2, 0))
	j := min(i+1, len(m.values)-1)
	return m.values[i] + (m.values[j]-m.values[i])*(at-float64(i))
}

// Share is a part of a whole, 0 to 1.
type Share struct {
	Name  string
	Value float64
}

// Measure returns the measure of a name. It panics if there is none.
func (s *Summary) Measure(name string) *Measure {
	for i := range s.Measures {
		if s.Measures[i].Name == name {
			return &s.Measures[i]
		}
	}
	panic("jpegstat: no measure " + name)
}

// Share returns the share of a name, 0 if there is none.
func (s *Summary) Share(name string) float64 {
	for _, sh := range s.Shares {
		if sh.Name == name {
			return sh.Value
		}
	}
	return 0
}

// Summarise summarises files.
func Summarise(files []File) *Summary {
	s := &Summary{Files: len(files)}
	measure := func(name string, f func(*File) (v float64, ok bool)) {
		m := Measure{Name: name}
		for i := range files {
			if v, ok := f(&files[i]); ok {
				m.values = append(m.values, v)
			}
		}
		sort.Float64s(m.values)
		s.Measures = append(s.Measures, m)
	}
	always := func(f func(*File) float64) func(*File) (float64, bool) {
		return func(x *File) (float64, bool) { return f(x), true }
	}
	pixels := func(f *File) float64 { return float64(f.Width) * float64(f.Height) }
	measure("bytes", always(func(f *File) float64 { return float64(f.Bytes) }))
	measure("width", always(func(f *File) float64 { return float64(f.Width) }))
	measure("height", always(func(f *File) float64 { return float64(f.Height) }))
	measure("megapixels", always(func(f *File) float64 { return pixels(f) / 1e6 }))
	measure("bits per pixel", always(func(f *File) float64 { return 8 * float64(f.Bytes) / pixels(f) }))
	measure("quality", always(func(f *File) float64 { return float64(f.Quality) }))
	measure("bytes of APPn and COM", always(func(f *File) float64 { return float64(f.Headers) }))

	var luma, chroma Coefficients
	for _, c := range []struct {
		name string
		of   func(*File) *Coefficients
		sum  *Coefficients
	}{
		{"luma", func(f *File) *Coefficients { return &f.Luma }, &luma},
		{"chroma", func(f *File) *Coefficients { return &f.Chroma }, &chroma},
	} {
		perBlock := func(g func(*Coefficients) float64) func(*File) (float64, bool) {
			return func(f *File) (float64, bool) {
				x := c.of(f)
				return g(x) / float64(max(x.Blocks, 1)), x.Blocks > 0
			}
		}
		measure(c.name+": nonzero AC per block", perBlock(func(x *Coefficients) float64 { return float64(x.AC()) }))
		measure(c.name+": last coefficient", perBlock(func(x *Coefficients) float64 {
			sum := 0
			for k, n := range x.Last {
				sum += k * n
			}
			return float64(sum)
		}))
		measure(c.name+": DC-only blocks", perBlock(func(x *Coefficients) float64 { return float64(x.Last[0]) }))
		measure(c.name+": blocks to the end", perBlock(func(x *Coefficients) float64 { return float64(x.Last[63]) }))
		for i := range files {
			c.sum.add(c.of(&files[i]))
		}
	}

	share := func(name string, n, of int) {
		if of > 0 {
			s.Shares = append(s.Shares, Share{name, float64(n) / float64(of)})
		}
	}
	kinds := map[string]int{}
	progressive, own, exact := 0, 0, 0
	for i := range files {
		f := &files[i]
		kinds[f.Kind]++
		progressive += count(f.Progressive)
		own += count(f.OwnTables)
		exact += count(f.Exact)
	}
	var names []string
	for k := range kinds {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		share(k, kinds[k], len(files))
	}
	share("progressive", progressive, len(files))
	share("own Huffman tables", own, len(files))
	share("libjpeg quantisation", exact, len(files))
	for _, c := range []struct {
		name string
		*Coefficients
	}{{"luma", &luma}, {"chroma", &chroma}} {
		ac := c.AC()
		share(c.name+": AC of ±1", c.Nonzero[1], ac)
		share(c.name+": AC of 2 bits", c.Nonzero[2], ac)
		share(c.name+": AC of 3 or 4 bits", c.Nonzero[3]+c.Nonzero[4], ac)
		share(c.name+": AC of 5 bits or more", ac-c.Nonzero[1]-c.Nonzero[2]-c.Nonzero[3]-c.Nonzero[4], ac)
		zeros := []int{c.Runs[0], c.Runs[1], c.Runs[2] + c.Runs[3], 0, 0}
		for r := 4; r < 16; r++ {
			zeros[3] += c.Runs[r]
		}
		zeros[4] = ac - zeros[0] - zeros[1] - zeros[2] - zeros[3]
		for i, name := range []string{"0", "1", "2 or 3", "4 to 15", "16 or more"} {
			share(fmt.Sprintf("%s: runs of %s zeros", c.name, name), zeros[i], ac)
		}
	}
	return s
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Write shows summaries side by side, as a table for people. names tells them apart;
// there is one for each summary.
func Write(w io.Writer, names []string, sets []*Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	several := len(sets) > 1
	label := func(i int) string {
		if several {
			return names[i] + "\t"
		}
		return ""
	}
	for i, s := range sets {
		fmt.Fprintf(t, "%s: %d files\t\n", names[i], s.Files)
	}
	fmt.Fprint(t, "\t")
	if several {
		fmt.Fprint(t, "\t")
	}
	fmt.Fprintln(t, "mean\t1%\t10%\t25%\t50%\t75%\t90%\t99%\t")
	for j := range sets[0].Measures {
		for i, s := range sets {
			m := &s.Measures[j]
			fmt.Fprintf(t, "%s\t%s%s\t", m.Name, label(i), number(m.Mean()))
			for _, p := range []float64{1, 10, 25, 50, 75, 90, 99} {
				fmt.Fprintf(t, "%s\t", number(m.Percentile(p)))
			}
			fmt.Fprintln(t)
		}
	}
	seen := map[string]bool{}
	for _, s := range sets {
		for _, sh := range s.Shares {
			if seen[sh.Name] {
				continue
			}
			seen[sh.Name] = true
			for i, s := range sets {
				fmt.Fprintf(t, "%s\t%s%.1f %%\t\n", sh.Name, label(i), 100*s.Share(sh.Name))
			}
		}
	}
	return t.Flush()
}

// number shows three or four digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
