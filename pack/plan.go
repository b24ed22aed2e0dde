package pack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/formats"
	"shardify/source"
)

const (
	// maxBad bounds the bad files that are remembered: beyond it something else is
	// wrong than the files.
	maxBad = 100_000
	// maxClasses bounds the class names, which are held and written to the
	// manifest.
	maxClasses = 4 << 20
	// ignoredNames is how many ignored files are named.
	ignoredNames = 10
)

// ErrTooManyBad ends a run that meets more than 100,000 bad files.
var ErrTooManyBad = errors.New("more than 100,000 bad files; is this the right source?")

// ErrEmpty: the source has no sample.
var ErrEmpty = errors.New("no samples")

// fingerprint ties a plan, and all that is made from it, to a configuration.
func (c Config) fingerprint() (string, error) {
	data, err := json.Marshal(c.withDefaults())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// planner makes a plan.
type planner struct {
	cfg      Config
	env      Env
	format   formats.Format
	prefixes prefixes
	footer   Footer
	classes  map[string]int64 // name to number; nil: names are numbers
	known    [][]string       // of each source whose classes are numbers: their names, or nil
	numeric  []bool           // of each source: classes are numbers
	splits   map[string]*splitTotal
	buf, key []byte

	// Where images are converted: a few of them, and of each name of their fields how its
	// images' sizes change by that.
	picks  picks
	images []string
	ratios map[string]*ratio
}

type splitTotal struct {
	samples, bytes int64
	classes        map[int64]int64 // label to number of samples
	images         []int64         // bytes of images that are converted, as in planner.images
}

// makePlan scans the sources and writes the plan to w. It returns the plan's
// footer.
func makePlan(ctx context.Context, src sources, cfg Config, env Env, w io.Writer) (*Footer, error) {
	cfg = cfg.withDefaults()
	env = env.withDefaults(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	format, err := formats.Parse(cfg.Format)
	if err != nil {
		return nil, err
	}
	p := &planner{cfg: cfg, env: env, format: format, splits: map[string]*splitTotal{}}
	if p.footer.Fingerprint, err = cfg.fingerprint(); err != nil {
		return nil, err
	}
	p.footer.Sources, p.footer.Tool = src.kinds(), env.Tool
	// Two sorters are alive at once, one being read and one being filled, and the
	// collector lets the heap grow to twice what is alive.
	byPath := newSorter(env.TempDir, env.Memory/4)
	defer byPath.close()
	if err := p.scan(ctx, src, byPath); err != nil {
		return nil, err
	}
	byOrder := newSorter(env.TempDir, env.Memory/4)
	defer byOrder.close()
	if err := p.group(ctx, byPath, byOrder); err != nil {
		return nil, err
	}
	if len(p.splits) == 0 {
		return nil, p.empty(src)
	}
	if cfg.Convert.any() && cfg.ShardSamples == 0 {
		if p.ratios, err = p.picks.measure(ctx, src, &cfg, &env); err != nil {
			return nil, err
		}
	}
	if cfg.Order == OrderInterleaved {
		interleaved := newSorter(env.TempDir, env.Memory/4)
		defer interleaved.close()
		if err := p.interleave(ctx, byOrder, interleaved); err != nil {
			return nil, err
		}
		byOrder = interleaved
	}
	if err := p.write(ctx, byOrder, w); err != nil {
		return nil, err
	}
	return &p.footer, nil
}

func (p *planner) empty(src sources) error {
	names := ""
	for _, s := range src {
		names += " " + s.Name()
	}
	switch {
	case len(p.footer.Bad) > 0:
		b := p.footer.Bad[0]
		return fmt.Errorf("%w in%s: %d bad files, the first: %q: %s", ErrEmpty, names, len(p.footer.Bad), b.Path, b.Reason)
	case p.footer.Ignored > 0:
		return fmt.Errorf("%w in%s: %d files, and none of them an image: %q", ErrEmpty, names, p.footer.Ignored, p.footer.Names)
	}
	if len(p.cfg.Source.Include)+len(p.cfg.Source.Exclude) > 0 {
		return fmt.Errorf("%w in%s: no file that --include and --exclude let through", ErrEmpty, names)
	}
	return fmt.Errorf("%w in%s: no files", ErrEmpty, names)
}

// bad notes a bad file, and fails where that is the policy.
func (p *planner) bad(b Bad) error {
	if p.cfg.OnBad == OnBadFail {
		return fmt.Errorf("%w: %q: %s; mend or remove it, or choose --on-bad skip or quarantine", ErrBad, b.Path, b.Reason)
	}
	if len(p.footer.Bad) == maxBad {
		return ErrTooManyBad
	}
	b.Path = sample.Escape(b.Path)
	p.footer.Bad = append(p.footer.Bad, b)
	p.env.Progress.Bad.Add(1)
	return nil
}

// scan sorts all entries by path and numbers the classes.
func (p *planner) scan(ctx context.Context, all sources, out *sorter) error {
	p.env.Progress.phase(PhaseScan)
	seen := make([]map[string]bool, len(all))
	classes := 0
	for i, src := range all {
		seen[i] = map[string]bool{}
		for e, err := range src.Entries(ctx) {
			var fault *source.EntryError
			switch {
			case errors.As(err, &fault):
				if err := p.bad(Bad{Path: fault.Path, Reason: fault.Err.Error()}); err != nil {
					return err
				}
				continue
			case err != nil:
				return fmt.Errorf("%s: %w", src.Name(), err)
			}
			if e.Class != "" && !seen[i][e.Class] {
				if classes++; classes > maxClasses {
					return fmt.Errorf("%s: more than %d classes; is this the right label?", src.Name(), maxClasses)
				}
				if !utf8.ValidString(e.Class) {
					return fmt.Errorf("%s: class %q is not UTF-8, and so could not stand in a manifest; rename its folder, or give --table", src.Name(), e.Class)
				}
				seen[i][e.Class] = true
			}
			if e.Path == "" && e.Key == "" {
				continue
			}
			if e.Split == "" {
				e.Split = p.cfg.Source.Split
			}
			if !index.LegalName(e.Split) {
				return fmt.Errorf("%s: %q: split %q cannot be a part of a file's name", src.Name(), e.Path, e.Split)
			}
			e.Source = i
			p.env.Progress.Files.Add(1)
			p.env.Progress.FileBytes.Add(e.Size)
			p.key = e.SortKey(p.key[:0])
			p.buf = appendEntry(p.buf[:0], &p.prefixes, &e)
			if err := out.add(p.key, p.buf); err != nil {
				return err
			}
		}
	}
	return p.number(all, seen)
}

// classNames returns the names that a source has for the numbers that its entries
// have as classes; nil if it has none.
func classNames(src source.Source) []string {
	if c, ok := src.(interface{ Classes() []string }); ok {
		return c.Classes()
	}
	return nil
}

// number gives the classes their numbers: by the user's list, by the list that all
// sources have, or in the order of their names. Where all classes are numbers
// without names, they are the labels.
func (p *planner) number(all sources, seen []map[string]bool) error {
	names := map[string]bool{}
	numbered, named := "", "" // sources whose classes are numbers without names, and others
	list, agreed := p.cfg.Classes, true
	p.numeric, p.known = make([]bool, len(all)), make([][]string, len(all))
	for i, src := range all {
		known := classNames(src)
		if i == 0 && len(p.cfg.Classes) == 0 {
			list = known
		}
		agreed = agreed && slices.Equal(list, known)
		if len(seen[i]) == 0 {
			continue
		}
		if p.numeric[i] = src.Numeric(); p.numeric[i] {
			if p.known[i] = known; known == nil {
				p.known[i] = p.cfg.Classes
			}
			if len(p.known[i]) == 0 {
				numbered = src.Name()
				continue
			}
			for _, name := range known {
				names[name] = true
			}
		} else {
			maps.Copy(names, seen[i])
		}
		named = src.Name()
	}
	switch {
	case numbered != "" && named != "":
		return fmt.Errorf("the classes of %s are numbers and those of %s names: say with --classes which is which, or pack them apart", numbered, named)
	case numbered != "" || named == "":
		return nil
	case len(p.cfg.Classes) == 0 && (!agreed || len(list) == 0):
		list = slices.Sorted(maps.Keys(names))
	}
	p.footer.Classes = list
	p.classes = make(map[string]int64, len(list))
	for i, name := range list {
		p.classes[name] = int64(i)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, ok := p.classes[name]; !ok {
			return fmt.Errorf("class %q is not in the class list; add it there, or leave it out with --exclude '%s/**' and --exclude '%s'", name, name, name)
		}
	}
	return nil
}

// label returns the class number of a group's sample; -1 for none.
func (p *planner) label(g *source.Group) (int64, error) {
	if g.Class == "" {
		return -1, nil
	}
	src := g.Fields[0].Source
	if !p.numeric[src] {
		return p.classes[g.Class], nil
	}
	n, err := strconv.ParseInt(g.Class, 10, 64)
	known := p.known[src]
	if err != nil || n < 0 || len(known) > 0 && n >= int64(len(known)) {
		return 0, fmt.Errorf("label %q is no class number, of which there are %d", g.Class, len(known))
	}
	if len(known) == 0 {
		return n, nil
	}
	return p.classes[known[n]], nil
}

// group makes samples of entries and sorts them by the wanted order.
func (p *planner) group(ctx context.Context, in, out *sorter) error {
	p.env.Progress.phase(PhasePlan)
	entries := func(yield func(source.Entry, error) bool) {
		for b, err := range in.sorted(ctx) {
			if err != nil {
				yield(source.Entry{}, err)
				return
			}
			d := decoder{b: b, prefixes: p.prefixes.list}
			e := d.entry()
			if d.bad {
				yield(e, errPlan)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
	var sizes []shard.FieldSize
	seq := uint64(0)
	for g, err := range source.Groups(entries) {
		var fault *source.EntryError
		switch {
		case errors.As(err, &fault):
			if err := p.bad(Bad{Path: fault.Path, Reason: fault.Err.Error()}); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if g.Ignored {
			for i := range g.Fields {
				if p.footer.Ignored++; len(p.footer.Names) < ignoredNames {
					p.footer.Names = append(p.footer.Names, sample.Escape(g.Fields[i].Path))
				}
			}
			continue
		}
		label, err := p.label(&g)
		if err != nil {
			if err := p.bad(Bad{Split: g.Split, Key: g.Key, Path: g.Fields[0].Path, Reason: err.Error()}); err != nil {
				return err
			}
			continue
		}
		it := item{key: g.Key, label: label, fields: g.Fields}
		sizes = sizes[:0]
		fileBytes := int64(0)
		for i := range g.Fields {
			f := &g.Fields[i]
			sizes = append(sizes, shard.FieldSize{Name: f.Name, Size: f.Size})
			p.footer.Files++
			fileBytes += f.Size
		}
		p.footer.FileBytes += fileBytes
		if label >= 0 {
			sizes = append(sizes, shard.FieldSize{Name: labelField, Size: int64(len(strconv.FormatInt(label, 10)))})
		}
		size := p.format.Container.Size(g.Key, sizes)
		total := p.splits[g.Split]
		if total == nil {
			total = &splitTotal{classes: map[int64]int64{}}
			p.splits[g.Split] = total
		}
		total.samples++
		total.bytes += size
		total.classes[label]++
		image, kind := int64(0), 0
		if p.cfg.Convert.any() {
			name := func(f source.FieldEntry) string { return f.Name }
			if at := sample.Image(g.Fields, name); at >= 0 {
				f := &g.Fields[at]
				image, kind = f.Size, p.kindOf(f.Name)
				for len(total.images) <= kind {
					total.images = append(total.images, 0)
				}
				total.images[kind] += image
				p.picks.offer(p.hash(g.Key), f, fixed(g.Fields, at, name))
			}
		}

		p.key = append(append(p.key[:0], g.Split...), 0)
		switch p.cfg.Order {
		case OrderPath:
			p.key = binary.BigEndian.AppendUint64(p.key, seq)
		case OrderShuffle:
			p.key = binary.BigEndian.AppendUint64(p.key, p.hash(g.Key))
		case OrderInterleaved:
			p.key = binary.BigEndian.AppendUint64(p.key, uint64(label+1))
			p.key = binary.BigEndian.AppendUint64(p.key, p.hash(g.Key))
		}
		seq++
		p.buf = appendString(p.buf[:0], g.Split)
		p.buf = binary.AppendUvarint(p.buf, uint64(size))
		p.buf = binary.AppendUvarint(p.buf, uint64(fileBytes))
		p.buf = binary.AppendUvarint(p.buf, uint64(image))
		p.buf = binary.AppendUvarint(p.buf, uint64(kind))
		p.buf = appendItem(p.buf, &p.prefixes, &it)
		if err := out.add(p.key, p.buf); err != nil {
			return err
		}
	}
	return nil
}

// hash is the place of a key in the shuffled order: the first 8 bytes of
// SHA-256(seed, key), which no run, machine or version will ever give otherwise.
func (p *planner) hash(key string) uint64 {
	p.buf = append(binary.LittleEndian.AppendUint64(p.buf[:0], p.cfg.Seed), key...)
	sum := sha256.Sum256(p.buf)
	return binary.BigEndian.Uint64(sum[:])
}

// interleave spreads every class evenly: the i-th of a class's n samples comes at
// (i + u) / n of its split, where u in [0, 1) is the class's own, so that classes of
// one size do not come in blocks.
func (p *planner) interleave(ctx context.Context, in, out *sorter) error {
	at := map[string]map[int64]uint64{}
	for b, err := range in.sorted(ctx) {
		if err != nil {
			return err
		}
		split, it, ok := p.planned(b)
		if !ok {
			return errPlan
		}
		if at[split] == nil {
			at[split] = map[int64]uint64{}
		}
		i, n := at[split][it.label], uint64(p.splits[split].classes[it.label])
		at[split][it.label]++
		// place = (i·2^64 + u·2^64) / n / … as a 64-bit fraction: i + u < n, so the
		// quotient fits.
		u := p.hash("class " + strconv.FormatInt(it.label, 10))
		place, _ := bits.Div64(i, u, n)
		p.key = append(append(p.key[:0], split...), 0)
		p.key = binary.BigEndian.AppendUint64(p.key, place)
		p.key = append(p.key, it.key...)
		if err := out.add(p.key, b); err != nil {
			return err
		}
	}
	return nil
}

// planned decodes what group has written.
func (p *planner) planned(b []byte) (split string, it item, ok bool) {
	d := decoder{b: b, prefixes: p.prefixes.list}
	split = d.string()
	for range 4 {
		d.uvarint()
	}
	it = d.item()
	return split, it, !d.bad
}

// write cuts the samples into shards and writes the plan.
func (p *planner) write(ctx context.Context, in *sorter, w io.Writer) error {
	pw, err := newPlanWriter(w)
	if err != nil {
		return err
	}
	var (
		current string
		cut     cutter
		open    *PlannedShard
	)
	finish := func() error {
		if open == nil {
			return nil
		}
		if err := pw.zw.Close(); err != nil {
			return err
		}
		open.Length = pw.at - open.Offset
		open = nil
		return nil
	}
	for b, err := range in.sorted(ctx) {
		if err != nil {
			return err
		}
		d := decoder{b: b}
		split := d.string()
		size, fileBytes := int64(d.uvarint()), int64(d.uvarint())
		image, kind := int64(d.uvarint()), int(d.uvarint())
		if d.bad || image > 0 && kind >= len(p.images) {
			return errPlan
		}
		if image > 0 {
			size += p.change(kind, image)
		}
		if split != current {
			current = split
			t := p.splits[split]
			for kind, size := range t.images {
				t.bytes += p.change(kind, size)
			}
			cut = newCutter(&p.cfg, t.samples, t.bytes)
		}
		if cut.next(size) {
			if err := finish(); err != nil {
				return err
			}
			name, err := p.cfg.shardName(split, cut.shard, cut.shards)
			if err != nil {
				return err
			}
			p.footer.Shards = append(p.footer.Shards, PlannedShard{Split: split, Name: name, Offset: pw.at})
			open = &p.footer.Shards[len(p.footer.Shards)-1]
			pw.section()
		}
		open.Samples++
		open.Bytes += size
		open.FileBytes += fileBytes
		if err := pw.record(d.b); err != nil {
			return err
		}
	}
	if err := finish(); err != nil {
		return err
	}
	if err := p.checkNames(); err != nil {
		return err
	}
	p.footer.Config = p.cfg
	p.footer.Prefixes = p.prefixes.list
	p.footer.ClassCounts = p.classCounts()
	return pw.footer(&p.footer)
}

// kindOf numbers the names of images' fields.
func (p *planner) kindOf(field string) int {
	at := slices.Index(p.images, field)
	if at < 0 {
		at = len(p.images)
		p.images = append(p.images, field)
	}
	return at
}

// change is by how much images of a size are reckoned to grow as they are converted.
func (p *planner) change(kind int, size int64) int64 {
	return p.ratios[p.images[kind]].estimate(size) - size
}

// checkNames finds shards of one name, as a template without {split} gives, also
// where a file system holds "Train" and "train" for one.
func (p *planner) checkNames() error {
	names := map[string]bool{index.ManifestName: true}
	for i := range p.footer.Shards {
		s := &p.footer.Shards[i]
		for _, name := range shardFiles(s.Name, p.format) {
			if name = strings.ToLower(name); names[name] {
				return fmt.Errorf("template %q gives the name %q twice: it needs {split} and {shard}", p.cfg.Template, name)
			}
			names[name] = true
		}
	}
	return nil
}

func (p *planner) classCounts() []int64 {
	n := int64(len(p.footer.Classes))
	for _, t := range p.splits {
		for label := range t.classes {
			n = max(n, label+1)
		}
	}
	if n > maxClasses { // plain numbers that are no class numbers
		return nil
	}
	counts := make([]int64, n)
	for _, t := range p.splits {
		for label, k := range t.classes {
			if label >= 0 {
				counts[label] += k
			}
		}
	}
	return counts
}

// cutter says where shards begin, so that all are of one size to within a sample.
type cutter struct {
	shards  int64
	shard   int64 // the one that the last sample went to; -1 before the first
	samples int64
	bytes   int64
	bySize  bool
	i, at   int64 // samples and bytes before the next sample
}

func newCutter(cfg *Config, samples, bytes int64) cutter {
	c := cutter{shard: -1, samples: samples, bytes: bytes}
	ceil := func(a, b int64) int64 { return (a-1)/b + 1 }
	switch {
	case cfg.Shards > 0:
		c.shards, c.bySize = cfg.Shards, true
	case cfg.ShardSamples > 0:
		c.shards = ceil(samples, cfg.ShardSamples)
	default:
		if cfg.Convert.any() { // by an estimate: there are to be few that are larger
			bytes += bytes / estimateMargin
		}
		c.shards, c.bySize = ceil(max(bytes, 1), cfg.ShardSize), true
	}
	c.shards = min(c.shards, samples)
	return c
}

// next takes the next sample, of size bytes, and says whether a shard begins with
// it. Every shard gets a sample at least.
func (c *cutter) next(size int64) bool {
	want := c.i
	total := c.samples
	if c.bySize {
		want, total = c.at, c.bytes
	}
	begins := c.shard < 0 ||
		c.shard+1 < c.shards && (atLeast(want, c.shards, c.shard+1, total) || c.samples-c.i <= c.shards-c.shard-1)
	if begins {
		c.shard++
	}
	c.i++
	c.at += size
	return begins
}

// atLeast says a·b ≥ c·d, for products beyond 64 bits.
func atLeast(a, b, c, d int64) bool {
	h1, l1 := bits.Mul64(uint64(a), uint64(b))
	h2, l2 := bits.Mul64(uint64(c), uint64(d))
	return h1 > h2 || h1 == h2 && l1 >= l2
}
