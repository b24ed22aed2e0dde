package reader

// The order of a Stream, as far as it can be told without reading: which shards a rank
// reads, one after the other, and which place of the sliding buffer is emptied next.

// shardList is the sequence of shards that a rank reads in an epoch, round by round.
type shardList struct {
	order Order
	epoch int
	rank  int
	n     int64 // shards
	// endless: when all have been read they are read again, in another order.
	endless bool

	round, at int64
	perm      permutation
}

func newShardList(o Order, epoch, rank, shards int, endless bool) *shardList {
	l := &shardList{order: o, epoch: epoch, rank: rank, n: int64(shards), endless: endless}
	l.begin()
	return l
}

// dealt says that each rank has shards of its own; otherwise all read all of them.
func (l *shardList) dealt() bool { return l.n >= int64(l.order.World) }

// begin begins a round.
func (l *shardList) begin() {
	l.at = 0
	if l.dealt() {
		l.at = int64(l.rank)
	}
	l.perm = newPermutation(l.n, hashKey(l.order.Seed, uint64(l.epoch), purposeStream, uint64(l.round)))
}

// listed is a shard in the sequence, and the round that it is of.
type listed struct {
	shard int32
	round int64
}

// next is the next shard; nil where there is none.
func (l *shardList) next() *listed {
	if l.at >= l.n {
		if !l.endless {
			return nil
		}
		l.round++
		l.begin()
	}
	at := l.at
	if l.at++; l.dealt() {
		l.at += int64(l.order.World) - 1
	}
	if l.order.Shuffle == ShuffleNone {
		return &listed{int32(at), l.round}
	}
	return &listed{int32(l.perm.at(at)), l.round}
}

// slide is the place of the buffer, of n places, that is emptied as the i-th of a rank
// in an epoch.
func slide(o Order, epoch, rank int, i int64, n int) int {
	return int(hashKey(o.Seed, uint64(epoch), purposeSlide, uint64(rank), uint64(i)) % uint64(n))
}

// cost is what a sample of n bytes, headers and all, counts for in the sliding buffer:
// no less than the blocks of memory that hold it.
func cost(n int64) int64 { return n + n/8 + 4096 }
