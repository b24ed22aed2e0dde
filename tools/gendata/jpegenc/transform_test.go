package jpegenc

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkBlock(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	luma, _ := Tables(96)
	q := newQuantiser(&luma)
	pix := make([]uint8, 64)
	for i := range pix {
		pix[i] = uint8(100 + rng.IntN(40))
	}
	var out [64]int16
	for b.Loop() {
		q.block(&out, pix, 8)
	}
}
