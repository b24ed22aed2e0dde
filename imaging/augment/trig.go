package augment

import "math"

// Sines and their like, rounded correctly (but for cases nearer to a tie than 2^-40 of
// the last bit). Go's own differ in the last bit from C's, and among machines, and a
// last bit shows: an interpolated level is cut to a whole number, and a sheared image
// may have an edge exactly on a row of pixels.
//
// Numbers are unevaluated sums of two float64s, about 106 bits ("double-double": Dekker,
// "A floating-point technique for extending the available precision", 1971; Hida, Li
// and Bailey, "Algorithms for quad-double precision floating point arithmetic", 2001).
type double struct{ hi, lo float64 }

// quick is a + b with |a| >= |b| or a = 0.
func quick(a, b float64) double {
	s := a + b
	return double{s, b - (s - a)}
}

func sum(a, b float64) double {
	s := a + b
	v := s - a
	return double{s, (a - (s - v)) + (b - v)}
}

func product(a, b float64) double {
	p := float64(a * b)
	return double{p, math.FMA(a, b, -p)}
}

func (a double) add(b double) double {
	s, t := sum(a.hi, b.hi), sum(a.lo, b.lo)
	s = quick(s.hi, s.lo+t.hi)
	return quick(s.hi, s.lo+t.lo)
}

func (a double) neg() double { return double{-a.hi, -a.lo} }

func (a double) mul(b double) double {
	p := product(a.hi, b.hi)
	return quick(p.hi, p.lo+(float64(a.hi*b.lo)+float64(a.lo*b.hi)))
}

func (a double) div(b double) double {
	q1 := a.hi / b.hi
	r := a.add(b.mul(double{q1, 0}).neg())
	q2 := r.hi / b.hi
	r = r.add(b.mul(double{q2, 0}).neg())
	return quick(q1, q2).add(double{r.hi / b.hi, 0})
}

func (a double) float() float64 { return a.hi + a.lo }

// halfPi is pi/2 to 159 bits.
var halfPi = [3]float64{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110}

// sinCos returns the sine and cosine of x, of at most some thousands: by Taylor's series
// at the distance to the nearest multiple of pi/2.
func sinCos(x float64) (sin, cos double) {
	k := math.Round(x / halfPi[0])
	r := double{x, 0}
	for _, part := range halfPi {
		r = r.add(product(-k, part))
	}
	square := r.mul(r).neg()
	sin, cos = r, double{1, 0}
	term, other := r, cos
	for n := 2.0; n < 30; n += 2 {
		other = other.mul(square).div(double{(n - 1) * n, 0})
		term = term.mul(square).div(double{n * (n + 1), 0})
		cos, sin = cos.add(other), sin.add(term)
	}
	switch int(k) & 3 {
	case 1:
		return cos, sin.neg()
	case 2:
		return sin.neg(), cos.neg()
	case 3:
		return cos.neg(), sin
	}
	return sin, cos
}

func sine(x float64) float64 {
	s, _ := sinCos(x)
	return s.float()
}

func cosine(x float64) float64 {
	_, c := sinCos(x)
	return c.float()
}

func tangent(x float64) float64 {
	s, c := sinCos(x)
	return s.div(c).float()
}

// arctangent improves Go's by one step: atan(v) = a + atan((v cos a - sin a)/(cos a + v sin a)).
func arctangent(v float64) float64 {
	a := math.Atan(v)
	s, c := sinCos(a)
	d := c.mul(double{v, 0}).add(s.neg()).div(c.add(s.mul(double{v, 0})))
	return double{a, 0}.add(d).float()
}
