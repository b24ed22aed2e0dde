package imaging

import (
	"sync"

	"shardify/imaging/jpeg"
)

// jpegDecoders are those that are not in use: they keep their memory from one image to the
// next.
var jpegDecoders = sync.Pool{New: func() any { return new(jpeg.Decoder) }}

func (c *canvas) jpeg(data []byte) (err error) {
	// A decoder that gives up in a panic is not used again.
	defer gaveUp(JPEG, &err)
	if _, err := probeJPEG(data); err != nil {
		return err
	}
	o := jpeg.Options{Orient: c.opt.Orient, MaxPixels: c.opt.MaxPixels, Damaged: jpeg.AsPillow}
	if c.opt.Strict {
		o.Damaged = jpeg.Refuse
	}
	d := jpegDecoders.Get().(*jpeg.Decoder)
	err = d.Decode(data, c.dst, o)
	jpegDecoders.Put(d)
	return err
}
