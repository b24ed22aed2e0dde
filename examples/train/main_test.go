package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"shardify/dataset/datasettest"
	"shardify/sample"
	"shardify/store/file"
)

// colours makes images whose colour, among much noise, tells their class.
func colours(t *testing.T, n, classes int) datasettest.Made {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	label := n % classes
	m := image.NewRGBA(image.Rect(0, 0, 24+n%9, 20+n%7))
	for i := range m.Pix {
		m.Pix[i] = uint8(random.IntN(200))
	}
	for y := range m.Rect.Dy() {
		for x := range m.Rect.Dx() {
			c := m.RGBAAt(x, y)
			v := [...]*uint8{&c.R, &c.G, &c.B}[label]
			*v = min(255, *v+40)
			m.SetRGBA(x, y, color.RGBA{c.R, c.G, c.B, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return datasettest.Made{
		Sample: sample.Sample{Key: fmt.Sprintf("sample-%04d", n), Fields: []sample.Field{{Name: "png", Data: b.Bytes()}}},
		Label:  int64(label),
	}
}

func write(t *testing.T) string {
	dir := t.TempDir()
	datasettest.Write(t, file.New(dir), datasettest.Options{
		Splits: []string{"train", "val"}, Shards: 4, Samples: 60, Classes: 3,
		Make: func(n, classes int) datasettest.Made { return colours(t, n, classes) },
	})
	return dir
}

func testOptions(data, checkpoint string) options {
	return options{data: data, epochs: 4, batch: 16, side: 16, seed: 1, rate: 0.003, checkpoint: checkpoint, every: 4}
}

func read(t *testing.T, path string) (run checkpoint) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &run); err != nil {
		t.Fatal(err)
	}
	return run
}

// It learns, and prints that it does.
func TestLearns(t *testing.T) {
	var out bytes.Buffer
	o := testOptions(write(t), filepath.Join(t.TempDir(), "run.json"))
	if err := train(t.Context(), o, log.New(&out, "", 0)); err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`epoch (\d)  loss (\S+)  val (\S+)%`).FindAllStringSubmatch(out.String(), -1)
	if len(lines) != o.epochs {
		t.Fatalf("output:\n%s", &out)
	}
	last, err := strconv.ParseFloat(lines[o.epochs-1][3], 64)
	if err != nil || last < 80 {
		t.Errorf("of three classes it tells %v%%:\n%s", last, &out)
	}
	// A second call has nothing left to do, and changes nothing.
	before := read(t, o.checkpoint)
	out.Reset()
	if err := train(t.Context(), o, log.New(&out, "", 0)); err != nil || out.Len() > 0 {
		t.Errorf("again: %v: %s", err, &out)
	}
	if !reflect.DeepEqual(before, read(t, o.checkpoint)) {
		t.Error("the checkpoint of a finished run has changed")
	}
}

// A run that is stopped again and again ends with the weights of one that is not.
func TestInterrupted(t *testing.T) {
	data, dir := write(t), t.TempDir()
	whole := testOptions(data, filepath.Join(dir, "whole.json"))
	if err := train(t.Context(), whole, log.New(io.Discard, "", 0)); err != nil {
		t.Fatal(err)
	}
	cut := testOptions(data, filepath.Join(dir, "cut.json"))
	random := rand.New(rand.NewPCG(1, 2))
	stops := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(60+20*stops))*time.Millisecond)
		stopper, stop := context.WithCancel(t.Context())
		release := context.AfterFunc(ctx, stop)
		err := train(stopper, cut, log.New(io.Discard, "", 0))
		release()
		cancel()
		stop()
		if err != nil && stopper.Err() == nil {
			t.Fatal(err)
		}
		if err == nil {
			break
		}
		stops++
	}
	if stops == 0 {
		t.Fatal("it was never stopped")
	}
	if a, b := read(t, whole.checkpoint), read(t, cut.checkpoint); !reflect.DeepEqual(a, b) {
		t.Errorf("after %d stops the run differs from one without", stops)
	}
}

// A checkpoint of other data is refused, and stays.
func TestOtherData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	o := testOptions(write(t), path)
	o.epochs = 1
	if err := train(t.Context(), o, log.New(io.Discard, "", 0)); err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	o.batch = 15
	err := train(t.Context(), o, log.New(io.Discard, "", 0))
	if err == nil || !strings.Contains(err.Error(), "batch") || !strings.Contains(err.Error(), path) {
		t.Errorf("another batch size: %v", err)
	}
	if !reflect.DeepEqual(before, read(t, path)) {
		t.Error("the refused checkpoint has changed")
	}
}
