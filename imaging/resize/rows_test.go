package resize

import (
	"math/rand/v2"
	"testing"

	"shardify/imaging/tensor"
)

// Rows has all rows of the source that Begin asks for, and not many more.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	var z Resizer
	pix := make([]uint8, 3*64*64)
	for range 20_000 {
		task := Task{
			SourceWidth: 1 + r.IntN(300), SourceHeight: 1 + r.IntN(300), Width: 1 + r.IntN(64), Height: 1 + r.IntN(64),
			Filter: Filter(r.IntN(int(Lanczos) + 1)),
		}
		task.Part = Rect{X1: float64(task.SourceWidth), Y1: float64(task.SourceHeight)}
		switch r.IntN(3) {
		case 0:
			task.Part.Y0 = r.Float64() * float64(task.SourceHeight) * 0.9
			task.Part.Y1 = task.Part.Y0 + (float64(task.SourceHeight)-task.Part.Y0)*(0.1+0.9*r.Float64())
		case 1:
			task.Height = min(task.SourceHeight, 64)
			task.Part.Y1 = float64(task.Height)
		}
		task.Y = r.IntN(task.Height)
		h := 1 + r.IntN(task.Height-task.Y)
		span, err := z.Begin(task, Target{Width: task.Width, Height: h, Layout: tensor.NHWC, Uint8: pix[:3*task.Width*h]})
		if err != nil {
			continue
		}
		from, to := task.Rows(h)
		slack := 3 + task.SourceHeight/task.Height
		if from > span.Y0 || to < span.Y1 || from < 0 || to > task.SourceHeight || span.Y0-from > slack || to-span.Y1 > slack {
			t.Fatalf("%+v, %d rows: %d to %d, and Begin asks for %d to %d", task, h, from, to, span.Y0, span.Y1)
		}
	}
}
