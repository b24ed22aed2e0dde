// Package tree makes ImageFolder trees.
//
// Call [Generate]. The files and their bytes depend on the [Config] and the Go
// version only, whatever the number of workers.
package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"shardify/tools/gendata/jpegenc"
	"shardify/tools/gendata/photo"
)

// Report is what a tree holds.
type Report struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Linked is how many of the files are hard links.
	Linked  int64 `json:"linked,omitempty"`
	Classes int   `json:"classes"`
	// Odd lists the odd files in the order they are numbered.
	Odd []OddFile `json:"odd,omitempty"`
	// Already says that the tree was there and nothing was done.
	Already bool `json:"-"`
}

// OddFile is a file of a kind.
type OddFile struct {
	// Path is within the tree, slash-separated.
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// Bad says why no image can be read from it; empty if one can.
	Bad string `json:"bad,omitempty"`
}

// Progress is told about work that is done. It must be safe for concurrent use.
type Progress func(files, bytes int64)

// ErrNotEmpty: the folder has content that is not from an identical run.
var ErrNotEmpty = errors.New("the folder is not empty")

// stampVersion changes when the same Config gives other bytes.
const stampVersion = 1

// stamp is what a run leaves in a file beside the tree, DIR.gendata.json, so that a
// second run knows the tree.
type stamp struct {
	Version int    `json:"version"`
	Go      string `json:"go"`
	Config  Config `json:"config"`
	// Source is a hash of the names, sizes and times of From's files.
	Source   string `json:"source,omitempty"`
	Complete bool   `json:"complete"`
	Report   Report `json:"report"`
}

func (s *stamp) same(t *stamp) bool {
	a, b := *s, *t
	a.Complete, b.Complete = false, false
	a.Report, b.Report = Report{}, Report{}
	x, errx := json.Marshal(a)
	y, erry := json.Marshal(b)
	return errx == nil && erry == nil && string(x) == string(y)
}

// Generate makes the tree in dir with the given number of workers (0 means one for
// each processor). dir may be absent or empty. If an identical run has made it, it
// does nothing; if an identical run was interrupted, it starts over and overwrites;
// any other content is ErrNotEmpty and stays untouched.
func Generate(ctx context.Context, dir string, c Config, workers int, progress Progress) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if c.From != "" {
		if c.From, err = filepath.EvalSymlinks(c.From); err != nil {
			return nil, err
		}
		if c.From, err = filepath.Abs(c.From); err != nil {
			return nil, err
		}
	}
	g := &generator{dir: dir, config: c, progress: progress}
	mark := stamp{Version: stampVersion, Go: runtime.Version() + " " + runtime.GOARCH, Config: c}
	files := c.Images
	if c.From != "" {
		if err := apart(dir, c.From); err != nil {
			return nil, err
		}
		if g.sources, mark.Source, err = list(c.From); err != nil {
			return nil, err
		}
		if files = len(g.sources) * c.Copies; files > 1<<31-1 {
			return nil, fmt.Errorf("%d copies of %d files are too many", c.Copies, len(g.sources))
		}
		g.order = rand.New(rand.NewPCG(c.Seed, 2)).Perm(files)
	}
	g.layout = newLayout(&c, files)
	g.listOdd()

	old, err := check(dir, &mark)
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.Already = true
		return old, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := writeStamp(dir, &mark); err != nil {
		return nil, err
	}
	for _, d := range g.layout.folders(files, len(g.report.Odd)) {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(d)), 0o777); err != nil {
			return nil, err
		}
	}
	if err := g.run(ctx, workers); err != nil {
		return nil, err
	}
	g.report.Classes = c.Classes
	mark.Complete, mark.Report = true, g.report
	if err := writeStamp(dir, &mark); err != nil {
		return nil, err
	}
	return &g.report, nil
}

func stampPath(dir string) string { return dir + ".gendata.json" }

// check returns the report of an identical run that made dir, nil if dir is ours to
// fill, or ErrNotEmpty.
func check(dir string, mark *stamp) (*Report, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, nil
	}
	data, err := os.ReadFile(stampPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%q: %w, and gendata did not make it; name another folder", dir, ErrNotEmpty)
	}
	if err != nil {
		return nil, err
	}
	var old stamp
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, fmt.Errorf("%q: %w, and %q is damaged (%w); remove both or name another folder", dir, ErrNotEmpty, stampPath(dir), err)
	}
	if !mark.same(&old) {
		return nil, fmt.Errorf("%q: %w, and was made with other options, from other files or by another version (%q has them); remove it or name another folder",
			dir, ErrNotEmpty, stampPath(dir))
	}
	if !old.Complete {
		return nil, nil
	}
	files, bytes, err := measure(dir)
	if err != nil {
		return nil, err
	}
	if files != old.Report.Files || bytes != old.Report.Bytes {
		return nil, fmt.Errorf("%q: %w, and was changed since it was made: %d files of %d bytes, there were %d of %d; remove it or name another folder",
			dir, ErrNotEmpty, files, bytes, old.Report.Files, old.Report.Bytes)
	}
	return &old.Report, nil
}

func measure(dir string) (files, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		bytes += info.Size()
		return nil
	})
	return files, bytes, err
}

func writeStamp(dir string, s *stamp) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := stampPath(dir) + ".tmp"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(tmp, stampPath(dir))
}

// apart refuses trees of which one is in the other.
func apart(dir, from string) error {
	if d, err := filepath.EvalSymlinks(dir); err == nil {
		dir = d
	}
	for _, pair := range [][2]string{{dir, from}, {from, dir}} {
		rel, err := filepath.Rel(pair[0], pair[1])
		if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return fmt.Errorf("%q and the folder to copy from, %q, must not contain each other", dir, from)
		}
	}
	return nil
}

// list returns the files below dir in order, hidden ones excepted, and a hash that
// changes with them. Links to files count as files; other links are not followed.
func list(dir string) (paths []string, hash string, err error) {
	h := fnv.New128a()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		paths = append(paths, path)
		fmt.Fprintf(h, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%q has no files to copy", dir)
	}
	return paths, fmt.Sprintf("%x", h.Sum(nil)), err
}

// generator is one run.
type generator struct {
	dir      string
	config   Config
	layout   layout
	sources  []string // with From
	order    []int    // with From: the place of each copy
	report   Report
	progress Progress

	linkFails atomic.Bool
	mu        sync.Mutex // guards report's counts
}

// job is numbers that one worker does in a row: begin, begin+step, … below end.
type job struct {
	make             func(w *worker, i int) error
	begin, end, step int
}

// worker is what one goroutine keeps from file to file.
type worker struct {
	g       *generator
	painter *photo.Painter // made with the first photograph
	odd     *oddities      // made with the first odd file
	shapes  shapes
	enc     jpegenc.Encoder
	buf     []byte
	done    Report
}

func (g *generator) run(ctx context.Context, workers int) error {
	little, err := newTiny()
	if err != nil {
		return err
	}

	makeOne, files, chunk := func(w *worker, i int) error {
		if w.painter == nil {
			w.painter = photo.NewPainter(photo.NewLibrary())
		}
		spec := photo.Draw(g.config.Seed, uint64(i))
		data, err := w.enc.Append(w.buf[:0], w.painter.Paint(&spec), &spec.Options)
		if err != nil {
			return fmt.Errorf("photograph %d: %w", i, err)
		}
		w.buf = data
		return w.save(w.path(i, ".JPEG"), data)
	}, g.config.Images, 8
	switch {
	case g.config.From != "":
		makeOne, files, chunk = (*worker).copies, len(g.sources), 1
	case g.config.Shapes:
		makeOne = func(w *worker, i int) error {
			_, _, class := g.layout.place(i)
			data, err := w.shapes.file(w.buf[:0], g.config.Seed, i, class)
			if err != nil {
				return fmt.Errorf("shape %d: %w", i, err)
			}
			w.buf = data
			return w.save(w.path(i, ".JPEG"), data)
		}
	case g.config.Tiny:
		makeOne = func(w *worker, i int) error {
			data, ext := little.file(w.buf[:0], g.config.Seed, i)
			w.buf = data
			return w.save(w.path(i, ext), data)
		}
	}

	group, ctx := errgroup.WithContext(ctx)
	jobs := make(chan job)
	group.Go(func() error {
		defer close(jobs)
		send := func(j job) bool {
			select {
			case jobs <- j:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for i := range g.report.Odd {
			if !send(job{(*worker).oddFile, i, i + 1, 1}) {
				return ctx.Err()
			}
		}
		if g.config.Tiny {
			// A folder at a time: file systems make such files twice as fast.
			begin := 0
			for _, end := range g.layout.ends {
				for class := range min(g.layout.classes, end-begin) {
					if !send(job{makeOne, begin + class, end, g.layout.classes}) {
						return ctx.Err()
					}
				}
				begin = end
			}
			return nil
		}
		for begin := 0; begin < files; begin += chunk {
			if !send(job{makeOne, begin, min(begin+chunk, files), 1}) {
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			w := &worker{g: g}
			for j := range jobs {
				before := w.done
				for i := j.begin; i < j.end; i += j.step {
					if err := j.make(w, i); err != nil {
						return err
					}
				}
				if g.progress != nil {
					g.progress(w.done.Files-before.Files, w.done.Bytes-before.Bytes)
				}
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.report.Files += w.done.Files
			g.report.Bytes += w.done.Bytes
			g.report.Linked += w.done.Linked
			return nil
		})
	}
	return group.Wait()
}

// listOdd names the odd files.
func (g *generator) listOdd() {
	for k, kind := range g.config.With {
		for i := range g.config.Odd {
			dir, class := g.layout.odd(k*g.config.Odd + i)
			facts := kinds[kind]
			g.report.Odd = append(g.report.Odd, OddFile{
				Path: fmt.Sprintf("%s/%s_%s_%d.%s", dir, class, kind, i, facts.ext),
				Kind: kind,
				Bad:  facts.bad,
			})
		}
	}
}

func (w *worker) oddFile(n int) error {
	if w.odd == nil {
		w.odd = newOddities(w.g.config.Seed)
	}
	f := &w.g.report.Odd[n]
	data, err := w.odd.file(f.Kind, n%w.g.config.Odd, n)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return w.save(filepath.Join(w.g.dir, filepath.FromSlash(f.Path)), data)
}

// path is where file i belongs. ext begins with a dot, or is empty.
func (w *worker) path(i int, ext string) string {
	dir, class, _ := w.g.layout.place(i)
	return filepath.Join(w.g.dir, dir, class+"_"+strconv.Itoa(i)+ext)
}

func (w *worker) save(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		// An interrupted run left it, and it may be a link to the user's own file.
		if err := os.Remove(path); err != nil {
			return err
		}
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	w.done.Files++
	w.done.Bytes += int64(len(data))
	return nil
}

// copies makes all copies of source number s.
func (w *worker) copies(s int) error {
	source, err := filepath.EvalSymlinks(w.g.sources[s])
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	var data []byte // read when the first copy is made
	for k := range w.g.config.Copies {
		path := w.path(w.g.order[k*len(w.g.sources)+s], filepath.Ext(w.g.sources[s]))
		linked, err := w.link(source, path)
		if err != nil {
			return err
		}
		if linked {
			w.done.Files++
			w.done.Linked++
			w.done.Bytes += info.Size()
			continue
		}
		if data == nil {
			if data, err = os.ReadFile(source); err != nil {
				return err
			}
		}
		if err := w.save(path, data); err != nil {
			return err
		}
	}
	return nil
}

// link makes path a hard link to source, if links are wanted and possible. After the
// first that fails, which is a file system without links or another one than the
// source's, the run copies.
func (w *worker) link(source, path string) (linked bool, err error) {
	if !w.g.config.Link || w.g.linkFails.Load() {
		return false, nil
	}
	if err = os.Link(source, path); errors.Is(err, fs.ErrExist) { // an interrupted run left it
		if err := os.Remove(path); err != nil {
			return false, err
		}
		err = os.Link(source, path)
	}
	if err == nil {
		return true, nil
	}
	w.g.linkFails.Store(true)
	return false, nil
}
