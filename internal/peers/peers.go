// Package peers finds the other tools that tests compare us with: a Python with
// webdataset, TensorFlow, Pillow and their like at pinned versions
// (tools/peers/requirements.txt), and programs such as GNU tar and djpeg.
//
// `make test` installs them and sets SHARDIFY_PEERS=require, under which a peer
// that is missing fails the test. Without it, as in a bare `go test ./...`, the
// test is skipped and says how to run it.
package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// root is the repository's root.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Python returns the interpreter of the virtual environment that `make peers`
// makes.
func Python(t testing.TB) string {
	t.Helper()
	python := filepath.Join(root(), ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		missing(t, "the Python environment with the peers")
	}
	return python
}

// Program returns the path of a program of the system.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name)
	}
	return path
}

// Tool returns the path of a program that `make tools` builds from its own Go module
// into .cache/tools, under its name and version.
func Tool(t testing.TB, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root(), ".cache", "tools", name+"-v*"))
	if err != nil || len(found) != 1 {
		missing(t, name)
	}
	return found[0]
}

// Files returns the files of the environments in .cache/peers, of which `make test` installs
// torch, that match one of the patterns: one or more.
func Files(t testing.TB, what string, patterns ...string) []string {
	t.Helper()
	var files []string
	for _, p := range patterns {
		found, _ := filepath.Glob(filepath.Join(root(), ".cache", "peers", p)) // the patterns are good
		files = append(files, found...)
	}
	if len(files) == 0 {
		missing(t, what)
	}
	return files
}

// Header makes sure that a C header is where compilers look for it.
func Header(t testing.TB, name string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("/usr/include", name)); err != nil {
		missing(t, "the C header "+name)
	}
}

// Photographs returns the folder of real photographs: $SHARDIFY_PHOTOS, or
// ../shared/data/imagenet-sample beside the repository.
func Photographs(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SHARDIFY_PHOTOS")
	if dir == "" {
		dir = filepath.Join(root(), "..", "shared", "data", "imagenet-sample")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("SKIPPED LOUDLY: no photographs: %v; set SHARDIFY_PHOTOS to a folder of JPEG files", err)
	}
	return dir
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SHARDIFY_PEERS") == "require" {
		t.Fatalf("%s is missing; `make peers programs` installs it", what)
	}
	t.Skipf("SKIPPED LOUDLY: %s is missing; `make test` installs it and runs this", what)
}
