package reader

import (
	"fmt"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
)

// imager makes the picture of a sample: it decodes, transforms and writes the result as
// the tensor wants it. One goroutine may use it. In steady state it allocates nothing
// that its decoder does not.
//
// After make, recipe is that of the sample in hand, until the next one: pictures.go makes
// with it what else lies on the image.
type imager struct {
	config    *Config
	program   *transform.Program // that of the batch's bucket; all normalise alike
	decoder   imaging.Decoder
	recipe    transform.Recipe
	workspace transform.Workspace
	decoded   imaging.Image
	table     *tensor.Table // under DTypeFloat32
	// onDecoded, if there is one, is called between decoding and the transforms.
	onDecoded func()
}

func newImager(c *Config, p []canvas, d imaging.Decoder) imager {
	m := imager{config: c, decoder: d}
	if m.program = p[0].program; m.program != nil {
		if c.DType == DTypeFloat32 {
			n, _ := m.program.Normalize()
			m.table = n.Table()
		}
	}
	return m
}

// make makes the picture of an image file in dst, one image of a slab. Everything random
// comes from random, in the order of the transforms.
func (m *imager) make(dst, file []byte, random augment.Rand) error {
	if err := m.decoder.Decode(file, &m.decoded, imaging.DecodeOptions{MaxPixels: m.config.MaxPixels}); err != nil {
		return err
	}
	if m.onDecoded != nil {
		m.onDecoded()
	}
	if err := m.program.Draw(&m.recipe, &random, m.decoded.Width, m.decoded.Height); err != nil {
		return err
	}
	return m.put(dst, &m.decoded)
}

// put writes to dst what the recipe makes of src.
func (m *imager) put(dst []byte, src *imaging.Image) error {
	view, err := m.recipe.Image(&m.workspace, src)
	if err != nil {
		return err
	}
	if m.table != nil {
		return tensor.PutFloat32(float32s(dst), &view.Image, m.config.Layout, view.FlipX, view.FlipY, m.table)
	}
	return tensor.PutUint8(dst, &view.Image, m.config.Layout, view.FlipX, view.FlipY)
}

// canvas says what the samples of a batch become.
type canvas struct {
	// program makes the images, and bytes is the size of one in a slab; nil and zeros
	// under DecodeNone.
	program       *transform.Program
	width, height int
	bytes         int64
	makers        []maker // of Config.Tensors
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
		p.bytes = 3 * int64(p.width) * int64(p.height)
		if c.DType == DTypeFloat32 {
			p.bytes *= 4
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
