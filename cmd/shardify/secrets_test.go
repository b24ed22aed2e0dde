package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"shardify/store"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// secrets are what must show nowhere.
type secrets []string

// command runs a command, and looks for them in all that it says. fails says whether it
// should.
func (s secrets) command(t *testing.T, fails bool, args ...string) (stdout string) {
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
	s.check(t, fmt.Sprintf("what %q says", args), fmt.Appendf(nil, "%s%s%v%+v", out.String(), log.String(), err, err))
	return out.String()
}

func (s secrets) check(t *testing.T, what string, data []byte) {
	t.Helper()
	for _, secret := range s {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%q is in %s: %.300s", secret, what, data)
		}
	}
}

// files looks for them in all files below dir, and in their names. It returns how many
// there are whose name ends in one of suffixes.
func (s secrets) files(t *testing.T, dir string, suffixes ...string) (found int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		s.check(t, rel, append([]byte(rel+"\n"), data...))
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) {
				found++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// pictures makes a folder of small images of two classes.
func pictures(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 8 {
		var file bytes.Buffer
		img := image.NewGray(image.Rect(0, 0, 8, 8))
		img.Pix[i] = 200
		if err := png.Encode(&file, img); err != nil {
			t.Fatal(err)
		}
		class := filepath.Join(dir, fmt.Sprint("class", i%2))
		if err := os.MkdirAll(class, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, fmt.Sprint(i, ".png")), file.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// upload puts the files of a folder into a bucket.
func upload(t *testing.T, dir, url string) {
	t.Helper()
	st, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for name := range files(t, dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.WriteAll(t.Context(), st, name, data); err != nil {
			t.Fatal(err)
		}
	}
}

// No command shows or writes down what lets it into a bucket, whether it comes from the
// environment or a profile, whether it succeeds or is refused: not in what it prints, nor
// in manifest, indexes, locks, plan and journal.
func TestS3Secrets(t *testing.T) {
	server := s3test.Start(t)
	src := pictures(t)
	work := t.TempDir()
	const token = "SESSION-TOKEN"
	bucket := filepath.Join(server.Dir, s3test.Bucket)
	s := secrets{server.Access, server.Secret, token, "Signature="}
	var refuse atomic.Pointer[string]
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if code := refuse.Load(); code != nil {
			return s3test.Fault{Status: http.StatusForbidden, Code: *code}
		}
		return s3test.Fault{}
	})
	server.Setenv(t, front.URL)
	// The server knows no tokens: there is one while it refuses.
	for _, from := range []string{"environment", "profile"} {
		login := func(token string) { t.Setenv("AWS_SESSION_TOKEN", token) }
		if from == "profile" {
			file := filepath.Join(t.TempDir(), "credentials")
			login = func(token string) {
				text := fmt.Sprintf("[vision]\naws_access_key_id=%s\naws_secret_access_key=%s\n", server.Access, server.Secret)
				if token != "" {
					text += "aws_session_token=" + token + "\n"
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for name, value := range map[string]string{
				"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "vision",
				"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
			} {
				t.Setenv(name, value)
			}
		}
		login("")
		url := "s3://" + s3test.Bucket + "/" + from
		set, images, again := url+"/set", url+"/images", url+"/again"
		s.command(t, false, "pack", src, set, "--shards", "2", "--json")
		key := s.command(t, false, "ls", set, "--json")
		_, key, _ = strings.Cut(key, `"key":"`)
		key, _, _ = strings.Cut(key, `"`)
		commands := [][]string{
			{"pack", set, again, "--shards", "1"},
			{"pack", set, filepath.Join(work, from, "down"), "--shards", "1", "--json"},
			{"pack", set + "/*.tar", filepath.Join(work, from, "loose"), "--dry-run", "--json"},
			{"verify", set}, {"verify", set, "--json"}, {"ls", set}, {"info", set}, {"info", set, "--json"}, {"cat", set, key, "cls"},
			{"index", again, "--force"}, {"extract", set, filepath.Join(work, from, "out")}, {"gc", set}, {"gc", set, "--older-than", "0s", "--json"},
		}
		for _, args := range commands {
			s.command(t, false, args...)
		}
		// Objects as a source.
		upload(t, src, images)
		s.command(t, false, "pack", images, url+"/objects", "--shards", "1", "--json")
		login(token)
		for _, code := range []string{"SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed", "AccessDenied"} {
			refuse.Store(&code)
			for _, args := range append(commands[2:], // the first two are finished
				[]string{"pack", set, url + "/refused"}, []string{"pack", set, filepath.Join(work, from, code)},
				[]string{"pack", images, filepath.Join(work, from, code)}, []string{"pack", src, url + "/refused"}) {
				s.command(t, true, args...)
			}
		}
		refuse.Store(nil)
		s.files(t, filepath.Join(work, from))
	}
	if n := s.files(t, bucket, "manifest.json", ".tar", ".parquet"); n < 2*(3+2+3) {
		t.Errorf("only %d files of data sets were looked at", n)
	}
}

// What an unfinished pack has written, plan, journal and locks, has nothing of what lets it
// in.
func TestS3SecretsUnfinished(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	s := secrets{server.Access, server.Secret, "Signature="}
	const set = "s3://" + s3test.Bucket + "/set"
	s.command(t, false, "pack", pictures(t), set, "--shards", "2", "--worker", "0/2", "--json")
	s.command(t, true, "verify", set)
	s.command(t, false, "gc", set, "--older-than", "0s", "--json")
	dir := filepath.Join(server.Dir, s3test.Bucket, "set")
	if n := s.files(t, dir, "plan", "done/000000", ".tar"); n != 3 {
		t.Errorf("%d of plan, journal and shard: %v", n, files(t, dir))
	}
}

// So with web servers: what a URL, a login, ~/.netrc or a header has of it is not shown,
// nor written down beside what is made of it here.
func TestHTTPSecrets(t *testing.T) {
	root, work := t.TempDir(), t.TempDir()
	s := secrets{"URL-SECRET", "SIG-SECRET", "HEADER-SECRET", "NETRC-SECRET"}
	served := http.FileServer(http.Dir(root))
	var refuse atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		signed := r.URL.Query().Get("X-Amz-Signature") == "SIG-SECRET"
		switch {
		case refuse.Load():
			w.WriteHeader(http.StatusForbidden)
		case password != "URL-SECRET" && password != "NETRC-SECRET" && !signed, r.Header.Get("X-Key") != "HEADER-SECRET":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			served.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	netrc := filepath.Join(t.TempDir(), "netrc")
	if err := os.WriteFile(netrc, []byte("machine 127.0.0.1 login me password NETRC-SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NETRC", netrc)
	t.Setenv("SHARDIFY_HTTP_HEADER", "X-Key: HEADER-SECRET")
	s.command(t, false, "pack", pictures(t), filepath.Join(root, "set"), "--shards", "2")
	for i, set := range []string{
		server.URL + "/set", // the login is in ~/.netrc
		strings.Replace(server.URL, "://", "://me:URL-SECRET@", 1) + "/set",
		server.URL + "/set?X-Amz-Signature=SIG-SECRET",
	} {
		key := s.command(t, false, "ls", set, "--json")
		_, key, _ = strings.Cut(key, `"key":"`)
		key, _, _ = strings.Cut(key, `"`)
		dir := filepath.Join(work, fmt.Sprint(i))
		reads := [][]string{
			{"verify", set}, {"verify", set, "--json"}, {"ls", set}, {"info", set}, {"info", set, "--json"}, {"cat", set, key, "cls"},
			{"extract", set, dir},
			{"pack", set, dir + "-again"}, {"pack", set, dir + "-dry", "--dry-run", "--json"},
			{"pack", strings.Replace(set, "/set", "/set/train-00000{0..1}.tar", 1), dir + "-shards"},
		}
		for _, args := range reads {
			s.command(t, false, args...)
		}
		if n := s.files(t, dir+"-again", ".tar", "manifest.json") + s.files(t, dir+"-shards", ".tar", "manifest.json"); n < 4 {
			t.Errorf("%d shards and manifests were packed again", n)
		}
		for _, again := range []string{"-again", "-shards"} {
			if err := os.RemoveAll(dir + again); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"pack", pictures(t), set}, {"index", set}, {"gc", set}} {
			s.command(t, true, args...)
		}
		refuse.Store(true)
		for _, args := range reads {
			s.command(t, true, args...)
		}
		refuse.Store(false)
		if s.files(t, dir, ".png") == 0 {
			t.Error("nothing was extracted")
		}
	}
}
