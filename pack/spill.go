package pack

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// sorter sorts records by their keys in bounded memory: what does not fit is
// spilled, sorted, to temporary files that are merged at the end (the external
// merge sort of Knuth, The Art of Computer Programming, volume 3, 5.4).
type sorter struct {
	dir    string
	limit  int
	size   int      // bytes held: of blocks in use, and records
	blocks [][]byte // blocks[:used] are in use, each filled up to its length
	used   int
	recs   []record
	runs   []*os.File
}

// blockSize is the size of a sorter's blocks. Memory grows by blocks, and not by
// copying what is there into twice as much.
const blockSize = 1 << 20

// record is a key and a value, which follow each other in a block.
type record struct {
	prefix     uint64 // the key's first 8 bytes
	block, off uint32
	key, val   uint32
}

const recordSize = 24

// newSorter returns a sorter that holds at most about limit bytes and spills to
// dir, or the system's folder for that if dir is empty.
func newSorter(dir string, limit int64) *sorter {
	return &sorter{dir: dir, limit: int(max(limit, 1<<20))}
}

// add takes a record. It copies key and value.
func (s *sorter) add(key, value []byte) error {
	n := len(key) + len(value)
	if len(s.recs) > 0 && s.size+n+recordSize > s.limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	block := s.room(n)
	var p [8]byte
	copy(p[:], key)
	s.recs = append(s.recs, record{
		binary.BigEndian.Uint64(p[:]), uint32(s.used - 1), uint32(len(*block)), uint32(len(key)), uint32(len(value))})
	*block = append(append(*block, key...), value...)
	s.size += n + recordSize
	return nil
}

// room returns the last block in use, which has room for n bytes.
func (s *sorter) room(n int) *[]byte {
	if s.used > 0 {
		if b := &s.blocks[s.used-1]; cap(*b)-len(*b) >= n {
			return b
		}
	}
	if s.used == len(s.blocks) {
		s.blocks = append(s.blocks, make([]byte, 0, max(n, blockSize)))
	} else if cap(s.blocks[s.used]) < n {
		s.blocks[s.used] = make([]byte, 0, n)
	}
	s.used++
	b := &s.blocks[s.used-1]
	*b = (*b)[:0]
	return b
}

func (s *sorter) both(r *record) []byte {
	return s.blocks[r.block][r.off : r.off+r.key+r.val]
}
func (s *sorter) key(r *record) []byte { return s.both(r)[:r.key] }
func (s *sorter) val(r *record) []byte { return s.both(r)[r.key:] }

func (s *sorter) sort() {
	slices.SortFunc(s.recs, func(a, b record) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		if c := bytes.Compare(s.key(&a), s.key(&b)); c != 0 {
			return c
		}
		return bytes.Compare(s.val(&a), s.val(&b))
	})
}

// spill writes what is in memory to a file of its own.
func (s *sorter) spill() error {
	s.sort()
	f, err := os.CreateTemp(s.dir, "shardify-plan-")
	if err != nil {
		return fmt.Errorf("sorting the plan: %w; set --temp-dir to a folder that can be written", err)
	}
	// So that it goes with the process, however that ends. Where an open file
	// cannot be removed, close does it.
	os.Remove(f.Name())
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, 1<<20)
	var head [8]byte
	for i := range s.recs {
		r := &s.recs[i]
		binary.LittleEndian.PutUint32(head[:], r.key)
		binary.LittleEndian.PutUint32(head[4:], r.val)
		w.Write(head[:])
		w.Write(s.both(r))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sorting the plan: %w; set --temp-dir to a folder with more room", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("sorting the plan: %w", err)
	}
	s.recs, s.used, s.size = s.recs[:0], 0, 0
	return nil
}

// sorted yields all values in the order of their keys (and of the values, for equal
// keys). A value is valid until the next. The sorter is empty afterwards.
func (s *sorter) sorted(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		defer s.close()
		if len(s.runs) == 0 {
			s.sort()
			for i := range s.recs {
				if i%4096 == 0 && ctx.Err() != nil {
					yield(nil, context.Cause(ctx))
					return
				}
				if !yield(s.val(&s.recs[i]), nil) {
					return
				}
			}
			return
		}
		if err := s.spill(); err != nil {
			yield(nil, err)
			return
		}
		s.blocks, s.recs = nil, nil
		var m merge
		for _, f := range s.runs {
			r := &run{r: bufio.NewReaderSize(f, 256<<10)}
			switch err := r.next(); {
			case err == nil:
				m = append(m, r)
			case !errors.Is(err, io.EOF):
				yield(nil, err)
				return
			}
		}
		heap.Init(&m)
		for n := 0; len(m) > 0; n++ {
			if n%4096 == 0 && ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			r := m[0]
			if !yield(r.val, nil) {
				return
			}
			switch err := r.next(); {
			case err == nil:
				heap.Fix(&m, 0)
			case errors.Is(err, io.EOF):
				heap.Pop(&m)
			default:
				yield(nil, err)
				return
			}
		}
	}
}

// close drops everything, the files too.
func (s *sorter) close() {
	s.blocks, s.recs = nil, nil
	for _, f := range s.runs {
		f.Close()
		os.Remove(f.Name())
	}
	s.runs = nil
}

// run is a sorted file.
type run struct {
	r        *bufio.Reader
	key, val []byte
}

// next reads the next record; io.EOF after the last.
func (r *run) next() error {
	var head [8]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return err
	}
	k, v := int(binary.LittleEndian.Uint32(head[:])), int(binary.LittleEndian.Uint32(head[4:]))
	r.key = slices.Grow(r.key[:0], k+v)[:k+v]
	if _, err := io.ReadFull(r.r, r.key); err != nil {
		return fmt.Errorf("sorting the plan: a temporary file was cut: %w", io.ErrUnexpectedEOF)
	}
	r.key, r.val = r.key[:k], r.key[k:k+v]
	return nil
}

// merge is a heap of runs.
type merge []*run

func (m merge) Len() int { return len(m) }
func (m merge) Less(i, j int) bool {
	if c := bytes.Compare(m[i].key, m[j].key); c != 0 {
		return c < 0
	}
	return bytes.Compare(m[i].val, m[j].val) < 0
}
func (m merge) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(x any)   { *m = append(*m, x.(*run)) }
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
