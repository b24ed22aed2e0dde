package entropy

import "fmt"

// Kind is a kind of damage that does not keep the rest of a file from being
// decoded: what libjpeg warns of.
type Kind uint8

// The kinds of damage.
const (
	// Short: an entropy-coded segment ends before its last MCU. The MCU in which
	// it ends is decoded as if zero bits followed, those behind it are grey.
	Short Kind = iota
	// Ended: the file ends there.
	Ended
	// BadCode: bits that are no Huffman code of their table; they count as a
	// difference of 0, or as the end of the block.
	BadCode
	// Lost: a restart marker is missing, or another one stands in its place.
	Lost
	// Extraneous: bytes that belong to nothing. Pixels may be sound.
	Extraneous
	// Progression: a progressive scan refines coefficients of another accuracy
	// than they have.
	Progression
	// Missing: a component has no scan.
	Missing
	// Endless: the image data are there, but no end marker is. Where there are several
	// scans it is Ended, for there might have been more of them.
	Endless
	// Behind: libjpeg gives up at what follows the last scan. Its callers have the
	// pixels by then; Pillow throws them away.
	Behind
	kindsEnd
)

var kinds = [...]string{
	Short:       "the compressed data stop before the last pixel",
	Ended:       "the file ends early",
	BadCode:     "the compressed data hold a code that is none",
	Lost:        "a restart marker is missing",
	Extraneous:  "there are bytes that belong to nothing",
	Progression: "a progressive scan does not continue the one before",
	Missing:     "a component has no data",
	Endless:     "the end marker is missing",
	Behind:      "what follows the image data makes no sense",
}

func (k Kind) String() string { return kinds[k] }

// Fault is one place of damage.
type Fault struct {
	Kind   Kind
	Offset int // in the file, about
	// Row is the row of MCUs of the image that is the first to suffer, or -1.
	Row int
}

func (f Fault) String() string {
	if f.Row < 0 {
		return fmt.Sprintf("%s (at byte %d)", f.Kind, f.Offset)
	}
	return fmt.Sprintf("%s (at byte %d, row %d of MCUs)", f.Kind, f.Offset, f.Row)
}

// Faults counts the damage met in a file, and keeps the first, also of each kind.
type Faults struct {
	First Fault
	Count int
	// Row is the first row of MCUs of the image that may suffer from any of it, or -1.
	Row int

	kinds  uint16 // a bit each
	offset [kindsEnd]int
}

// Has tells whether there was damage of kind k.
func (f *Faults) Has(k Kind) bool { return f.kinds>>k&1 != 0 }

// Of returns where the first damage of kind k is.
func (f *Faults) Of(k Kind) Fault { return Fault{k, f.offset[k], f.Row} }

func (f *Faults) note(k Kind, offset, row int) {
	if f.Count == 0 {
		f.First, f.Row = Fault{k, offset, row}, row
	}
	if f.Row < 0 || row >= 0 && row < f.Row {
		f.Row = row
	}
	if !f.Has(k) {
		f.offset[k] = offset
	}
	f.Count++
	f.kinds |= 1 << k
}
