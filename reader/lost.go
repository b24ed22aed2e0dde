package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"shardify/dataset"
	"shardify/index"
	"shardify/shard"
	"shardify/store"
	"shardify/store/cache"
)

// ErrReplaced: the data set, or a shard of it, is another one than it was when it was
// opened. Its samples are not damaged, they are others; so this ends a pass under every
// OnBad.
var ErrReplaced = errors.New("the data set has been replaced since it was opened: open it again, and begin a new run")

// lostError says that a shard is not there, or only a part of it.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// verdicts are what has been found out in a pass about shards that could not be read.
type verdicts struct {
	mu    sync.Mutex
	list  map[int32]*verdict
	first time.Time // when the first of them was asked for
}

type verdict struct {
	mu     sync.Mutex
	looked bool  // the shard was there, and as large as it should be
	err    error // a *lostError, or ErrReplaced
}

func (v *verdicts) of(shard int32) *verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list == nil {
		v.list, v.first = map[int32]*verdict{}, time.Now()
	}
	if v.list[shard] == nil {
		v.list[shard] = new(verdict)
	}
	return v.list[shard]
}

// forget drops verdicts of which the first is older than some time.
func (v *verdicts) forget(after time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list != nil && time.Since(v.first) > after {
		v.list = nil
	}
}

// known is what is wrong with a shard as a whole, so far as anybody has looked.
func (v *verdicts) known(shard int32) error {
	v.mu.Lock()
	found := v.list[shard]
	v.mu.Unlock()
	if found == nil {
		return nil
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	return found.err
}

// damaged says that err means bytes of a shard that are not what they should be; not
// that it is lost.
func damaged(err error) bool {
	if err == nil {
		return false
	}
	var lost *lostError
	var format *shard.FormatError
	return !errors.As(err, &lost) && (errors.Is(err, shard.ErrChecksum) || errors.Is(err, shard.ErrTruncated) || errors.As(err, &format))
}

// gone says that err may mean a file that is not there, or not all of it, or another.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, dataset.ErrMismatch) || errors.Is(err, cache.ErrChanged) || errors.Is(err, store.ErrChanged) || errors.Is(err, io.ErrUnexpectedEOF)
}

// atFault says what err, of reading a field of a sample, comes from: fault makes an
// error of the sample of it where the data is at fault. Anything else ends the pass.
func (p *pass) atFault(number int32, field string, offset int64, err error, fault func(field string, offset int64, err error) error) error {
	var lost *lostError
	if errors.As(err, &lost) {
		return fault("", -1, lost)
	}
	if p.ctx.Err() != nil {
		return err
	}
	if !gone(err) && !damaged(err) {
		return err
	}
	v := p.verdicts.of(number)
	v.mu.Lock()
	if v.err == nil && (gone(err) || !v.looked) {
		v.err = p.reader.inspect(p.ctx, int(number))
		v.looked = true
	}
	whole := v.err
	v.mu.Unlock()
	switch {
	case errors.As(whole, &lost):
		return fault("", -1, lost)
	case whole != nil:
		return whole
	case damaged(err):
		return fault(field, offset, err)
	case errors.Is(err, fs.ErrNotExist): // it has come back since
		return fault("", -1, &lostError{fmt.Errorf("the shard was missing: %w", err)})
	}
	return err
}

// inspect says what is wrong with a shard as a whole: a *lostError, ErrReplaced, or
// what kept it from looking; nil: nothing that shows from outside.
func (r *Reader) inspect(ctx context.Context, number int) error {
	set, sh := r.setOf(number), &r.split.Shards[number]
	path := r.shardPath(int32(number))
	known, err := set.replaced(ctx)
	if err != nil {
		return err
	}
	// Not through the cache, which may have it still.
	o, err := set.retried.Open(ctx, sh.Name)
	if errors.Is(err, fs.ErrNotExist) {
		if !known {
			return fmt.Errorf("shard %s: %w; and the manifest is not there, too: is the disk mounted?", path, err)
		}
		return &lostError{fmt.Errorf("the shard is missing: %w", err)}
	}
	if err != nil {
		return fmt.Errorf("shard %s: %w", path, err)
	}
	defer o.Close()
	switch size := o.Info().Size; {
	case size < sh.Bytes:
		return &lostError{fmt.Errorf("the shard is cut: %w: it has %d bytes of %d", shard.ErrTruncated, size, sh.Bytes)}
	case size > sh.Bytes:
		return fmt.Errorf("shard %s: %w: it has %d bytes, the manifest says %d", path, ErrReplaced, size, sh.Bytes)
	}
	return nil
}

// replaced compares the manifest with that in the store, and is ErrReplaced where
// that speaks of other shards. known: there is one.
func (s *set) replaced(ctx context.Context) (known bool, err error) {
	data, err := store.ReadAll(ctx, s.retried, index.ManifestName, index.MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	m, err := index.DecodeManifest(data)
	if err != nil {
		return false, fmt.Errorf("%s/%s: %w", s.data.URL(), index.ManifestName, err)
	}
	now, err := m.Split(s.split.Name)
	if err == nil && checksumOf(now) == checksumOf(s.split) {
		return true, nil
	}
	return false, fmt.Errorf("%s: %w: its manifest has other shards now", s.data.URL(), ErrReplaced)
}

// checksumOf is a fingerprint of a split's shards and indexes.
func checksumOf(s *index.Split) index.Checksum {
	h := index.NewHash()
	for i := range s.Shards {
		sh := &s.Shards[i]
		fmt.Fprintf(h, "%q %s %q %s\n", sh.Name, sh.Checksum, sh.Index.Name, sh.Index.Checksum)
	}
	return index.NewChecksum(h.Sum64())
}
