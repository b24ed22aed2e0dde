// Package index holds what is known of a data set besides its samples' bytes: the
// [Manifest], the data set's table of shards, and for each shard an index, a
// Parquet file with a [Row] for each sample. Both are pure data: versioned, decoded
// with validation, encoded to the same bytes for the same content. The package does
// no I/O of its own.
//
// The manifest is written last: without it the data set does not exist. It says
// enough to plan an epoch (samples and bytes of each shard), so that opening a data
// set costs O(shards); an index is read when its shard's turn comes.
package index

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/minio/crc64nvme"
)

const (
	// ManifestName is the manifest's name within a data set.
	ManifestName = "manifest.json"
	// BadName is the list of what was left out, and QuarantinePrefix begins the names
	// of copies of it. They lie beside the shards and are no part of the data set.
	BadName          = "bad.jsonl"
	QuarantinePrefix = "quarantine/"
	// Format and Version begin every manifest.
	Format  = "shardify"
	Version = 1
	// MaxManifest bounds the size of a manifest that is read: room for two million
	// shards.
	MaxManifest = 1 << 30
)

var (
	// ErrNotManifest: the bytes are no manifest of ours.
	ErrNotManifest = errors.New("not a shardify manifest")
	// ErrVersion: a newer shardify wrote it.
	ErrVersion = errors.New("written by a newer version of shardify")
	// ErrInvalid: it contradicts itself.
	ErrInvalid = errors.New("invalid")
)

// Manifest is the data set's table of shards.
type Manifest struct {
	// Format and Version are set by Encode.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Tool names the program that wrote the manifest: "shardify 0.1.0".
	Tool string `json:"tool"`
	// Name is the data set's name, for people.
	Name string `json:"name"`
	// Container is the shards' format ("tar", "tfrecord") and Compression what is
	// round it ("", "gz", "zst").
	Container   string `json:"container"`
	Compression string `json:"compression,omitempty"`
	// Options are those the data set was packed with, as their package writes
	// them; null for shards that others made.
	Options json.RawMessage `json:"options,omitempty"`
	// Classes are the class names; a sample's label is its class's place in it.
	// Empty where labels are plain numbers, or absent.
	Classes []string `json:"classes,omitempty"`
	// Splits are sorted by name. Each has its shards.
	Splits []Split `json:"splits"`
	// Checksum is that of the manifest's own bytes with the digits of this checksum
	// taken as zeros. Encode sets it and CheckManifest compares it; DecodeManifest
	// does not, so that a manifest edited by hand still opens.
	Checksum Checksum `json:"checksum,omitempty"`
}

// Split is a named part of a data set ("train", "val").
type Split struct {
	Name string `json:"name"`
	// Samples and Bytes are the sums over Shards.
	Samples int64   `json:"samples"`
	Bytes   int64   `json:"bytes"`
	Shards  []Shard `json:"shards"`
}

// File is a file of the data set.
type File struct {
	// Name is its slash-separated path within the data set.
	Name string `json:"name"`
	// Bytes is its size and Checksum that of all its bytes.
	Bytes    int64    `json:"bytes"`
	Checksum Checksum `json:"checksum"`
}

// Shard is one container file of whole samples.
type Shard struct {
	File
	// Samples is how many samples it holds.
	Samples int64 `json:"samples"`
	// RawBytes is the container's size before compression; 0 means the same as
	// Bytes.
	RawBytes int64 `json:"raw_bytes,omitempty"`
	// Fields says, sorted by name, what fields its samples have.
	Fields []FieldStat `json:"fields"`
	// Index is the Parquet file of its rows.
	Index File `json:"index"`
	// Seek is the side file with the seek points of its JPEGs; nil where there is none.
	Seek *Seek `json:"seek,omitempty"`
}

// Seek is a side file of seek points, as package index/seek describes it.
type Seek struct {
	File
	// Every is how many MCUs lie between the points of a row; 0: each row has one.
	Every int `json:"every,omitempty"`
	// Samples is how many samples have points.
	Samples int64 `json:"samples"`
}

// FieldStat sums up a field over a shard.
type FieldStat struct {
	Name string `json:"name"`
	// Count is how many samples have it, Bytes the sum of its sizes.
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Split returns the split of that name. An empty name means the only split, or
// "train" where there are several.
func (m *Manifest) Split(name string) (*Split, error) {
	if name == "" {
		if len(m.Splits) == 1 {
			return &m.Splits[0], nil
		}
		name = "train"
	}
	names := make([]string, len(m.Splits))
	for i := range m.Splits {
		if m.Splits[i].Name == name {
			return &m.Splits[i], nil
		}
		names[i] = m.Splits[i].Name
	}
	return nil, fmt.Errorf("no split %q in data set %q, which has: %s", name, m.Name, strings.Join(names, ", "))
}

// Samples and Bytes sum over all splits; Bytes counts the shards' files.
func (m *Manifest) Samples() (n int64) {
	for i := range m.Splits {
		n += m.Splits[i].Samples
	}
	return n
}

// Bytes is the size of all shards.
func (m *Manifest) Bytes() (n int64) {
	for i := range m.Splits {
		n += m.Splits[i].Bytes
	}
	return n
}

// Encode returns the manifest as indented JSON. It sorts nothing: the same
// manifest gives the same bytes.
func (m *Manifest) Encode() ([]byte, error) {
	out := *m
	out.Format, out.Version = Format, Version
	out.Checksum = NewChecksum(0)
	if err := out.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(&out); err != nil {
		return nil, err
	}
	data := b.Bytes()
	copy(data[len(data)-len(checksumEnd):], Sum(data))
	return data, nil
}

// checksumEnd is how a manifest ends whose checksum is not yet known.
const checksumEnd = checksumPrefix + "0000000000000000\"\n}\n"

// CheckManifest compares the bytes of a manifest with the checksum that Encode put
// at their end. Bytes that were not written by Encode, or were changed since, are
// an error that wraps ErrInvalid.
func CheckManifest(data []byte) error {
	digits := len(data) - len(checksumEnd) + len(checksumPrefix)
	if digits < len(checksumPrefix) {
		return fmt.Errorf("manifest %w: it has no checksum", ErrInvalid)
	}
	said := Checksum(data[digits-len(checksumPrefix) : digits+16])
	zeroed := bytes.Clone(data)
	copy(zeroed[digits:], checksumEnd[len(checksumPrefix):])
	if said.Validate() != nil || Sum(zeroed) != said || !bytes.Equal(data[digits+16:], zeroed[digits+16:]) {
		return fmt.Errorf("manifest %w: it was damaged or edited after it was written: its checksum does not fit", ErrInvalid)
	}
	return nil
}

// DecodeManifest reads what Encode wrote and validates it. Errors wrap
// ErrNotManifest, ErrVersion or ErrInvalid.
func DecodeManifest(data []byte) (*Manifest, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotManifest, err)
	}
	if head.Format != Format {
		return nil, fmt.Errorf("%w: its format is %q", ErrNotManifest, sampleText(head.Format))
	}
	if head.Version > Version {
		return nil, fmt.Errorf("%w: format version %d, this one reads up to %d; install a newer shardify", ErrVersion, head.Version, Version)
	}
	m := new(Manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotManifest, err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

func sampleText(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// Validate reports every fault of the manifest at once; each wraps ErrInvalid.
func (m *Manifest) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		if len(faults) < 20 {
			faults = append(faults, fmt.Errorf("manifest %w: "+format, append([]any{ErrInvalid}, args...)...))
		}
	}
	if m.Format != Format || m.Version < 1 || m.Version > Version {
		fault("format %q version %d", sampleText(m.Format), m.Version)
	}
	if m.Container == "" {
		fault("no container")
	}
	if len(m.Splits) == 0 {
		fault("no splits")
	}
	files := map[string]bool{ManifestName: true}
	file := func(split string, f *File) {
		if !LegalName(f.Name) {
			fault("split %q: %q is no file name within the data set", split, sampleText(f.Name))
		} else if files[f.Name] {
			fault("file %q is listed twice", sampleText(f.Name))
		}
		files[f.Name] = true
		if f.Bytes < 0 {
			fault("file %q has %d bytes", sampleText(f.Name), f.Bytes)
		}
		if err := f.Checksum.Validate(); err != nil {
			fault("file %q: %v", sampleText(f.Name), err)
		}
	}
	for i := range m.Splits {
		s := &m.Splits[i]
		if s.Name == "" || i > 0 && m.Splits[i-1].Name >= s.Name {
			fault("splits are not sorted by name: %q", sampleText(s.Name))
		}
		var samples, size int64
		for j := range s.Shards {
			sh := &s.Shards[j]
			file(s.Name, &sh.File)
			file(s.Name, &sh.Index)
			if p := sh.Seek; p != nil {
				file(s.Name, &p.File)
				if p.Every < 0 || p.Samples < 0 || p.Samples > sh.Samples {
					fault("file %q has seek points every %d MCUs for %d samples", sampleText(p.Name), p.Every, p.Samples)
				}
			}
			if sh.Samples < 0 || sh.RawBytes < 0 {
				fault("shard %q has %d samples in %d bytes", sampleText(sh.Name), sh.Samples, sh.RawBytes)
			}
			if !slices.IsSortedFunc(sh.Fields, func(a, b FieldStat) int { return strings.Compare(a.Name, b.Name) }) {
				fault("shard %q: fields are not sorted", sampleText(sh.Name))
			}
			samples += sh.Samples
			size += sh.Bytes
		}
		if samples != s.Samples || size != s.Bytes {
			fault("split %q says %d samples in %d bytes, its shards have %d in %d", sampleText(s.Name), s.Samples, s.Bytes, samples, size)
		}
	}
	return errors.Join(faults...)
}

// LegalName says whether a manifest may name a file so: a relative slash-separated
// path that no system takes for anything else. It keeps a hostile manifest from
// naming files outside the data set.
func LegalName(name string) bool {
	for c := range strings.SplitSeq(name, "/") {
		if c == "" || c == "." || c == ".." || strings.ContainsAny(c, "\\\x00:") || !utf8.ValidString(c) {
			return false
		}
	}
	return true
}

// Checksum is the checksum of a file's bytes in the form "crc64nvme:" and 16
// hexadecimal digits. CRC-64/NVME is what S3 computes for whole objects, and runs
// at memory speed.
type Checksum string

const checksumPrefix = "crc64nvme:"

// Validate says whether c has the form of a checksum.
func (c Checksum) Validate() error {
	digits, ok := strings.CutPrefix(string(c), checksumPrefix)
	if _, err := strconv.ParseUint(digits, 16, 64); !ok || err != nil || len(digits) != 16 {
		return fmt.Errorf("checksum %q is not of the form %s0123456789abcdef", sampleText(string(c)), checksumPrefix)
	}
	return nil
}

// Sum64 returns the number that c is, as NewChecksum takes it; 0 where it has not the form
// of a checksum.
func (c Checksum) Sum64() uint64 {
	if c.Validate() != nil {
		return 0
	}
	n, _ := strconv.ParseUint(string(c[len(checksumPrefix):]), 16, 64)
	return n
}

// NewHash returns a hash for NewChecksum.
func NewHash() hash.Hash64 { return crc64nvme.New() }

// NewChecksum gives the sum of a hash from NewHash its written form.
func NewChecksum(sum uint64) Checksum { return Checksum(fmt.Sprintf("%s%016x", checksumPrefix, sum)) }

// Sum returns the checksum of data.
func Sum(data []byte) Checksum {
	h := NewHash()
	h.Write(data)
	return NewChecksum(h.Sum64())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FieldChecksum returns the checksum of a field's content: CRC-32C (RFC 3720), as
// in TFRecord.
func FieldChecksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// UpdateFieldChecksum returns the checksum of content that comes in pieces: sum is
// that of the pieces so far, 0 for none, and data the next piece.
func UpdateFieldChecksum(sum uint32, data []byte) uint32 { return crc32.Update(sum, castagnoli, data) }
