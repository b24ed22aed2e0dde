package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/internal/nearest"
	"shardify/reader"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/tar"
)

type streamOptions struct {
	configOptions
	format  string
	epoch   int
	batches int64
}

// streamFormats is the table of what stream can write.
var streamFormats = []struct {
	name string
	// tensors: it writes images and other tensors rather than fields.
	tensors bool
	open    func(w io.Writer) batchWriter
}{
	{"tar", false, newTarStream},
	{"npy", true, newNpyStream},
	{"npz", true, newNpzStream},
	{"jsonl", false, newJSONStream},
}

// batchWriter writes batches in a format.
type batchWriter interface {
	write(b *reader.Batch) error
	close() error
}

func newStreamCommand() *cobra.Command {
	o := new(streamOptions)
	cmd := &cobra.Command{
		Use:   "stream DST",
		Short: "An epoch to stdout, as tar, npy, npz or JSON lines",
		Long: `Write an epoch to stdout, in its order, for a program in any language.

  tar    the samples with their fields, as a tar in WebDataset's convention
  npy    for each batch arrays of NumPy's format .npy, one behind the other: the images
         as --dtype and --layout say, the labels (int64, -1 for none; with --mixup and
         --cutmix soft labels: float32, samples × classes), and those of --tensors, each
         followed by what comes with it: X_mask and X_lengths, or X_offsets (of images
         with --collate, image_offsets and image_sizes).
         Of a pipe, NumPy needs to see no more than its read:
           pipe = types.SimpleNamespace(read=sys.stdin.buffer.read)
           while sys.stdin.buffer.peek(1):
               images = numpy.lib.format.read_array(pipe)
               labels = numpy.lib.format.read_array(pipe)
         bfloat16, which NumPy lacks, comes as two bytes: a.view(ml_dtypes.bfloat16).
  npz    all tensors of all batches in one archive of NumPy's: numpy.load(f)["000000/image"]
         are the images of batch 0. It is complete when stream has ended.
  jsonl  a line for each sample: {"sample": number, "key": …, "label": …,
         "fields": {name: {"bytes": size, "text": …}}}. Fields named cls, id, index,
         txt or json (also as the last word: "caption.txt") that hold UTF-8 have
         "text", all others "base64".

With --fields, tar and jsonl have only these fields.

With --state-out FILE the state of the order goes to FILE whenever what it says is done
has been written to stdout, and --resume FILE goes on there: with the next batch, or
the next epoch. It may do so with another --world and --batch, whose product must stay.
` + streamHelp,
		Example: `  shardread stream /data/imagenet --format tar --seed 1 | tar tf - | head
  shardread stream /data/imagenet --format npy --crop 224 | python train.py
  shardread stream /data/coco --format npz --batches 1 --crop 224 \
    --tensors '[{"field":"json","name":"boxes","kind":"boxes","path":"/annotations/*/bbox","boxes":{"format":"xywh"}}]' >batch.npz
  shardread stream /data/imagenet --format jsonl --fields cls | jq -r .key
  shardread stream /data/imagenet --seed 1 --state-out state.json >first.tar  # Ctrl-C
  shardread stream /data/imagenet --resume state.json >rest.tar
  curl -s https://host/x.tar.gz | shardread stream - --format jsonl --shuffle none`,
		Args: oneSource,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runStream(cmd.Context(), o, cmd.Flags(), args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *streamOptions) addFlags(f *pflag.FlagSet) {
	o.configOptions.addFlags(f, orderFlags|imageFlags|readFlags)
	f.StringVar(&o.format, "format", "tar", "tar, npy, npz or jsonl")
	f.IntVar(&o.epoch, "epoch", 0, "the epoch, from 0")
	f.Int64Var(&o.batches, "batches", 0, "stop after so many batches (default: at the end of the epoch)")
}

func runStream(ctx context.Context, o *streamOptions, flags *pflag.FlagSet, dst string, s streams) error {
	var names []string
	for _, f := range streamFormats {
		names = append(names, f.name)
	}
	at := slices.Index(names, o.format)
	if at < 0 {
		hint := "there are: " + strings.Join(names, ", ")
		if n := nearest.Name(o.format, names); n != "" {
			hint = fmt.Sprintf("did you mean %s?", n)
		}
		return usagef("--format %q: %s", o.format, hint)
	}
	if o.epoch < 0 || o.batches < 0 {
		return usagef("--epoch and --batches must not be negative")
	}
	if err := o.exclude(flags, "epoch"); err != nil {
		return err
	}
	format := streamFormats[at]
	if !format.tensors {
		// The flags of images mean nothing here; those of a --config file may
		// stand there for other commands.
		for _, name := range tensorFlags {
			if flags.Changed(name) {
				return usagef("--%s: --format %s has the fields as they are; images come with --format npy or npz, and other tensors, too", name, o.format)
			}
		}
	}
	c, err := o.configFor(flags, dst)
	if err != nil {
		return err
	}
	switch {
	case !format.tensors:
		asTheyAre(&c)
	case c.Decode == reader.DecodeNone && c.Tensors == nil:
		return usagef("--format %s has decoded images; with decode none it needs --tensors", o.format)
	case c.Classes < 0:
		return usagef("--classes %d: --format %s has soft labels with --mixup and --cutmix", c.Classes, o.format)
	case o.format == "npz" && o.out != "":
		return usagef("--state-out: an npz is complete when it ends, and a part of one is of no use; take --format npy")
	default:
		c.Fields = nil
	}
	r, err := o.openBatches(ctx, dst, c)
	if err != nil {
		return err
	}
	defer r.Close()
	defer func() {
		st := r.Stats()
		reportCache(s.err, st)
		reportSeek(s.err, st)
	}()
	state, err := o.start(r, o.epoch, 0)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(s.out, 1<<20)
	file, err := o.begin(state, out.Flush)
	if err != nil {
		return err
	}
	w := format.open(out)
	n := int64(0)
	for b, err := range r.Epochs(ctx, state, state.Epoch+1) {
		if err != nil {
			return file.end(err)
		}
		reportBad(s.err, c.OnBad, b.Bad())
		err = w.write(b)
		next := b.State()
		b.Release()
		if err != nil {
			return err
		}
		if err := file.done(next); err != nil {
			return err
		}
		if n++; n == o.batches {
			break
		}
	}
	if err := w.close(); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := file.end(nil); err != nil {
		return err
	}
	return damage(r.Stats())
}

// asTheyAre leaves all fields as they are.
func asTheyAre(c *reader.Config) {
	c.Decode, c.Transform, c.MixUp, c.CutMix, c.Classes = reader.DecodeNone, nil, nil, nil, 0
	c.Tensors = nil
}

// tarStream writes samples as a tar.
type tarStream struct {
	w      shard.Writer
	sample sample.Sample
}

func newTarStream(w io.Writer) batchWriter { return &tarStream{w: tar.Container{}.NewWriter(w)} }

func (t *tarStream) write(b *reader.Batch) error {
	for i := range b.Len() {
		t.sample.Key = b.Key(i)
		t.sample.Fields = t.sample.Fields[:0]
		for _, name := range b.Fields() {
			if data, ok := b.Field(i, name); ok {
				t.sample.Fields = append(t.sample.Fields, sample.Field{Name: name, Data: data})
			}
		}
		if len(t.sample.Fields) == 0 {
			continue
		}
		if _, err := t.w.Write(&t.sample, &shard.Facts{Label: -1, Image: -1}); err != nil {
			return fmt.Errorf("sample %q: %w", t.sample.Key, err)
		}
	}
	return nil
}

func (t *tarStream) close() error { return t.w.Close() }

// jsonStream writes samples as JSON lines.
type jsonStream struct{ w io.Writer }

func newJSONStream(w io.Writer) batchWriter { return &jsonStream{w} }

// sampleLine is a sample in JSON.
type sampleLine struct {
	Sample int64                `json:"sample"`
	Key    string               `json:"key"`
	Label  int64                `json:"label"`
	Fields map[string]fieldLine `json:"fields"`
}

type fieldLine struct {
	Bytes  int     `json:"bytes"`
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

// textFields are the last words of the names of fields that hold text.
var textFields = []string{"cls", "id", "index", "txt", "json"}

func (j *jsonStream) write(b *reader.Batch) error {
	for i := range b.Len() {
		l := sampleLine{Sample: b.Samples()[i], Key: b.Key(i), Label: b.Labels()[i], Fields: map[string]fieldLine{}}
		for _, name := range b.Fields() {
			data, ok := b.Field(i, name)
			if !ok {
				continue
			}
			f := fieldLine{Bytes: len(data)}
			if last := strings.TrimPrefix(path.Ext("."+name), "."); slices.Contains(textFields, last) && utf8.Valid(data) {
				text := string(data)
				f.Text = &text
			} else {
				text := base64.StdEncoding.EncodeToString(data)
				f.Base64 = &text
			}
			l.Fields[name] = f
		}
		if err := printJSON(j.w, l); err != nil {
			return err
		}
	}
	return nil
}

func (j *jsonStream) close() error { return nil }
