package feed

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shardify/imaging/transform"
	"shardify/reader"
)

var (
	update = flag.Bool("update", false, "write testdata anew")
	cycles = flag.Int("cycles", 200, "TestCycles: how many clients come and go")
)

// greeted is a raw client that has said hello.
func greeted(t testing.TB, s *Server, network string) *raw {
	t.Helper()
	x := talk(t, s, network)
	x.ask(&request{Op: "hello", Protocol: Protocol, Client: "raw", Token: s.config.Token}, nil)
	return x
}

// What is no request ends the connection with an event that says why, and harms nobody
// else.
func TestHostile(t *testing.T) {
	dir := data(t)
	s := serve(t, Config{})
	other := open(t, attach(t, s, "unix"), dir, reader.Config{BatchSize: 8, Transform: crop})
	long := strings.Repeat("x", 70_000)
	frame := func(text string) string { return string(appendHead(nil, len(text), 0)) + text }
	for _, c := range []struct {
		hello       bool
		bytes, want string
	}{
		{false, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not 0"},
		{false, string(appendHead(nil, 1<<30, 0)), "a message of 1073741824 bytes, where 2 to 65536 may come"},
		{false, frame(`{"id":1,"op":"hello","client":"` + long + `"}`), "65536 may come"},
		{false, frame(`{"id":1,"op":"open","data":"/"}`), `the first request is "open"`},
		{false, frame(`{"op":"hello","protocol":1}`), "hello to be said first"},
		{false, frame(`{"id":1,"op":"hello","protocol":2,"client":"c 9"}`), "speaks version 2 of the protocol"},
		{true, string(appendHead(nil, 1<<27, 0)), "a message of 134217728 bytes"},
		{true, string(appendHead(nil, 2, 9)) + "{}", "with a payload of 9 bytes"},
		{true, frame(`[]`), "no request"},
		{true, frame(`{"id":7,"op":"start","raeder":1}`), `unknown field "raeder"`},
		{true, frame(`{"id":"7","op":"start"}`), "no request"},
		{true, frame(`{"id":7,"op":"start"}{}`), "more than a request"},
		{true, frame(`{"op":"start"}`), "has no id"},
		{true, frame(`{"op":"release","pass":1,"batches":[0]}`), "there is no pass 1"},
		{true, frame(`{"op":"release","pass":0,"batches":[3]}`), "batch 3 of pass 0 is not held"},
		{true, "\x05\x00", "ends within its head"},
	} {
		for _, network := range []string{"unix", "tcp"} {
			x := talk(t, s, network)
			if c.hello {
				x.ask(&request{Op: "hello", Protocol: Protocol, Client: "raw"}, nil)
			}
			if _, err := x.conn.Write([]byte(c.bytes)); err != nil {
				t.Fatal(err)
			}
			if len(c.bytes) < headBytes { // no more comes
				if err := x.conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			var last map[string]any
			for m := x.frame(); m != nil; m = x.frame() {
				last = m
			}
			said, _ := json.Marshal(last)
			if last["event"] != "error" || !strings.Contains(string(said), strings.ReplaceAll(c.want, `"`, `\"`)) {
				t.Errorf("%.60q: %s, want %q", c.bytes, said, c.want)
			}
		}
	}
	if n := len(all(t, other.Epoch(t.Context(), 0))); int64(n) != other.Len() {
		t.Errorf("another client gets %d batches, want %d", n, other.Len())
	}
}

// Whoever does not know the token gets nothing, over TCP; the Unix socket is its user's.
func TestToken(t *testing.T) {
	s := serve(t, Config{Token: "0123456789abcdef"})
	for _, token := range []string{"", "0123456789abcde", "0123456789abcdef0", "x123456789abcdef"} {
		x := talk(t, s, "tcp")
		x.send(`{"id":1,"op":"hello","protocol":1,"client":"c","token":"` + token + `"}`)
		first, second, end := x.frame(), x.frame(), x.frame()
		said, _ := json.Marshal(first)
		if first["id"] != 1.0 || !strings.Contains(string(said), `"code":"token"`) || first["ok"] != nil {
			t.Errorf("token %q: %s", token, said)
		}
		if second["event"] != "error" || end != nil {
			t.Errorf("token %q: %v and %v came behind it", token, second, end)
		}
	}
	attach(t, s, "tcp")
	x := talk(t, s, "unix")
	x.ask(&request{Op: "hello", Protocol: Protocol, Client: "raw"}, nil)
	if _, err := NewServer(Config{Token: "short"}); err == nil || !strings.Contains(err.Error(), "16") {
		t.Errorf("a short token: %v", err)
	}
}

// Requests that are not read, and ids that are taken, are no way to fill the server.
func TestFlood(t *testing.T) {
	s := serve(t, Config{})
	x := greeted(t, s, "unix")
	var flood bytes.Buffer
	for i := range 100_000 {
		text := `{"id":` + strconv.Itoa(i+10) + `,"op":"stats","reader":1}`
		flood.Write(appendHead(nil, len(text), 0))
		flood.WriteString(text)
	}
	// Nothing is read until it is over.
	_, err := x.conn.Write(flood.Bytes())
	if err != nil && !isReset(err) {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("100,000 requests went, of whose replies none was read")
	}
}

// openFiles is how many files the process has open; -1 where that cannot be told.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list)
}

// mapped is how many slabs the process has mapped.
func mapped(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	return bytes.Count(maps, []byte("memfd:shardread"))
}

// Clients that come and go, in whatever way, leave no file, memory or goroutine.
func TestCycles(t *testing.T) {
	dir := data(t)
	s := serve(t, Config{})
	cycle := func(i int) {
		there, here := pair(t, []string{"unix", "tcp"}[i/2%2])
		s.wg.Go(func() { s.ServeConn(there) })
		c, err := NewClient(t.Context(), here, DialConfig{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Open(t.Context(), dir, reader.Config{BatchSize: 4, Transform: crop})
		if err != nil {
			t.Fatal(err)
		}
		var held *Batch
		for b, err := range r.Epoch(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			held = b
			break
		}
		if i%3 == 0 {
			held.Release()
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if i%3 != 0 { // after the connection
			held.Release()
		}
	}
	quiet := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions) == 0
	}
	for i := range 12 {
		cycle(i)
	}
	eventually(t, "the clients have gone", quiet)
	files, routines := openFiles(), runtime.NumGoroutine()
	for i := range *cycles {
		cycle(i)
	}
	eventually(t, "the clients have gone", quiet)
	eventually(t, "files are closed", func() bool { return openFiles() <= files })
	eventually(t, "slabs are unmapped", func() bool { return mapped(t) == 0 })
	eventually(t, "goroutines have ended", func() bool { return runtime.NumGoroutine() <= routines })
}

// transcript is a client that writes down what is said.
type transcript struct {
	*raw
	files *fileQueue
	from  io.Reader
	words strings.Builder
	hide  *strings.Replacer
}

// transcribe begins one, of a server that is called "shardread X".
func transcribe(t *testing.T, dir string, c Config) *transcript {
	there, here := pair(t, "unix")
	c.Name = "shardread X"
	s := serve(t, c)
	s.wg.Go(func() { s.ServeConn(there) })
	if err := here.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	x := &transcript{raw: &raw{t: t, conn: here}, files: new(fileQueue), hide: strings.NewReplacer(dir, "DATA")}
	x.from = x.files.reader(here)
	t.Cleanup(func() {
		x.files.close()
		_ = here.Close()
	})
	return x
}

// What differs from run to run.
var (
	saidPID    = regexp.MustCompile(`"pid":\d+`)
	saidMemory = regexp.MustCompile(`"(memory|credit|workers)":\d+`)
	saidSum    = regexp.MustCompile(`crc64nvme:[0-9a-f]{16}`)
	saidTable  = regexp.MustCompile(`"UEFS[A-Za-z0-9+/]+=*"`)
)

// hear reads messages.
func (x *transcript) hear(n int) {
	x.t.Helper()
	for range n {
		data, _, err := readFrame(x.from, maxText)
		if err != nil {
			x.t.Fatal(err)
		}
		line := x.hide.Replace(string(data))
		line = saidPID.ReplaceAllString(line, `"pid":PID`)
		line = saidMemory.ReplaceAllString(line, `"$1":N`)
		line = saidSum.ReplaceAllString(line, "crc64nvme:SUM")
		line = saidTable.ReplaceAllString(line, `"PAR1…PAR1"`)
		x.words.WriteString("< " + line + "\n")
	}
}

func (x *transcript) say(message string) {
	x.words.WriteString("> " + x.hide.Replace(message) + "\n")
	x.send(message)
}

// hearInAnyOrder reads messages, of which the first some come in any order.
func (x *transcript) hearInAnyOrder(some, n int) {
	x.t.Helper()
	head := x.words.String()
	x.words.Reset()
	x.hear(n)
	tail := strings.SplitAfter(x.words.String(), "\n")
	slices.Sort(tail[:some])
	x.words.Reset()
	x.words.WriteString(head + strings.Join(tail, ""))
}

// check compares it with what is in testdata.
func (x *transcript) check(name string) {
	t := x.t
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(x.words.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(x.words.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(lines)) {
		if i >= len(got) || i >= len(lines) || got[i] != lines[i] {
			t.Fatalf("line %d:\n%s\nwant\n%s", i+1, slices.Concat(got, []string{""})[min(i, len(got))], slices.Concat(lines, []string{""})[min(i, len(lines))])
		}
	}
}

// The words of a session, as another language's client has to read and write them.
func TestTranscript(t *testing.T) {
	dir := data(t)
	x := transcribe(t, dir, Config{})
	x.say(`{"id":1,"op":"hello","protocol":1,"client":"transcript"}`)
	x.hear(1)
	x.say(`{"id":2,"op":"open","data":"` + filepath.ToSlash(dir) + `","config":{"batch_size":3,"shuffle":"none","ends":"exact","decode":"none","fields":["cls","seg.png"],"memory":33554432,"workers":2}}`)
	x.hear(1)
	x.say(`{"id":3,"op":"state","reader":1,"epoch":0,"batch":25}`)
	x.hear(1)
	x.say(`{"id":4,"op":"plan","reader":1,"epoch":0,"from":25,"to":27}`)
	x.hear(1)
	x.say(`{"id":5,"op":"start","reader":1,"epoch":0,"credit":1}`)
	x.hear(5) // reply, slab, batch; the next one's slab, held
	x.say(`{"op":"release","pass":2,"batches":[0]}`)
	x.hear(3) // batch; slab, held
	x.say(`{"id":6,"op":"read","reader":1,"samples":[2,0],"epoch":0}`)
	x.hear(2) // slab, reply
	x.say(`{"id":7,"op":"start","reader":9}`)
	x.hear(1)
	x.say(`{"id":8,"op":"table","reader":1,"where":"widht > 3"}`)
	x.hear(1)
	x.say(`{"id":9,"op":"table","reader":1,"split":"train","label":"3","from":77}`)
	x.hear(1)
	x.say(`{"id":10,"op":"stop","pass":2}`)
	x.hearInAnyOrder(2, 3) // two slabs, reply
	x.say(`{"op":"release","pass":0,"batches":[0,0]}`)
	x.hear(1)
	x.check("session.txt")
}

// A client that reads nothing does not keep the server from ending.
func TestDeafClient(t *testing.T) {
	dir := data(t)
	s, err := NewServer(Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := greeted(t, s, "unix")
	var opened openOK
	x.ask(&request{Op: "open", Data: text(dir), Config: text(reader.Config{BatchSize: 1, Transform: crop})}, &opened)
	// Replies that fill the socket, and are not read.
	for i := range maxUnder / 2 {
		x.send(`{"id":` + strconv.Itoa(i+100) + `,"op":"manifest","reader":1}`)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server has not ended within a minute")
	}
}

// Who holds all that reads may have hears of it.
func TestReadHeld(t *testing.T) {
	dir := data(t)
	x := greeted(t, serve(t, Config{}), "unix")
	var opened openOK
	x.ask(&request{Op: "open", Data: text(dir), Config: text(reader.Config{
		Memory: 24 << 20, Workers: 2, BatchSize: 4, Transform: transform.List{transform.CenterCrop{Size: transform.Size{224}}},
	})}, &opened)
	given := 0
	var held map[string]any
	for i := 0; held == nil; i++ {
		x.send(`{"id":` + strconv.Itoa(i+100) + `,"op":"read","reader":1,"samples":[0,1,2,3,4,5,6,7],"epoch":0}`)
		for answered := false; !answered && held == nil; {
			switch m := x.frame(); {
			case m["ok"] != nil:
				given++
				answered = true
			case m["event"] == "held":
				held = m
			case m["event"] != "slab":
				t.Fatalf("%v", m)
			}
		}
	}
	if given == 0 || held["pass"] != 0.0 || held["batches"] != float64(given) || held["released"] != 0.0 {
		t.Errorf("after %d batches: %v", given, held)
	}
	// One that comes back is enough for the one that waits.
	x.send(`{"op":"release","pass":0,"batches":[0]}`)
	for m := x.frame(); m["ok"] == nil; m = x.frame() {
		if m["event"] == nil {
			t.Fatalf("%v", m)
		}
	}
	x.ask(&request{Op: "close", Reader: opened.Reader}, nil)
}
