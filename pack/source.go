package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"shardify/index"
	"shardify/shard/formats"
	"shardify/source"
	"shardify/source/folder"
	"shardify/source/table"
	"shardify/source/tars"
	"shardify/store"
	"shardify/store/open"
	"shardify/store/stream"
)

// Source says what is packed. The zero value of every field but Paths is its
// default.
type Source struct {
	// Paths are folders of images, or shards, folders of them and patterns for them; in a
	// bucket, s3://bucket/prefix; and of a web server data sets of ours and shards, https://
	// URLs with braces, whose users, passwords and queries go into no plan or manifest. With FilesFrom or Table it is at most one folder, which
	// the paths in there are relative to; default: the working directory for FilesFrom,
	// the table's own folder for Table.
	Paths []string `json:"paths,omitempty"`
	// Layout is that of folders: "classes", "splits" or "flat"; see package
	// source/folder, which finds it out by default.
	Layout string `json:"layout,omitempty"`
	// Include and Exclude are doublestar patterns of the paths to take.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Split names the split of samples that have none; default "train".
	Split string `json:"split,omitempty"`
	// FilesFrom is a file with a list of files, NUL- or newline-separated; "-" is
	// Env.Stdin.
	FilesFrom string `json:"files_from,omitempty"`
	// Table is a table of paths, labels and fields; see package source/table.
	Table       string `json:"table,omitempty"`
	PathColumn  string `json:"path_column,omitempty"`
	LabelColumn string `json:"label_column,omitempty"`
	SplitColumn string `json:"split_column,omitempty"`
	KeyColumn   string `json:"key_column,omitempty"`
}

// Validate reports every fault at once. It does no I/O.
func (s Source) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if s.FilesFrom != "" && s.Table != "" {
		fault("files-from and table both say which files there are: give one")
	}
	listed := s.FilesFrom != "" || s.Table != ""
	if listed && len(s.Paths) > 1 {
		fault("with files-from or table at most one folder can be given, which the paths are relative to; there are %d", len(s.Paths))
	}
	if !listed && len(s.Paths) == 0 {
		fault("no source")
	}
	if len(s.Paths) > 1<<16 {
		fault("%d sources, of which there can be 65,536", len(s.Paths))
	}
	if s.Table == "" && (s.PathColumn != "" || s.LabelColumn != "" || s.SplitColumn != "" || s.KeyColumn != "") {
		fault("columns are given but no table")
	}
	cfg := s.folder(Env{})
	if err := cfg.Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (s Source) folder(env Env) folder.Config {
	return folder.Config{Layout: s.Layout, Include: s.Include, Exclude: s.Exclude, Workers: env.Workers}
}

// withoutSecrets is s with paths that only name what is packed.
func (s Source) withoutSecrets() Source {
	s.Paths = slices.Clone(s.Paths)
	for i, p := range s.Paths {
		s.Paths[i] = stream.Shown(p)
	}
	return s
}

// sources are what is packed, open.
type sources []source.Source

// folders are where the files lie.
func (s Source) folders() []string {
	switch {
	case len(s.Paths) > 0:
		return s.Paths
	case s.Table != "":
		return []string{filepath.Dir(s.Table)}
	}
	return []string{"."}
}

// kinds tells them apart as far as reading a plan's locations needs it.
func (s sources) kinds() []string {
	out := make([]string, len(s))
	for i, src := range s {
		out[i] = fmt.Sprintf("%T", src)
	}
	return out
}

// remoteReaders is how many objects of a bucket are asked for at once: at 20 ms a request
// 64 make 3,000 a second, more than two cores check.
const remoteReaders = 64

// remote says that some come over a network, so that many files should be read at once.
func (s sources) remote() bool {
	return slices.ContainsFunc(s, func(src source.Source) bool {
		r, ok := src.(interface{ Remote() bool })
		return ok && r.Remote()
	})
}

// close ends their use.
func (s sources) close() error {
	var errs []error
	for _, src := range s {
		if c, ok := src.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// open opens the sources. A path is a shard, a folder that holds shards or a data
// set of ours, or else a folder of images; each may be in a bucket, s3://bucket/prefix.
func (s Source) open(ctx context.Context, env Env) (out sources, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
		}
	}()
	root := ""
	if len(s.Paths) > 0 {
		root = s.Paths[0]
	}
	switch {
	case s.Table != "":
		cfg := table.Config{
			Root: root, PathColumn: s.PathColumn, LabelColumn: s.LabelColumn, SplitColumn: s.SplitColumn, KeyColumn: s.KeyColumn,
			Workers: env.Workers,
		}
		if isURL(root) {
			if cfg.Store, err = openStore(ctx, root); err != nil {
				return nil, err
			}
			cfg.Root = ""
		}
		src, err := table.Open(s.Table, cfg)
		if err != nil {
			return nil, err
		}
		return sources{src}, nil
	case s.FilesFrom != "":
		src, err := s.openList(ctx, root, env)
		if err != nil {
			return nil, err
		}
		return sources{src}, nil
	}
	var shards []string
	for _, path := range s.Paths {
		is, err := isShards(ctx, path)
		if err != nil {
			return out, err
		}
		if is {
			shards = append(shards, path)
			continue
		}
		src, err := s.openFolder(ctx, path, env)
		if err != nil {
			return out, err
		}
		out = append(out, src)
	}
	if len(shards) > 0 {
		src, err := tars.Open(ctx, shards, tars.Config{Workers: env.Workers, TempDir: env.TempDir})
		if err != nil {
			return out, err
		}
		out = append(out, src)
	}
	return out, nil
}

// isURL says that a path is none of this machine.
func isURL(path string) bool { return !store.IsLocal(path) }

// openStore opens a store that has files to pack.
func openStore(ctx context.Context, url string) (store.Store, error) {
	st, err := open.Retried(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return st, nil
}

// openFolder opens a folder of images, on this machine or in a bucket.
func (s Source) openFolder(ctx context.Context, path string, env Env) (source.Source, error) {
	if !isURL(path) {
		return folder.Open(path, s.folder(env))
	}
	st, err := openStore(ctx, path)
	if err != nil {
		return nil, err
	}
	return folder.OpenStore(ctx, st, s.folder(env))
}

// isShards says that path is a shard, a pattern for shards, or a folder whose files are
// shards or a data set of ours.
func isShards(ctx context.Context, path string) (bool, error) {
	if isURL(path) {
		return isShardsURL(ctx, path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && tars.IsPattern(path):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("source %q: %w; check the spelling", path, fs.ErrNotExist)
	case err != nil:
		return false, fmt.Errorf("source %w", err)
	case !info.IsDir():
		if _, err := formats.OfFile(path); err != nil {
			return false, fmt.Errorf("source %q is a file, and no shard: %w; a list of files goes with --files-from, a table with --table", path, err)
		}
		return true, nil
	}
	if _, err := os.Stat(filepath.Join(path, index.ManifestName)); err == nil {
		return true, nil
	}
	for _, f := range formats.All() {
		if found, err := filepath.Glob(filepath.Join(escapeGlob(path), "*"+f.Extension())); err != nil || len(found) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// lookAt is how many names of a bucket's folder are looked at to find shards among them.
const lookAt = 10_000

// isShardsURL is isShards for a store. A folder without an object is an error.
func isShardsURL(ctx context.Context, url string) (bool, error) {
	if stream.IsHTTP(url) {
		return true, nil // package tars says of the rest what to do
	}
	st, err := openStore(ctx, url)
	if err != nil {
		return false, err
	}
	if _, err := formats.OfFile(url); err == nil {
		return true, nil
	}
	switch _, err := store.Stat(ctx, st, index.ManifestName); {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("source: %w", err)
	}
	names := 0
	for info, err := range store.ListFrom(ctx, st, "", "", true) {
		if err != nil {
			return false, fmt.Errorf("source: %w", err)
		}
		if _, err := formats.OfFile(info.Name); err == nil {
			return true, nil
		}
		if names++; names == lookAt {
			break
		}
	}
	if names == 0 {
		return false, fmt.Errorf("source %s: %w: there is no object; check the bucket and the prefix", st.URL(), fs.ErrNotExist)
	}
	return false, nil
}

// escapeGlob keeps a path's own characters from being taken for a pattern.
func escapeGlob(path string) string {
	if filepath.Separator == '\\' {
		return path // Windows has no escape, and no such names
	}
	return globChars.ReplaceAllString(path, `\$0`)
}

var globChars = regexp.MustCompile(`[*?\[\\]`)

func (s Source) openList(ctx context.Context, root string, env Env) (source.Source, error) {
	names := folder.NamesFile(s.FilesFrom)
	if s.FilesFrom == "-" {
		if env.Stdin == nil {
			return nil, errors.New("files-from is -, and there is no standard input")
		}
		names = folder.Names(env.Stdin)
	}
	if isURL(root) {
		st, err := openStore(ctx, root)
		if err != nil {
			return nil, err
		}
		return folder.ListStore(ctx, st, names, s.folder(env))
	}
	return folder.List(cmp.Or(root, "."), names, s.folder(env))
}
