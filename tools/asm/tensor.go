package main

import (
	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

func tensor(g *gen) {
	mixAVX2(g)
}

// mixAVX2 rounds each product and the sum, as the generic version does.
func mixAVX2(g *gen) {
	g.function("mixAVX2", "func(image, before *float32, n int, own, other float32)",
		"mixAVX2 makes of n floats of an image own times themselves and other times those of before, n a multiple of 32 and not 0.")
	image, before, n := g.load("image", RDI), g.load("before", RSI), g.load("n", RCX)
	g.VBROADCASTSS(g.paramAddr("own"), ymm[14])
	g.VBROADCASTSS(g.paramAddr("other"), ymm[15])
	g.Label("loop")
	for i := range 4 {
		g.VMULPS(at(before, 32*i), ymm[15], ymm[i])
		g.VMULPS(at(image, 32*i), ymm[14], ymm[4+i])
		g.VADDPS(ymm[4+i], ymm[i], ymm[i])
		g.VMOVUPS(ymm[i], at(image, 32*i))
	}
	g.SUBQ(I32(-128), image)
	g.SUBQ(I32(-128), before)
	g.SUBQ(U8(32), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}
