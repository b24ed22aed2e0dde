//go:build unix

package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"shardify/reader"
)

// fakeCard is a GPU whose memory is the host's, shared as the server's slabs are, on both
// sides. Copies are done as late as they may be: when they are waited for. (Against the
// double of the driver, in two processes, cmd/shardread has tests.)
type fakeCard struct {
	mu     sync.Mutex
	open   int               // uploaders
	shared map[uint64][]byte // by their places, as lent by the server
	mapped int               // by clients
	shares int               // how often memory was taken
	wants  reader.Config
	// fail says which call of a name, from 1, fails; lost: nobody knows what became of it.
	fail map[string]int
	lost bool
}

const fakeUUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"

func newFakeCard() *fakeCard {
	return &fakeCard{shared: map[uint64][]byte{}, fail: map[string]int{}}
}

// config is a server's with the card.
func (f *fakeCard) config() Config {
	return Config{Uploader: func(device string, c reader.Config, transform bool) (Uploader, error) {
		if device != "0" && device != fakeUUID {
			return nil, fmt.Errorf("there is no GPU %s here", device)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if transform && c.Transform == nil {
			return nil, fmt.Errorf("%w: transform 3 does not go here", reader.ErrConfig)
		}
		f.open++
		f.wants = c
		return &fakeUploader{fakeCard: f, wanted: c, transforms: transform}, nil
	}}
}

var errFake = errors.New("CUDA_ERROR_FAKE")

// failing counts a call.
func (f *fakeCard) failing(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail[name]--; f.fail[name] == 0 {
		return errFake
	}
	return nil
}

// clean fails the test where something was not given back.
func (f *fakeCard) clean(t *testing.T) {
	t.Helper()
	eventually(t, "the card is free", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.open == 0 && len(f.shared) == 0 && f.mapped == 0
	})
}

// fakeUploader makes float32 of a reader's uint8, where that is wanted.
type fakeUploader struct {
	*fakeCard
	wanted reader.Config
	// transforms: it was asked to carry them out.
	transforms bool
	meter      sync.Mutex
	stats      reader.DeviceStats
	passes     int // that run
}

func (u *fakeUploader) Started() {
	u.meter.Lock()
	defer u.meter.Unlock()
	u.passes++
}

func (u *fakeUploader) Ended() {
	u.meter.Lock()
	defer u.meter.Unlock()
	u.passes--
}

func (u *fakeUploader) Waited(w reader.DeviceWaits, first bool) {
	u.meter.Lock()
	defer u.meter.Unlock()
	if u.passes < 1 {
		panic("a wait of no pass")
	}
	if u.stats.Batches++; first {
		u.stats.Late++
	}
	u.stats.Waits.GPU += w.GPU
	u.stats.Waits.Reader += w.Reader
	u.stats.Waits.Upload += w.Upload
}

func (u *fakeUploader) Stats() reader.DeviceStats {
	u.meter.Lock()
	defer u.meter.Unlock()
	return u.stats
}

func (u *fakeUploader) Device() string                        { return fakeUUID }
func (u *fakeUploader) Wanted(of reader.Config) reader.Config { of.DType = u.wanted.DType; return of }
func (u *fakeUploader) Config() reader.Config {
	c := u.wanted
	if c.DType == reader.DTypeFloat32 {
		c.DType = reader.DTypeUint8
	}
	return c
}

func (u *fakeUploader) Tensors(host []reader.Tensor) (made []reader.Tensor, size []int64) {
	for _, t := range host {
		if u.transforms && t.Name == "label" { // nothing is made of it
			continue
		}
		n := int64(len(t.Data))
		if t.Name == "image" && u.wanted.DType == reader.DTypeFloat32 {
			t.DType, n = reader.DTypeFloat32, 4*n
		}
		made, size = append(made, reader.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}), append(size, n)
	}
	return made, size
}

func (u *fakeUploader) Share(n int64) (uint64, int64, *os.File, error) {
	if err := u.failing("Share"); err != nil {
		return 0, 0, nil, err
	}
	n = (n + 65535) / 65536 * 65536
	f, data, err := newShared(n)
	if err != nil {
		return 0, 0, nil, err
	}
	for i := range data {
		data[i] = 0xdb
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	u.shared[at] = data
	u.shares++
	return at, n, f, nil
}

func (u *fakeUploader) Unshare(at uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	data := u.shared[at]
	delete(u.shared, at)
	freeShared(data)
	return nil
}

func (u *fakeUploader) Upload(b *reader.Batch, at []uint64) (func() (bool, error), bool, error) {
	if err := u.failing("Upload"); err != nil {
		return nil, !u.lost, err
	}
	return func() (bool, error) {
		if err := u.failing("wait"); err != nil {
			return !u.lost, err
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		for _, t := range b.Tensors() {
			if u.transforms && t.Name == "label" {
				continue
			}
			to := u.memory(at[0])
			if at = at[1:]; t.Name == "image" && u.wanted.DType == reader.DTypeFloat32 {
				for k, v := range t.Data {
					*(*float32)(unsafe.Pointer(&to[4*k])) = float32(v)
				}
				continue
			}
			copy(to, t.Data)
		}
		return true, nil
	}, false, nil
}

// memory is what lies at a place of the card's.
func (f *fakeCard) memory(at uint64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for from, data := range f.shared {
		if at >= from && at < from+uint64(len(data)) {
			return data[at-from:]
		}
	}
	panic("no memory of the card")
}

func (u *fakeUploader) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open--
	return nil
}

// The client's side.

func (f *fakeCard) UUID() string { return fakeUUID }

func (f *fakeCard) Map(file *os.File, size int64) (uint64, func() error, error) {
	s, err := mapSlab(file, size)
	if err != nil {
		return 0, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mapped++
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.data)))), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mapped--
		freeShared(s.data)
		return nil
	}, nil
}

// onCard copies a batch whose tensors are on the card.
func onCard(b *Batch) copied {
	c := copyOf(b)
	for i, t := range b.DeviceTensors() {
		n := int64(t.DType.Size())
		for _, d := range t.Shape {
			n *= int64(d)
		}
		at := b.device.memory
		all := b.device.device.(*fakeCard).seen(b)
		if n > 0 {
			c.tensors[i].Data = slices.Clone(all[t.Data-at:][:n])
		}
	}
	return c
}

// seen is the card's memory as the client has mapped it.
func (f *fakeCard) seen(b *Batch) []byte {
	at := uintptr(b.device.memory)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), b.device.size)
}

func openOn(t testing.TB, c *Client, f *fakeCard, dir string, config reader.Config) *Reader {
	t.Helper()
	r, err := c.OpenOn(t.Context(), f, TransformOnHost, []reader.Source{{URL: dir}}, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Batches on a card are the reader's, to the last byte, in whatever order they are released,
// and their memory is used again and again, and freed.
func TestDevice(t *testing.T) {
	dir := data(t)
	damage(t, dir, 3, 17, 44)
	for name, config := range configs() {
		t.Run(name, func(t *testing.T) {
			if config.OnBad == "" {
				config.OnBad, config.SkipChecksums = reader.OnBadSkip, true
			}
			f := newFakeCard()
			s := serve(t, f.config())
			local, err := reader.Open(t.Context(), dir, config)
			if err != nil {
				t.Fatal(err)
			}
			defer local.Close()
			c := attach(t, s, "unix")
			r := openOn(t, c, f, dir, config)
			r.SetCredit(1 << 26)
			if r.opened.Device != fakeUUID {
				t.Errorf("on %q", r.opened.Device)
			}
			for epoch := range 2 {
				want := all(t, local.Epoch(t.Context(), epoch))
				var got []copied
				var held []*Batch
				for b, err := range r.Epoch(t.Context(), epoch) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, onCard(b))
					// Up to three are held, and released in any order, still whole.
					if held = append(held, b); len(held) == 3 || rand.IntN(2) == 0 {
						i := rand.IntN(len(held))
						n := slices.IndexFunc(got, func(c copied) bool { return c.number == held[i].Number() })
						same(t, []copied{onCard(held[i])}, got[n:n+1])
						held[i].Release()
						held = slices.Delete(held, i, i+1)
					}
				}
				for _, b := range held {
					b.Release()
				}
				same(t, got, want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			f.clean(t)
		})
	}
}

// What is done on the card is the client's configuration, and not the reader's.
func TestDeviceWork(t *testing.T) {
	dir, f := data(t), newFakeCard()
	s := serve(t, f.config())
	config := reader.Config{BatchSize: 8, Transform: crop, DType: reader.DTypeFloat32, Memory: 64 << 20}
	r := openOn(t, attach(t, s, "unix"), f, dir, config)
	if r.Config().DType != reader.DTypeFloat32 || r.Tensors()[0].DType != reader.DTypeFloat32 {
		t.Errorf("%v, %v", r.Config().DType, r.Tensors())
	}
	config.DType = reader.DTypeUint8
	local, err := reader.Open(t.Context(), dir, config)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	want := all(t, local.Epoch(t.Context(), 0))
	n := 0
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got := onCard(b)
		for i, v := range want[n].tensors[0].Data {
			if x := *(*float32)(unsafe.Pointer(&got.tensors[0].Data[4*i])); x != float32(v) {
				t.Fatalf("batch %d: element %d is %v, want %v", n, i, x, v)
			}
		}
		n++
		b.Release()
	}
	if n != len(want) || f.shares > 4 {
		t.Errorf("%d batches, for which memory was taken %d times", n, f.shares)
	}
	// One is held until the next can only come after it.
	r.SetCredit(1)
	for b, err := range r.Epoch(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		b.Release()
	}
	st, err := r.Stats(t.Context())
	if err != nil || len(st.Devices) != 1 {
		t.Fatal(st.Devices, err)
	}
	if d := st.Devices[0]; d.Batches != int64(2*n) || d.Late != 2 || d.Waits.GPU < time.Duration(n-1)*time.Millisecond || d.Waits.Reader == 0 || d.Waits.Upload == 0 {
		t.Errorf("of %d batches: %+v", n, d)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	f.clean(t)
}

// What a client wants transformed on the card is the card's to transform, and batches have
// the tensors that it makes, no others.
func TestDeviceTransforms(t *testing.T) {
	dir, f := data(t), newFakeCard()
	c := attach(t, serve(t, f.config()), "unix")
	config := reader.Config{BatchSize: 8, Transform: crop}
	r, err := c.OpenOn(t.Context(), f, TransformOnDevice, []reader.Source{{URL: dir}}, config)
	if err != nil {
		t.Fatal(err)
	}
	if list := r.Tensors(); len(list) != 1 || list[0].Name != "image" {
		t.Errorf("tensors %v", list)
	}
	local, err := reader.Open(t.Context(), dir, config)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	want := all(t, local.Epoch(t.Context(), 0))
	for i := range want {
		want[i].tensors = want[i].tensors[:1]
	}
	var got []copied
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, onCard(b))
		b.Release()
	}
	same(t, got, want)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	f.clean(t)
}

// A batch that has lost all its samples comes as one of none, also where it is the first for
// which memory is taken.
func TestDeviceEmpty(t *testing.T) {
	dir := data(t)
	damage(t, dir, 0, 1)
	f := newFakeCard()
	r := openOn(t, attach(t, serve(t, f.config()), "unix"), f, dir, reader.Config{BatchSize: 1, Shuffle: reader.ShuffleNone, Transform: crop, OnBad: reader.OnBadSkip})
	n := int64(0)
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if want := min(b.Number()/2, 1); b.Number() != n || int64(b.Len()) != want || len(onCard(b).samples) != b.Len() || len(b.Bad()) != 1-b.Len() {
			t.Errorf("batch %d has %d samples, and lacks %v", b.Number(), b.Len(), b.Bad())
		}
		n++
		b.Release()
	}
	if n != 80 {
		t.Errorf("%d batches, want 80", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	f.clean(t)
}

// Who holds all is told so, once all that is on its way has come; and goes on after releases.
func TestDeviceCredit(t *testing.T) {
	dir, f := data(t), newFakeCard()
	s := serve(t, f.config())
	x := greeted(t, s, "unix")
	var opened openOK
	x.ask(&request{Op: "open", Data: text(dir), Device: "0", Config: text(reader.Config{BatchSize: 4, Transform: crop})}, &opened)
	var start startOK
	x.ask(&request{Op: "start", Reader: opened.Reader, Credit: 1}, &start)
	first := x.event("batch")
	if held := x.event("held"); held["batches"] != 1.0 || held["bytes"] != first["bytes"] {
		t.Errorf("held: %v", held)
	}
	x.send(`{"op":"release","pass":2,"batches":[0]}`)
	x.event("batch")
	if held := x.event("held"); held["batches"] != 1.0 || held["released"] != 1.0 {
		t.Errorf("held: %v", held)
	}
	x.ask(&request{Op: "stop", Pass: start.Pass}, nil)
	size := int64(first["bytes"].(float64))
	x.ask(&request{Op: "start", Reader: opened.Reader, Credit: 3*size + size/2}, &start)
	for i := range 3 {
		if b := x.event("batch"); b["number"] != float64(i) || b["device_slab"] == b["slab"] {
			t.Errorf("batch %v", b)
		}
	}
	if held := x.event("held"); held["batches"] != 3.0 {
		t.Errorf("held: %v", held)
	}
	x.ask(&request{Op: "close", Reader: opened.Reader}, nil)
	f.mu.Lock()
	if f.open != 1 || len(f.shared) == 0 {
		t.Errorf("of batches that are held %d places are left", len(f.shared))
	}
	f.mu.Unlock()
	x.send(`{"op":"release","pass":3,"batches":[2,0,1]}`)
	x.send(`{"op":"release","pass":2,"batches":[1]}`)
	f.clean(t)
	x.end()
}

// Nothing is left of a client that goes at any moment.
func TestDeviceLeaving(t *testing.T) {
	dir, f := data(t), newFakeCard()
	s := serve(t, f.config())
	for i := range 20 {
		c := attach(t, s, "unix")
		r := openOn(t, c, f, dir, reader.Config{BatchSize: 4, Transform: crop})
		n := 0
		for b, err := range r.Epoch(t.Context(), i) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == i/2+1 {
				if i%2 == 0 {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					if got := onCard(b); len(got.tensors[0].Data) == 0 { // still good
						t.Error("no bytes")
					}
				}
				b.Release()
				break
			}
			b.Release()
		}
		if i%2 == 1 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		f.clean(t)
	}
}

// A card that fails ends the pass with an error that says so; the reader and others go on,
// and only what the card may still use stays.
func TestDeviceFaults(t *testing.T) {
	dir := data(t)
	for name, c := range map[string]struct {
		at   int
		want string
	}{"Share": {2, "memory for a batch of"}, "Upload": {3, "bringing a batch to the GPU"}, "wait": {4, "a batch on its way to the GPU"}} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCard()
			s := serve(t, f.config())
			r := openOn(t, attach(t, s, "unix"), f, dir, reader.Config{BatchSize: 4, Transform: crop})
			f.mu.Lock()
			f.fail[name] = c.at
			f.mu.Unlock()
			epoch := func(hold int) (n int, err error) {
				var held []*Batch
				defer func() {
					for _, b := range held {
						b.Release()
					}
				}()
				for b, err := range r.Epoch(t.Context(), 0) {
					if err != nil {
						return n, err
					}
					n++
					if held = append(held, b); len(held) > hold {
						held[0].Release()
						held = held[1:]
					}
				}
				return n, nil
			}
			// What is held is not used again before the fault.
			var e *Error
			if n, err := epoch(c.at); !errors.As(err, &e) || e.Code != CodeDevice || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "CUDA_ERROR_FAKE") || n >= c.at {
				t.Errorf("%d batches, %v", n, err)
			}
			if n, err := epoch(0); n != 20 || err != nil {
				t.Errorf("then: %d batches, %v", n, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			f.clean(t)
		})
	}
}

func TestDeviceRefused(t *testing.T) {
	dir, f := data(t), newFakeCard()
	s := serve(t, f.config())
	ask := func(c *Client, device string, config reader.Config) error {
		return c.call(t.Context(), &request{Op: "open", Data: text(dir), Device: device, Config: text(config)}, nil)
	}
	unix := attach(t, s, "unix")
	for _, c := range []struct {
		err  error
		code Code
		want string
	}{
		{ask(attach(t, s, "tcp"), "0", reader.Config{}), CodeConfig, "over its Unix socket"},
		{ask(attach(t, serve(t, Config{}), "unix"), "0", reader.Config{}), CodeDevice, "brings no batches to GPUs"},
		{unix.call(t.Context(), &request{Op: "open", Data: text(dir), Device: "0", TransformOn: TransformOnDevice}, nil), CodeConfig, "transform_on: reader config: transform 3 does not go here"},
		{unix.call(t.Context(), &request{Op: "open", Data: text(dir), TransformOn: TransformOnDevice}, nil), CodeConfig, "without a device"},
		{unix.call(t.Context(), &request{Op: "open", Data: text(dir), Device: "0", TransformOn: "gpu"}, nil), CodeConfig, `want "host" or "device"`},
		{ask(unix, "7", reader.Config{}), CodeDevice, "there is no GPU 7 here"},
		{ask(unix, "0", reader.Config{DType: "int3"}), CodeConfig, "dtype"},
		{ask(unix, "0", reader.Config{Split: "none"}), CodeConfig, "no split"},
	} {
		var e *Error
		if !errors.As(c.err, &e) || e.Code != c.code || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %s %q", c.err, c.code, c.want)
		}
	}
	r := openOn(t, unix, f, dir, reader.Config{BatchSize: 4, Transform: crop})
	if _, err := r.Read(t.Context(), []int64{1}, 0); err == nil || !strings.Contains(err.Error(), "open the data without device") {
		t.Error(err)
	}
	// A client that cannot map what it has asked for.
	none := &noCard{}
	r, err := unix.OpenOn(t.Context(), none, "", []reader.Source{{URL: dir}}, reader.Config{BatchSize: 4, Transform: crop})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.Epoch(context.Background(), 0) {
		if err == nil || !strings.Contains(err.Error(), "must use the same GPU") {
			t.Error(err)
		}
	}
	f.clean(t)
}

type noCard struct{}

func (*noCard) UUID() string { return fakeUUID }
func (*noCard) Map(*os.File, int64) (uint64, func() error, error) {
	return 0, nil, errFake
}

// A batch that is on its way to the card is not the client's to release.
func TestDeviceHostile(t *testing.T) {
	p := &pass{number: 3, held: map[int64]lent{5: {coming: true}}}
	if err := p.release([]int64{5}); err == nil || !strings.Contains(err.Error(), "batch 5 of pass 3 is not held") || len(p.held) != 1 {
		t.Error(err)
	}
}

// The words of a session with a GPU.
func TestDeviceTranscript(t *testing.T) {
	dir := data(t)
	x := transcribe(t, dir, newFakeCard().config())
	x.say(`{"id":1,"op":"hello","protocol":1,"client":"transcript"}`)
	x.hear(1)
	x.say(`{"id":2,"op":"open","data":"` + dir + `","device":"` + fakeUUID + `","config":{"batch_size":3,"shuffle":"none","ends":"exact","transform":[{"center_crop":{"size":32}}],"dtype":"float32","memory":67108864,"workers":2}}`)
	x.hear(1)
	x.say(`{"id":3,"op":"start","reader":1,"epoch":0,"credit":1}`)
	x.hear(5) // reply, slabs on the GPU and in the host's memory, batch; held
	x.say(`{"op":"release","pass":2,"batches":[0]}`)
	x.hear(2) // batch, in the same slabs; held
	x.say(`{"id":4,"op":"read","reader":1,"samples":[2]}`)
	x.hear(1)
	x.say(`{"id":5,"op":"close","reader":1}`)
	x.hear(1)
	x.say(`{"op":"release","pass":2,"batches":[1]}`)
	x.hear(2) // unslabs
	x.check("device.txt")
}
