package transform

import (
	"errors"
	"fmt"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/tensor"
)

// Options are what a program needs to know besides its transforms. The zero value is
// good.
type Options struct {
	// Size is the size of all results; the zero value leaves it to the transforms.
	//
	// The transforms are then those of the list with their sizes in proportion: for
	// [{"resize": 256}, {"center_crop": 224}] and a Size of 192 x 288 the image is
	// scaled so that it just covers 219 x 329 (256/224 of it), and the middle 192 x 288
	// pixels are kept. Where the results of the list vary in size, they are scaled so
	// that they just cover Size, and the middle is kept.
	Size Size `json:"size,omitzero"`
	// MaxPixels bounds the images between two steps, as width times height; one that
	// would be larger is an error that wraps imaging.ErrTooLarge. 0 means
	// imaging.DefaultMaxPixels.
	MaxPixels int64 `json:"max_pixels,omitempty"`
}

// Validate reports every fault.
func (o Options) Validate() error {
	var faults []error
	if o.Size != (Size{}) {
		faults = append(faults, o.Size.validate())
	}
	if o.MaxPixels < 0 {
		faults = append(faults, fmt.Errorf("max_pixels is %d; want 0 for the default of %d, or more", o.MaxPixels, int64(imaging.DefaultMaxPixels)))
	}
	return errors.Join(faults...)
}

// Program is a list of transforms that is known to be good. Any goroutine may use it.
type Program struct {
	steps     List
	size      extent
	normalize *tensor.Normalize
	maxPixels int64
}

// extent is a width and height as far as they are known before an image is: both are 0
// where they vary.
type extent struct{ width, height int }

// Compile makes a program of transforms. It reports every fault of theirs and of their
// order.
func Compile(l List, o Options) (*Program, error) {
	err := errors.Join(l.Validate(), o.Validate())
	if err == nil {
		err = checkOrder(l)
	}
	if err != nil {
		return nil, err
	}
	p := &Program{steps: l, maxPixels: o.MaxPixels}
	if p.maxPixels == 0 {
		p.maxPixels = imaging.DefaultMaxPixels
	}
	if n := len(l); n > 0 {
		if t, ok := l[n-1].(Normalize); ok {
			p.steps, p.normalize = l[:n-1], (*tensor.Normalize)(&t)
		}
	}
	if p.size, err = p.steps.extent(extent{}); err != nil {
		return nil, err
	}
	if o.Size == (Size{}) {
		p.steps = append(List(nil), p.steps...)
		return p, nil
	}
	want := extent{}
	want.width, want.height = o.Size.sides()
	if p.size == (extent{}) {
		p.steps = append(append(List(nil), p.steps...), covering{width: want.width, height: want.height}, CenterCrop{Size{want.height, want.width}})
	} else {
		p.steps = p.steps.inProportion(p.size, want)
	}
	if p.size, err = p.steps.extent(extent{}); err != nil {
		return nil, err
	}
	if p.size != want {
		return nil, fmt.Errorf("transforms: a result of %d x %d was asked for, and they make one of %d x %d; put what adds pixels (pad) before what sets the size",
			want.width, want.height, p.size.width, p.size.height)
	}
	return p, nil
}

// checkOrder reports normalisations that are not at the end.
func checkOrder(l List) error {
	var faults []error
	for i, t := range l {
		name, _ := nameOf(t)
		switch t := t.(type) {
		case Normalize:
			if i != len(l)-1 {
				faults = append(faults, at(i, name, errors.New("must come last: all other transforms work on bytes (random_erasing, too: its value is a colour)")))
			}
		case RandomApply:
			faults = append(faults, checkInner(i, name, t.Transforms))
		case RandomChoice:
			faults = append(faults, checkInner(i, name, t.Transforms))
		}
	}
	return errors.Join(faults...)
}

func checkInner(i int, name string, l List) error {
	for k, t := range l {
		inner, _ := nameOf(t)
		switch t := t.(type) {
		case Normalize:
			return at(i, name, at(k, inner, errors.New("must come last, for all images")))
		case RandomApply:
			if err := checkInner(k, inner, t.Transforms); err != nil {
				return at(i, name, err)
			}
		case RandomChoice:
			if err := checkInner(k, inner, t.Transforms); err != nil {
				return at(i, name, err)
			}
		}
	}
	return nil
}

// extent returns the size of what the transforms make of images of size e.
func (l List) extent(e extent) (extent, error) {
	for i, t := range l {
		var err error
		if e, err = after(t, e); err != nil {
			name, _ := nameOf(t)
			return e, at(i, name, err)
		}
	}
	return e, nil
}

func after(t Transform, e extent) (extent, error) {
	known := e != (extent{})
	of := func(w, h int) extent { return extent{w, h} }
	switch t := t.(type) {
	case Resize:
		if known || t.Size[1] != 0 {
			e = of(t.target(max(e.width, 1), max(e.height, 1)))
		}
	case covering:
		if known {
			e = of(cover(e.width, e.height, t.width, t.height, t.most))
		}
	case CenterCrop:
		e = of(t.Size.sides())
	case RandomResizedCrop:
		e = of(t.Size.sides())
	case RandomCrop:
		if known { // whether it is too small does not depend on what is drawn
			var r augment.Rand
			if _, err := t.crop().Draw(&r, e.width, e.height); err != nil {
				return e, err
			}
		}
		e = of(t.Size.sides())
	case Pad:
		if known {
			w := t.pad().Window(e.width, e.height)
			e = of(w.Width, w.Height)
		}
	case RandomApply:
		done, err := t.Transforms.extent(e)
		if err != nil || done == e {
			return e, err
		}
		return extent{}, nil
	case RandomChoice:
		var first extent
		for i := range t.Transforms {
			one, err := after(t.Transforms[i], e)
			if err != nil {
				name, _ := nameOf(t.Transforms[i])
				return e, at(i, name, err)
			}
			if i == 0 {
				first = one
			}
			if one != first {
				return extent{}, nil
			}
		}
		return first, nil
	}
	return e, nil
}

// inProportion returns the transforms with their sizes multiplied by want/have.
func (l List) inProportion(have, want extent) List {
	out := make(List, len(l))
	for i, t := range l {
		out[i] = inProportion(t, have, want)
	}
	return out
}

func inProportion(t Transform, have, want extent) Transform {
	times := func(n, to, from int) int { return (2*n*to + from) / (2 * from) }
	size := func(s Size) Size {
		w, h := s.sides()
		return Size{max(1, times(h, want.height, have.height)), max(1, times(w, want.width, have.width))}
	}
	switch t := t.(type) {
	case Resize:
		if t.Size[1] != 0 {
			t.Size = size(t.Size)
			return t
		}
		most := max(times(t.MaxSize, want.width, have.width), times(t.MaxSize, want.height, have.height))
		if t.Size[0] == 0 {
			t.MaxSize = most
			return t
		}
		s := size(t.Size)
		return covering{width: s[1], height: s[0], most: most, filter: t.Interpolation}
	case CenterCrop:
		t.Size = size(t.Size)
		return t
	case RandomResizedCrop:
		t.Size = size(t.Size)
		return t
	case RandomCrop:
		t.Size = size(t.Size)
		return t
	case RandomApply:
		t.Transforms = t.Transforms.inProportion(have, want)
		return t
	case RandomChoice:
		t.Transforms = t.Transforms.inProportion(have, want)
		return t
	}
	return t
}

// Size returns the width and height of every result, or 0, 0 where they vary.
func (p *Program) Size() (width, height int) { return p.size.width, p.size.height }

// Normalize returns the normalisation at the end, and whether there is one.
func (p *Program) Normalize() (n tensor.Normalize, ok bool) {
	if p.normalize == nil {
		return n, false
	}
	return *p.normalize, true
}

// Draw writes to recipe what to do with an image of width x height, both at least 1. All
// that is random comes from random, in the order of the transforms. An error says that
// the image is too small for a crop, or would become too large.
func (p *Program) Draw(recipe *Recipe, random *augment.Rand, width, height int) error {
	if width < 1 || height < 1 {
		return fmt.Errorf("transform: an image of %d x %d; both must be at least 1", width, height)
	}
	// Random numbers are copied, as what an interface's method is given would be moved
	// to the heap.
	recipe.rand, recipe.maxPixels = *random, p.maxPixels
	recipe.begin(width, height)
	err := recipe.drawAll(p.steps)
	if err == nil {
		err = recipe.check(recipe.last())
	}
	*random = recipe.rand
	if err != nil {
		recipe.stages = recipe.stages[:0]
	}
	return err
}
