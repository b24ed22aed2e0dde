package reader

import (
	"errors"
	"fmt"

	"shardify/index"
)

// StreamState is what a State of a Stream has besides.
type StreamState struct {
	// Buffer is how many bytes the sliding buffer may hold.
	Buffer int64 `json:"buffer"`
	// Rank is that of the batch whose state it is, and Seen a checksum of the keys, the
	// sizes and the order of the samples that this rank has had in the epoch. Where
	// the same rank goes on, it must come to the same.
	Rank int            `json:"rank"`
	Seen index.Checksum `json:"seen,omitempty"`
}

// State returns the place before a batch of an epoch; State(0, 0) is where training
// begins.
func (s *Stream) State(epoch int, batch int64) (State, error) {
	if n, known := s.Len(); epoch < 0 || batch < 0 || known && batch > n {
		return State{}, fmt.Errorf("%w: there is no batch %d of epoch %d", ErrState, batch, epoch)
	} else if known && batch == n {
		epoch, batch = epoch+1, 0
	}
	return s.state(epoch, batch, StreamState{Rank: s.core.config.Rank}), nil
}

func (s *Stream) state(epoch int, batch int64, at StreamState) State {
	at.Buffer = s.buffer
	return State{
		Version: StateVersion, Data: s.core.identity, Sampling: s.core.sampling, Order: s.core.config.Order(),
		Epoch: epoch, Batch: batch, Stream: &at,
	}
}

// behind is the state behind a job.
func (s *Stream) behind(j *job) State {
	if j.ends {
		return s.state(j.plan.epoch+1, 0, StreamState{Rank: j.place.Rank})
	}
	return s.state(j.plan.epoch, j.number+1, *j.place)
}

// CheckState says why the stream cannot go on from a state: nil, or an error that wraps
// ErrState and names all that differs. That the shards are still the same only Epochs
// finds out.
func (s *Stream) CheckState(st State) error {
	switch {
	case st.Version == 0:
		return fmt.Errorf("%w: it is empty; Stream.State(0, 0) is the beginning", ErrState)
	case st.Version != StateVersion:
		return fmt.Errorf("%w: its version is %d, this one reads %d", ErrState, st.Version, StateVersion)
	case st.Stream == nil:
		return fmt.Errorf("%w: it is of a data set with an index, %q, and not of a stream", ErrState, st.Data.Name)
	}
	var faults []error
	differ := func(name string, state, here any) {
		faults = append(faults, fmt.Errorf("%s: the state has %v, the stream %v", name, state, here))
	}
	d, o, order := &s.core.identity, s.core.config.Order(), &st.Order
	if d.Checksum != st.Data.Checksum {
		faults = append(faults, fmt.Errorf("streams: the state is of %d, the first of them %s, here are %d, the first of them %s; their names and order must be the same", st.Data.Shards, st.Data.Name, d.Shards, d.Name))
	}
	if st.Sampling != s.core.sampling {
		differ("sampling", or(st.Sampling, "none"), or(s.core.sampling, "none"))
	}
	if order.Shuffle != o.Shuffle {
		differ("shuffle", order.Shuffle, o.Shuffle)
	}
	if order.Ends != o.Ends {
		differ("ends", order.Ends, o.Ends)
	}
	if order.Seed != o.Seed && o.Shuffle != ShuffleNone {
		differ("seed", order.Seed, o.Seed)
	}
	for _, f := range []struct {
		name        string
		state, here int
		counts      bool
	}{
		{"batch_size", order.BatchSize, o.BatchSize, true}, {"world", order.World, o.World, true},
		{"interleave", order.Interleave, o.Interleave, true}, {"block", order.Block, o.Block, o.Interleave > 1},
		{"window", order.Window, o.Window, o.Shuffle == ShuffleWindow},
	} {
		if f.counts && f.state != f.here {
			differ(f.name, f.state, f.here)
		}
	}
	if st.Stream.Buffer != s.buffer && o.Shuffle == ShuffleWindow {
		differ("window_bytes", st.Stream.Buffer, s.buffer)
	}
	if len(faults) == 0 && (st.Epoch < 0 || st.Batch < 0) {
		faults = append(faults, fmt.Errorf("it stands before batch %d of epoch %d", st.Batch, st.Epoch))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrState, errors.Join(faults...))
}
