package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/feed"
)

type serveOptions struct {
	socket, listen, tokenFile, cert, key string
	fd, cpus, nice                       int
	memory                               string
	idle                                 time.Duration
}

// tokenEnv is where the token may stand instead of a file.
const tokenEnv = "SHARDREAD_TOKEN"

func newServeCommand() *cobra.Command {
	o := new(serveOptions)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Read and decode for trainers in other processes",
		Long: `Read, decode and batch for trainers in other processes: of this host, which attach to a
Unix socket and get batches in shared memory, and with --listen of others, over TCP.
The Python package shardread starts one for itself; the protocol is documented
(docs/feed.md), so that any language can attach.

What data sets are read, and how, the clients say. Clients that open the same data share
it, its index, its cache and --memory. A client that dies, however, leaves nothing behind.

Whoever may open the socket may read what this process may read: it is made for its user
alone. --listen demands a token, from --token-file or from ` + tokenEnv + `, and should be
given a certificate, without which token and batches go in the clear.`,
		Example: `  shardread serve --socket /run/user/1000/shardread.sock --exit-when-idle 60s
  shardread serve --listen :7070 --token-file token --tls-cert cert.pem --tls-key key.pem`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%q is one argument too many: clients say which data they want; %s", args[0], cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServe(cmd.Context(), o, cmd.Flags(), streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *serveOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.socket, "socket", "", "a Unix socket to make, which clients of this host attach to")
	f.IntVar(&o.fd, "fd", -1, "the number of an inherited, connected Unix socket: serve the client at its other end, and end with it\n(with --socket, others beside it)")
	f.StringVar(&o.listen, "listen", "", "an address (host:port) for clients of other hosts; demands a token")
	f.StringVar(&o.tokenFile, "token-file", "", "the file with the token that clients of --listen must give, 16 bytes or more (default: "+tokenEnv+")")
	f.StringVar(&o.cert, "tls-cert", "", "the certificate of --listen, as PEM")
	f.StringVar(&o.key, "tls-key", "", "its key")
	f.StringVar(&o.memory, "memory", "", "what all passes of all clients may hold together, as 512MiB or 16GB (default: half of the machine's, or of its container's)")
	f.IntVar(&o.cpus, "cpus", 0, "how many processors are used at once (default: all that the process may use)")
	f.IntVar(&o.nice, "nice", 0, "how far to step back for other processes, such as the trainer: 0 to 19, as nice(1)")
	f.DurationVar(&o.idle, "exit-when-idle", 0, "end when no client has been there for so long, as 60s (default: stay)")
}

func runServe(ctx context.Context, o *serveOptions, f *pflag.FlagSet, s streams) error {
	c := feed.Config{Name: "shardread " + version, Uploader: uploader}
	if err := o.check(f, &c); err != nil {
		return usage(err)
	}
	if o.cpus > 0 {
		runtime.GOMAXPROCS(o.cpus)
	}
	if o.nice > 0 {
		if err := stepBack(o.nice); err != nil {
			return fmt.Errorf("--nice %d: %w", o.nice, err)
		}
	}
	server, err := feed.NewServer(c)
	if err != nil {
		return usage(err)
	}
	if f.Changed("fd") {
		conn, err := inherited(o.fd)
		if err != nil {
			return usage(fmt.Errorf("--fd %d: %w", o.fd, err))
		}
		return o.serveFor(ctx, server, conn)
	}
	return o.serve(ctx, server, c, s)
}

// serveFor serves one client, and with --socket others beside it, until it goes.
func (o *serveOptions) serveFor(ctx context.Context, server *feed.Server, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	ended := make(chan error, 1)
	if o.socket == "" {
		ended <- nil
	} else {
		l, err := feed.Listen(o.socket)
		if err != nil {
			return errors.Join(fmt.Errorf("--socket: %w", err), conn.Close())
		}
		go func() { ended <- server.Serve(l) }()
	}
	server.ServeConn(conn)
	return errors.Join(server.Close(), <-ended)
}

// check reports all that is wrong with the command line, and fills in c.
func (o *serveOptions) check(f *pflag.FlagSet, c *feed.Config) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	ways := 0
	for _, name := range []string{"socket", "fd", "listen"} {
		if f.Changed(name) {
			ways++
		}
	}
	switch {
	case ways == 0:
		fault("--socket, --fd or --listen: say where the clients come from")
	case f.Changed("fd") && f.Changed("listen"):
		fault("--fd serves a client and, with --socket, its children; it does not go with --listen")
	}
	if f.Changed("fd") && f.Changed("exit-when-idle") {
		fault("--exit-when-idle: with --fd the server ends with its client")
	}
	if f.Changed("fd") && o.fd < 3 {
		fault("--fd: %d; want 3 or more, as 0 to 2 are standard input, output and error", o.fd)
	}
	if o.cpus < 0 {
		fault("--cpus: %d", o.cpus)
	}
	if o.nice < 0 || o.nice > 19 {
		fault("--nice: %d; want 0 to 19", o.nice)
	}
	if o.idle < 0 {
		fault("--exit-when-idle: %v", o.idle)
	}
	if (o.cert == "") != (o.key == "") {
		fault("--tls-cert and --tls-key belong together")
	}
	if !f.Changed("listen") && (o.tokenFile != "" || o.cert != "") {
		fault("--token-file, --tls-cert and --tls-key are for --listen")
	}
	c.Memory = machineMemory() / 2
	if o.memory != "" {
		n, err := parseBytes(o.memory)
		if err != nil || n == 0 {
			fault("--memory: %q is no size; write it like 512MiB or 16GB", o.memory)
		}
		c.Memory = n
	}
	if f.Changed("listen") {
		token, err := o.token()
		if err != nil {
			faults = append(faults, err)
		}
		c.Token = token
	}
	faults = append(faults, c.Validate())
	return errors.Join(faults...)
}

// maxToken bounds the token's file.
const maxToken = 4 << 10

// token reads the token.
func (o *serveOptions) token() (string, error) {
	data := []byte(os.Getenv(tokenEnv))
	from := tokenEnv
	if o.tokenFile != "" {
		from = o.tokenFile
		f, err := os.Open(o.tokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		defer f.Close()
		if data, err = io.ReadAll(io.LimitReader(f, maxToken+1)); err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
	}
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0 && o.tokenFile == "":
		return "", fmt.Errorf("--listen: a token is missing: give --token-file, or set %s; `head -c 32 /dev/urandom | base64` makes a good one", tokenEnv)
	case len(data) == 0:
		return "", fmt.Errorf("--token-file: %s is empty", from)
	case len(data) > maxToken:
		return "", fmt.Errorf("--token-file: %s is larger than any token, %d bytes", from, maxToken)
	}
	return string(data), nil
}

// serve listens until the context ends, or nobody has been there for long enough.
func (o *serveOptions) serve(ctx context.Context, server *feed.Server, c feed.Config, s streams) error {
	var listeners []net.Listener
	if o.socket != "" {
		l, err := feed.Listen(o.socket)
		if err != nil {
			return fmt.Errorf("--socket: %w", err)
		}
		listeners = append(listeners, l)
	}
	if o.listen != "" {
		l, err := o.listenTCP(s)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return fmt.Errorf("--listen: %w", err)
		}
		listeners = append(listeners, l)
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		// That nobody hears is no reason to stop.
		_, _ = fmt.Fprintf(s.err, "shardread: serving on %s, with %s of memory\n", l.Addr(), bytesText(c.Memory))
		go func() { ended <- server.Serve(l) }()
	}
	err := o.wait(ctx, server, ended)
	if err != nil {
		listeners = listeners[1:] // one has ended
	}
	err = errors.Join(err, server.Close())
	for range listeners {
		err = errors.Join(err, <-ended)
	}
	return err
}

// wait waits until the context ends, nobody has been there for long enough, or a listener
// fails, which is an error.
func (o *serveOptions) wait(ctx context.Context, server *feed.Server, ended <-chan error) error {
	tick := time.NewTicker(max(o.idle/8, 50*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("listening has ended: %w", err)
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if o.idle > 0 && server.Idle() >= o.idle {
				return nil
			}
		}
	}
}

// listenTCP listens for clients of other hosts.
func (o *serveOptions) listenTCP(s streams) (net.Listener, error) {
	var config *tls.Config
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, err
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, err
	}
	if config == nil {
		_, _ = fmt.Fprintln(s.err, "shardread: without --tls-cert the token and all batches go in the clear: use it on networks that you trust only")
		return l, nil
	}
	return tls.NewListener(l, config), nil
}

// inherited is the socket that the process has been given.
func inherited(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), fmt.Sprintf("fd %d", fd))
	if f == nil {
		return nil, errors.New("no such file descriptor")
	}
	conn, err := net.FileConn(f)
	// FileConn has its own.
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("is no socket that could be served: %w", err)
	}
	u, ok := conn.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unix" {
		_ = conn.Close()
		return nil, fmt.Errorf("is a socket of %s, want a Unix stream socket, as socketpair makes them", conn.LocalAddr().Network())
	}
	return conn, nil
}
