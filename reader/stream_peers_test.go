//go:build unix

package reader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shardify/internal/peers"
)

// Shards that webdataset has written, plain and compressed, and GNU tar, hold for us what
// they hold for webdataset, behind its shuffle.
func TestStreamOfPeers(t *testing.T) {
	python := peers.Python(t)
	gnu := peers.Program(t, "tar")
	for _, ending := range []string{"tar", "tar.gz"} {
		dir := t.TempDir()
		write := exec.Command(python, "-c", `
import sys, json, numpy as np, webdataset as wds
compress = sys.argv[2] == "tar.gz"
with wds.ShardWriter(sys.argv[1] + "/w-%03d." + sys.argv[2], maxcount=17, verbose=0, compress=compress) as sink:
    for i in range(60):
        image = np.random.default_rng(i).integers(0, 255, (20 + i, 30, 3), dtype=np.uint8)
        sink.write({"__key__": "dir.x/sample%04d" % i, "png": image, "cls": i % 10, "json": {"n": i}, "left.txt": "text %d é" % i})
`, dir, ending)
		if out, err := write.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		// And one by GNU tar, with long names and folders.
		tree := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
		if err := os.MkdirAll(tree, 0o777); err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			for field, text := range map[string]string{"cls": fmt.Sprint(i), "txt": strings.Repeat("x", 300*i)} {
				if err := os.WriteFile(filepath.Join(tree, fmt.Sprintf("gnu%d.%s", i, field)), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
		pack := exec.Command(gnu, "--sort=name", "-caf", filepath.Join(dir, "gnu."+ending), "-C", filepath.Dir(tree), ".")
		if out, err := pack.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		names, err := filepath.Glob(filepath.Join(dir, "*"+ending))
		if err != nil || len(names) != 5 {
			t.Fatalf("%q, %v", names, err)
		}

		read := exec.Command(python, append([]string{"-c", `
import sys, hashlib, webdataset as wds
for s in wds.WebDataset(sys.argv[1:], shardshuffle=5, empty_check=False).shuffle(20):
    print(s["__key__"], *[f"{k}:{hashlib.sha256(v).hexdigest()[:16]}" for k, v in sorted(s.items()) if not k.startswith("__")])
`}, names...)...)
		read.Stderr = os.Stderr
		out, err := read.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSpace(string(out)), "\n")
		var got []string
		labels := 0
		s := newStream(t, []string{filepath.Join(dir, "w-{000..003}."+ending), filepath.Join(dir, "g*")}, Config{BatchSize: 7, Window: 20, Decode: DecodeNone, Ends: EndsExact})
		for b, err := range s.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Len() {
				line := b.Key(i)
				for _, name := range b.Fields() {
					if data, ok := b.Field(i, name); ok {
						line += " " + name + ":" + sha(data)
						if name == "cls" && string(data) == fmt.Sprint(b.Labels()[i]) {
							labels++
						}
					}
				}
				got = append(got, line)
			}
			b.Release()
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(got) != 69 || labels != 69 {
			t.Errorf("%s: %d samples, webdataset has %d; %d labels\n%q\n%q", ending, len(got), len(want), labels, got[:3], want[:3])
		}
		// And their pictures.
		pictures := newStream(t, names[1:], Config{BatchSize: 6, Transform: crop})
		if n, _, err := firstError(pictures.Epoch(context.Background(), 0)); err != nil || n != 60 {
			t.Errorf("%s: %d pictures, %v", ending, n, err)
		}
	}
}

// Named pipes: read to their writers' ends, resumed where the same is written again, and
// not waited for when the pass is left.
func TestStreamPipe(t *testing.T) {
	dir := t.TempDir()
	file := writeShards(t, dir, "tar", []int{30}, ordinary)[0]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	// through gives f a pipe into which the shard is written once.
	through := func(f func()) {
		if err := unix.Mkfifo(pipe, 0o666); err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error, 1)
		go func() { wrote <- os.WriteFile(pipe, data, 0) }()
		f()
		if err := errors.Join(<-wrote, os.Remove(pipe)); err != nil {
			t.Fatal(err)
		}
	}
	config := Config{BatchSize: 5, Decode: DecodeNone, Window: 10}
	want, states := passOver(t, newStream(t, []string{file}, config).Epoch(context.Background(), 0))
	s := newStream(t, []string{file}, config)
	through(func() {
		s = newStream(t, []string{pipe}, config)
		if got, _ := passOver(t, s.Epoch(context.Background(), 0)); !equalBatches(got, want) {
			t.Error("a pipe gives other batches than the file")
		}
	})
	through(func() {
		state := states[2]
		state.Data = s.core.identity // that of the pipe
		if rest, _ := passOver(t, s.Epochs(context.Background(), state, state.Epoch+1)); !equalBatches(rest, want[3:]) {
			t.Error("other batches after resuming")
		}
	})

	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, _, err := firstError(s.Epoch(ctx, 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pipe that nobody writes to: %v", err)
	}
	if _, err := OpenStream(context.Background(), []string{pipe, pipe}, Config{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "named twice") {
		t.Errorf("a pipe twice: %v", err)
	}
}

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
