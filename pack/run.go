package pack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"shardify/index"
	"shardify/shard/formats"
	"shardify/store"
)

// What an unfinished data set has beside its shards.
const (
	workDir    = ".shardify"
	planName   = workDir + "/plan"
	donePrefix = workDir + "/done/"
)

var (
	// ErrStopped: Env.Stop was closed. What was finished stays; the same call goes
	// on.
	ErrStopped = errors.New("stopped")
	// ErrForeign: DST holds something that is no data set of ours.
	ErrForeign = errors.New("is not empty and no shardify data set")
	// ErrOther: DST holds a data set, finished or not, that was made otherwise.
	ErrOther = errors.New("holds another data set")
	// ErrIncomplete is returned by a run with Env.Of > 1 whose part is done while
	// others are not.
	ErrIncomplete = errors.New("other workers have shards to finish")
)

// maxDone bounds a done record that is read.
const maxDone = 1 << 30

// Result is what a run came to.
type Result struct {
	// Manifest is the finished data set.
	Manifest *index.Manifest
	// Already says that it was finished before; nothing was done.
	Already bool
	// Bad counts the samples and files that were left out and listed in bad.jsonl.
	Bad int64
	// Ignored counts the files that are no images and belong to none, with a few
	// of their names.
	Ignored int64
	Names   []string
}

// Run packs a data set into st, or goes on where an earlier run of the same
// configuration was interrupted, or does nothing where it was finished. With
// Env.Of > 1 it packs its part, and commits if the others have finished theirs;
// otherwise it returns ErrIncomplete.
//
// Errors wrap ErrForeign, ErrOther, ErrStopped, ErrBad, ErrTooManyBad, ErrEmpty,
// source.ErrChanged, store.ErrLocked, store.ErrNoSpace and those of fs.
func Run(ctx context.Context, st store.Store, cfg Config, env Env) (_ *Result, err error) {
	env = env.withDefaults()
	cfg = named(cfg, st).withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	fingerprint, err := cfg.fingerprint()
	if err != nil {
		return nil, err
	}
	found, err := look(ctx, st)
	if err != nil {
		return nil, err
	}
	if found.manifest != nil {
		return finished(ctx, st, found.manifest, cfg)
	}
	unlock, err := st.Lock(ctx, fmt.Sprintf("%s/lock-%d-of-%d", workDir, env.Worker, env.Of), owner())
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("%s is being packed by another run: %w", st.URL(), err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// The other run may have finished between the look and the lock.
	if found, err = look(ctx, st); err != nil {
		return nil, err
	}
	if found.manifest != nil {
		return finished(ctx, st, found.manifest, cfg)
	}
	if env.Of == 1 {
		if err := st.Sweep(ctx, ""); err != nil {
			return nil, err
		}
		if env.Restart {
			if err := restart(ctx, st); err != nil {
				return nil, err
			}
		}
	}
	src, err := cfg.Source.open(env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	p, err := thePlan(ctx, st, src, cfg, env, fingerprint)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := packAll(ctx, st, p, src, env); err != nil {
		return nil, err
	}
	return commit(ctx, st, p, env)
}

// owner is what a lock says of who holds it.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("shardify pack, process %d on %s, since %s", os.Getpid(), host, time.Now().Format(time.DateTime))
}

// found is what stands in a DST before a run.
type found struct {
	manifest *index.Manifest
	plan     bool
}

// look tells what stands in DST. Something that is not ours is ErrForeign.
func look(ctx context.Context, st store.Store) (f found, err error) {
	data, err := store.ReadAll(ctx, st, index.ManifestName, index.MaxManifest)
	switch {
	case err == nil:
		if f.manifest, err = index.DecodeManifest(data); err != nil {
			if errors.Is(err, index.ErrNotManifest) {
				err = fmt.Errorf("%w (%w)", ErrForeign, err)
			}
			return f, fmt.Errorf("%s: %w; choose another destination", st.URL(), err)
		}
		return f, nil
	case !errors.Is(err, fs.ErrNotExist):
		return f, err
	}
	other := ""
	for info, err := range st.List(ctx, "") {
		if err != nil {
			return f, err
		}
		if strings.HasPrefix(info.Name, workDir+"/") {
			f.plan = f.plan || info.Name == planName
			other = ""
			break
		}
		if other == "" {
			other = info.Name
		}
		if info.Name > workDir+"/" {
			break // sorted: nothing of ours will come
		}
	}
	if other != "" {
		return f, fmt.Errorf("%s %w: it has %q; choose another destination, or an empty one", st.URL(), ErrForeign, other)
	}
	return f, nil
}

// finished is the result of a run that finds its data set finished. A run that was
// killed between the manifest and the end may have left things to clear away.
func finished(ctx context.Context, st store.Store, m *index.Manifest, cfg Config) (*Result, error) {
	if err := sameOptions(st, m, cfg); err != nil {
		return nil, err
	}
	if err := clearWork(ctx, st); err != nil {
		return nil, err
	}
	return &Result{Manifest: m, Already: true}, nil
}

// sameOptions says whether m is what cfg makes.
func sameOptions(st store.Store, m *index.Manifest, cfg Config) error {
	var was Config
	if m.Options != nil {
		if err := json.Unmarshal(m.Options, &was); err != nil {
			return fmt.Errorf("%s %w, whose options are not ours: %w; choose another destination", st.URL(), ErrOther, err)
		}
	}
	a, err := was.fingerprint()
	if err != nil {
		return err
	}
	if b, err := cfg.fingerprint(); err != nil || a != b {
		return errors.Join(err, fmt.Errorf("%s %w, packed from other files or with other options; `shardify info` shows them; choose another destination", st.URL(), ErrOther))
	}
	return nil
}

// restart drops an unfinished data set: the shards of its plan, and the plan.
func restart(ctx context.Context, st store.Store) error {
	var names []string
	p, err := openPlan(ctx, st)
	switch {
	case err == nil:
		f, err := formats.Parse(p.Config.Format)
		if err != nil {
			return errors.Join(err, p.close())
		}
		for i := range p.Shards {
			names = append(names, p.Shards[i].Name, indexName(p.Shards[i].Name, f))
		}
		if err := p.close(); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errPlan):
		// Its done records name what there is.
		for rec, err := range records(ctx, st) {
			if err != nil {
				return err
			}
			names = append(names, rec.Shard.Name, rec.Shard.Index.Name)
		}
	default:
		return err
	}
	for _, prefix := range []string{index.QuarantinePrefix, donePrefix} {
		for info, err := range st.List(ctx, prefix) {
			if err != nil {
				return err
			}
			names = append(names, info.Name)
		}
	}
	for _, name := range append(names, index.BadName, planName) {
		if err := st.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// thePlan opens the plan of the unfinished data set in st, or makes it. Of several
// workers the first makes it while the others wait.
func thePlan(ctx context.Context, st store.Store, src sources, cfg Config, env Env, fingerprint string) (*plan, error) {
	for {
		p, err := openPlan(ctx, st)
		if err == nil {
			if p.Fingerprint != fingerprint {
				p.close()
				return nil, fmt.Errorf("%s %w, unfinished, begun from other files or with other options; repeat that command to finish it, or give --restart to drop it", st.URL(), ErrOther)
			}
			env.Progress.planned(p)
			return p, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		unlock, err := lock(ctx, st, "plan", env)
		if err != nil {
			return nil, err
		}
		err = writePlan(ctx, st, src, cfg, env)
		if err := errors.Join(err, unlock()); err != nil {
			return nil, err
		}
	}
}

// lock takes a lock that workers hold for a moment, and waits for it.
func lock(ctx context.Context, st store.Store, name string, env Env) (unlock func() error, err error) {
	for {
		unlock, err := st.Lock(ctx, workDir+"/lock-"+name, owner())
		if !errors.Is(err, store.ErrLocked) {
			return unlock, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-env.Stop:
			return nil, ErrStopped
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func writePlan(ctx context.Context, st store.Store, src sources, cfg Config, env Env) error {
	switch o, err := st.Open(ctx, planName); {
	case err == nil: // made while we waited for the lock
		return o.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-env.Stop: // planning can't go on later, so there is nothing to wait for
			cancel(ErrStopped)
		case <-finished:
		}
	}()
	w, err := st.Create(ctx, planName)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := makePlan(ctx, src, cfg, env, w); err != nil {
		return err
	}
	return w.Commit(ctx)
}

// planned takes over what the plan says.
func (p *Progress) planned(pl *plan) {
	p.Files.Store(pl.Files)
	p.FileBytes.Store(pl.FileBytes)
	p.SourceBytes.Store(pl.FileBytes)
	p.Bad.Store(int64(len(pl.Bad)))
	p.Shards.Store(int64(len(pl.Shards)))
	samples := int64(0)
	for i := range pl.Shards {
		samples += pl.Shards[i].Samples
	}
	p.Samples.Store(samples)
}

// packAll packs the shards that are this worker's and not yet done.
func packAll(ctx context.Context, st store.Store, pl *plan, src sources, env Env) error {
	env.Progress.phase(PhasePack)
	format, err := formats.Parse(pl.Config.Format)
	if err != nil {
		return err
	}
	finished, err := finishedShards(ctx, st, pl, env.Progress)
	if err != nil {
		return err
	}
	var todo []int
	for n := range pl.Shards {
		if n%env.Of == env.Worker && !finished[n] {
			todo = append(todo, n)
		}
	}
	pk := &packer{
		st: st, plan: pl, sources: src, env: env, format: format,
		memory: semaphore.NewWeighted(env.Memory),
	}
	// Few shards at a time, so that a run that is stopped has finished most; two at
	// least, so that one can be made durable while another is written.
	atOnce := min(max(env.Workers/2, 2), max(len(todo), 1))
	readers := (env.Workers-1)/atOnce + 1
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	stopped := false
	for _, n := range todo {
		select {
		case <-env.Stop:
			stopped = true
		default:
		}
		if stopped || ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			rec, err := pk.shard(ctx, n, readers)
			if err != nil {
				return err
			}
			data, err := json.Marshal(rec)
			if err != nil {
				return err
			}
			if err := store.WriteAll(ctx, st, doneName(n), data); err != nil {
				return err
			}
			env.Progress.DoneShards.Add(1)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if stopped {
		return ErrStopped
	}
	return nil
}

func doneName(n int) string { return fmt.Sprintf("%s%06d", donePrefix, n) }

// finishedShards says which shards have a record and are there.
func finishedShards(ctx context.Context, st store.Store, pl *plan, progress *Progress) ([]bool, error) {
	sizes := map[string]int64{}
	records := map[string]bool{}
	for info, err := range st.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(info.Name, donePrefix) {
			records[info.Name] = true
		} else if !strings.HasPrefix(info.Name, index.QuarantinePrefix) {
			sizes[info.Name] = info.Size
		}
	}
	finished := make([]bool, len(pl.Shards))
	for n := range pl.Shards {
		if !records[doneName(n)] {
			continue
		}
		rec, err := readDone(ctx, st, doneName(n))
		if err != nil {
			return nil, err
		}
		there := func(f *index.File) bool {
			size, ok := sizes[f.Name]
			return ok && size == f.Bytes
		}
		if rec.Fingerprint == pl.Fingerprint && rec.Shard.Name == pl.Shards[n].Name && there(&rec.Shard.File) && there(&rec.Shard.Index) {
			finished[n] = true
			progress.FoundShards.Add(1)
			progress.DoneShards.Add(1)
			progress.DoneSamples.Add(rec.Samples)
			progress.DoneBytes.Add(rec.Bytes)
			progress.Bad.Add(int64(len(rec.Bad)))
		}
	}
	return finished, nil
}

func readDone(ctx context.Context, st store.Store, name string) (*done, error) {
	data, err := store.ReadAll(ctx, st, name, maxDone)
	if err != nil {
		return nil, err
	}
	rec := new(done)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("%s/%s: %w: pack again with --restart", st.URL(), name, err)
	}
	return rec, nil
}

// records yields the records of all finished shards, in order.
func records(ctx context.Context, st store.Store) func(func(*done, error) bool) {
	return func(yield func(*done, error) bool) {
		for info, err := range st.List(ctx, donePrefix) {
			if err != nil {
				yield(nil, err)
				return
			}
			if rec, err := readDone(ctx, st, info.Name); !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// commit writes the manifest if every shard is done, and clears away what packing
// needed. Of several workers that are done at once, one does it.
func commit(ctx context.Context, st store.Store, pl *plan, env Env) (_ *Result, err error) {
	env.Progress.phase(PhaseCommit)
	unlock, err := lock(ctx, st, "commit", env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	found, err := look(ctx, st)
	if err != nil {
		return nil, err
	}
	if found.manifest != nil {
		return finished(ctx, st, found.manifest, pl.Config)
	}
	m, bad, err := assemble(ctx, st, pl, env)
	if err != nil {
		return nil, err
	}
	data, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := st.Sweep(ctx, ""); err != nil { // what killed workers left
		return nil, err
	}
	if len(bad) > 0 {
		if err := writeBad(ctx, st, bad); err != nil {
			return nil, err
		}
	}
	if err := store.WriteAll(ctx, st, index.ManifestName, data); err != nil {
		return nil, err
	}
	if err := clearWork(ctx, st); err != nil {
		return nil, err
	}
	env.Progress.phase(PhaseDone)
	return &Result{Manifest: m, Bad: int64(len(bad)), Ignored: pl.Ignored, Names: pl.Names}, nil
}

// assemble makes the manifest of the records of all shards.
func assemble(ctx context.Context, st store.Store, pl *plan, env Env) (*index.Manifest, []Bad, error) {
	cfg := &pl.Config
	format, err := formats.Parse(cfg.Format)
	if err != nil {
		return nil, nil, err
	}
	options, err := json.Marshal(cfg)
	if err != nil {
		return nil, nil, err
	}
	m := &index.Manifest{
		Tool: env.Tool, Name: cfg.Name, Container: format.Container.Name(), Compression: format.Compression,
		Options: options, Classes: pl.Classes,
	}
	bad := slices.Clone(pl.Bad)
	missing := 0
	for n := range pl.Shards {
		rec, err := readDone(ctx, st, doneName(n))
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if rec.Fingerprint != pl.Fingerprint {
			return nil, nil, fmt.Errorf("%s: shard %q is of another run; pack again with --restart", st.URL(), rec.Shard.Name)
		}
		split := pl.Shards[n].Split
		if len(m.Splits) == 0 || m.Splits[len(m.Splits)-1].Name != split {
			m.Splits = append(m.Splits, index.Split{Name: split})
		}
		s := &m.Splits[len(m.Splits)-1]
		s.Shards = append(s.Shards, rec.Shard)
		s.Samples += rec.Shard.Samples
		s.Bytes += rec.Shard.Bytes
		bad = append(bad, rec.Bad...)
	}
	if missing > 0 {
		return nil, nil, fmt.Errorf("%w: %d of %d", ErrIncomplete, missing, len(pl.Shards))
	}
	return m, bad, nil
}

// sortBad puts bad files into an order that does not depend on the workers.
func sortBad(bad []Bad) {
	slices.SortFunc(bad, func(a, b Bad) int {
		return cmp.Or(cmp.Compare(a.Split, b.Split), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason))
	})
}

// writeBad writes the list of bad files, as JSON lines.
func writeBad(ctx context.Context, st store.Store, bad []Bad) error {
	sortBad(bad)
	var data []byte
	for i := range bad {
		line, err := json.Marshal(&bad[i])
		if err != nil {
			return err
		}
		data = append(append(data, line...), '\n')
	}
	return store.WriteAll(ctx, st, index.BadName, data)
}

// clearWork removes what only packing needed. The locks' files, which may be held,
// go last.
func clearWork(ctx context.Context, st store.Store) error {
	var locks []string
	for info, err := range st.List(ctx, workDir+"/") {
		if err != nil {
			return err
		}
		if strings.HasPrefix(info.Name, workDir+"/lock-") {
			locks = append(locks, info.Name)
			continue
		}
		if err := st.Remove(ctx, info.Name); err != nil {
			return err
		}
	}
	for _, name := range locks {
		if err := st.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
