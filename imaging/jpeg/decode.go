package jpeg

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"shardify/imaging/internal/fault"
	"shardify/imaging/internal/raster"
	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/jpeg/internal/entropy"
	"shardify/imaging/jpeg/internal/pixel"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// Color is what comes out of a decoder.
type Color int

const (
	// ToRGB is Pillow's convert("RGB"): of grey files, three equal channels; of CMYK
	// files (255-C)(255-K)/255 and so on.
	ToRGB Color = iota
	// ToGray is one channel: the luma of YCbCr and grey files; of others, Pillow's
	// convert("L").
	ToGray
	// ToYCbCr is luma and chroma as they are stored, upsampled; only for YCbCr and
	// grey files.
	ToYCbCr
)

var colors = []string{ToRGB: "rgb", ToGray: "gray", ToYCbCr: "ycbcr"}

func (c Color) String() string { return nameOf(colors, int(c), "Color") }

// MarshalText returns rgb, gray or ycbcr.
func (c Color) MarshalText() ([]byte, error) { return marshal(colors, int(c), "colour") }

// UnmarshalText takes one of these; an empty text is ToRGB.
func (c *Color) UnmarshalText(text []byte) error { return unmarshal(colors, (*int)(c), text, "colour") }

// Policy says what to do with a file that is damaged, but not so that libjpeg would
// give up.
type Policy int

const (
	// Refuse decodes nothing further once damage is met: the error is a
	// *DamagedError, and there are no pixels.
	Refuse Policy = iota
	// Keep makes the pixels that libjpeg would show, and gives the *DamagedError
	// with them.
	Keep
	// AsPillow is what Pillow does by default: a file whose image data end early is
	// refused, and so is one in which libjpeg gives up at what follows them; of other
	// damage the pixels that libjpeg would show are made, and no error. (A file that
	// lacks its end marker and nothing else is refused: Pillow shows a few of these,
	// if libjpeg happened not to read ahead.)
	AsPillow
)

var policies = []string{Refuse: "refuse", Keep: "keep", AsPillow: "as-pillow"}

func (p Policy) String() string { return nameOf(policies, int(p), "Policy") }

// MarshalText returns refuse, keep or as-pillow.
func (p Policy) MarshalText() ([]byte, error) { return marshal(policies, int(p), "policy") }

// UnmarshalText takes one of these; an empty text is Refuse.
func (p *Policy) UnmarshalText(text []byte) error {
	return unmarshal(policies, (*int)(p), text, "policy")
}

func nameOf(names []string, i int, kind string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, i)
	}
	return names[i]
}

func marshal(names []string, i int, kind string) ([]byte, error) {
	if i < 0 || i >= len(names) {
		return nil, fmt.Errorf("jpeg: no %s has the number %d", kind, i)
	}
	return []byte(names[i]), nil
}

func unmarshal(names []string, i *int, text []byte, kind string) error {
	at := slices.Index(names, string(text))
	if len(text) == 0 {
		at = 0
	}
	if at < 0 {
		return fmt.Errorf("jpeg: unknown %s %q; want %s", kind, text, strings.Join(names, ", "))
	}
	*i = at
	return nil
}

// Options say what to decode, and how. The zero value decodes the whole image to
// RGB as Pillow does.
type Options struct {
	Color Color `json:"color,omitempty"`
	// Scale is 1, 2, 4 or 8: the image is made by it smaller in each direction,
	// rounded up, in the inverse DCT, as libjpeg does it and Pillow's draft mode.
	// It is much quicker, and smooths as a box filter of that size. 0 means 1.
	Scale int `json:"scale,omitempty"`
	// Orient turns the image upright as its EXIF orientation asks for.
	Orient bool `json:"orient,omitempty"`
	// X, Y, Width and Height are the region that is wanted: a rectangle of the
	// image as it is after Scale and Orient. A Width of 0 is all of it. It comes
	// out as that part of the whole image would, byte for byte.
	X      int `json:"x,omitempty"`
	Y      int `json:"y,omitempty"`
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
	// MaxPixels is the largest width times height of a file that is decoded; 0
	// means Pillow's bound, about 179 million. Baseline files take memory for some
	// rows, progressive ones and others with several scans up to 8 bytes a pixel.
	MaxPixels int64 `json:"max_pixels,omitempty"`
	// Damaged says what to do with damaged files.
	Damaged Policy `json:"damaged,omitempty"`
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var faults []error
	if o.Color < ToRGB || o.Color > ToYCbCr {
		faults = append(faults, fmt.Errorf("jpeg: no colour has the number %d", int(o.Color)))
	}
	switch o.Scale {
	case 0, 1, 2, 4, 8:
	default:
		faults = append(faults, fmt.Errorf("jpeg: scale is %d; want 1, 2, 4 or 8", o.Scale))
	}
	if o.X < 0 || o.Y < 0 || o.Width < 0 || o.Height < 0 || (o.Width == 0) != (o.Height == 0) || o.Width == 0 && (o.X != 0 || o.Y != 0) {
		faults = append(faults, fmt.Errorf("jpeg: the region of %d x %d at (%d, %d) makes no sense", o.Width, o.Height, o.X, o.Y))
	}
	if o.MaxPixels < 0 {
		faults = append(faults, fmt.Errorf("jpeg: max_pixels is %d; want 0 for the default of %d, or more", o.MaxPixels, int64(raster.DefaultMaxPixels)))
	}
	if o.Damaged < Refuse || o.Damaged > AsPillow {
		faults = append(faults, fmt.Errorf("jpeg: no policy has the number %d", int(o.Damaged)))
	}
	return errors.Join(faults...)
}

// Job is one file to decode. Data is neither changed nor kept.
type Job struct {
	Data []byte
	// Seek has the file's seek points, nil for none; or Points has them in the form
	// that Seek.Append gives, which is read when the file's turn comes. Points are
	// neither changed nor kept.
	Seek   *Seek
	Points []byte
	// Gap says of which bytes of its file Data is. The zero value is all of them.
	// Otherwise the Points must be there, and Data have what Extent says; or else Err
	// is ErrGap. It is so, too, where the points are found to be those of another file:
	// decode that again, with all its bytes.
	Gap Gap
	Options

	// One of these takes the pixels. Image takes three channels; it gets the region's
	// dimensions, in the memory it has where that is enough. Target is a place in
	// a batch, for one channel or three.
	Image  *raster.Image
	Target resize.Target
	// Task is how the region becomes the Target; its SourceWidth, SourceHeight and Turn
	// are filled in. With a Width of 0 the Target has the region's dimensions.
	Task resize.Task

	// Find, if it is not nil, takes the file's seek points in place of pixels: those of
	// each row of MCUs, and where FindEvery is not 0, further ones every so many MCUs,
	// as Decoder.MakeSeek says. What it held is overwritten, its memory used again; it
	// is of no use where Err is not nil. Options, Seek and Points play no part.
	Find      *Seek
	FindEvery int

	// SeekErr says why the file was decoded without its seek points: they make no
	// sense, or they were found to be those of another file. It is nil where they were
	// of use, and where there are none. It is no fault of the pixels.
	SeekErr error
	// Err is nil if the pixels are there. After another error than a
	// *DamagedError under the policy Keep, Image and Target hold nothing of use.
	Err error
}

// Gap says which bytes of a file of Size bytes are there: its first Head bytes, at least
// the header, and behind them those from From on, as many as there are.
type Gap struct{ Size, Head, From int }

// ErrGap says that what is there of a file, as Job.Gap says, is not enough to decode it.
var ErrGap = entropy.ErrGap

// Decoder decodes files. It keeps its memory between them: once it has seen the
// largest, it allocates nothing. Its zero value is ready; one goroutine may use it
// at a time.
type Decoder struct {
	group entropy.Group
	slot  [entropy.Files]*slot
	queue Queue
	list  list
	one   [1]Job
}

// Queue hands files to a [Decoder] as it has room for them, and takes them back. Its
// methods are called by the goroutine that decodes, and must not use the decoder.
type Queue interface {
	// Next returns a file to decode, nil if there is none now: while there are others
	// being decoded it is asked again.
	Next() *Job
	// Done takes a job back whose Err is set, as soon as its pixels are there. They
	// come in any order.
	Done(*Job)
}

// list is a Queue of jobs that are all there.
type list struct{ jobs []Job }

func (l *list) Next() *Job {
	if len(l.jobs) == 0 {
		return nil
	}
	j := &l.jobs[0]
	l.jobs = l.jobs[1:]
	return j
}

func (l *list) Done(*Job) {}

// slot is a file on its way through both halves.
type slot struct {
	entropy entropy.Decoder
	pixel   pixel.Decoder
	job     *Job
	again   bool         // the job is to be decoded again, without entries
	points  entropy.Seek // of Job.Points
}

// Decode decodes one file into dst, which gets the region's dimensions.
func (d *Decoder) Decode(data []byte, dst *raster.Image, o Options) error {
	d.one[0] = Job{Data: data, Options: o, Image: dst}
	d.DecodeAll(d.one[:])
	err := d.one[0].Err
	d.one[0] = Job{}
	return err
}

// DecodeAll decodes all jobs, and sets their Err. Several are decoded at once, in one
// goroutine, since that takes less time than one after the other: pass at least
// four files, or files with seek points.
func (d *Decoder) DecodeAll(jobs []Job) {
	d.list.jobs = jobs
	d.DecodeQueue(&d.list)
	d.list.jobs = nil
}

// DecodeQueue decodes the jobs of a queue until it has none left; it is DecodeAll for
// jobs that come one by one. After a panic, in the queue's methods, the decoder is of no
// further use.
func (d *Decoder) DecodeQueue(q Queue) {
	d.queue = q
	d.group.Decode((*source)(d))
	d.queue = nil
}

// source is the Decoder as the entropy layer sees it.
type source Decoder

// Next begins the next job.
func (d *source) Next() (int, *entropy.Decoder) {
	for i := range d.slot {
		if s := d.slot[i]; s != nil && s.again {
			s.again = false
			if err := s.begin(entropy.Plain); err != nil {
				d.done(s, err)
				continue
			}
			return i, &s.entropy
		}
	}
	free := 0
	for d.slot[free] != nil && d.slot[free].job != nil {
		free++
	}
	if d.slot[free] == nil {
		d.slot[free] = new(slot)
	}
	s := d.slot[free]
	for {
		if s.job = d.queue.Next(); s.job == nil {
			return 0, nil
		}
		s.job.SeekErr = nil
		err := s.begin(nil)
		if err == nil {
			return free, &s.entropy
		}
		d.done(s, err)
	}
}

// done gives a job back.
func (d *source) done(s *slot, err error) {
	j := s.job
	s.job, j.Err = nil, err
	d.queue.Done(j)
}

// Strip passes blocks on to the pixel layer.
func (d *source) Strip(i int, b *blocks.Strip) error {
	s := d.slot[i]
	if s.job.Damaged == Refuse && s.entropy.Count > 0 {
		return errDamaged
	}
	return s.pixel.Strip(b)
}

var errDamaged = errors.New("damaged")

// End ends a job.
func (d *source) End(i int, err error) {
	s := d.slot[i]
	if errors.Is(err, entropy.ErrSeek) {
		if s.job.SeekErr = err; s.job.Gap != (Gap{}) {
			d.done(s, fmt.Errorf("%w: %w", ErrGap, err))
			return
		}
		s.again = true
		return
	}
	if err == nil || errors.Is(err, errDamaged) {
		err = s.damage()
	}
	d.done(s, err)
}

const insideSegment = "a marker segment"

// damage returns the error for the damage that was met, as the policy has it.
func (s *slot) damage() error {
	f := &s.entropy.Faults
	switch {
	case f.Count == 0:
		return nil
	case s.job.Damaged != AsPillow:
		return damaged(&s.entropy, f.First)
	case f.Has(entropy.Ended):
		return damaged(&s.entropy, f.Of(entropy.Ended))
	case f.Has(entropy.Behind):
		return damaged(&s.entropy, f.Of(entropy.Behind))
	}
	return nil
}

// damaged is the error for the damage that was met in a file, of which first is to be
// told.
func damaged(d *entropy.Decoder, first entropy.Fault) *DamagedError {
	e := &DamagedError{Count: d.Count, Row: -1, Err: fault.Malformed("jpeg", first.Offset, first.Kind.String())}
	where := ""
	switch {
	case first.Kind != entropy.Ended && first.Kind != entropy.Endless:
	case d.Inside:
		where = insideSegment
	case first.Kind == entropy.Ended:
		where = "the image data"
	default:
		where = "what follows the image data: its end marker is missing"
	}
	if where != "" {
		e.Err = fault.Truncated("jpeg", where, len(d.Data))
	}
	if d.Row < 0 {
		return e
	}
	f := &d.Frame
	e.Row = d.Row * 8 * f.MaxV
	for _, c := range f.Component[:f.N] {
		if e.Row > 0 && c.V < f.MaxV { // the row above is between two of this component
			e.Row--
			break
		}
	}
	return e
}

// begin reads the header, checks what is wanted, and begins both halves. Without points
// the job's are used.
func (s *slot) begin(points *entropy.Seek) error {
	j := s.job
	e := &s.entropy
	if j.Find != nil {
		return s.find()
	}
	if err := j.Validate(); err != nil {
		return err
	}
	if err := e.ReadHeader(j.Data); err != nil {
		return err
	}
	if err := e.Supported(); err != nil {
		return err
	}
	f := &e.Frame
	limit := j.MaxPixels
	if limit == 0 {
		limit = raster.DefaultMaxPixels
	}
	if int64(f.Height) > limit/int64(f.Width) {
		return fmt.Errorf("jpeg: %w: %d x %d; the bound (max_pixels) is %d", ErrTooLarge, f.Width, f.Height, limit)
	}
	// A block takes at least a bit.
	if x, y := f.MCUs(); j.Damaged != Keep && int64(x)*int64(y) > 8*int64(max(len(j.Data), j.Gap.Size)) {
		return fault.Truncated("jpeg", "the image data, which cannot hold all of its pixels", len(j.Data))
	}
	spec := pixel.Spec{Color: [...]pixel.Color{ToRGB: pixel.RGB, ToGray: pixel.Gray, ToYCbCr: pixel.YCbCr}[j.Color], Size: 8}
	if j.Scale > 1 {
		spec.Size = 8 / j.Scale
	}
	target, err := s.arrange(&spec)
	if err != nil {
		return err
	}
	w, err := s.pixel.Begin(f, spec, target)
	if err != nil {
		return err
	}
	if j.Gap != (Gap{}) {
		if j.SeekErr = s.points.Parse(j.Points, e, j.Gap.Size); j.SeekErr != nil {
			return fmt.Errorf("%w: %w", ErrGap, j.SeekErr)
		}
		return e.BeginPart(w, &s.points, entropy.Gap(j.Gap))
	}
	if points == nil {
		points = s.entries()
	}
	return e.Begin(w, points)
}

// find begins to find the file's seek points.
func (s *slot) find() error {
	j := s.job
	if j.FindEvery < 0 {
		return fmt.Errorf("jpeg: seek points every %d MCUs", j.FindEvery)
	}
	if err := s.entropy.ReadHeader(j.Data); err != nil {
		return err
	}
	return s.entropy.BeginSeek(&j.Find.points, j.FindEvery)
}

// entries are the job's seek points; nil for none that are of use.
func (s *slot) entries() *entropy.Seek {
	j := s.job
	switch {
	case j.Seek != nil:
		if j.Seek.points.Fits(&s.entropy) {
			return &j.Seek.points
		}
		j.SeekErr = entropy.ErrSeek
	case len(j.Points) > 0:
		err := s.points.Parse(j.Points, &s.entropy, len(j.Data))
		if err == nil && s.points.Fits(&s.entropy) {
			return &s.points
		}
		if j.SeekErr = err; err == nil {
			j.SeekErr = entropy.ErrSeek
		}
	}
	return nil
}

// arrange works out which stored pixels are wanted and where they go, which the
// spec and the target then say.
func (s *slot) arrange(spec *pixel.Spec) (resize.Target, error) {
	j, f := s.job, &s.entropy.Frame
	turn := 1
	if j.Orient {
		turn = s.entropy.Orientation
	}
	// The image's dimensions as stored, then upright, and the region in these.
	w, h := pixel.Scaled(f.Width, spec.Size), pixel.Scaled(f.Height, spec.Size)
	if turn >= 5 {
		w, h = h, w
	}
	x, y, width, height := j.X, j.Y, j.Width, j.Height
	if width == 0 {
		width, height = w, h
	}
	if width > w-x || height > h-y {
		return resize.Target{}, fmt.Errorf("jpeg: the region of %d x %d at (%d, %d) does not lie within the image of %d x %d", width, height, x, y, w, h)
	}
	// The same region as stored.
	right, bottom := w-x-width, h-y-height
	left, top := x, y
	switch turn {
	case 2:
		left = right
	case 3:
		left, top = right, bottom
	case 4:
		top = bottom
	case 5:
		left, top = y, x
	case 6:
		left, top = y, right
	case 7:
		left, top = bottom, right
	case 8:
		left, top = bottom, x
	}
	wide, high := width, height
	if turn >= 5 {
		wide, high = high, wide
	}
	spec.X, spec.Y, spec.Width, spec.Height = left, top, wide, high

	if j.Image != nil {
		if j.Color == ToGray {
			return resize.Target{}, errors.New("jpeg: an Image takes three channels; decode grey into a Target")
		}
		j.Image.Reset(width, height)
		spec.Task.Turn = turn
		return resize.Target{Width: width, Height: height, Layout: tensor.NHWC, Uint8: j.Image.Pix}, nil
	}
	spec.Task = j.Task
	spec.Task.Turn = turn
	return j.Target, nil
}
