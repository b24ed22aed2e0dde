package feed

import (
	"encoding/binary"
	"io"
	"unsafe"

	"shardify/reader"
)

// tableAlign is the alignment of tensors and tables.
const tableAlign = 64

// layout says where all that a batch has lies in the memory that the client gets. Behind
// what is there already come the tables, and what lies elsewhere.
type layout struct {
	event batchEvent
	// more are bytes that are still to be put in their places, in order.
	more []part
	end  int64
}

// part is bytes with their place.
type part struct {
	at   int64
	data []byte
}

// layOut lays a batch out in memory, of which the first used bytes are the batch's own.
// Without memory all of it is to be put somewhere.
func layOut(b *reader.Batch, memory []byte, used int) *layout {
	l := newLayout(b, used)
	for _, t := range b.Tensors() {
		at, there := placeIn(memory, t.Data)
		if !there {
			at = l.add(t.Data, tableAlign)
		}
		l.event.Tensors = append(l.event.Tensors, tensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape, At: &at})
	}
	l.addTables(b, memory)
	return l
}

// newLayout begins one behind what is there already.
func newLayout(b *reader.Batch, used int) *layout {
	l := &layout{end: int64(used), event: batchEvent{
		Event: "batch", Number: b.Number(), Epoch: b.Epoch(), Bucket: b.Bucket(), Len: b.Len(),
		Tensors: []tensorInfo{}, FieldsAt: map[string]int64{}, Bad: []*Sample{},
	}}
	if state := b.State(); state.Version != 0 { // one of a read has none
		l.event.State = &state
	}
	return l
}

// addTables adds all that a batch has besides its tensors.
func (l *layout) addTables(b *reader.Batch, memory []byte) {
	n := b.Len()
	l.event.SamplesAt = l.add(int64Bytes(b.Samples()), tableAlign)
	table := make([]int64, 2*n) // whose places are known before its strings are
	l.event.KeysAt = l.add(int64Bytes(table), tableAlign)
	size := 0
	for i := range n {
		size += len(b.Key(i))
	}
	keys := make([]byte, 0, size)
	from := l.end
	for i := range n {
		key := b.Key(i)
		table[2*i], table[2*i+1] = from+int64(len(keys)), int64(len(key))
		keys = append(keys, key...)
	}
	l.add(keys, 1)
	for _, name := range b.Fields() {
		table := make([]int64, 2*n)
		l.event.FieldsAt[name] = l.add(int64Bytes(table), tableAlign)
		for i := range n {
			data, ok := b.Field(i, name)
			if !ok {
				table[2*i+1] = -1
				continue
			}
			at, there := placeIn(memory, data)
			if !there {
				at = l.add(data, 1)
			}
			table[2*i], table[2*i+1] = at, int64(len(data))
		}
	}
	for _, bad := range b.Bad() {
		l.event.Bad = append(l.event.Bad, sampleOf(bad))
	}
}

// placeIn is where in memory data lies, if it does.
func placeIn(memory, data []byte) (at int64, there bool) {
	if len(data) == 0 {
		return 0, true
	}
	if len(memory) == 0 {
		return 0, false
	}
	from, to := uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if to < from || to+uintptr(len(data)) > from+uintptr(len(memory)) {
		return 0, false
	}
	return int64(to - from), true
}

// add gives bytes that are not there yet the next place.
func (l *layout) add(data []byte, align int64) (at int64) {
	at = (l.end + align - 1) / align * align
	if len(data) > 0 {
		l.more = append(l.more, part{at, data})
	}
	l.end = at + int64(len(data))
	return at
}

// fill puts what is not there yet into memory.
func (l *layout) fill(memory []byte) {
	for _, p := range l.more {
		copy(memory[p.at:], p.data)
	}
}

// write writes a layout without memory of its own.
func (l *layout) write(w io.Writer) error {
	var zeros [tableAlign]byte
	at := int64(0)
	for _, p := range l.more {
		if _, err := w.Write(zeros[:p.at-at]); err != nil {
			return err
		}
		if _, err := w.Write(p.data); err != nil {
			return err
		}
		at = p.at + int64(len(p.data))
	}
	_, err := w.Write(zeros[:l.end-at])
	return err
}

// int64Bytes are numbers as they go over the wire: as they are, this machine being
// little-endian.
func int64Bytes(n []int64) []byte {
	if len(n) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&n[0])), 8*len(n))
}

// littleEndian says that this machine is.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
