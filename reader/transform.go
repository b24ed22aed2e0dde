package reader

import (
	"errors"
	"fmt"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/imaging/netpbm"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
)

// imager makes the pictures of samples: it decodes, transforms and writes the result as
// the tensor wants it. The transforms are drawn from the dimensions that the file's header
// gives. Of a JPEG, the crop, the scaling, and where that is all, the flip and the
// normalisation are done as it is decoded, straight into the batch's slab; other files
// are decoded whole first. One goroutine may use it. In steady state it allocates nothing
// that the decoders of other formats do not.
type imager struct {
	config *Config
	// Under DTypeFloat32 table, under DTypeFloat16 and DTypeBFloat16 table16 makes numbers
	// of bytes.
	table   *tensor.Table
	table16 *tensor.Table16
	others  imaging.Decoder // for all formats but JPEG
	// alone decodes what is not decoded together with others.
	alone     jpegDecoder
	list      aloneQueue
	resizer   resize.Resizer
	workspace transform.Workspace
	decoded   imaging.Image
	made      imaging.Image // by the heads of pictures that are made alone
	// newDecoder makes decoders of JPEG, also in place of one that has panicked.
	newDecoder func() jpegDecoder
	// onMade, if there is one, is called where something is left to do for the
	// transforms when an image is decoded.
	onMade func()
}

// jpegDecoder is jpeg.Decoder.
type jpegDecoder interface{ DecodeQueue(jpeg.Queue) }

func newJPEGDecoder() jpegDecoder { return new(jpeg.Decoder) }

// picture is a picture that is being made.
type picture struct {
	dst           []byte // one image of a slab
	width, height int
	recipe        transform.Recipe
	head          transform.Head
	// made is by the head, where that is not all: own, or the imager's where the picture
	// is made alone.
	made   *imaging.Image
	own    imaging.Image
	job    jpeg.Job
	points []byte // the file's seek points, if there are any
	gap    jpeg.Gap
}

func newImager(c *Config, p []canvas, newDecoder func() jpegDecoder) imager {
	m := imager{config: c, others: imaging.Std, newDecoder: newDecoder}
	if program := p[0].program; program != nil { // all normalise alike
		n, _ := program.Normalize()
		switch c.DType {
		case DTypeFloat32:
			m.table = n.Table()
		case DTypeFloat16:
			m.table16 = n.Table().Float16()
		case DTypeBFloat16:
			m.table16 = n.Table().BFloat16()
		}
	}
	return m
}

// draw begins the picture of an image file: it draws what becomes of it. Everything
// random comes from random, in the order of the transforms. Where the picture goes, dst,
// is still to be said.
func (m *imager) draw(p *picture, c *canvas, file []byte, random augment.Rand) (imaging.Info, error) {
	info, err := imaging.Probe(file)
	if err != nil {
		return info, err
	}
	return info, p.draw(c, info.Width, info.Height, random)
}

// draw begins the picture of an image of width x height.
func (p *picture) draw(c *canvas, width, height int, random augment.Rand) error {
	p.dst, p.points, p.gap = nil, nil, jpeg.Gap{}
	if err := c.program.Draw(&p.recipe, &random, width, height); err != nil {
		return err
	}
	p.width, p.height = p.recipe.Size()
	p.head = p.recipe.Head()
	return nil
}

// make makes a picture.
func (m *imager) make(p *picture, c *canvas, dst, file []byte, random augment.Rand) error {
	info, err := m.draw(p, c, file, random)
	if err != nil {
		return err
	}
	p.dst = dst
	return m.decode(p, info, file)
}

// decode makes a picture that is drawn.
func (m *imager) decode(p *picture, info imaging.Info, file []byte) error {
	p.made = &m.made
	switch {
	case info.Format == imaging.JPEG:
		m.prepare(p, file)
		return m.decodeAlone(p)
	case direct(info):
		return m.decodeDirect(p, file)
	}
	return m.decodeOther(p, file)
}

// direct says that the pixels of a file are there as they are.
func direct(info imaging.Info) bool { return info.Format == imaging.PNM && info.Bits == 8 }

// decodeDirect makes a picture of a file that has its pixels as they are: what of them is
// needed goes from there to where it belongs.
func (m *imager) decodeDirect(p *picture, file []byte) error {
	pixels, err := netpbm.View(file, m.config.MaxPixels)
	if errors.As(err, new(*imaging.UnsupportedError)) { // another maximum than 255
		return m.decodeOther(p, file)
	}
	if err != nil {
		return err
	}
	c := p.head.Crop
	if err := pixels.ResizeInto(&m.resizer, c.X, c.Y, c.Width, c.Height, p.head.Task, m.headTarget(p)); err != nil || p.head.Whole {
		return err
	}
	if m.onMade != nil {
		m.onMade()
	}
	return m.rest(p)
}

// decodeAlone makes a picture of the JPEG that is prepared for it.
func (m *imager) decodeAlone(p *picture) error {
	d := m.alone
	if m.alone = nil; d == nil { // there was none yet, or it has panicked
		d = m.newDecoder()
	}
	m.list.job = &p.job
	d.DecodeQueue(&m.list)
	m.alone = d
	return m.finish(p)
}

// aloneQueue is a queue of one job.
type aloneQueue struct{ job *jpeg.Job }

func (q *aloneQueue) Next() *jpeg.Job {
	j := q.job
	q.job = nil
	return j
}

func (q *aloneQueue) Done(*jpeg.Job) {}

// prepare makes the decoder's job of a picture.
func (m *imager) prepare(p *picture, file []byte) {
	h := &p.head
	p.job = jpeg.Job{Data: file, Points: p.points, Gap: p.gap, Task: h.Task, Target: m.headTarget(p)}
	o := &p.job.Options
	o.X, o.Y, o.Width, o.Height = h.Crop.X, h.Crop.Y, h.Crop.Width, h.Crop.Height
	o.MaxPixels, o.Damaged = m.config.MaxPixels, jpeg.AsPillow
}

// headTarget is where a picture's head goes: its place in the batch, unless something is
// left to do.
func (m *imager) headTarget(p *picture) resize.Target {
	if p.head.Whole {
		return m.target(p)
	}
	p.made.Reset(p.head.Width, p.head.Height)
	return resize.Target{Width: p.made.Width, Height: p.made.Height, Layout: tensor.NHWC, Uint8: p.made.Pix}
}

// target is a picture's place in the batch.
func (m *imager) target(p *picture) resize.Target {
	t := resize.Target{Width: p.width, Height: p.height, Layout: m.config.Layout}
	switch {
	case m.table != nil:
		t.Float32, t.Table = elementsOf[float32](p.dst), m.table
	case m.table16 != nil:
		t.Half, t.Table16 = elementsOf[uint16](p.dst), m.table16
	default:
		t.Uint8 = p.dst
	}
	return t
}

// decodeOther makes a picture of a file that is no JPEG.
func (m *imager) decodeOther(p *picture, file []byte) error {
	if err := m.others.Decode(file, &m.decoded, imaging.DecodeOptions{MaxPixels: m.config.MaxPixels}); err != nil {
		return err
	}
	if m.onMade != nil {
		m.onMade()
	}
	c := p.head.Crop
	part, err := resize.Crop(&m.decoded, c.X, c.Y, c.Width, c.Height)
	if err != nil {
		return err
	}
	if err := m.resizer.ResizeInto(m.headTarget(p), &part, p.head.Task); err != nil || p.head.Whole {
		return err
	}
	return m.rest(p)
}

// finish ends a picture whose JPEG is decoded.
func (m *imager) finish(p *picture) error {
	err := p.job.Err
	p.job.Data, p.job.Points = nil, nil
	if err != nil || p.head.Whole {
		return err
	}
	if m.onMade != nil {
		m.onMade()
	}
	return m.rest(p)
}

// rest does what the recipe has left to do behind its head.
func (m *imager) rest(p *picture) error {
	view, err := p.recipe.Rest(&m.workspace, p.made)
	if err != nil {
		return err
	}
	task := resize.Task{Part: resize.Full(&view.Image), Width: view.Width, Height: view.Height, FlipX: view.FlipX, FlipY: view.FlipY}
	return m.resizer.ResizeInto(m.target(p), &view.Image, task)
}

// another makes a picture in dst of another image of the sample that p is of, which goes
// the same way. It must have the dimensions of the first.
func (m *imager) another(p *picture, dst, file []byte) error {
	info, err := imaging.Probe(file)
	if err != nil {
		return err
	}
	if w, h := p.recipe.SourceSize(); info.Width != w || info.Height != h {
		return fmt.Errorf("it has %d x %d pixels, and the sample's image %d x %d", info.Width, info.Height, w, h)
	}
	p.dst, p.points, p.gap = dst, nil, jpeg.Gap{}
	return m.decode(p, info, file)
}

// canvas says what the samples of a batch become.
type canvas struct {
	// program makes the images, and bytes is the size of one in a slab; nil and zeros
	// under DecodeNone.
	program       *transform.Program
	width, height int
	bytes         int64
	makers        []maker // of Config.Tensors
	// varies says that each image has a size of its own: bytes is 0, and image makes
	// their tensor. width and height may be known nevertheless.
	varies bool
	image  maker
}

// canvases are those of the buckets; the only one where all have the same.
func (c *Config) canvases() (list []canvas, err error) {
	if c.Decode != DecodeImage {
		return []canvas{{makers: c.makers(0, 0)}}, nil
	}
	sizes := c.Buckets.Sizes
	if len(sizes) == 0 {
		sizes = []transform.Size{{}}
	}
	for k, size := range sizes {
		p := canvas{}
		if p.program, err = transform.Compile(c.Transform, transform.Options{Size: size, MaxPixels: max(0, c.MaxPixels)}); err != nil {
			if len(sizes) > 1 {
				err = fmt.Errorf("bucket %d: %w", k, err)
			}
			return nil, err
		}
		p.width, p.height = p.program.Size()
		if p.varies = c.varies(); p.varies {
			p.image = c.imageMaker()
		} else {
			p.bytes = 3 * int64(p.width) * int64(p.height) * int64(c.DType.Size())
		}
		p.makers = c.makers(p.width, p.height)
		list = append(list, p)
	}
	return list, nil
}

// canvas is that of a bucket.
func (r *Reader) canvas(p *Plan) canvas {
	if len(r.canvases) == 1 {
		return r.canvases[0]
	}
	return r.canvases[p.bucket]
}
