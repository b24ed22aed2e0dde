package pack

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"shardify/store/file"
)

// Shards of a web server are packed to the same shards as those of a folder, also by a run
// that goes on where another was interrupted, with a signature made anew; and the signature
// is written down nowhere.
func TestWebShards(t *testing.T) {
	t.Setenv("NETRC", os.DevNull)
	src, out := t.TempDir(), t.TempDir()
	write(t, src, tree(40))
	cfg := config(src)
	cfg.Template = "train-{shard:03}"
	mustRun(t, file.New(filepath.Join(out, "set")), cfg, Env{})
	local, err := filepath.Glob(filepath.Join(out, "set", "*.tar"))
	if err != nil || len(local) < 3 {
		t.Fatal(local, err)
	}
	var gets, end atomic.Int64 // requests, and after how many the server refuses
	var signature atomic.Value
	files := http.FileServer(http.Dir(out))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sig") != signature.Load() || gets.Add(1) > end.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	for name, paths := range map[string][]string{
		"shards": {server.URL + "/set/train-{000..00" + string(rune('0'+len(local)-1)) + "}.tar"},
		"set":    {server.URL + "/set"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Name: "again", ShardSize: 40_000, Format: "tar.zst"}
			if cfg.Source.Paths = local; name == "set" {
				cfg.Source.Paths = []string{filepath.Join(out, "set")}
			}
			want := file.New(t.TempDir())
			mustRun(t, want, cfg, Env{})
			st := file.New(t.TempDir())
			run := func(sign string, most int64) error {
				signature.Store(sign)
				gets.Store(0)
				end.Store(most)
				cfg.Source.Paths = nil
				for _, p := range paths {
					cfg.Source.Paths = append(cfg.Source.Paths, p+"?sig="+sign)
				}
				_, err := Run(t.Context(), st, cfg, Env{})
				return err
			}
			if err := run("SECRET1", 1<<30); err != nil {
				t.Fatal(err)
			}
			all := gets.Load()
			// In the middle of the plan, then of the shards.
			st = file.New(t.TempDir())
			planned := false
			for i, most := range []int64{2, all - 10, 1 << 30} {
				err := run("SECRET"+string(rune('2'+i)), most)
				if last := most == 1<<30; (err == nil) != last {
					t.Fatalf("after %d requests: %v", most, err)
				} else if !last && (!strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "SECRET")) {
					t.Errorf("after %d requests: %v", most, err)
				}
				now := content(t, st)
				for n, data := range now {
					if strings.Contains(n+data, "SECRET") {
						t.Errorf("after %d requests: %s has the signature", most, n)
					}
				}
				planned = planned || now[planName] != ""
			}
			if !planned {
				t.Error("no run was interrupted behind its plan")
			}
			got := content(t, st)
			if !strings.Contains(got["manifest.json"], server.URL+"/set") {
				t.Error("the manifest does not name the source")
			}
			shards := content(t, want)
			maps.DeleteFunc(shards, func(n, _ string) bool { return n == "manifest.json" })
			maps.DeleteFunc(got, func(n, _ string) bool { return n == "manifest.json" })
			same(t, "by HTTP", got, shards)
			problems(t, st)
			if _, err := DryRun(t.Context(), file.New(t.TempDir()), cfg, Env{}); err != nil {
				t.Errorf("a dry run: %v", err)
			}
		})
	}
}
