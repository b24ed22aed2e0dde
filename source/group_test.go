package source_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shardify/sample"
	"shardify/source"
)

// sorted yields entries in the order of their sort keys, as package pack does.
func sorted(entries []source.Entry) iter.Seq2[source.Entry, error] {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b source.Entry) int { return bytes.Compare(a.SortKey(nil), b.SortKey(nil)) })
	return func(yield func(source.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func files(paths ...string) []source.Entry {
	entries := make([]source.Entry, len(paths))
	for i, p := range paths {
		entries[i] = source.Entry{Path: p, Location: source.Location{Name: "/root/" + p, Size: int64(i)}}
	}
	return entries
}

// format writes what Groups yields, a line each, sorted.
func format(t testing.TB, groups iter.Seq2[source.Group, error]) []string {
	t.Helper()
	lines := []string{}
	for g, err := range groups {
		if err != nil {
			var entry *source.EntryError
			if !errors.As(err, &entry) {
				t.Fatal(err)
			}
			kind := "error"
			switch {
			case errors.Is(err, source.ErrDuplicate):
				kind = "duplicate"
			case errors.Is(err, sample.ErrName):
				kind = "illegal"
			case strings.Contains(err.Error(), "class"):
				kind = "class"
			}
			lines = append(lines, kind+" "+entry.Path)
			continue
		}
		names := make([]string, len(g.Fields))
		for i, f := range g.Fields {
			names[i] = f.Name + "=" + f.Path
		}
		if g.Ignored {
			paths := make([]string, len(g.Fields))
			for i, f := range g.Fields {
				paths[i] = f.Path
			}
			slices.Sort(paths)
			lines = append(lines, "ignored "+strings.Join(paths, " "))
			continue
		}
		class := ""
		if g.Class != "" {
			class = " class " + g.Class
		}
		lines = append(lines, g.Split+"|"+g.Key+class+": "+strings.Join(names, " "))
	}
	slices.Sort(lines)
	return lines
}

func TestGroups(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name    string
		entries []source.Entry
		want    []string
	}{
		{"one stem", files("n/a.json", "n/a.jpg", "n/a.png", "n/b.jpg"), []string{
			"|n/a: jpg=n/a.jpg json=n/a.json png=n/a.png", "|n/b: jpg=n/b.jpg",
		}},
		{"side-cars", files("a.jpg", "a.seg.png", "a.Seg-2.X_y.TIF", "a.txt"), []string{
			"|a: jpg=a.jpg seg-2.x_y.tiff=a.Seg-2.X_y.TIF seg.png=a.seg.png txt=a.txt",
		}},
		{"numbers are stems", files("img.jpg", "img.001.jpg", "img.002.jpg", "img.002.json"), []string{
			"|img%2E001: jpg=img.001.jpg", "|img%2E002: jpg=img.002.jpg json=img.002.json", "|img: jpg=img.jpg",
		}},
		{"a side-car without a stem is a sample", files("a.seg.png"), []string{"|a%2Eseg: png=a.seg.png"}},
		{"the shortest stem wins", files("a.jpg", "a.b.jpg", "a.b.c.jpg"), []string{
			"|a: b.c.jpg=a.b.c.jpg b.jpg=a.b.jpg jpg=a.jpg",
		}},
		{"the shortest stem that only words follow", files("a.jpg", "a.1.jpg", "a.1.b.jpg", "a.1.b.c.jpg", "a.b.1.jpg"), []string{
			"|a%2E1: b.c.jpg=a.1.b.c.jpg b.jpg=a.1.b.jpg jpg=a.1.jpg", "|a%2Eb%2E1: jpg=a.b.1.jpg", "|a: jpg=a.jpg",
		}},
		{"folders apart", files("a.jpg", "d/a.seg.png", "d.x/a.jpg", "d/x.jpg", "d.jpg"), []string{
			"|a: jpg=a.jpg", "|d.x/a: jpg=d.x/a.jpg", "|d/a%2Eseg: png=d/a.seg.png", "|d/x: jpg=d/x.jpg", "|d: jpg=d.jpg",
		}},
		{"no image", files("README.md", "a.json", "a.seg.png", "Thumbs.db"), []string{
			"ignored README.md", "ignored Thumbs.db", "ignored a.json a.seg.png",
		}},
		{"no field", files("README", "a.jpg~", ".jpg", "d/.jpg", "a.", "a.j g", "a.jpg"), []string{
			"ignored .jpg", "ignored README", "ignored a.", "ignored a.j g", "ignored a.jpg~", "ignored d/.jpg", "|a: jpg=a.jpg",
		}},
		{"a file that is no field is no stem", files("a.jpg~", "a.seg.png"), []string{
			"ignored a.jpg~", "|a%2Eseg: png=a.seg.png",
		}},
		{"duplicates", files("a.jpg", "a.JPG", "a.jpeg", "a.SEG.png", "a.seg.png"), []string{
			"duplicate a.jpeg", "duplicate a.jpg", "duplicate a.seg.png", "|a: jpg=a.JPG seg.png=a.SEG.png",
		}},
		{"one path from two sources", files("a.jpg", "b.jpg", "a.jpg"), []string{
			"duplicate a.jpg", "|a: jpg=a.jpg", "|b: jpg=b.jpg",
		}},
		{"bytes that need an escape", files("\xff.jpg", "a%.jpg", "a%.seg.png", "\x00\x01\x02.jpg", "\x00\x01\x02.x.png", "a\n.jpg", "__b__.jpg", "a__.jpg", "a__.b__.png"), []string{
			"|%00%01%02: jpg=\x00\x01\x02.jpg x.png=\x00\x01\x02.x.png", "|%5F_b__: jpg=__b__.jpg", "|%FF: jpg=\xff.jpg", "|a%0A: jpg=a\n.jpg",
			"|a%25: jpg=a%.jpg seg.png=a%.seg.png", "|a__: b__.png=a__.b__.png jpg=a__.jpg",
		}},
		{"dots", files("..jpg", "a..jpg", "a...jpg", "a.jpg", ".x.jpg"), []string{
			"|%2E: jpg=..jpg", "|%2Ex: jpg=.x.jpg", "|a%2E%2E: jpg=a...jpg", "|a%2E: jpg=a..jpg", "|a: jpg=a.jpg",
		}},
		{"separators in names sort apart", files("a.jpg", "a-b.jpg", "a-b.x.png", "a.x.png", "a .jpg", "a\x01x.png"), []string{
			"|a : jpg=a .jpg", "|a%01x: png=a\x01x.png", "|a-b: jpg=a-b.jpg x.png=a-b.x.png", "|a: jpg=a.jpg x.png=a.x.png",
		}},
		{"words are ASCII", files("a.jpg", "a.é.png", "a._x.png", "a.1x.png", "a.x y.png"), []string{
			"|a%2E1x: png=a.1x.png", "|a%2E_x: png=a._x.png", "|a%2Ex y: png=a.x y.png", "|a%2Eé: png=a.é.png", "|a: jpg=a.jpg",
		}},
		{"splits", []source.Entry{
			{Split: "train", Path: "train/n/a.jpg", KeyPath: "n/a.jpg", Class: "n"},
			{Split: "val", Path: "val/n/a.jpg", KeyPath: "n/a.jpg", Class: "n"},
			{Split: "train", Path: "train/n/a.seg.png", KeyPath: "n/a.seg.png", Class: "n"},
			{Class: "empty"},
		}, []string{
			"train|n/a class n: jpg=train/n/a.jpg seg.png=train/n/a.seg.png", "val|n/a class n: jpg=val/n/a.jpg",
		}},
		{"explicit", []source.Entry{
			{Key: "n/a", Field: "jpg", Path: "n/a.jpg", Class: "7"},
			{Key: "n/a", Field: "caption.txt", Path: "n/a.caption.txt"},
			{Key: "b", Field: "txt", Path: "b.txt"},
			{Key: "b", Field: "jpeg", Path: "b.jpeg"},
		}, []string{
			"|b: jpeg=b.jpeg txt=b.txt", "|n/a class 7: caption.txt=n/a.caption.txt jpg=n/a.jpg",
		}},
		{"explicit and derived", []source.Entry{
			{Key: "a", Field: "jpg", Path: "0.jpg"}, {Path: "a.jpg"}, {Path: "a.seg.png"}, {Path: "a.txt"},
			{Key: "i%2E001", Field: "json", Path: "i.json"}, {Path: "i.001.jpg"}, {Path: "i.001.x.png"},
			{Key: "b%2Eseg", Field: "png", Path: "z"}, {Path: "b.jpg"}, {Path: "b.seg.png"},
		}, []string{
			"duplicate 0.jpg", "|a: jpg=a.jpg seg.png=a.seg.png txt=a.txt", "|b%2Eseg: png=z", "|b: jpg=b.jpg seg.png=b.seg.png",
			"|i%2E001: jpg=i.001.jpg json=i.json x.png=i.001.x.png",
		}},
		{"foreign keys", []source.Entry{
			{Key: "50%", Field: "jpg", Path: "x"}, {Key: "50%25", Field: "jpg", Path: "y"}, {Path: "50%.jpg"}, {Key: "a%2Fb", Field: "jpg", Path: "z"}, {Path: "a/b.jpg"},
			{Key: "50%", Field: "jpg", Path: "w"},
		}, []string{
			"duplicate x", "duplicate y", "|50%25: jpg=50%.jpg", "|50%: jpg=w", "|a%2Fb: jpg=z", "|a/b: jpg=a/b.jpg",
		}},
		{"illegal names", []source.Entry{
			{Key: "a.b", Field: "jpg", Path: "1"}, {Key: "a", Field: "JPG", Path: "2"}, {Key: "", Field: "jpg", Path: "3"}, {Key: "a", Field: "", Path: "4"},
			{Key: "a\x00b", Field: "jpg", Path: "5"}, {Path: "../x.jpg"}, {Path: "a//x.jpg"}, {Path: "/a/x.jpg"},
			{Path: strings.Repeat(long+"/", 25) + "x.jpg"}, {Path: "../README"},
		}, []string{
			"ignored ../README", "illegal ../x.jpg", "illegal /a/x.jpg", "illegal 1", "illegal 2", "illegal 3", "illegal 4", "illegal 5",
			"illegal a//x.jpg", "illegal " + strings.Repeat(long+"/", 25) + "x.jpg",
		}},
		{"a side-car whose field would be too long", files("a.jpg", "a."+strings.Repeat("x", 260)+".png"), []string{
			"illegal a." + strings.Repeat("x", 260) + ".png", "|a: jpg=a.jpg",
		}},
		{"classes disagree", []source.Entry{
			{Key: "a", Field: "jpg", Path: "1", Class: "x"}, {Key: "a", Field: "png", Path: "2", Class: "y"}, {Key: "a", Field: "txt", Path: "3"},
			{Key: "b", Field: "jpg", Path: "4"}, {Key: "b", Field: "png", Path: "5", Class: "y"},
		}, []string{"class 2", "|b class y: jpg=4 png=5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			slices.Sort(c.want)
			if got := format(t, source.Groups(sorted(c.entries))); !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%.900q\nwant\n\t%.900q", got, c.want)
			}
		})
	}
}

var (
	naiveName = regexp.MustCompile(`(?s)^((?:.*/)?[^/]+)\.([^./]*)$`)
	naiveWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
)

// naive is the rule of Groups, word for word, over a whole data set in memory.
func naive(entries []source.Entry) []string {
	type name struct{ split, stem string }
	type file struct {
		e         source.Entry
		stem, ext string
	}
	type group struct {
		key             string
		explicit, image bool
		class           string
		conflict        string
		fields          []source.FieldEntry
	}
	var lines []string
	stems := map[name]bool{}
	var derived []file
	groups := map[name]*group{}
	add := func(split, key string, e source.Entry, field string) {
		g := groups[name{split, key}]
		if g == nil {
			g = &group{key: key}
			groups[name{split, key}] = g
		}
		g.explicit = g.explicit || e.Key != ""
		g.fields = append(g.fields, source.FieldEntry{Name: field, Path: e.Path})
		for _, f := range []string{"jpg", "png", "webp", "gif", "bmp", "tiff"} {
			g.image = g.image || sample.FieldOf(field) == f
		}
		if e.Class != "" {
			if g.class != "" && g.class != e.Class && g.conflict == "" {
				g.conflict = e.Path
			}
			g.class = cmp.Or(g.class, e.Class)
		}
	}
	for _, e := range entries {
		if e.Key != "" || e.Field != "" {
			if sample.CheckKey(e.Key) != nil || sample.CheckField(e.Field) != nil {
				lines = append(lines, "illegal "+e.Path)
				continue
			}
			stems[name{e.Split, e.Key}] = true
			add(e.Split, e.Key, e, e.Field)
			continue
		}
		if e.Path == "" {
			continue
		}
		path := cmp.Or(e.KeyPath, e.Path)
		m := naiveName.FindStringSubmatch(path)
		if m == nil || sample.CheckField(sample.FieldOf(m[2])) != nil {
			lines = append(lines, "ignored "+e.Path)
			continue
		}
		stems[name{e.Split, sample.KeyOf(m[1])}] = true
		derived = append(derived, file{e, m[1], m[2]})
	}
	for _, f := range derived {
		dir, base := "", f.stem
		if i := strings.LastIndexByte(base, '/') + 1; i > 0 {
			dir, base = base[:i], base[i:]
		}
		words := strings.Split(base, ".")
		for n := 1; n <= len(words); n++ {
			p := dir + strings.Join(words[:n], ".")
			fits := stems[name{f.e.Split, sample.KeyOf(p)}]
			for _, w := range words[n:] {
				fits = fits && naiveWord.MatchString(w)
			}
			if fits {
				field := sample.FieldOf(strings.Join(append(words[n:len(words):len(words)], f.ext), "."))
				add(f.e.Split, sample.KeyOf(p), f.e, field)
				break
			}
		}
	}
	for at, g := range groups {
		if !g.image && !g.explicit {
			paths := make([]string, len(g.fields))
			for i, f := range g.fields {
				paths[i] = f.Path
			}
			slices.Sort(paths)
			lines = append(lines, "ignored "+strings.Join(paths, " "))
			continue
		}
		if sample.CheckKey(g.key) != nil {
			lines = append(lines, "illegal "+g.fields[0].Path)
			continue
		}
		kept := map[string]string{}
		for _, f := range g.fields {
			if _, ok := kept[f.Name]; ok {
				lines = append(lines, "duplicate "+f.Path)
				continue
			}
			kept[f.Name] = f.Path
		}
		names := []string{}
		for _, name := range slices.Sorted(maps.Keys(kept)) {
			names = append(names, name+"="+kept[name])
		}
		if g.conflict != "" {
			lines = append(lines, "class "+g.conflict)
			continue
		}
		class := ""
		if g.class != "" {
			class = " class " + g.class
		}
		lines = append(lines, at.split+"|"+g.key+class+": "+strings.Join(names, " "))
	}
	slices.Sort(lines)
	return lines
}

// checkNaive compares Groups with naive. Entries are put into the order of their
// paths first: of duplicates, that decides which stays.
func checkNaive(t *testing.T, entries []source.Entry) {
	t.Helper()
	slices.SortStableFunc(entries, func(a, b source.Entry) int {
		return cmp.Or(strings.Compare(a.Split, b.Split), strings.Compare(a.Path, b.Path))
	})
	want := naive(entries)
	if got := format(t, source.Groups(sorted(entries))); !slices.Equal(got, want) {
		paths := make([]string, len(entries))
		for i, e := range entries {
			paths[i] = e.Split + "|" + e.Path
		}
		t.Fatalf("%q\ngot\n\t%q\nwant\n\t%q", paths, got, want)
	}
}

func TestGroupsAreTheNaiveRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{"a", "a", "b", "B", "1", "x-1", "a__", "__", "", "\x00", "\x01", "\x02", "\x03", "é", "\xff", "%", "%2E", " ", "-", "_a"}
	exts := []string{"jpg", "JPG", "jpeg", "png", "json", "txt", "", "j~", "tif"}
	dirs := []string{"", "", "d/", "d.a/", "d/a/", "\xfe/", "a/"}
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	for range 6_000 {
		// A few words a round, so that names collide.
		few := []string{pick(words), pick(words), "a"}
		some := []string{pick(exts), pick(exts), "jpg"}
		var entries []source.Entry
		for range 1 + rng.IntN(12) {
			name := pick(few)
			for rng.IntN(3) > 0 {
				name += "." + pick(few)
			}
			e := source.Entry{Path: pick(dirs) + name + "." + pick(some)}
			if rng.IntN(4) == 0 {
				e.Split = "s"
				e.KeyPath, e.Path = e.Path, "s/"+e.Path
			}
			entries = append(entries, e)
		}
		checkNaive(t, entries)
	}
}

func FuzzGroups(f *testing.F) {
	f.Add("a.jpg\na.seg.png\na.1.jpg\nd/a.b.c.jpg\nREADME")
	f.Add("a.jpg\na.JPG\n\x00.jpg\n=a=json\n=a%2Eb=png\na.b.jpg")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 {
			t.Skip("slow for naive")
		}
		var entries []source.Entry
		for line := range strings.SplitSeq(text, "\n") {
			e := source.Entry{Path: line}
			if rest, ok := strings.CutPrefix(line, "="); ok {
				e.Key, e.Field, _ = strings.Cut(rest, "=")
				if sample.CheckKey(e.Key) == nil && e.Field == "" {
					continue
				}
			}
			entries = append(entries, e)
		}
		derived := func(e source.Entry) bool { return e.Key == "" && e.Field == "" }
		if slices.ContainsFunc(entries, derived) && !slices.ContainsFunc(entries, func(e source.Entry) bool { return !derived(e) }) {
			checkNaive(t, entries)
			return
		}
		// Which of a derived and an explicit duplicate stays is another matter than
		// their paths' order: compare what is left of both.
		count := func(lines []string) map[string]int {
			n := map[string]int{}
			for _, l := range lines {
				kind, _, _ := strings.Cut(l, " ")
				n[kind]++
			}
			return n
		}
		got, want := count(format(t, source.Groups(sorted(entries)))), count(naive(entries))
		if !maps.Equal(got, want) {
			t.Fatalf("%v: got %v, want %v", entries, got, want)
		}
	})
}

func TestGroupsErrors(t *testing.T) {
	bad := &source.EntryError{Path: "x", Err: errors.New("unreadable")}
	end := errors.New("the disk is gone")
	entries := func(yield func(source.Entry, error) bool) {
		_ = yield(source.Entry{Path: "a.jpg"}, nil) && yield(source.Entry{}, fmt.Errorf("wrapped: %w", bad)) &&
			yield(source.Entry{Path: "b.jpg"}, nil) && yield(source.Entry{}, end)
	}
	var got []string
	for g, err := range source.Groups(entries) {
		got = append(got, fmt.Sprint(g.Key, err))
	}
	want := []string{"wrapped: \"x\": unreadable", "a<nil>", "the disk is gone"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	unsorted := func(yield func(source.Entry, error) bool) {
		_ = yield(source.Entry{Path: "b.jpg"}, nil) && yield(source.Entry{Path: "a.jpg"}, nil)
	}
	var last error
	for _, last = range source.Groups(unsorted) {
	}
	if last == nil || !strings.Contains(last.Error(), "not sorted") {
		t.Errorf("unsorted entries: %v", last)
	}

	// Errors name both files.
	for _, err := range source.Groups(sorted(files("d/a.jpg", "d/a.JPG"))) {
		if err != nil && err.Error() != `"d/a.jpg": duplicate: field "jpg" of sample "d/a" is also in "d/a.JPG"` {
			t.Error(err)
		}
	}
}

func TestGroupsStop(t *testing.T) {
	entries := files("a.jpg", "a.JPG", "b.1.jpg", "b.jpg", "README", "c/x", "c.jpg")
	all := 0
	for range source.Groups(sorted(entries)) {
		all++
	}
	for stop := range all {
		n := 0
		for range source.Groups(sorted(entries)) {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Errorf("%d of %d groups", n, stop+1)
		}
	}
}

func TestGroupsMaxFields(t *testing.T) {
	paths := []string{"a.jpg"}
	for i := range source.MaxFields + 9 {
		paths = append(paths, fmt.Sprintf("a.x%05d.png", i))
	}
	fields, errs := 0, 0
	for g, err := range source.Groups(sorted(files(paths...))) {
		if err != nil {
			errs++
		}
		fields += len(g.Fields)
	}
	if fields != source.MaxFields || errs != 10 {
		t.Errorf("%d fields and %d errors; want %d and 10", fields, errs, source.MaxFields)
	}
}

// The order of the sort keys is what keeps Groups' memory small: of very many
// numbered files in one folder, each sample comes out as soon as the next begins.
func TestGroupsStream(t *testing.T) {
	const n = 50_000
	read := 0
	entries := func(yield func(source.Entry, error) bool) {
		ok := yield(source.Entry{Path: "d/img.jpg"}, nil)
		for ; ok && read < n; read++ {
			ok = yield(source.Entry{Path: fmt.Sprintf("d/img.%07d.jpg", read)}, nil)
		}
	}
	i := 0
	for g, err := range source.Groups(entries) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("d/img%%2E%07d", i); i < n && (g.Key != want || read > i+1) {
			t.Fatalf("group %d is %q after %d entries", i, g.Key, read)
		}
		i++
	}
	if i != n+1 {
		t.Errorf("%d groups, want %d", i, n+1)
	}
}

func BenchmarkGroups(b *testing.B) {
	const n = 1 << 20
	entries := make([]source.Entry, 0, n)
	for i := range n / 2 {
		dir := fmt.Sprintf("n%08d/", i/1300)
		entries = append(entries, source.Entry{Path: dir + fmt.Sprintf("n%08d_%05d.JPEG", i/1300, i%1300), Class: dir},
			source.Entry{Path: dir + fmt.Sprintf("n%08d_%05d.seg.png", i/1300, i%1300), Class: dir})
	}
	b.ReportAllocs()
	for b.Loop() {
		groups := 0
		for _, err := range source.Groups(func(yield func(source.Entry, error) bool) {
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}) {
			if err != nil {
				b.Fatal(err)
			}
			groups++
		}
		if groups != n/2 {
			b.Fatal(groups)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}
