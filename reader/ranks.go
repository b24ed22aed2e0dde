package reader

import "fmt"

// ForRank returns a reader of another rank of the same epochs, or another one of the same
// rank, whose batches lie in slabs, where that is not nil. All else of the configuration is
// the same. It shares with r what does not depend on the rank: the data sets, what has been
// read of their indexes, the tables of Sampling and Buckets, and the cache. So the ranks of
// a host need these once.
//
// Either may be closed first. The readers' Stats are their own, but for the stores', the
// cache's and the indexes' part, which is that of all.
func (r *Reader) ForRank(rank int, slabs Slabs) (*Reader, error) {
	if rank < 0 || rank >= r.config.World {
		return nil, fmt.Errorf("%w: rank: %d is not between 0 and %d, the world less one", ErrConfig, rank, r.config.World-1)
	}
	n := emptyReader(r.Config())
	n.config.Rank, n.config.Slabs = rank, slabs
	n.sets, n.split, n.counts, n.identity = r.sets, r.split, r.counts, r.identity
	n.sampling, n.buckets, n.wanted = r.sampling, r.buckets, r.wanted
	n.sequential, n.frames, n.shared = r.sequential, r.frames, r.shared
	n.points, n.onlyParts, n.partGain = r.points, r.onlyParts, r.partGain
	n.canvases, n.poolBytes, n.batch, n.reserved = r.canvases, r.poolBytes, r.batch, r.reserved
	n.ahead, n.fetchers, n.ready, n.scratch = r.ahead, r.fetchers, r.ready, r.scratch
	n.indexLoads, n.unpacking = r.indexLoads, r.unpacking
	n.rows, n.base, n.newDecoder, n.chosen = r.rows, r.base, r.newDecoder, r.chosen
	n.counters.memory.add(n.reserved)
	n.files = newFiles(n.openFile)
	return n, nil
}

// Lendable is how many bytes of batches the caller of a pass may hold while it goes on to
// make the next one: what Config.Memory leaves beside one batch, what is read for it and
// ahead of it, and the index. Of one that is larger than all of it, one can be held.
// Batches that are larger than most may make it less: Slabs.Starved tells.
func (r *Reader) Lendable() int64 {
	return max(r.poolBytes-r.ahead.bytes-r.batch-r.poolBytes/8, r.batch)
}

// Lendable is as Reader.Lendable says; the sliding buffer counts, too.
func (s *Stream) Lendable() int64 {
	return max(s.core.poolBytes-s.buffer-s.core.batch-s.core.poolBytes/8, s.core.batch)
}

// BatchBytes is what a batch takes of Config.Memory, as far as the configuration tells.
func (r *Reader) BatchBytes() int64 { return r.batch }

// BatchBytes is as Reader.BatchBytes says.
func (s *Stream) BatchBytes() int64 { return s.core.batch }

// Trim frees the memory that a reader keeps between two epochs for the next one. It may be
// called at any time.
func (r *Reader) Trim() { dropSpare(r.spare) }

// Trim frees the memory that a stream keeps between two epochs for the next one.
func (s *Stream) Trim() { s.core.Trim() }
