package reader

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"shardify/imaging/augment"
	"shardify/sample"
	"shardify/sample/typed"
)

// TensorSpec says what tensor of every batch is made of a field of its samples: the
// captions of its images, say, or their boxes. Only Field is needed; what the rest is by
// default depends on Kind.
//
//	kind   field                          tensor of a batch of n           default
//	int    a decimal integer              [n]                              int64
//	float  a decimal number               [n]                              float32
//	text   UTF-8, or a string in JSON     [n, longest] or [bytes of all]   uint8
//	json   numbers in JSON, at Path       [n, Shape...]                    float32
//	npy    an array of NumPy's            [n, Shape...]                    float32
//	image  another image                  as that of "image"               Config.DType
//	mask   a mask of the image            [n, height, width], or ragged    uint8
//	boxes  boxes in the image: JSON, npy  [n, most, 4] or [boxes of all, 4]  float32
//
// Images, masks and boxes go through the same crops, flips and scalings as the sample's
// image, with the same random numbers; masks with the nearest pixel. A mask must have
// the image's size.
//
// A sample that lacks the field, or whose field is damaged or is not as said here, is a
// damaged sample, as one whose image is (Config.OnBad).
type TensorSpec struct {
	// Field is the field that it is made of.
	Field string `json:"field"`
	// Name is the tensor's: by default Field. Several tensors may be made of one field.
	Name string `json:"name,omitempty"`
	// Kind is how the field is decoded. By default the last word of Field says: cls,
	// cls2, class, count, index, inx and id are int; txt, text and transcript are text;
	// json and jsn are json; npy is npy. Images must be said to be images or masks.
	Kind Kind `json:"kind,omitempty"`
	// Path leads to the value in a JSON document (typed.Path): "/image/width", or with
	// a * for every element "/objects/*/bbox". For json, for boxes, and for text that
	// is a string in JSON; empty, the document is the value.
	Path string `json:"path,omitempty"`
	// DType is the type of the elements. A number that does not fit it makes a sample
	// damaged; see package typed.
	DType DType `json:"dtype,omitempty"`
	// Shape is that of each sample's value, for json and npy: empty for a single
	// number. One dimension may vary between samples, and is written -1.
	Shape []int `json:"shape,omitempty"`

	// Collate says how values are put together: by default CollateStack where all have
	// one shape, and CollatePad where it varies. Images and masks have Config.Collate.
	Collate Collate `json:"collate,omitempty"`
	// PadTo, for CollatePad, is the length of the dimension that varies; a sample that
	// has more is damaged. By default it is that of the longest in the batch.
	PadTo int `json:"pad_to,omitempty"`
	// Fill is the value of elements that no sample has: those of padding, those of a
	// sample that lacks the field (Optional), and in masks what lies outside of the
	// image.
	Fill float64 `json:"fill,omitempty"`
	// Optional: a sample may lack the field, or what Path leads to. It gets Fill, or
	// where the shape varies has no elements.
	Optional bool `json:"optional,omitempty"`
	// Stored, for npy where the shape varies, is the narrowest type of element that the
	// files have, by default DType: memory for the tensor is taken by it and the files'
	// sizes, before they are read. A narrower one makes a sample damaged.
	Stored DType `json:"stored,omitempty"`

	// Boxes are for boxes.
	Boxes BoxSpec `json:"boxes,omitzero"`
	// Follows names a tensor of boxes. Of a sample's values, one for each box, those
	// are kept whose boxes are: classes, say, or scores. Shape must begin with -1.
	Follows string `json:"follows,omitempty"`
}

// BoxSpec says how boxes are written.
type BoxSpec struct {
	// Format and Unit are those of the field: by default XYXY, in pixels.
	Format BoxFormat `json:"format,omitempty"`
	Unit   BoxUnit   `json:"unit,omitempty"`
	// ToFormat and ToUnit are those of the tensor: by default XYXY, in pixels, of the
	// transformed image.
	ToFormat BoxFormat `json:"to_format,omitempty"`
	ToUnit   BoxUnit   `json:"to_unit,omitempty"`
	// Boxes that the transforms have cut are dropped where too little is left; empty
	// ones always are.
	augment.BoxFilter
}

// Kind is how a field is decoded.
type Kind string

const (
	KindInt   Kind = "int"
	KindFloat Kind = "float"
	KindText  Kind = "text"
	KindJSON  Kind = "json"
	KindNPY   Kind = "npy"
	KindImage Kind = "image"
	KindMask  Kind = "mask"
	KindBoxes Kind = "boxes"
)

// Collate is how the values of samples become a tensor. What it means for images, and for
// masks, of which two dimensions vary, Config.Collate says.
type Collate string

const (
	// CollateStack puts values of one shape one after the other: [n, shape...].
	CollateStack Collate = "stack"
	// CollatePad makes the dimension that varies as long as the longest in the batch,
	// with Fill behind what a sample has. Beside the tensor NAME there are
	// NAME_lengths, int64 [n], and NAME_mask, bool [n, longest], which is 1 where there
	// is something.
	CollatePad Collate = "pad"
	// CollateRagged puts values of different lengths one behind the other: [length of
	// all, shape...]. Beside the tensor NAME there is NAME_offsets, int64 [n+1]: sample
	// i has the elements from offset i to offset i+1. The first dimension must be the
	// one that varies.
	CollateRagged Collate = "ragged"
)

// BoxFormat says which four numbers a box is.
type BoxFormat string

const (
	BoxXYXY   BoxFormat = "xyxy"   // left, top, right, bottom
	BoxXYWH   BoxFormat = "xywh"   // left, top, width, height, as in COCO
	BoxCXCYWH BoxFormat = "cxcywh" // the centre, width, height, as in YOLO
)

// BoxUnit says in what a box is measured.
type BoxUnit string

const (
	BoxPixels    BoxUnit = "pixels"
	BoxFractions BoxUnit = "fractions" // of the image's width and height
)

// kindOf is the kind of fields whose names end in a word, webdataset's own table.
var kindOf = map[string]Kind{
	"cls": KindInt, "cls2": KindInt, "class": KindInt, "count": KindInt, "index": KindInt, "inx": KindInt, "id": KindInt,
	"txt": KindText, "text": KindText, "transcript": KindText,
	"json": KindJSON, "jsn": KindJSON,
	"npy": KindNPY,
}

// withDefaults fills in what depends on nothing else.
func (s TensorSpec) withDefaults(c *Config) TensorSpec {
	s.Name = or(s.Name, s.Field)
	s.Kind = or(s.Kind, kindOf[s.lastWord()])
	switch s.Kind {
	case KindInt:
		s.DType = or(s.DType, DTypeInt64)
	case KindText, KindMask:
		s.DType = or(s.DType, DTypeUint8)
	case KindImage:
		s.DType = or(s.DType, c.DType)
	default:
		s.DType = or(s.DType, DTypeFloat32)
	}
	if s.Kind == KindBoxes {
		b := &s.Boxes
		b.Format, b.Unit = or(b.Format, BoxXYXY), or(b.Unit, BoxPixels)
		b.ToFormat, b.ToUnit = or(b.ToFormat, BoxXYXY), or(b.ToUnit, BoxPixels)
	}
	if s.isPicture() {
		s.Collate = or(s.Collate, c.Collate)
	} else if s.vary() < 0 {
		s.Collate = or(s.Collate, CollateStack)
	} else {
		s.Collate = or(s.Collate, CollatePad)
		if s.inNPY() {
			s.Stored = or(s.Stored, s.DType)
		}
	}
	return s
}

func (s *TensorSpec) lastWord() string { return s.Field[strings.LastIndexByte(s.Field, '.')+1:] }

// shape is that of a sample's value; of images and masks, whose is the image's, it is
// empty.
func (s *TensorSpec) shape() []int {
	switch s.Kind {
	case KindText:
		return []int{-1}
	case KindBoxes:
		return []int{-1, 4}
	}
	return s.Shape
}

// isPicture says that the value has the size of the sample's image.
func (s *TensorSpec) isPicture() bool { return s.Kind == KindImage || s.Kind == KindMask }

// vary is the number of the dimension that varies, -1 if none does.
func (s *TensorSpec) vary() int { return slices.Index(s.shape(), -1) }

// inJSON says that the value stands in a JSON document.
func (s *TensorSpec) inJSON() bool {
	return s.Kind == KindJSON || s.Kind == KindBoxes && !s.inNPY() || s.Kind == KindText && s.Path != ""
}

// inNPY says that it is an array of NumPy's.
func (s *TensorSpec) inNPY() bool {
	return s.Kind == KindNPY || s.Kind == KindBoxes && kindOf[s.lastWord()] == KindNPY
}

// companions are the names of the tensors that come beside the one of the spec.
func (s *TensorSpec) companions() []string {
	switch {
	case s.isPicture() && s.Collate == CollatePad: // "image_sizes" says all
	case s.Collate == CollatePad:
		return []string{s.Name + "_mask", s.Name + "_lengths"}
	case s.Collate == CollateRagged:
		return []string{s.Name + "_offsets"}
	}
	return nil
}

var tensorName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`)

const (
	// maxValue bounds the elements of a value of fixed shape.
	maxValue = 1 << 28
	// maxTensors bounds Config.Tensors.
	maxTensors = 256
)

func (c Config) validateTensors() (faults []error) {
	if len(c.Tensors) > maxTensors {
		return []error{fmt.Errorf("tensors: %d; want %d at most", len(c.Tensors), maxTensors)}
	}
	taken := map[string]bool{imageTensor: true, labelTensor: true, partnerTensor: true, softTensor: true}
	for _, name := range c.besideImages() {
		taken[name] = true
	}
	for i, s := range c.Tensors {
		s = s.withDefaults(&c)
		errs := s.validate(c)
		for _, name := range append([]string{s.Name}, s.companions()...) {
			if taken[name] {
				errs = append(errs, fmt.Errorf("the name %q is taken; give another name", name))
			}
			taken[name] = true
		}
		if s.Follows != "" {
			at := slices.IndexFunc(c.Tensors, func(o TensorSpec) bool { return or(o.Name, o.Field) == s.Follows })
			if at < 0 || c.Tensors[at].Kind != KindBoxes {
				errs = append(errs, fmt.Errorf("follows: no tensor of boxes is called %q", s.Follows))
			}
		}
		for _, err := range errs {
			faults = append(faults, fmt.Errorf("tensor %d (%s): %w", i+1, or(s.Name, "without a name"), err))
		}
	}
	return faults
}

func (s *TensorSpec) validate(c Config) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	belongs := func(set bool, what, to string) {
		if set {
			fault("%s belongs to %s", what, to)
		}
	}
	if err := sample.CheckField(s.Field); err != nil {
		faults = append(faults, err)
	}
	if !tensorName.MatchString(s.Name) || len(s.Name) > 255 {
		fault("name: %q; want letters, digits, and of the signs _ . + - (the first two to begin with)", sample.Shorten(s.Name))
	}
	if s.Kind == "" {
		if sample.IsImage(s.Field) {
			fault("kind: say whether it is an %s or a %s", KindImage, KindMask)
		} else {
			fault("kind: the field's name does not tell it; want one of int, float, text, json, npy, image, mask, boxes")
		}
		return faults
	}
	choice(&faults, "kind", s.Kind, KindInt, KindFloat, KindText, KindJSON, KindNPY, KindImage, KindMask, KindBoxes)
	choice(&faults, "dtype", s.DType, typed.DTypes...)
	pictures := s.Kind == KindImage || s.Kind == KindMask || s.Kind == KindBoxes
	if pictures && c.Decode == DecodeNone {
		fault("kind %s goes the way of the sample's image; with decode none there is none", s.Kind)
	}
	if s.Kind == KindImage && s.DType != c.DType {
		fault("dtype: images have that of the configuration, %s", c.DType)
	}
	if s.Kind == KindBoxes && s.DType != DTypeFloat16 && s.DType != DTypeBFloat16 && s.DType != DTypeFloat32 && s.DType != DTypeFloat64 {
		fault("dtype: boxes are fractions of pixels; want a float type, not %s", s.DType)
	}
	if _, err := typed.ParsePath(s.Path); err != nil {
		faults = append(faults, err)
	}
	belongs(s.Path != "" && !s.inJSON(), "path", "json, to boxes in JSON, and to text")
	belongs(s.Shape != nil && s.Kind != KindJSON && s.Kind != KindNPY, "shape", "json and npy")
	elements, varying := 1, 0
	for _, d := range s.Shape {
		switch {
		case d == -1:
			varying++
		case d < 1 || d > maxValue:
			fault("shape: %d; want a length from 1 to %d, or -1 where it varies", d, maxValue)
		case elements > maxValue/d:
			fault("shape: %v has more than %d elements", s.Shape, maxValue)
			elements = 1
		default:
			elements *= d
		}
	}
	if varying > 1 {
		fault("shape: only one dimension may vary")
	}
	choice(&faults, "collate", s.Collate, CollateStack, CollatePad, CollateRagged)
	switch vary := s.vary(); {
	case s.isPicture():
		if s.Collate != c.Collate {
			fault("collate: %s, where the images have %s; leave it out", s.Collate, c.Collate)
		}
	case s.Collate == CollateStack && vary >= 0:
		fault("collate: values whose shape varies cannot be stacked; want pad or ragged")
	case s.Collate != CollateStack && vary < 0:
		fault("collate: %s is for values whose shape varies; this is one shape (write -1 for a dimension that varies)", s.Collate)
	case s.Collate == CollateRagged && vary > 0:
		fault("collate: ragged needs the first dimension to be the one that varies")
	}
	if s.PadTo < 0 || s.PadTo > maxValue/elements {
		fault("pad_to: %d; want 0 for the longest, or up to %d", s.PadTo, maxValue/elements)
	}
	belongs(s.PadTo != 0 && (s.Collate != CollatePad || s.isPicture()), "pad_to", "collate pad, and for images to the configuration")
	for _, d := range []DType{s.DType, DTypeUint8} {
		a := typed.Array{DType: d}
		if (d == s.DType || s.Kind == KindMask) && d.Size() > 0 && !a.Append(s.Fill) {
			fault("fill: %v does not fit %s", s.Fill, d)
			break
		}
	}
	belongs(s.Stored != "" && (!s.inNPY() || s.vary() < 0), "stored", "npy whose shape varies")
	if s.Stored != "" {
		choice(&faults, "stored", s.Stored, typed.DTypes...)
	}
	if s.Kind == KindBoxes {
		choice(&faults, "boxes: format", s.Boxes.Format, BoxXYXY, BoxXYWH, BoxCXCYWH)
		choice(&faults, "boxes: to_format", s.Boxes.ToFormat, BoxXYXY, BoxXYWH, BoxCXCYWH)
		choice(&faults, "boxes: unit", s.Boxes.Unit, BoxPixels, BoxFractions)
		choice(&faults, "boxes: to_unit", s.Boxes.ToUnit, BoxPixels, BoxFractions)
		if err := s.Boxes.BoxFilter.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	belongs(s.Kind != KindBoxes && s.Boxes != (BoxSpec{}), "boxes", "kind boxes")
	if s.Follows != "" && (s.Kind != KindJSON && s.Kind != KindNPY || s.vary() != 0) {
		fault("follows: want json or npy, with a shape that begins with -1, for a value of each box")
	}
	return faults
}

// maker makes one tensor of the batches: a spec worked out.
type maker struct {
	TensorSpec
	path typed.Path
	// pattern is the shape of a sample's value, with -1 for the dimension that varies,
	// whose number vary is; or -1.
	pattern []int
	vary    int
	// size is the bytes of an element, unit those of a value whose dimension that
	// varies is 1.
	size, unit int64
	// channels are those of a picture whose size varies; 0 of all else. Its length is
	// that of all its elements.
	channels int
	fill     []byte   // an element of Fill
	beside   []string // the names of the tensors that come with it
	follows  int      // the maker of the boxes, -1
}

// makers works Config.Tensors out, whose defaults are filled in; width and height
// are those of the images.
func (c *Config) makers(width, height int) []maker {
	list := make([]maker, len(c.Tensors))
	for i, s := range c.Tensors {
		m := &list[i]
		*m = maker{TensorSpec: s, pattern: s.shape(), size: int64(s.DType.Size()), follows: -1}
		m.path, _ = typed.ParsePath(s.Path) // Validate has seen it
		switch {
		case s.isPicture() && c.varies():
			m.pattern, m.channels = []int{-1}, 3
			if s.Kind == KindMask {
				m.channels = 1
			}
		case s.Kind == KindMask:
			m.pattern = []int{height, width}
		case s.Kind == KindImage && c.Layout == LayoutNHWC:
			m.pattern = []int{height, width, 3}
		case s.Kind == KindImage:
			m.pattern = []int{3, height, width}
		}
		m.vary = slices.Index(m.pattern, -1)
		m.unit = m.size
		for _, d := range m.pattern {
			if d > 0 {
				m.unit *= int64(d)
			}
		}
		one := typed.Array{DType: s.DType}
		one.Append(s.Fill)
		m.fill, m.beside = one.Data, s.companions()
		if s.Follows != "" {
			m.follows = slices.IndexFunc(c.Tensors, func(o TensorSpec) bool { return o.Name == s.Follows })
		}
	}
	return list
}

// sampleBytes is the room that a sample takes in a slab besides its fields and the tensors
// whose size varies.
func (p *canvas) sampleBytes() int64 {
	n := p.bytes + 8
	if p.varies {
		n += 24 // its offset and size
	}
	for i := range p.makers {
		if m := &p.makers[i]; m.fixed() {
			n += int64(max(1, m.PadTo))*(m.unit+1) + 8
		}
	}
	return n
}

// fixed says that the tensor of a batch has the same size, whatever is in it.
func (m *maker) fixed() bool { return m.vary < 0 || m.PadTo > 0 }

// room is how many bytes the value of a field of so many bytes can have at most.
func (m *maker) room(field int64) int64 {
	if m.vary < 0 {
		return m.unit
	}
	elements := field // of a text
	switch {
	case m.Kind == KindText:
	case m.inJSON():
		elements = (field + 1) / 2 // a digit and a comma
	default:
		elements = field / int64(m.Stored.Size())
	}
	n := elements * m.size / m.unit
	if m.PadTo > 0 {
		n = min(n, int64(m.PadTo))
	}
	return n * m.unit
}
