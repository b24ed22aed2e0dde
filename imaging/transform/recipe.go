package transform

import (
	"errors"
	"fmt"
	"iter"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
)

// Recipe is what is done to one image, its masks and its boxes, with everything drawn.
// [Program.Draw] writes it; the zero value is ready for that, keeps its memory from one
// image to the next, and may be used by one goroutine at a time.
//
// It is stages, one after the other. In each, the geometry makes an image of what the
// stage before made, and then the paints change colours in place. Flips are not done
// until the end, or until something comes that does not commute with them: until then
// the stages make the mirror image of what the transforms describe.
type Recipe struct {
	rand          augment.Rand
	maxPixels     int64
	width, height int // of the source
	stages        []stage
	paints        []Paint
	flipX, flipY  bool
	drawn         augment.Ops // memory for RandAugment
}

// stage is a geometry and the paints behind it.
type stage struct {
	geometry augment.Geometry
	look     augment.Look
	// Of what goes in and what comes out.
	width, height       int
	outWidth, outHeight int
	from, to            int // its paints
}

// Paint is an operation on colours: an Op, or where its Region is not empty an Erasing.
type Paint struct {
	Op      augment.Op
	Erasing augment.Erasing
}

// Stage is a stage of a recipe, for those who carry it out elsewhere: on a GPU, say.
type Stage struct {
	// Geometry makes of what the stage before made, of the source at first, an image of
	// Width x Height, with Look.
	Geometry      augment.Geometry
	Look          augment.Look
	Width, Height int
	// Paints change its colours, one after the other. They are the recipe's.
	Paints []Paint
}

// Stages are the stages of a recipe, in order, with their numbers. At the end there may be
// flips left to do: see Flips.
func (r *Recipe) Stages() iter.Seq2[int, Stage] {
	return func(yield func(int, Stage) bool) {
		for i := range r.stages {
			s := &r.stages[i]
			if !yield(i, Stage{s.geometry, s.look, s.outWidth, s.outHeight, r.paints[s.from:s.to:s.to]}) {
				return
			}
		}
	}
}

// Flips are those that are left to do behind the last stage, as with a View.
func (r *Recipe) Flips() (x, y bool) { return r.flipX, r.flipY }

// begin starts a recipe for an image of width x height.
func (r *Recipe) begin(width, height int) {
	r.width, r.height = width, height
	r.paints = r.paints[:0]
	r.flipX, r.flipY = false, false
	r.stages = append(r.stages[:0], stage{width: width, height: height, outWidth: width, outHeight: height})
}

// Size returns the dimensions of the result; 0, 0 for a recipe that is empty.
func (r *Recipe) Size() (width, height int) {
	if len(r.stages) == 0 {
		return 0, 0
	}
	s := r.last()
	return s.outWidth, s.outHeight
}

// SourceSize returns the dimensions of the image that the recipe was drawn for.
func (r *Recipe) SourceSize() (width, height int) { return r.width, r.height }

func (r *Recipe) last() *stage { return &r.stages[len(r.stages)-1] }

// push ends the last stage and begins another.
func (r *Recipe) push() (*stage, error) {
	s := r.last()
	if err := r.check(s); err != nil {
		return nil, err
	}
	w, h, n := s.outWidth, s.outHeight, len(r.paints)
	r.stages = append(r.stages, stage{width: w, height: h, outWidth: w, outHeight: h, from: n, to: n})
	return r.last(), nil
}

// check makes sure that a stage takes no memory beyond the bound.
func (r *Recipe) check(s *stage) error {
	fits := func(w, h int) error {
		if int64(w)*int64(h) > r.maxPixels {
			return fmt.Errorf("%w: an image of %d x %d would become one of %d x %d; the bound (max_pixels) is %d",
				imaging.ErrTooLarge, r.width, r.height, w, h, r.maxPixels)
		}
		return nil
	}
	// Mirrored padding is made from the whole of what is scaled.
	if s.padded() && s.geometry.PaddingMode != augment.Constant {
		if err := fits(s.scaled()); err != nil {
			return err
		}
	}
	return fits(s.outWidth, s.outHeight)
}

// crop returns the part of the stage's image that is looked at.
func (s *stage) crop() augment.Region {
	if s.geometry.Crop == (augment.Region{}) {
		return augment.Region{Width: s.width, Height: s.height}
	}
	return s.geometry.Crop
}

// scaled returns to what that is scaled.
func (s *stage) scaled() (width, height int) {
	if s.geometry.Width == 0 {
		c := s.crop()
		return c.Width, c.Height
	}
	return s.geometry.Width, s.geometry.Height
}

// window returns the part of that which is shown.
func (s *stage) window() augment.Region {
	if s.geometry.Window == (augment.Region{}) {
		w, h := s.scaled()
		return augment.Region{Width: w, Height: h}
	}
	return s.geometry.Window
}

// padded says that the window reaches beyond what there is.
func (s *stage) padded() bool {
	w, h := s.scaled()
	return !within(s.window(), w, h)
}

// within says that a region lies within width x height.
func within(r augment.Region, width, height int) bool {
	return r.X >= 0 && r.Y >= 0 && r.X+r.Width <= width && r.Y+r.Height <= height
}

// moves says that a geometry does more than to cut out a part.
func moves(g *augment.Geometry) bool {
	return g.Width != 0 || g.Window != (augment.Region{}) || g.FlipX || g.FlipY || g.Matrix != (augment.Matrix{})
}

// open returns a stage whose geometry can take another step: the last one, if nothing
// stands behind the steps that it has.
func (r *Recipe) open() (*stage, error) {
	s := r.last()
	if g := &s.geometry; s.from < s.to || g.FlipX || g.FlipY || g.Matrix != (augment.Matrix{}) {
		return r.push()
	}
	return s, nil
}

// cut keeps a part of the image, which may reach beyond it.
func (r *Recipe) cut(part augment.Region, mode augment.PaddingMode, fill augment.Color) error {
	width, height := r.Size()
	if part == (augment.Region{Width: width, Height: height}) {
		return nil
	}
	// In the mirror image the part lies elsewhere.
	if r.flipX {
		part.X = width - part.X - part.Width
	}
	if r.flipY {
		part.Y = height - part.Y - part.Height
	}
	s, err := r.open()
	if err != nil {
		return err
	}
	inside := within(part, width, height)
	if sw, sh := s.scaled(); !inside && s.window() != (augment.Region{Width: sw, Height: sh}) {
		// What lies beyond the window is not what lies beyond the image.
		if s, err = r.push(); err != nil {
			return err
		}
	}
	g := &s.geometry
	if inside && g.Width == 0 && g.Window == (augment.Region{}) {
		c := s.crop()
		g.Crop = augment.Region{X: c.X + part.X, Y: c.Y + part.Y, Width: part.Width, Height: part.Height}
	} else {
		w := s.window()
		g.Window = augment.Region{X: w.X + part.X, Y: w.Y + part.Y, Width: part.Width, Height: part.Height}
		if !inside {
			g.PaddingMode, s.look.Fill = mode, fill
		}
	}
	s.outWidth, s.outHeight = part.Width, part.Height
	return nil
}

// maxScaled bounds the sides to which an image is scaled, of which only a part may be
// made: that of package augment.
const maxScaled = 1 << 24

// scale makes the image width x height.
func (r *Recipe) scale(width, height int, f resize.Filter) error {
	if w, h := r.Size(); w == width && h == height {
		return nil
	}
	if width > maxScaled || height > maxScaled {
		return fmt.Errorf("%w: an image of %d x %d would be scaled to %d x %d; the bound is %d a side",
			imaging.ErrTooLarge, r.width, r.height, width, height, maxScaled)
	}
	s, err := r.open()
	if err != nil {
		return err
	}
	if s.geometry.Width != 0 || s.geometry.Window != (augment.Region{}) {
		if s, err = r.push(); err != nil {
			return err
		}
	}
	s.geometry.Width, s.geometry.Height = width, height
	s.look.Filter = f
	s.outWidth, s.outHeight = width, height
	return nil
}

// warp maps the image.
func (r *Recipe) warp(w augment.Warp) error {
	if w.Matrix == augment.IdentityMatrix {
		return nil
	}
	s, err := r.open()
	if err != nil {
		return err
	}
	if s.padded() && s.look.Fill != w.Fill {
		if s, err = r.push(); err != nil {
			return err
		}
	}
	r.mirror(s)
	s.geometry.Matrix = w.Matrix
	s.look.Interpolation, s.look.Fill = w.Interpolation, w.Fill
	return nil
}

// mirror does the flips that are still to be done, in a stage that is open.
func (r *Recipe) mirror(s *stage) {
	s.geometry.FlipX, s.geometry.FlipY = r.flipX, r.flipY
	r.flipX, r.flipY = false, false
}

// paint does an operation. One that moves pixels becomes geometry.
func (r *Recipe) paint(op augment.Op) error {
	if op.Kind == augment.Identity {
		return nil
	}
	if m, ok := op.Matrix(r.Size()); ok {
		return r.warp(augment.Warp{Matrix: m, Interpolation: op.Interpolation, Fill: op.Fill})
	}
	r.paints = append(r.paints, Paint{Op: op})
	r.last().to = len(r.paints)
	return nil
}

// erase paints over a part.
func (r *Recipe) erase(e augment.Erasing) error {
	if e.Region.Width == 0 || e.Region.Height == 0 {
		return nil
	}
	switch {
	case !r.flipX && !r.flipY:
	case e.Value.Random: // noise mirrored is other noise
		s, err := r.open()
		if err != nil {
			return err
		}
		r.mirror(s)
	default:
		w, h := r.Size()
		if r.flipX {
			e.Region.X = w - e.Region.X - e.Region.Width
		}
		if r.flipY {
			e.Region.Y = h - e.Region.Y - e.Region.Height
		}
	}
	r.paints = append(r.paints, Paint{Erasing: e})
	r.last().to = len(r.paints)
	return nil
}

func (r *Recipe) drawAll(l List) error {
	for i := range l {
		if err := r.drawAt(l, i); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recipe) drawAt(l List, i int) error {
	if err := l[i].draw(r); err != nil {
		name, _ := nameOf(l[i])
		return at(i, name, err)
	}
	return nil
}

// Workspace is the memory in which recipes are carried out, kept between calls: the zero
// value is ready, one goroutine may use it at a time, and once it has seen the largest
// of its images nothing is allocated.
type Workspace struct {
	augment augment.Workspace
	images  [2]imaging.Image
	masks   [2]imaging.Mask
	view    imaging.Image
	mask    imaging.Mask
}

// View is the picture that a recipe makes, with flips that are still to be done: they
// cost nothing where the picture is written elsewhere anyway (see package tensor).
type View struct {
	imaging.Image
	// FlipX mirrors left to right, FlipY top to bottom.
	FlipX, FlipY bool
}

// Image carries the recipe out on src, the image it was drawn for. The view lies in the
// workspace, or is a part of src whose pixels may have been changed; it is valid until
// either is used again.
func (r *Recipe) Image(ws *Workspace, src *imaging.Image) (View, error) {
	if err := r.fits("an image", src.Width, src.Height); err != nil {
		return View{}, err
	}
	return r.carry(ws, src, r.stages[0].geometry)
}

// Head is the beginning of what a recipe does to its image: what a decoder can do as it
// decodes, without an image at full size.
type Head struct {
	// Crop is the part of the source that is looked at: the whole source of Task.
	Crop augment.Region
	// Task scales that, and keeps a window of Width x Height. Its SourceWidth and
	// SourceHeight are those of Crop.
	Task          resize.Task
	Width, Height int
	// Whole says that this is all the recipe does. Otherwise [Recipe.Rest] does what is
	// left, and Task has no flips.
	Whole bool
}

// Head returns the recipe's beginning. It is known before the image is decoded. The
// recipe must not be empty.
func (r *Recipe) Head() Head {
	s := &r.stages[0]
	seen, rest := s.head()
	h := Head{Crop: s.crop(), Width: seen.Width, Height: seen.Height}
	t := &h.Task
	t.SourceWidth, t.SourceHeight = h.Crop.Width, h.Crop.Height
	t.Part = resize.Rect{X1: float64(h.Crop.Width), Y1: float64(h.Crop.Height)}
	t.Filter, t.X, t.Y = s.look.Filter, seen.X, seen.Y
	t.Width, t.Height = s.scaled()
	h.Whole = len(r.stages) == 1 && s.from == s.to && rest.Window == (augment.Region{}) && rest.Matrix == (augment.Matrix{})
	if h.Whole {
		t.FlipX, t.FlipY = rest.FlipX != r.flipX, rest.FlipY != r.flipY
	}
	return h
}

// head returns which part of the scaled image a stage needs, and the geometry that makes
// of this part what the stage makes.
func (s *stage) head() (seen augment.Region, rest augment.Geometry) {
	rest = s.geometry
	rest.Crop, rest.Width, rest.Height, rest.Window = augment.Region{}, 0, 0, augment.Region{}
	seen.Width, seen.Height = s.scaled()
	w := s.window()
	if !s.padded() {
		return w, rest
	}
	if s.geometry.PaddingMode == augment.Constant {
		seen.X, seen.Width = shown(w.X, w.Width, seen.Width)
		seen.Y, seen.Height = shown(w.Y, w.Height, seen.Height)
	}
	w.X, w.Y = w.X-seen.X, w.Y-seen.Y
	rest.Window = w
	return seen, rest
}

// shown returns which of so many pixels count pixels from the one at from on show; where
// none does, the first, which then lies outside of the window, too: there has to be one.
func shown(from, count, pixels int) (first, n int) {
	low, high := max(from, 0), min(from+count, pixels)
	if low >= high {
		return 0, 1
	}
	return low, high - low
}

// Scratch bounds the memory that Rest takes in a workspace for images: what the steps
// after Head make on the way, the last one's included. (Beside it are some rows, the most
// under a blur: half its kernel's height.) It is known before the image is decoded.
func (r *Recipe) Scratch() (bytes int64) {
	var images [2]int64
	var flipped, whole int64
	next := 0
	for i := range r.stages {
		s := &r.stages[i]
		g := s.geometry
		scaledWidth, scaledHeight := s.scaled()
		if i == 0 {
			var seen augment.Region
			seen, g = s.head()
			scaledWidth, scaledHeight = seen.Width, seen.Height
		}
		if !moves(&g) {
			continue
		}
		out := 3 * int64(s.outWidth) * int64(s.outHeight)
		images[next] = max(images[next], out)
		next ^= 1
		if g.Matrix != (augment.Matrix{}) {
			flipped = max(flipped, out)
		}
		if s.padded() && g.PaddingMode != augment.Constant {
			whole = max(whole, 3*int64(scaledWidth)*int64(scaledHeight))
		}
	}
	return images[0] + images[1] + flipped + whole
}

// Rest carries out what Head leaves on head, the image that Head describes; it must not
// be all that the recipe does. The view is as with Image.
func (r *Recipe) Rest(ws *Workspace, head *imaging.Image) (View, error) {
	if len(r.stages) == 0 {
		return View{}, errEmpty
	}
	seen, rest := r.stages[0].head()
	if head.Width != seen.Width || head.Height != seen.Height {
		return View{}, fmt.Errorf("transform: a head of %d x %d, where the recipe's is %d x %d", head.Width, head.Height, seen.Width, seen.Height)
	}
	return r.carry(ws, head, rest)
}

// carry does the stages, of the first one what a geometry says, and the paints.
func (r *Recipe) carry(ws *Workspace, src *imaging.Image, first augment.Geometry) (View, error) {
	ws.view = *src
	next := 0
	for i := range r.stages {
		s := &r.stages[i]
		g := s.geometry
		if i == 0 {
			g = first
		}
		if moves(&g) {
			out := &ws.images[next]
			next ^= 1
			if err := ws.augment.Image(out, &ws.view, g, s.look); err != nil {
				return View{}, err
			}
			ws.view = *out
		} else if c := g.Crop; c != (augment.Region{}) {
			var err error
			if ws.view, err = resize.Crop(&ws.view, c.X, c.Y, c.Width, c.Height); err != nil {
				return View{}, err
			}
		}
		for k := s.from; k < s.to; k++ {
			p := &r.paints[k]
			err := p.Op.Apply(&ws.augment, &ws.view)
			if err == nil && p.Erasing.Region.Width > 0 {
				err = p.Erasing.Apply(&ws.augment, &ws.view)
			}
			if err != nil {
				return View{}, err
			}
		}
	}
	return View{ws.view, r.flipX, r.flipY}, nil
}

// Mask writes to dst what becomes of src, a mask of the image that the recipe was drawn
// for: every pixel is a copy of one of src's, or fill where it shows what lies beyond
// the image, whatever the colour there. Flips are done. If dst has the dimensions of
// the result, it is written where it lies, otherwise it takes memory as its Reset does.
// dst and src must not share pixels; src stays as it is.
func (r *Recipe) Mask(ws *Workspace, dst, src *imaging.Mask, fill uint8) error {
	if err := r.fits("a mask", src.Width, src.Height); err != nil {
		return err
	}
	// What remains to be flipped goes into the last stage, unless that has a matrix,
	// which comes after its flips.
	last := len(r.stages) - 1
	flips := augment.Geometry{FlipX: r.flipX, FlipY: r.flipY}
	apart := (r.flipX || r.flipY) && r.stages[last].geometry.Matrix != (augment.Matrix{})
	ws.mask = *src
	next := 0
	for i := range r.stages {
		s := &r.stages[i]
		g, out := s.geometry, dst
		if i < last || apart {
			if !moves(&g) && g.Crop == (augment.Region{}) {
				continue
			}
			out = &ws.masks[next]
			next ^= 1
		} else {
			g.FlipX, g.FlipY = g.FlipX != flips.FlipX, g.FlipY != flips.FlipY
		}
		if err := ws.augment.Mask(out, &ws.mask, g, fill); err != nil {
			return err
		}
		ws.mask = *out
	}
	if apart {
		return ws.augment.Mask(dst, &ws.mask, flips, fill)
	}
	return nil
}

// Boxes maps boxes of the image that the recipe was drawn for, in place. Each is clipped
// to what shows; see [augment.Geometry.Boxes]. It returns those that the filter keeps, in
// order, and appends the number that each had to kept, by which labels can follow.
func (r *Recipe) Boxes(boxes []augment.Box, kept []int, f augment.BoxFilter) ([]augment.Box, []int, error) {
	for i := range r.stages {
		s := &r.stages[i]
		if err := s.geometry.Validate(s.width, s.height); err != nil {
			return nil, kept, err
		}
	}
	last := r.last()
	flips := augment.Geometry{FlipX: r.flipX, FlipY: r.flipY}
	n := 0
	for i, b := range boxes {
		clipped, whole := b, b
		for k := range r.stages {
			s := &r.stages[k]
			clipped, whole = s.geometry.Box(clipped, whole, s.width, s.height)
		}
		clipped, whole = flips.Box(clipped, whole, last.outWidth, last.outHeight)
		if f.Keeps(clipped, whole) {
			boxes[n] = clipped
			kept = append(kept, i)
			n++
		}
	}
	return boxes[:n], kept, nil
}

var errEmpty = errors.New("transform: the recipe is empty; Program.Draw makes one")

// fits says that something has the dimensions that the recipe was drawn for.
func (r *Recipe) fits(what string, width, height int) error {
	if len(r.stages) == 0 {
		return errEmpty
	}
	if width != r.width || height != r.height {
		return fmt.Errorf("transform: %s of %d x %d, where the recipe is for an image of %d x %d", what, width, height, r.width, r.height)
	}
	return nil
}
