package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/store/file"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// No command shows or writes down what lets it into a bucket or a web server, whether it
// succeeds or is refused: not in what it prints, in a state, nor in a cache.
func TestSecrets(t *testing.T) {
	server := s3test.Start(t)
	const token = "SESSION-TOKEN"
	secrets := []string{server.Access, server.Secret, token, "Signature=", "URL-SECRET", "SIG-SECRET", "HEADER-SECRET", "NETRC-SECRET"}
	var refuse atomic.Pointer[string]
	front := server.Front(t, func(s3test.Request) s3test.Fault {
		if code := refuse.Load(); code != nil {
			return s3test.Fault{Status: http.StatusForbidden, Code: *code}
		}
		return s3test.Fault{}
	})
	root := t.TempDir()
	served := http.FileServer(http.Dir(root))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		let := password == "URL-SECRET" || password == "NETRC-SECRET" || r.URL.Query().Get("X-Amz-Signature") == "SIG-SECRET"
		if refuse.Load() != nil || !let || r.Header.Get("X-Key") != "HEADER-SECRET" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		served.ServeHTTP(w, r)
	}))
	defer web.Close()
	netrc := filepath.Join(t.TempDir(), "netrc")
	if err := os.WriteFile(netrc, []byte("machine 127.0.0.1 login me password NETRC-SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NETRC", netrc)
	t.Setenv("SHARDIFY_HTTP_HEADER", "X-Key: HEADER-SECRET")
	server.Setenv(t, front.URL)
	const bucket = "s3://" + s3test.Bucket + "/set"
	st, err := open.URL(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	datasettest.Write(t, st, datasettest.Options{})
	datasettest.Write(t, file.New(filepath.Join(root, "set")), datasettest.Options{})

	check := func(what string, data []byte) {
		t.Helper()
		for _, secret := range secrets {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%q is in %s: %.300s", secret, what, data)
			}
		}
	}
	run := func(fails bool, args ...string) {
		t.Helper()
		var out, log bytes.Buffer
		root := newRootCommand()
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&log)
		err := root.ExecuteContext(t.Context())
		if (err != nil) != fails {
			t.Errorf("%q: %v\n%s", args, err, log.String())
		}
		check(fmt.Sprintf("what %q says", args), fmt.Appendf(nil, "%s%s%v%+v", out.String(), log.String(), err, err))
	}
	login := strings.Replace(web.URL, "://", "://me:URL-SECRET@", 1)
	for i, dst := range []string{bucket, web.URL + "/set", login + "/set", web.URL + "/set?X-Amz-Signature=SIG-SECRET"} {
		dir := t.TempDir()
		commands := [][]string{
			{"stream", dst, "--format", "jsonl", "--state-out", filepath.Join(dir, "state"), "--cache", filepath.Join(dir, "cache")},
			{"head", dst, "--json"}, {"plan", dst, "--keys"}, {"bench", dst, "--decode", "none", "--json"},
		}
		if i > 0 {
			first, query, _ := strings.Cut(dst, "?")
			commands = append(commands, []string{"stream", first + "/train-{000000..000002}.tar?" + query, "--format", "jsonl", "--state-out", filepath.Join(dir, "other")})
		}
		for _, args := range commands {
			run(false, args...)
		}
		if i == 0 {
			t.Setenv("AWS_SESSION_TOKEN", token) // the server knows none
		}
		for _, code := range []string{"SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "AccessDenied"} {
			refuse.Store(&code)
			for _, args := range commands {
				run(true, args...)
			}
		}
		refuse.Store(nil)
		n := 0
		if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			n++
			data, err := os.ReadFile(path)
			check(path, append([]byte(path), data...))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if n < 3 {
			t.Errorf("%d files of state and cache", n)
		}
	}
}
