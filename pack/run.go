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
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"shardify/dataset"
	"shardify/index"
	"shardify/shard/formats"
	"shardify/store"
)

// What an unfinished data set has beside its shards.
const (
	workDir    = ".shardify"
	planName   = workDir + "/plan"
	lockPrefix = workDir + "/lock-"
	donePrefix = workDir + "/done/"
)

var (
	// ErrStopped: Env.Stop was closed. What was finished stays; the same call goes
	// on.
	ErrStopped = errors.New("stopped")
	// ErrForeign: DST holds something that is no data set of ours.
	ErrForeign = errors.New("is not empty and not a shardify data set")
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
	// Images counts what became of the images, under Config.Convert.
	Images Conversions
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
	cfg = named(cfg, st).withDefaults()
	from := cfg.Source
	cfg.Source = cfg.Source.withoutSecrets()
	if err := errors.Join(cfg.Validate(), env.Validate()); err != nil {
		return nil, err
	}
	env = env.withDefaults(&cfg)
	found, err := look(ctx, st)
	if err != nil {
		return nil, err
	}
	if found.manifest != nil {
		return finished(ctx, st, found.manifest, cfg)
	}
	unlock, err := st.Lock(ctx, fmt.Sprintf("%s%d-of-%d", lockPrefix, env.Worker, env.Of), owner())
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("%s is being packed by another run: %w", st.URL(), err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if env.Restart {
		if err := restart(ctx, st, env); err != nil {
			return nil, err
		}
	}
	src, err := from.open(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	p, err := thePlan(ctx, st, src, cfg, env)
	if errors.Is(err, errFinished) {
		return again(ctx, st, cfg)
	}
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := packAll(ctx, st, p, src, env); err != nil {
		if errors.Is(err, errReplaced) {
			if result, e := again(ctx, st, cfg); e == nil {
				return result, nil
			}
		}
		return nil, err
	}
	return commit(ctx, st, p, env)
}

// errFinished: another run has written the manifest meanwhile.
var errFinished = errors.New("finished by another run")

// again looks once more at a data set that another run has finished meanwhile.
func again(ctx context.Context, st store.Store, cfg Config) (*Result, error) {
	found, err := look(ctx, st)
	if err != nil {
		return nil, err
	}
	if found.manifest == nil {
		return nil, errReplaced
	}
	return finished(ctx, st, found.manifest, cfg)
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
	switch o, err := st.Open(ctx, planName); {
	case err == nil:
		f.plan = true
		return f, o.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return f, err
	}
	// Without a plan, only locks can be ours.
	foreign := ""
	for info, err := range st.List(ctx, "") {
		if err != nil {
			return f, err
		}
		if info.Name == index.ManifestName { // committed since we looked
			return look(ctx, st)
		}
		if !strings.HasPrefix(info.Name, workDir+"/") {
			foreign = cmp.Or(foreign, info.Name)
		}
		if foreign != "" && info.Name > index.ManifestName {
			break // sorted: there is no manifest
		}
	}
	if foreign != "" {
		return f, fmt.Errorf("%s %w: it has %q; choose another destination, or an empty one", st.URL(), ErrForeign, foreign)
	}
	return f, nil
}

// finished is the result of a run that finds its data set finished. A run that was
// killed between the manifest and the end may have left things to clear away.
func finished(ctx context.Context, st store.Store, m *index.Manifest, cfg Config) (*Result, error) {
	if err := sameOptions(st, m, cfg); err != nil {
		return nil, err
	}
	for _, err := range st.List(ctx, workDir+"/") {
		if err == nil {
			err = errors.Join(st.Sweep(ctx, ""), clearWork(ctx, st))
		}
		if err != nil {
			return nil, err
		}
		break
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
func restart(ctx context.Context, st store.Store, env Env) (err error) {
	unlock, err := lock(ctx, st, "plan", env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	p, err := openPlan(ctx, st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		if err := errors.Join(p.alone(ctx, st), p.close()); err != nil {
			return err
		}
	case !errors.Is(err, errPlan):
		return err
	}
	names, err := runFiles(ctx, st)
	if err != nil {
		return err
	}
	for _, name := range append(names, planName) {
		if err := st.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// runFiles names the files that an unfinished data set has, or may have, but for its plan
// and locks.
func runFiles(ctx context.Context, st store.Store) (names []string, err error) {
	p, err := openPlan(ctx, st)
	switch {
	case err == nil:
		f, err := formats.Parse(p.Config.Format)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		for i := range p.Shards {
			names = append(names, shardFiles(p.Shards[i].Name, f)...)
		}
		if err := p.close(); err != nil {
			return nil, err
		}
	case errors.Is(err, errPlan), errors.Is(err, fs.ErrNotExist):
		// Its done records name what there is.
		for info, err := range st.List(ctx, donePrefix) {
			if err != nil {
				return nil, err
			}
			rec, err := readDone(ctx, st, info.Name)
			if err != nil {
				return nil, err
			}
			if rec != nil {
				names = append(names, rec.Shard.Name, rec.Shard.Index.Name)
				if rec.Shard.Seek != nil {
					names = append(names, rec.Shard.Seek.Name)
				}
			}
		}
	default:
		return nil, err
	}
	for _, prefix := range []string{index.QuarantinePrefix, donePrefix} {
		for info, err := range st.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			names = append(names, info.Name)
		}
	}
	return append(names, index.BadName), nil
}

// alone makes sure that nobody is writing a shard of the plan. A run that is about
// to will find the plan gone, and stop.
func (p *plan) alone(ctx context.Context, st store.Store) error {
	for n := range p.Shards {
		unlock, err := st.Lock(ctx, shardLock(n), owner())
		if errors.Is(err, store.ErrLocked) {
			return fmt.Errorf("%s is being packed by another run: %w", st.URL(), err)
		}
		if err != nil {
			return err
		}
		if err := unlock(); err != nil {
			return err
		}
	}
	return nil
}

func shardLock(n int) string { return fmt.Sprintf("%sshard-%d", lockPrefix, n) }

// sameRun says whether the unfinished data set in st is what cfg makes.
func sameRun(ctx context.Context, st store.Store, cfg Config, env Env) error {
	p, err := openPlan(ctx, st)
	if err != nil {
		return err
	}
	defer p.close()
	return p.madeBy(st, cfg, env)
}

// madeBy says whether p is the plan of cfg.
func (p *plan) madeBy(st store.Store, cfg Config, env Env) error {
	fingerprint, err := cfg.fingerprint()
	if err != nil {
		return err
	}
	if p.Fingerprint != fingerprint {
		return fmt.Errorf("%s %w, unfinished, begun from other files or with other options; repeat that command to finish it, or give --restart to drop it", st.URL(), ErrOther)
	}
	if p.Tool != env.Tool {
		return fmt.Errorf("%s %w, unfinished, begun by %q, and this is %q; finish it with that, or give --restart to drop it", st.URL(), ErrOther, p.Tool, env.Tool)
	}
	return nil
}

// thePlan opens the plan of the unfinished data set in st, or makes it. Of several
// workers the first makes it while the others wait. A data set that is finished
// meanwhile is errFinished.
func thePlan(ctx context.Context, st store.Store, src sources, cfg Config, env Env) (*plan, error) {
	for {
		p, err := openPlan(ctx, st)
		if err == nil {
			err := p.madeBy(st, cfg, env)
			if err == nil && !slices.Equal(p.Sources, src.kinds()) {
				err = fmt.Errorf("%s %w, unfinished, whose sources were %q and now are %q; put them back, or give --restart to drop it", st.URL(), ErrOther, p.Sources, src.kinds())
			}
			if err != nil {
				return nil, errors.Join(err, p.close())
			}
			env.Progress.planned(p, env)
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
		unlock, err := st.Lock(ctx, lockPrefix+name, owner())
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

// writePlan makes the plan, under its lock.
func writePlan(ctx context.Context, st store.Store, src sources, cfg Config, env Env) error {
	switch found, err := look(ctx, st); {
	case err != nil:
		return err
	case found.manifest != nil:
		return errFinished
	case found.plan: // made while we waited for the lock
		return nil
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

// planned takes over what the plan says. What is to be done is this worker's part.
func (p *Progress) planned(pl *plan, env Env) {
	p.Files.Store(pl.Files)
	p.FileBytes.Store(pl.FileBytes)
	p.Bad.Store(int64(len(pl.Bad)))
	var shards, samples, size int64
	for n := env.Worker; n < len(pl.Shards); n += env.Of {
		shards++
		samples += pl.Shards[n].Samples
		size += pl.Shards[n].FileBytes
	}
	p.Shards.Store(shards)
	p.Samples.Store(samples)
	p.SourceBytes.Store(size)
}

// packAll packs the shards that are this worker's and not yet done.
func packAll(ctx context.Context, st store.Store, pl *plan, src sources, env Env) error {
	env.Progress.phase(PhasePack)
	todo, err := unfinished(ctx, st, pl, env)
	if err != nil {
		return err
	}
	pk, err := newPacker(st, pl, src, env)
	if err != nil {
		return err
	}
	if pk.every >= 0 {
		pk.maker = dataset.NewSeekMaker(pk.every, env.Workers)
		defer pk.maker.Close()
	}
	atOnce, readers := pk.atOnce(len(todo))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	var stopped atomic.Bool
	for _, n := range todo {
		g.Go(func() error {
			select {
			case <-env.Stop:
				stopped.Store(true)
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
				return pk.one(ctx, n, readers)
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if stopped.Load() {
		return ErrStopped
	}
	return nil
}

// atOnce is how many of some shards are packed at once, and how many goroutines read for
// each.
func (p *packer) atOnce(shards int) (atOnce, readers int) {
	// Few shards at a time, so that a run that is stopped has finished most; two at
	// least, so that one can be made durable while another is written.
	atOnce = min(max(p.env.Workers/2, 2), max(shards, 1))
	readers = (p.env.Workers-1)/atOnce + 1
	if p.sources.remote() {
		readers = max(readers, remoteReaders/atOnce)
	}
	return atOnce, readers
}

// one packs shard n and leaves its record. The shard's lock keeps other runs from
// it, whatever their share of the work is.
func (p *packer) one(ctx context.Context, n, readers int) (err error) {
	unlock, err := p.st.Lock(ctx, shardLock(n), owner())
	if errors.Is(err, store.ErrLocked) {
		return nil // theirs; without its record, nobody commits
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := p.plan.current(ctx, p.st); err != nil {
		return err
	}
	name := p.plan.Shards[n].Name
	for _, name := range append(shardFiles(name, p.format), doneName(n)) {
		if err := p.st.Sweep(ctx, name); err != nil { // what a killed run left
			return err
		}
	}
	rec, err := p.shard(ctx, n, readers)
	if err != nil {
		return err
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := store.WriteAll(ctx, p.st, doneName(n), data); err != nil {
		return err
	}
	p.env.Progress.DoneShards.Add(1)
	return nil
}

func doneName(n int) string { return fmt.Sprintf("%s%06d", donePrefix, n) }

// listing is what lies in a store: which shards have a record, and the files' sizes.
type listing struct {
	records map[string]bool
	sizes   map[string]int64
}

func list(ctx context.Context, st store.Store) (listing, error) {
	l := listing{map[string]bool{}, map[string]int64{}}
	for info, err := range st.List(ctx, "") {
		switch {
		case err != nil:
			return l, err
		case strings.HasPrefix(info.Name, donePrefix):
			l.records[info.Name] = true
		case !strings.HasPrefix(info.Name, index.QuarantinePrefix):
			l.sizes[info.Name] = info.Size
		}
	}
	return l, nil
}

// done returns the record of shard n if it has one that is of this plan and its
// files are there; otherwise nil.
func (l listing) done(ctx context.Context, st store.Store, pl *plan, n int) (*done, error) {
	if !l.records[doneName(n)] {
		return nil, nil
	}
	rec, err := readDone(ctx, st, doneName(n))
	if err != nil || rec == nil {
		return nil, err
	}
	there := func(f *index.File) bool {
		size, ok := l.sizes[f.Name]
		return ok && size == f.Bytes
	}
	if rec.Plan != pl.id || rec.Shard.Name != pl.Shards[n].Name || !there(&rec.Shard.File) || !there(&rec.Shard.Index) ||
		rec.Shard.Seek != nil && !there(&rec.Shard.Seek.File) {
		return nil, nil
	}
	return rec, nil
}

// unfinished returns the shards that are this worker's and not done.
func unfinished(ctx context.Context, st store.Store, pl *plan, env Env) (todo []int, err error) {
	l, err := list(ctx, st)
	if err != nil {
		return nil, err
	}
	progress := env.Progress
	for n := env.Worker; n < len(pl.Shards); n += env.Of {
		rec, err := l.done(ctx, st, pl, n)
		if err != nil {
			return nil, err
		}
		if rec == nil {
			todo = append(todo, n)
			continue
		}
		progress.FoundShards.Add(1)
		progress.DoneShards.Add(1)
		progress.DoneSamples.Add(rec.Samples)
		progress.FoundBytes.Add(rec.Bytes)
		progress.DoneBytes.Add(rec.Bytes)
		progress.Bad.Add(int64(len(rec.Bad)))
		progress.convert(&rec.Images)
	}
	return todo, nil
}

// readDone reads a record; nil if it is damaged or gone, so that its shard is done
// again.
func readDone(ctx context.Context, st store.Store, name string) (*done, error) {
	data, err := store.ReadAll(ctx, st, name, maxDone)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec := new(done)
	if err := json.Unmarshal(data, rec); err != nil {
		rec = nil
	}
	return rec, nil
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
	m, bad, images, err := assemble(ctx, st, pl, env)
	if err != nil {
		return nil, err
	}
	data, err := m.Encode()
	if err != nil {
		return nil, err
	}
	// Nobody plans anew between the manifest and the end.
	unlockPlan, err := lock(ctx, st, "plan", env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlockPlan()) }()
	if err := pl.current(ctx, st); err != nil {
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
	if err := st.Sweep(ctx, ""); err != nil { // what killed runs left
		return nil, err
	}
	if err := clearWork(ctx, st); err != nil {
		return nil, err
	}
	env.Progress.phase(PhaseDone)
	return &Result{Manifest: m, Bad: int64(len(bad)), Images: images, Ignored: pl.Ignored, Names: pl.Names}, nil
}

// assemble makes the manifest of the records of all shards.
func assemble(ctx context.Context, st store.Store, pl *plan, env Env) (_ *index.Manifest, bad []Bad, images Conversions, err error) {
	cfg := &pl.Config
	format, err := formats.Parse(cfg.Format)
	if err != nil {
		return nil, nil, images, err
	}
	options, err := json.Marshal(cfg)
	if err != nil {
		return nil, nil, images, err
	}
	m := &index.Manifest{
		Tool: env.Tool, Name: cfg.Name, Container: format.Container.Name(), Compression: format.Compression,
		Options: options, Classes: pl.Classes,
	}
	l, err := list(ctx, st)
	if err != nil {
		return nil, nil, images, err
	}
	missing := 0
	for n := range pl.Shards {
		if !l.records[doneName(n)] {
			missing++
		}
	}
	bad = slices.Clone(pl.Bad)
	for n := 0; n < len(pl.Shards) && missing == 0; n++ {
		rec, err := l.done(ctx, st, pl, n)
		if err != nil {
			return nil, nil, images, err
		}
		if rec == nil {
			missing++
			break
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
		images.add(&rec.Images)
	}
	if missing > 0 {
		return nil, nil, images, fmt.Errorf("%w: %d of %d", ErrIncomplete, missing, len(pl.Shards))
	}
	if m.Samples() == 0 {
		return nil, nil, images, fmt.Errorf("%w: all %d are bad, the first: %q: %s; --check none takes them as they are, with --restart", ErrEmpty, len(bad), bad[0].Path, bad[0].Reason)
	}
	return m, bad, images, nil
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
		if strings.HasPrefix(info.Name, lockPrefix) {
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
