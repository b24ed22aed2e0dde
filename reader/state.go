package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"shardify/index"
)

// StateVersion is the version of State's JSON form.
const StateVersion = 1

// ErrState: a State cannot be resumed here. The error names everything that differs.
var ErrState = errors.New("state does not fit")

// State is a place in a run of epochs: the batches before it have been done. It is
// what a checkpoint keeps of a reader, the same for all ranks, and 400 to 500 bytes
// of JSON (up to 300 more with a sampling, 600 with buckets). [Batch.State] gives the one behind a batch, [Reader.State] any, and
// [Reader.Epochs] goes on from it.
//
// Data, Sampling, Buckets, Chosen and Order are the fingerprint of all that decides which samples come, and
// when. Whatever else a Config says (transforms, workers, memory, what becomes of
// damaged samples) may be another one when reading goes on.
type State struct {
	// Version is StateVersion.
	Version int       `json:"version"`
	Data    DataState `json:"data"`
	// Sampling is the JSON of Config.Sampling, or where that is long, a checksum of
	// it; empty for the zero one.
	Sampling string `json:"sampling,omitempty"`
	// Buckets is the same of Config.Buckets, of what divides the samples.
	Buckets string `json:"buckets,omitempty"`
	// Chosen is the checksum of what these make of the indexes: which samples, how
	// often, in which bucket. It is empty where both are.
	Chosen index.Checksum `json:"chosen,omitempty"`
	Order  Order          `json:"order"`
	// Epoch and Batch are the place: the next batch is number Batch of Epoch. The
	// state behind an epoch's last batch is the beginning of the next epoch.
	Epoch int   `json:"epoch"`
	Batch int64 `json:"batch"`
	// Stream is there in states of a Stream.
	Stream *StreamState `json:"stream,omitempty"`
}

// DataState says of which samples a State speaks.
type DataState struct {
	// Name is the data set's, for people: it may change.
	Name    string `json:"name"`
	Split   string `json:"split"`
	Shards  int    `json:"shards"`
	Samples int64  `json:"samples"`
	// Checksum is that of the names, numbers of samples and checksums of the
	// split's shards, as the manifest lists them.
	Checksum index.Checksum `json:"checksum"`
}

// dataState is the fingerprint of the data sets, whose splits make split.
func dataState(sets []set, split *index.Split) DataState {
	h := index.NewHash()
	var names []string
	for i := range sets {
		names = append(names, sets[i].data.Manifest().Name)
		if i > 0 {
			fmt.Fprintln(h, "the next data set")
		}
		for k := range sets[i].split.Shards {
			sh := &sets[i].split.Shards[k]
			fmt.Fprintf(h, "%q %d %s\n", sh.Name, sh.Samples, sh.Checksum)
		}
	}
	return DataState{
		Name: strings.Join(names, " + "), Split: split.Name, Shards: len(split.Shards), Samples: split.Samples,
		Checksum: index.NewChecksum(h.Sum64()),
	}
}

// UnmarshalJSON reads a state strictly: other versions and names that are not a
// state's are errors that wrap ErrState.
func (s *State) UnmarshalJSON(data []byte) error {
	var head struct {
		Version *int `json:"version"`
	}
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrState, err)
	case head.Version == nil:
		return fmt.Errorf("%w: it has no version: is it the state of a reader?", ErrState)
	case *head.Version > StateVersion:
		return fmt.Errorf("%w: its version is %d, this one reads up to %d; install a newer shardread", ErrState, *head.Version, StateVersion)
	}
	type plain State // without this method
	var p plain
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	*s = State(p)
	return nil
}

// ParseState reads a state from its JSON form. Errors wrap ErrState.
func ParseState(data []byte) (State, error) {
	var s State
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&s); err != nil {
		if !errors.Is(err, ErrState) {
			err = fmt.Errorf("%w: this is no JSON that a reader has written: %w", ErrState, err)
		}
		return State{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return State{}, fmt.Errorf("%w: there is more behind it", ErrState)
	}
	return s, nil
}

// Config fills in what decides the order and is zero in c from the state, so that a
// program that goes on need not be told again. BatchSize becomes what keeps the
// global batch with c's World; where that does not come out even it stays zero.
func (s State) Config(c Config) Config {
	o := &s.Order
	if !strings.Contains(s.Data.Split, "+") { // of several data sets
		c.Split = or(c.Split, s.Data.Split)
	}
	if c.Sampling.isZero() && strings.HasPrefix(s.Sampling, "{") {
		// One that is no sampling leaves it as it is, and then does not fit.
		var sampling Sampling
		if json.Unmarshal([]byte(s.Sampling), &sampling) == nil {
			c.Sampling = sampling
		}
	}
	if c.Buckets.isZero() && strings.HasPrefix(s.Buckets, "{") {
		var buckets Buckets
		if json.Unmarshal([]byte(s.Buckets), &buckets) == nil {
			c.Buckets = buckets
		}
	}
	c.Seed = or(c.Seed, o.Seed)
	c.Shuffle = or(c.Shuffle, o.Shuffle)
	c.Ends = or(c.Ends, o.Ends)
	c.Lanes = or(c.Lanes, o.Lanes)
	if s.Stream != nil {
		c.WindowBytes, c.World = or(c.WindowBytes, s.Stream.Buffer), or(c.World, o.World)
	}
	if c.WindowBytes == 0 || s.Stream != nil { // of which a stream has both
		c.Window = or(c.Window, o.Window)
	}
	c.Interleave = or(c.Interleave, o.Interleave)
	c.Block = or(c.Block, o.Block)
	if world, g := or(c.World, 1), o.globalBatch(); world > 0 && g%int64(world) == 0 {
		c.BatchSize = or(c.BatchSize, int(g/int64(world)))
	}
	return c
}

// State returns the place before a batch of an epoch, 0 ≤ batch ≤ Len: State(0, 0) is
// where training begins.
func (r *Reader) State(epoch int, batch int64) (State, error) {
	n := r.base.Batches()
	switch {
	case epoch < 0 || batch < 0 || batch > n:
		return State{}, fmt.Errorf("%w: batch %d of epoch %d: an epoch has %d batches", ErrState, batch, epoch, n)
	case batch == n:
		epoch, batch = epoch+1, 0
	}
	return State{Version: StateVersion, Data: r.identity, Sampling: r.sampling, Buckets: r.buckets, Chosen: r.chosen.checksum(), Order: r.base.order, Epoch: epoch, Batch: batch}, nil
}

// CheckState says why the reader cannot go on from a state: nil, or an error that
// wraps ErrState and names all that differs.
func (r *Reader) CheckState(s State) error {
	if s.Version == 0 {
		return fmt.Errorf("%w: it is empty; Reader.State(0, 0) is the beginning", ErrState)
	}
	if s.Version != StateVersion {
		return fmt.Errorf("%w: its version is %d, this one reads %d", ErrState, s.Version, StateVersion)
	}
	if s.Stream != nil {
		return fmt.Errorf("%w: it is of a stream, %s, and not of a data set with an index", ErrState, s.Data.Name)
	}
	faults := append(r.identity.differences(s.Data), r.base.order.differences(s.Order)...)
	if s.Sampling != r.sampling {
		faults = append(faults, differingPrints("sampling", s.Sampling, r.sampling))
	} else if r.chosen != nil && r.chosen.weighted && s.Order.Seed != r.config.Seed && r.config.Shuffle == ShuffleNone {
		faults = append(faults, fmt.Errorf("seed: the state has %d, the reader %d, and weights are drawn by it", s.Order.Seed, r.config.Seed))
	}
	if s.Buckets != r.buckets {
		faults = append(faults, differingPrints("buckets", s.Buckets, r.buckets))
	}
	if s.Buckets == r.buckets && s.Sampling == r.sampling && len(faults) == 0 && s.Chosen != r.chosen.checksum() {
		faults = append(faults, errors.New("data: the shards are those of the state, but by their indexes sampling and buckets choose other samples: were labels or fields changed?"))
	}
	if len(faults) == 0 {
		if n := r.base.Batches(); s.Epoch < 0 || s.Batch < 0 || s.Batch >= n {
			faults = append(faults, fmt.Errorf("it stands before batch %d of epoch %d, where an epoch has the batches 0 to %d", s.Batch, s.Epoch, n-1))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrState, errors.Join(faults...))
}

// differences lists in what a state's data set is another one than d.
func (d *DataState) differences(s DataState) (faults []error) {
	differ := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if d.Split != s.Split {
		differ("split: the state has %q, the reader %q", s.Split, d.Split)
	}
	switch {
	case d.Shards != s.Shards || d.Samples != s.Samples:
		differ("data: the state is of %d samples in %d shards (%q), the reader's data set %q has %d in %d", s.Samples, s.Shards, s.Name, d.Name, d.Samples, d.Shards)
	case d.Checksum != s.Checksum:
		differ("data: the state is of other shards (%q, %s) than the reader's (%q, %s): was the data set packed again?", s.Name, s.Checksum, d.Name, d.Checksum)
	}
	return faults
}

// globalBatch is BatchSize × World.
func (o *Order) globalBatch() int64 { return int64(o.BatchSize) * int64(o.World) }

// differences lists in what the order of a state is another one than o. Settings that
// decide nothing under o's Shuffle may differ, and World, as long as the global
// batches stay the same.
func (o *Order) differences(s Order) (faults []error) {
	differ := func(name string, state, reader any) {
		faults = append(faults, fmt.Errorf("%s: the state has %v, the reader %v", name, state, reader))
	}
	if o.Shuffle != s.Shuffle {
		differ("shuffle", s.Shuffle, o.Shuffle)
	}
	if o.Ends != s.Ends {
		differ("ends", s.Ends, o.Ends)
	}
	// Their product does not overflow for orders that are valid.
	if s.BatchSize < 1 || s.BatchSize > maxBatch || s.World < 1 || s.World > maxWorld || o.globalBatch() != s.globalBatch() {
		differ("batch_size × world", fmt.Sprintf("%d × %d", s.BatchSize, s.World), fmt.Sprintf("%d × %d; the product must stay", o.BatchSize, o.World))
	}
	if o.Shuffle == ShuffleNone {
		return faults
	}
	if o.Seed != s.Seed {
		differ("seed", s.Seed, o.Seed)
	}
	if o.Shuffle == ShuffleGlobal {
		return faults
	}
	for _, f := range []struct {
		name          string
		state, reader int
	}{{"lanes", s.Lanes, o.Lanes}, {"interleave", s.Interleave, o.Interleave}, {"block", s.Block, o.Block}} {
		if f.state != f.reader {
			differ(f.name, f.state, f.reader)
		}
	}
	if o.Shuffle == ShuffleWindow && o.Window != s.Window {
		differ("window", s.Window, o.Window)
	}
	return faults
}

// State is the place behind the batch: Epochs goes on with those that come after it, which
// may be those of the next epoch. A batch that Reader.Read has made has none: its State is
// empty.
func (b *Batch) State() State {
	j := b.use()
	r := j.pass.reader
	if j.pass.requests != nil {
		return State{}
	}
	if r.stream != nil {
		return r.stream.behind(j)
	}
	s := State{Version: StateVersion, Data: r.identity, Sampling: r.sampling, Buckets: r.buckets, Chosen: r.chosen.checksum(), Order: r.base.order, Epoch: j.plan.epoch, Batch: j.number + 1}
	if s.Batch == r.base.Batches() {
		s.Epoch, s.Batch = s.Epoch+1, 0
	}
	return s
}
