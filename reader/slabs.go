package reader

import "context"

// Slabs is where the memory of batches comes from, for who hands it on: to another
// process (package feed), or to a device (package gpu). A pass takes its slabs from
// Config.Slabs, within its memory, uses them again and again, and gives them back:
// those that lie idle when it needs the room for something else, and when its reader
// is closed, or a pass has ended before the end of its epoch. Those of batches that are
// held then follow when they are released.
//
// Its methods are called by several goroutines at a time. Alloc and Free must not call the
// reader or release a batch. All other memory, such as what is read into before it is
// decoded, is the reader's own.
type Slabs interface {
	// Alloc returns n bytes, at least a page, that begin at a multiple of 64. What is in
	// them does not matter. An error ends the pass.
	Alloc(n int64) ([]byte, error)
	// Free takes back what Alloc has returned, exactly once. Nothing of the reader uses
	// it any more.
	Free(b []byte)
	// Starved is told when a pass cannot go on before the caller releases a batch: all its
	// memory is in batches that the caller has, and it has asked for the next one. ctx has the
	// values of the one that the pass was begun with. It is told again after a release that
	// did not help.
	Starved(ctx context.Context)
}

// Slab is the memory that the batch lies in, and how much of it is used: with
// Config.Slabs, memory is what Alloc has returned, and behind used there is room that
// nothing else uses before Release, for who hands the batch on to note its samples'
// numbers, keys and fields: at least 8 bytes for each sample, 16 for its key and for each
// of Fields, the bytes of the keys, and what it takes to align each of these tables to 64.
// (Keys of samples that stand in for damaged ones may be longer.)
//
// Tensors and fields lie in it, but not all: of a sample that stands in for a damaged
// one, and of shards that have to be parsed, fields are elsewhere, and where it has a
// longer value than the damaged one, so is that tensor.
func (b *Batch) Slab() (memory []byte, used int) {
	j := b.use()
	return j.slab.data, int(j.used)
}

// seal notes where the batch's own memory in the slab ends, and returns how large the slab
// must be.
func (j *job) seal(end int64) int64 {
	j.used = end
	if j.pass.reader.config.Slabs == nil {
		return end
	}
	return align(end, slabAlign) + tableBytes(j.slots, len(j.names)) + int64(len(j.keys))
}

// tableBytes is the room behind a batch of n samples, but for the keys.
func tableBytes(n, fields int) int64 {
	return int64(n)*int64(8+16+16*fields) + slabAlign*int64(3+fields)
}
