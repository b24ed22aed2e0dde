package reader

import (
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
)

// imager makes the picture of a sample: it decodes, transforms and writes the result as
// the tensor wants it. One goroutine may use it. In steady state it allocates nothing
// that its decoder does not.
//
// After make, recipe is that of the sample in hand, until the next one: what becomes of
// other fields that lie on its image, masks and boxes, is for
//
//	m.recipe.Mask(&m.workspace, &dst, &src, fill)
//	m.recipe.Boxes(boxes, kept, filter)
//
// to say, of sources that have the image's width and height.
type imager struct {
	config    *Config
	program   *transform.Program
	decoder   imaging.Decoder
	recipe    transform.Recipe
	workspace transform.Workspace
	decoded   imaging.Image
	table     *tensor.Table // under DTypeFloat32
	// onDecoded, if there is one, is called between decoding and the transforms.
	onDecoded func()
}

func newImager(c *Config, p *transform.Program, d imaging.Decoder) imager {
	m := imager{config: c, program: p, decoder: d}
	if c.DType == DTypeFloat32 {
		n, _ := p.Normalize()
		m.table = n.Table()
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
	view, err := m.recipe.Image(&m.workspace, &m.decoded)
	if err != nil {
		return err
	}
	if m.table != nil {
		return tensor.PutFloat32(float32s(dst), &view.Image, m.config.Layout, view.FlipX, view.FlipY, m.table)
	}
	return tensor.PutUint8(dst, &view.Image, m.config.Layout, view.FlipX, view.FlipY)
}

// compile makes the program of the configuration's transforms; nil under DecodeNone.
func (c *Config) compile() (*transform.Program, error) {
	if c.Decode != DecodeImage {
		return nil, nil
	}
	return transform.Compile(c.Transform, transform.Options{MaxPixels: max(0, c.MaxPixels)})
}
