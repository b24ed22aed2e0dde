package pack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"shardify/imaging"
	"shardify/source"
)

// The plan says which samples a shard has before any image is converted, and so before it
// is known how large they get. It goes by a few of the images, which are converted while it
// is made: by how much those of one field's name, which mostly are of one format, shrink or
// grow all in all. See docs/decisions/012-converted-images.md.

const (
	// estimateImages is how many images are converted for the plan, at most: of less than
	// 4,096 it is a sixteenth, and estimateLeast at least, so that planning takes little
	// time beside packing. At 256 of them the estimate of a shard's size is off by some 3%
	// where sizes change as unevenly as those of photographs do.
	estimateImages = 256
	estimatePart   = 16
	estimateLeast  = 32
	// estimateMargin is which part of an estimated size is added to it, as it may be too
	// small.
	estimateMargin = 16
)

// pick is an image that is converted for the plan.
type pick struct {
	hash  uint64
	field source.FieldEntry
	fixed bool
}

// picks are the images with the lowest hashes of those that were offered.
type picks struct {
	list    []pick
	offered int64
}

// offer offers an image.
func (p *picks) offer(hash uint64, f *source.FieldEntry, fixed bool) {
	p.offered++
	if len(p.list) == estimateImages && hash >= p.list[len(p.list)-1].hash {
		return
	}
	at, _ := slices.BinarySearchFunc(p.list, hash, func(p pick, hash uint64) int {
		return cmp.Or(cmp.Compare(p.hash, hash), -1) // behind those of the same hash
	})
	if len(p.list) == estimateImages {
		p.list = p.list[:len(p.list)-1]
	}
	p.list = slices.Insert(p.list, at, pick{hash, *f, fixed})
	p.list[at].field.Inline = bytes.Clone(f.Inline)
}

// measure converts the images and sums up, for each name of a field, their sizes before
// and after. Those that cannot be read or are damaged do not count: they are left out of
// the data set, too.
func (p *picks) measure(ctx context.Context, src sources, cfg *Config, env *Env) (map[string]*ratio, error) {
	p.list = p.list[:min(len(p.list), max(estimateLeast, int(min(p.offered/estimatePart, estimateImages))))]
	ratios := map[string]*ratio{}
	sizes := make([]int64, len(p.list))
	// Sorting has the other half.
	files, pixels := semaphore.NewWeighted(env.Memory/4), semaphore.NewWeighted(env.Memory/4)
	work := make(chan int)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(work)
		for i := range p.list {
			select {
			case work <- i:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range env.Workers {
		conv, err := newConverter(cfg.Convert)
		if err != nil {
			return nil, err
		}
		g.Go(func() error {
			for i := range work {
				n, err := p.list[i].measure(ctx, src, conv, files, pixels, env.Memory/4, env.Memory/4/int64(env.Workers))
				if err != nil {
					return err
				}
				sizes[i] = n
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, n := range sizes {
		if n < 0 {
			continue
		}
		f := &p.list[i].field
		r := ratios[f.Name]
		if r == nil {
			r = new(ratio)
			ratios[f.Name] = r
		}
		r.from += f.Size
		r.to += n
	}
	return ratios, nil
}

// measure returns the size of a converted image; -1 where there is none.
func (p *pick) measure(ctx context.Context, src sources, conv *converter, files, pixels *semaphore.Weighted, memory, keep int64) (int64, error) {
	take := func(s *semaphore.Weighted, n int64) (func(), error) {
		n = min(n, memory)
		if err := s.Acquire(ctx, n); err != nil {
			return nil, context.Cause(ctx)
		}
		return func() { s.Release(n) }, nil
	}
	done, err := take(files, p.field.Size)
	if err != nil {
		return 0, err
	}
	defer done()
	data := p.field.Inline
	if p.field.Location.Name != "" {
		data, err = src[p.field.Source].Read(ctx, p.field.Location, make([]byte, 0, p.field.Size))
		var fault *source.EntryError
		switch {
		case err == nil:
		case errors.As(err, &fault) && !errors.Is(err, source.ErrChanged):
			return -1, nil
		default:
			return 0, err
		}
	}
	info, err := imaging.Probe(data)
	if err != nil {
		return -1, nil
	}
	it := conv.cfg.intend(info, p.fixed)
	if it.action == actKeep {
		return int64(len(data)), nil
	}
	release, err := take(pixels, it.memory())
	if err != nil {
		return 0, err
	}
	defer release()
	out, err := conv.convert(&it, data, func(n int) []byte { return make([]byte, 0, n) })
	conv.shrink(keep)
	switch {
	case err != nil:
		return -1, nil
	case it.action == actKeep:
		return int64(len(data)), nil
	}
	return int64(len(out)), nil
}
