package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"shardify/gpu/internal/cuda"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/reader"
)

// DecodeConfig is how images are decoded for a GPU, and by whom. The zero value divides them
// between the card and the CPU so that both are busy all the time.
type DecodeConfig struct {
	PrefetchConfig
	// Field is the field that has a sample's image: by default the first of jpg, jpeg, png,
	// webp and their like that it has.
	Field string `json:"field,omitempty"`
	// Region, if not nil, says which part of an image is wanted, by its place in the
	// reader's batch and its dimensions; the zero value is all of it. (A Pipeline cuts
	// images itself, and wants them whole.) Regions are decoded on
	// the card by BackendHardware alone. It is called in order, by one goroutine at a time,
	// perhaps more than once for an image. It is no part of the JSON form.
	Region func(b *reader.Batch, i, width, height int) augment.Region `json:"-"`
	// Orient turns images upright as their EXIF orientation asks for. Those that are to be
	// turned are decoded by the CPU.
	Orient bool `json:"orient,omitempty"`
	// MaxPixels is the largest image, as width times height, that is decoded; 0 means
	// imaging.DefaultMaxPixels. A larger one is a damaged sample.
	MaxPixels int64 `json:"max_pixels,omitempty"`

	// Share is the part of the files, of those that it can decode, that the card decodes: 0
	// leaves it to the rates that both sides have shown, -1 is none (nvJPEG need not be
	// there), 1 all. Other than under 0, a file's side depends on its sample's number alone,
	// so that a pass can be made again bit for bit; see Decode.
	Share float64 `json:"share,omitempty"`
	// Backend is nvJPEG's.
	Backend Backend `json:"backend,omitempty"`
	// Threads is how many goroutines decode on the CPU; 0 means runtime.GOMAXPROCS. nvJPEG
	// may use as many threads, but for BackendHardware, which needs none.
	Threads int `json:"threads,omitempty"`

	// OnBad says what becomes of an image that cannot be decoded, as reader.Config.OnBad,
	// but that what stands in for it under OnBadSubstitute is another sample of the same
	// batch, drawn by the damaged one's number. MaxBad is how many of them a pass bears; 0
	// means 16, or a hundredth of those that have come where that is more, -1 no limit.
	OnBad  reader.OnBad `json:"on_bad,omitempty"`
	MaxBad int          `json:"max_bad,omitempty"`

	// Memory bounds the batches' memory on the GPU, Depth of them, in bytes; a batch that
	// does not fit ends the pass with ErrOutOfMemory. Scratch bounds what nvJPEG takes for
	// itself, on the GPU and again of pinned memory. Pinned bounds the pinned memory for what
	// the CPU decodes: what is beyond is ordinary memory. 0 is no bound.
	Memory  int64 `json:"memory,omitempty"`
	Scratch int64 `json:"scratch,omitempty"`
	Pinned  int64 `json:"pinned,omitempty"`
}

// Validate reports every fault.
func (c DecodeConfig) Validate() error {
	faults := []error{c.PrefetchConfig.Validate(), c.Backend.Validate()}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Share != -1 && !(c.Share >= 0 && c.Share <= 1) {
		fault("share: %v; want a part of the files up to 1, -1 for none, or 0 to go by measured rates", c.Share)
	}
	if c.Threads < 0 {
		fault("threads: %d; want 1 or more, or 0 for as many as there are processors", c.Threads)
	}
	if !slices.Contains([]reader.OnBad{"", reader.OnBadFail, reader.OnBadSkip, reader.OnBadSubstitute}, c.OnBad) {
		fault("on_bad: %q; want fail, skip or substitute", c.OnBad)
	}
	if c.MaxBad < -1 {
		fault("max_bad: %d; want -1 for no limit, 0 for the default, or more", c.MaxBad)
	}
	for _, of := range []struct {
		name  string
		value int64
	}{{"max_pixels", c.MaxPixels}, {"memory", c.Memory}, {"scratch", c.Scratch}, {"pinned", c.Pinned}} {
		if of.value < 0 {
			fault("%s: %d; want 0 for the default, or more", of.name, of.value)
		}
	}
	return errors.Join(faults...)
}

func (c DecodeConfig) withDefaults() DecodeConfig {
	c.PrefetchConfig = c.PrefetchConfig.withDefaults()
	if c.MaxPixels == 0 {
		c.MaxPixels = imaging.DefaultMaxPixels
	}
	if c.Threads == 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	if c.OnBad == "" {
		c.OnBad = reader.OnBadFail
	}
	return c
}

// Decoded is who has decoded the images of a batch.
type Decoded struct {
	// Card and CPU are how many images each has decoded. Refused are those of the CPU's that
	// nvJPEG was given and did not decode.
	Card    int `json:"card"`
	CPU     int `json:"cpu"`
	Refused int `json:"refused"`
	// Share was the part of the work that was to be the card's.
	Share float64 `json:"share"`
}

// Decode is Prefetch for images that are still files: of a reader with DecodeNone, whose
// Config.Slabs should be Device.Pinned, since nvJPEG copies the files to the card itself. They
// are decoded there, by nvJPEG, or by the CPU while the card is busy, and lie in each
// batch as a reader's with CollateRagged, DTypeUint8 and LayoutNHWC would: the tensors
//
//	"image"          uint8 [bytes of all]   red, green, blue of each pixel, row by row
//	"image_offsets"  int64 [n+1]            image i is the bytes from offset i to i+1
//	"image_sizes"    int64 [n, 2]           its height and width
//
// which Batch.Images finds, for a Pipeline or a Resizer. The reader's own tensors follow.
//
//	pinned := device.Pinned(gpu.PinnedConfig{})
//	r, err := reader.Open(ctx, url, reader.Config{Decode: reader.DecodeNone, Fields: []string{"jpg"}, Slabs: pinned, …})
//	begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epochs(ctx, state, epochs) }
//	for b, err := range gpu.Decode(ctx, device, begin, gpu.DecodeConfig{}) {
//		err = b.Wait(stream)
//		images, err := b.Images()
//		err = pipeline.Apply(dst, images, b.Random, nil, stream)
//		err = b.Release(stream)
//	}
//
// nvJPEG gets what it surely decodes: whole baseline files of 8 bits, grey or YCbCr, whose
// header its backend says yes to. All others are the CPU's (imaging/jpeg, imaging.Std):
// progressive, arithmetic, CMYK, of 12 bits, files that end early, other formats; and so is,
// in the end, what nvJPEG gives up on. So the CPU's engine alone says which images are
// damaged, as the reader does (jpeg.AsPillow), but for damage inside of a file that nvJPEG
// decodes without a word.
//
// What is in a batch, in which order, which samples are bad, never depends on who has
// decoded what. The pixels do: nvJPEG's arithmetic is its own. Where that matters, set Share.
//
// Everything else is as Prefetch says. Damaged images are in Batch.Bad, and in the report of
// the reader.
func Decode(ctx context.Context, d *Device, batches func(context.Context) iter.Seq2[*reader.Batch, error], c DecodeConfig) iter.Seq2[*Batch, error] {
	return prefetchWith(ctx, d.context, &d.meter, hosts(batches), d.describe, c.PrefetchConfig, func() (*decoding, error) { return d.decoding(c) })
}

// decoding begins a pass.
func (d *Device) decoding(c DecodeConfig) (*decoding, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("gpu: decode: %w", err)
	}
	g := newDecoding(c, d.Pinned(PinnedConfig{Limit: c.Pinned}))
	if g.config.Share < 0 {
		return g, nil
	}
	n, err := cuda.OpenNVJPEG(d.context.Driver(), d.nvjpeg...)
	if err != nil {
		return nil, fmt.Errorf("%w; or set share to -1, to decode on the CPU alone", err)
	}
	codec, err := d.newCodec(n, c.Backend, c.Scratch)
	if err != nil {
		return nil, err
	}
	g.codec = nvjpegCodec{codec}
	return g, nil
}

// codec is what decoding asks of nvJPEG: *cuda.Codec has it, and the simulation of the tests.
type codec interface {
	Supports(data []byte, r cuda.Region) (bool, error)
	newState() (jpegState, error)
	// early: it may write before the stream has come to it.
	early() bool
	Close() error
}

// jpegState is *cuda.State.
type jpegState interface {
	Decode(files []cuda.JPEG, threads int, s Stream) error
	Close() error
}

type nvjpegCodec struct{ *cuda.Codec }

func (c nvjpegCodec) newState() (jpegState, error) { return c.NewState() }
func (c nvjpegCodec) early() bool                  { return c.Backend() == cuda.BackendHardware }

// encoded is a batch of files in the host's memory: *reader.Batch.
type encoded interface {
	host
	Len() int
	Samples() []int64
	Random(i int) augment.Rand
	Field(i int, name string) ([]byte, bool)
	Fault(i int, field string, err error) *reader.SampleError
}

var _ encoded = (*reader.Batch)(nil)

// hostMemory is *Pinned.
type hostMemory interface {
	Alloc(n int64) ([]byte, error)
	Free(b []byte)
	Close() error
}

// decoding is a pass of Decode. The ring's producer alone uses it, until the end.
type decoding struct {
	config  DecodeConfig
	codec   codec // nil: the CPU alone
	memory  hostMemory
	balance balance
	engines []engine
	// bad and seen count images of the pass.
	bad, seen int

	mu sync.Mutex
	// users are the pass and the rooms; the last to go closes the codec.
	users int
}

func newDecoding(c DecodeConfig, m hostMemory) *decoding {
	c = c.withDefaults()
	return &decoding{config: c, memory: m, balance: balance{fixed: c.Share}, engines: make([]engine, c.Threads), users: 1}
}

// leave ends the pass.
func (g *decoding) leave() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drop()
}

func (g *decoding) drop() error {
	if g.users--; g.users > 0 {
		return nil
	}
	err := g.memory.Close()
	if g.codec != nil {
		err = errors.Join(err, g.codec.Close())
	}
	return err
}

// room is what a slot has for decoding. It is used again with the slot, when all that was
// asked for it is done.
type room struct {
	state jpegState
	// begin and end are around what the card decodes; timed: they were recorded, for so much
	// work, and the host was in the call for so long.
	begin, end cuda.Event
	timed      bool
	work       int64
	call       time.Duration
	// staging is pinned where it may be: what the CPU has made, for the copies.
	staging []byte
	// late is what the CPU made of files that nvJPEG gave up on.
	late []byte
}

// enter gives a slot its room.
func (g *decoding) enter(r *ring, s *slot) (*room, error) {
	if s.room != nil {
		return s.room, nil
	}
	x := new(room)
	var err error
	if x.begin, err = r.driver.NewEvent(true); err != nil {
		return nil, err
	}
	if x.end, err = r.driver.NewEvent(true); err != nil {
		return nil, errors.Join(err, r.driver.DestroyEvent(x.begin))
	}
	if g.codec != nil {
		if x.state, err = g.codec.newState(); err != nil {
			return nil, errors.Join(err, r.driver.DestroyEvent(x.begin), r.driver.DestroyEvent(x.end))
		}
	}
	s.room = x
	g.mu.Lock()
	g.users++
	g.mu.Unlock()
	return x, nil
}

// vacate frees a slot's room, which nothing uses any more.
func (g *decoding) vacate(r *ring, s *slot) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := s.room
	s.room = nil
	faults := []error{r.driver.DestroyEvent(x.begin), r.driver.DestroyEvent(x.end)}
	if x.state != nil {
		faults = append(faults, x.state.Close())
	}
	if x.staging != nil {
		g.memory.Free(x.staging)
	}
	return errors.Join(append(faults, g.drop())...)
}

// imageJob is an image of a batch that is being made.
type imageJob struct {
	row   int // of the host's batch
	field string
	data  []byte
	jpeg  bool
	// region is what is wanted of it, upright; width and height are the region's.
	region        augment.Region
	width, height int
	// baseline: nvJPEG may decode it. card: it is to, and refused: it did not.
	baseline, card, refused bool
	at                      int64  // in the tensor
	pixels                  []byte // in the host's memory, of the CPU's
	err                     error
}

func (p *imageJob) bytes() int64 { return 3 * int64(p.width) * int64(p.height) }

// fill makes a batch: its images, and copies of the host's other tensors.
func (g *decoding) fill(r *ring, s *slot, b *Batch, h host) error {
	from := h.(encoded)
	x, err := g.enter(r, s)
	if err != nil {
		return err
	}
	if err := g.measure(r, x); err != nil {
		return err
	}
	if s.reused {
		// Not the stream: an engine for JPEG does not wait for that.
		if err := r.driver.SynchronizeEvent(s.reuse); err != nil {
			return err
		}
	}
	n := from.Len()
	g.seen += n
	of := make([]imageJob, n)
	for i := range of {
		if of[i], err = g.look(from, i); err != nil {
			return err
		}
	}
	keys, bad := b.Keys, make([]*reader.SampleError, n)
	for {
		rows, err := g.rows(from, of, bad, b)
		if err != nil {
			return err
		}
		if !same(rows, n) {
			b.Samples = pick(from.Samples(), rows)
			if keys != nil {
				b.Keys = pick(keys, rows)
			}
		}
		b.Random = make([]augment.Rand, len(rows))
		for i, row := range rows {
			b.Random[i] = from.Random(row)
		}
		pictures := make([]imageJob, len(rows))
		for i, row := range rows {
			pictures[i] = of[row]
		}
		pieces, err := g.lay(r, s, b, from, rows, pictures)
		if err != nil {
			return err
		}
		decoded, err := g.decode(r, x, b, from, pictures)
		if err != nil {
			return err
		}
		again := false
		for i := range pictures {
			if p := &pictures[i]; p.err != nil {
				again, of[p.row].err = true, p.err
			}
		}
		if again {
			// What is left has another place. Nothing may still be written to the old ones.
			if err := r.driver.SynchronizeStream(r.copies); err != nil {
				return err
			}
			continue
		}
		b.Decoded = decoded
		return r.copy(s, append(pieces, g.pieces(b, pictures)...))
	}
}

// measure tells the balance how the card did with the room's last batch, which is done.
func (g *decoding) measure(r *ring, x *room) error {
	if !x.timed {
		return nil
	}
	x.timed = false
	took, done, err := r.driver.Elapsed(x.begin, x.end)
	if err != nil || !done {
		return err
	}
	g.balance.done(byCard, x.work, max(took, x.call))
	return nil
}

// imageFields are the fields that have images, by their names, in the reader's order.
var imageFields = []string{"jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "dib", "tiff", "tif", "pnm", "ppm", "pgm", "pbm"}

// look reads the header of image i.
func (g *decoding) look(from encoded, i int) (p imageJob, err error) {
	p.row = i
	names := imageFields
	if g.config.Field != "" {
		names = []string{g.config.Field}
	}
	found := false
	for _, p.field = range names {
		if p.data, found = from.Field(i, p.field); found {
			break
		}
	}
	if !found {
		p.field = ""
		p.err = fmt.Errorf("it has no image: no field %q that the reader's fields name", names)
		return p, nil
	}
	width, height := g.header(&p)
	if width == 0 {
		return p, nil
	}
	p.width, p.height = width, height
	if b, ok := from.(*reader.Batch); ok && g.config.Region != nil {
		p.region = g.config.Region(b, i, width, height)
	}
	if w := p.region; w != (augment.Region{}) {
		if w.X < 0 || w.Y < 0 || w.Width < 1 || w.Height < 1 || w.Width > width-w.X || w.Height > height-w.Y {
			return p, fmt.Errorf("gpu: decode: region: %d x %d at (%d, %d) of an image of %d x %d does not lie within it", w.Width, w.Height, w.X, w.Y, width, height)
		}
		p.width, p.height = w.Width, w.Height
	}
	return p, nil
}

// header reads an image's dimensions, and whether nvJPEG may decode it. They are 0 where err
// says what is damaged about it.
func (g *decoding) header(p *imageJob) (width, height int) {
	info, unsound := imaging.Probe(p.data)
	h, other := jpeg.ReadHeader(p.data)
	switch {
	case other == nil:
		p.jpeg = true
		width, height = h.Width, h.Height
		if g.config.Orient {
			width, height = h.Upright()
		}
		if blocks, bits := mcus(&h), 8*int64(len(p.data)); blocks > bits {
			p.err = fmt.Errorf("jpeg: %w: %d bytes cannot hold %d x %d pixels", imaging.ErrTruncated, len(p.data), width, height)
			return 0, 0
		}
		p.baseline = unsound == nil && h.Coding == "baseline" && h.Bits == 8 && h.OneScan &&
			(h.Model == jpeg.YCbCr && h.Components == 3 || h.Model == jpeg.Gray && h.Components == 1) && (!g.config.Orient || h.Orientation == 1)
	case unsound != nil:
		p.err = unsound
		return 0, 0
	default:
		width, height = info.Width, info.Height
		if g.config.Orient {
			width, height = info.Upright()
		}
	}
	if int64(height) > g.config.MaxPixels/int64(width) {
		p.err = fmt.Errorf("%w: %d x %d; the bound (max_pixels) is %d", imaging.ErrTooLarge, width, height, g.config.MaxPixels)
		return 0, 0
	}
	return width, height
}

// mcus is how many units of 8 x 8 pixels of the coarsest component a file has: each takes a
// bit at least.
func mcus(h *jpeg.Header) int64 {
	across, down := 1, 1
	for _, s := range h.Sampling[:h.Components] {
		across, down = max(across, s[0]), max(down, s[1])
	}
	up := func(n, by int) int64 { return (int64(n) + int64(by) - 1) / int64(by) }
	return up(h.Width, 8*across) * up(h.Height, 8*down)
}

// rows are the host's rows of which the batch is made, after OnBad. What is bad goes into
// Bad, once.
func (g *decoding) rows(from encoded, of []imageJob, bad []*reader.SampleError, b *Batch) ([]int, error) {
	for i := range of {
		p := &of[i]
		if p.err == nil || bad[i] != nil {
			continue
		}
		bad[i] = from.Fault(i, p.field, p.err)
		b.Bad = append(b.Bad, bad[i])
		if g.config.OnBad == reader.OnBadFail {
			return nil, bad[i]
		}
		g.bad++
		limit := g.config.MaxBad
		if limit == 0 {
			limit = max(16, g.seen/100)
		}
		if limit >= 0 && g.bad > limit {
			return nil, fmt.Errorf("%w: more than %d (max_bad): %w", reader.ErrTooManyBad, limit, bad[i])
		}
	}
	n := len(of)
	rows := make([]int, 0, n)
	for i := range of {
		switch {
		case bad[i] == nil:
			rows = append(rows, i)
		case g.config.OnBad == reader.OnBadSubstitute:
			at := int(lot(from.Samples()[i]) * float64(n))
			for try := range n + 1 {
				if try == n {
					return nil, fmt.Errorf("%w; and all of its batch are damaged, so that none can stand in for it", bad[i])
				}
				if k := (at + try) % n; bad[k] == nil {
					rows = append(rows, k)
					break
				}
			}
		}
	}
	return rows, nil
}

// same says that rows are all n, in their order.
func same(rows []int, n int) bool {
	for i, row := range rows {
		if row != i {
			return false
		}
	}
	return len(rows) == n
}

func pick[T any](of []T, rows []int) []T {
	picked := make([]T, len(rows))
	for i, row := range rows {
		picked[i] = of[row]
	}
	return picked
}

const imageTensor = "image"

// lay gives the batch its tensors, pictures their places, and returns the copies of tensors
// that the host has.
func (g *decoding) lay(r *ring, s *slot, b *Batch, from encoded, rows []int, pictures []imageJob) ([]piece, error) {
	n, own := len(rows), from.Tensors()
	offsets, sizes := make([]int64, n+1), make([]int64, 2*n)
	for i := range pictures {
		p := &pictures[i]
		p.at = offsets[i]
		offsets[i+1] = offsets[i] + p.bytes()
		sizes[2*i], sizes[2*i+1] = int64(p.height), int64(p.width)
	}
	all := offsets[n]
	if all > math.MaxInt {
		return nil, fmt.Errorf("gpu: decode: %d bytes of pixels in a batch", all)
	}
	as := []reader.Tensor{
		{Name: imageTensor, DType: reader.DTypeUint8, Shape: []int{int(all)}},
		{Name: imageTensor + "_offsets", DType: reader.DTypeInt64, Shape: []int{n + 1}, Data: bytesOf(offsets)},
		{Name: imageTensor + "_sizes", DType: reader.DTypeInt64, Shape: []int{n, 2}, Data: bytesOf(sizes)},
	}
	for _, t := range own {
		if slices.ContainsFunc(as, func(o reader.Tensor) bool { return o.Name == t.Name }) {
			return nil, fmt.Errorf("gpu: decode: the reader's batches have a tensor %q already: open it with decode %q", t.Name, reader.DecodeNone)
		}
		if g.config.OnBad != reader.OnBadFail {
			if len(t.Shape) == 0 || t.Shape[0] != from.Len() {
				return nil, fmt.Errorf("gpu: decode: tensor %q of shape %v has no row for each sample, so that damaged images cannot be left out: collate it by %q, or set on_bad to %q", t.Name, t.Shape, reader.CollatePad, reader.OnBadFail)
			}
			if !same(rows, from.Len()) {
				t = gather(t, rows)
			}
		}
		as = append(as, t)
	}
	if limit := g.config.Memory / int64(g.config.Depth); g.config.Memory > 0 && all > limit {
		return nil, fmt.Errorf("gpu: decode: %w: a batch of %d images takes %d bytes, and the bound for one of %d batches is %d: raise memory, or lower depth or batch_size", ErrOutOfMemory, n, all, g.config.Depth, limit)
	}
	if err := r.lay(s, b, as); err != nil {
		return nil, err
	}
	b.offsets, b.sizes = offsets, sizes
	var pieces []piece
	for i, t := range as[1:] {
		pieces = append(pieces, piece{t.Name, b.tensors[1+i].Data, t.Data})
	}
	return pieces, nil
}

// gather is a tensor of some rows of another.
func gather(t reader.Tensor, rows []int) reader.Tensor {
	size := len(t.Data) / max(1, t.Shape[0])
	data := make([]byte, 0, size*len(rows))
	for _, row := range rows {
		data = append(data, t.Data[row*size:][:size]...)
	}
	t.Shape = slices.Clone(t.Shape)
	t.Shape[0], t.Data = len(rows), data
	return t
}

// decode makes the pixels of a batch: those of the card's in their places, when the stream has
// come so far, those of the CPU's in the host's memory. Pictures that are damaged have err.
func (g *decoding) decode(r *ring, x *room, b *Batch, from encoded, pictures []imageJob) (Decoded, error) {
	if err := g.divide(from, pictures); err != nil {
		return Decoded{}, err
	}
	done := Decoded{Share: g.balance.share()}
	if g.codec == nil {
		done.Share = 0
	}
	var card, cpu []*imageJob
	var room, work int64
	for i := range pictures {
		p := &pictures[i]
		if p.card {
			card = append(card, p)
			continue
		}
		cpu = append(cpu, p)
		room += p.bytes()
		work += int64(len(p.data))
	}
	if err := g.stage(x, room); err != nil {
		return done, err
	}
	at := int64(0)
	for _, p := range cpu {
		p.pixels = x.staging[at : at+p.bytes()]
		at += p.bytes()
	}
	// Both at once: with some backends the CPU helps nvJPEG.
	began := time.Now()
	var busy time.Duration
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		decodeAll(r.ctx, g.engines, cpu, &g.config)
		busy = time.Since(began)
	}()
	refused, err := g.submit(r, x, b, card)
	<-finished
	if err != nil {
		return done, err
	}
	g.balance.done(byCPU, work, busy)
	// nvJPEG is slower to see that it does not decode a file than to do so, and these are rare.
	room = 0
	for _, p := range refused {
		room += p.bytes()
	}
	x.late = nil
	if room > 0 {
		x.late = make([]byte, room)
		for at, i := int64(0), 0; i < len(refused); i++ {
			p := refused[i]
			p.card, p.refused, p.pixels = false, true, x.late[at:at+p.bytes()]
			at += p.bytes()
		}
		decodeAll(r.ctx, g.engines, refused, &g.config)
	}
	done.Card, done.CPU, done.Refused = len(card)-len(refused), len(cpu)+len(refused), len(refused)
	if err := context.Cause(r.ctx); err != nil {
		return done, err
	}
	return done, nil
}

// divide says which pictures are the card's.
func (g *decoding) divide(from encoded, pictures []imageJob) error {
	if g.codec == nil {
		return nil
	}
	card, samples, work := make([]bool, len(pictures)), make([]int64, len(pictures)), make([]int64, len(pictures))
	all := from.Samples()
	for i := range pictures {
		p := &pictures[i]
		samples[i], work[i] = all[p.row], int64(len(p.data))
		if !p.baseline {
			continue
		}
		if p.region != (augment.Region{}) && !g.codec.early() {
			continue // only engines take regions of a batch's files
		}
		var err error
		if card[i], err = g.codec.Supports(p.data, cuda.Region(p.region)); err != nil {
			return err
		}
	}
	g.balance.split(card, samples, work)
	for i := range pictures {
		pictures[i].card = card[i]
	}
	return nil
}

// stage makes sure that the staging memory has n bytes.
func (g *decoding) stage(x *room, n int64) error {
	if n <= int64(len(x.staging)) {
		return nil
	}
	if x.staging != nil {
		g.memory.Free(x.staging)
		x.staging = nil
	}
	var err error
	x.staging, err = g.memory.Alloc(n + n/4) // so that the next larger batch does not take it anew
	return err
}

// submit puts the decoding of pictures into the stream, and returns those that nvJPEG does
// not decode. It says that of a batch, not of a file: halves of it are tried, down to that.
func (g *decoding) submit(r *ring, x *room, b *Batch, pictures []*imageJob) (refused []*imageJob, err error) {
	if len(pictures) == 0 {
		return nil, nil
	}
	if err := r.driver.Record(x.begin, r.copies); err != nil {
		return nil, err
	}
	began := time.Now()
	var try func(pictures []*imageJob) error
	try = func(pictures []*imageJob) error {
		files := make([]cuda.JPEG, len(pictures))
		for i, p := range pictures {
			files[i] = cuda.JPEG{Data: p.data, Region: cuda.Region(p.region), Dst: b.tensors[0].Data + Pointer(p.at), Pitch: 3 * p.width}
		}
		threads := g.config.Threads
		if g.codec.early() {
			threads = 1
		}
		err := x.state.Decode(files, threads, r.copies)
		if !errors.Is(err, cuda.ErrJPEG) {
			return err
		}
		if err := r.driver.SynchronizeStream(r.copies); err != nil {
			return err
		}
		if len(pictures) == 1 {
			refused = append(refused, pictures[0])
			return nil
		}
		half := len(pictures) / 2
		if err := try(pictures[:half]); err != nil {
			return err
		}
		// The state has one batch at a time.
		if err := r.driver.SynchronizeStream(r.copies); err != nil {
			return err
		}
		return try(pictures[half:])
	}
	if err := try(pictures); err != nil {
		return nil, err
	}
	x.call = time.Since(began)
	if err := r.driver.Record(x.end, r.copies); err != nil {
		return nil, err
	}
	x.work = 0
	for _, p := range pictures {
		x.work += int64(len(p.data))
	}
	x.timed = len(refused) == 0 // else it has shown how fast it fails
	return refused, nil
}

// pieces are the copies of what the CPU has made; what lies side by side here and there is
// one.
func (g *decoding) pieces(b *Batch, pictures []imageJob) []piece {
	var all []piece
	for i := range pictures {
		p := &pictures[i]
		if p.card {
			continue
		}
		if n := len(all); n > 0 && i > 0 && !pictures[i-1].card && pictures[i-1].refused == p.refused {
			last := &all[n-1].from
			*last = (*last)[:len(*last)+len(p.pixels)]
			continue
		}
		all = append(all, piece{imageTensor, b.tensors[0].Data + Pointer(p.at), p.pixels})
	}
	return all
}

// engine decodes on the CPU; one goroutine at a time.
type engine struct {
	jpeg  jpeg.Decoder
	image imaging.Image
}

// decodeAll decodes pictures to where their pixels belong, and sets err of those that are
// damaged.
func decodeAll(ctx context.Context, engines []engine, pictures []*imageJob, c *DecodeConfig) {
	q := &queue{ctx: ctx, config: c, left: pictures}
	var all sync.WaitGroup
	for i := range min(len(engines), len(pictures)) {
		all.Go(func() {
			w := worker{queue: q, engine: &engines[i]}
			w.run()
		})
	}
	all.Wait()
}

// queue has the pictures that nobody has taken yet.
type queue struct {
	ctx    context.Context
	config *DecodeConfig
	mu     sync.Mutex
	left   []*imageJob
}

func (q *queue) next() *imageJob {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 || q.ctx.Err() != nil {
		return nil
	}
	p := q.left[0]
	q.left = q.left[1:]
	return p
}

// worker is a goroutine of the CPU's side, and the jpeg.Queue of its engine.
type worker struct {
	queue  *queue
	engine *engine
	taken  map[*jpeg.Job]*imageJob
}

func (w *worker) run() {
	w.taken = map[*jpeg.Job]*imageJob{}
	for w.guarded() {
		// The engine has panicked: it is of no further use. Those that it had are tried one by
		// one, to see which it was.
		left := w.taken
		w.taken = map[*jpeg.Job]*imageJob{}
		for _, p := range left {
			w.again(p)
		}
	}
}

func (w *worker) guarded() (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			w.engine.jpeg, panicked = jpeg.Decoder{}, true
		}
	}()
	w.engine.jpeg.DecodeQueue(w)
	return false
}

func (w *worker) again(p *imageJob) {
	defer func() {
		if fault := recover(); fault != nil {
			w.engine.jpeg = jpeg.Decoder{}
			p.err = fmt.Errorf("the decoder has panicked: %v", fault)
		}
	}()
	jobs := []jpeg.Job{w.job(p)}
	w.engine.jpeg.DecodeAll(jobs)
	p.err = jobs[0].Err
}

// Next takes the next JPEG, and decodes what comes before it and is none.
func (w *worker) Next() *jpeg.Job {
	for {
		p := w.queue.next()
		if p == nil {
			return nil
		}
		if p.jpeg {
			j := w.job(p)
			w.taken[&j] = p
			return &j
		}
		w.other(p)
	}
}

// Done takes it back.
func (w *worker) Done(j *jpeg.Job) {
	w.taken[j].err = j.Err
	delete(w.taken, j)
}

func (w *worker) job(p *imageJob) jpeg.Job {
	c := w.queue.config
	o := jpeg.Options{Orient: c.Orient, MaxPixels: c.MaxPixels, Damaged: jpeg.AsPillow}
	o.X, o.Y, o.Width, o.Height = p.region.X, p.region.Y, p.region.Width, p.region.Height
	return jpeg.Job{Data: p.data, Options: o, Target: resize.Target{Width: p.width, Height: p.height, Layout: tensor.NHWC, Uint8: p.pixels}}
}

// other decodes a file of another format, whole.
func (w *worker) other(p *imageJob) {
	defer func() {
		if fault := recover(); fault != nil {
			p.err = fmt.Errorf("the decoder has panicked: %v", fault)
		}
	}()
	m := &w.engine.image
	c := w.queue.config
	if p.err = imaging.Std.Decode(p.data, m, imaging.DecodeOptions{MaxPixels: c.MaxPixels, Orient: c.Orient}); p.err != nil {
		return
	}
	if m.Width < p.region.X+p.width || m.Height < p.region.Y+p.height || p.region == (augment.Region{}) && (m.Width != p.width || m.Height != p.height) {
		p.err = fmt.Errorf("it decodes to %d x %d pixels, and its header says otherwise", m.Width, m.Height)
		return
	}
	for y := range p.height {
		copy(p.pixels[3*p.width*y:][:3*p.width], m.Pix[(p.region.Y+y)*m.Stride+3*p.region.X:])
	}
}
