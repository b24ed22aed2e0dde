package dataset

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"shardify/dataset/where"
	"shardify/index"
	"shardify/internal/nearest"
)

// Selection says which samples of a data set are meant. The zero value means all.
type Selection struct {
	// Split limits it to one split; empty means all.
	Split string `json:"split,omitempty"`
	// Label limits it to one class: a class name, or where no class has that name,
	// a class number.
	Label string `json:"label,omitempty"`
	// Where is a condition on the columns of the index, in the language of package
	// where.
	Where string `json:"where,omitempty"`
	// From leaves out the samples whose Place is smaller. The indexes of shards that
	// have no others are not read.
	From int64 `json:"from,omitempty"`
}

// Selected is a sample that was asked for.
type Selected struct {
	Split *index.Split
	Shard *index.Shard
	// Number is the sample's place in its shard, and Sample in its split, both from 0.
	Number int
	Sample int64
	// Place is the sample's place in the split that the selection names, or in all of
	// them one after the other, from 0, whether those before it are meant or not.
	Place int64
	// Row is the sample's row in the shard's index. It is the caller's.
	Row *index.Row
}

// TableRow is the sample as a row of a table of several shards.
func (s *Selected) TableRow() index.TableRow {
	return index.TableRow{Split: s.Split.Name, Shard: s.Shard.Name, Number: int64(s.Number), Sample: s.Sample, Row: *s.Row}
}

// filter is a Selection made ready.
type filter struct {
	label     *int64
	className string
	where     *where.Filter
}

// match says whether a row is meant.
func (f *filter) match(row *index.Row) bool {
	switch {
	case f.label != nil && (row.Label == nil || *row.Label != *f.label):
		return false
	case f.className != "" && row.LabelName != f.className:
		return false
	}
	return f.where == nil || f.where.Match(row)
}

// Fields returns the names of all fields that the data set has, sorted.
func (d *Dataset) Fields() []string {
	var all FieldStats
	for i := range d.manifest.Splits {
		for j := range d.manifest.Splits[i].Shards {
			all.Merge(d.manifest.Splits[i].Shards[j].Fields)
		}
	}
	names := make([]string, len(all.fields))
	for i := range all.fields {
		names[i] = all.fields[i].Name
	}
	return names
}

// filter checks a selection against the data set.
func (d *Dataset) filter(s Selection) (*filter, error) {
	f := new(filter)
	if s.Label != "" {
		if at := slices.Index(d.manifest.Classes, s.Label); at >= 0 {
			f.className = s.Label
		} else if n, err := strconv.ParseInt(s.Label, 10, 64); err == nil {
			if classes := len(d.manifest.Classes); classes > 0 && (n < 0 || n >= int64(classes)) {
				return nil, fmt.Errorf("no class number %d: the data set has the classes 0 to %d", n, classes-1)
			}
			f.label = &n
		} else {
			hint := "; `shardify info` lists the classes"
			if n := nearest.Name(s.Label, d.manifest.Classes); n != "" {
				hint = fmt.Sprintf("; did you mean %q?", n)
			} else if len(d.manifest.Classes) == 0 {
				hint = ": the data set has only class numbers"
			}
			return nil, fmt.Errorf("no class %q%s", s.Label, hint)
		}
	}
	if s.Where != "" {
		var err error
		if f.where, err = where.Parse(s.Where, d.Fields()); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Check reports what is wrong with a selection: a split, a class or a column that
// the data set does not have.
func (d *Dataset) Check(s Selection) error {
	if _, err := d.Shards(s.Split); err != nil {
		return err
	}
	_, err := d.filter(s)
	return err
}

// Select yields the samples that are meant, in the manifest's order of shards and
// the shards' of samples. It holds the indexes of a few shards at a time, which are
// read ahead.
func (d *Dataset) Select(ctx context.Context, s Selection) iter.Seq2[Selected, error] {
	return func(yield func(Selected, error) bool) {
		f, err := d.filter(s)
		if err != nil {
			yield(Selected{}, err)
			return
		}
		for t, err := range readTables(ctx, d, s.Split, s.From, d.Rows) {
			if err != nil {
				yield(Selected{}, err)
				return
			}
			for i := int(max(0, s.From-t.place)); i < len(t.rows); i++ {
				if f.match(&t.rows[i]) && !yield(t.selected(i, &t.rows[i]), nil) {
					return
				}
			}
		}
	}
}

// table is what was read of the index of a shard.
type table[T any] struct {
	split *index.Split
	shard *index.Shard
	// sample and place are those of the shard's first sample.
	sample, place int64
	rows          []T
}

// selected is a sample of the shard.
func (t *table[T]) selected(number int, row *index.Row) Selected {
	n := int64(number)
	return Selected{t.split, t.shard, number, t.sample + n, t.place + n, row}
}

// readTables reads the index of one shard after the other, some ahead in parallel,
// and yields them in the manifest's order, but for those whose samples all have a place before
// from.
func readTables[T any](ctx context.Context, d *Dataset, split string, from int64, read func(context.Context, *index.Shard) ([]T, error)) iter.Seq2[table[T], error] {
	type result struct {
		table[T]
		err error
	}
	return func(yield func(table[T], error) bool) {
		if _, err := d.Shards(split); err != nil {
			yield(table[T]{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		var readers sync.WaitGroup
		defer readers.Wait()
		defer cancel()
		// Each place in the queue is a shard whose index is being read.
		queue := make(chan chan result, runtime.GOMAXPROCS(0))
		readers.Go(func() {
			defer close(queue)
			next := int64(0) // the place behind the shards so far
			for i := range d.manifest.Splits {
				sp := &d.manifest.Splits[i]
				if split != "" && sp.Name != split {
					continue
				}
				before := next
				for j := range sp.Shards {
					sh := &sp.Shards[j]
					place := next
					if next += sh.Samples; place < from && next <= from {
						continue
					}
					done := make(chan result, 1)
					select {
					case queue <- done:
					case <-ctx.Done():
						return
					}
					readers.Go(func() {
						rows, err := read(ctx, sh)
						done <- result{table[T]{sp, sh, place - before, place, rows}, err}
					})
				}
			}
		})
		for done := range queue {
			r := <-done
			if r.err != nil {
				yield(table[T]{}, r.err)
				return
			}
			if !yield(r.table, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(table[T]{}, err)
		}
	}
}

// A KeyError says that no sample has a key.
type KeyError struct {
	Key string
	// Near are keys that may have been meant, a few at most.
	Near []string
}

func (e *KeyError) Error() string {
	if len(e.Near) == 0 {
		return fmt.Sprintf("no sample %q; `shardify ls` lists the keys", e.Key)
	}
	near := make([]string, len(e.Near))
	for i, k := range e.Near {
		near[i] = strconv.Quote(k)
	}
	return fmt.Sprintf("no sample %q; did you mean %s?", e.Key, strings.Join(near, ", "))
}

// Find returns the samples with that key, usually one; keys of other tools' shards
// need not be unique. Only the keys of the indexes are decoded, and the rows of the
// shards that have it. Where there is none, the error is a *KeyError.
func (d *Dataset) Find(ctx context.Context, split, key string) ([]Selected, error) {
	var found []Selected
	for t, err := range readTables(ctx, d, split, 0, d.keys) {
		if err != nil {
			return nil, err
		}
		var rows []index.Row
		for i, k := range t.rows {
			if k != key {
				continue
			}
			if rows == nil {
				if rows, err = d.Rows(ctx, t.shard); err != nil {
					return nil, err
				}
			}
			found = append(found, t.selected(i, &rows[i]))
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	near, err := d.nearKeys(ctx, split, key)
	if err != nil {
		return nil, err
	}
	return nil, &KeyError{key, near}
}

// keys reads only the keys of a shard.
func (d *Dataset) keys(ctx context.Context, sh *index.Shard) ([]string, error) {
	data, err := d.ReadIndex(ctx, sh)
	if err != nil {
		return nil, err
	}
	keys, err := index.ReadKeys(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(sh.Index.Name), err)
	}
	return keys, nil
}

// nearKeys returns keys that may have been meant by a wrong one: those that end
// like it, with or without a file's ending; or else the one that differs least.
func (d *Dataset) nearKeys(ctx context.Context, split, key string) ([]string, error) {
	const most = 3
	stem := key
	if dot := strings.LastIndexByte(key, '.'); dot > strings.LastIndexByte(key, '/') {
		stem = key[:dot]
	}
	var same, like []string
	for t, err := range readTables(ctx, d, split, 0, d.keys) {
		if err != nil {
			return nil, err
		}
		for _, k := range t.rows {
			if k == stem || strings.HasSuffix(k, "/"+stem) || strings.HasSuffix(stem, "/"+k) {
				same = append(same, k)
			}
		}
		if len(same) >= most {
			return same[:most], nil
		}
		if n := nearest.Name(key, t.rows); n != "" {
			like = append(like, n)
		}
	}
	if len(same) > 0 {
		return same, nil
	}
	if n := nearest.Name(key, like); n != "" {
		return []string{n}, nil
	}
	return nil, nil
}
