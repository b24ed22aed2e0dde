//go:build !amd64 || purego

package entropy

// kernel decodes the parts of strands in lanes. Without assembly it takes them in
// turn: compilers keep the state of one stream in registers, hardly that of two.
type kernel struct{}

func (k *kernel) load(int, *strand) {}

func (k *kernel) move(int, int) {}

func (k *kernel) drop(int) {}

// run decodes until a lane's part is done, and returns which.
func (k *kernel) run(lane []*strand) int {
	t := lane[0]
	t.s.run(t.part, t.n)
	return 0
}

// unstuffFast begins what unstuff does.
func unstuffFast(dst, src []byte) (written, read int) { return 0, 0 }
