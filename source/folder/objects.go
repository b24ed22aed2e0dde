package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"shardify/source"
	"shardify/source/internal/pass"
	"shardify/store"
)

// objectWorkers is how many lists of a store are read at once at least: a thousand names
// come with each answer, after 100 ms or so.
const objectWorkers = 16

// OpenStore returns the source of all objects of a store, as Open does of the files of a
// folder: a slash in an object's name is a folder's. It lists the root's folders to find
// the layout, which takes no request where the layout is "flat".
//
// A pass lists the root first, in the layout "splits" the splits, too, and then the
// folders that it has found there, several at once: a bucket lists some ten thousand
// objects a second in each. So objects that all lie in one folder are listed one page
// after the other.
//
// An object is known again by its version (a bucket's ETag). To read it takes one request.
// One that may not be read ends the reading, as it is a matter of permissions, not of this
// object. Give a store that tries again (store/retry).
func OpenStore(ctx context.Context, st store.Store, cfg Config) (*Folder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", st.URL(), err)
	}
	f := &Folder{name: st.URL(), st: st, cfg: cfg}
	if err := f.findLayout(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// ListStore is List for a store. A name is an object's, or the store's URL and that.
func ListStore(ctx context.Context, st store.Store, names iter.Seq2[string, error], cfg Config) (*Folder, error) {
	f, err := OpenStore(ctx, st, cfg)
	if err != nil {
		return nil, err
	}
	f.names = names
	return f, nil
}

// subprefixes is subfolders for a store.
func (f *Folder) subprefixes(ctx context.Context, rel string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for info, err := range store.ListFrom(ctx, f.st, rel, "", true) {
			if err != nil {
				yield("", err)
				return
			}
			name, isFolder := strings.CutSuffix(info.Name, "/")
			if !isFolder || hidden(name[len(rel):]) || f.excludes(name) {
				continue
			}
			if !yield(name[len(rel):], nil) {
				return
			}
		}
	}
}

// stretch is a part of a list: the objects below the folders of parent that come after
// one's name, up to all of the folder last.
type stretch struct{ parent, after, last string }

// objectListers returns the goroutines of a pass over a store: one that finds folders, and
// those that list them.
func (f *Folder) objectListers() []func(*pass.Pass) {
	workers := max(f.cfg.workers(), objectWorkers)
	todo := make(chan stretch)
	work := make([]func(*pass.Pass), 1, workers+1)
	work[0] = func(p *pass.Pass) {
		defer close(todo)
		if err := f.scout(p, todo, workers); err != nil {
			p.Send([]pass.Item{{Err: err}})
		}
	}
	for range workers {
		work = append(work, func(p *pass.Pass) {
			for s := range todo {
				if err := f.listStretch(p, s); err != nil {
					p.Send([]pass.Item{{Err: err}})
					return
				}
			}
		})
	}
	return work
}

// scout lists the objects of the root, and of the splits, and deals out their folders.
func (f *Folder) scout(p *pass.Pass, todo chan<- stretch, workers int) error {
	parents := []string{""}
	for i := 0; i < len(parents); i++ {
		parent := parents[i]
		inSplit := parent != ""
		var folders []string
		batch := p.Batch()
		for info, err := range store.ListFrom(p.Context(), f.st, parent, "", true) {
			if err != nil {
				return err
			}
			name, isFolder := strings.CutSuffix(info.Name, "/")
			switch {
			case !isFolder:
				batch = f.object(batch, info)
			case hidden(name[len(parent):]) || f.excludes(name):
			case f.layout == Splits && !inSplit:
				parents = append(parents, info.Name)
			default:
				if f.layout == Classes || inSplit && f.folders[strings.TrimSuffix(parent, "/")] {
					batch = append(batch, pass.Item{Entry: source.Entry{Class: name[len(parent):]}})
				}
				folders = append(folders, info.Name)
			}
			if len(batch) >= listBatch {
				if !p.Send(batch) {
					return nil
				}
				batch = p.Batch()
			}
		}
		if !p.Send(batch) {
			return nil
		}
		// Neighbours together, so that many small folders take few requests, and so few
		// that nobody is long alone with the last ones.
		size := max(1, len(folders)/(8*workers))
		for len(folders) > 0 {
			n := min(size, len(folders))
			select {
			case todo <- stretch{parent, folders[0], folders[n-1]}:
			case <-p.Context().Done():
				return nil
			}
			folders = folders[n:]
		}
	}
	return nil
}

func (f *Folder) listStretch(p *pass.Pass, s stretch) error {
	// What its names have in common spares the pages that come behind.
	prefix := s.parent
	if s.after == s.last {
		prefix = s.last
	}
	batch := p.Batch()
	for info, err := range store.ListFrom(p.Context(), f.st, prefix, s.after, false) {
		if err != nil {
			return err
		}
		if info.Name > s.last && !strings.HasPrefix(info.Name, s.last) {
			break
		}
		if !strings.Contains(info.Name[len(s.parent):], "/") {
			continue // the scout has it
		}
		if batch = f.object(batch, info); len(batch) >= listBatch {
			if !p.Send(batch) {
				return nil
			}
			batch = p.Batch()
		}
	}
	p.Send(batch)
	return nil
}

// object appends the entry of an object, unless it is left out.
func (f *Folder) object(batch []pass.Item, info store.Info) []pass.Item {
	rel := info.Name
	for at := 0; ; {
		end := strings.IndexByte(rel[at:], '/')
		if end < 0 {
			if rel[at] == '.' {
				return batch
			}
			break
		}
		if hidden(rel[at:at+end]) || f.excludes(rel[:at+end]) {
			return batch
		}
		at += end + 1
	}
	if !f.lists(rel) {
		return batch
	}
	e := source.Entry{Path: rel, Location: source.Location{Name: rel, Size: info.Size, ModTime: VersionOf(info)}}
	split, class, key, err := f.place(rel)
	if err != nil {
		return append(batch, pass.Item{Err: err})
	}
	e.Split, e.Class = split, class
	if key > 0 {
		e.KeyPath = rel[key:]
	}
	return append(batch, pass.Item{Entry: e})
}

// VersionOf is a number for what a store says tells an object's contents apart: its
// version, or else its time; 0 if it has neither.
func VersionOf(info store.Info) int64 {
	switch {
	case info.Version != "":
		return int64(xxhash.Sum64String(info.Version) | 1)
	case info.ModTime.IsZero():
		return 0
	}
	return info.ModTime.UnixNano()
}

// StatObject is Stat for an object of a store, whose name is that at e's location.
func StatObject(ctx context.Context, st store.Store, e *source.Entry) error {
	info, err := store.Stat(ctx, st, e.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, store.ErrName):
		return &source.EntryError{Path: e.Path, Err: err}
	case err != nil:
		return err
	}
	e.Size, e.ModTime = info.Size, VersionOf(info)
	return nil
}

// ReadObject is Read for an object of a store, whose name is that at loc.
func ReadObject(ctx context.Context, st store.Store, loc source.Location, buf []byte) ([]byte, error) {
	at := loc
	at.Name = st.URL() + "/" + loc.Name // for people
	at.Offset = 0
	return ReadObjectPart(ctx, st, loc.Name, loc.Size, at, buf)
}

// ReadObjectPart is ReadPart for the object called name, of so many bytes; at's name
// is for people.
func ReadObjectPart(ctx context.Context, st store.Store, name string, size int64, at source.Location, buf []byte) ([]byte, error) {
	data, err := room(at, buf)
	if err != nil {
		return nil, err
	}
	if at.Offset > size || at.Size > size-at.Offset {
		return nil, changed(at, "it ends at %d", size)
	}
	o, err := st.Open(store.WithSize(ctx, size), name)
	if err != nil {
		return nil, ObjectError(at, err)
	}
	defer o.Close()
	if is := o.Info().Size; is != size {
		return nil, changed(at, "its size is %d bytes, not %d", is, size)
	}
	if len(data) == 0 {
		return data, nil
	}
	if n, err := o.ReadAt(ctx, data, at.Offset); n < len(data) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, changed(at, "it ends after %d bytes, not %d", at.Offset+int64(n), size)
		}
		return nil, ObjectError(at, err)
	}
	if v := VersionOf(o.Info()); at.ModTime != 0 && v != at.ModTime {
		return nil, changed(at, "it was written since")
	}
	return data, nil
}

// ObjectError is ReadError for an error of a store: of the entry at that location, whose
// name is for people, if the object has changed or gone.
func ObjectError(at source.Location, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return changed(at, "vanished: %w", err)
	case errors.Is(err, store.ErrChanged):
		return changed(at, "%w", err)
	}
	return err
}

const (
	// worthAList is how many entries a page of a list must tell of to take the place of
	// asking for each: with Amazon, a list costs twelve times as much.
	worthAList = 16
	// listPage is how many objects come with a page.
	listPage = 1000
)

// Lister fills in what entries lack by listing the objects around them, where that takes
// fewer requests than asking for each. It is not for concurrent use.
type Lister struct {
	st  store.Store
	off bool // it does not list
}

// NewLister returns one for objects of st.
func NewLister(st store.Store) *Lister {
	_, ok := st.(store.Lister)
	return &Lister{st: st, off: !ok}
}

// Fill sets size and version of entries whose Size is negative, by their names, as
// StatObject does. Those that stay negative are to be asked for. It may change the entries'
// order.
func (l *Lister) Fill(ctx context.Context, entries []*source.Entry) {
	slices.SortFunc(entries, func(a, b *source.Entry) int { return strings.Compare(a.Name, b.Name) })
	skip := worthAList
	for i := 0; i < len(entries) && !l.off; {
		name := entries[i].Name
		if store.CheckName(name) != nil {
			i++
			continue
		}
		_, last := utf8.DecodeLastRuneInString(name)
		hits, at, seen := 0, i, 0
		for info, err := range store.ListFrom(ctx, l.st, "", name[:len(name)-last], false) {
			if err != nil {
				// A bucket that may be read need not be listed.
				l.off = true
				return
			}
			for at < len(entries) && entries[at].Name <= info.Name {
				if e := entries[at]; e.Name == info.Name && e.Size < 0 {
					e.Size, e.ModTime = info.Size, VersionOf(info)
					hits++
				}
				at++
			}
			if seen++; seen == listPage || at == len(entries) {
				break
			}
		}
		switch {
		case seen < listPage:
			return // it was all that there is
		case hits >= worthAList:
			i, skip = max(at, i+1), worthAList
		default:
			i = max(at, i+skip)
			skip *= 2
		}
	}
}
