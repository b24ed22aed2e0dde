package reader

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/sample/typed"
)

// Images of sizes of their own, Config.Collate. How large an image becomes follows from
// its dimensions and the random numbers of its sample, without a pixel of it. So the
// scheduler draws each image's transforms by the dimensions in the index, and gives it the
// room that it will need:
//
//	ragged  image | image…… | image…        one behind the other, as they stay
//	pad     image… | image…… | image…       as far apart as the largest are wide and high
//
// The worker that has made a picture pads it where it lies. Only where samples are left
// out, or what stands in for one is larger, has collate anything to move.
//
// Masks and other images (Config.Tensors) are laid out like the images that they lie on.

const (
	// headerBytes is how much of an image is read where the index does not have its
	// dimensions, at first. Of files whose header is further behind (a TIFF's) more is
	// read, up to maxRead.
	headerBytes = 64 << 10
	// headerStream is a shard's file for that, where it can only be read forward.
	headerStream = -2
)

// varies says that images have sizes of their own.
func (c *Config) varies() bool {
	return c.Decode == DecodeImage && (c.Collate == CollateRagged || c.Collate == CollatePad)
}

// besideImages are the names of the tensors that come with the images.
func (c *Config) besideImages() []string {
	switch {
	case !c.varies():
		return nil
	case c.Collate == CollateRagged:
		return []string{imageTensor + "_offsets", sizesTensor}
	}
	return []string{sizesTensor}
}

// validateCollate reports the faults of Collate, PadTo and Fill.
func (c *Config) validateCollate() (faults []error) {
	choice(&faults, "collate", c.Collate, CollateStack, CollatePad, CollateRagged)
	if c.Decode == DecodeNone && c.Collate != CollateStack {
		faults = append(faults, fmt.Errorf("collate: there are no images to put together with decode %q", DecodeNone))
	}
	if c.PadTo != (transform.Size{}) {
		if c.Collate != CollatePad {
			faults = append(faults, fmt.Errorf("pad_to: belongs to collate %q", CollatePad))
		}
		if err := (transform.Options{Size: c.PadTo}).Validate(); err != nil {
			faults = append(faults, fmt.Errorf("pad_to: %w", err))
		}
	}
	if c.Fill != 0 {
		one := typed.Array{DType: c.DType}
		switch {
		case c.Collate != CollatePad:
			faults = append(faults, fmt.Errorf("fill: belongs to collate %q", CollatePad))
		case c.DType.Size() > 0 && !one.Append(c.Fill):
			faults = append(faults, fmt.Errorf("fill: %v does not fit %s", c.Fill, c.DType))
		}
	}
	return faults
}

// imageMaker makes the tensor of images that have sizes of their own.
func (c *Config) imageMaker() maker {
	m := maker{
		TensorSpec: TensorSpec{Name: imageTensor, Kind: KindImage, DType: c.DType, Collate: c.Collate, Fill: c.Fill},
		pattern:    []int{-1}, size: int64(c.DType.Size()), unit: int64(c.DType.Size()), channels: 3, follows: -1,
	}
	one := typed.Array{DType: c.DType}
	one.Append(c.Fill)
	m.fill, m.beside = one.Data, m.companions()
	return m
}

// padTo is the size to which all batches are padded; zeros where that is left to each.
func (c *Config) padTo() dims {
	height, width := c.PadTo[0], c.PadTo[1]
	if width == 0 {
		width = height
	}
	return dims{int32(width), int32(height)}
}

// measure works out how large the images of a job become, where they differ. An image of
// which that cannot be told will be a damaged sample, and has no room.
func (s *scheduler) measure(j *job) error {
	if !j.canvas.varies {
		return nil
	}
	s.unknown = s.unknown[:0]
	for i := range j.slots {
		if x := &j.images[i]; x.offset != absent && x.dims == (dims{}) && j.canvas.width == 0 {
			s.unknown = append(s.unknown, i)
		}
	}
	var found []dims
	if len(s.unknown) > 0 {
		found = s.headers(j)
		if j.ctx.Err() != nil {
			return context.Cause(j.ctx)
		}
	}
	for i := range j.slots {
		d := j.images[i].dims
		if at, missing := slices.BinarySearch(s.unknown, i); missing {
			d = found[at]
		}
		s.sizeSlot(&s.recipe, j, i, d)
	}
	return nil
}

// sizeSlot notes how large the image of slot i becomes, which has dimensions d.
func (p *pass) sizeSlot(recipe *transform.Recipe, j *job, i int, d dims) {
	var of dims
	if c := &j.canvas; c.width > 0 {
		of = dims{int32(c.width), int32(c.height)}
	} else if d != (dims{}) {
		random := j.plan.random(j.samples[i], j.copies[i])
		if err := c.program.Draw(recipe, &random, int(d.width), int(d.height)); err == nil {
			w, h := recipe.Size()
			of = dims{int32(w), int32(h)}
		}
	}
	if to := p.reader.config.padTo(); to != (dims{}) && (of.width > to.width || of.height > to.height) {
		of = dims{}
	}
	j.sizes[i] = of
	j.most.width, j.most.height = max(j.most.width, of.width), max(j.most.height, of.height)
}

// headers reads the dimensions of the images of s.unknown from their files; zeros where that
// cannot be: what is wrong is said when the image is read.
func (s *scheduler) headers(j *job) []dims {
	found := make([]dims, len(s.unknown))
	order := make([]int, len(found))
	for k := range order {
		order[k] = k
	}
	g, ctx := errgroup.WithContext(j.ctx)
	g.SetLimit(max(1, s.reader.fetchers))
	if s.reader.sequential { // what goes forward stays so
		g.SetLimit(1)
		slices.SortFunc(order, func(a, b int) int {
			a, b = s.unknown[a], s.unknown[b]
			return cmp.Or(cmp.Compare(j.shards[a], j.shards[b]), cmp.Compare(j.images[a].offset, j.images[b].offset))
		})
	}
	for _, k := range order {
		g.Go(func() error {
			found[k] = s.header(ctx, j, s.unknown[k])
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	return found
}

// header reads the dimensions of slot i's image from its file.
func (s *scheduler) header(ctx context.Context, j *job, i int) dims {
	x := &j.images[i]
	of := func(data []byte) (dims, bool) {
		info, err := imaging.Probe(data)
		return dims{int32(info.Width), int32(info.Height)}, err == nil
	}
	key := fileKey{j.shards[i], j.streams[i]}
	if s.reader.sequential {
		key.stream = headerStream
	}
	if x.parse {
		whole := index.Row{Key: string(j.key(i)), Offset: x.whole, Size: s.loaded[j.shards[i]].sizes[s.rowOf[i]]}
		field := index.FieldRow{Name: imageNames[x.name], Offset: notVerbatim, Size: x.size, CRC32C: x.crc}
		f, err := s.reader.files.acquire(ctx, key)
		if err != nil {
			return dims{}
		}
		defer s.reader.files.release(f)
		data, err := s.readField(f.file, j.shards[i], &whole, &field)
		if err != nil {
			return dims{}
		}
		d, _ := of(data)
		return d
	}
	for n := int64(headerBytes); ; n *= 8 {
		n = min(n, x.size, maxRead)
		data := make([]byte, n)
		s.counters.store.items.Add(1)
		s.counters.store.bytes.Add(n)
		if err := s.loadFrom(ctx, key, data, x.offset); err != nil {
			return dims{}
		}
		if d, ok := of(data); ok {
			return d
		}
		if n == min(x.size, maxRead) {
			return dims{}
		}
	}
}

// likely guesses how many bytes the image of a sample takes in a batch, with what else has
// its size, where its file has so many pixels.
func (p *canvas) likely(c *Config, pixels float64) int64 {
	if !p.varies {
		return 0
	}
	side := int(math.Sqrt(pixels)) + 1
	w, h := p.width, p.height
	var recipe transform.Recipe
	if random := augment.NewRand(0, 0, 0); w == 0 && p.program.Draw(&recipe, &random, side, side) == nil {
		w, h = recipe.Size()
	}
	if to := c.padTo(); to != (dims{}) {
		w, h = int(to.width), int(to.height)
	}
	each := 3 * p.image.size
	for i := range p.makers {
		each += p.makers[i].size * int64(p.makers[i].channels)
	}
	return int64(max(w, 1)) * int64(max(h, 1)) * each
}

// likelyPixels guesses how many pixels images have, by the sizes of their files: photographs
// as JPEGs have some 2 bits for each, without loss some 12.
func (r *Reader) likelyPixels() float64 {
	var pixels, n float64
	for i := range r.split.Shards {
		for _, f := range r.split.Shards[i].Fields {
			at := slices.Index(imageNames, f.Name)
			if at < 0 {
				continue
			}
			each := 8. / 12
			if at <= slices.Index(imageNames, "jfif") || f.Name == "webp" {
				each = 8. / 2
			}
			pixels, n = pixels+each*float64(f.Bytes), n+float64(f.Count)
		}
	}
	return pixels / max(1, n)
}

// picture is how many bytes one of a size has.
func (m *maker) picture(d dims) int64 {
	return int64(m.channels) * int64(d.width) * int64(d.height) * m.size
}

// layPictures gives the pictures of a tensor their places in the slab, from at on, and
// returns where they end.
func (j *job) layPictures(m *maker, p *place, values []value, at int64) int64 {
	at = align(at, slabAlign)
	*p = place{at: at}
	if m.Collate == CollatePad {
		if to := j.pass.reader.config.padTo(); to != (dims{}) {
			j.most = to
		}
		p.stride = m.picture(j.most)
	}
	for i := range values {
		values[i] = value{at: at, room: max(p.stride, m.picture(j.sizes[i]))}
		at += values[i].room
	}
	if m.Collate == CollateRagged {
		p.numbers = align(at, slabAlign)
		at = p.numbers + 8*int64(j.slots+1)
	}
	return at
}

// seat gives a picture that is drawn its place in slot i.
func (j *job) seat(i int, p *picture) error {
	if !j.canvas.varies {
		size := j.canvas.bytes
		p.dst = j.slab.data[int64(i)*size:][:size:size]
		return nil
	}
	d := dims{int32(p.width), int32(p.height)}
	if to := j.pass.reader.config.padTo(); to != (dims{}) && (d.width > to.width || d.height > to.height) {
		return fmt.Errorf("its image is %d x %d, where pad_to is %d x %d", d.width, d.height, to.width, to.height)
	}
	v := &j.pictures[i]
	n := j.canvas.image.picture(d)
	j.sizes[i] = d
	*v = value{at: v.at, room: v.room, length: 3 * p.width * p.height}
	v.data = grown(j.slab.data[v.at:v.at:v.at+v.room], n)
	p.dst = v.data
	return nil
}

// padSlot pads the pictures of slot i, if they have their places and are to be padded.
func (j *job) padSlot(i int) {
	if !j.canvas.varies || j.canvas.image.Collate != CollatePad || j.fault(i) != nil && j.stands[i] == nil {
		return
	}
	j.pad(&j.canvas.image, &j.pictures[i], j.sizes[i])
	makers := j.canvas.makers
	for t := range makers {
		if makers[t].channels > 0 {
			j.pad(&makers[t], &j.values[t*j.slots+i], j.sizes[i])
		}
	}
}

// pad pads a picture of a size in its place.
func (j *job) pad(m *maker, v *value, has dims) {
	if n := m.picture(j.most); int64(len(v.data)) <= v.room && v.room == n && has.width <= j.most.width && has.height <= j.most.height {
		dst := j.slab.data[v.at : v.at+n : v.at+n]
		j.spread(m, dst, j.most, v.data, has, has)
		v.data, v.padded = dst, true
	}
}

// spread writes a picture of size has, whose rows lie in src as those of one of size from,
// to the top left of dst, which is as large as to, and fills the rest. The two may be the
// same memory: dst may begin at src where to is no smaller than from in either
// direction, and at or before it where it is no larger.
func (j *job) spread(m *maker, dst []byte, to dims, src []byte, from, has dims) {
	planes, pixel := m.channels, m.size
	if j.pass.reader.config.Layout == LayoutNHWC {
		planes, pixel = 1, pixel*int64(m.channels)
	}
	row := pixel * int64(has.width)
	step, pitch := pixel*int64(to.width), pixel*int64(from.width)
	line := func(plane, y int64) {
		at := (plane*int64(from.height) + y) * pitch
		line := dst[(plane*int64(to.height)+y)*step:][:step]
		m.blank(line[copy(line, src[at:at+row]):])
	}
	below := func(plane int64) {
		m.blank(dst[(plane*int64(to.height)+int64(has.height))*step : (plane+1)*int64(to.height)*step])
	}
	if to.width > from.width || to.height > from.height {
		for plane := int64(planes) - 1; plane >= 0; plane-- {
			below(plane)
			for y := int64(has.height) - 1; y >= 0; y-- {
				line(plane, y)
			}
		}
		return
	}
	for plane := range int64(planes) {
		for y := range int64(has.height) {
			line(plane, y)
		}
		below(plane)
	}
}

// blank fills memory with the maker's element.
func (m *maker) blank(data []byte) {
	if m.Fill == 0 {
		clear(data)
		return
	}
	fill(data, m.fill)
}

// gatherPadded moves the pictures of a tensor together, as large as the largest that is
// there, and lists it.
func (j *job) gatherPadded(m *maker, p *place, values []value) {
	to := j.pass.reader.config.padTo()
	if to == (dims{}) {
		for _, i := range j.kept {
			to.width, to.height = max(to.width, j.sizes[i].width), max(to.height, j.sizes[i].height)
		}
	}
	n, step := int64(len(j.kept)), m.picture(to)
	data := j.slab.data[p.at:]
	if to.width > j.most.width || to.height > j.most.height { // what stands in is larger than all
		data = aligned(n * step)
	}
	data = data[:n*step]
	for k, i := range j.kept {
		v, from := &values[i], j.sizes[i]
		if v.padded {
			from = j.most
		}
		dst := data[int64(k)*step:][:step:step]
		if v.padded && from == to && addressOf(dst) == addressOf(v.data) {
			continue
		}
		j.spread(m, dst, to, v.data, from, j.sizes[i])
	}
	h, w := int(to.height), int(to.width)
	switch {
	case m.Kind == KindMask:
		j.list(m.Name, m.DType, data, int(n), h, w)
	case j.pass.reader.config.Layout == LayoutNHWC:
		j.list(m.Name, m.DType, data, int(n), h, w, 3)
	default:
		j.list(m.Name, m.DType, data, int(n), 3, h, w)
	}
}

// showSizes lists the tensor of the images' sizes.
func (j *job) showSizes() {
	n := len(j.kept)
	sizes := j.list(sizesTensor, DTypeInt64, j.slab.data[j.sizesAt:][:16*n], n, 2).Int64()
	for k, i := range j.kept {
		sizes[2*k], sizes[2*k+1] = int64(j.sizes[i].height), int64(j.sizes[i].width)
	}
}
