package reader

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/store/file"
)

var (
	kills      = flag.Int("kills", 8, "TestKillAndResume: how often the ranks are killed")
	killEpochs = flag.Int("kill-epochs", 3, "TestKillAndResume: how many epochs they train")
	killSeed   = flag.Uint64("kill-seed", 0, "TestKillAndResume: what is random; 0: another every time")
)

// rankEnv is set in a process that is a rank of TestKillAndResume.
const rankEnv = "SHARDIFY_TEST_RANK"

// rankJob is what such a process does.
type rankJob struct {
	URL    string          `json:"url"`
	Config Config          `json:"config"`
	State  json.RawMessage `json:"state"`
	Epochs int             `json:"epochs"`
}

// rankStep is what it says of a step: the batch, and the state behind it.
type rankStep struct {
	Epoch   int             `json:"epoch"`
	Batch   int64           `json:"batch"`
	Samples []int64         `json:"samples"`
	Looks   []uint32        `json:"looks"` // checksums of the images
	State   json.RawMessage `json:"state"`
}

// runRank trains: a step for each byte that comes, as the ranks of a training run wait
// for each other in every step.
func runRank(job string, in io.Reader, out io.Writer) error {
	var j rankJob
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		return err
	}
	ctx := context.Background()
	r, err := Open(ctx, j.URL, j.Config)
	if err != nil {
		return err
	}
	defer r.Close()
	state, err := ParseState(j.State)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	for state.Epoch < j.Epochs {
		for b, err := range r.Epochs(ctx, state, state.Epoch+1) {
			if err != nil {
				return err
			}
			if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
				b.Release()
				return nil // the other side has gone
			}
			state = b.State()
			s := rankStep{Epoch: b.Epoch(), Batch: b.Number(), Samples: b.Samples()}
			images := b.Images()
			size := len(images.Data) / max(1, b.Len())
			for i := range b.Len() {
				s.Looks = append(s.Looks, index.FieldChecksum(images.Data[i*size:][:size]))
			}
			if s.State, err = json.Marshal(state); err == nil {
				err = enc.Encode(s)
			}
			b.Release()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rankProcess is a rank, in a process that can be killed.
type rankProcess struct {
	cmd   *exec.Cmd
	grant io.WriteCloser
	steps *bufio.Reader
}

func startRank(t *testing.T, j rankJob) *rankProcess {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	p := &rankProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), rankEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.grant, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.steps = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// step returns what the process says of a step.
func (p *rankProcess) step() (s rankStep, err error) {
	line, err := p.steps.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	return s, err
}

// Training on up to 8 ranks, each a process, that are killed (SIGKILL) at random points
// and go on from their last checkpoint with another number of ranks: every epoch has
// exactly the plan's samples, each with the pixels that it always has. The long run:
//
//	go test ./reader -run '^TestKillAndResume$' -count=1 -v -timeout 30m -kills 50
func TestKillAndResume(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kill-seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	d := datasettest.Write(t, file.New(dir), datasettest.Options{Shards: 20, Samples: 33})
	const global = 24
	mode := []Shuffle{ShuffleWindow, ShuffleGlobal, ShuffleShards}[rng.IntN(3)]
	buckets := []Buckets{{}, {Sizes: []transform.Size{{32, 20}, {24}, {20, 32}}}}[rng.IntN(2)]
	t.Logf("%s, %+v", mode, buckets)
	config := func(world, rank int) Config {
		return Config{
			BatchSize: global / world, World: world, Rank: rank, Lanes: 24, Shuffle: mode, Window: 240,
			Seed: seed, Ends: EndsExact, Transform: crop, Workers: 1, Buckets: buckets,
		}
	}
	one := newReader(t, d, config(1, 0))
	looks := map[[2]int64]uint32{} // of a sample in an epoch
	committed := make([][][]int64, *killEpochs)
	state, err := one.State(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint := throughJSON(t, state)
	total := int64(*killEpochs) * int64(one.Len())
	for life := 0; checkpoint.Epoch < *killEpochs; life++ {
		// What was done since the checkpoint is lost.
		for epoch := range committed {
			keep := len(committed[epoch])
			if epoch == checkpoint.Epoch {
				keep = int(checkpoint.Batch)
			} else if epoch > checkpoint.Epoch {
				keep = 0
			}
			committed[epoch] = committed[epoch][:keep]
		}
		world := []int{8, 4, 8, 2, 8, 6, 1, 8, 3}[life%9]
		raw, err := json.Marshal(checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		ranks := make([]*rankProcess, world)
		for rank := range ranks {
			ranks[rank] = startRank(t, rankJob{dir, config(world, rank), raw, *killEpochs})
		}
		left := total - int64(checkpoint.Epoch)*int64(one.Len()) - checkpoint.Batch
		killAt := left // never
		if more := int64(*kills - life); more > 0 {
			killAt = rng.Int64N(max(1, min(left, 2*left/(more+1))))
		}
		runLife(t, rng, ranks, killAt, func(step int64, all []rankStep) {
			s := all[0]
			var batch []int64
			for rank, a := range all {
				if a.Epoch != s.Epoch || a.Batch != s.Batch || string(a.State) != string(s.State) {
					t.Fatalf("rank %d is at batch %d of epoch %d, rank 0 at batch %d of epoch %d; their states are %s and %s",
						rank, a.Batch, a.Epoch, s.Batch, s.Epoch, a.State, s.State)
				}
				batch = append(batch, a.Samples...)
				for i, n := range a.Samples {
					at := [2]int64{int64(s.Epoch), n}
					if was, seen := looks[at]; seen && was != a.Looks[i] {
						t.Errorf("sample %d looks different in epoch %d after a kill", n, s.Epoch)
					}
					looks[at] = a.Looks[i]
				}
			}
			if int64(len(committed[s.Epoch])) != s.Batch {
				t.Fatalf("batch %d of epoch %d comes after %d", s.Batch, s.Epoch, len(committed[s.Epoch]))
			}
			committed[s.Epoch] = append(committed[s.Epoch], batch)
			if rng.IntN(3) == 0 || step+1 == left {
				checkpoint, err = ParseState(s.State)
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		if t.Failed() {
			return
		}
		if life > *kills {
			t.Fatal("it does not come to an end")
		}
	}
	for epoch := range committed {
		plan, err := one.Plan(epoch)
		if err != nil {
			t.Fatal(err)
		}
		times := make([]int, plan.Samples())
		for b, got := range committed[epoch] {
			want := plan.GlobalBatch(nil, int64(b))
			for _, n := range got {
				times[n]++
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("epoch %d, batch %d has %v, the plan %v", epoch, b, got, want)
			}
		}
		for n, k := range times {
			if k != 1 {
				t.Errorf("epoch %d has sample %d %d times", epoch, n, k)
			}
		}
	}
}

// runLife lets the ranks do steps, and kills them in the middle of step killAt: some
// have done it then, some are at it, some have not begun.
func runLife(t *testing.T, rng *rand.Rand, ranks []*rankProcess, killAt int64, done func(step int64, all []rankStep)) {
	t.Helper()
	defer func() {
		for _, p := range ranks {
			p.grant.Close()
			_ = p.cmd.Process.Kill() // it may have ended
			_ = p.cmd.Wait()         // with the error that it was killed
		}
	}()
	for step := int64(0); ; step++ {
		last := step == killAt // or all is done
		granted := 0
		for _, p := range ranks {
			if last && rng.IntN(3) == 0 {
				break
			}
			if _, err := p.grant.Write([]byte{1}); err != nil && !last {
				t.Fatal(err)
			}
			granted++
		}
		if last {
			// Sometimes only when one of them is through.
			if granted > 0 && rng.IntN(2) == 0 {
				if _, err := ranks[rng.IntN(granted)].step(); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			return
		}
		all := make([]rankStep, len(ranks))
		for rank, p := range ranks {
			var err error
			if all[rank], err = p.step(); err != nil {
				t.Fatal(fmt.Errorf("rank %d of %d, step %d: %w", rank, len(ranks), step, err))
			}
		}
		done(step, all)
	}
}
