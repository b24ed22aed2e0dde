package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// augmentations are what is measured, by the names that the contenders know them by.
// peers/augmenters.py has the same.
var augmentations = []struct {
	name string
	do   func(*augmenter) error
}{
	{"brightness", op(augment.Op{Kind: augment.Brightness, Value: 1.3})},
	{"contrast", op(augment.Op{Kind: augment.Contrast, Value: 1.3})},
	{"saturation", op(augment.Op{Kind: augment.Saturation, Value: 0.7})},
	{"hue", op(augment.Op{Kind: augment.Hue, Value: 0.1})},
	{"all four (color_jitter)", func(a *augmenter) error {
		return augment.Ops4{
			{Kind: augment.Brightness, Value: 1.3}, {Kind: augment.Contrast, Value: 1.3},
			{Kind: augment.Saturation, Value: 0.7}, {Kind: augment.Hue, Value: 0.1},
		}.Apply(&a.workspace, &a.image)
	}},
	{"grayscale", op(augment.Op{Kind: augment.Grayscale})},
	{"invert", op(augment.Op{Kind: augment.Invert})},
	{"posterize", op(augment.Op{Kind: augment.Posterize, Value: 4})},
	{"solarize", op(augment.Op{Kind: augment.Solarize, Value: 128})},
	{"autocontrast", op(augment.Op{Kind: augment.AutoContrast})},
	{"equalize", op(augment.Op{Kind: augment.Equalize})},
	{"sharpness", op(augment.Op{Kind: augment.Sharpness, Value: 1.3})},
	{"gaussian_blur 23, σ 1.5", op(augment.Op{Kind: augment.Blur, Value: 1.5, Kernel: [2]int{23, 23}})},
	{"flip", func(a *augmenter) error { augment.FlipX(&a.image); return nil }},
	{"translate, nearest", op(augment.Op{Kind: augment.TranslateX, Value: 15})},
	{"rotate 15°, nearest", op(augment.Op{Kind: augment.Rotate, Value: 15})},
	{"rotate 15°, bilinear", op(augment.Op{Kind: augment.Rotate, Value: 15, Interpolation: augment.Bilinear})},
	{"shear, bilinear", op(augment.Op{Kind: augment.ShearX, Value: 0.3, Interpolation: augment.Bilinear})},
	{"erase", func(a *augmenter) error {
		at := augment.Region{X: 40, Y: 30, Width: 90, Height: 100}
		return augment.Erasing{Region: at}.Apply(&a.workspace, &a.image)
	}},
	{"normalize, to float32 NCHW", func(a *augmenter) error {
		m := &a.image
		target := resize.Target{Width: m.Width, Height: m.Height, Layout: tensor.NCHW, Float32: a.floats[:3*m.Width*m.Height], Table: a.table}
		return a.resizer.ResizeInto(target, m, resize.Task{Part: resize.Full(m), Width: m.Width, Height: m.Height})
	}},
	{"mixup, for an image", func(a *augmenter) error {
		n := 3 * a.image.Width * a.image.Height
		return tensor.MixUp(a.floats[:mixed*n], a.spare[:n], mixed, 0.4)
	}},
}

// mixed is the batch of which mixup is measured.
const mixed = 8

func op(o augment.Op) func(*augmenter) error {
	return func(a *augmenter) error { return o.Apply(&a.workspace, &a.image) }
}

// augmenter is this repository's contender: `bench augmenter`.
type augmenter struct {
	source, image imaging.Image
	workspace     augment.Workspace
	resizer       resize.Resizer
	table         *tensor.Table
	floats, spare []float32
}

const oursAugmenting = "imaging/augment"

func runAugmenter(stdin io.Reader, stdout io.Writer) error {
	a := &augmenter{table: tensor.ImageNet.Table()}
	if _, err := fmt.Fprintln(stdout, "ready", oursAugmenting); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		seconds, err := a.pass(lines.Text())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stdout, "%.9f\n", seconds); err != nil {
			return err
		}
	}
	return lines.Err()
}

// pass does "WIDTH HEIGHT TIMES NAME", each time to a fresh copy of the image, and returns
// the seconds of one.
func (a *augmenter) pass(task string) (float64, error) {
	var w, h, times int
	if _, err := fmt.Sscanf(task, "%d %d %d", &w, &h, &times); err != nil || times < 1 {
		return 0, fmt.Errorf("augmenter: %q: want a width, a height, how often, and a name", task)
	}
	name := strings.SplitN(task, " ", 4)[3]
	for i := range augmentations {
		if augmentations[i].name != name {
			continue
		}
		if a.source.Width != w || a.source.Height != h {
			a.source.Reset(w, h)
			fillPicture(&a.source)
			a.floats, a.spare = make([]float32, mixed*len(a.source.Pix)), make([]float32, len(a.source.Pix))
		}
		do := augmentations[i].do
		start, err := processorTime()
		if err != nil {
			return 0, err
		}
		for range times {
			a.image.Reset(w, h)
			copy(a.image.Pix, a.source.Pix)
			if err := do(a); err != nil {
				return 0, err
			}
		}
		end, err := processorTime()
		seconds := (end - start).Seconds() / float64(times)
		if strings.HasPrefix(name, "mixup") {
			seconds /= mixed
		}
		return seconds, err
	}
	return 0, fmt.Errorf("augmenter: no such task: %s", name)
}

// fillPicture paints something smooth with a grain, as the Python contenders do.
func fillPicture(m *imaging.Image) {
	grain := uint32(1)
	for y := range m.Height {
		for x := range m.Width {
			for c := range 3 {
				grain = grain*1664525 + 1013904223
				v := 128 + 110*math.Sin(float64(x)/17+float64(c))*math.Cos(float64(y)/23) + float64(grain>>28) - 8
				m.Pix[y*m.Stride+3*x+c] = uint8(min(max(v, 0), 255))
			}
		}
	}
}

// Augmenting is one transform's figures, in microseconds for an image: the median of the
// rounds of each contender.
type Augmenting struct {
	Name          string    `json:"name"`
	Width, Height int       `json:"-"`
	Size          string    `json:"size"`
	Micros        []float64 `json:"us"` // by contender
	// Ratio is how often as fast ours is as the fastest of the peers.
	Ratio float64 `json:"ratio"`
}

// augment measures the transforms on one core.
func (b *bench) augment(ctx context.Context) (rep report, err error) {
	self, err := os.Executable()
	if err != nil {
		return report{}, err
	}
	script := filepath.Join(b.root, "tools", "bench", "peers", "augmenters.py")
	python := filepath.Join(b.venv("torch"), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return report{}, fmt.Errorf("%w; run `make peers-torch`", err)
	}
	var all []*contender
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.close())
		}
	}()
	for _, c := range []struct {
		name string
		env  []string
		argv []string
	}{
		{oursAugmenting, []string{"GOMAXPROCS=1"}, []string{self, "augmenter"}},
		{"AVX-512 off", []string{"GOMAXPROCS=1", noAVX512}, []string{self, "augmenter"}},
		{"generic Go", []string{"GOMAXPROCS=1", "GODEBUG=cpu.avx2=off"}, []string{self, "augmenter"}},
		{"", nil, []string{python, script, "tensors"}},
		{"", nil, []string{python, script, "pillow"}},
	} {
		contender, err := b.contend(ctx, c.name, c.env, c.argv...)
		if err != nil {
			return report{}, err
		}
		all = append(all, contender)
	}
	rep = report{
		Title: "Transforms", Date: time.Now().UTC(), Unit: "images",
		Notes: []string{
			fmt.Sprintf("Every process on %s and in one thread; each transform many times to the same image, in turn with the others', %d rounds in one run; processor time, the median of the rounds. Ours copies the image first, as it works in place.", core(), b.rounds),
			fmt.Sprintf("%s is torchvision's functions v2 of uint8 tensors, %s the same functions of PIL images, whose pixels are ours; both from Python, for an image at a time.", all[3].name, all[4].name),
			"×: the time of the fastest of the peers over ours.",
		},
	}
	for _, c := range all {
		rep.Contenders = append(rep.Contenders, c.name)
	}
	for _, size := range [][2]int{{224, 224}, {500, 375}} {
		for _, a := range augmentations {
			timings := make([]*timing, len(all))
			for i, c := range all {
				// About a hundredth of a second a pass.
				probe := fmt.Sprintf("%d %d 2 %s", size[0], size[1], a.name)
				once, err := c.pass(probe)
				if err == nil {
					once, err = c.pass(probe)
				}
				if err != nil {
					return report{}, err
				}
				times := max(1, min(2000, int(0.01/max(once, 1e-6))))
				timings[i] = &timing{contender: c, task: fmt.Sprintf("%d %d %d %s", size[0], size[1], times, a.name)}
			}
			b.say("%s: ", a.name)
			if err := b.turns(timings); err != nil {
				return report{}, err
			}
			row := Augmenting{Name: a.name, Width: size[0], Height: size[1], Size: fmt.Sprintf("%d x %d", size[0], size[1])}
			for _, t := range timings {
				row.Micros = append(row.Micros, t.median()*1e6)
			}
			row.Ratio = min(row.Micros[3], row.Micros[4]) / row.Micros[0]
			rep.Augmenting = append(rep.Augmenting, row)
		}
	}
	return rep, nil
}

// printAugmenting writes a table for each size.
func printAugmenting(w io.Writer, contenders []string, rows []Augmenting) {
	size := ""
	for _, r := range rows {
		if r.Size != size {
			size = r.Size
			fmt.Fprintf(w, "\n| %s, µs | %s | × | ns/pixel |\n|---|%s\n", size, strings.Join(contenders, " | "), strings.Repeat("---:|", len(contenders)+2))
		}
		fmt.Fprintf(w, "| %s |", r.Name)
		for _, v := range r.Micros {
			if v < 100 {
				fmt.Fprintf(w, " %.1f |", v)
			} else {
				fmt.Fprintf(w, " %s |", thousands(int64(math.Round(v))))
			}
		}
		fmt.Fprintf(w, " %.1f | %.2f |\n", r.Ratio, 1000*r.Micros[0]/float64(r.Width*r.Height))
	}
}
