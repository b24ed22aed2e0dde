package tree

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Config says what tree to make: of photographs, of Shapes, of Tiny files, or of copies
// From a folder.
type Config struct {
	// Images is how many images are made; 0 means 1000. With From it must be 0.
	Images int `json:"images,omitempty"`
	// Classes is how many class folders they are spread over; 0 means 10.
	Classes int `json:"classes,omitempty"`
	// Splits divides the images among split folders, which hold the class folders;
	// none means class folders directly in the tree.
	Splits []Split `json:"splits,omitempty"`
	// Seed tells one tree from another.
	Seed uint64 `json:"seed,omitempty"`
	// Tiny makes files of a few hundred bytes: JPEGs, and a PNG in every eight.
	Tiny bool `json:"tiny,omitempty"`
	// Shapes makes small JPEGs of ten shapes, each a class of its own, so that a model
	// can learn to tell the classes apart. There are at most 10 Classes then.
	Shapes bool `json:"shapes,omitempty"`
	// From is a folder whose files (at any depth, hidden ones excepted) take the
	// place of the images.
	From string `json:"from,omitempty"`
	// Copies is how many copies of each file of From are made; 0 means 1.
	Copies int `json:"copies,omitempty"`
	// Link makes the copies hard links where the file system can.
	Link bool `json:"link,omitempty"`
	// With lists kinds of odd files that are added; none, with Odd above 0, means
	// all kinds.
	With []Kind `json:"with,omitempty"`
	// Odd is how many files of each kind of With are added; 0 means 8, which shows
	// every orientation once.
	Odd int `json:"odd,omitempty"`
}

// Split is a folder of class folders.
type Split struct {
	Name string `json:"name"`
	// Share is the part of the images in it. Shares are relative to their sum.
	Share float64 `json:"share"`
}

// ParseSplits reads "train:0.9,val:0.1".
func ParseSplits(s string) ([]Split, error) {
	var splits []Split
	for part := range strings.SplitSeq(s, ",") {
		name, share, _ := strings.Cut(part, ":")
		f, err := strconv.ParseFloat(share, 64)
		if err != nil {
			return nil, fmt.Errorf("split %q: want NAME:SHARE, as in train:0.9,val:0.1", part)
		}
		splits = append(splits, Split{name, f})
	}
	return splits, nil
}

// withDefaults returns the configuration with every default spelt out.
func (c Config) withDefaults() Config {
	if c.Images == 0 && c.From == "" {
		c.Images = 1000
	}
	if c.Classes == 0 {
		c.Classes = 10
	}
	if c.From != "" && c.Copies == 0 {
		c.Copies = 1
	}
	if c.Odd > 0 && len(c.With) == 0 {
		c.With = Kinds()
	}
	if c.Odd == 0 && len(c.With) > 0 {
		c.Odd = 8
	}
	return c
}

// Validate reports every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, n := range []struct {
		name  string
		value int
	}{{"images", c.Images}, {"classes", c.Classes}, {"copies", c.Copies}, {"odd", c.Odd}} {
		if n.value < 0 || n.value > 1<<31-1 {
			fault("%s: %d; it is at least 0 and below 2^31", n.name, n.value)
		}
	}
	if c.From != "" && c.Images > 0 {
		fault("from %q: the number of images follows from the copies; leave it out", c.From)
	}
	if c.From != "" && c.Tiny {
		fault("from %q excludes tiny files", c.From)
	}
	if c.Shapes && (c.From != "" || c.Tiny) {
		fault("shapes exclude tiny files, and copies from a folder")
	}
	if c.Shapes && c.Classes > len(outlines) {
		fault("classes: %d; there are %d shapes", c.Classes, len(outlines))
	}
	if c.From == "" && (c.Copies > 0 || c.Link) {
		fault("copies and links need a folder to copy from")
	}
	seen := map[string]bool{}
	sum := 0.0
	for _, s := range c.Splits {
		if s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, `/\`) {
			fault("split %q: its name is no folder name", s.Name)
		}
		if seen[s.Name] {
			fault("split %q is listed twice", s.Name)
		}
		seen[s.Name] = true
		if !(s.Share >= 0 && s.Share <= 1e9) {
			fault("split %q: its share is %v; it is at least 0", s.Name, s.Share)
		}
		sum += s.Share
	}
	if len(c.Splits) > 0 && !(sum > 0) {
		fault("the splits' shares sum to %v", sum)
	}
	for i, k := range c.With {
		if _, ok := kinds[k]; !ok {
			fault("kind %q is unknown; the kinds are %v", k, Kinds())
		}
		if slices.Contains(c.With[:i], k) {
			fault("kind %q is listed twice", k)
		}
	}
	return errors.Join(faults...)
}

// layout deals numbered files to folders: the splits' shares in a row, the classes
// of a split by turns.
type layout struct {
	splits  []Split
	ends    []int // the number after the last one of each split
	classes int
}

func newLayout(c *Config, files int) layout {
	l := layout{splits: c.Splits, classes: c.Classes}
	if len(l.splits) == 0 {
		l.splits = []Split{{Share: 1}}
	}
	sum, so := 0.0, 0.0
	for _, s := range l.splits {
		sum += s.Share
	}
	for _, s := range l.splits {
		so += s.Share
		l.ends = append(l.ends, int(so/sum*float64(files)+0.5))
	}
	l.ends[len(l.ends)-1] = files
	return l
}

// place returns the folder and the class of file i, by name and by number.
func (l *layout) place(i int) (dir, name string, class int) {
	begin, s := 0, 0
	for i >= l.ends[s] {
		begin = l.ends[s]
		s++
	}
	class = (i - begin) % l.classes
	dir, name = l.dir(l.splits[s].Name, class)
	return dir, name, class
}

// odd returns the folder of the i-th odd file.
func (l *layout) odd(i int) (dir, class string) {
	return l.dir(l.splits[i%len(l.splits)].Name, i%l.classes)
}

// dir names a class folder, in the manner of WordNet's identifiers.
func (l *layout) dir(split string, class int) (dir, name string) {
	name = fmt.Sprintf("n%08d", class)
	if split == "" {
		return name, name
	}
	return split + "/" + name, name
}

// folders lists the folders of so many files and odd files.
func (l *layout) folders(files, odd int) []string {
	var dirs []string
	begin := 0
	for s, end := range l.ends {
		for class := range min(l.classes, end-begin) {
			dir, _ := l.dir(l.splits[s].Name, class)
			dirs = append(dirs, dir)
		}
		begin = end
	}
	for i := range odd {
		dir, _ := l.odd(i)
		dirs = append(dirs, dir)
	}
	return dirs
}
