package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"shardify/index"
	"shardify/shard/formats"
	"shardify/store"
)

// DefaultGCAge is the age from which on GC takes something for left over: longer than
// anybody writes one file.
const DefaultGCAge = 24 * time.Hour

// The kinds of what GC finds.
const (
	// GCWrite is what a write that was not committed has left: a temporary file, or an
	// upload in parts.
	GCWrite = "unfinished write"
	// GCJournal is a file of a finished data set's journal, GCLock a lock without a run.
	GCJournal = "journal"
	GCLock    = "lock"
	// GCUnfinished is a file of a data set that was begun and can be finished by the
	// command that began it.
	GCUnfinished = "unfinished data set"
	// GCStray is a shard, an index or seek points that the manifest does not name.
	GCStray = "stray"
)

// GCOptions say what GC looks for. The zero value is a good one.
type GCOptions struct {
	// OlderThan is how long nobody may have written to it. 0: DefaultGCAge. What is
	// younger is left alone.
	OlderThan time.Duration `json:"older_than,omitempty"`
	// Unfinished takes the files of a data set that was not finished, too, and Strays the
	// shards, indexes and seek points that the manifest does not name. Both may be
	// somebody's work: without them they are reported, and stay.
	Unfinished bool `json:"unfinished,omitempty"`
	Strays     bool `json:"strays,omitempty"`
	// Delete removes what is reported.
	Delete bool `json:"delete,omitempty"`
}

// Validate reports every fault of o.
func (o GCOptions) Validate() error {
	if o.OlderThan < 0 {
		return fmt.Errorf("older_than: %v is negative", o.OlderThan)
	}
	return nil
}

// Leftover is something that GC has found.
type Leftover struct {
	Kind string `json:"kind"`
	// Name is the file's name in DST; of an unfinished write, that which it would have.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Written is when somebody last wrote to it; zero if the store does not know, which
	// counts as old.
	Written time.Time `json:"written"`
	// Needs is the field of GCOptions without which it is not removed; "" if it is.
	Needs string `json:"needs,omitempty"`

	write *store.Unfinished
}

// same says that m is the same thing, to which nobody has written since.
func (l Leftover) same(m Leftover) bool {
	id := func(l Leftover) string {
		if l.write == nil {
			return ""
		}
		return l.write.ID
	}
	return l.Kind == m.Kind && l.Name == m.Name && l.Bytes == m.Bytes && l.Written.Equal(m.Written) && id(l) == id(m)
}

// GCResult is what there was.
type GCResult struct {
	// Found counts what is old enough, Bytes its size; Removed what was removed; Kept
	// what an option would take besides.
	Found   int64 `json:"found"`
	Bytes   int64 `json:"bytes"`
	Removed int64 `json:"removed"`
	Kept    int64 `json:"kept"`
	// Young counts what may be in use.
	Young int64 `json:"young"`
}

// GC finds what killed runs have left in the destination st, and with Delete removes it:
// each is reported, and then removed. Nothing is removed while a run holds a lock there:
// that is store.ErrLocked. A destination that has neither a data set of ours nor a journal
// is ErrForeign, as nothing in it can be told to be ours.
//
// Files that are no shards, indexes or seek points are nobody's leftovers. An error of
// report ends it.
func GC(ctx context.Context, st store.Store, o GCOptions, report func(Leftover) error) (r GCResult, err error) {
	if err := o.Validate(); err != nil {
		return r, err
	}
	if o.OlderThan == 0 {
		o.OlderThan = DefaultGCAge
	}
	all, err := leftovers(ctx, st)
	if err != nil {
		return r, err
	}
	if o.Delete && len(all) > 0 {
		unlock, fault := lockAll(ctx, st)
		if fault != nil {
			return r, fault
		}
		defer func() { err = errors.Join(err, unlock()) }()
		// What a run has done before it ended is no leftover; nothing changes from here on.
		again, fault := leftovers(ctx, st)
		if fault != nil {
			return r, fault
		}
		all = slices.DeleteFunc(all, func(l Leftover) bool {
			return l.Kind != GCLock && !slices.ContainsFunc(again, l.same)
		})
	}
	// What belongs to an unfinished data set is as young as the youngest of it.
	var youngest time.Time
	for i := range all {
		if l := &all[i]; l.Kind == GCUnfinished && l.Written.After(youngest) {
			youngest = l.Written
		}
	}
	limit := time.Now().Add(-o.OlderThan)
	for _, l := range all {
		at := l.Written
		switch l.Kind {
		case GCUnfinished:
			at = youngest
			if !o.Unfinished {
				l.Needs = "unfinished"
			}
		case GCStray:
			if !o.Strays {
				l.Needs = "strays"
			}
		}
		if at.After(limit) {
			r.Young++
			continue
		}
		if l.Needs != "" {
			r.Kept++
		} else {
			r.Found++
			r.Bytes += l.Bytes
		}
		if err := report(l); err != nil {
			return r, err
		}
		if !o.Delete || l.Needs != "" {
			continue
		}
		switch {
		case l.Kind == GCLock: // it is held here, and goes with unlock
		case l.write != nil:
			err = st.(store.Sweeper).Drop(ctx, *l.write)
		default:
			err = st.Remove(ctx, l.Name)
		}
		if err != nil {
			return r, err
		}
		r.Removed++
	}
	return r, nil
}

// lockAll takes every lock that there is, and those for planning and committing, so that
// no run is under way and none begins.
func lockAll(ctx context.Context, st store.Store) (unlock func() error, err error) {
	names := []string{lockPrefix + "commit", lockPrefix + "plan"}
	for info, err := range st.List(ctx, lockPrefix) {
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, info.Name) {
			names = append(names, info.Name)
		}
	}
	var held []func() error
	unlock = func() error {
		var faults []error
		for _, u := range slices.Backward(held) {
			faults = append(faults, u())
		}
		return errors.Join(faults...)
	}
	for _, name := range names {
		u, err := st.Lock(ctx, name, strings.Replace(owner(), "shardify pack", "shardify gc", 1))
		if errors.Is(err, store.ErrLocked) {
			err = fmt.Errorf("%s is being written by another run, nothing was removed: %w", st.URL(), err)
		}
		if err != nil {
			return nil, errors.Join(err, unlock())
		}
		held = append(held, u)
	}
	return unlock, nil
}

// leftovers are all that could be left over, whatever its age, in the order in which it is
// to be removed.
func leftovers(ctx context.Context, st store.Store) ([]Leftover, error) {
	var m *index.Manifest
	data, err := store.ReadAll(ctx, st, index.ManifestName, index.MaxManifest)
	switch {
	case err == nil:
		if m, err = index.DecodeManifest(data); err != nil && !errors.Is(err, index.ErrNotManifest) {
			return nil, fmt.Errorf("%s: %w; what belongs to a damaged data set cannot be told", st.URL(), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	known := map[string]bool{}
	if m != nil {
		for i := range m.Splits {
			for j := range m.Splits[i].Shards {
				sh := &m.Splits[i].Shards[j]
				known[sh.Name], known[sh.Index.Name] = true, true
				if sh.Seek != nil {
					known[sh.Seek.Name] = true
				}
			}
		}
	}
	objects := map[string]store.Info{}
	var all, locks []Leftover
	planned := false
	for info, err := range st.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		objects[info.Name] = info
		planned = planned || info.Name == planName || strings.HasPrefix(info.Name, donePrefix)
		l := Leftover{Name: info.Name, Bytes: info.Size, Written: info.ModTime}
		switch {
		case strings.HasPrefix(info.Name, lockPrefix):
			l.Kind = GCLock
			locks = append(locks, l)
		case m != nil && strings.HasPrefix(info.Name, workDir+"/"):
			l.Kind = GCJournal
			all = append(all, l)
		case m != nil && !known[info.Name] && isPart(info.Name) && !strings.HasPrefix(info.Name, index.QuarantinePrefix):
			l.Kind = GCStray
			all = append(all, l)
		}
	}
	if m == nil && !planned && len(locks) == 0 {
		return nil, fmt.Errorf("%s %w: it has neither a manifest of ours nor a journal, so that nothing in it can be told to be a leftover", st.URL(), ErrForeign)
	}
	if m == nil && planned {
		names, err := runFiles(ctx, st)
		if err != nil {
			return nil, err
		}
		// The plan goes first: a run that is about to go on stops without it.
		for _, name := range append([]string{planName}, names...) {
			if info, ok := objects[name]; ok {
				delete(objects, name)
				all = append(all, Leftover{Kind: GCUnfinished, Name: name, Bytes: info.Size, Written: info.ModTime})
			}
		}
	}
	if s, ok := st.(store.Sweeper); ok {
		for u, err := range s.Unfinished(ctx, "") {
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(u.Name, workDir+"/") || u.Name == index.ManifestName || u.Name == index.BadName ||
				strings.HasPrefix(u.Name, index.QuarantinePrefix) || isPart(u.Name) {
				all = append(all, Leftover{Kind: GCWrite, Name: u.Name, Bytes: u.Size, Written: u.ModTime, write: &u})
			}
		}
	}
	return append(all, locks...), nil
}

// isPart says that a file has the name of a shard, an index or seek points.
func isPart(name string) bool {
	if _, err := formats.OfFile(name); err == nil {
		return true
	}
	ext := path.Ext(name)
	return ext == ".parquet" || ext == ".seek"
}
