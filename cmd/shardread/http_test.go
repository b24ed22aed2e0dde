package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/store/file"
)

// Every command reads from a web server what it reads from a folder, and a shard of it as
// a stream; and shows nothing of what lets it in.
func TestHTTP(t *testing.T) {
	t.Setenv("NETRC", os.DevNull)
	t.Setenv("SHARDIFY_HTTP_HEADER", "X-Key: SECRET")
	root := t.TempDir()
	local := filepath.Join(root, "a set")
	files := http.FileServer(http.Dir(root))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "SECRET" || r.Header.Get("X-Key") != "SECRET" || r.URL.Query().Get("sig") != "SECRET" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	login := strings.Replace(server.URL, "://", "://me:SECRET@", 1)
	remote := login + "/a%20set?sig=SECRET"
	datasettest.Write(t, file.New(local), datasettest.Options{})
	run := func(args ...string) (out, all string) {
		var stdout, stderr bytes.Buffer
		root := newRootCommand()
		root.SetArgs(args)
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		err := root.ExecuteContext(t.Context())
		all = stdout.String() + stderr.String()
		if err != nil {
			all += err.Error()
		}
		if strings.Contains(all, "SECRET") {
			t.Errorf("%q: secrets in %s", args[0], all)
		}
		return stdout.String(), all
	}
	state := filepath.Join(root, "state")
	for _, args := range [][]string{
		{"stream", "--format", "jsonl", "--shuffle", "window"},
		{"stream", "--format", "jsonl", "--shuffle", "global"},
		{"stream", "--format", "tar", "--shuffle", "none", "--state-out", state},
		{"head", "--json", "-n", "30"},
		{"plan", "--keys", "--shuffle", "window"},
		{"stream", "--format", "jsonl", "--shuffle", "window", "--cache", filepath.Join(t.TempDir(), "cache")},
	} {
		at := func(dst string) string {
			out, all := run(append([]string{args[0], dst}, args[1:]...)...)
			if out == "" {
				t.Error(all)
			}
			return out
		}
		if got, want := at(remote), at(local); got != want {
			t.Errorf("%q: over HTTP %d bytes, from a folder %d others", args, len(got), len(want))
		}
	}
	if data, err := os.ReadFile(state); err != nil || bytes.Contains(data, []byte("SECRET")) {
		t.Errorf("the state: %s, %v", data, err)
	}
	if out, all := run("bench", remote, "--crop", "24", "--batch", "4", "--json"); !strings.Contains(out, `"samples":28`) && !strings.Contains(out, `"samples":30`) {
		t.Errorf("bench: %s", all)
	}

	// Shards by their names, without an index.
	for _, dst := range []string{"/a%20set/train-{000000..000002}.tar?sig=SECRET", "/a%20set/train-000001.tar?sig=SECRET"} {
		if out, all := run("stream", login+dst, "--format", "jsonl"); out == "" {
			t.Errorf("%s: %s", dst, all)
		}
	}
	// What is not there, or not to be seen.
	for dst, says := range map[string]string{
		login + "/b?sig=SECRET":        "there is no manifest.json: check the URL",
		server.URL + "/a%20set":        "403 Forbidden",
		login + "/b.tar?sig=SECRET":    "404 Not Found",
		server.URL + "/a.tar?x=SECRET": "403 Forbidden",
	} {
		if out, all := run("stream", dst, "--format", "jsonl"); out != "" || !strings.Contains(all, says) {
			t.Errorf("%s: %s; want %s", dst, all, says)
		}
	}
}
