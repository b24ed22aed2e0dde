package gpu

import (
	"context"
	"errors"
	"iter"

	"shardify/reader"
)

// PrefetchAll brings the batches of one pass to several GPUs in turn, the first to the first,
// and so on, for a loop that gives each GPU its part of a step. They come out in the pass's
// order, so that the State of each is a place to go on from; Batch.Device says where one is.
// Everything else is as Prefetch says, for each GPU: each has a ring of PrefetchConfig.Depth
// batches, and Device.Stats of its own.
//
// Trainers that run each by itself, each with a GPU, have a reader for each in its place
// (reader.Reader.ForRank), and a Prefetch: then a slow one keeps no other waiting.
func PrefetchAll(ctx context.Context, devices []*Device, batches func(context.Context) iter.Seq2[*reader.Batch, error], c PrefetchConfig) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		if len(devices) == 0 {
			yield(nil, errors.New("gpu: prefetch: no devices"))
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		s := newShares(ctx, cancel, batches, len(devices))
		defer s.stop() // when all rings have ended
		rings, stops := make([]func() (*Batch, error, bool), len(devices)), make([]func(), len(devices))
		for i, d := range devices {
			rings[i], stops[i] = iter.Pull2(Prefetch(ctx, d, s.of(i), c))
		}
		defer func() {
			cancel(nil)
			for _, stop := range stops {
				stop()
			}
		}()
		// A ring that is through leaves the others no batch, but perhaps an error.
		for i, left := 0, len(rings); left > 0; i = (i + 1) % len(rings) {
			b, err, more := rings[i]()
			if !more {
				left--
				continue
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// shares deal one pass out: a token goes round, and who has it takes the next batch.
type shares struct {
	cancel context.CancelCauseFunc
	next   func() (*reader.Batch, error, bool)
	stop   func()
	turns  []chan struct{}
}

func newShares(ctx context.Context, cancel context.CancelCauseFunc, batches func(context.Context) iter.Seq2[*reader.Batch, error], n int) *shares {
	s := &shares{cancel: cancel, turns: make([]chan struct{}, n)}
	s.next, s.stop = iter.Pull2(batches(ctx))
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	s.turns[0] <- struct{}{}
	return s
}

// of is the i-th share, as a pass of its own.
func (s *shares) of(i int) func(context.Context) iter.Seq2[*reader.Batch, error] {
	return func(ctx context.Context) iter.Seq2[*reader.Batch, error] {
		return func(yield func(*reader.Batch, error) bool) {
			// A ring that fails ends the pass and the other rings, by its error: it need not wait
			// for the batch that is being made for it.
			defer context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })()
			for {
				select {
				case <-s.turns[i]:
				case <-ctx.Done():
					return
				}
				b, err, more := s.next()
				s.turns[(i+1)%len(s.turns)] <- struct{}{}
				if !more || !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}
