package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/store/file"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// Every command reads from s3:// what it reads from a folder.
func TestS3(t *testing.T) {
	for name, start := range s3test.Servers() {
		t.Run(name, func(t *testing.T) { readS3(t, start(t)) })
	}
}

func readS3(t *testing.T, server *s3test.Server) {
	server.Setenv(t, server.Endpoint)
	const remote = "s3://" + s3test.Bucket + "/data"
	local := filepath.Join(t.TempDir(), "data")
	st, err := open.URL(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"tar", "tar.zst"} {
		options := datasettest.Options{Format: format, Splits: []string{format}}
		datasettest.Write(t, st, options)
		datasettest.Write(t, file.New(local), options)
		for _, args := range [][]string{
			{"stream", "--format", "jsonl", "--shuffle", "window"},
			{"stream", "--format", "jsonl", "--shuffle", "global"},
			{"stream", "--format", "tar", "--shuffle", "none"},
			{"head", "--json", "-n", "30"},
			{"plan", "--keys", "--shuffle", "window"},
			{"stream", "--format", "jsonl", "--shuffle", "window", "--cache", filepath.Join(t.TempDir(), "cache")},
		} {
			run := func(dst string) []byte {
				return shardread(t, append([]string{args[0], dst}, args[1:]...)...)
			}
			if got, want := run(remote), run(local); !bytes.Equal(got, want) || len(want) == 0 {
				t.Errorf("%s: %q: over S3 %d bytes, from a folder %d others", format, args, len(got), len(want))
			}
		}
		if out := shardread(t, "bench", remote, "--crop", "24", "--batch", "4", "--json"); !bytes.Contains(out, []byte(`"samples":28`)) && !bytes.Contains(out, []byte(`"samples":30`)) {
			t.Errorf("bench: %s", out)
		}
	}
}
