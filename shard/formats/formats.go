// Package formats is the table of all shard formats: which containers there are,
// what compression can be round them, and what their files are called. Start with
// [Parse] for what a user names and [OfFile] for what lies there.
package formats

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"shardify/internal/nearest"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/tar"
	"shardify/shard/tfrecord"
)

// containers are the containers that there are; a new one needs a line here.
var containers = []shard.Container{
	tar.Container{},
	tfrecord.Container{},
}

// aliases are other programs' names for endings of ours.
var aliases = map[string]string{
	".tgz":       ".tar.gz",
	".tzst":      ".tar.zst",
	".tfrecords": ".tfrecord",
}

// Format is a container and what is round it.
type Format struct {
	Container shard.Container
	// Compression is compress.None, compress.Gzip or compress.Zstd.
	Compression string
}

// All returns every format, uncompressed ones before compressed ones.
func All() []Format {
	var all []Format
	for _, c := range containers {
		for _, kind := range compress.Kinds() {
			all = append(all, Format{c, kind})
		}
	}
	return all
}

// Names returns the names of all formats, for help texts.
func Names() []string {
	var names []string
	for _, f := range All() {
		names = append(names, f.String())
	}
	return names
}

// String returns the format's name, "tar.zst".
func (f Format) String() string { return f.Extension()[1:] }

// Extension returns the ending of the format's files, ".tar.zst".
func (f Format) Extension() string {
	if f.Compression == compress.None {
		return f.Container.Extension()
	}
	return f.Container.Extension() + "." + f.Compression
}

// Of returns the format with that container and that compression, as a manifest
// names them.
func Of(container, compression string) (Format, error) {
	for _, f := range All() {
		if f.Container.Name() == container && f.Compression == compression {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("no format has the container %q with the compression %q; there are %s",
		container, compression, strings.Join(Names(), ", "))
}

// Parse returns the format of a name: "tar.zst", with or without a leading dot, in
// upper or lower case.
func Parse(name string) (Format, error) {
	ending := "." + strings.TrimPrefix(strings.ToLower(name), ".")
	if full, ok := aliases[ending]; ok {
		ending = full
	}
	for _, f := range All() {
		if f.Extension() == ending {
			return f, nil
		}
	}
	meant := ""
	if n := nearest.Name(ending[1:], Names()); n != "" {
		meant = fmt.Sprintf(", did you mean %q?", n)
	}
	return Format{}, fmt.Errorf("unknown format %q%s; there are %s", name, meant, strings.Join(Names(), ", "))
}

// numbered is what TensorFlow's data sets put behind the ending.
var numbered = regexp.MustCompile(`-[0-9]{5,}-of-[0-9]{5,}$`)

// OfFile returns the format of a file, told by its name: by its ending, or by what
// stands before "-00000-of-00010".
func OfFile(name string) (Format, error) {
	base := strings.ToLower(path.Base(strings.ReplaceAll(name, `\`, "/")))
	base = numbered.ReplaceAllString(base, "")
	for short, full := range aliases {
		if stem, ok := strings.CutSuffix(base, short); ok {
			base = stem + full
			break
		}
	}
	for _, f := range All() {
		if strings.HasSuffix(base, f.Extension()) {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("%q does not have the ending of a shard; there are %s", name, strings.Join(Names(), ", "))
}
