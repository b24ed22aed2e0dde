package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
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
	// images: it writes decoded images rather than fields.
	images bool
	open   func(w io.Writer) batchWriter
}{
	{"tar", false, newTarStream},
	{"npy", true, newNpyStream},
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
		Short: "An epoch to stdout, as tar, npy or JSON lines",
		Long: `Write an epoch to stdout, in its order, for a program in any language.

  tar    the samples with their fields, as a tar in WebDataset's convention
  npy    for each batch two arrays of NumPy's format .npy, one behind the other:
         the images as --dtype and --layout say, and the labels (int64, -1 for none;
         with --mixup and --cutmix soft labels: float32, samples × classes).
         Of a pipe, NumPy needs to see no more than its read:
           pipe = types.SimpleNamespace(read=sys.stdin.buffer.read)
           while sys.stdin.buffer.peek(1):
               images = numpy.lib.format.read_array(pipe)
               labels = numpy.lib.format.read_array(pipe)
  jsonl  a line for each sample: {"sample": number, "key": …, "label": …,
         "fields": {name: {"bytes": size, "text": …}}}. Fields named cls, id, index,
         txt or json (also as the last word: "caption.txt") that hold UTF-8 have
         "text", all others "base64".

With --fields, tar and jsonl have only these fields.

With --state-out FILE the state of the order goes to FILE whenever what it says is done
has been written to stdout, and --resume FILE goes on there: with the next batch, or
the next epoch. It may do so with another --world and --batch, whose product must stay.`,
		Example: `  shardread stream /data/imagenet --format tar --seed 1 | tar tf - | head
  shardread stream /data/imagenet --format npy --crop 224 | python train.py
  shardread stream /data/imagenet --format jsonl --fields cls | jq -r .key
  shardread stream /data/imagenet --seed 1 --state-out state.json >first.tar  # Ctrl-C
  shardread stream /data/imagenet --resume state.json >rest.tar`,
		Args: oneDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runStream(cmd.Context(), o, cmd.Flags(), args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *streamOptions) addFlags(f *pflag.FlagSet) {
	o.configOptions.addFlags(f, orderFlags|imageFlags|readFlags)
	f.StringVar(&o.format, "format", "tar", "tar, npy or jsonl")
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
	if !format.images {
		// The flags of images mean nothing here; those of a --config file may
		// stand there for other commands.
		for _, name := range []string{"crop", "eval", "transform", "mixup", "cutmix", "classes", "dtype", "layout", "decode"} {
			if flags.Changed(name) {
				return usagef("--%s: --format %s has the fields as they are; images come with --format npy", name, o.format)
			}
		}
	}
	c, err := o.config(flags)
	if err != nil {
		return err
	}
	switch {
	case !format.images:
		asTheyAre(&c)
	case c.Decode == reader.DecodeNone:
		return usagef("--format npy has decoded images; it does not go with decode none")
	case c.Classes < 0:
		return usagef("--classes %d: --format npy has soft labels with --mixup and --cutmix", c.Classes)
	default:
		c.Fields = nil
	}
	r, err := o.open(ctx, dst, c)
	if err != nil {
		return err
	}
	defer r.Close()
	defer func() { reportCache(s.err, r.Stats()) }()
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
	for b, err := range r.Resume(ctx, state) {
		if err != nil {
			return file.end(err)
		}
		reportBad(s.err, c.OnBad, b)
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

// asTheyAre leaves the images as they are.
func asTheyAre(c *reader.Config) {
	c.Decode, c.Transform, c.MixUp, c.CutMix, c.Classes = reader.DecodeNone, nil, nil, nil, 0
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

// npyStream writes batches as pairs of NumPy arrays.
type npyStream struct{ w io.Writer }

func newNpyStream(w io.Writer) batchWriter { return &npyStream{w} }

func (n *npyStream) write(b *reader.Batch) error {
	images := b.Images()
	descr := "|u1"
	if images.DType == reader.DTypeFloat32 {
		descr = "<f4"
	}
	if err := n.header(descr, images.Shape); err != nil {
		return err
	}
	var err error
	if images.DType == reader.DTypeFloat32 {
		err = writeLittle(n.w, images.Float32())
	} else {
		_, err = n.w.Write(images.Data)
	}
	if err != nil {
		return err
	}
	if soft, ok := b.Tensor("soft_label"); ok {
		if err := n.header("<f4", soft.Shape); err != nil {
			return err
		}
		return writeLittle(n.w, soft.Float32())
	}
	if err := n.header("<i8", []int{b.Len()}); err != nil {
		return err
	}
	return writeLittle(n.w, b.Labels())
}

func (n *npyStream) close() error { return nil }

// header writes the header of version 1.0: magic, version, length, and a Python
// dictionary filled up with spaces so that the data begins at a multiple of 64.
func (n *npyStream) header(descr string, shape []int) error {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = fmt.Sprint(d)
	}
	tuple := strings.Join(dims, ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, tuple)
	const before = 10
	size := (before+len(dict)+1+63)/64*64 - before
	head := append([]byte("\x93NUMPY\x01\x00"), byte(size), byte(size>>8))
	head = append(head, dict...)
	head = append(head, strings.Repeat(" ", size-len(dict)-1)...)
	_, err := n.w.Write(append(head, '\n'))
	return err
}

// writeLittle writes numbers in little-endian order, in pieces.
func writeLittle[T float32 | int64](w io.Writer, values []T) error {
	buf := make([]byte, 0, 64<<10)
	for len(values) > 0 {
		k := min(len(values), 8<<10)
		var err error
		if buf, err = binary.Append(buf[:0], binary.LittleEndian, values[:k]); err != nil {
			return err
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		values = values[k:]
	}
	return nil
}

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
