// Package folder lists and reads data sets that are files in folders: ImageFolder
// trees, flat folders, and lists of such files.
//
// Start with [Open] for all files below a folder, or [List] for some of them; with
// [OpenStore] and [ListStore] for the objects of a bucket.
//
// # What is listed
//
// Every regular file below the root is an entry, images or not; which of them make
// samples is the rule of source.Groups. Left out are
//
//   - files and folders whose name begins with a dot, and the folders in which
//     systems and other tools keep things of their own (__MACOSX, @eaDir,
//     lost+found, $RECYCLE.BIN, System Volume Information);
//   - pipes, sockets and devices;
//   - what the patterns of the [Config] leave out.
//
// Links are followed, to files and to folders, as torchvision does. A link to a
// folder that holds it, a broken link, and a folder that may not be read, are each
// a *source.EntryError.
//
// Names are kept as they are, byte for byte: they need not be UTF-8, upper and
// lower case differ.
//
// # Layouts
//
// In "classes" (torchvision's ImageFolder), each folder in the root is a class, and
// the files anywhere below it are of that class. Each class is declared, also one
// without files, so that the sorted classes get torchvision's numbers. An image
// that lies in the root itself, beside the class folders, is an error of that
// entry.
//
// In "splits", each folder in the root is a split, and in the layout of "classes",
// or without classes if it has no folders. The split's name is the folder's, and
// not part of the samples' keys: train/n1/a.jpg is the sample n1/a of split train.
//
// In "flat", there are no classes.
//
// Without a layout, a root whose folders are all called like splits (train,
// training, val, valid, validation, test, testing, dev, eval, in any case) has the
// layout "splits"; one with other folders, "classes"; one without, "flat".
package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"shardify/source"
	"shardify/source/internal/pass"
	"shardify/store"
)

// The layouts.
const (
	Auto    = ""
	Classes = "classes"
	Splits  = "splits"
	Flat    = "flat"
)

// Config says what of a folder is listed, and how. Its zero value is all of it.
type Config struct {
	// Layout is "classes", "splits" or "flat"; empty means to find out.
	Layout string `json:"layout,omitempty"`
	// Include, if not empty, keeps only files that match one of its patterns;
	// Exclude leaves out files that match one of its, and folders with all below
	// them. A pattern with a slash is matched against the whole path relative to
	// the root ("n01*/**/*.jpg"), one without against the last component, at any
	// depth ("*.jpg"). The syntax is that of doublestar: *, ?, [class], {a,b}, and
	// ** for any number of folders. Upper and lower case differ.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Workers is the number of files looked at at once. The default, 0, is four a
	// core: more than a warm cache needs, and enough to keep a cold disk or a
	// network busy.
	Workers int `json:"workers,omitempty"`
}

// Validate reports every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	switch c.Layout {
	case Auto, Classes, Splits, Flat:
	default:
		faults = append(faults, fmt.Errorf("layout %q: want classes, splits or flat", c.Layout))
	}
	if c.Workers < 0 {
		faults = append(faults, fmt.Errorf("%d workers", c.Workers))
	}
	for _, patterns := range [][]string{c.Include, c.Exclude} {
		for _, p := range patterns {
			if err := checkPattern(p); err != nil {
				faults = append(faults, err)
			}
		}
	}
	return errors.Join(faults...)
}

func (c *Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return 4 * runtime.GOMAXPROCS(0)
}

// Folder is a source of files below a folder. Its methods are safe for concurrent
// use.
type Folder struct {
	name   string      // as the user wrote it
	root   string      // absolute, with a separator at its end; "" for a store
	st     store.Store // nil for a folder of this machine
	cfg    Config
	layout string
	// folders are the root's folders, found when it was opened. In the layout
	// "splits" each has true if it has classes.
	folders map[string]bool
	// names, if not nil, are the files to list.
	names iter.Seq2[string, error]
}

var _ source.Source = (*Folder)(nil)

// Open returns the source of all files below root. It reads the root folder to
// find its layout.
func Open(root string, cfg Config) (*Folder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("%q: %w", root, err)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", root, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%q is not a folder", root)
	}
	if !os.IsPathSeparator(abs[len(abs)-1]) {
		abs += string(filepath.Separator)
	}
	f := &Folder{name: root, root: abs, cfg: cfg}
	if err := f.findLayout(context.Background()); err != nil {
		return nil, err
	}
	return f, nil
}

// Name returns the root as it was given to Open.
func (f *Folder) Name() string { return f.name }

// Layout returns the layout that was asked for or found: Classes, Splits or Flat.
func (f *Folder) Layout() string { return f.layout }

// Numeric returns false: classes are names of folders.
func (f *Folder) Numeric() bool { return false }

// Entries lists the files. Besides entries in memory, it holds at most one batch
// of a few hundred files a worker, and the paths of the folders that are still to
// be read.
func (f *Folder) Entries(ctx context.Context) iter.Seq2[source.Entry, error] {
	return pass.Run(ctx, func() []func(*pass.Pass) {
		switch {
		case f.names != nil:
			return f.listers()
		case f.st != nil:
			return f.objectListers()
		}
		return f.walkers()
	})
}

// Read implements source.Source.
func (f *Folder) Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	if f.st != nil {
		return ReadObject(ctx, f.st, loc, buf)
	}
	return Read(ctx, loc, buf)
}

// Remote says that files come over a network, so that many should be read at once.
func (f *Folder) Remote() bool { return f.st != nil && !store.IsLocal(f.st.URL()) }

// splitNames are the names by which a split's folder is known.
var splitNames = map[string]bool{
	"train": true, "training": true,
	"val": true, "valid": true, "validation": true, "dev": true, "eval": true,
	"test": true, "testing": true,
}

// findLayout reads the root's folders.
func (f *Folder) findLayout(ctx context.Context) error {
	f.folders = make(map[string]bool)
	if f.st != nil && f.cfg.Layout == Flat {
		f.layout = Flat
		return nil
	}
	allSplits := true
	for name, err := range f.subfolders(ctx, "") {
		if err != nil {
			return err
		}
		f.folders[name] = false
		allSplits = allSplits && splitNames[strings.ToLower(name)]
	}
	f.layout = f.cfg.Layout
	if f.layout == Auto {
		switch {
		case len(f.folders) == 0:
			f.layout = Flat
		case allSplits:
			f.layout = Splits
		default:
			f.layout = Classes
		}
	}
	if f.layout != Splits {
		return nil
	}
	for split := range f.folders {
		for _, err := range f.subfolders(ctx, split+"/") {
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			// One that may not be read is reported when it is listed.
			f.folders[split] = err == nil
			break
		}
	}
	return nil
}

// subfolders yields the names of the folders in a folder (a path relative to the
// root that ends in a slash, or is empty) that are listed.
func (f *Folder) subfolders(ctx context.Context, rel string) iter.Seq2[string, error] {
	if f.st != nil {
		return f.subprefixes(ctx, rel)
	}
	return func(yield func(string, error) bool) {
		prefix := f.root + filepath.FromSlash(rel)
		d, err := openDir(prefix)
		if err != nil {
			yield("", err)
			return
		}
		defer d.release()
		for {
			children, err := d.next(prefix)
			if err != nil {
				yield("", err)
				return
			}
			if len(children) == 0 {
				return
			}
			for _, c := range children {
				if c.kind == link {
					// A broken one is reported when it is listed.
					c.kind, _, _, _ = d.stat(c, prefix)
				}
				name := c.path[len(prefix):]
				if c.kind != dir && c.kind != linkedDir || hidden(name) || f.excludes(rel+name) {
					continue
				}
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// systemNames are folders in which systems and tools keep things of their own.
var systemNames = map[string]bool{
	"__MACOSX": true, "@eaDir": true, "lost+found": true, "$RECYCLE.BIN": true, "System Volume Information": true,
}

// hidden says that a folder of this name is not listed.
func hidden(name string) bool { return name[0] == '.' || systemNames[name] }

// place says what a path relative to the root is in the layout: its split, its
// class, and where the part begins that makes the key.
func (f *Folder) place(rel string) (split, class string, key int, err error) {
	switch f.layout {
	case Flat:
		return "", "", 0, nil
	case Splits:
		var inside bool
		if split, _, inside = strings.Cut(rel, "/"); !inside {
			return "", "", 0, besideErr(rel, "split", f.layout)
		}
		key = len(split) + 1
		if !f.folders[split] {
			return split, "", key, nil
		}
	}
	class, _, inside := strings.Cut(rel[key:], "/")
	if !inside {
		return split, "", key, besideErr(rel, "class", f.layout)
	}
	return split, class, key, nil
}

// besideErr is the error for an image that lies where only folders of a kind are
// expected; nil for other files.
func besideErr(rel, kind, layout string) error {
	if !isImage(rel) {
		return nil
	}
	hint := "move it into one"
	if layout == Classes {
		hint += ", or use --layout flat"
	}
	return &source.EntryError{Path: rel, Err: fmt.Errorf("lies beside the %s folders: %s", kind, hint)}
}
