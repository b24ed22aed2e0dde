package reader

import "testing"

// Who asks for more than the pool can have in vain takes nothing from others: idle blocks
// stay for who needs them next. Where they make the room, they go; and where the pool can
// never have so much, all of them do, and it is lent beyond its size.
func TestPoolKeepsIdleBlocks(t *testing.T) {
	const slab, reads = 8 << 20, 1 << 20
	take := func(p *pool, k kind, own int64) *block {
		t.Helper()
		b, err := p.try(k, own)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := newPool(2*slab+3*reads, new(meter), new(shelf))
	defer p.end()
	take(p, kind{slab, true}, 0)
	second := take(p, kind{slab, true}, 0)
	p.put(take(p, kind{class: reads}, 0))
	if b := take(p, kind{slab, true}, 0); b != nil {
		t.Fatal("a third slab is beyond the pool's size")
	}
	if p.free != reads || p.used != 2*slab+reads {
		t.Errorf("%d bytes of %d are idle after what could not be had, want %d", p.free, p.used, reads)
	}
	p.put(second)
	large := take(p, kind{class: slab + 3*reads}, 0)
	if large == nil || p.free != 0 {
		t.Errorf("%d bytes are idle, and %v lent, where they are room", p.free, large)
	}
	p.put(large)
	if b := take(p, kind{class: 4 * slab}, slab-1); b != nil || p.free != slab+3*reads {
		t.Errorf("more than the pool's size was lent, or room made for it, while %d bytes can come back", slab)
	}
	if b := take(p, kind{class: 4 * slab}, slab); b == nil || p.free != 0 {
		t.Error("what is larger than the pool must be lent when nothing can come back")
	}
}
