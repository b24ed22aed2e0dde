package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	// latency is what the front adds to each request.
	latency = 50 * time.Millisecond
	// passes is how often the shards are read in a run, so that the start of a process
	// and the first touch of its memory are a small part of it.
	passes = 8
)

// s3 measures reading shards from an S3 server on loopback, and packing to it.
func (b *bench) s3(ctx context.Context) (rep report, err error) {
	s5cmd := filepath.Join(b.root, ".cache", "peers", "s3", "bin", "s5cmd")
	if _, err := os.Stat(s5cmd); err != nil {
		return rep, fmt.Errorf("%w; run `make peers-s3`", err)
	}
	src, n, _, note, err := b.photographs(ctx)
	if err != nil {
		return rep, err
	}
	server, plain, late, stop, err := b.startFronts(ctx)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	const set = "s3://data/set"
	env := server.environment(server.endpoint)
	pack := command(ctx, []string{b.shardify, "pack", src, set, "--shard-size", "64MiB"})
	pack.Env = append(os.Environ(), env...)
	if out, err := pack.CombinedOutput(); err != nil {
		return rep, fmt.Errorf("shardify pack: %w\n%s", err, tail(bytes.NewBuffer(out)))
	}
	_, size, err := files(ctx, filepath.Join(server.dir, "data", "set"), true)
	if err != nil {
		return rep, err
	}
	shardread := filepath.Join(filepath.Dir(b.shardify), "shardread"+exe())
	read := func(name, endpoint, shuffle string) *process {
		return &process{
			name: "shardread, " + name, env: server.environment(endpoint),
			argv: []string{shardread, "bench", set, "--decode", "none", "--fields", "jpg", "--batch", "256", "--ends", "exact", "--epochs", strconv.Itoa(passes), "--shuffle", shuffle},
		}
	}
	local, packed := filepath.Join(b.dir, "local"), filepath.Join(server.dir, "data", "packed")
	processes := []*process{
		{name: "s5cmd cat", env: env, argv: []string{"sh", "-c", `for i in $(seq "$3"); do "$1" cat "$2" >/dev/null || exit 1; done`, "sh", s5cmd, set + "/*.tar", strconv.Itoa(passes)}},
		read("window", server.endpoint, "window"),
		read("none", server.endpoint, "none"),
		read("global", server.endpoint, "global"),
		read("window, front", plain.url, "window"),
		read("window, front, 50 ms", late.url, "window"),
		read("global, front", plain.url, "global"),
		read("global, front, 50 ms", late.url, "global"),
		{name: "pack to a folder, s5cmd cp", env: env, out: packed, argv: []string{
			"sh", "-c", `rm -rf "$4" && "$1" pack "$3" "$4" --shard-size 64MiB && "$2" cp "$4/" s3://data/packed/ >/dev/null && rm -rf "$4"`,
			"sh", b.shardify, s5cmd, src, local,
		}},
		{name: "pack to the bucket", env: env, out: packed, argv: []string{b.shardify, "pack", src, "s3://data/packed", "--shard-size", "64MiB"}},
	}
	runs, err := b.alternate(ctx, processes, nil)
	if err != nil {
		return rep, err
	}
	return report{
		Title: "Shards in a bucket", Date: time.Now().UTC(), Unit: "images",
		Files: n, Bytes: size, Rows: b.rows(processes, runs, "s5cmd cat", "shardread, window, front", "shardread, global, front", "pack to a folder, s5cmd cp"),
		Notes: []string{
			note + " Packed into shards of 64 MiB.",
			fmt.Sprintf("Reading is %d passes over all shards in one process (s5cmd: in as many); images/s and MB/s count only one of them.", passes),
			fmt.Sprintf("%d rounds in one run, in turn; versitygw on loopback, with its files in the page cache, takes its part of the same cores. Times are those of whole processes.", b.rounds),
			"shardread reads every sample's JPEG, checks its CRC-32C, and decodes nothing; s5cmd cat checks nothing. window is the default, global asks for each photograph by itself.",
			"The front passes requests on, at once or 50 ms later.",
			"Packing ends when all is on the server's disk; s5cmd cp uploads what shardify pack has made in a local folder.",
		},
	}, nil
}

// startFronts starts a server and two fronts of it: one that passes requests on at once, and
// one that does so after latency. stop ends all three.
func (b *bench) startFronts(ctx context.Context) (server *s3Server, plain, late *front, stop func() error, err error) {
	server, err = b.startS3(ctx)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	plain, err = frontOf(server.endpoint, 0)
	if err != nil {
		return nil, nil, nil, nil, errors.Join(err, server.stop())
	}
	late, err = frontOf(server.endpoint, latency)
	if err != nil {
		return nil, nil, nil, nil, errors.Join(err, plain.close(), server.stop())
	}
	return server, plain, late, func() error { return errors.Join(late.close(), plain.close(), server.stop()) }, nil
}

// s3Server is versitygw over a folder.
type s3Server struct {
	endpoint string
	dir      string // of buckets, of which there is one, data
	cmd      *exec.Cmd
	log      bytes.Buffer
}

const s3Key = "benchmark"

// startS3 starts a server.
func (b *bench) startS3(ctx context.Context) (*s3Server, error) {
	found, err := filepath.Glob(filepath.Join(b.root, ".cache", "tools", "versitygw-*"))
	if err != nil || len(found) == 0 {
		return nil, errors.Join(errors.New("there is no versitygw in .cache/tools; run `make tools`"), err)
	}
	s := &s3Server{dir: filepath.Join(b.dir, "buckets")}
	side := filepath.Join(b.dir, "side")
	for _, dir := range []string{filepath.Join(s.dir, "data"), side} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.endpoint = "http://" + port
	s.cmd = exec.CommandContext(ctx, found[len(found)-1], "--port", port, "--access", s3Key, "--secret", s3Key,
		"--region", "us-east-1", "--keep-alive", "--quiet", "--health", "/health", "posix", "--sidecar", side, s.dir)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 500 {
		time.Sleep(20 * time.Millisecond)
		if answer, err := http.Get(s.endpoint + "/health"); err == nil {
			answer.Body.Close()
			return s, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("versitygw does not answer: %s", tail(&s.log)), s.stop())
}

// stop ends the server.
func (s *s3Server) stop() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("versitygw: %w: %s", err, tail(&s.log))
	}
	_ = s.cmd.Wait() // it was killed
	return nil
}

// environment is what clients need.
func (s *s3Server) environment(endpoint string) []string {
	return []string{
		"AWS_ENDPOINT_URL_S3=" + endpoint, "S3_ENDPOINT_URL=" + endpoint, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=" + s3Key, "AWS_SECRET_ACCESS_KEY=" + s3Key, "AWS_EC2_METADATA_DISABLED=true",
	}
}

// front passes requests on.
type front struct {
	url    string
	server *http.Server
	done   chan struct{}
}

// frontOf starts a front that passes requests on after so long.
func frontOf(endpoint string, after time.Duration) (*front, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		// Host stays as it was signed.
		Rewrite:    func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
		BufferPool: buffers{},
	}
	f := &front{url: "http://" + l.Addr().String(), done: make(chan struct{})}
	f.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(after)
		proxy.ServeHTTP(w, r)
	})}
	go func() {
		defer close(f.done)
		_ = f.server.Serve(l) // until close
	}()
	return f, nil
}

func (f *front) close() error {
	err := f.server.Close()
	<-f.done
	return err
}

// buffers is memory for what passes through fronts.
type buffers struct{}

var pieces = sync.Pool{New: func() any { return new([64 << 10]byte) }}

func (buffers) Get() []byte  { return pieces.Get().(*[64 << 10]byte)[:] }
func (buffers) Put(p []byte) { pieces.Put((*[64 << 10]byte)(p)) }
