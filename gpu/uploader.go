package gpu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
	"shardify/reader"
)

// OpenNamed opens a GPU by its UUID, as nvidia-smi shows it ("GPU-6fd6…"), which is the same
// in every process, or by its number as Open does.
func OpenNamed(name string) (*Device, error) {
	d, err := cuda.Default()
	if err != nil {
		return nil, err
	}
	return openNamed(d, name)
}

func openNamed(d *cuda.Driver, name string) (*Device, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return open(d, n)
	}
	if !strings.HasPrefix(name, "GPU-") {
		return nil, fmt.Errorf("%w: %q is no GPU: want a UUID as nvidia-smi -L shows it, or a number", ErrUnavailable, name)
	}
	v, err := d.DeviceOf(name)
	if err != nil {
		return nil, err
	}
	return open(d, v.Ordinal)
}

// UUID is the GPU's, as nvidia-smi shows it.
func (d *Device) UUID() string { return d.context.Device().UUID }

// Map maps memory of this GPU that another process has shared (Uploader.Share), of size
// bytes, by its file, which may be closed afterwards. at is a Pointer. unmap must be called
// once, when nothing in any stream of this process uses it any more. What is mapped is there
// also when the other process has ended.
func (d *Device) Map(f *os.File, size int64) (at uint64, unmap func() error, err error) {
	m, err := d.context.Map(f, size)
	if err != nil {
		return 0, nil, err
	}
	return uint64(m.At()), m.Free, nil
}

// Uploader brings the batches of one reader to memory on a GPU that another process maps:
// package feed serves clients with it (docs/feed.md). It is safe for concurrent use.
//
// What a reader would do to images at the very end, and a GPU can do as well, is done there:
// where the configuration asks for floats, the reader makes bytes, channels last, and
// Device.Normalize the rest, with the same numbers. So only bytes cross the bus. Or all that
// is to be done to images is done there, by a Pipeline, with the same bytes: see NewUploader.
type Uploader struct {
	device   *Device
	pinned   *Pinned
	wanted   reader.Config
	work     *work     // nil: batches are copied as they are
	pipeline *Pipeline // nil: the reader transforms images
	split    reader.Config
	stream   Stream

	mu      sync.Mutex
	shared  map[uint64]*cuda.Shared
	trips   []trip // that nobody uses now
	staging Tensor // where what is worked at lies, in the stream's order
}

// trip is the events of a batch on its way: around its copies, which know when they were
// over, and behind the work on it, which is waited for.
type trip struct{ begin, copied, done cuda.Event }

func (t *trip) events() []*cuda.Event { return []*cuda.Event{&t.begin, &t.copied, &t.done} }

// work is what is done on the GPU with each batch, one tensor after the other.
type work struct {
	// config is what the reader is to make instead of what was wanted.
	config reader.Config
	// makes says what becomes of a tensor of the reader's; ok is false of one that is copied
	// as it is. Nothing is allocated: Data is 0.
	makes func(host reader.Tensor) (made Tensor, ok bool)
	// do puts the work into a stream, from a tensor that has been copied to its result.
	do func(d *Device, made, copied Tensor, s Stream) error
}

// NewUploader opens a GPU by its name, as OpenNamed does, for the batches of a reader with
// this configuration. transform says that its transforms are carried out on the GPU, by a
// Pipeline: images come there as they were decoded (Split), which spares the processors, and
// takes more of the bus and of the GPU's memory.
//
// The error is ErrUnavailable where there is no such GPU, or it cannot share memory;
// reader.ErrConfig where it cannot do what it is to do, naming the place in the list. Close it
// at the end.
func NewUploader(name string, c reader.Config, transform bool) (*Uploader, error) {
	d, err := OpenNamed(name)
	if err != nil {
		return nil, err
	}
	return newUploader(d, c, transform)
}

// newUploader takes the device over, also where it fails.
func newUploader(d *Device, c reader.Config, transform bool) (*Uploader, error) {
	u := &Uploader{device: d, wanted: c, pinned: d.Pinned(PinnedConfig{}), shared: map[uint64]*cuda.Shared{}}
	err := d.context.Sharing()
	switch {
	case err != nil:
	case transform:
		err = u.transform()
	default:
		u.work = workFor(d, c)
	}
	if err == nil {
		u.stream, err = d.NewStream()
	}
	if err != nil {
		if u.pipeline != nil {
			err = errors.Join(err, u.pipeline.Close())
		}
		return nil, errors.Join(err, d.Close())
	}
	return u, nil
}

// blends says that batches are blended.
func (u *Uploader) blends() bool { return u.wanted.MixUp != nil || u.wanted.CutMix != nil }

// transform makes the pipeline.
func (u *Uploader) transform() error {
	host, config, err := Split(u.wanted)
	if u.blends() && u.wanted.Classes == 0 {
		err = errors.Join(err, errors.New("classes: soft labels need their number, which is not taken from the data set where a GPU transforms: set it, or -1 for no soft labels"))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", reader.ErrConfig, err)
	}
	u.split = host
	u.pipeline, err = u.device.NewPipeline(config)
	return err
}

// workFor is what of a configuration is done on the GPU.
func workFor(d *Device, c reader.Config) *work {
	switch v := d.context.Device(); {
	case c.DType != reader.DTypeFloat32 && c.DType != reader.DTypeFloat16 && c.DType != reader.DTypeBFloat16,
		c.Decode != "" && c.Decode != reader.DecodeImage,
		c.Collate != "" && c.Collate != reader.CollateStack,
		c.MixUp != nil, c.CutMix != nil,
		slices.ContainsFunc(c.Tensors, func(s reader.TensorSpec) bool { return s.Kind == reader.KindImage }),
		v.Major < minMajor, v.Major == minMajor && v.Minor < minMinor:
		return nil
	}
	config := NormalizeConfig{Layout: c.Layout}
	w := &work{config: c}
	if n := len(c.Transform); n > 0 {
		if t, ok := c.Transform[n-1].(transform.Normalize); ok {
			config.Normalize, w.config.Transform = tensor.Normalize(t), c.Transform[:n-1:n-1]
			if n == 1 { // which has no size; the reader says so
				return nil
			}
		}
	}
	if config.Validate() != nil {
		return nil
	}
	w.config.DType, w.config.Layout = reader.DTypeUint8, reader.LayoutNHWC
	w.makes = func(host reader.Tensor) (Tensor, bool) {
		if host.Name != "image" || host.DType != reader.DTypeUint8 || len(host.Shape) != 4 {
			return Tensor{}, false
		}
		n, height, width := host.Shape[0], host.Shape[1], host.Shape[2]
		made := Tensor{Name: host.Name, DType: c.DType, Shape: []int{n, 3, height, width}}
		if c.Layout == reader.LayoutNHWC {
			made.Shape = []int{n, height, width, 3}
		}
		made.Bytes = int64(len(host.Data)) * int64(c.DType.Size())
		return made, true
	}
	w.do = func(d *Device, made, copied Tensor, s Stream) error { return d.Normalize(made, copied, config, s) }
	return w
}

// Device is the UUID of the GPU.
func (u *Uploader) Device() string { return u.device.UUID() }

// Config is what the reader is to be opened with, with Slabs, which are pinned: what was
// wanted, less what is done on the GPU.
func (u *Uploader) Config() reader.Config {
	c := u.wanted
	switch {
	case u.work != nil:
		c = u.work.config
	case u.pipeline != nil:
		c = u.split
	}
	c.Slabs = u.pinned
	return c
}

// Wanted is the configuration that was wanted, with all that a reader with that of Config
// has filled in.
func (u *Uploader) Wanted(of reader.Config) reader.Config {
	switch {
	case u.work != nil:
		of.DType, of.Layout = u.wanted.DType, u.wanted.Layout
		if u.wanted.Transform != nil {
			of.Transform = u.wanted.Transform
		}
	case u.pipeline != nil:
		c := u.pipeline.config
		of.DType, of.Layout, of.Transform, of.Collate = c.DType, c.Layout, c.Transform, reader.CollateStack
		of.MixUp, of.CutMix, of.Classes = u.wanted.MixUp, u.wanted.CutMix, u.wanted.Classes
	}
	return of
}

// Tensors says what is made of the tensors of one of the reader's batches, in their order,
// and how many bytes each takes. (Without Data they are those of Reader.Tensors, and the
// bytes not known.)
func (u *Uploader) Tensors(host []reader.Tensor) (made []reader.Tensor, bytes []int64) {
	for _, t := range host {
		if x, _, ok := u.makes(host, t); ok {
			made, bytes = append(made, reader.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape}), append(bytes, x.Bytes)
		}
	}
	if u.pipeline != nil && u.blends() {
		n, classes := named(host, "label").Shape[0], u.wanted.Classes
		made, bytes = append(made, reader.Tensor{Name: "partner_label", DType: reader.DTypeInt64, Shape: []int{n}}), append(bytes, 8*int64(n))
		if classes > 0 {
			made, bytes = append(made, reader.Tensor{Name: "soft_label", DType: reader.DTypeFloat32, Shape: []int{n, classes}}), append(bytes, 4*int64(n)*int64(classes))
		}
	}
	return made, bytes
}

// labels are those that a blended batch has besides: of the partners, and the soft ones, as
// bytes.
func (u *Uploader) labels(b *reader.Batch, blend reader.Blend) ([][]byte, error) {
	label, _ := b.Tensor("label")
	labels, classes := label.Int64(), u.wanted.Classes
	partners := make([]int64, len(labels))
	for i, x := range labels {
		if partners[i] = labels[augment.Partner(i, len(labels))]; classes > 0 && (x < 0 || x >= int64(classes)) {
			return nil, fmt.Errorf("sample %q: its label is %d, and soft labels are of the classes 0 to %d: choose samples (where: \"label is not null\"), or set classes", b.Key(i), x, classes-1)
		}
	}
	if classes < 0 {
		return [][]byte{bytesOf(partners)}, nil
	}
	soft := make([]float32, len(labels)*classes)
	blend.SoftLabels(soft, labels, classes)
	return [][]byte{bytesOf(partners), bytesOf(soft)}, nil
}

// makes says what becomes of one of the reader's tensors, and whether that takes work; ok is
// false where it is nothing: of what the pipeline needs of the images besides.
func (u *Uploader) makes(host []reader.Tensor, t reader.Tensor) (made Tensor, worked, ok bool) {
	if u.work != nil {
		if made, worked = u.work.makes(t); worked {
			return made, true, true
		}
	}
	if u.pipeline != nil {
		switch t.Name {
		case "image":
			return u.pipeline.makes(t.Name, named(host, "image_sizes").Shape[0]), true, true
		case "image_offsets", "image_sizes":
			return made, false, false
		}
	}
	return Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Bytes: int64(len(t.Data))}, false, true
}

// makes is what the pipeline makes of n images. Nothing is allocated: Data is 0.
func (p *Pipeline) makes(name string, n int) Tensor {
	return Tensor{Name: name, DType: p.config.DType, Shape: p.Shape(n), Bytes: int64(n) * 3 * int64(p.width) * int64(p.height) * int64(p.config.DType.Size())}
}

// named is the tensor of a name, which is there.
func named(host []reader.Tensor, name string) reader.Tensor {
	return host[slices.IndexFunc(host, func(t reader.Tensor) bool { return t.Name == name })]
}

// Share takes n bytes of the GPU's memory, or some more, that another process maps by a
// file, which is the caller's to close. The memory is the caller's until Unshare; at is a
// Pointer.
func (u *Uploader) Share(n int64) (at uint64, size int64, f *os.File, err error) {
	m, f, err := u.device.context.Share(n)
	if err != nil {
		return 0, 0, nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shared[uint64(m.At())] = m
	return uint64(m.At()), m.Size(), f, nil
}

// Unshare gives memory of Share back. All uploads to it must have ended. It is there until
// the other process has unmapped it, too.
func (u *Uploader) Unshare(at uint64) error {
	u.mu.Lock()
	m := u.shared[at]
	delete(u.shared, at)
	u.mu.Unlock()
	if m == nil {
		return fmt.Errorf("gpu: memory at %#x was not shared", at)
	}
	return m.Free()
}

// Upload begins to bring the tensors of a batch to the GPU, or what Tensors says that is made
// of them, each to its place, in memory of Share, at a multiple of 256. wait, which must be called once, returns when they are there,
// asleep until then, and says whether the host's memory is no longer read: on an error that
// may not be known. If Upload returns an error, over says the same, and there is no wait.
func (u *Uploader) Upload(b *reader.Batch, at []uint64) (wait func() (over bool, err error), over bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t, err := u.trip()
	var bytes int64
	if err == nil {
		if bytes, err = u.upload(b, at, t); err == nil {
			err = u.device.context.Record(t.done, u.stream)
		}
		if err != nil {
			u.trips = append(u.trips, t)
		}
	}
	if err != nil {
		return nil, ended(u.device.Synchronize(u.stream)), err
	}
	return func() (bool, error) {
		err := u.device.context.SynchronizeEvent(t.done)
		over := ended(err)
		if !over {
			over = ended(u.device.Synchronize(u.stream))
		}
		if err == nil {
			var copying time.Duration
			if copying, _, err = u.device.context.Elapsed(t.begin, t.copied); err == nil {
				u.device.meter.copied(bytes, copying, 0)
			}
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.trips = append(u.trips, t)
		return over, err
	}, false, nil
}

// ended says, by what a wait has returned, that what was waited for has ended: also where the
// context is lost, in which nothing runs any more.
func ended(err error) bool { return err == nil || errors.Is(err, ErrContextLost) }

// trip is one that nobody uses. (u.mu)
func (u *Uploader) trip() (t trip, err error) {
	if n := len(u.trips); n > 0 {
		t = u.trips[n-1]
		u.trips = u.trips[:n-1]
		return t, nil
	}
	for i, e := range t.events() {
		if *e, err = u.device.context.NewEvent(e != &t.done); err != nil {
			for _, e := range t.events()[:i] {
				err = errors.Join(err, u.device.context.DestroyEvent(*e))
			}
			return trip{}, err
		}
	}
	return t, nil
}

// upload puts a batch's copies, of so many bytes, and the work on them, into the stream.
// (u.mu)
func (u *Uploader) upload(b *reader.Batch, at []uint64, t trip) (bytes int64, err error) {
	if err := u.device.context.Record(t.begin, u.stream); err != nil {
		return 0, err
	}
	host := b.Tensors()
	var blend *reader.Blend
	if u.pipeline != nil {
		blend = u.pipeline.Blend(b.Epoch(), b.Number())
	}
	work := func() error { return nil }
	for _, t := range host {
		made, worked, ok := u.makes(host, t)
		if !ok {
			continue
		}
		made.Data, at = Pointer(at[0]), at[1:]
		copied := Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: made.Data, Bytes: int64(len(t.Data))}
		if worked && made.Bytes > 0 { // of the images alone
			if err := u.stage(copied.Bytes); err != nil {
				return 0, fmt.Errorf("tensor %q: %w; lower batch_size", t.Name, err)
			}
			copied.Data = u.staging.Data
			work = func() error { return u.make(b, blend, made, copied) }
		}
		if err := u.device.Upload(copied.Data, t.Data, u.stream); err != nil {
			return 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		bytes += copied.Bytes
	}
	if blend != nil {
		labels, err := u.labels(b, *blend)
		if err != nil {
			return 0, err
		}
		// They are not pinned: the driver has copied them when Upload returns.
		for i, x := range labels {
			if err := u.device.Upload(Pointer(at[i]), x, u.stream); err != nil {
				return 0, fmt.Errorf("labels of a blended batch: %w", err)
			}
			bytes += int64(len(x))
		}
	}
	if err := u.device.context.Record(t.copied, u.stream); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, fmt.Errorf("tensor \"image\": %w", err)
	}
	return bytes, nil
}

// make puts into the stream what makes the images, of those that are copied. (u.mu)
func (u *Uploader) make(b *reader.Batch, blend *reader.Blend, made, copied Tensor) error {
	if u.pipeline == nil {
		return u.work.do(u.device, made, copied, u.stream)
	}
	offsets, _ := b.Tensor("image_offsets")
	sizes, _ := b.Tensor("image_sizes")
	images, err := Ragged(copied, offsets.Int64(), sizes.Int64())
	if err != nil {
		return err
	}
	random := make([]augment.Rand, len(images))
	for i := range random {
		random[i] = b.Random(i)
	}
	return u.pipeline.Apply(made, images, random, blend, u.stream)
}

// Started notes the start of a pass, for Stats.
func (u *Uploader) Started() { u.device.meter.started() }

// Ended notes the end of a pass.
func (u *Uploader) Ended() { u.device.meter.ended() }

// Waited notes what the loop that uploads has waited for until a batch was on its way: for
// the reader, for memory on the GPU that the other process holds, and in Upload. first says
// that the batch is the first of its pass.
func (u *Uploader) Waited(w reader.DeviceWaits, first bool) {
	u.device.meter.waitedFor(w, w.Reader+w.GPU+w.Upload+w.CPU, first)
}

// Stats say how the batches came to the GPU. The loop is the one that uploads, and what
// waits on the GPU is in another process: Holding, Stalled, Exposed and Late are 0.
func (u *Uploader) Stats() reader.DeviceStats { return u.device.Stats() }

// stage makes sure that so many bytes can be worked at. (u.mu)
func (u *Uploader) stage(n int64) error {
	if n <= u.staging.Bytes {
		return nil
	}
	if u.pipeline != nil { // the images of the next batches are a little larger or smaller
		n += n / 8
	}
	if u.staging.Bytes > 0 {
		if err := errors.Join(u.device.Synchronize(u.stream), u.device.Free(u.staging)); err != nil {
			return err
		}
		u.staging = Tensor{}
	}
	var err error
	u.staging, err = u.device.Alloc("staging", reader.DTypeUint8, int(n))
	return err
}

// Close frees all that the uploader has, and lets the GPU go. The reader must be closed
// before, its batches released, and each wait of an Upload have returned.
func (u *Uploader) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	faults := []error{u.device.Synchronize(u.stream)}
	for _, m := range u.shared {
		faults = append(faults, m.Free())
	}
	for _, t := range u.trips {
		for _, e := range t.events() {
			faults = append(faults, u.device.context.DestroyEvent(*e))
		}
	}
	if u.staging.Bytes > 0 {
		faults = append(faults, u.device.Free(u.staging))
	}
	if u.pipeline != nil {
		faults = append(faults, u.pipeline.Close())
	}
	u.shared, u.trips, u.staging = nil, nil, Tensor{}
	return errors.Join(append(faults, u.device.DestroyStream(u.stream), u.pinned.Close(), u.device.Close())...)
}
