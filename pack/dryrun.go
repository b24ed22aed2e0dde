package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"shardify/dataset"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/source"
	"shardify/store"
	"shardify/store/file"
)

// Report is what a dry run tells.
type Report struct {
	// Already says that the destination holds this data set, finished; then
	// nothing else is filled in.
	Already bool `json:"already,omitempty"`
	// Files and FileBytes count the files of all samples.
	Files     int64         `json:"files"`
	FileBytes int64         `json:"file_bytes"`
	Splits    []SplitReport `json:"splits"`
	// Unlabelled counts the samples without a class, Labels those of each class that
	// has any, or has a name, by class number.
	Unlabelled int64                `json:"unlabelled"`
	Labels     []dataset.LabelCount `json:"labels,omitempty"`
	// Fields counts the samples that have each field of the source.
	Fields []index.FieldStat `json:"fields"`
	// Formats counts the images of each format and colour space ("jpeg RGB").
	Formats []dataset.NameCount `json:"formats,omitempty"`
	// Images counts what would become of the images under Config.Convert; nil without.
	Images *Conversions `json:"images,omitempty"`
	// ImageBytes, Width and Height (pixels, as stored) are those of the images, as they
	// would be packed.
	ImageBytes dataset.Histogram `json:"image_bytes"`
	Width      dataset.Histogram `json:"width"`
	Height     dataset.Histogram `json:"height"`
	// Bad lists the files that would be left out.
	Bad []Bad `json:"bad"`
	// Ignored counts the files that are no images and belong to none, with a few
	// names.
	Ignored      int64    `json:"ignored"`
	IgnoredNames []string `json:"ignored_names"`
	// Advice is what the user should know before the real run.
	Advice []string `json:"advice"`
}

// SplitReport sums up the plan of a split.
type SplitReport struct {
	Name    string `json:"name"`
	Samples int64  `json:"samples"`
	Shards  int64  `json:"shards"`
	// First and Last are the names of its first and last shard.
	First string `json:"first"`
	Last  string `json:"last"`
	// Bytes is the size of the split's shards before compression; Smallest and
	// Largest that of single shards. Where images are converted, Config.Check "none" makes
	// them estimates.
	Bytes    int64 `json:"bytes"`
	Smallest int64 `json:"smallest"`
	Largest  int64 `json:"largest"`
}

// DryRun scans and plans as Run does, checks the images as Run would, and writes
// nothing to st.
func DryRun(ctx context.Context, st store.Store, cfg Config, env Env) (_ *Report, err error) {
	cfg = named(cfg, st).withDefaults()
	from := cfg.Source
	cfg.Source = cfg.Source.withoutSecrets()
	env = env.withDefaults(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	found, err := look(ctx, st)
	if err != nil {
		return nil, err
	}
	if found.plan {
		if err := sameRun(ctx, st, cfg, env); err != nil {
			return nil, err
		}
	}
	if found.manifest != nil {
		return &Report{Already: true}, sameOptions(st, found.manifest, cfg)
	}
	src, err := from.open(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	// The plan goes to a folder of its own.
	dir, err := os.MkdirTemp(env.TempDir, "shardify-dry-run-")
	if err != nil {
		return nil, fmt.Errorf("a folder for the plan: %w; set --temp-dir", err)
	}
	defer os.RemoveAll(dir)
	tmp := file.New(dir)
	if cfg.OnBad == OnBadFail {
		cfg.OnBad = OnBadSkip // list them all
	}
	pl, err := thePlan(ctx, tmp, src, cfg, env)
	if err != nil {
		return nil, err
	}
	defer pl.close()
	r := &Report{
		Files: pl.Files, FileBytes: pl.FileBytes, Labels: labelCounts(pl),
		Bad: slices.Clone(pl.Bad), Ignored: pl.Ignored, IgnoredNames: pl.Names,
	}
	pk, err := newPacker(tmp, pl, src, env)
	if err != nil {
		return nil, err
	}
	if err := pk.survey(ctx, r); err != nil {
		return nil, err
	}
	if cfg.Order != OrderPath {
		for _, p := range cfg.Source.folders() {
			if isURL(p) {
				continue
			}
			if why := slowMedium(p); why != "" {
				r.Advice = append(r.Advice, fmt.Sprintf("%q is on %s: reading it in %s order will be slow. Pack with --order path, and let the reader shuffle (its default).", p, why, cfg.Order))
			}
		}
	}
	return r, nil
}

// named fills in the default name.
func named(cfg Config, st store.Store) Config {
	cfg.Name = cmp.Or(cfg.Name, filepath.Base(filepath.Clean(st.URL())))
	return cfg
}

// survey reads every sample and counts what it sees.
func (p *packer) survey(ctx context.Context, r *Report) error {
	p.env.Progress.phase(PhasePack)
	var (
		mu     sync.Mutex
		counts = map[string]int64{}
		fields dataset.FieldStats
	)
	see := func(split string, j *job) error {
		mu.Lock()
		defer mu.Unlock()
		if j.reason != "" {
			if p.bad.Add(1) > maxBad {
				return ErrTooManyBad
			}
			r.Bad = append(r.Bad, Bad{Split: split, Key: j.it.key, Path: sample.Escape(j.path), Reason: j.reason})
			p.env.Progress.Bad.Add(1)
			return nil
		}
		for i := range j.it.fields {
			f := &j.it.fields[i]
			fields.Merge([]index.FieldStat{{Name: f.Name, Count: 1, Bytes: f.Size}})
		}
		if j.it.label < 0 {
			r.Unlabelled++
		}
		image := sample.Image(j.it.fields, func(f source.FieldEntry) string { return f.Name })
		if image < 0 {
			return nil
		}
		if j.facts.Image >= 0 {
			r.ImageBytes.Add(int64(len(j.sample.Fields[j.facts.Image].Data)))
		} else { // by the plan alone
			r.ImageBytes.Add(j.it.fields[image].Size)
		}
		if j.facts.Format != "" {
			counts[j.facts.Format+" "+j.facts.Colorspace]++
			r.Width.Add(int64(j.facts.Width))
			r.Height.Add(int64(j.facts.Height))
		}
		return nil
	}
	visit := p.samples
	switch {
	case p.plan.Config.Check == CheckNone:
		visit = p.planned // what the plan says is all there is to tell
	case p.pixels != nil:
		visit = p.measured(r, visit)
	}
	g, ctx := errgroup.WithContext(ctx)
	atOnce, readers := p.atOnce(len(p.plan.Shards))
	g.SetLimit(atOnce)
	for n := range p.plan.Shards {
		g.Go(func() error {
			return visit(ctx, n, readers, func(j *job) error { return see(p.plan.Shards[n].Split, j) })
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		r.Formats = append(r.Formats, dataset.NameCount{Name: name, Samples: counts[name]})
	}
	r.Fields = fields.List()
	r.Splits = splitReports(p.plan)
	for _, h := range []*dataset.Histogram{&r.ImageBytes, &r.Width, &r.Height} {
		h.Finish()
	}
	sortBad(r.Bad)
	return nil
}

// measured is visit, and counts what becomes of images and how large the shards get.
func (p *packer) measured(r *Report, visit func(context.Context, int, int, func(*job) error) error) func(context.Context, int, int, func(*job) error) error {
	var mu sync.Mutex
	r.Images = new(Conversions)
	return func(ctx context.Context, n, readers int, each func(*job) error) error {
		var (
			size   int64
			images Conversions
			sizes  []shard.FieldSize
		)
		err := visit(ctx, n, readers, func(j *job) error {
			if j.reason == "" {
				p.countImage(&images, j)
				sizes = sizes[:0]
				for i := range j.sample.Fields {
					f := &j.sample.Fields[i]
					sizes = append(sizes, shard.FieldSize{Name: f.Name, Size: int64(len(f.Data))})
				}
				size += p.format.Container.Size(j.it.key, sizes)
			}
			return each(j)
		})
		mu.Lock()
		defer mu.Unlock()
		r.Images.add(&images)
		p.plan.Shards[n].Bytes = size
		return err
	}
}

// planned visits the samples of shard n without reading them.
func (p *packer) planned(ctx context.Context, n, _ int, each func(*job) error) error {
	for it, err := range p.plan.items(n) {
		if err != nil {
			return err
		}
		if err := each(&job{it: it}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func splitReports(pl *plan) (out []SplitReport) {
	for i := range pl.Shards {
		s := &pl.Shards[i]
		if len(out) == 0 || out[len(out)-1].Name != s.Split {
			out = append(out, SplitReport{Name: s.Split, First: s.Name, Smallest: s.Bytes})
		}
		r := &out[len(out)-1]
		r.Shards++
		r.Samples += s.Samples
		r.Bytes += s.Bytes
		r.Last = s.Name
		r.Smallest, r.Largest = min(r.Smallest, s.Bytes), max(r.Largest, s.Bytes)
	}
	return out
}

func labelCounts(pl *plan) (out []dataset.LabelCount) {
	for label, n := range pl.ClassCounts {
		c := dataset.LabelCount{Label: int64(label), Samples: n}
		if label < len(pl.Classes) {
			c.Name = pl.Classes[label]
		}
		if n > 0 || c.Name != "" {
			out = append(out, c)
		}
	}
	return out
}

// slowMedium says what is slow about reading files of path in a random order;
// empty if nothing, or where the system does not tell.
func slowMedium(path string) string {
	why, err := medium(path)
	if err != nil {
		return "" // advice is not worth an error
	}
	return why
}
