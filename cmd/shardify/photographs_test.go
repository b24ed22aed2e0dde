package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// readByWebdataset prints key, class and the digest of the image of every sample
// that webdataset's own reader finds in shards, as JSON.
const readByWebdataset = `
import hashlib, json, sys
import webdataset as wds
out = {}
for s in wds.WebDataset(sys.argv[1:], shardshuffle=False, handler=wds.reraise_exception):
    image = [v for k, v in s.items() if k in ("jpg", "png", "bmp")]
    assert len(image) == 1 and s["__key__"] not in out, s.keys()
    out[s["__key__"]] = [int(s["cls"]), hashlib.sha256(image[0]).hexdigest()]
json.dump(out, sys.stdout)
`

// do runs a command line in this process and wants it to succeed.
func do(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&err)
	if e := root.ExecuteContext(context.Background()); e != nil {
		t.Fatalf("shardify %q: %v\n%s", args, e, err.String())
	}
	return out.String(), err.String()
}

// files returns the digests of all files below dir, links followed.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		rel, err := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = hex.EncodeToString(sum[:])
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// The photographs go from a folder to shards, from there through webdataset's own
// reader, GNU tar and shardify extract, and come back as they were.
func TestPhotographs(t *testing.T) {
	photos := peers.Photographs(t)
	python := peers.Python(t)
	tarProgram := peers.Program(t, "tar")
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
		data, err := os.ReadFile(filepath.Join(photos, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, class, e.Name()), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want := files(t, src)
	if len(want) < 100 {
		t.Fatalf("only %d photographs", len(want))
	}
	for _, format := range []string{"tar", "tar.gz", "tar.zst", "tfrecord"} {
		t.Run(format, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "shards")
			do(t, "pack", src, dst, "--format", format, "--shard-size", "5MB")
			do(t, "verify", dst)

			back := filepath.Join(t.TempDir(), "back")
			do(t, "extract", dst, back)
			sameFiles(t, "shardify extract", files(t, back), want)

			if format == "tfrecord" {
				return // TensorFlow reads them in shard/tfrecord's tests
			}
			shards, err := filepath.Glob(filepath.Join(dst, "*."+format))
			if err != nil || len(shards) < 4 {
				t.Fatal(shards, err)
			}
			// What a tar holds: the names that WebDataset's rule wants.
			plain := map[string]string{}
			for name, sum := range want {
				plain[strings.TrimSuffix(name, ".JPEG")+".jpg"] = sum
			}
			if format != "tar.zst" { // webdataset and older tars have no zstd of their own
				cmd := exec.Command(python, append([]string{"-c", readByWebdataset}, shards...)...)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Run(); err != nil {
					t.Fatalf("webdataset: %v\n%s", err, stderr.String())
				}
				var samples map[string][2]any
				if err := json.Unmarshal(stdout.Bytes(), &samples); err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for key, s := range samples {
					got[key+".jpg"] = s[1].(string)
				}
				sameFiles(t, "webdataset", got, plain)
				classes := map[float64]string{}
				for key, s := range samples {
					class, _, _ := strings.Cut(key, "/")
					label := s[0].(float64)
					if was, ok := classes[label]; ok && was != class {
						t.Errorf("label %v is %s and %s", label, was, class)
					}
					classes[label] = class
				}
				for label, class := range classes {
					if next, ok := classes[label+1]; ok && next <= class {
						t.Errorf("label %v is %s, the next %s", label, class, next)
					}
				}
			}
			out := t.TempDir()
			for _, shard := range shards {
				args := []string{"-x", "-C", out, "-f", shard}
				if format == "tar.zst" {
					args = append(args, "--use-compress-program", peers.Program(t, "zstd"))
				}
				if text, err := exec.Command(tarProgram, args...).CombinedOutput(); err != nil {
					t.Fatalf("tar: %v\n%s", err, text)
				}
			}
			got := files(t, out)
			for name := range got {
				if strings.HasSuffix(name, ".cls") {
					delete(got, name)
				}
			}
			sameFiles(t, "tar", got, plain)
		})
	}
}

// decodedByWebdataset prints the digest of the pixels of every image that
// webdataset decodes with Pillow.
const decodedByWebdataset = `
import hashlib, json, sys
import webdataset as wds
out = {}
for s in wds.WebDataset(sys.argv[1:], shardshuffle=False, handler=wds.reraise_exception).decode("pil"):
    i = s["pnm"]
    assert i.mode == "RGB"
    out[s["__key__"]] = hashlib.sha256(i.tobytes()).hexdigest()
json.dump(out, sys.stdout)
`

// pixelsByPillow prints the same of files, scaled to a longer side where one is given.
const pixelsByPillow = `
import hashlib, json, os, sys
from PIL import Image
out = {}
for name in sys.stdin.read().split("\0"):
    i = Image.open(os.path.join(sys.argv[1], name))
    i = i if i.mode == "L" else i.convert("RGB")
    w, h = i.size
    side = max(w, h)
    if len(sys.argv) > 2 and side > int(sys.argv[2]):
        to = int(sys.argv[2])
        i = i.resize(((2 * w * to + side) // (2 * side), (2 * h * to + side) // (2 * side)), Image.LANCZOS)
    out[os.path.splitext(name)[0]] = hashlib.sha256(i.convert("RGB").tobytes()).hexdigest()
json.dump(out, sys.stdout)
`

// Photographs whose pixels are stored as they are show strangers what Pillow sees in the
// files: webdataset, which knows the field's name, and Pillow, which opens what tar unpacks.
func TestPhotographsRaw(t *testing.T) {
	photos, python := peers.Photographs(t), peers.Python(t)
	list, err := os.ReadDir(photos)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	src := t.TempDir()
	for i, e := range list {
		if i%2 == 0 {
			names = append(names, e.Name())
			if err := os.Symlink(filepath.Join(photos, e.Name()), filepath.Join(src, e.Name())); err != nil {
				t.Skipf("SKIPPED LOUDLY: no links here: %v", err)
			}
		}
	}
	digests := func(stdin, script string, args ...string) map[string]string {
		t.Helper()
		cmd := exec.Command(python, append([]string{"-c", script}, args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		var out map[string]string
		if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, sides := range [][]string{nil, {"200"}} {
		dst := filepath.Join(t.TempDir(), "raw")
		args := []string{"pack", src, dst, "--store", "raw", "--shard-size", "20MB"}
		if sides != nil {
			args = append(args, "--max-side", sides[0])
		}
		do(t, args...)
		do(t, "verify", dst)
		want := digests(strings.Join(names, "\x00"), pixelsByPillow, append([]string{src}, sides...)...)
		shards, err := filepath.Glob(filepath.Join(dst, "*.tar"))
		if err != nil || len(shards) == 0 {
			t.Fatal(shards, err)
		}
		sameFiles(t, "webdataset", digests("", decodedByWebdataset, shards...), want)
		back := filepath.Join(t.TempDir(), "back")
		do(t, "extract", dst, back)
		var raw []string
		for name := range files(t, back) {
			raw = append(raw, name)
		}
		sameFiles(t, "Pillow", digests(strings.Join(raw, "\x00"), pixelsByPillow, back), want)
	}
}

func sameFiles(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, sum := range want {
		if got[name] != sum {
			t.Errorf("%s: %s is missing or changed", what, name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(got), len(want))
	}
}
