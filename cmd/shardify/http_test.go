package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/store"
	"shardify/store/file"
)

// Every command that reads does over HTTP what it does in a folder, and those that write
// refuse it; none shows what lets it in.
func TestHTTP(t *testing.T) {
	t.Setenv("NETRC", os.DevNull)
	root := t.TempDir()
	local := filepath.Join(root, "set")
	served := http.FileServer(http.Dir(root))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "SECRET" || r.URL.Query().Get("sig") != "SECRET" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		served.ServeHTTP(w, r)
	}))
	defer server.Close()
	remote := strings.Replace(server.URL, "://", "://me:SECRET@", 1) + "/set?sig=SECRET"
	datasettest.Write(t, file.New(local), datasettest.Options{})
	run := func(args ...string) (string, error) {
		var stdout, stderr bytes.Buffer
		root := newRootCommand()
		root.SetArgs(args)
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		err := root.ExecuteContext(t.Context())
		all := stdout.String() + stderr.String()
		if err != nil {
			all += err.Error()
		}
		if strings.Contains(all, "SECRET") {
			t.Errorf("%q: secrets in %s", args[0], all)
		}
		return strings.ReplaceAll(stdout.String(), server.URL+"/set", local), err
	}
	out, err := run("ls", remote, "--json")
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := strings.Cut(out, `"key":"`)
	key, _, _ = strings.Cut(key, `"`)
	for _, args := range [][]string{
		{"info", "DST"},
		{"info", "DST", "--json"},
		{"ls", "DST", "--json"},
		{"cat", "DST", key, "cls"},
		{"verify", "DST"},
	} {
		var outs []string
		for _, dst := range []string{remote, local} {
			args[1] = dst
			out, err := run(args...)
			if err != nil {
				t.Errorf("%q: %v", args[0], err)
			}
			outs = append(outs, out)
		}
		if outs[0] != outs[1] {
			t.Errorf("%q: over HTTP %s, in a folder %s", args[0], outs[0], outs[1])
		}
	}
	back, want := filepath.Join(root, "back"), filepath.Join(root, "want")
	for dir, dst := range map[string]string{back: remote, want: local} {
		if _, err := run("extract", dst, dir); err != nil {
			t.Error(err)
		}
	}
	if got := files(t, back); len(got) == 0 || !reflect.DeepEqual(got, files(t, want)) {
		t.Errorf("extracted %v", got)
	}
	// A fault is found.
	shard := filepath.Join(local, "train-000000.tar")
	data, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	data[600] ^= 1
	if err := os.WriteFile(shard, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := run("verify", remote); !errors.Is(err, errDamaged) || !strings.Contains(out, "train-000000.tar") {
		t.Errorf("verify of what is damaged: %s, %v", out, err)
	}
	for _, args := range [][]string{
		{"pack", local, remote}, {"pack", local, remote, "--dry-run"}, {"index", remote}, {"index", remote, "--jpeg-seek"},
	} {
		if _, err := run(args...); !errors.Is(err, store.ErrReadOnly) || !strings.Contains(err.Error(), server.URL[7:]+"/set") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
