package encode

// Colour conversion is libjpeg's: BT.601 at full range, 16 bits behind the point.
const (
	yR, yG, yB    = 19595, 38470, 7471
	cbR, cbG      = 11059, 21709
	crG, crB      = 27439, 5329
	half          = 32768
	chromaRounded = 128<<16 + half - 1
)

// yccGeneric converts n pixels.
func yccGeneric(y, cb, cr, rgb []uint8, n int) {
	y, cb, cr, rgb = y[:n], cb[:n], cr[:n], rgb[:3*n]
	for i := range y {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		r, g, b := int32(p[0]), int32(p[1]), int32(p[2])
		y[i] = uint8((yR*r + yG*g + yB*b + half) >> 16)
		cb[i] = uint8((half*b - cbR*r - cbG*g + chromaRounded) >> 16)
		cr[i] = uint8((half*r - crG*g - crB*b + chromaRounded) >> 16)
	}
}

// downsampleGeneric makes n samples of h x v each, rows pitch apart. The common ones
// round up and down in turn, from column to column; others to the nearest.
func downsampleGeneric(dst, src []uint8, pitch, n, h, v int) {
	dst = dst[:n]
	switch {
	case h == 2 && v == 1:
		src = src[:2*n]
		for i := range dst {
			dst[i] = uint8((int(src[2*i]) + int(src[2*i+1]) + i&1) >> 1)
		}
	case h == 2 && v == 2:
		a, b := src[:2*n], src[pitch:][:2*n]
		for i := range dst {
			dst[i] = uint8((int(a[2*i]) + int(a[2*i+1]) + int(b[2*i]) + int(b[2*i+1]) + 1 + i&1) >> 2)
		}
	default:
		of := h * v
		for i := range dst {
			sum := of / 2
			for r := range v {
				for _, s := range src[r*pitch+i*h:][:h] {
					sum += int(s)
				}
			}
			dst[i] = uint8(sum / of)
		}
	}
}
