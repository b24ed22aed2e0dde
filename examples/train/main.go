// Train is a whole training loop over a packed data set: epochs, validation,
// checkpoints in the middle of an epoch, Ctrl-C, and going on where it was, to the
// same weights as if nothing had happened.
//
//	shardify pack ~/flowers ./flowers     # with the folders train and val
//	go run shardify/examples/train ./flowers
//
// The model is softmax regression, so that the loop is what there is to see. Your own
// takes its place: it gets a tensor of floats and the labels.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"shardify/imaging/transform"
	"shardify/reader"
)

type options struct {
	data       string // a folder, or what else a data set's place is
	epochs     int
	batch      int
	side       int // of the images
	seed       uint64
	rate       float64
	checkpoint string
	every      int64 // batches between checkpoints
}

// checkpoint is all that a run needs to go on: the model, and the reader's state.
type checkpoint struct {
	Model  *model
	Reader reader.State
}

func main() {
	var o options
	flag.IntVar(&o.epochs, "epochs", 5, "passes over the data")
	flag.IntVar(&o.batch, "batch", 64, "images of a batch")
	flag.IntVar(&o.side, "side", 32, "width and height of the images that the model sees")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the weights, the order and the crops")
	flag.Float64Var(&o.rate, "rate", 0.01, "learning rate")
	flag.StringVar(&o.checkpoint, "checkpoint", "checkpoint.json", "where to keep the run; one that is there is gone on with")
	flag.Int64Var(&o.every, "every", 50, "batches between checkpoints")
	flag.Usage = func() {
		log.New(flag.CommandLine.Output(), "", 0).Print("usage: train [flags] DATA")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	o.data = flag.Arg(0)

	// Ctrl-C ends the loop between two batches, with a last checkpoint.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := train(ctx, o, log.New(os.Stdout, "", 0))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// labelled leaves out what there is nothing to learn from.
var labelled = reader.Sampling{Where: "label is not null"}

func train(ctx context.Context, o options, out *log.Logger) error {
	data, err := reader.Open(ctx, o.data, reader.Config{
		Sampling:  labelled,
		BatchSize: o.batch,
		Seed:      o.seed,
		DType:     reader.DTypeFloat32,
		Transform: transform.List{
			transform.RandomResizedCrop{Size: transform.Size{o.side}, Scale: [2]float64{0.5, 1}},
			transform.RandomHorizontalFlip{},
			transform.ImageNet,
		},
		OnBad: reader.OnBadSkip, // one damaged file in a million is no reason to stop
	})
	if err != nil {
		return err
	}
	defer data.Close()

	run, err := load(o, data)
	if err != nil {
		return err
	}
	stop := func(err error) error {
		if err = errors.Join(err, save(o.checkpoint, run)); errors.Is(err, context.Canceled) {
			err = fmt.Errorf("stopped in epoch %d before batch %d; the same command goes on: %w", run.Reader.Epoch, run.Reader.Batch, err)
		}
		return err
	}
	var loss float64
	var batches int
	for batch, err := range data.Epochs(ctx, run.Reader, o.epochs) {
		if err != nil {
			return stop(err)
		}
		if batch.Len() > 0 { // none where all its samples were damaged
			loss += run.Model.step(batch.Images().Float32(), batch.Labels(), float32(o.rate), 0.9)
			batches++
		}
		// The state behind this batch goes with the weights that have seen it.
		epoch := batch.Epoch()
		run.Reader = batch.State()
		batch.Release()
		if run.Reader.Batch%o.every == 0 {
			if err := save(o.checkpoint, run); err != nil {
				return err
			}
		}
		if run.Reader.Epoch == epoch {
			continue
		}
		// That was the epoch's last batch. While the model is validated, the next epoch's
		// first ones are made.
		right, err := validate(ctx, o, run.Model)
		if err != nil {
			return stop(err)
		}
		out.Printf("epoch %d  loss %.4f  val %.1f%%", epoch, loss/float64(max(1, batches)), 100*right)
		loss, batches = 0, 0
	}
	for _, bad := range data.BadSamples() {
		out.Printf("left out %s of %s: %s", bad.Key, bad.Shard, bad.Reason)
	}
	return nil
}

// validate returns the share of the split "val" that the model gets right.
func validate(ctx context.Context, o options, m *model) (float64, error) {
	data, err := reader.Open(ctx, o.data, reader.Config{
		Split:     "val",
		Sampling:  labelled,
		BatchSize: o.batch,
		Shuffle:   reader.ShuffleNone,
		DType:     reader.DTypeFloat32,
		Transform: transform.List{transform.Resize{Size: transform.Size{o.side * 8 / 7}}, transform.CenterCrop{Size: transform.Size{o.side}}, transform.ImageNet},
	})
	if err != nil {
		return 0, err
	}
	defer data.Close()
	right := 0
	for batch, err := range data.Epoch(ctx, 0) {
		if err != nil {
			return 0, err
		}
		right += m.right(batch.Images().Float32(), batch.Labels())
		batch.Release()
	}
	return float64(right) / float64(data.Samples()), nil
}

// load goes on with the checkpoint that is there, or begins.
func load(o options, data *reader.Reader) (*checkpoint, error) {
	text, err := os.ReadFile(o.checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		start, err := data.State(0, 0)
		classes := len(data.Manifest().Classes)
		if classes == 0 {
			return nil, errors.New("the data set has no classes to learn")
		}
		return &checkpoint{newModel(3*o.side*o.side, classes, o.seed), start}, err
	} else if err != nil {
		return nil, err
	}
	var run checkpoint
	if err := json.Unmarshal(text, &run); err != nil {
		return nil, fmt.Errorf("%s: %w", o.checkpoint, err)
	}
	// Of other data, or another order: better said now than learned wrong.
	if err := data.CheckState(run.Reader); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to begin anew", o.checkpoint, err)
	}
	return &run, nil
}

// save replaces the checkpoint in one step, so that a crash leaves the old one.
func save(path string, run *checkpoint) error {
	text, err := json.Marshal(run)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(text); err != nil {
		f.Close()
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
