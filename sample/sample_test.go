package sample

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name, key, field string
		ok               bool
	}{
		{"a.jpg", "a", "jpg", true},
		{"d/a.seg.PNG", "d/a", "seg.png", true},
		{"d.x/a.jpg", "d.x/a", "jpg", true},
		{"./a.jpg", "./a", "jpg", true},
		{"a.", "a", "", true},
		{"a", "", "", false},
		{"d.x/a", "", "", false},
		{".hidden", "", "", false},
		{"d/.hidden.jpg", "", "", false},
		{"__meta__/a.jpg", "", "", false},
		{"d/x__y__", "", "", false},
		{"__a__.jpg", "__a__", "jpg", true},
		{"", "", "", false},
	} {
		key, field, ok := Split(c.name)
		if key != c.key || field != c.field || ok != c.ok {
			t.Errorf("Split(%q) = %q, %q, %v; want %q, %q, %v", c.name, key, field, ok, c.key, c.field, c.ok)
		}
	}
}

// webdataset's own rule (base_plus_ext and the skip expression), as a regular
// expression.
var webdataset = regexp.MustCompile(`^((?:.*/|)[^.]+)[.]([^/]*)$`)

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a.jpg", "d/a.b.c", ".x", "__a__/b.c", "d/.x.y", "a/./b.c", "a..b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.ContainsAny(name, "\n\r") || !utf8.ValidString(name) {
			t.Skip("Go's . stops at a line's end and needs UTF-8, the rule does not")
		}
		key, field, ok := Split(name)
		m := webdataset.FindStringSubmatch(name)
		base := name[strings.LastIndexByte(name, '/')+1:]
		want := m != nil && !strings.HasPrefix(base, ".") && !skipped.MatchString(name)
		if ok != want {
			t.Fatalf("Split(%q): ok %v, want %v", name, ok, want)
		}
		if ok && (key != m[1] || field != strings.ToLower(m[2])) {
			t.Fatalf("Split(%q) = %q, %q; want %q, %q", name, key, field, m[1], m[2])
		}
	})
}

func TestKeyOf(t *testing.T) {
	for _, c := range [][2]string{
		{"n01/x", "n01/x"},
		{"d.e/img.001", "d.e/img%2E001"},
		{"100%", "100%25"},
		{"a\nb", "a%0Ab"},
		{"caf\xe9", "caf%E9"},
		{"café", "café"},
		{"__x__", "%5F_x__"},
		{"d/__x__/y", "d/%5F_x__/y"},
		{"a__b", "a__b"},
		{"x__y__/z", "x%5F_y__/z"},
		{"_____", "%5F%5F___"},
		{".x", "%2Ex"},
		{`a\b`, "a%5Cb"},
	} {
		if got := KeyOf(c[0]); got != c[1] {
			t.Errorf("KeyOf(%q) = %q, want %q", c[0], got, c[1])
		}
		if got := Unescape(c[1]); got != c[0] {
			t.Errorf("Unescape(%q) = %q, want %q", c[1], got, c[0])
		}
	}
	if got := Unescape("50%/x%zz%"); got != "50%/x%zz%" {
		t.Errorf("Unescape changed a foreign key to %q", got)
	}
}

func FuzzKeyOf(f *testing.F) {
	f.Add("a.b")
	f.Add("__x__/y")
	f.Add("\xff/%41_\x7f")
	f.Add("x__y__")
	f.Fuzz(func(t *testing.T, path string) {
		for _, text := range []string{KeyOf(path), Escape(path)} {
			if got := Unescape(text); got != path {
				t.Fatalf("%q comes back as %q", path, got)
			}
			if !utf8.ValidString(text) {
				t.Fatalf("%q is not UTF-8", text)
			}
		}
		key := KeyOf(path)
		legal := len(key) <= 4096
		for c := range strings.SplitSeq(key, "/") {
			legal = legal && c != "" && c != "." && c != ".."
		}
		if err := CheckKey(key); legal != (err == nil) {
			t.Fatalf("KeyOf(%q) = %q: %v", path, key, err)
		}
		if legal {
			k, field, ok := Split(Join(key, "jpg"))
			if !ok || k != key || field != "jpg" {
				t.Fatalf("the name of key %q splits into %q, %q, %v", key, k, field, ok)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	for _, key := range []string{"", "/a", "a/", "a//b", "a/../b", "..", ".", "a.b", "a\x00", "\xff", "__x__", strings.Repeat("a", 4097)} {
		if err := CheckKey(key); !errors.Is(err, ErrName) {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
	}
	for _, field := range []string{"", "JPG", "a b", "a/b", ".jpg", "jpg.", "a..b", "__x__", strings.Repeat("a", 256)} {
		if err := CheckField(field); !errors.Is(err, ErrName) {
			t.Errorf("CheckField(%q) = %v", field, err)
		}
	}
	for _, field := range []string{"jpg", "seg.png", "cls", "x-y_z+1.json", "0"} {
		if err := CheckField(field); err != nil {
			t.Errorf("CheckField(%q) = %v", field, err)
		}
	}
}

func TestFieldOf(t *testing.T) {
	for _, c := range [][2]string{{"JPEG", "jpg"}, {"jpg", "jpg"}, {"seg.TIF", "seg.tiff"}, {"Json", "json"}, {"jpeg.txt", "jpeg.txt"}, {"", ""}} {
		if got := FieldOf(c[0]); got != c[1] {
			t.Errorf("FieldOf(%q) = %q, want %q", c[0], got, c[1])
		}
	}
}

func TestImage(t *testing.T) {
	id := func(s string) string { return s }
	for _, c := range []struct {
		fields []string
		want   int
	}{
		{[]string{"cls", "jpg", "png"}, 1},
		{[]string{"cls", "png", "seg.png"}, 1},
		{[]string{"seg.png", "txt"}, -1},
		{[]string{"jpeg"}, 0},
		{nil, -1},
	} {
		if got := Image(c.fields, id); got != c.want {
			t.Errorf("Image(%q) = %d, want %d", c.fields, got, c.want)
		}
	}
	if !IsImage("seg.png") || !IsImage("jpeg") || IsImage("png.txt") {
		t.Error("IsImage")
	}
}
