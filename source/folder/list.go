package folder

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"shardify/source"
	"shardify/source/internal/pass"
	"shardify/store"
)

// List returns the source of those files below root that names yields; [Names] and
// [NamesFile] read them from a list. It selects from what Open would list, and
// nothing else changes by it: the layout is found, and classes are declared, from
// the root's folders, so that several lists of one folder give a class the same
// number. Hidden files are listed if they are named.
//
// A name is the path of a file, relative to root or absolute. It may have "."
// and ".." as long as the file lies below root, by its name; links are not looked
// at for that. A name that leads out of root, a folder, and a file that cannot be
// looked at, are each a *source.EntryError. A name that comes twice is two
// entries.
//
// Each pass ranges over names anew, in a goroutine of its own; an error that names
// yields ends the pass.
func List(root string, names iter.Seq2[string, error], cfg Config) (*Folder, error) {
	f, err := Open(root, cfg)
	if err != nil {
		return nil, err
	}
	f.names = names
	return f, nil
}

// maxName bounds the length of a name in a list. No system opens longer ones.
const maxName = 64 << 10

// Names reads a list of file names, one a line, or each with a NUL behind it (as
// find -print0 writes them): if there is a NUL in the first 64 KiB, it is such a
// list. Of lines, a CR at the end and lines without a name are left out, and so is
// a byte order mark. It reads r once: a second range over it is an error.
func Names(r io.Reader) iter.Seq2[string, error] {
	done := false
	return func(yield func(string, error) bool) {
		if done {
			yield("", errors.New("the list of files can be read only once; keep it in a file"))
			return
		}
		done = true
		parseNames(r, yield)
	}
}

// NamesFile reads a list as Names does, from a file that is opened anew for each
// range.
func NamesFile(path string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield("", err)
			return
		}
		defer f.Close()
		parseNames(f, func(name string, err error) bool {
			if err != nil {
				err = fmt.Errorf("%q: %w", path, err)
			}
			return yield(name, err)
		})
	}
}

func parseNames(r io.Reader, yield func(string, error) bool) {
	b := bufio.NewReaderSize(r, maxName)
	start, err := b.Peek(maxName)
	if err != nil && !errors.Is(err, io.EOF) {
		yield("", err)
		return
	}
	if bytes.HasPrefix(start, []byte("\xff\xfe")) || bytes.HasPrefix(start, []byte("\xfe\xff")) {
		yield("", errors.New("the list is in UTF-16; write it in UTF-8"))
		return
	}
	delim, what := byte('\n'), "line"
	if bytes.IndexByte(start, 0) >= 0 {
		delim, what = 0, "name"
	} else if bom := []byte("\ufeff"); bytes.HasPrefix(start, bom) {
		b.Discard(len(bom))
	}
	for n := 1; ; n++ {
		text, err := b.ReadSlice(delim)
		if errors.Is(err, bufio.ErrBufferFull) {
			yield("", fmt.Errorf("%s %d is longer than %d bytes: not a list of files?", what, n, maxName))
			return
		}
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			yield("", fmt.Errorf("%s %d: %w", what, n, err))
			return
		}
		if !end {
			text = text[:len(text)-1]
		}
		if delim == '\n' {
			text = bytes.TrimSuffix(text, []byte("\r"))
			if bytes.IndexByte(text, 0) >= 0 {
				yield("", fmt.Errorf("line %d has a NUL, and those before have none: not a list of files?", n))
				return
			}
			if len(bytes.TrimLeft(text, " \t")) == 0 {
				text = nil
			}
		}
		if len(text) > 0 && !yield(string(text), nil) || end {
			return
		}
	}
}

const (
	// listBatch is how many files of a list a worker takes at once.
	listBatch = 256
	// lookBatch is how many objects of a list are looked for together, and askBatch how many
	// of those that are left a worker takes at once: each is a request.
	lookBatch = 64 << 10
	askBatch  = 8
)

// listers returns the goroutines of a pass over f.names: one that reads the list,
// and the workers, who look at the files.
func (f *Folder) listers() []func(*pass.Pass) {
	todo := make(chan []pass.Item)
	workers := f.cfg.workers()
	if f.st != nil {
		workers = max(workers, 2*objectWorkers) // a request for each object
	}
	work := make([]func(*pass.Pass), 1, workers+1)
	work[0] = func(p *pass.Pass) {
		defer close(todo)
		f.readList(p, todo)
	}
	for range workers {
		work = append(work, func(p *pass.Pass) {
			for batch := range todo {
				for i := range batch {
					if batch[i].Err == nil && batch[i].Path != "" && (f.st == nil || batch[i].Size < 0) {
						batch[i].Err = f.stat(p.Context(), &batch[i].Entry)
					}
				}
				if !p.Send(batch) {
					return
				}
			}
		})
	}
	return work
}

// readList makes entries of names, which lack what the file's system knows.
func (f *Folder) readList(p *pass.Pass, todo chan<- []pass.Item) {
	send := func(batch []pass.Item) bool {
		select {
		case todo <- batch:
			return true
		case <-p.Context().Done():
			return false
		}
	}
	most := listBatch
	if f.st != nil {
		most = lookBatch
		ask, lister := send, NewLister(f.st)
		send = func(batch []pass.Item) bool {
			known, rest := f.look(p.Context(), lister, batch)
			if !p.Send(known) {
				return false
			}
			for part := range slices.Chunk(rest, askBatch) {
				if !ask(part) {
					return false
				}
			}
			return true
		}
	}
	batch := f.declare(p.Context(), p.Batch())
	for name, err := range f.names {
		if err != nil {
			send(append(batch, pass.Item{Err: err}))
			return
		}
		e, err := f.named(name)
		if err == nil && e.Path == "" {
			continue
		}
		batch = append(batch, pass.Item{Entry: e, Err: err})
		if len(batch) >= most {
			if !send(batch) {
				return
			}
			batch = p.Batch()
		}
	}
	send(batch)
}

// look lists the objects round those of a batch, and returns first what needs no more than
// that, and then those that are to be asked for.
func (f *Folder) look(ctx context.Context, lister *Lister, batch []pass.Item) (known, rest []pass.Item) {
	var wanted []*source.Entry
	for i := range batch {
		if item := &batch[i]; item.Err == nil && item.Path != "" {
			item.Size = -1
			wanted = append(wanted, &item.Entry)
		}
	}
	lister.Fill(ctx, wanted)
	for _, item := range batch {
		if item.Size < 0 {
			rest = append(rest, item)
		} else {
			known = append(known, item)
		}
	}
	return known, rest
}

// declare declares the classes of the root's folders.
func (f *Folder) declare(ctx context.Context, batch []pass.Item) []pass.Item {
	for name, hasClasses := range f.folders {
		switch {
		case f.layout == Classes:
			batch = append(batch, pass.Item{Entry: source.Entry{Class: name}})
		case f.layout == Splits && hasClasses:
			for class, err := range f.subfolders(ctx, name+"/") {
				if err != nil {
					batch = append(batch, pass.Item{Err: fault(name, err)})
					continue
				}
				batch = append(batch, pass.Item{Entry: source.Entry{Class: class}})
			}
		}
	}
	return batch
}

// named makes an entry of a name; an empty one if the patterns leave it out.
func (f *Folder) named(name string) (source.Entry, error) {
	rel, err := f.relative(name)
	if err != nil {
		return source.Entry{}, err
	}
	if !f.lists(rel) {
		return source.Entry{}, nil
	}
	for i, c := range rel {
		if c == '/' && f.excludes(rel[:i]) {
			return source.Entry{}, nil
		}
	}
	e := source.Entry{Path: rel, Location: source.Location{Name: f.root + filepath.FromSlash(rel)}}
	var key int
	if e.Split, e.Class, key, err = f.place(rel); err != nil {
		return source.Entry{}, err
	}
	if key > 0 {
		e.KeyPath = rel[key:]
	}
	return e, nil
}

// relative is the path within the source of a file that a list names.
func (f *Folder) relative(name string) (string, error) {
	if f.st == nil {
		return Relative(f.root, name)
	}
	return RelativeObject(f.st, name)
}

// stat is Stat, or StatObject.
func (f *Folder) stat(ctx context.Context, e *source.Entry) error {
	if f.st == nil {
		return Stat(e)
	}
	return StatObject(ctx, f.st, e)
}

// RelativeObject returns the name of an object in st that a list names by it, or by st's
// URL and it; others are a *source.EntryError.
func RelativeObject(st store.Store, name string) (string, error) {
	rel, below := strings.CutPrefix(name, strings.TrimSuffix(st.URL(), "/")+"/")
	if !below && strings.Contains(name, "://") {
		return "", &source.EntryError{Path: name, Err: fmt.Errorf("does not lie in %q; name a root that holds all files", st.URL())}
	}
	rel = path.Clean(rel)
	if err := store.CheckName(rel); err != nil {
		return "", &source.EntryError{Path: name, Err: err}
	}
	return rel, nil
}

// Relative returns the slash-separated path, relative to root, of a file that a
// list names by its path relative to root or its absolute path. One that does not
// lie below root is a *source.EntryError. root must be absolute.
func Relative(root, name string) (string, error) {
	rel := filepath.ToSlash(name)
	if filepath.IsAbs(name) {
		r, err := filepath.Rel(root, name)
		if err != nil {
			return "", &source.EntryError{Path: name, Err: err}
		}
		rel = filepath.ToSlash(r)
	}
	if rel = path.Clean(rel); rel == ".." || strings.HasPrefix(rel, "../") || path.IsAbs(rel) {
		return "", &source.EntryError{Path: name, Err: fmt.Errorf("does not lie in %q; name a root folder that holds all files", filepath.Clean(root))}
	}
	return rel, nil
}

// Stat sets the size and time of modification in e from the file at e's location,
// which must be a regular file or a link to one; otherwise that is a
// *source.EntryError.
func Stat(e *source.Entry) error {
	info, err := os.Stat(e.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if to, linkErr := os.Readlink(e.Name); linkErr == nil {
			return fault(e.Path, brokenLink(to, err))
		}
		return fault(e.Path, err)
	case err != nil:
		return fault(e.Path, err)
	case info.IsDir():
		return fault(e.Path, errors.New("is a folder, not a file"))
	case !info.Mode().IsRegular():
		return fault(e.Path, errors.New("is not a regular file"))
	}
	e.Size, e.ModTime = info.Size(), info.ModTime().UnixNano()
	return nil
}
