package reader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Shuffle says how an epoch is shuffled.
type Shuffle string

const (
	// ShuffleAuto is ShuffleGlobal where the store is local and its shards can be
	// read at any place, ShuffleWindow on other stores, and ShuffleShards where
	// shards can only be read from their start (.gz).
	ShuffleAuto Shuffle = ""
	// ShuffleNone keeps the data set's own order.
	ShuffleNone Shuffle = "none"
	// ShuffleShards permutes the shards and reads each from front to back.
	ShuffleShards Shuffle = "shards"
	// ShuffleWindow permutes the shards, interleaves some of them, and permutes
	// every window of samples.
	ShuffleWindow Shuffle = "window"
	// ShuffleGlobal is one permutation of all samples.
	ShuffleGlobal Shuffle = "global"
)

// Ends says what becomes of the samples that fill no whole global batch at the end
// of an epoch. Every rank gets the same number of batches with each of them.
type Ends string

const (
	// EndsDrop leaves them out: less than one global batch.
	EndsDrop Ends = "drop"
	// EndsPad fills the batch up with samples from the epoch's start.
	EndsPad Ends = "pad"
	// EndsExact makes the last batch smaller: of a rank's share some ranks have one
	// sample less than others, and where there are fewer samples than ranks, some
	// get an empty batch.
	EndsExact Ends = "exact"
)

// Defaults of Order.
const (
	// DefaultLanes is divisible by the world sizes 1, 2, 3, 4, 6, 8, 12 and 24. A
	// lane costs a place of reading, not memory, but a single rank reads at all
	// of them at once, so that it should not be large.
	DefaultLanes = 24
	// DefaultWindow is in samples of the whole data set: 1,024 for each of the
	// default lanes, the size of WebDataset's usual shuffle buffers.
	DefaultWindow = 24576
	// DefaultWindowBytes bounds a Reader's default window, by the mean size of the
	// split's samples, so that a remote store is read ahead in less than a gigabyte. It is 4,900 of ImageNet's photographs.
	DefaultWindowBytes = 512 << 20
	// DefaultInterleave is for ShuffleWindow; a rank that serves one lane still
	// mixes as many shards. ShuffleShards has 1.
	DefaultInterleave = 4
	// DefaultBlock is a read of about 2 MB of ImageNet's photographs, where a disk
	// or an object store reaches most of its rate.
	DefaultBlock = 16
	// DefaultBatchSize is of a rank.
	DefaultBatchSize = 64
)

// Order is all that decides which samples an epoch has and in what order, besides
// the data set and the epoch's number. The zero value, with a Shuffle that is not
// auto, is good.
type Order struct {
	// Shuffle must not be ShuffleAuto.
	Shuffle Shuffle `json:"shuffle"`
	Seed    uint64  `json:"seed"`
	// Window is the number of samples of the whole data set within which
	// ShuffleWindow permutes; each lane has its Lanes-th part.
	Window int `json:"window"`
	// Lanes is the number of sequences into which an epoch is dealt. World must
	// divide it. The order depends on it, and not on World. The default is the
	// least common multiple of DefaultLanes and World.
	Lanes int `json:"lanes"`
	// Interleave is the number of shards that a lane mixes, in blocks of Block
	// samples, under ShuffleShards and ShuffleWindow.
	Interleave int `json:"interleave"`
	Block      int `json:"block"`
	// BatchSize is the number of samples that one rank gets in a batch. A global
	// batch has BatchSize × World.
	BatchSize int  `json:"batch_size"`
	World     int  `json:"world"`
	Ends      Ends `json:"ends"`
}

// withDefaults fills in what is zero.
func (o Order) withDefaults() Order {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.World, 1)
	if o.World > 0 && o.World <= maxWorld {
		def(&o.Lanes, DefaultLanes/gcd(DefaultLanes, o.World)*o.World)
	}
	def(&o.Window, DefaultWindow)
	if o.Shuffle == ShuffleShards {
		def(&o.Interleave, 1)
	}
	def(&o.Interleave, DefaultInterleave)
	def(&o.Block, DefaultBlock)
	def(&o.BatchSize, DefaultBatchSize)
	if o.Ends == "" {
		o.Ends = EndsDrop
	}
	return o
}

// Bounds against nonsense; they keep products within int64.
const (
	maxWorld  = 1 << 20
	maxLanes  = 1 << 24
	maxBatch  = 1 << 24
	maxWindow = 1 << 30
)

// Validate reports every fault of the order at once.
func (o Order) Validate() error {
	o = o.withDefaults()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	choice(&faults, "shuffle", o.Shuffle, ShuffleNone, ShuffleShards, ShuffleWindow, ShuffleGlobal)
	choice(&faults, "ends", o.Ends, EndsDrop, EndsPad, EndsExact)
	between(&faults, "world", o.World, 1, maxWorld)
	between(&faults, "batch_size", o.BatchSize, 1, maxBatch)
	between(&faults, "window", o.Window, 1, maxWindow)
	between(&faults, "interleave", o.Interleave, 1, 1<<16)
	between(&faults, "block", o.Block, 1, 1<<24)
	if o.World >= 1 && o.World <= maxWorld {
		between(&faults, "lanes", o.Lanes, 1, maxLanes)
		if o.Lanes >= 1 && o.Lanes%o.World != 0 {
			fault("world: %d does not divide the %d lanes; worlds that do: %s; or set lanes to a multiple of %d, which changes the order",
				o.World, o.Lanes, divisors(o.Lanes), o.World)
		}
	}
	return errors.Join(faults...)
}

func choice[T ~string](faults *[]error, name string, v T, of ...T) {
	if slices.Contains(of, v) {
		return
	}
	words := make([]string, len(of))
	for i, w := range of {
		words[i] = string(w)
	}
	*faults = append(*faults, fmt.Errorf("%s: %q is none of: %s", name, v, strings.Join(words, ", ")))
}

func between(faults *[]error, name string, v, low, high int) {
	if v < low || v > high {
		*faults = append(*faults, fmt.Errorf("%s: %d is not between %d and %d", name, v, low, high))
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// divisors lists the divisors of n for people; the largest are left out where
// there are many.
func divisors(n int) string {
	var list []string
	for d := 1; d <= n && len(list) < 24; d++ {
		if n%d == 0 {
			list = append(list, fmt.Sprint(d))
		}
		if d == 4096 && n > d {
			return strings.Join(list, ", ") + ", …"
		}
	}
	return strings.Join(list, ", ")
}
