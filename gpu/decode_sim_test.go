package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/reader"
)

// shadeSide is the side of the pictures of simulated batches, which have one each, all of one
// shade, that tells which it is.
const shadeSide = 8

// shaded is a JPEG that shows a number; shade is the number that pixels show.
func shaded(n int) []byte {
	m := image.NewGray(image.Rect(0, 0, shadeSide, shadeSide))
	for i := range m.Pix {
		m.Pix[i] = byte(8 * (n + 1))
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 100}); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func shade(pixels []byte) int { return (int(pixels[0])+4)/8 - 1 }

// files is a slab of one file.
type files struct{ *slab }

var _ encoded = files{}

func (f files) Tensors() []reader.Tensor         { return nil }
func (f files) Len() int                         { return 1 }
func (f files) Samples() []int64                 { return []int64{int64(f.number)} }
func (f files) Random(int) augment.Rand          { return augment.Rand{} }
func (f files) Field(int, string) ([]byte, bool) { return f.bytes, true }
func (f files) Fault(i int, field string, err error) *reader.SampleError {
	return &reader.SampleError{Sample: int64(f.number), Field: field, Err: err}
}

// simDecoder is a simulated nvJPEG, or the CPU.
type simDecoder struct {
	// cpu: there is no nvJPEG. engine: it writes when it likes, whatever is in the stream
	// before; what comes behind it in the stream waits for it, as the documentation has it.
	cpu, engine bool
}

func (d simDecoder) begin(s *sim, depth int) (*decoding, error) {
	c := DecodeConfig{PrefetchConfig: PrefetchConfig{Depth: depth}, Share: 1, Threads: 1}
	if d.cpu {
		c.Share = -1
	}
	g := newDecoding(c, simStaging{s})
	if !d.cpu {
		g.codec = &simCodec{s, d.engine}
		s.mu.Lock()
		s.live["codecs"]++
		s.mu.Unlock()
	}
	return g, nil
}

type simCodec struct {
	sim    *sim
	engine bool
}

func (c *simCodec) Supports([]byte, cuda.Region) (bool, error) { return true, nil }
func (c *simCodec) early() bool                                { return c.engine }

func (c *simCodec) newState() (jpegState, error) {
	x := &simState{codec: c}
	return x, c.sim.now("NewState", func() { c.sim.live["states"]++ })
}

func (c *simCodec) Close() error {
	return c.sim.now("CloseCodec", func() {
		c.sim.live["codecs"]--
		if c.sim.live["states"] != 0 && c.sim.failed != "CloseState" {
			c.sim.wrongly("nvJPEG closed before its states")
		}
	})
}

// engineQueue is the queue of the card's engines for JPEG.
const engineQueue Stream = 99

type simState struct {
	codec *simCodec
	busy  *record // the last batch
	open  bool
}

func (x *simState) Decode(of []cuda.JPEG, _ int, h Stream) error {
	s := x.codec.sim
	x.open = true
	return s.now("Decode", func() {
		if x.busy != nil && !x.busy.done {
			s.wrongly("nvJPEG's state is used while it is busy")
		}
		x.busy = &record{in: h}
		on := h
		if x.codec.engine {
			on = engineQueue
			if s.streams[on] == nil {
				s.streams[on] = new(simStream)
			}
		}
		b := s.slabs[&of[0].Data[0]]
		s.put(on, &simOp{name: fmt.Sprintf("decode %d to %x", b.number, of[0].Dst), src: b, at: of[0].Dst})
		s.put(on, &simOp{name: "decoded", records: x.busy})
		s.put(h, &simOp{name: "wait for the decoder", waits: x.busy})
	})
}

func (x *simState) Close() error {
	s := x.codec.sim
	return s.now("CloseState", func() {
		if x.busy != nil && !x.busy.done {
			s.wrongly("nvJPEG's state freed while it is busy")
		}
		s.live["states"]--
	})
}

type simStaging struct{ sim *sim }

func (m simStaging) Alloc(n int64) ([]byte, error) {
	b := make([]byte, n)
	if err := m.sim.now("AllocHost", func() { m.sim.staging[&b[0]] = true; m.sim.live["staging"]++ }); err != nil {
		return nil, err
	}
	return b, nil
}

func (m simStaging) Free(b []byte) {
	s := m.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		for _, op := range st.queue {
			if op.staged != nil && &op.staged[0] == &b[0] {
				s.wrongly("staging memory freed before it was copied")
			}
		}
	}
	s.live["staging"]--
}

func (m simStaging) Close() error { return nil }

var simDecoders = map[string]simDecoder{"engine": {engine: true}, "stream": {}, "cpu": {cpu: true}}

// In every order that CUDA allows, and nvJPEG takes: files are decoded to memory that nobody
// looks at, stay until they are, come whole and in order; also what the CPU made, which lies
// in memory that is used again.
func TestDecodeEveryOrder(t *testing.T) {
	for name, d := range simDecoders {
		for _, p := range []play{
			{depth: 1, batches: 3}, {depth: 2, batches: 3}, {depth: 2, batches: 0}, {depth: 2, batches: 3, leave: 1}, {depth: 2, batches: 3, leave: 2, hold: 1},
			{depth: 2, batches: 2, source: errors.New("no more")}, {depth: 2, batches: 3, cancel: 1},
		} {
			p.decode, p.decoder = true, d
			if racing && p.batches > 2 {
				continue // the orders of calls are not the race detector's matter
			}
			t.Run(fmt.Sprintf("%s/%+v", name, p), func(t *testing.T) {
				runs, states := p.explore(t, newSim, func(s *sim, came int, end error) bool {
					s.freed()
					p.judge(s, came, end)
					if len(s.wrong) > 0 {
						t.Errorf("%s\n%v", strings.Join(s.wrong, "\n"), s.history)
					}
					return len(s.wrong) == 0
				})
				t.Logf("%d runs, %d states", runs, states)
			})
		}
	}
}

// The waits are needed: without one of them, an order goes wrong. The host's wait for the
// consumer is needed by engines; what decodes in the stream waits there, too. What the CPU
// has made is copied when the consumer's stream is past it, and the slab is not read again.
func TestDecodeMutants(t *testing.T) {
	for name, d := range simDecoders {
		for _, m := range []mutant{noReadyWait, noReadySync, noReuseSync, reuseBeforeWork} {
			if m == noReuseSync && !d.engine || m == noReadySync && d.cpu {
				continue
			}
			found, runs := findMutant(t, m, play{decode: true, decoder: d})
			if found == "" {
				t.Errorf("%s: mutant %d was not found", name, m)
			}
			t.Logf("%s: mutant %d after %d runs: %s", name, m, runs, found)
		}
	}
}

// Every call fails once, in turn, in several orders: the error comes out and is the last,
// no slab goes back before it was read, nothing locks up.
func TestDecodeFaults(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	refused := &cuda.Error{Call: "cuCall", Code: 1, Name: "CUDA_ERROR_INVALID_VALUE"}
	broken := &cuda.Error{Call: "cuCall", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"}
	for _, fault := range []*cuda.Error{refused, broken} {
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range simDecoders {
				if !yield(name) {
					return
				}
			}
		}) {
			p := play{depth: 2, batches: 4, decode: true, decoder: simDecoders[name]}
			whole := newSim()
			p.run(t, whole, func(*sim, []string) int { return 0 })
			for failing := 1; failing <= whole.calls; failing++ {
				for range 3 {
					s := newSim()
					s.failing, s.fault = failing, fault
					_, end := p.run(t, s, func(_ *sim, names []string) int { return random.IntN(len(names)) })
					gave := errors.Is(end, fault) && (fault != broken || errors.Is(end, ErrContextLost))
					own := s.failed == "kernel" || strings.HasSuffix(s.failed, fmt.Sprintf(" in %x", compute)) || strings.HasPrefix(s.failed, fmt.Sprintf("wait in %x", compute))
					if s.failed != "" && !gave && !(own && end == nil) {
						s.wrongly("ended with %v", end)
					}
					if n := s.live["slabs"]; n != 0 {
						s.wrongly("%d slabs left", n)
					}
					freeing := strings.HasPrefix(s.failed, "Free") || strings.HasPrefix(s.failed, "Destroy") || strings.HasPrefix(s.failed, "synchronize") || strings.HasPrefix(s.failed, "Close")
					if fault != broken && !freeing {
						s.freed()
					}
					if len(s.wrong) > 0 {
						t.Fatalf("%s: call %d, %s, fails with %v: %s\n%v", name, failing, s.failed, fault, strings.Join(s.wrong, "\n"), s.history)
					}
				}
			}
			if whole.calls < 40 {
				t.Errorf("only %d calls", whole.calls)
			}
		}
	}
}
