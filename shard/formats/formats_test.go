package formats

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, f := range All() {
		for _, name := range []string{f.String(), f.Extension(), strings.ToUpper(f.String())} {
			if got, err := Parse(name); err != nil || got != f {
				t.Errorf("Parse(%q) = %v, %v", name, got, err)
			}
		}
		if got, err := Of(f.Container.Name(), f.Compression); err != nil || got != f {
			t.Errorf("Of(%q, %q) = %v, %v", f.Container.Name(), f.Compression, got, err)
		}
	}
	for name, want := range map[string]string{"tgz": "tar.gz", ".tzst": "tar.zst", "TFRecords": "tfrecord"} {
		if got, err := Parse(name); err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", name, got, err, want)
		}
	}
	for _, c := range []struct{ name, hint string }{
		{"tar.zstd", `did you mean "tar.zst"?`},
		{"tsr", `did you mean "tar"?`},
		{"zip", "there are tar, tar.gz, tar.zst, tfrecord, tfrecord.gz, tfrecord.zst"},
		{"", "there are tar"},
	} {
		if f, err := Parse(c.name); err == nil || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("Parse(%q) = %v, %v; want an error with %q", c.name, f, err, c.hint)
		}
	}
	if _, err := Parse("zip"); err == nil || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("Parse(zip) proposes something: %v", err)
	}
	if _, err := Of("tar", "xz"); err == nil {
		t.Error("Of(tar, xz) works")
	}
}

func TestOfFile(t *testing.T) {
	for name, want := range map[string]string{
		"train-000.tar":                         "tar",
		"dir.tar/train-000.TAR":                 "tar",
		"a/b/train.x.tar.gz":                    "tar.gz",
		"train.tgz":                             "tar.gz",
		"train.tzst":                            "tar.zst",
		`C:\data\train.tar.zst`:                 "tar.zst",
		"http://x/y/train-00.tar":               "tar",
		"a/mnist-train.tfrecord-00003-of-00010": "tfrecord",
		"x.tfrecord.gz":                         "tfrecord.gz",
		"x.tfrecords":                           "tfrecord",
		"dir.tar/train":                         "",
		"train-00000-of-01024":                  "",
		"traintar":                              "",
		"train.gz":                              "",
		"":                                      "",
	} {
		f, err := OfFile(name)
		if (err == nil) != (want != "") || err == nil && f.String() != want {
			t.Errorf("OfFile(%q) = %v, %v; want %q", name, f, err, want)
		}
	}
}
