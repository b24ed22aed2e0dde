package tree

import (
	"image"
	"image/color"
	"math"
	"math/rand/v2"

	"shardify/tools/gendata/jpegenc"
)

// outlines says of each shape whether a point lies in it. The shape fills the square
// from -1 to 1, y downwards. None looks like another one that is mirrored, or turned a
// little.
var outlines = [...]func(x, y float64) bool{
	func(x, y float64) bool { return x*x+y*y < 1 },                                             // disc
	func(x, y float64) bool { r := x*x + y*y; return r < 1 && r > 0.36 },                       // ring
	func(x, y float64) bool { return max(math.Abs(x), math.Abs(y)) < 0.85 },                    // square
	func(x, y float64) bool { m := max(math.Abs(x), math.Abs(y)); return m < 0.85 && m > 0.5 }, // frame
	func(x, y float64) bool { return y < 0.8 && math.Abs(x) < (y+1)*0.55 },                     // triangle, point up
	func(x, y float64) bool { return y > -0.8 && math.Abs(x) < (1-y)*0.55 },                    // triangle, point down
	func(x, y float64) bool { // cross
		return min(math.Abs(x), math.Abs(y)) < 0.28 && max(math.Abs(x), math.Abs(y)) < 0.95
	},
	func(x, y float64) bool { return math.Abs(x) < 0.9 && math.Abs(math.Abs(y)-0.5) < 0.26 }, // two bars
	func(x, y float64) bool { return math.Abs(y) < 0.9 && math.Abs(math.Abs(x)-0.5) < 0.26 }, // two posts
	func(x, y float64) bool { return x*x+y*y < 1 && x*x+(y+0.55)*(y+0.55) > 0.8 },            // bowl
}

// A side of a picture has shapesSide pixels, or up to shapesSpan more.
const shapesSide, shapesSpan = 40, 25

// shapes draws pictures in which there is something to learn: class c is the c-th of
// outlines, which has any colour, size and place, is turned by up to 18°, and stands
// before a background that has any colour, gradient, specks and noise. A small
// convolutional network tells nearly all of them apart.
type shapes struct {
	enc jpegenc.Encoder
}

// file appends the i-th file of a seed, of a class, to dst.
func (s *shapes) file(dst []byte, seed uint64, i, class int) ([]byte, error) {
	rng := rand.New(rand.NewPCG(seed, uint64(i)<<2|3))
	w, h := shapesSide+rng.IntN(shapesSpan+1), shapesSide+rng.IntN(shapesSpan+1)
	img := image.NewRGBA(image.Rect(0, 0, w, h))

	// Two colours that differ enough to be told apart, either of which may be the
	// lighter one.
	back, front := colour(rng), colour(rng)
	for distance(back, front) < 70 {
		front = colour(rng)
	}
	radius := float64(min(w, h)) * (0.2 + 0.2*rng.Float64())
	cx := radius + rng.Float64()*(float64(w)-2*radius)
	cy := radius + rng.Float64()*(float64(h)-2*radius)
	sin, cos := math.Sincos((2*rng.Float64() - 1) * 18 * math.Pi / 180)
	gx, gy := 25*rng.NormFloat64(), 25*rng.NormFloat64()
	noise := 4 + 14*rng.Float64()
	type speck struct{ x, y, r float64 }
	specks := make([]speck, rng.IntN(9))
	for j := range specks {
		specks[j] = speck{rng.Float64() * float64(w), rng.Float64() * float64(h), 0.7 + 2.3*rng.Float64()}
	}

	inside := outlines[class]
	const over = 3 // samples of a pixel, across and down
	for y := range h {
		for x := range w {
			covered := 0
			for k := range over * over {
				px := float64(x) + (float64(k%over)+0.5)/over
				py := float64(y) + (float64(k/over)+0.5)/over
				dx, dy := (px-cx)/radius, (py-cy)/radius
				in := inside(dx*cos+dy*sin, dy*cos-dx*sin)
				for _, p := range specks {
					in = in || (px-p.x)*(px-p.x)+(py-p.y)*(py-p.y) < p.r*p.r
				}
				if in {
					covered++
				}
			}
			a := float64(covered) / (over * over)
			light := gx*(float64(x)/float64(w)-0.5) + gy*(float64(y)/float64(h)-0.5)
			var c [3]uint8
			for j := range c {
				v := back[j]*(1-a) + front[j]*a + light + noise*rng.NormFloat64()
				c[j] = uint8(min(max(v+0.5, 0), 255))
			}
			img.SetRGBA(x, y, color.RGBA{c[0], c[1], c[2], 255})
		}
	}
	return s.enc.Append(dst, jpegenc.FromImage(img, jpegenc.YCbCr, jpegenc.S420), &jpegenc.Options{Quality: 90, Optimize: true})
}

func colour(rng *rand.Rand) (c [3]float64) {
	for i := range c {
		c[i] = 20 + 215*rng.Float64()
	}
	return c
}

// distance is how much two colours differ in brightness, and a half of it in hue.
func distance(a, b [3]float64) float64 {
	var sum, most float64
	for i := range a {
		sum += a[i] - b[i]
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return max(math.Abs(sum)/3, most/2)
}
