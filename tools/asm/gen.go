package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gen is a context with constants that are shared by content.
type gen struct {
	*build.Context
	constants map[string]int
}

// function begins a function; labels are its own, so they need no prefix.
func (g *gen) function(name, signature, doc string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(signature)
	g.Doc(doc)
	g.Pragma("noescape")
}

// load loads a parameter into a register.
func (g *gen) load(name string, r reg.GPPhysical) reg.GPPhysical {
	g.Load(g.Param(name), r)
	return r
}

// bytes returns a read-only constant of 16, 32 or 64 bytes.
func (g *gen) bytes(b []byte) operand.Mem {
	if n := len(b); n != 16 && n != 32 && n != 64 {
		panic(fmt.Sprintf("a constant of %d bytes", n))
	}
	n, ok := g.constants[string(b)]
	name := ""
	if ok {
		name = fmt.Sprintf("const%d", n)
		return operand.NewDataAddr(operand.Symbol{Name: name, Static: true}, 0)
	}
	n = len(g.constants)
	g.constants[string(b)] = n
	name = fmt.Sprintf("const%d", n)
	m := g.StaticGlobal(name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := 0; i < len(b); i += 8 {
		g.AddDatum(i, operand.U64(binary.LittleEndian.Uint64(b[i:])))
	}
	return m
}

// words, dwords and fill repeat values up to so many bytes.
func (g *gen) words(n int, v ...int16) operand.Mem {
	b := make([]byte, 0, n)
	for i := 0; len(b) < n; i++ {
		b = binary.LittleEndian.AppendUint16(b, uint16(v[i%len(v)]))
	}
	return g.bytes(b)
}

func (g *gen) dwords(n int, v ...int32) operand.Mem {
	b := make([]byte, 0, n)
	for i := 0; len(b) < n; i++ {
		b = binary.LittleEndian.AppendUint32(b, uint32(v[i%len(v)]))
	}
	return g.bytes(b)
}

func (g *gen) fill(n int, v ...byte) operand.Mem {
	b := make([]byte, n)
	for i := range b {
		b[i] = v[i%len(v)]
	}
	return g.bytes(b)
}

// at is memory at disp(base).
func at(base reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Disp: disp}
}

// atx is memory at disp(base)(index*scale).
func atx(base, index reg.Register, scale uint8, disp int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: scale, Disp: disp}
}

// Physical registers by number: each kernel places its values by hand.
var (
	xmm = [32]reg.VecPhysical{
		reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7,
		reg.X8, reg.X9, reg.X10, reg.X11, reg.X12, reg.X13, reg.X14, reg.X15,
		reg.X16, reg.X17, reg.X18, reg.X19, reg.X20, reg.X21, reg.X22, reg.X23,
		reg.X24, reg.X25, reg.X26, reg.X27, reg.X28, reg.X29, reg.X30, reg.X31,
	}
	ymm = [32]reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
		reg.Y16, reg.Y17, reg.Y18, reg.Y19, reg.Y20, reg.Y21, reg.Y22, reg.Y23,
		reg.Y24, reg.Y25, reg.Y26, reg.Y27, reg.Y28, reg.Y29, reg.Y30, reg.Y31,
	}
	zmm = [32]reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
		reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
		reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}
)

// whole ends a loop over blocks of so many bytes or pixels, whose number n counts
// down in left: the last block lies flush with the end, and overlaps the one
// before where n is no multiple. Every pointer moves on by its step, for a whole
// block.
func (g *gen) whole(label string, left reg.GPPhysical, block int, steps map[reg.GPPhysical]int, order []reg.GPPhysical) {
	for _, p := range order {
		g.ADDQ(operand.I32(int32(steps[p])), p)
	}
	g.SUBQ(operand.I32(int32(block)), left)
	g.JEQ(operand.LabelRef(label + "_end"))
	g.CMPQ(left, operand.I32(int32(block)))
	g.JGE(operand.LabelRef(label))
	// Back by what is missing of a block.
	g.SUBQ(operand.I32(int32(block)), left)
	for _, p := range order {
		for range steps[p] / block {
			g.ADDQ(left, p)
		}
	}
	g.MOVQ(operand.I32(int32(block)), left)
	g.JMP(operand.LabelRef(label))
	g.Label(label + "_end")
}
