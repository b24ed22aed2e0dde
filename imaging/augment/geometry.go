package augment

import (
	"errors"
	"fmt"

	"shardify/imaging"
	"shardify/imaging/resize"
	"shardify/internal/simd"
)

// Geometry says where everything in an image goes. The image, its masks and its boxes
// share one: what lies together in the source lies together in the result. The zero
// value leaves all as it is. Its steps are taken in the order of the fields.
type Geometry struct {
	// Crop is the part of the source that is looked at, within the source; the zero
	// value is all of it.
	Crop Region `json:"crop,omitzero"`
	// Width and Height are to what that is scaled; 0, 0 means not at all.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
	// Window is the part of the scaled image that is shown; the zero value is all of
	// it. It may reach beyond, where PaddingMode says what is seen.
	Window      Region      `json:"window,omitzero"`
	PaddingMode PaddingMode `json:"padding_mode,omitzero"`
	// FlipX mirrors left to right, FlipY top to bottom.
	FlipX bool `json:"flip_x,omitempty"`
	FlipY bool `json:"flip_y,omitempty"`
	// Matrix maps the result to what the steps before made, whose size it keeps (see
	// Matrix and Warp); the zero value is the identity.
	Matrix Matrix `json:"matrix,omitzero"`
}

// Validate reports every fault that makes the geometry impossible for a source of
// width x height.
func (g Geometry) Validate(width, height int) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c := g.Crop; c != (Region{}) && (c.X < 0 || c.Y < 0 || c.Width < 1 || c.Height < 1 || c.Width > width-c.X || c.Height > height-c.Y) {
		fault("crop %+v does not lie within %d x %d", c, width, height)
	}
	if (g.Width != 0 || g.Height != 0) && (g.Width < 1 || g.Height < 1 || g.Width > 1<<24 || g.Height > 1<<24) {
		fault("scaled to %d x %d; want both from 1 to %d, or both 0", g.Width, g.Height, 1<<24)
	}
	const far = 1 << 24
	if w := g.Window; w != (Region{}) && (w.Width < 1 || w.Height < 1 || w.Width > far || w.Height > far || w.X < -far || w.Y < -far || w.X > far || w.Y > far) {
		fault("window %+v is empty, or larger or farther than %d pixels", w, far)
	}
	if err := g.PaddingMode.validate(); err != nil {
		faults = append(faults, err)
	}
	if g.Matrix != (Matrix{}) {
		if _, ok := g.Matrix.Inverse(); !ok || g.Matrix.validate() != nil {
			fault("matrix %v has no inverse", g.Matrix)
		}
	}
	return invalid("geometry", faults...)
}

// Size returns the dimensions of the result, given the source's.
func (g Geometry) Size(width, height int) (int, int) {
	g = g.resolve(width, height)
	return g.Window.Width, g.Window.Height
}

// resolve writes out the defaults.
func (g Geometry) resolve(width, height int) Geometry {
	if g.Crop == (Region{}) {
		g.Crop = Region{Width: width, Height: height}
	}
	if g.Width == 0 {
		g.Width, g.Height = g.Crop.Width, g.Crop.Height
	}
	if g.Window == (Region{}) {
		g.Window = Region{Width: g.Width, Height: g.Height}
	}
	if g.Matrix == (Matrix{}) {
		g.Matrix = IdentityMatrix
	}
	return g
}

// Look says how pixels are made of others. The zero value is torchvision's: bilinear
// (with antialiasing) when scaled, the nearest under a Matrix, black outside.
type Look struct {
	// Filter scales.
	Filter resize.Filter `json:"filter,omitzero"`
	// Interpolation is for the Matrix.
	Interpolation Interpolation `json:"interpolation,omitzero"`
	Fill          Color         `json:"fill,omitzero"`
}

// Image writes to dst what g makes of src, as Pillow would step by step: crop, resize,
// pad, transpose and transform. If dst has the dimensions of the result it is written
// where it lies (in a part of a larger image, say), otherwise it takes memory as its
// Reset does. dst and src must not share pixels.
func (ws *Workspace) Image(dst, src *imaging.Image, g Geometry, l Look) error {
	if err := errors.Join(check(src), g.Validate(src.Width, src.Height)); err != nil {
		return err
	}
	if err := l.Interpolation.validate(); err != nil {
		return fmt.Errorf("augment: %w", err)
	}
	g = g.resolve(src.Width, src.Height)
	w, h := g.Window.Width, g.Window.Height
	if dst.Width != w || dst.Height != h || check(dst) != nil {
		dst.Reset(w, h)
	}
	out := dst
	if g.Matrix != IdentityMatrix {
		out = &ws.stage[0]
		out.Reset(w, h)
	}
	part, err := resize.Crop(src, g.Crop.X, g.Crop.Y, g.Crop.Width, g.Crop.Height)
	if err != nil {
		return err
	}
	if err := ws.show(out, &part, &g, l); err != nil {
		return err
	}
	if g.FlipX {
		FlipX(out)
	}
	if g.FlipY {
		FlipY(out)
	}
	if out != dst {
		ws.warp(dst, out, &g.Matrix, l.Interpolation, l.Fill)
	}
	return nil
}

// show scales part and writes the window of it to out.
func (ws *Workspace) show(out, part *imaging.Image, g *Geometry, l Look) error {
	win := g.Window
	x0, y0 := max(win.X, 0), max(win.Y, 0)
	x1, y1 := min(win.X+win.Width, g.Width), min(win.Y+win.Height, g.Height)
	seen := Region{x0, y0, x1 - x0, y1 - y0}
	if seen != win && g.PaddingMode != Constant {
		whole := &ws.stage[1]
		whole.Reset(g.Width, g.Height)
		if err := ws.resizer.Resize(whole, part, resize.Full(part), l.Filter); err != nil {
			return err
		}
		ws.columns = grow(ws.columns, win.Width)
		for i := range ws.columns {
			ws.columns[i] = int32(g.PaddingMode.source(win.X+i, g.Width))
		}
		p := imagePlane(whole)
		ws.together(ws.columns)
		for y := range win.Height {
			p.gather(out.Pix[y*out.Stride:][:3*win.Width], ws.pieces, g.PaddingMode.source(win.Y+y, g.Height), &l.Fill)
		}
		return nil
	}
	if seen != win {
		p := imagePlane(out)
		for y := range win.Height {
			p.fill(out.Pix[y*out.Stride:][:3*win.Width], &l.Fill)
		}
		if seen.Width < 1 || seen.Height < 1 {
			return nil
		}
	}
	at, err := resize.Crop(out, seen.X-win.X, seen.Y-win.Y, seen.Width, seen.Height)
	if err != nil {
		return err
	}
	return ws.resizer.ResizeWindow(&at, part, resize.Full(part), l.Filter, g.Width, g.Height, seen.X, seen.Y)
}

// Mask writes to dst what g makes of the mask src: each pixel is a copy of the nearest
// one's, chosen as Pillow's resize and transform with NEAREST choose it, by its centre.
// (torchvision and OpenCV scale masks from their corners unless told "nearest-exact",
// and so shift them by up to half a pixel of the result against the image.) Outside is fill. For dst
// the same holds as for Image.
func (ws *Workspace) Mask(dst, src *imaging.Mask, g Geometry, fill uint8) error {
	if err := errors.Join(checkMask(src), g.Validate(src.Width, src.Height)); err != nil {
		return err
	}
	g = g.resolve(src.Width, src.Height)
	w, h := g.Window.Width, g.Window.Height
	if dst.Width != w || dst.Height != h || checkMask(dst) != nil {
		dst.Reset(w, h)
	}
	out := dst
	if g.Matrix != IdentityMatrix {
		out = &ws.mask
		out.Reset(w, h)
	}
	columns := places(&ws.columns, g.Crop.X, g.Crop.Width, g.Width, g.Window.X, w, g.PaddingMode, g.FlipX)
	rows := places(&ws.rows, g.Crop.Y, g.Crop.Height, g.Height, g.Window.Y, h, g.PaddingMode, g.FlipY)
	p := maskPlane(src)
	ws.together(columns)
	for y, sy := range rows {
		p.gather(out.Pix[y*out.Stride:][:w], ws.pieces, int(sy), &Color{fill})
	}
	if out != dst {
		ws.nearest(maskPlane(dst), maskPlane(out), &g.Matrix, Color{fill})
	}
	return nil
}

// places returns, for each of count pixels of a window at from, the pixel of the source
// that it shows along one axis, or -1: of a crop of length pixels at start, scaled to
// scaled. Pillow adds the step up, so the places of all are computed, first in order.
// The result lies in memory and is valid as long as that.
func places(memory *[]int32, start, length, scaled, from, count int, mode PaddingMode, flip bool) []int32 {
	*memory = grow(*memory, scaled+count)
	all, window := (*memory)[:scaled], (*memory)[scaled:]
	step := float64(length) / float64(scaled)
	at := float64(step * 0.5)
	for i := range all {
		all[i] = int32(start + index(at, length))
		at += step
	}
	for i := range window {
		k := i
		if flip {
			k = count - 1 - i
		}
		window[k] = -1
		if s := mode.source(from+i, scaled); s >= 0 {
			window[k] = all[s]
		}
	}
	return window
}

// FlipX mirrors m left to right, in place.
func FlipX(m *imaging.Image) {
	for y := range m.Height {
		flip(m.Pix[y*m.Stride:][:3*m.Width], simd.Best())
	}
}

// FlipY mirrors m top to bottom, in place.
func FlipY(m *imaging.Image) {
	var spare [1536]uint8
	for y := range m.Height / 2 {
		top := m.Pix[y*m.Stride:][:3*m.Width]
		bottom := m.Pix[(m.Height-1-y)*m.Stride:][:3*m.Width]
		for len(top) > 0 {
			n := copy(spare[:], top)
			copy(top[:n], bottom)
			copy(bottom, spare[:n])
			top, bottom = top[n:], bottom[n:]
		}
	}
}
