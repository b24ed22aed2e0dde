package pack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"strings"

	"github.com/klauspost/compress/zstd"

	"shardify/source"
	"shardify/store"
)

// The plan is one object:
//
//	"shardify plan 1\n"
//	for each shard: a zstd stream of its samples' records
//	a zstd stream of the footer, as JSON
//	u64 offset of the footer, u64 its length, little-endian
//	32 bytes: the plan's ID, the SHA-256 of all before the footer and of the
//	  configuration
//
// A record is a uvarint length and, within it, what appendItem writes.
const planMagic = "shardify plan 1\n"

// tailSize is the length of what comes after the footer.
const tailSize = 16 + sha256.Size

// planID ties what is made from a plan to that plan.
type planID [sha256.Size]byte

func (id planID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }
func (id *planID) UnmarshalText(text []byte) error {
	n, err := hex.Decode(id[:], text[:min(len(text), 2*len(id))])
	if err != nil || n != len(id) || len(text) != 2*n {
		return errPlan
	}
	return nil
}

// maxRecord bounds a record of a plan that is read: a sample's worth of paths and
// of values from tables.
const maxRecord = 1 << 30

// Footer is a plan without its samples.
type Footer struct {
	// Fingerprint ties the plan to the configuration it was made from, and Sources
	// to the kinds of its sources.
	Fingerprint string   `json:"fingerprint"`
	Sources     []string `json:"sources"`
	// Tool is the program that made the plan. Another version may write other
	// bytes, so it must not finish what this one began.
	Tool string `json:"tool"`
	// Config is that configuration, with its defaults.
	Config Config `json:"config"`
	// Classes are the class names by number; empty where labels are numbers.
	Classes []string `json:"classes"`
	// Prefixes are what the names of files begin with: bytes, not all of them UTF-8.
	Prefixes [][]byte `json:"prefixes"`
	// Shards are those to be written, in order, those of a split together.
	Shards []PlannedShard `json:"shards"`
	// Bad are the files that were found bad while planning, and Ignored counts
	// those that are no samples, with a few of their names.
	Bad     []Bad    `json:"bad"`
	Ignored int64    `json:"ignored"`
	Names   []string `json:"ignored_names"`
	// Files counts the files of all samples and FileBytes their bytes.
	Files     int64 `json:"files"`
	FileBytes int64 `json:"file_bytes"`
	// ClassCounts has the number of samples of each class, over all splits.
	ClassCounts []int64 `json:"class_counts"`
}

// PlannedShard is a shard of the plan.
type PlannedShard struct {
	Split string `json:"split"`
	Name  string `json:"name"`
	// Samples is how many it gets if none is bad, and Bytes its size then, before
	// compression and without the container's own end; where images are converted, as
	// estimated.
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// FileBytes is the size of its samples' files.
	FileBytes int64 `json:"file_bytes"`
	// Offset and Length say where the records are in the plan.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// Bad is a sample, or a file, that was left out, and why.
type Bad struct {
	Split  string `json:"split,omitempty"`
	Key    string `json:"key,omitempty"`
	Path   string `json:"path"` // escaped as by sample.Escape
	Reason string `json:"reason"`
	// Copies are the names of the copies of the sample's files.
	Copies []string `json:"copies,omitempty"`
}

// item is a sample that is to be packed.
type item struct {
	key    string
	label  int64 // -1: none
	fields []source.FieldEntry
}

// prefixes numbers what the names of files begin with: names are long, and mostly
// the same folder and the entry's path.
type prefixes struct {
	list   [][]byte
	number map[string]int
}

// of returns the number of name less its suffix path; 0 if it does not end so, or
// if there are too many prefixes.
func (p *prefixes) of(name, path string) int {
	prefix, ok := strings.CutSuffix(name, path)
	if !ok || path == "" {
		return 0
	}
	n, ok := p.number[prefix]
	if !ok && len(p.list) < 1<<16 {
		if p.number == nil {
			p.number = map[string]int{}
		}
		p.list = append(p.list, []byte(prefix))
		n = len(p.list)
		p.number[prefix] = n
	}
	return n
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendLocation(b []byte, p *prefixes, l *source.Location, path string) []byte {
	n := p.of(l.Name, path)
	b = binary.AppendUvarint(b, uint64(n))
	if n == 0 {
		b = appendString(b, l.Name)
	}
	src := uint64(l.Source) << 1
	if l.HasCRC32C {
		src |= 1
	}
	b = binary.AppendUvarint(b, src)
	b = binary.AppendUvarint(b, uint64(l.Offset))
	b = binary.AppendUvarint(b, uint64(l.Size))
	b = binary.AppendVarint(b, l.ModTime)
	if l.HasCRC32C {
		b = binary.LittleEndian.AppendUint32(b, l.CRC32C)
	}
	return appendString(b, string(l.Inline))
}

func appendEntry(b []byte, p *prefixes, e *source.Entry) []byte {
	for _, s := range [...]string{e.Split, e.Class, e.Path, e.KeyPath, e.Key, e.Field} {
		b = appendString(b, s)
	}
	return appendLocation(b, p, &e.Location, e.Path)
}

func appendItem(b []byte, p *prefixes, it *item) []byte {
	b = appendString(b, it.key)
	b = binary.AppendVarint(b, it.label)
	b = binary.AppendUvarint(b, uint64(len(it.fields)))
	for i := range it.fields {
		f := &it.fields[i]
		b = appendString(b, f.Name)
		b = appendString(b, f.Path)
		b = appendLocation(b, p, &f.Location, f.Path)
	}
	return b
}

// errPlan is wrapped by what a broken plan gives.
var errPlan = errors.New("the plan is damaged; pack again with --restart")

// planFault says that a plan is damaged, unless it could only not be read.
func planFault(err error) error {
	var path *fs.PathError
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &path) {
		return err
	}
	return fmt.Errorf("%w: %w", errPlan, err)
}

// decoder reads what the append functions wrote. After a fault it reads zeros.
type decoder struct {
	b        []byte
	prefixes [][]byte
	bad      bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	if len(d.b) < 4 {
		d.bad, d.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) location(path string) (l source.Location) {
	switch n := d.uvarint(); {
	case n == 0:
		l.Name = d.string()
	case n <= uint64(len(d.prefixes)):
		l.Name = string(d.prefixes[n-1]) + path
	default:
		d.bad = true
	}
	source := d.uvarint()
	l.Source, l.HasCRC32C = int(source>>1&0xffff), source&1 != 0
	l.Offset, l.Size, l.ModTime = int64(d.uvarint()), int64(d.uvarint()), d.varint()
	if l.HasCRC32C {
		l.CRC32C = d.uint32()
	}
	if s := d.string(); s != "" {
		l.Inline = []byte(s)
	}
	if l.Offset < 0 || l.Size < 0 || source>>1 > 0xffff {
		d.bad = true
	}
	return l
}

func (d *decoder) entry() (e source.Entry) {
	for _, s := range [...]*string{&e.Split, &e.Class, &e.Path, &e.KeyPath, &e.Key, &e.Field} {
		*s = d.string()
	}
	e.Location = d.location(e.Path)
	return e
}

func (d *decoder) item() (it item) {
	it.key, it.label = d.string(), d.varint()
	n := d.uvarint()
	if n > uint64(len(d.b)) { // a field takes more than a byte
		d.bad = true
		return it
	}
	it.fields = make([]source.FieldEntry, n)
	for i := range it.fields {
		f := &it.fields[i]
		f.Name, f.Path = d.string(), d.string()
		f.Location = d.location(f.Path)
	}
	return it
}

// planWriter writes a plan.
type planWriter struct {
	w    io.Writer
	hash hash.Hash
	at   int64
	zw   *zstd.Encoder
	head []byte
}

func newPlanWriter(w io.Writer) (*planWriter, error) {
	p := &planWriter{w: w, hash: sha256.New()}
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	p.zw = zw
	_, err = p.Write([]byte(planMagic))
	return p, err
}

// Write is for the zstd encoder.
func (p *planWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.hash.Write(b[:n])
	p.at += int64(n)
	return n, err
}

// section starts the records of a shard, or the footer.
func (p *planWriter) section() { p.zw.Reset(p) }

func (p *planWriter) record(b []byte) error {
	p.head = binary.AppendUvarint(p.head[:0], uint64(len(b)))
	if _, err := p.zw.Write(p.head); err != nil {
		return err
	}
	_, err := p.zw.Write(b)
	return err
}

func (p *planWriter) footer(f *Footer) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	at := p.at
	p.hash.Write([]byte(f.Fingerprint))
	id := p.hash.Sum(nil)
	p.section()
	if _, err := p.zw.Write(data); err != nil {
		return err
	}
	if err := p.zw.Close(); err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint64(nil, uint64(at))
	tail = binary.LittleEndian.AppendUint64(tail, uint64(p.at-at))
	_, err = p.Write(append(tail, id...))
	return err
}

// plan is a plan that is open for reading, by many goroutines.
type plan struct {
	Footer
	id planID
	r  io.ReaderAt
	o  store.Object
}

// openPlan opens the plan of an unfinished data set.
func openPlan(ctx context.Context, st store.Store) (*plan, error) {
	o, err := st.Open(ctx, planName)
	if err != nil {
		return nil, err
	}
	p, err := readPlan(store.ReaderAt(ctx, o), o.Info().Size)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("%s/%s: %w", st.URL(), planName, err)
	}
	p.o = o
	return p, nil
}

func (p *plan) close() error { return p.o.Close() }

// current says whether p is still the plan of the data set in st, and not dropped or
// replaced by another run.
func (p *plan) current(ctx context.Context, st store.Store) error {
	o, err := st.Open(ctx, planName)
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	if err != nil {
		return err
	}
	defer o.Close()
	var id planID
	size := o.Info().Size
	if n, err := o.ReadAt(ctx, id[:], max(0, size-int64(len(id)))); n < len(id) {
		return err
	}
	if id != p.id {
		return errReplaced
	}
	return nil
}

// errReplaced: another run has finished the data set, or dropped the plan.
var errReplaced = errors.New("the plan was dropped by another run while this one was at work; give the same command again")

// readPlan reads the footer of a plan of size bytes.
func readPlan(r io.ReaderAt, size int64) (*plan, error) {
	read := func(n, at int64) ([]byte, error) {
		if n < 0 || at < 0 || at > size-n {
			return nil, errPlan
		}
		b := make([]byte, n)
		if k, err := r.ReadAt(b, at); int64(k) < n {
			return nil, planFault(err)
		}
		return b, nil
	}
	magic, err := read(int64(len(planMagic)), 0)
	if err != nil {
		return nil, err
	}
	tail, err := read(tailSize, size-tailSize)
	if err != nil {
		return nil, err
	}
	at, n := int64(binary.LittleEndian.Uint64(tail)), int64(binary.LittleEndian.Uint64(tail[8:]))
	if string(magic) != planMagic {
		return nil, errPlan
	}
	packed, err := read(n, at)
	if err != nil {
		return nil, err
	}
	zr, err := newPlanReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer zr.Close()
	p := &plan{r: r, id: planID(tail[16:])}
	if err := json.NewDecoder(zr).Decode(&p.Footer); err != nil {
		return nil, planFault(err)
	}
	for _, s := range p.Shards {
		if s.Offset < 0 || s.Length < 0 || s.Offset > at-s.Length || store.CheckName(s.Name) != nil {
			return nil, errPlan
		}
	}
	return p, nil
}

func newPlanReader(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
}

// items yields the samples of shard n.
func (p *plan) items(n int) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		s := &p.Shards[n]
		zr, err := newPlanReader(io.NewSectionReader(p.r, s.Offset, s.Length))
		if err != nil {
			yield(item{}, err)
			return
		}
		defer zr.Close()
		r := bufio.NewReader(zr)
		var buf []byte
		for k := range s.Samples {
			size, err := binary.ReadUvarint(r)
			if err == nil && size > maxRecord {
				err = fmt.Errorf("a record of %d bytes", size)
			}
			if err == nil {
				buf, err = readRecord(r, buf, int(size))
			}
			if err != nil {
				yield(item{}, fmt.Errorf("shard %d, sample %d: %w", n, k, planFault(err)))
				return
			}
			d := decoder{b: buf, prefixes: p.Prefixes}
			it := d.item()
			if d.bad || len(d.b) > 0 {
				yield(item{}, fmt.Errorf("shard %d, sample %d: %w", n, k, errPlan))
				return
			}
			if !yield(it, nil) {
				return
			}
		}
	}
}

// readRecord reads size bytes into buf, which grows only as they come.
func readRecord(r io.Reader, buf []byte, size int) ([]byte, error) {
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < size {
		n := min(step, size-len(buf))
		if cap(buf)-len(buf) < n {
			buf = append(buf, make([]byte, n)...)[:len(buf)]
		}
		k, err := io.ReadFull(r, buf[len(buf):len(buf)+n])
		buf = buf[:len(buf)+k]
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}
