// Package pass runs one pass over a source: goroutines make batches of entries,
// and the one that ranges over the pass yields them.
package pass

import (
	"context"
	"errors"
	"iter"
	"sync"

	"shardify/source"
)

// Item is an entry or an error of the listing.
type Item struct {
	source.Entry
	Err error
}

// Pass is what the goroutines of a pass share.
type Pass struct {
	ctx  context.Context
	out  chan []Item
	free chan []Item
}

// Run returns a pass made by the given goroutines, which are started when it is
// ranged over. An item whose error is no *source.EntryError ends it; and so does
// the context, with its cause. However the range ends, all of the goroutines have
// returned before it does; each must return soon after Send says false or
// Context is done.
func Run(ctx context.Context, goroutines func() []func(*Pass)) iter.Seq2[source.Entry, error] {
	return func(yield func(source.Entry, error) bool) {
		run, cancel := context.WithCancel(ctx)
		work := goroutines()
		p := &Pass{ctx: run, out: make(chan []Item, len(work)), free: make(chan []Item, 2*len(work))}
		var wg sync.WaitGroup
		for _, f := range work {
			wg.Go(func() { f(p) })
		}
		go func() {
			wg.Wait()
			close(p.out)
		}()
		defer func() {
			cancel()
			for range p.out {
			}
		}()
		for batch := range p.out {
			if run.Err() != nil {
				break
			}
			for i := range batch {
				item := &batch[i]
				if !yield(item.Entry, item.Err) || item.Err != nil && !ofOneEntry(item.Err) {
					return
				}
			}
			clear(batch)
			select {
			case p.free <- batch[:0]:
			default:
			}
		}
		if run.Err() != nil {
			yield(source.Entry{}, context.Cause(run))
		}
	}
}

func ofOneEntry(err error) bool {
	var entry *source.EntryError
	return errors.As(err, &entry)
}

// Context is done when the pass is over.
func (p *Pass) Context() context.Context { return p.ctx }

// Batch returns an empty batch.
func (p *Pass) Batch() []Item {
	select {
	case b := <-p.free:
		return b
	default:
		return nil
	}
}

// Send hands a batch over, which may be empty; false says that the pass is over.
func (p *Pass) Send(b []Item) bool {
	if len(b) == 0 {
		return p.ctx.Err() == nil
	}
	select {
	case p.out <- b:
		return true
	case <-p.ctx.Done():
		return false
	}
}
