package reader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/netpbm"
	"shardify/imaging/transform"
	"shardify/internal/peers"
	"shardify/sample"
)

// sequential decodes a photograph whole with Pillow, and does one thing after the other.
const sequential = `
import hashlib, json, sys
import numpy as np
from PIL import Image
for line in sys.stdin:
    a = json.loads(line)
    i = Image.open(a["file"]).convert("RGB")
    x, y, w, h = a["crop"]
    i = i.crop((x, y, x + w, y + h)).resize(a["size"], a["filter"])
    x, y, w, h = a["window"]
    i = i.crop((x, y, x + w, y + h))
    if a["flip"]:
        i = i.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    p = np.asarray(i)
    if a["normalize"]:
        p = (p.astype(np.float32) * np.float32(1 / 255) - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    if a["nchw"]:
        p = p.transpose(2, 0, 1)
    print(hashlib.sha256(np.ascontiguousarray(p).tobytes()).hexdigest())
`

// rawOf is a file's pixels as they are.
func rawOf(t *testing.T, file []byte) []byte {
	t.Helper()
	info, err := imaging.Probe(file)
	if err != nil {
		t.Fatal(err)
	}
	var m imaging.Image
	if err := imaging.Std.Decode(file, &m, imaging.DecodeOptions{}); err != nil {
		t.Fatal(err)
	}
	raw := netpbm.AppendHeader(nil, m.Width, m.Height, 1)
	if info.Colorspace != imaging.Gray {
		return append(netpbm.AppendHeader(raw[:0], m.Width, m.Height, 3), m.Pix...)
	}
	for i := 0; i < len(m.Pix); i += 3 {
		raw = append(raw, m.Pix[i])
	}
	return raw
}

// What comes of photographs is, to the last bit, what Pillow and NumPy make of them step
// by step, whoever decodes them, and with which others.
func TestPhotographsStepByStep(t *testing.T) {
	python := peers.Python(t)
	all, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*"))
	if err != nil || len(all) < 60 {
		t.Fatal(len(all), err)
	}
	var names []string
	var files [][]byte
	for _, name := range all {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := imaging.Probe(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) < 76 || info.Colorspace != imaging.RGB && len(files) < 80 {
			names, files = append(names, name), append(files, data)
		}
	}
	// One data set has the files, the other their pixels.
	of := func(field string, data func(n int) []byte) *dataset.Dataset {
		return small(t, datasettest.Options{Samples: len(files) / 4, Make: func(n, classes int) datasettest.Made {
			m := datasettest.Sample(n, classes)
			m.Fields, m.Paths = []sample.Field{{Name: field, Data: data(n % len(files))}}, nil
			return m
		}})
	}
	d := of("jpg", func(n int) []byte { return files[n] })
	raw := of("pnm", func(n int) []byte { return rawOf(t, files[n]) })
	for _, c := range []struct {
		transforms, filter string
		number             int // Pillow's, of the filter
		config             Config
	}{
		{`[{"random_resized_crop": 224}, "random_horizontal_flip"]`, "bilinear", 2, Config{}},
		{`[{"random_resized_crop": {"size": [160, 192], "interpolation": "bicubic"}}, "random_horizontal_flip", {"normalize": "imagenet"}]`, "bicubic", 3, Config{DType: DTypeFloat32}},
		{`[{"resize": 256}, {"center_crop": 224}]`, "bilinear", 2, Config{Layout: LayoutNHWC}},
	} {
		if err := json.Unmarshal([]byte(c.transforms), &c.config.Transform); err != nil {
			t.Fatal(err)
		}
		program, err := transform.Compile(c.config.Transform, transform.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.config.Seed, c.config.Ends = 5, EndsExact
		var lines strings.Builder
		samples := int(d.Manifest().Splits[0].Samples)
		for n := range samples {
			info, err := imaging.Probe(files[n%len(files)])
			if err != nil {
				t.Fatal(err)
			}
			var r transform.Recipe
			random := augment.NewRand(5, 2, uint64(n))
			if err := program.Draw(&r, &random, info.Width, info.Height); err != nil {
				t.Fatal(err)
			}
			h := r.Head()
			if !h.Whole {
				t.Fatalf("%s: %+v", c.transforms, h)
			}
			line, err := json.Marshal(map[string]any{
				"file": names[n%len(files)], "crop": []int{h.Crop.X, h.Crop.Y, h.Crop.Width, h.Crop.Height},
				"size": []int{h.Task.Width, h.Task.Height}, "window": []int{h.Task.X, h.Task.Y, h.Width, h.Height},
				"filter": c.number, "flip": h.Task.FlipX, "normalize": c.config.DType == DTypeFloat32, "nchw": c.config.Layout == LayoutNCHW,
			})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%s\n", line)
		}
		cmd := exec.Command(python, "-c", sequential)
		cmd.Stdin, cmd.Stderr = strings.NewReader(lines.String()), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(string(out))
		for _, how := range []Config{{Workers: 1, BatchSize: 1}, {Workers: 8, BatchSize: 64}, {Workers: 3, BatchSize: 7, Shuffle: ShuffleNone}} {
			config := c.config
			config.Workers, config.BatchSize, config.Shuffle = how.Workers, how.BatchSize, how.Shuffle
			seen := 0
			for _, d := range []*dataset.Dataset{d, raw} {
				for b, err := range newReader(t, d, config).Epoch(context.Background(), 2) {
					if err != nil {
						t.Fatal(err)
					}
					each := len(b.Images().Data) / b.Len()
					for k, n := range b.Samples() {
						sum := sha256.Sum256(bytes.Clone(b.Images().Data[k*each:][:each]))
						if hex.EncodeToString(sum[:]) != want[n] {
							t.Errorf("%v, %s, %d workers, batches of %d: %s differs", d.Fields(), c.transforms, how.Workers, how.BatchSize, names[int(n)%len(files)])
						}
						seen++
					}
					b.Release()
				}
			}
			if seen != 2*samples {
				t.Errorf("%d samples; want %d", seen, 2*samples)
			}
		}
	}
}
