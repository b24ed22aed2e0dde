package tars

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"shardify/index"
	"shardify/shard/formats"
	"shardify/source/folder"
	"shardify/store"
	"shardify/store/open"
	"shardify/store/stream"
)

// storeAt opens the store of a URL, each once: shards that lie together share what it
// learns of the server.
func (t *Tars) storeAt(ctx context.Context, url string) (store.Store, error) {
	if st := t.stores[url]; st != nil {
		return st, nil
	}
	st, err := open.Retried(ctx, url)
	if err != nil {
		return nil, err
	}
	t.stores[url] = st
	return st, nil
}

// addURL is add for what lies in a bucket or on a web server.
func (t *Tars) addURL(ctx context.Context, url string) (classes []string, err error) {
	if stream.IsHTTP(url) {
		return t.addWeb(ctx, url)
	}
	st, err := t.storeAt(ctx, url)
	if err != nil {
		return nil, err
	}
	if at := strings.LastIndexByte(st.URL(), '/'); named(st.URL()) && at > len("s3://") {
		parent, name := st.URL()[:at], st.URL()[at+1:]
		in, err := t.storeAt(ctx, parent)
		if err != nil {
			return nil, err
		}
		info, err := store.Stat(ctx, in, name)
		if err == nil {
			return nil, t.addObject(in, info)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	before := len(t.files)
	if classes, err = t.addPrefix(ctx, st); err != nil || len(t.files) > before {
		return classes, err
	}
	if _, rest, _ := strings.Cut(strings.TrimPrefix(st.URL(), "s3://"), "/"); hasMeta(rest) {
		return nil, t.addPattern(ctx, st.URL())
	}
	return nil, fmt.Errorf("%s: %w: no such object, and no shards (%s) below it; check the bucket and the name", st.URL(), fs.ErrNotExist, strings.Join(formats.Names(), ", "))
}

// addObject adds an object as a shard.
func (t *Tars) addObject(st store.Store, info store.Info) error {
	f, err := t.addFile(st.URL()+"/"+info.Name, t.cfg.Split)
	if err != nil {
		return err
	}
	f.st, f.object, f.size, f.stamp = st, info.Name, info.Size, folder.VersionOf(info)
	return nil
}

// addPrefix adds the shards of a data set of ours, or those that lie below a prefix.
func (t *Tars) addPrefix(ctx context.Context, st store.Store) (classes []string, err error) {
	classes, ours, err := t.addSet(ctx, st)
	if err != nil || ours {
		return classes, err
	}
	return nil, t.addMatches(ctx, st, "", loose)
}

// addSet adds the shards of a data set of ours; ours says that there is one.
func (t *Tars) addSet(ctx context.Context, st store.Store) (classes []string, ours bool, err error) {
	data, err := store.ReadAll(ctx, st, index.ManifestName, index.MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	m, err := index.DecodeManifest(data)
	if errors.Is(err, index.ErrNotManifest) {
		return nil, false, nil // another program's manifest.json
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s/%s: %w", st.URL(), index.ManifestName, err)
	}
	for _, s := range m.Splits {
		for i := range s.Shards {
			own := &s.Shards[i]
			f, err := t.addFile(st.URL()+"/"+own.Name, s.Name)
			if err != nil {
				return nil, false, err
			}
			f.st, f.object, f.size = st, own.Name, own.Bytes
			f.own, f.index = own, own.Index.Name
		}
	}
	return m.Classes, true, nil
}

// loose says whether an object below a prefix is one of its shards.
func loose(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return false
		}
	}
	return named(name)
}

// addMatches adds the objects that lie below a prefix and are wanted.
func (t *Tars) addMatches(ctx context.Context, st store.Store, prefix string, wanted func(name string) bool) error {
	for info, err := range st.List(ctx, prefix) {
		if err != nil {
			return err
		}
		if !wanted(info.Name) {
			continue
		}
		if err := t.addObject(st, info); err != nil {
			return err
		}
	}
	return nil
}

// addPattern adds the objects that match a pattern. It lists what lies below the part of
// it that has no pattern's characters.
func (t *Tars) addPattern(ctx context.Context, url string) error {
	scheme, rest, _ := strings.Cut(url, "://")
	bucket, pattern, _ := strings.Cut(rest, "/")
	if !doublestar.ValidatePattern(pattern) {
		return fmt.Errorf("%s: %w", url, doublestar.ErrBadPattern)
	}
	base, pattern := doublestar.SplitPattern(pattern)
	st, err := t.storeAt(ctx, scheme+"://"+path.Join(bucket, base))
	if err != nil {
		return err
	}
	prefix := pattern[:strings.IndexAny(pattern, metaChars)]
	return t.addMatches(ctx, st, prefix, func(name string) bool { return doublestar.MatchUnvalidated(pattern, name) })
}
