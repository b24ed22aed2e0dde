package pixel

// Upsampling and colour as in libjpeg-turbo's jdsample.c and jdcolor.c, generic.

func clip(v int32) uint8 { return uint8(min(max(v, 0), 255)) }

// rgbGeneric turns n samples of three planes, pitch apart, from YCbCr into RGB in
// place.
func rgbGeneric(pix []uint8, pitch, n int) {
	y, cb, cr := pix[:n], pix[pitch:][:n], pix[2*pitch:][:n]
	for x, l := range y {
		l, b, r := int32(l), int32(cb[x])-128, int32(cr[x])-128
		y[x] = clip(l + (91881*r+32768)>>16)
		cb[x] = clip(l + (-22554*b-46802*r+32768)>>16)
		cr[x] = clip(l + (116130*b+32768)>>16)
	}
}

// cmyk makes RGB of CMYK as Pillow shows it: the file's values, which it takes to be
// inverted, and then its conversion to RGB.
func cmyk(pix []uint8, pitch int, k []uint8, inverted bool) {
	for c := range 3 {
		p := pix[c*pitch:][:len(k)]
		for x, v := range p {
			ink := uint32(v)
			if inverted {
				ink = 255 - ink
			}
			white := uint32(k[x])
			t := ink*white + 128
			p[x] = uint8(max(int32(white)-int32((t>>8+t)>>8), 0))
		}
	}
}

// luma makes the first plane the grey of RGB, which libjpeg and Pillow weigh alike.
func luma(pix []uint8, pitch, n int) {
	r, g, b := pix[:n], pix[pitch:][:n], pix[2*pitch:][:n]
	for x := range r {
		r[x] = uint8((19595*uint32(r[x]) + 38470*uint32(g[x]) + 7471*uint32(b[x]) + 32768) >> 16)
	}
}

// h2Generic makes 2·n samples of a row: "fancy" upsampling by two. near and far are
// the row itself and the one above or below, of which it is a fourth; they begin
// one sample before the first that counts and end one after the last. With far the
// same as near, and the biases 4 and 8, it is h2v1; with 8 and 7 it is h2v2.
func h2Generic[T uint8 | uint16](dst, near, far []T, n int, even, odd uint32) {
	column := func(i int) uint32 { return 3*uint32(near[i]) + uint32(far[i]) }
	last, this := column(0), column(1)
	for i := range n {
		next := column(i + 2)
		dst[2*i] = T((3*this + last + even) >> 4)
		dst[2*i+1] = T((3*this + next + odd) >> 4)
		last, this = this, next
	}
}

// v2Generic makes n samples between two rows: "fancy" upsampling of columns only.
func v2Generic[T uint8 | uint16](dst, near, far []T, n int, bias uint32) {
	near, far = near[:n], far[:n]
	for i := range dst[:n] {
		dst[i] = T((3*uint32(near[i]) + uint32(far[i]) + bias) >> 2)
	}
}

// replicate repeats samples, of which each stands for times columns; the first skip
// columns of the first one are left out.
func replicate[T uint8 | uint16](dst, row []T, times, skip int) {
	for x, left := 0, times-skip; len(dst) > 0; x, left = x+1, times {
		n := min(left, len(dst))
		for i := range dst[:n] {
			dst[i] = row[x]
		}
		dst = dst[n:]
	}
}
