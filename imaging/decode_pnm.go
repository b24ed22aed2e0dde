package imaging

import "shardify/imaging/netpbm"

// probePNM reads a netpbm file's header.
func probePNM(data []byte) (Info, error) {
	h, err := netpbm.ReadHeader(data)
	if err != nil {
		return Info{}, err
	}
	return pnmInfo(&h), nil
}

func pnmInfo(h *netpbm.Header) Info {
	info := Info{Format: PNM, Width: h.Width, Height: h.Height, Channels: h.Channels, Bits: 8, Colorspace: Gray, Orientation: 1}
	if h.Channels == 3 {
		info.Colorspace = RGB
	}
	switch {
	case h.Kind == '1' || h.Kind == '4':
		info.Bits = 1
	case h.Max > 255:
		info.Bits = 16
	}
	return info
}

func (c *canvas) pnm(data []byte) error {
	h, err := netpbm.ReadHeader(data)
	if err != nil {
		return err
	}
	if h.Row == 0 {
		return &UnsupportedError{Format: PNM, Msg: "pixels as text"}
	}
	if err := c.open(pnmInfo(&h)); err != nil {
		return err
	}
	c.rows(func(y int, line []uint8) { h.RGB(line, data, y) })
	return nil
}
