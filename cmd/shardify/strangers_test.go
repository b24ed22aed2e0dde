package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/internal/peers"
	"shardify/store/file"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// strangers reads a data set in a bucket with boto3, whose ETags and bytes it prints the
// digests of; writes presigned URLs of its objects; and reads its shards with webdataset
// over HTTP, whose keys and labels it prints.
const strangers = `
import boto3, hashlib, json, sys
import webdataset as wds
from botocore.config import Config
bucket, prefix, out = sys.argv[1:]
s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"))
names, urls = [], {}
for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
    for o in page["Contents"]:
        name = o["Key"][len(prefix):]
        body = s3.get_object(Bucket=bucket, Key=o["Key"], ChecksumMode="ENABLED")["Body"].read()
        assert len(body) == o["Size"]
        names.append([name, hashlib.sha256(body).hexdigest()])
        urls[name] = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": o["Key"]}, ExpiresIn=600)
json.dump(urls, open(out, "w"))
shards = [urls[n] for n in sorted(urls) if n.endswith(".tar")]
samples = [[s["__key__"], s["cls"].decode()] for s in wds.WebDataset(shards, shardshuffle=False)]
json.dump({"objects": names, "samples": samples}, sys.stdout)
`

// What we put into a bucket, others read: boto3 all objects, with the checksums that the
// server keeps, and webdataset the shards over HTTP; and with the URLs that boto3 signs we
// read the data set without credentials.
func TestStrangers(t *testing.T) {
	for name, start := range s3test.Servers() {
		t.Run(name, func(t *testing.T) { readByStrangers(t, start(t)) })
	}
}

func readByStrangers(t *testing.T, server *s3test.Server) {
	python := peers.Python(t)
	peers.Program(t, "curl") // webdataset's way to a URL
	server.Setenv(t, server.Endpoint)
	const remote = "s3://" + s3test.Bucket + "/a set"
	st, err := open.URL(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	local := t.TempDir()
	datasettest.Write(t, st, datasettest.Options{})
	datasettest.Write(t, file.New(local), datasettest.Options{})
	urls := filepath.Join(t.TempDir(), "objects.json")
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(python, "-c", strangers, s3test.Bucket, "a set/", urls)
	for _, line := range os.Environ() {
		if name, value, _ := strings.Cut(line, "="); value != "" || name != "AWS_PROFILE" && name != "AWS_SESSION_TOKEN" {
			cmd.Env = append(cmd.Env, line) // boto3 takes empty ones for names and tokens
		}
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var said struct{ Objects, Samples [][2]string }
	if err := json.Unmarshal(stdout.Bytes(), &said); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	want := files(t, local)
	if len(said.Objects) != len(want) || len(want) == 0 {
		t.Errorf("boto3 reads %d objects; there are %d", len(said.Objects), len(want))
	}
	for _, o := range said.Objects {
		if want[o[0]] != o[1] {
			t.Errorf("boto3 reads %s with the digest %s; want %s", o[0], o[1], want[o[0]])
		}
	}
	out, _ := do(t, "ls", remote, "--json")
	var ours [][2]string
	for line := range strings.Lines(out) {
		var row struct {
			Key   string `json:"key"`
			Label int64  `json:"label"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		ours = append(ours, [2]string{row.Key, fmt.Sprint(row.Label)})
	}
	if fmt.Sprint(said.Samples) != fmt.Sprint(ours) || len(ours) == 0 {
		t.Errorf("webdataset reads %v; want %v", said.Samples, ours)
	}

	// No credentials from here on.
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("NETRC", os.DevNull)
	t.Setenv("SHARDIFY_HTTP_OBJECTS", urls)
	signed := server.Endpoint + "/" + s3test.Bucket + "/a%20set"
	stdoutText, stderrText := do(t, "verify", signed)
	if all := stdoutText + stderrText; !strings.Contains(all, "intact") || strings.Contains(all, "X-Amz") {
		t.Errorf("verify by presigned URLs says %s", all)
	}
	if again, _ := do(t, "ls", signed, "--json"); again != out {
		t.Errorf("ls by presigned URLs says %s; want %s", again, out)
	}
	// A signature that does not hold is refused, and shows nowhere.
	data, err := os.ReadFile(urls)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(urls, bytes.ReplaceAll(data, []byte("X-Amz-Signature="), []byte("X-Amz-Signature=0000SECRET")), 0o666); err != nil {
		t.Fatal(err)
	}
	root := newRootCommand()
	root.SetArgs([]string{"verify", signed})
	root.SetOut(&stdout)
	root.SetErr(&stdout)
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "signature of the URL") || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("with a wrong signature: %v", err)
	}
}
