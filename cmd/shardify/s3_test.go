package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardify/internal/peers"
	"shardify/pack"
	"shardify/store"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// imagenet links the photographs into class folders.
func imagenet(t *testing.T) string {
	t.Helper()
	photos := peers.Photographs(t)
	src := filepath.Join(t.TempDir(), "imagenet")
	list, err := os.ReadDir(photos)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		class, _, _ := strings.Cut(e.Name(), "_")
		if err := os.MkdirAll(filepath.Join(src, class), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(photos, e.Name()), filepath.Join(src, class, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return src
}

// leftovers are the files in the server's folder that are no objects: parts of uploads.
func leftovers(t *testing.T, server *s3test.Server) (left []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(server.Dir, s3test.Bucket, ".sgwtmp"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() && strings.Contains(path, "multipart") {
			left = append(left, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// lasting are the leftovers that stay: a server that is asked to complete an upload does
// so also where nobody waits for the answer any more.
func lasting(t *testing.T, server *s3test.Server) (left []string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if left = leftovers(t, server); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// objects are the digests of what lies at a URL, as files has those of a folder.
func objects(t *testing.T, url string) map[string]string {
	t.Helper()
	st, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := store.ReadAll(t.Context(), st, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		out[info.Name] = hex.EncodeToString(sum[:])
	}
	return out
}

// uploading are the uploads under a URL that have not ended.
func uploading(t *testing.T, url string) (left []string) {
	t.Helper()
	st, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for u, err := range st.(store.Sweeper).Unfinished(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, u.Name)
	}
	return left
}

// Every command does over s3:// what it does in a folder, to the same bytes, whoever's the
// server is.
func TestS3(t *testing.T) {
	for name, start := range s3test.Servers() {
		t.Run(name, func(t *testing.T) { inBucket(t, start(t)) })
	}
}

func inBucket(t *testing.T, server *s3test.Server) {
	src := imagenet(t)
	server.Setenv(t, server.Endpoint)
	local := filepath.Join(t.TempDir(), "set")
	const remote = "s3://" + s3test.Bucket + "/deep/set"
	do(t, "pack", src, local, "--shards", "2", "--seed", "7")
	do(t, "pack", src, remote, "--shards", "2", "--seed", "7")
	want := files(t, local)
	if got := objects(t, remote); !reflect.DeepEqual(got, want) {
		t.Errorf("the bucket has %v; want %v", got, want)
	}
	if left := uploading(t, remote); len(left) > 0 {
		t.Errorf("packing has left %q", left)
	}
	if _, stderr := do(t, "pack", src, remote, "--shards", "2", "--seed", "7"); !strings.Contains(stderr, "finished already") {
		t.Errorf("a second pack says %q", stderr)
	}
	do(t, "verify", remote)
	for _, args := range [][]string{{"ls", "DST"}, {"ls", "DST", "--json"}, {"cat", "DST", "n01440764/n01440764_10026", "cls"}} {
		run := func(dst string) string {
			args := append([]string(nil), args...)
			args[1] = dst
			if args[0] == "cat" {
				// Any sample will do.
				key, _ := do(t, "ls", dst, "--json")
				_, key, _ = strings.Cut(key, `"key":"`)
				args[2], _, _ = strings.Cut(key, `"`)
			}
			out, _ := do(t, args...)
			return strings.ReplaceAll(out, dst, "DST")
		}
		if got, want := run(remote), run(local); got != want || want == "" {
			t.Errorf("%q: over S3: %.300q, in a folder: %.300q", args, got, want)
		}
	}
	if out, _ := do(t, "info", remote); !strings.Contains(out, "250") {
		t.Errorf("info says %q", out)
	}
	back := t.TempDir()
	do(t, "extract", remote, back)
	if got, want := files(t, back), files(t, src); !reflect.DeepEqual(got, want) {
		t.Errorf("extracted %d files; want the %d of the source", len(got), len(want))
	}

	// Shards that others made.
	foreign, err := open.URL(t.Context(), "s3://"+s3test.Bucket+"/foreign")
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if strings.HasSuffix(name, ".tar") {
			data, err := os.ReadFile(filepath.Join(local, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := store.WriteAll(t.Context(), foreign, name, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	do(t, "index", foreign.URL())
	do(t, "verify", foreign.URL())
}

// A pack that ends in the middle leaves no data set, no part of a shard and no parts of
// uploads; the same command finishes it, to the same bytes.
func TestS3PackInterrupted(t *testing.T) {
	src := imagenet(t)
	server := s3test.Start(t)
	var fail atomic.Bool
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if fail.Load() && r.Method == http.MethodPost && strings.Contains(r.Query, "uploadId") && strings.Contains(r.Path, "000001") {
			return s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return s3test.Fault{}
	})
	server.Setenv(t, front.URL)
	const remote = "s3://" + s3test.Bucket + "/set"
	args := []string{"pack", src, remote, "--shards", "2"}
	fail.Store(true)
	root := newRootCommand()
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	if err := root.ExecuteContext(context.Background()); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("pack: %v", err)
	}
	if left := lasting(t, server); len(left) > 0 {
		t.Errorf("a pack that failed has left %q", left)
	}
	st, err := open.URL(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Name == "manifest.json" || strings.Contains(info.Name, "000001.tar") {
			t.Errorf("a pack that failed has left %s", info.Name)
		}
	}
	fail.Store(false)
	do(t, args...)
	local := filepath.Join(t.TempDir(), "set")
	do(t, "pack", src, local, "--shards", "2")
	if got, want := files(t, filepath.Join(server.Dir, s3test.Bucket, "set")), files(t, local); !reflect.DeepEqual(got, want) {
		t.Errorf("the bucket has %v; want %v", got, want)
	}
}

// Objects of a bucket are packed as files of a folder are, to the same shards: by their
// prefix, by a list, by a table; into a bucket or a folder.
func TestS3Source(t *testing.T) {
	src := imagenet(t)
	const photos = 40 // are enough
	for i, name := range slices.Sorted(maps.Keys(files(t, src))) {
		if i >= photos {
			if err := os.Remove(filepath.Join(src, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	server := s3test.Start(t)
	var late atomic.Int64 // milliseconds of a request
	front := server.Front(t, func(s3test.Request) s3test.Fault {
		return s3test.Fault{Stall: time.Duration(late.Load()) * time.Millisecond}
	})
	server.Setenv(t, front.URL)
	const images = "s3://" + s3test.Bucket + "/some/images"
	bucket, err := open.URL(t.Context(), images)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var csv strings.Builder
	csv.WriteString("path,label\n")
	for name := range files(t, src) {
		name = filepath.ToSlash(name)
		data, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.WriteAll(t.Context(), bucket, name, data); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		class, _, _ := strings.Cut(name, "/")
		fmt.Fprintf(&csv, "%s/%s,%s\n", images, name, class)
	}
	work := t.TempDir()
	list, table := filepath.Join(work, "list"), filepath.Join(work, "table.csv")
	for path, text := range map[string]string{list: strings.Join(names, "\n"), table: csv.String()} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shards := func(dir string) map[string]string {
		all := files(t, dir)
		delete(all, "manifest.json") // it has the options, and so the source
		return all
	}
	do(t, "pack", src, filepath.Join(work, "local"), "--shards", "2")
	want := shards(filepath.Join(work, "local"))
	late.Store(20)
	for name, args := range map[string][]string{
		"prefix": {"pack", images, "s3://" + s3test.Bucket + "/prefix"},
		"list":   {"pack", "--files-from", list, images, "s3://" + s3test.Bucket + "/list"},
		"table":  {"pack", "--table", table, images, "s3://" + s3test.Bucket + "/table"},
	} {
		do(t, append(args, "--shards", "2")...)
		got := shards(filepath.Join(server.Dir, s3test.Bucket, name))
		if name == "table" { // its samples are not those of files
			do(t, "verify", args[len(args)-1])
			if len(got) != len(want) {
				t.Errorf("%s: the bucket has %v", name, got)
			}
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the bucket has %v; want %v", name, got, want)
		}
	}
	late.Store(0)
	do(t, "pack", images, filepath.Join(work, "down"), "--shards", "2")
	if got := shards(filepath.Join(work, "down")); !reflect.DeepEqual(got, want) {
		t.Errorf("from the bucket to a folder: %v; want %v", got, want)
	}
	repack(t, filepath.Join(work, "local"), filepath.Join(work, "again"), shards, func(ms int64) { late.Store(ms) }, filepath.Join(server.Dir, s3test.Bucket))
	out, _ := do(t, "pack", images, filepath.Join(work, "none"), "--shards", "2", "--dry-run", "--json")
	if !strings.Contains(out, fmt.Sprintf(`"samples":%d`, photos)) {
		t.Errorf("a dry run says %s", out)
	}

	// What cannot be a source.
	for _, c := range []struct {
		args []string
		is   error
		says string
	}{
		{[]string{"pack", "s3://" + s3test.Bucket + "/nothing", filepath.Join(work, "x")}, fs.ErrNotExist, "check the bucket and the prefix"},
		{[]string{"pack", "s3://" + s3test.Bucket + "/missing.tar", filepath.Join(work, "x")}, fs.ErrNotExist, "check the bucket and the name"},
		{[]string{"pack", "s3://" + s3test.Bucket + "/prefix/none-*.tar", filepath.Join(work, "x")}, nil, "no shards"},
		{[]string{"pack", "s3://no-such-bucket/x", filepath.Join(work, "x")}, fs.ErrNotExist, "no bucket"},
		{[]string{"pack", "https://user:SECRET@127.0.0.1:1/x", filepath.Join(work, "x")}, nil, "127.0.0.1:1/x"},
	} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetArgs(c.args)
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(context.Background())
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(out.String()+err.Error(), "SECRET") {
			t.Errorf("%q: %v", c.args[1], err)
		}
	}
}

// repack packs the shards at s3://bucket/prefix again, and of every other compression, as
// those of the folder local, which they equal; late sets the milliseconds of a request.
func repack(t *testing.T, local, work string, shards func(dir string) map[string]string, late func(ms int64), bucket string) {
	t.Helper()
	const url = "s3://" + s3test.Bucket + "/"
	for _, f := range []string{"tar", "tar.gz", "tar.zst"} {
		from := filepath.Join(work, f)
		do(t, "pack", local, from, "--shards", "2", "--format", f)
		do(t, "pack", local, url+"from-"+f, "--shards", "2", "--format", f)
		do(t, "pack", from, filepath.Join(work, f+"-again"), "--shards", "3")
		want := shards(filepath.Join(work, f+"-again"))
		late(20)
		do(t, "pack", url+"from-"+f, url+"again-"+f, "--shards", "3")
		late(0)
		if got := shards(filepath.Join(bucket, "again-"+f)); len(want) < 6 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s from the bucket to the bucket: %v; want %v", f, got, want)
		}
		if f == "tar.zst" {
			continue
		}
		// Without the indexes, as shards that others made.
		do(t, "pack", filepath.Join(from, "*."+f), filepath.Join(work, f+"-loose"), "--shards", "3")
		do(t, "pack", url+"from-"+f+"/*."+f, filepath.Join(work, f+"-down"), "--shards", "3")
		if got, want := shards(filepath.Join(work, f+"-down")), shards(filepath.Join(work, f+"-loose")); len(want) < 6 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s by a pattern: %v; want %v", f, got, want)
		}
	}
}

// What a packer that was killed in the middle of an upload has left, gc finds, and
// removes when nobody can be at work any more; and the same command finishes the rest.
func TestS3GC(t *testing.T) {
	src := imagenet(t)
	server := s3test.Start(t)
	let := make(chan struct{})
	var parts atomic.Int64
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if strings.Contains(r.Query, "partNumber") && parts.Add(1) > 1 {
			<-let // it never ends
		}
		return s3test.Fault{}
	})
	defer close(let)
	remote := "s3://" + s3test.Bucket + "/set"
	args := []string{"pack", src, remote, "--shards", "1"}
	cmd := exec.Command("shardify", args...)
	cmd.Env = append(append(os.Environ(), server.Environment(front.URL)...), "SHARDIFY_S3_LEASE=2s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	// The first part is on the server's disk, the second on its way.
	wait("no part has come", func() bool { return parts.Load() > 1 && len(leftovers(t, server)) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	server.Setenv(t, server.Endpoint)
	gc := func(more ...string) (string, error) {
		var out bytes.Buffer
		root := newRootCommand()
		root.SetArgs(append([]string{"gc", remote, "--json"}, more...))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(context.Background())
		if strings.Contains(out.String()+fmt.Sprint(err), server.Secret) {
			t.Error("gc shows the secret key")
		}
		return out.String(), err
	}
	if out, err := gc(); err != nil || !strings.Contains(out, `"found":0`) || strings.Contains(out, `"young":0`) {
		t.Errorf("of what is young gc says %s, %v", out, err)
	}
	out, err := gc("--older-than", "0s")
	if err != nil || !strings.Contains(out, `"kind":"unfinished write","name":"train-000000.tar","bytes":8388608`) || !strings.Contains(out, `"needs":"unfinished"`) {
		t.Errorf("gc says %s, %v", out, err)
	}
	if len(leftovers(t, server)) == 0 {
		t.Error("gc without --delete has removed the upload")
	}
	// The lock of the killed run ends with its lease.
	wait("its lock does not end", func() bool {
		out, err = gc("--older-than", "0s", "--delete")
		return !errors.Is(err, store.ErrLocked)
	})
	if err != nil || strings.Contains(out, `"removed":0`) {
		t.Errorf("gc --delete says %s, %v", out, err)
	}
	if left := lasting(t, server); len(left) > 0 {
		t.Errorf("gc has left %q", left)
	}
	do(t, args...)
	do(t, "verify", remote)
	if out, err := gc("--older-than", "0s"); err != nil || !strings.Contains(out, `"found":0`) || !strings.Contains(out, `"kept":0`) {
		t.Errorf("of the finished data set gc says %s, %v", out, err)
	}
	for _, dst := range []string{"s3://" + s3test.Bucket + "/nothing", t.TempDir()} {
		root := newRootCommand()
		root.SetArgs([]string{"gc", dst})
		root.SetOut(new(bytes.Buffer))
		root.SetErr(new(bytes.Buffer))
		if err := root.ExecuteContext(context.Background()); !errors.Is(err, pack.ErrForeign) {
			t.Errorf("gc of nothing: %v", err)
		}
	}
}

// Commands ask for what they need of shards, and not for all of them.
func TestS3Ranges(t *testing.T) {
	src := imagenet(t)
	server := s3test.Start(t)
	front := server.Front(t, nil)
	server.Setenv(t, front.URL)
	const set = "s3://" + s3test.Bucket + "/set"
	do(t, "pack", src, set, "--shards", "2")
	out, _ := do(t, "ls", set, "--json", "-n", "1")
	_, key, _ := strings.Cut(out, `"key":"`)
	key, _, _ = strings.Cut(key, `"`)
	var total int64
	for _, name := range []string{"train-000000.tar", "train-000001.tar"} {
		info, err := os.Stat(filepath.Join(server.Dir, s3test.Bucket, "set", name))
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	for _, c := range []struct {
		args []string
		most int64 // bytes of shards
	}{
		{[]string{"ls", set}, 0},
		{[]string{"info", set}, 0},
		{[]string{"cat", set, key, "cls"}, 1 << 10},
		{[]string{"cat", set, key, "jpg"}, total / 20},
		{[]string{"extract", set, filepath.Join(t.TempDir(), "one"), "--where", "key = '" + key + "'"}, total / 20},
		{[]string{"verify", set}, total + total/20},
	} {
		front.Forget()
		do(t, c.args...)
		var sent int64
		for _, r := range front.Forget() {
			if strings.HasSuffix(r.Path, ".tar") {
				sent += r.Sent
			}
		}
		if sent > c.most {
			t.Errorf("%q: %d bytes of shards, of %d", c.args[0], sent, total)
		}
	}
}
