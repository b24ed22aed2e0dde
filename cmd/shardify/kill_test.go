package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/store/s3/s3test"
)

// A packer that takes shards of a bucket apart into another prefix, over what an
// unfinished run with other options has left there, and is killed again and again, at
// other requests each time: before the old run's files are gone, between its own, in the
// middle of one. Nothing half-made is ever visible as a data set, and in the end it has
// the bytes of a run that nobody disturbed, and nothing else.
func TestS3RepackKilled(t *testing.T) {
	src := pictures(t)
	work := t.TempDir()
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	const from, dst = "s3://" + s3test.Bucket + "/from", "s3://" + s3test.Bucket + "/dst"
	dir := filepath.Join(server.Dir, s3test.Bucket, "dst")
	do(t, "pack", src, from, "--shards", "3")
	do(t, "pack", from, filepath.Join(work, "want"), "--shards", "4", "--seed", "3", "--name", "dst")
	want := files(t, filepath.Join(work, "want"))
	delete(want, "manifest.json") // it has the options

	// The front stops at a request that changes something, and so many before it pass.
	var mu sync.Mutex
	var pass int
	var stopped, let chan struct{}
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet || r.Method == http.MethodHead || stopped == nil || !strings.HasPrefix(r.Path, "/"+s3test.Bucket+"/dst/") {
			return s3test.Fault{}
		}
		if pass--; pass >= 0 {
			return s3test.Fault{}
		}
		if pass == -1 {
			close(stopped)
		}
		wait := let
		mu.Unlock()
		<-wait
		mu.Lock()
		return s3test.Fault{Reset: true}
	})
	// run runs the packer, without locks, whose leases it would have to wait for (TestS3GC
	// does), until it ends, or has sent so many such requests and is killed.
	run := func(most int, args ...string) (killed bool, output string, err error) {
		mu.Lock()
		pass, stopped, let = most, make(chan struct{}), make(chan struct{})
		at, free := stopped, let
		mu.Unlock()
		defer close(free)
		var log bytes.Buffer
		cmd := exec.Command("shardify", append([]string{"pack", from, dst}, args...)...)
		cmd.Env = append(append(os.Environ(), server.Environment(front.URL)...), "SHARDIFY_S3_NO_LOCKS=1")
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-at:
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-ended
			return true, log.String(), nil
		case err := <-ended:
			return false, log.String(), err
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("%q does not end: %s", args, log.String())
		}
		return false, "", nil
	}
	visible := func(what string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
			t.Errorf("%s: there is a manifest", what)
		}
	}

	old := []string{"--shards", "6", "--seed", "9", "--workers", "1"}
	if killed, log, err := run(10, old...); !killed {
		t.Fatalf("the old run ends by itself: %v: %s", err, log)
	}
	visible("the old run")
	if made, _ := filepath.Glob(filepath.Join(dir, "*.tar")); len(made) == 0 {
		t.Fatal("the old run has made no shard; this shows nothing")
	}
	other := []string{"--shards", "4", "--seed", "3", "--name", "dst"}
	if _, log, err := run(1000, other...); err == nil || !strings.Contains(log, "--restart") {
		t.Errorf("other options over an unfinished run: %v: %s", err, log)
	}
	kills, finished := 0, false
	for most := 1; !finished; most += 2 {
		if most > 100 {
			t.Fatal("it never ends")
		}
		// Without --restart as soon as there is no old run any more.
		killed, log, err := run(most, other...)
		if err != nil && strings.Contains(log, "--restart") {
			killed, log, err = run(most, append([]string{"--restart"}, other...)...)
		}
		if err != nil {
			t.Fatalf("after %d kills: %v: %s", kills, err, log)
		}
		if finished = !killed; killed {
			kills++
			visible(log)
		}
	}
	if kills < 5 {
		t.Errorf("it was killed %d times only", kills)
	}
	t.Logf("killed %d times", kills)
	got := files(t, dir)
	delete(got, "manifest.json")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after %d kills the bucket has %v; want %v", kills, got, want)
	}
	if left := lasting(t, server); len(left) > 0 {
		t.Errorf("parts of uploads are left: %q", left)
	}
	do(t, "verify", dst)
}
