package tars

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"

	"shardify/source/folder"
	"shardify/store"
	"shardify/store/http"
	"shardify/store/retry"
	"shardify/store/stream"
)

// unknown is the size of an object that nobody has asked for yet.
const unknown = -1

// web are the shards below one URL that are named one by one, each with a URL of its own,
// as a signature may be part of it.
type web struct {
	urls  map[string]string // by the object's name
	files []*file
}

// addWeb is add for what a web server has: shards by their names, with braces in them, or
// a data set of ours.
func (t *Tars) addWeb(ctx context.Context, pattern string) (classes []string, err error) {
	urls, err := stream.Expand(pattern)
	if err != nil {
		return nil, err
	}
	for i, u := range urls {
		if err := http.CheckURL(u); err != nil {
			return nil, fmt.Errorf("%s: %w", http.Shown(u), err)
		}
		if named(http.Shown(u)) {
			if err := t.addWebShard(u); err != nil {
				return nil, err
			}
			continue
		}
		names, err := t.addWebFolder(ctx, u)
		if err != nil {
			return nil, err
		}
		if i > 0 && !slices.Equal(names, classes) {
			return nil, fmt.Errorf("%s and %s give their labels other names; pack them one by one", http.Title(urls[0]), http.Title(u))
		}
		classes = names
	}
	return classes, nil
}

// addWebShard adds the shard at a URL, of which nothing is asked yet.
func (t *Tars) addWebShard(target string) error {
	title := http.Title(target)
	at := strings.LastIndexByte(title, '/')
	if strings.ContainsRune(title, '*') {
		return fmt.Errorf("%s: %w: a web server does not say which files it has; write the numbers out, as in %s/train-{000000..000099}.tar", http.Shown(target), errors.ErrUnsupported, title[:at])
	}
	name, err := url.PathUnescape(title[at+1:])
	if err == nil {
		err = store.CheckName(name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	f, err := t.addFile(title[:at]+"/"+name, t.cfg.Split)
	if err != nil {
		return err
	}
	f.object, f.size, f.unseen = name, unknown, true
	w := t.webs[title[:at]]
	if w == nil {
		w = &web{urls: map[string]string{}}
		t.webs[title[:at]] = w
	}
	w.urls[name] = target
	w.files = append(w.files, f)
	return nil
}

// openWebs opens the stores of the shards that are named one by one.
func (t *Tars) openWebs() error {
	for base, w := range t.webs {
		c, err := http.Config{Objects: w.urls}.Environment()
		if err != nil {
			return fmt.Errorf("open %s: %w", base, err)
		}
		s, err := http.New(base, c)
		if err != nil {
			return err
		}
		t.clients = append(t.clients, s)
		st, err := retry.New(s, retry.Config{})
		if err != nil {
			return err
		}
		for _, f := range w.files {
			f.st = st
		}
	}
	return nil
}

// addWebFolder adds the shards of a data set of ours, or those that SHARDIFY_HTTP_OBJECTS
// names.
func (t *Tars) addWebFolder(ctx context.Context, target string) (classes []string, err error) {
	st, err := t.storeAt(ctx, target)
	if err != nil {
		return nil, err
	}
	classes, ours, err := t.addSet(ctx, st)
	if err != nil || ours {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w (or nothing is there: shards without a manifest of ours are named one by one, as in %s/train-{000000..000099}.tar)", err, st.URL())
		}
		return classes, err
	}
	c, err := http.Config{}.Environment()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", st.URL(), err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Objects)) {
		if !loose(name) {
			continue
		}
		f, err := t.addFile(st.URL()+"/"+name, t.cfg.Split)
		if err != nil {
			return nil, err
		}
		f.st, f.object, f.size, f.unseen = st, name, unknown, true
		ours = true
	}
	switch {
	case ours:
		return nil, nil
	case c.Objects != nil:
		return nil, fmt.Errorf("%s: %w: there is no data set of ours and no shard among the %d objects of SHARDIFY_HTTP_OBJECTS; name images with --files-from or --table", st.URL(), fs.ErrNotExist, len(c.Objects))
	}
	return nil, fmt.Errorf("%s: %w: there is no data set of ours, and a web server does not say which files it has: name the shards (%s/train-{000000..000099}.tar), or images with --files-from or --table", st.URL(), fs.ErrNotExist, st.URL())
}

// known returns an object's size and stamp, and asks for them where nobody has told them.
func (f *file) known(ctx context.Context) (size, stamp int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size == unknown {
		info, err := store.Stat(ctx, f.st, f.object)
		if err != nil {
			return 0, 0, err
		}
		f.size, f.stamp = info.Size, folder.VersionOf(info)
	}
	return f.size, f.stamp, nil
}

// beginning is how many bytes are fetched of a shard before its turn, at most: none of a
// file of this machine, and any number where it is unknown.
func (f *file) beginning() int64 {
	if f.st == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size == unknown {
		return math.MaxInt64
	}
	return f.size
}

// openObject opens the object, and with that learns its size and stamp where nobody has
// told them.
func (f *file) openObject(ctx context.Context) (o store.Object, size, stamp int64, err error) {
	f.mu.Lock()
	size, stamp = f.size, f.stamp
	f.mu.Unlock()
	if size != unknown {
		o, err = f.st.Open(store.WithSize(ctx, size), f.object)
		return o, size, stamp, err
	}
	if o, err = f.st.Open(ctx, f.object); err != nil {
		return nil, 0, 0, err
	}
	info := o.Info()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size == unknown {
		f.size, f.stamp = info.Size, folder.VersionOf(info)
	}
	return o, f.size, f.stamp, nil
}
