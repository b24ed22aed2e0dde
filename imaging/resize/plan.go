package resize

import "math"

// Axis is how one axis of a task is scaled. The weight of source sample j in sample i of
// the scaled image is the filter's at (j - center + 0.5) * Step, with
//
//	center = From + (i + 0.5) * Scale
//
// for the j from int(center - Support + 0.5) to before int(center + Support + 0.5) that
// there are, divided by the sum of these weights.
type Axis struct {
	// Scales says whether there is a pass along this axis at all.
	Scales                     bool
	From, Scale, Support, Step float64
}

// Taps bounds how many source samples have a weight in one of the scaled image.
func (a Axis) Taps() int {
	if !a.Scales {
		return 1
	}
	return 2*int(math.Ceil(a.Support)) + 1
}

// Plan is what those need to know who carry a task out elsewhere, on a GPU say, and want
// the same pixels: how each axis is scaled, and which of the two passes, each of which
// rounds to 8 bits, goes first. Of the task, X, Y and the flips do not matter.
func (t Task) Plan() (across, down Axis, acrossFirst bool, err error) {
	t.X, t.Y = 0, 0
	if err := t.check(t.Width, t.Height); err != nil {
		return across, down, false, err
	}
	columns := axisKey{source: t.SourceWidth, from: float32(t.Part.X0), to: float32(t.Part.X1), size: t.Width, filter: t.Filter}
	rows := axisKey{source: t.SourceHeight, from: float32(t.Part.Y0), to: float32(t.Part.Y1), size: t.Height, filter: t.Filter}
	return columns.axis(), rows.axis(), t.acrossFirst(), nil
}

func (k *axisKey) axis() Axis {
	scale := float64(k.to-k.from) / float64(k.size)
	stretch := max(scale, 1)
	return Axis{Scales: k.scales(), From: float64(k.from), Scale: scale, Support: filters[k.filter].support * stretch, Step: 1 / stretch}
}

// acrossFirst says whether the horizontal pass goes first.
func (t *Task) acrossFirst() bool {
	return t.SourceHeight <= t.Height || t.SourceHeight-t.Height <= 2*(t.SourceWidth-t.Width)
}
