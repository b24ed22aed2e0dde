//go:build linux

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shardify/feed"
)

// server is `shardread serve` in a process of its own.
type server struct {
	cmd    *exec.Cmd
	stderr *strings.Builder
	lines  chan string
	done   sync.WaitGroup
}

// program is a command line of this program.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &exec.Cmd{Path: exe, Args: append([]string{"shardread"}, args...), Env: os.Environ()}
}

// startServer starts `shardread serve` with a file that it inherits as 3, if not nil.
func startServer(t *testing.T, inherited *os.File, args ...string) *server {
	t.Helper()
	s := &server{cmd: program(t, append([]string{"serve"}, args...)...), stderr: new(strings.Builder), lines: make(chan string, 100)}
	if inherited != nil {
		s.cmd.ExtraFiles = []*os.File{inherited}
	}
	said, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.done.Go(func() {
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			s.stderr.WriteString(lines.Text() + "\n")
			s.lines <- lines.Text()
		}
		close(s.lines)
	})
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // where it has not ended
		_ = s.wait()
	})
	return s
}

// wait waits until it has ended.
func (s *server) wait() error {
	s.done.Wait()
	return s.cmd.Wait()
}

// address waits until it serves, and says where.
func (s *server) address(t *testing.T) string {
	t.Helper()
	serving := regexp.MustCompile(`serving on (\S+),`)
	for {
		select {
		case line, more := <-s.lines:
			if m := serving.FindStringSubmatch(line); m != nil {
				return m[1]
			}
			if !more {
				t.Fatalf("the server has ended: %s", s.stderr)
			}
		case <-time.After(time.Minute):
			t.Fatal("the server does not serve within a minute")
		}
	}
}

// socketPair is two connected sockets, as files.
func socketPair(t *testing.T) (here net.Conn, there *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	f := os.NewFile(uintptr(fds[0]), "here")
	defer f.Close()
	if here, err = net.FileConn(f); err != nil {
		t.Fatal(err)
	}
	return here, os.NewFile(uintptr(fds[1]), "there")
}

// epochOf reads an epoch, and returns how many samples came.
func epochOf(t *testing.T, c *feed.Client, dir string) (samples int) {
	t.Helper()
	r, err := c.Open(t.Context(), dir, smallConfig)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		samples += b.Len()
		b.Release()
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return samples
}

// ends waits for the end of a process.
func (s *server) ends(t *testing.T) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		_ = s.cmd.Process.Kill()
		t.Fatal("the server has not ended within a minute")
		return nil
	}
}

// A server on an inherited socket ends with its client.
func TestServeInherited(t *testing.T) {
	dir := small(t)
	here, there := socketPair(t)
	s := startServer(t, there, "--fd", "3", "--cpus", "1", "--nice", "5", "--memory", "1GB")
	_ = there.Close()
	c, err := feed.NewClient(t.Context(), here, feed.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, pid := c.Server(); pid != s.cmd.Process.Pid {
		t.Errorf("the server's pid is %d, want %d", pid, s.cmd.Process.Pid)
	}
	if n := epochOf(t, c, dir); n != 30 {
		t.Errorf("%d samples, want 30", n)
	}
	want := 5
	for _, nice := range niceness(t, os.Getpid()) {
		want = max(want, nice) // the tests may be nicer themselves
	}
	for tid, nice := range niceness(t, s.cmd.Process.Pid) {
		if nice != want {
			t.Errorf("thread %s is as nice as %d, want %d", tid, nice, want)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := s.ends(t); err != nil || s.stderr.Len() > 0 {
		t.Errorf("the server ends with %v: %s", err, s.stderr)
	}
}

// A client that is killed with batches in hand leaves nothing, and others go on.
func TestServeKilledClient(t *testing.T) {
	dir := small(t)
	socket := filepath.Join(t.TempDir(), "s")
	s := startServer(t, nil, "--socket", socket, "--memory", "300MB", "--exit-when-idle", "200ms")
	s.address(t)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	c, err := feed.Dial(t.Context(), "unix", socket, feed.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := openFilesOf(t, s.cmd.Process.Pid)
	holder := program(t)
	holder.Args = []string{"holder"}
	holder.Env = append(holder.Env, holderEnv+"="+socket+"\n"+dir)
	holder.Stderr = os.Stderr
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if n := slabsOf(t, s.cmd.Process.Pid); n == 0 {
		t.Error("the server has no slab, where a client holds one")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	for deadline := time.Now().Add(time.Minute); slabsOf(t, s.cmd.Process.Pid) > 0 || openFilesOf(t, s.cmd.Process.Pid) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d slabs and %d files are left of a client that was killed", slabsOf(t, s.cmd.Process.Pid), openFilesOf(t, s.cmd.Process.Pid)-before)
		}
	}
	if n := epochOf(t, c, dir); n != 30 {
		t.Errorf("another client gets %d samples, want 30", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := s.ends(t); err != nil {
		t.Errorf("the idle server ends with %v: %s", err, s.stderr)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// When the server is killed, its client hears of it; what it holds stays good. The socket
// that is left is no obstacle.
func TestServeKilledServer(t *testing.T) {
	dir := small(t)
	socket := filepath.Join(t.TempDir(), "s")
	s := startServer(t, nil, "--socket", socket)
	s.address(t)
	c, err := feed.Dial(t.Context(), "unix", socket, feed.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Open(t.Context(), dir, smallConfig)
	if err != nil {
		t.Fatal(err)
	}
	r.SetCredit(1)
	var last error
	var held *feed.Batch
	for b, err := range r.Epoch(t.Context(), 0) {
		if last = err; err != nil {
			break
		}
		if held != nil {
			t.Fatal("a second batch came, where one is the credit")
		}
		held = b
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if last == nil || !strings.Contains(last.Error(), "has gone") {
		t.Errorf("the pass ends with %v", last)
	}
	if n := len(held.Samples()); n != 3 || held.Keys()[0] == "" {
		t.Errorf("the batch that is held has %d samples", n)
	}
	held.Release()
	if _, err := c.Open(t.Context(), dir, smallConfig); err == nil {
		t.Error("a server that was killed opens data")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	next := startServer(t, nil, "--socket", socket)
	next.address(t)
	second := startServer(t, nil, "--socket", socket)
	if err := second.ends(t); err == nil || !strings.Contains(second.stderr.String(), "a server is there already") {
		t.Errorf("a second server on one socket: %v: %s", err, second.stderr)
	}
	// A server that is told to end says so to its clients.
	c, err = feed.Dial(t.Context(), "unix", socket, feed.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := next.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := next.ends(t); err != nil {
		t.Errorf("the server ends with %v: %s", err, next.stderr)
	}
	_, err = c.Open(t.Context(), dir, smallConfig)
	for deadline := time.Now().Add(time.Minute); err == nil || !strings.Contains(err.Error(), "told to end"); _, err = c.Open(t.Context(), dir, smallConfig) {
		if time.Now().After(deadline) {
			t.Fatalf("the client hears %v", err)
		}
	}
}

// certificate makes one for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{cert: text, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return cert, key, pool
}

// Over TCP, in the clear and with TLS, for who knows the token.
func TestServeListen(t *testing.T) {
	dir := small(t)
	const token = "a token of 16 bytes and more"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key, pool := certificate(t)
	for _, c := range []struct {
		args []string
		tls  *tls.Config
	}{
		{nil, nil},
		{[]string{"--tls-cert", cert, "--tls-key", key}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}},
	} {
		s := startServer(t, nil, append([]string{"--listen", "127.0.0.1:0", "--token-file", file}, c.args...)...)
		address := s.address(t)
		if clear := strings.Contains(s.stderr.String(), "in the clear"); clear != (c.tls == nil) {
			t.Errorf("with TLS %v, the server says %s", c.tls != nil, s.stderr)
		}
		x, err := feed.Dial(t.Context(), "tcp", address, feed.DialConfig{Token: token, TLS: c.tls})
		if err != nil {
			t.Fatal(err)
		}
		if n := epochOf(t, x, dir); n != 30 {
			t.Errorf("%d samples, want 30", n)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		var wrong *feed.Error
		if _, err := feed.Dial(t.Context(), "tcp", address, feed.DialConfig{Token: token + "!", TLS: c.tls}); !errors.As(err, &wrong) || wrong.Code != feed.CodeToken {
			t.Errorf("a wrong token: %v", err)
		}
		if c.tls != nil {
			var unknown *tls.CertificateVerificationError
			if _, err := feed.Dial(t.Context(), "tcp", address, feed.DialConfig{Token: token, TLS: &tls.Config{MinVersion: tls.VersionTLS13}}); !errors.As(err, &unknown) {
				t.Errorf("a certificate that nobody knows: %v", err)
			}
		}
	}
}
