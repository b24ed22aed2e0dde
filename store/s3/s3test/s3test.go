// Package s3test gives tests a real S3 server, versitygw or MinIO, on loopback and a free
// port, and a handler to put in front of it that counts requests and breaks answers. Call
// [Start] or [StartMinIO], then [Server.Setenv] or [Server.Environment].
package s3test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/internal/peers"
)

// Bucket is the bucket that every server has.
const Bucket = "data"

// Region is the servers' region.
const Region = "us-east-1"

// Server is a running server. It ends with its test.
type Server struct {
	// Endpoint is its URL, http://127.0.0.1:PORT.
	Endpoint string
	// Dir is the folder that holds the buckets, which versitygw has as folders of files.
	Dir string
	// Access and Secret are the credentials that it takes.
	Access, Secret string

	// command returns the process that listens on 127.0.0.1:PORT, and health is a path that
	// it answers with the status ready when it is that.
	command func(address string) *exec.Cmd
	health  string
	ready   int

	mu   sync.Mutex
	kill func() // the process, and waits for its end
}

// Start starts versitygw, or skips the test where it is not installed.
func Start(t testing.TB) *Server {
	t.Helper()
	program, side := peers.Tool(t, "versitygw"), t.TempDir()
	s := newServer(t, "/health", http.StatusOK)
	s.command = func(address string) *exec.Cmd {
		return exec.Command(program, "--port", address, "--access", s.Access, "--secret", s.Secret, "--region", Region,
			"--keep-alive", "--quiet", "--health", s.health, "posix", "--sidecar", side, s.Dir)
	}
	return s.start(t)
}

// StartMinIO starts MinIO, or skips the test where it is not installed.
func StartMinIO(t testing.TB) *Server {
	t.Helper()
	program := peers.Tool(t, "minio")
	s := newServer(t, "/"+Bucket+"/", http.StatusForbidden) // to who has not signed; 503 before
	s.command = func(address string) *exec.Cmd {
		cmd := exec.Command(program, "server", "--address", address, "--quiet", s.Dir)
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+s.Access, "MINIO_ROOT_PASSWORD="+s.Secret, "MINIO_REGION="+Region, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
		return cmd
	}
	return s.start(t)
}

// Servers are all of them, by their names.
func Servers() map[string]func(testing.TB) *Server {
	return map[string]func(testing.TB) *Server{"versitygw": Start, "MinIO": StartMinIO}
}

func newServer(t testing.TB, health string, ready int) *Server {
	t.Helper()
	s := &Server{Dir: filepath.Join(t.TempDir(), "buckets"), Access: "AKIATEST", Secret: rand.Text(), health: health, ready: ready}
	if err := os.MkdirAll(filepath.Join(s.Dir, Bucket), 0o777); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) start(t testing.TB) *Server {
	t.Helper()
	t.Cleanup(s.Kill)
	// The port may be taken by another before the server has it.
	for try := 0; ; try++ {
		s.Endpoint = "http://" + freePort(t)
		if err := s.Restart(); err == nil {
			return s
		} else if try == 4 {
			t.Fatal(err)
		}
	}
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kill != nil {
		s.kill()
		s.kill = nil
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Restart starts the server again after Kill, at the same endpoint, with what it had.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var log bytes.Buffer
	address := strings.TrimPrefix(s.Endpoint, "http://")
	cmd := s.command(address)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for range 500 {
		select {
		case err := <-ended:
			return fmt.Errorf("%s ended: %w: %s", cmd.Path, err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
		answer, err := client.Get(s.Endpoint + s.health)
		if err != nil {
			continue
		}
		answer.Body.Close()
		if answer.StatusCode == s.ready {
			s.kill = func() {
				cmd.Process.Kill()
				<-ended
			}
			return nil
		}
	}
	cmd.Process.Kill()
	<-ended
	return fmt.Errorf("%s does not answer on %s: %s", cmd.Path, address, log.String())
}

// Environment is the AWS_ variables for the server, and against whatever this machine
// has of its own; endpoint is the server's, or that of a Front.
func (s *Server) Environment(endpoint string) []string {
	return []string{
		"AWS_ENDPOINT_URL_S3=" + endpoint, "AWS_REGION=" + Region,
		"AWS_ACCESS_KEY_ID=" + s.Access, "AWS_SECRET_ACCESS_KEY=" + s.Secret, "AWS_SESSION_TOKEN=",
		"AWS_PROFILE=", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
	}
}

// Setenv gives the test Environment.
func (s *Server) Setenv(t testing.TB, endpoint string) {
	t.Helper()
	for _, line := range s.Environment(endpoint) {
		name, value, _ := strings.Cut(line, "=")
		t.Setenv(name, value)
	}
}

// Request is a request that came to a Front.
type Request struct {
	N      int // from 1
	Method string
	Path   string // /bucket/key
	Query  string
	Range  string // "" for none
	Sent   int64  // bytes of the answer's body
	Status int
}

// Fault is what a Front does to a request. The zero value does nothing.
type Fault struct {
	// Status and Code are an answer of the Front's own, as 503 and SlowDown.
	Status int
	Code   string
	// Reset breaks the connection before the server hears of the request.
	Reset bool
	// Lose lets the server do what it is asked, and breaks the connection instead of
	// answering.
	Lose bool
	// Cut breaks the connection after so many bytes of the body, if it is not 0.
	Cut int64
	// Shift moves the range of a GET by so many bytes.
	Shift int64
	// Flip inverts the byte at this offset of the body, counted from 1, if it has one.
	Flip int64
	// Header is added to the answer.
	Header map[string]string
	// Stall waits so long, or until the client is gone, before anything else.
	Stall time.Duration
}

// Front stands before a server. It is safe for concurrent use.
type Front struct {
	// URL is its own, http://127.0.0.1:PORT.
	URL string

	// Header, if it is not nil, changes the headers of requests before they are looked
	// at and passed on. Set it before the first request.
	Header func(http.Header)

	target string
	fault  func(Request) Fault
	client *http.Client

	mu       sync.Mutex
	requests []Request
	active   int               // requests that are not yet among them
	busy     map[net.Conn]bool // connections that are open, and whether a request is on them
}

// Front starts a handler before the server that does to requests what fault says; nil:
// nothing. It ends with the test.
func (s *Server) Front(t testing.TB, fault func(Request) Fault) *Front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	f := &Front{URL: "http://" + l.Addr().String(), target: strings.TrimPrefix(s.Endpoint, "http://"), fault: fault, client: &http.Client{Transport: transport}}
	f.busy = map[net.Conn]bool{}
	server := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute, ConnState: func(c net.Conn, state http.ConnState) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch state {
		case http.StateClosed, http.StateHijacked:
			delete(f.busy, c)
		default:
			f.busy[c] = state == http.StateActive
		}
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until Close
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
		transport.CloseIdleConnections()
	})
	return f
}

// Requests are those that came so far. It waits for those that are under way, which a
// client may take for answered a moment before the Front does.
func (f *Front) Requests() []Request {
	f.settle()
	defer f.mu.Unlock()
	return append([]Request(nil), f.requests...)
}

// settle waits until no request is under way, and locks f.
func (f *Front) settle() {
	deadline := time.Now().Add(time.Minute)
	for f.mu.Lock(); f.active > 0 && time.Now().Before(deadline); f.mu.Lock() {
		f.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// Connections are how many connections clients have open, and on how many of them a
// request is under way.
func (f *Front) Connections() (open, busy int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.busy {
		if b {
			busy++
		}
	}
	return len(f.busy), busy
}

// Forget forgets the requests that came so far, of which it waits for those that are
// under way; numbers go on.
func (f *Front) Forget() (forgotten []Request) {
	f.settle()
	defer f.mu.Unlock()
	forgotten = f.requests
	f.requests = nil
	return forgotten
}

var number struct {
	sync.Mutex
	n int
}

// ServeHTTP passes a request on.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number.Lock()
	number.n++
	req := Request{N: number.n, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Range: r.Header.Get("Range")}
	number.Unlock()
	f.mu.Lock()
	f.active++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.active--
		f.requests = append(f.requests, req)
		f.mu.Unlock()
	}()
	if f.Header != nil {
		f.Header(r.Header)
	}
	var fault Fault
	if f.fault != nil {
		fault = f.fault(req)
	}
	if fault.Stall > 0 {
		select {
		case <-time.After(fault.Stall):
		case <-r.Context().Done():
			return
		}
	}
	for name, value := range fault.Header {
		w.Header().Set(name, value)
	}
	switch {
	case fault.Reset:
		panic(http.ErrAbortHandler)
	case fault.Status != 0:
		// As S3 does, having read what was sent.
		_, _ = io.Copy(io.Discard, r.Body)
		req.Status = fault.Status
		if fault.Status >= 300 {
			w.Header().Set("Content-Type", "application/xml")
		}
		w.WriteHeader(fault.Status)
		if r.Method != http.MethodHead && fault.Status >= 300 {
			fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message><RequestId>req-%d</RequestId></Error>`, fault.Code, req.N)
		}
		return
	}
	out := r.Clone(context.WithoutCancel(r.Context()))
	if !fault.Lose {
		out = r.Clone(r.Context())
	}
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = "http", f.target // Host stays as it was signed
	answer, err := f.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	if fault.Lose {
		_, _ = io.Copy(io.Discard, answer.Body)
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	if text := answer.Header.Get("Content-Range"); fault.Shift != 0 && text != "" {
		var from, to, size int64
		if _, err := fmt.Sscanf(text, "bytes %d-%d/%d", &from, &to, &size); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+fault.Shift, to+fault.Shift, size+fault.Shift))
		}
	}
	req.Status = answer.StatusCode
	w.WriteHeader(answer.StatusCode)
	if fault.Flip > 0 {
		n, _ := io.CopyN(w, answer.Body, fault.Flip-1)
		one := make([]byte, 1)
		if k, _ := io.ReadFull(answer.Body, one); k == 1 {
			n++
			_, _ = w.Write([]byte{^one[0]})
		}
		req.Sent = n
	}
	if fault.Cut > 0 {
		req.Sent, _ = io.CopyN(w, answer.Body, fault.Cut)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	n, _ := io.Copy(w, answer.Body)
	req.Sent += n
}
