// Package datasettest makes small data sets for tests, straight from the writers of
// the formats, without package pack. [Write] makes one whole; the samples it writes
// by default are those of [Sample].
package datasettest

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"shardify/dataset"
	"shardify/imaging"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/store"
)

// Options say what data set Write makes. The zero value is one split "train" of
// three shards of ten samples each, as tar.
type Options struct {
	// Format names the format of the shards; default "tar".
	Format string
	// Splits are the names of the splits; default "train".
	Splits []string
	// Shards is the number of shards of each split and Samples that of each shard;
	// default 3 and 10.
	Shards, Samples int
	// Classes is the number of classes; default 5.
	Classes int
	// Make makes sample number n of the data set; default Sample.
	Make func(n, classes int) Made
}

// Made is a sample and what its index row says besides.
type Made struct {
	sample.Sample
	// Label is the class number, -1 for none.
	Label int64
	// Paths are the original paths of the fields, escaped; "" or nil for none.
	Paths []string
}

// ClassName returns the name of a class.
func ClassName(label int64) string { return fmt.Sprintf("class-%03d", label) }

// Sample is sample number n: a JPEG of its own in a size of its own, its class
// number, and every third time a mask. Its data is shared and must not be changed;
// its slices of fields and paths are the caller's.
func Sample(n, classes int) Made {
	type which struct{ n, classes int }
	made, ok := samples.Load(which{n, classes})
	if !ok {
		made, _ = samples.LoadOrStore(which{n, classes}, newSample(n, classes))
	}
	m := made.(Made)
	m.Fields, m.Paths = slices.Clone(m.Fields), slices.Clone(m.Paths)
	return m
}

// samples keeps what newSample has made: encoding is most of the time of the tests
// that use it.
var samples sync.Map

func newSample(n, classes int) Made {
	label := int64(n % classes)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	img := image.NewYCbCr(image.Rect(0, 0, 16+r.IntN(64), 16+r.IntN(64)), image.YCbCrSubsampleRatio420)
	for i := range img.Y {
		img.Y[i] = byte(r.Uint32())
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 80}); err != nil {
		panic(err)
	}
	stem := fmt.Sprintf("%s/img_%06d", ClassName(label), n)
	m := Made{Label: label, Paths: []string{"", stem + ".JPEG"}}
	m.Key = stem
	m.Fields = []sample.Field{
		{Name: "cls", Data: fmt.Append(nil, label)},
		{Name: "jpg", Data: b.Bytes()},
	}
	if n%3 == 0 {
		m.Fields = append(m.Fields, sample.Field{Name: "seg.png", Data: mask(n)})
		m.Paths = append(m.Paths, stem+".seg.png")
	}
	return m
}

func mask(n int) []byte {
	img := image.NewGray(image.Rect(0, 0, 8, 8))
	img.SetGray(n%8, n/8%8, color.Gray{Y: 255})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Write writes a data set into st, which should be empty, and opens it.
func Write(t testing.TB, st store.Store, o Options) *dataset.Dataset {
	t.Helper()
	d, err := Make(st, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Make is Write for those who have no testing.TB.
func Make(st store.Store, o Options) (*dataset.Dataset, error) {
	ctx := context.Background()
	if o.Format == "" {
		o.Format = "tar"
	}
	if o.Splits == nil {
		o.Splits = []string{"train"}
	}
	if o.Shards == 0 {
		o.Shards = 3
	}
	if o.Samples == 0 {
		o.Samples = 10
	}
	if o.Classes == 0 {
		o.Classes = 5
	}
	if o.Make == nil {
		o.Make = Sample
	}
	f, err := formats.Parse(o.Format)
	if err != nil {
		return nil, err
	}
	m := &index.Manifest{Tool: "datasettest", Name: "test", Container: f.Container.Name(), Compression: f.Compression}
	for label := range o.Classes {
		m.Classes = append(m.Classes, ClassName(int64(label)))
	}
	n := 0
	for _, name := range o.Splits {
		split := index.Split{Name: name}
		for i := range o.Shards {
			samples := make([]Made, o.Samples)
			for j := range samples {
				samples[j] = o.Make(n, o.Classes)
				n++
			}
			sh, err := writeShard(ctx, st, f, fmt.Sprintf("%s-%06d", name, i), samples, m.Classes)
			if err != nil {
				return nil, fmt.Errorf("shard %d of split %s: %w", i, name, err)
			}
			split.Shards = append(split.Shards, sh)
			split.Samples += sh.Samples
			split.Bytes += sh.Bytes
		}
		m.Splits = append(m.Splits, split)
	}
	data, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := store.WriteAll(ctx, st, index.ManifestName, data); err != nil {
		return nil, err
	}
	return dataset.Open(ctx, st)
}

func writeShard(ctx context.Context, st store.Store, f formats.Format, base string, samples []Made, classes []string) (index.Shard, error) {
	var file, rows bytes.Buffer
	z, err := compress.NewWriter(&file, f.Compression, 0)
	if err != nil {
		return index.Shard{}, err
	}
	raw := &counter{w: z}
	w := f.Container.NewWriter(raw)
	out := index.NewRowWriter(&rows)
	var stats dataset.FieldStats
	for i := range samples {
		s := &samples[i]
		facts := shard.Facts{Label: s.Label, Image: sample.Image(s.Fields, func(f sample.Field) string { return f.Name })}
		if s.Label >= 0 {
			facts.LabelName = classes[s.Label]
		}
		orientation := 0
		if facts.Image >= 0 {
			// Of a damaged image nothing is known, as under pack --check none.
			info, err := imaging.Probe(s.Fields[facts.Image].Data)
			if err != nil {
				info = imaging.Info{}
			}
			facts.Format, facts.Colorspace = info.Format, info.Colorspace
			facts.Width, facts.Height, facts.Channels = info.Width, info.Height, info.Channels
			orientation = info.Orientation
			if s.Paths != nil {
				facts.Path = s.Paths[facts.Image]
			}
		}
		at, err := w.Write(&s.Sample, &facts)
		if err != nil {
			return index.Shard{}, err
		}
		z.EndSample(at.Offset + at.Size)
		row := dataset.Describe(&s.Sample, at, &facts, orientation, s.Paths)
		stats.Add(&row)
		if err := out.Write(row); err != nil {
			return index.Shard{}, err
		}
	}
	for _, c := range []io.Closer{w, z, out} {
		if err := c.Close(); err != nil {
			return index.Shard{}, err
		}
	}
	sh := index.Shard{
		File:    index.File{Name: base + f.Extension(), Bytes: int64(file.Len()), Checksum: index.Sum(file.Bytes())},
		Samples: int64(len(samples)),
		Fields:  stats.List(),
	}
	sh.Index = index.File{Name: dataset.IndexName(sh.Name), Bytes: int64(rows.Len()), Checksum: index.Sum(rows.Bytes())}
	if f.Compression != compress.None {
		sh.RawBytes = raw.n
	}
	if err := store.WriteAll(ctx, st, sh.Name, file.Bytes()); err != nil {
		return index.Shard{}, err
	}
	return sh, store.WriteAll(ctx, st, sh.Index.Name, rows.Bytes())
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
