package dataset

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"shardify/index"
	"shardify/internal/nearest"
	"shardify/sample"
)

// ExtractOptions are the options of Extract. The zero value extracts every sample.
type ExtractOptions struct {
	Selection
	// Fields limits the work to the fields of these names; empty means all.
	Fields []string `json:"fields,omitempty"`
	// AllFields also writes the fields that were generated in packing.
	AllFields bool `json:"all_fields,omitempty"`
	// Force replaces files that are there with other content.
	Force bool `json:"force,omitempty"`
	// Workers is how many shards are extracted at once; 0 means GOMAXPROCS.
	Workers int `json:"workers,omitempty"`
	// Progress, if not nil, is counted up: Bytes of the containers gone through, of
	// Total.
	Progress *Progress `json:"-"`
}

// Check reports every fault of the options, for that data set: a split, a class, a
// column or a field that it does not have.
func (o *ExtractOptions) Check(d *Dataset) error {
	faults := []error{d.Check(o.Selection)}
	known := d.Fields()
	for _, name := range o.Fields {
		if slices.Contains(known, name) {
			continue
		}
		hint := ""
		if n := nearest.Name(name, known); n != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", n)
		}
		faults = append(faults, fmt.Errorf("no field %q%s; the fields are %s", name, hint, strings.Join(known, ", ")))
	}
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers: %d is negative", o.Workers))
	}
	return errors.Join(faults...)
}

// ExtractResult sums up what Extract did.
type ExtractResult struct {
	// Samples were gone through; Files with Bytes were written; Same were there
	// already with the same content.
	Samples int64 `json:"samples"`
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Same    int64 `json:"same"`
	// Generated counts the fields that were left out because they have no path of
	// their own.
	Generated int64 `json:"generated"`
	// Failed counts what was reported; Damaged, of these, what is the data set's
	// fault: fields, and whole shards, whose bytes are gone or wrong.
	Failed  int64 `json:"failed"`
	Damaged int64 `json:"damaged"`
}

var (
	// ErrUnsafePath: a path leads outside the folder, or is none that the system
	// could hold.
	ErrUnsafePath = errors.New("not extracted: no path within a folder")
	// ErrExists: a file with other content, or a folder, is there. It is fs.ErrExist,
	// too.
	ErrExists error = &sentinel{"not extracted: in the way", fs.ErrExist}
)

// Extract turns a data set back into files below the folder dst, which it makes.
//
// # Names
//
// A field goes to the path it was packed from (index.FieldRow.Path, unescaped), byte
// for byte. In a sample where some fields have a path, the others were generated in
// packing (the class number "cls", values of a table) and are only written with
// AllFields. A field without a path goes to KEY.FIELD.
//
// # What is promised
//
// Contents are checked against their CRC-32C before they are written, and then
// appear under their name whole or not at all. Nothing is written outside dst,
// whatever the names in the data set are and whichever links lie in dst: such a name
// is ErrUnsafePath. A file that is there with the same content is left alone, so the
// same call again goes on after an interruption; with other content it is ErrExists,
// unless Force is given. Files are not forced to the disk one by one.
//
// What concerns one field or one shard (damage, a bad name, a file in the way) is
// given to report, never from two goroutines at once, and the work goes on. An error
// is returned for what stops all of it: bad options, ctx, a full disk.
func Extract(ctx context.Context, d *Dataset, dst string, opts ExtractOptions, report func(err error)) (ExtractResult, error) {
	e := &extraction{d: d, opts: opts, report: report}
	if err := e.prepare(); err != nil {
		return ExtractResult{}, err
	}
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return ExtractResult{}, err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return ExtractResult{}, err
	}
	defer root.Close()
	e.root, e.dst = root, dst
	// A folder that may not be written is found at once, not file by file.
	if err := e.write(".tmp-extract-probe", nil); err != nil {
		return ExtractResult{}, err
	}
	if err := root.Remove(".tmp-extract-probe"); err != nil {
		return ExtractResult{}, err
	}
	shards, err := d.Shards(opts.Split)
	if err != nil {
		return ExtractResult{}, err
	}
	for _, sh := range shards {
		e.opts.Progress.Total.Add(RawBytes(sh))
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(e.opts.Workers)
	for _, sh := range shards {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error { return e.shard(gctx, sh) })
	}
	err = group.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return e.result, err
}

// extraction is one run of Extract.
type extraction struct {
	d      *Dataset
	opts   ExtractOptions
	filter *filter
	root   *os.Root
	dst    string // root's path, for errors
	report func(error)
	made   sync.Map // folders that are there

	mu     sync.Mutex // of result and report
	result ExtractResult
	// places are locked while a file is looked for and put in its place, so that two
	// fields of one path meet in order.
	places [256]sync.Mutex
}

func (e *extraction) prepare() error {
	if err := e.opts.Check(e.d); err != nil {
		return err
	}
	var err error
	if e.filter, err = e.d.filter(e.opts.Selection); err != nil {
		return err
	}
	if e.opts.Workers == 0 {
		e.opts.Workers = runtime.GOMAXPROCS(0)
	}
	if e.opts.Progress == nil {
		e.opts.Progress = new(Progress)
	}
	return nil
}

// count adds to the result.
func (e *extraction) count(add func(r *ExtractResult)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	add(&e.result)
}

// failed reports an error and goes on, unless it concerns all that is still to come.
func (e *extraction) failed(ctx context.Context, err error) error {
	var stop *stopError
	if errors.As(err, &stop) || ctx.Err() != nil {
		return err
	}
	e.count(func(r *ExtractResult) {
		r.Failed++
		if !errors.As(err, new(*fileError)) {
			r.Damaged++
		}
		e.report(err)
	})
	return nil
}

// stopError is an error that ends the extraction: the next file would have it too.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }
func (e *stopError) Unwrap() error { return e.err }

// fileError is an error of the files below dst, rather than of the data set.
type fileError struct{ err error }

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// shard extracts the samples of a shard, front to back.
func (e *extraction) shard(ctx context.Context, sh *index.Shard) error {
	rows, err := e.d.Rows(ctx, sh)
	if err != nil {
		return e.failed(ctx, err)
	}
	f, err := e.d.OpenShard(ctx, sh)
	if err != nil {
		return e.failed(ctx, err)
	}
	defer f.Close()
	var buf []byte
	done := int64(0)
	for i := range rows {
		row := &rows[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.filter.match(row) {
			if buf, err = e.sample(ctx, f, row, buf); err != nil {
				return err
			}
			e.opts.Progress.Samples.Add(1)
		}
		e.opts.Progress.Bytes.Add(row.Offset + row.Size - done)
		done = row.Offset + row.Size
	}
	e.opts.Progress.Bytes.Add(RawBytes(sh) - done)
	e.opts.Progress.Shards.Add(1)
	return nil
}

// sample extracts the fields of a sample, in the order in which they lie.
func (e *extraction) sample(ctx context.Context, f *ShardFile, row *index.Row, buf []byte) ([]byte, error) {
	packed := slices.ContainsFunc(row.Fields, func(f index.FieldRow) bool { return f.Path != "" })
	slices.SortFunc(row.Fields, func(a, b index.FieldRow) int { return cmp.Compare(a.Offset, b.Offset) })
	e.count(func(r *ExtractResult) { r.Samples++ })
	for i := range row.Fields {
		field := &row.Fields[i]
		if len(e.opts.Fields) > 0 && !slices.Contains(e.opts.Fields, field.Name) {
			continue
		}
		if packed && field.Path == "" && !e.opts.AllFields {
			e.count(func(r *ExtractResult) { r.Generated++ })
			continue
		}
		name := sample.Unescape(field.Path)
		if name == "" {
			name = sample.Join(row.Key, field.Name)
		}
		var err error
		if buf, err = e.field(ctx, f, row, field, name, buf); err == nil {
			continue
		}
		if err := e.failed(ctx, fmt.Errorf("sample %q field %q: %w", row.Key, field.Name, err)); err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// field extracts one field to the file called name.
func (e *extraction) field(ctx context.Context, f *ShardFile, row *index.Row, field *index.FieldRow, name string, buf []byte) ([]byte, error) {
	local, err := localPath(name, runtime.GOOS == "windows")
	if err != nil {
		return buf, &fileError{err}
	}
	h := fnv.New32a()
	io.WriteString(h, strings.ToLower(local))
	place := &e.places[h.Sum32()%uint32(len(e.places))]
	place.Lock()
	defer place.Unlock()
	switch same, err := e.there(local, field); {
	case err != nil:
		return buf, &fileError{err}
	case same:
		e.count(func(r *ExtractResult) { r.Same++ })
		return buf, nil
	}
	data, err := f.ReadField(ctx, row, field, buf)
	if err != nil {
		return buf, err
	}
	if cap(data) > cap(buf) && field.Offset >= 0 {
		buf = data
	}
	if err := e.write(local, data); err != nil {
		if full(err) {
			return buf, &stopError{fmt.Errorf("%w; make room, then give the same command again to go on", err)}
		}
		return buf, &fileError{err}
	}
	e.count(func(r *ExtractResult) {
		r.Files++
		r.Bytes += int64(len(data))
	})
	return buf, nil
}

// full says that the disk, or a quota on it, is full, or may not be written at all.
func full(err error) bool {
	const diskFull = syscall.Errno(112) // Windows' ERROR_DISK_FULL
	return runtime.GOOS == "windows" && errors.Is(err, diskFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// localPath returns the path of a file of that slash-separated name below a folder.
func localPath(name string, windows bool) (string, error) {
	clean := path.Clean(name)
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("%w: %q %s", ErrUnsafePath, sample.Shorten(name), why)
	}
	switch {
	case name == "" || clean == ".":
		return refuse("is empty")
	case strings.HasSuffix(name, "/"):
		return refuse("is that of a folder")
	case strings.ContainsRune(name, 0):
		return refuse("has a zero byte")
	case !filepath.IsLocal(filepath.FromSlash(clean)) || path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return refuse("leads out of the folder")
	}
	if windows {
		for c := range strings.SplitSeq(clean, "/") {
			if strings.ContainsAny(c, `<>:"\|?*`) || strings.HasSuffix(c, ".") || strings.HasSuffix(c, " ") || strings.ContainsFunc(c, func(r rune) bool { return r < 0x20 }) || reserved(c) {
				return refuse("is a name that Windows cannot hold; extract it on another system")
			}
		}
	}
	return filepath.FromSlash(clean), nil
}

// reserved says whether a path component names a device on Windows, with any ending.
func reserved(component string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(component), ".")
	base = strings.TrimRight(base, " ")
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	if strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT") {
		return slices.Contains([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³"}, base[3:])
	}
	return false
}

// there says whether the file is there already, with the content of the field.
func (e *extraction) there(local string, field *index.FieldRow) (bool, error) {
	info, err := e.root.Lstat(local)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, e.fault(err, local)
	case info.IsDir():
		return false, fmt.Errorf("%w: %q is a folder", ErrExists, local)
	}
	if info.Mode().IsRegular() && info.Size() == field.Size {
		f, err := e.root.Open(local)
		if err != nil {
			return false, e.fault(err, local)
		}
		defer f.Close()
		sum, err := fileChecksum(f)
		if err != nil {
			return false, e.fault(err, local)
		}
		if sum == field.CRC32C {
			return true, nil
		}
	}
	if e.opts.Force {
		return false, nil
	}
	return false, fmt.Errorf("%w: %q has other content; --force replaces it", ErrExists, local)
}

func fileChecksum(r io.Reader) (sum uint32, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		sum = index.UpdateFieldChecksum(sum, buf[:n])
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// fault names the folder in an error of os.Root, and marks that of a path which
// leaves the folder by a link.
func (e *extraction) fault(err error, local string) error {
	var p *fs.PathError
	if errors.As(err, &p) && strings.Contains(p.Err.Error(), "escapes") {
		return fmt.Errorf("%w: %q in %s: %w", ErrUnsafePath, local, e.dst, err)
	}
	return fmt.Errorf("in %s: %w", e.dst, err)
}

// write puts data into a file of its own, and that in its place.
func (e *extraction) write(local string, data []byte) error {
	dir := filepath.Dir(local)
	if _, ok := e.made.Load(dir); !ok && dir != "." {
		if err := e.root.MkdirAll(dir, 0o777); err != nil {
			return e.fault(err, local)
		}
		e.made.Store(dir, true)
	}
	temp := filepath.Join(dir, ".tmp-extract-"+rand.Text())
	f, err := e.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return e.fault(err, local)
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = e.root.Rename(temp, local)
	}
	if err != nil {
		e.root.Remove(temp)
		return e.fault(err, local)
	}
	return nil
}
