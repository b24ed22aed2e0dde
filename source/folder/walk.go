package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"shardify/source"
	"shardify/source/internal/pass"
)

// node is a folder that is to be read.
type node struct {
	parent *node
	// prefix is its path with a separator at the end; rel the same relative to the
	// root, with slashes.
	prefix, rel string
	// split and class are those of its files, and key is where the part of their
	// relative paths begins that makes their keys.
	split, class string
	key          int
	// kind is "class" or "split" if only such folders are expected in it.
	kind string
}

// task is a folder to read, or some of its children to look at.
type task struct {
	*node
	dir      *openedDir
	children []child
}

// walk is the state that the workers of one pass share. Folders wait on a stack,
// which keeps them few. Whoever reads a folder hands the children it has read to
// others if they have nothing to do, so that one large folder is looked at by all.
type walk struct {
	f *Folder

	mu      sync.Mutex
	more    sync.Cond
	stack   []task
	workers int
	idle    int
	over    bool
}

const (
	// maxWaiting bounds the stack: when so many folders wait, those found are read
	// at once, as long as the tree is not deeper than maxNesting.
	maxWaiting = 1000
	maxNesting = 32
)

func (f *Folder) walkers() []func(*pass.Pass) {
	w := &walk{f: f, workers: f.cfg.workers()}
	w.more.L = &w.mu
	root := &node{prefix: f.root}
	switch f.layout {
	case Classes:
		root.kind = "class"
	case Splits:
		root.kind = "split"
	}
	w.stack = []task{{node: root}}
	work := make([]func(*pass.Pass), w.workers)
	for i := range work {
		work[i] = w.work
	}
	return work
}

// work does tasks until there are none and nobody is left who could find more.
func (w *walk) work(p *pass.Pass) {
	defer context.AfterFunc(p.Context(), w.end)()
	for {
		t, ok := w.take()
		if !ok {
			return
		}
		if t.dir != nil {
			ok = w.look(p, t.node, t.dir, t.children, 0)
			t.dir.release()
		} else {
			ok = w.read(p, t.node, 0)
		}
		if !ok {
			w.end()
			return
		}
	}
}

func (w *walk) take() (t task, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.stack) == 0 && !w.over {
		if w.idle++; w.idle == w.workers {
			w.over = true
			w.more.Broadcast()
			break
		}
		w.more.Wait()
		w.idle--
	}
	if w.over {
		return task{}, false
	}
	t = w.stack[len(w.stack)-1]
	w.stack[len(w.stack)-1] = task{}
	w.stack = w.stack[:len(w.stack)-1]
	return t, true
}

// end wakes all who wait, so that they return, and drops what is still to do.
func (w *walk) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, t := range w.stack {
		if t.dir != nil {
			t.dir.release()
		}
	}
	w.stack = nil
	w.more.Broadcast()
}

// put adds tasks, unless the walk is over.
func (w *walk) put(tasks ...task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tasks {
		if !w.over {
			w.stack = append(w.stack, t)
		} else if t.dir != nil {
			t.dir.release()
		}
	}
	if len(tasks) == 1 {
		w.more.Signal()
	} else {
		w.more.Broadcast()
	}
}

// hungry says that somebody waits and there is nothing to take.
func (w *walk) hungry() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle > 0 && len(w.stack) == 0
}

func (w *walk) crowded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stack) > maxWaiting
}

// read reads a folder. False says that the pass is over.
func (w *walk) read(p *pass.Pass, n *node, nesting int) bool {
	d, err := openDir(n.prefix)
	if err != nil {
		return w.fail(p, n, err)
	}
	defer d.release()
	for {
		children, err := d.next(n.prefix)
		if err != nil {
			return w.fail(p, n, err)
		}
		if len(children) == 0 {
			return true
		}
		if w.hungry() {
			d.hold()
			w.put(task{n, d, children})
		} else if !w.look(p, n, d, children, nesting) {
			return false
		}
	}
}

// fail reports a folder that cannot be read; without the root there is no listing.
func (w *walk) fail(p *pass.Pass, n *node, err error) bool {
	if n.parent != nil {
		err = fault(n.rel, err)
	}
	return p.Send(append(p.Batch(), pass.Item{Err: err}))
}

// look makes entries of files and tasks of folders.
func (w *walk) look(p *pass.Pass, n *node, d *openedDir, children []child, nesting int) bool {
	batch := p.Batch()
	var tasks []task
	for i, c := range children {
		if i&63 == 63 && p.Context().Err() != nil {
			return false
		}
		name := c.path[len(n.prefix):]
		rel := c.path[len(w.f.root):] // the same bytes as n.rel + name, not copied
		if filepath.Separator != '/' {
			rel = n.rel + name
		}
		switch c.kind {
		case other:
			continue
		case file:
			if !w.f.lists(rel) {
				continue
			}
		default:
			if hidden(name) || w.f.excludes(rel) {
				continue
			}
		}
		var size, modTime int64
		if c.kind != dir {
			var err error
			if c.kind, size, modTime, err = d.stat(c, n.prefix); err != nil {
				batch = append(batch, pass.Item{Err: fault(rel, explain(c.path, err))})
				continue
			}
		}
		switch c.kind {
		case file:
			if !w.f.lists(rel) {
				continue // it was a link
			}
			if n.kind != "" {
				if err := besideErr(rel, n.kind, w.f.layout); err != nil {
					batch = append(batch, pass.Item{Err: err})
					continue
				}
			}
			e := source.Entry{
				Split: n.split, Class: n.class, Path: rel,
				Location: source.Location{Name: c.path, Size: size, ModTime: modTime},
			}
			if n.key > 0 {
				e.KeyPath = rel[n.key:]
			}
			batch = append(batch, pass.Item{Entry: e})
		case dir, linkedDir:
			below := w.below(n, c, name)
			if c.kind == linkedDir {
				if err := below.loop(); err != nil {
					batch = append(batch, pass.Item{Err: fault(rel, err)})
					continue
				}
			}
			if n.kind == "class" {
				batch = append(batch, pass.Item{Entry: source.Entry{Class: name}})
			}
			tasks = append(tasks, task{node: below})
		}
	}
	if !p.Send(batch) {
		return false
	}
	if len(tasks) == 0 {
		return true
	}
	if nesting < maxNesting && w.crowded() {
		for _, t := range tasks {
			if !w.read(p, t.node, nesting+1) {
				return false
			}
		}
		return true
	}
	w.put(tasks...)
	return true
}

// explain says more of a file that cannot be looked at.
func explain(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if to, linkErr := os.Readlink(path); linkErr == nil {
		return brokenLink(to, err)
	}
	return fmt.Errorf("vanished while its folder was listed: %w", bare(err))
}

// below makes the node of a folder in n.
func (w *walk) below(n *node, c child, name string) *node {
	b := &node{
		parent: n,
		prefix: c.path + string(filepath.Separator), rel: n.rel + name + "/",
		split: n.split, class: n.class, key: n.key,
	}
	switch n.kind {
	case "class":
		b.class = name
	case "split":
		b.split = name
		b.key = len(b.rel)
		if w.f.folders[name] {
			b.kind = "class"
		}
	}
	return b
}

// loop says whether the folder, which was reached by a link, is one of those it
// lies in.
func (n *node) loop() error {
	info, err := os.Stat(n.prefix)
	if err != nil {
		return err
	}
	for up := n.parent; up != nil; up = up.parent {
		if above, err := os.Stat(up.prefix); err == nil && os.SameFile(info, above) {
			return fmt.Errorf("a link to %q, the folder that it lies in: its files would never end", filepath.Clean(up.prefix))
		}
	}
	return nil
}
