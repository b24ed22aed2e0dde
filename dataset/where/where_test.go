package where

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardify/index"
	"shardify/internal/peers"
)

// table returns rows with every column in several values, and null.
func table() []index.Row {
	var rows []index.Row
	at := int64(0)
	names := []string{"tench", "goldfish", "great white shark", "", "Tench", "café", "o'brien"}
	formats := []string{"jpeg", "png", ""}
	for i := range 60 {
		row := index.Row{Key: fmt.Sprintf("n%03d/x_%d", i%7, i), Offset: at, Size: int64(512 * (1 + i%9))}
		if label := int64(i % 7); label != 3 {
			row.Label = &label
		}
		row.LabelName = names[i%7]
		row.Format = formats[i%3]
		if row.Format != "" {
			row.Width, row.Height = int32(1+i*37%900), int32(1+i*91%900)
			row.Orientation, row.Channels = int32(1+i%8), int32(1+2*(i%2))
		}
		row.Fields = []index.FieldRow{{Name: "cls", HeaderOffset: at, Offset: at, Size: 1, CRC32C: uint32(i)}}
		if i%4 != 0 {
			row.Fields = append(row.Fields, index.FieldRow{Name: "jpg", HeaderOffset: at, Offset: at + 1, Size: int64(i * 5), Path: fmt.Sprintf("%d.JPEG", i)})
		}
		if i%5 == 0 {
			row.Fields = append(row.Fields, index.FieldRow{Name: "seg.png", HeaderOffset: at, Offset: -1, Size: 7})
		}
		at += row.Size
		rows = append(rows, row)
	}
	return rows
}

func matches(f *Filter, rows []index.Row) []string {
	keys := []string{}
	for i := range rows {
		if f.Match(&rows[i]) {
			keys = append(keys, rows[i].Key)
		}
	}
	return keys
}

func TestMatch(t *testing.T) {
	label := int64(3)
	row := index.Row{
		Key: "a/b", Label: &label, LabelName: "tench", Format: "jpeg", Width: 500, Height: 375, Orientation: 1, Channels: 3, Size: 1000,
		Fields: []index.FieldRow{
			{Name: "jpg", Size: 900, Path: "a/b.JPEG", CRC32C: 7},
			{Name: "seg.png", Size: 50, Offset: 3},
			{Name: "x-y", Size: 5},
		},
	}
	for condition, want := range map[string]bool{
		"label_name = 'tench' and width >= 500":           true,
		"LABEL_NAME == 'tench' AND Width > 500":           false,
		"label = 3":                                       true,
		"label in (1, 2, 3)":                              true,
		"label not in (1, 2, 3)":                          false,
		"label_name in ('a', 'tench')":                    true,
		"not label = 3":                                   false,
		"not not label = 3":                               true,
		"label != 3 or width*height = 187500":             true,
		"width / height > 1.33 and width / height < 1.34": true,
		"jpg.size > 2 * seg.png.size":                     true,
		"seg.png.offset = 3":                              true,
		"mask.png.size is null":                           true,
		"mask.png.size > 0":                               false,
		"not mask.png.size > 0":                           false,
		"jpg.path like '%.JPEG'":                          true,
		"jpg.path like '%.jpeg'":                          false,
		"jpg.path ilike 'A/_.jpeg'":                       true,
		"key not like 'b%'":                               true,
		`"x-y.size" = 5`:                                  true,
		"size between 1000 and 1000":                      true,
		"size not between 0 and 999":                      true,
		"seg.png.path is null and jpg.path is not null":   true,
		"width > 100 and (height > 1000 or channels = 3)": true,
		"width > 100 and height > 1000 or channels = 4":   false,
		"channels = 4 or width > 100 and height < 1000":   true,
		"-width < -499.5":                                 true,
		"width = 5e2":                                     true,
		"width % 7 = 3":                                   true,
		"width / 0 is null":                               true,
		"null = null":                                     false,
		"null is null":                                    true,
		"true":                                            true,
		"label_name = 'it''s'":                            false,
		"9223372036854775807 + width is null":             true,
		"jpg.crc32c=7":                                    true,
		"(width=500)=(height=375)":                        true,
		"label_name<'u'and'a'<label_name":                 true,
		"label in (1, null, 3)":                           true,
		"label not in (1, null)":                          false,
		"5 between null and 4":                            false,
		"not (5 between null and 4)":                      true,
		strings.Repeat("(", 150) + "true" + strings.Repeat(")", 150): true,
	} {
		f, err := Parse(condition, nil)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if got := f.Match(&row); got != want {
			t.Errorf("%s: %v, want %v", condition, got, want)
		}
	}
}

func TestParseFaults(t *testing.T) {
	fields := []string{"cls", "jpg", "seg.png"}
	for condition, want := range map[string]string{
		"":                                    "it is empty",
		"   ":                                 "it is empty",
		"widht > 5":                           `no column "widht" (did you mean width?); the columns are key, label, label_name`,
		"xyz = 5":                             `no column "xyz"; the columns are`,
		"jgp.size > 5":                        `no field "jgp" (did you mean jpg?); the fields are cls, jpg, seg.png`,
		"jpg.sice > 5":                        "of a field there are jpg.size, jpg.offset",
		"width = '500'":                       "numbers stand without quotes",
		"label = 'tench'":                     "at character 7: a number cannot be compared with a text; numbers stand without quotes, and class names are in label_name",
		`label_name = "tench"`:                "a text stands in single quotes",
		"label_name = 'tench":                 "at character 14: the quote ' is not closed",
		"width":                               "this is a number, not a condition",
		"width and height":                    "this is a number, not a condition",
		"not width":                           "this is a number, not a condition",
		"width = 5 and":                       "a column or value should stand here, not the end",
		"width = 5 height = 4":                `and, or or the end should stand here, not "height"`,
		"width == 5 && height==4":             "write and, or",
		"width = 5 || true":                   "write and, or",
		"!(width = 5)":                        "write not, or !=",
		"width in 5":                          "( should stand here after in",
		"width in (5":                         ") should stand here after the values of in",
		"width in ()":                         `a column or value should stand here, not ")"`,
		"width in (5, 'a')":                   "cannot be compared",
		"width not 5":                         "in, between, like or ilike should stand here after not",
		"width is 5":                          "null should stand here after is",
		"width between 1, 2":                  "and should stand here between the bounds",
		"width like 'a'":                      "like compares texts",
		"key like 5":                          "a pattern in single quotes",
		"key + 1 = 2":                         "+ works on numbers; this is a text",
		"-key = 2":                            "- works on numbers; this is a text",
		"1 < width < 5":                       "comparisons do not chain",
		"(width = 5":                          ") should stand here",
		"width = 5)":                          "should stand here, not \")\"",
		"width = 1x":                          `"1x" is no number`,
		"width = 0x10":                        `"0x10" is no number`,
		"width = 1e999":                       "too large",
		"width = ;":                           "';' has no meaning here",
		"größe = 5":                           "a name with 'ö' is written in double quotes",
		"key = '\xff'":                        "not UTF-8",
		"and = 5":                             "not the word and",
		strings.Repeat("(", 1000):             "levels of brackets",
		strings.Repeat("-", 1000):             "levels of brackets",
		strings.Repeat("not ", 1000) + "true": "levels of brackets",
	} {
		_, err := Parse(condition, fields)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", condition, err, want)
		}
	}
}

func TestNumber(t *testing.T) {
	fields := []string{"jpg", "txt"}
	row := index.Row{Key: "a", Width: 600, Height: 400, Fields: []index.FieldRow{{Name: "jpg", Size: 900}}}
	for expression, want := range map[string]float64{
		"width / height":            1.5,
		"width * height":            240000,
		"jpg.size":                  900,
		"(width + height) % 7 - -3": 1000%7 + 3,
		"2.5":                       2.5,
		"txt.size":                  -1, // null
		"width / (height - 400)":    -1,
		"orientation":               -1,
	} {
		n, err := ParseNumber(expression, fields)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got, ok := n.Value(&row)
		if !ok {
			got = -1
		}
		if got != want || n.String() != expression {
			t.Errorf("%s: %v, want %v", n, got, want)
		}
	}
	for expression, want := range map[string]string{
		"":                   "it is empty; write, for example, width / height",
		"width > height":     `expression "width > height", at character 1: this is a condition, not a number`,
		"key":                "this is a text, not a number",
		"null":               "this is null, not a number",
		"width / heihgt":     "did you mean height?",
		"png.size":           `no field "png"`,
		"width height":       "should stand here",
		"width\xff":          "not UTF-8",
		"width and height":   "this is a number, not a condition",
		"(width = 4) * 2":    "* works on numbers; this is a condition",
		"width / 'a'":        "/ works on numbers; this is a text",
		"max(width, height)": `no column "max"`,
	} {
		_, err := ParseNumber(expression, fields)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
}

// What we make of a condition is what DuckDB makes of it, nulls and all.
func TestMatchesDuckDB(t *testing.T) {
	python := peers.Python(t)
	rows := table()
	file := filepath.Join(t.TempDir(), "index.parquet")
	var b bytes.Buffer
	if err := index.WriteRows(&b, rows); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	conditions := []string{"label is null or label_name ilike '%TENCH%'", "width / 7 = 3.0", "width % 7 = 3"}
	for len(conditions) < 500 {
		conditions = append(conditions, randomCondition(r, 3))
	}
	in, err := json.Marshal(conditions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import duckdb, json, sys
duckdb.sql("set error_on_division_by_zero = false")
table = duckdb.read_parquet(sys.argv[1])
out = []
for condition in json.load(sys.stdin):
    out.append(sorted(r[0] for r in table.filter(condition).select("key").fetchall()))
json.dump(out, sys.stdout)
`, file)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("duckdb: %v", err)
	}
	var want [][]string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	some := 0
	for i, condition := range conditions {
		f, err := Parse(condition, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := matches(f, rows)
		slices.Sort(got)
		if !slices.Equal(got, want[i]) {
			t.Errorf("%s:\n%d rows match, DuckDB has %d", condition, len(got), len(want[i]))
		}
		if len(got) > 0 && len(got) < len(rows) {
			some++
		}
	}
	if some < len(conditions)/3 {
		t.Errorf("only %d of %d conditions tell rows apart", some, len(conditions))
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomNumber(r *rand.Rand, depth int) string {
	switch n := r.IntN(10); {
	case n < 5 || depth == 0:
		return pick(r, "label", "size", "width", "height", "orientation", "channels")
	case n < 8:
		return pick(r, fmt.Sprint(r.IntN(900)), fmt.Sprint(r.IntN(8)), "2.5", "1e2", "-3")
	}
	if r.IntN(4) == 0 {
		// Engines differ in what division by zero is.
		return "(" + randomNumber(r, depth-1) + pick(r, " / 7", " / 2.5", " % 7") + ")"
	}
	return "(" + randomNumber(r, depth-1) + pick(r, " + ", " - ", " * ") + randomNumber(r, depth-1) + ")"
}

func randomText(r *rand.Rand) string {
	return pick(r, "key", "label_name", "format", "'tench'", "'jpeg'", "'n00'", "'o''brien'", "'café'", "''")
}

func randomCondition(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(2) == 0 {
		switch r.IntN(4) {
		case 0:
			return "not (" + randomCondition(r, depth-1) + ")"
		case 1:
			return "(" + randomCondition(r, depth-1) + ")"
		}
		return randomCondition(r, depth-1) + pick(r, " and ", " or ", " AND ", " Or ") + randomCondition(r, depth-1)
	}
	compare := func() string { return pick(r, " = ", " <> ", " != ", " < ", " <= ", " > ", " >= ", "==") }
	not := func() string { return pick(r, "", "not ") }
	switch r.IntN(8) {
	case 0:
		return randomText(r) + compare() + randomText(r)
	case 1:
		return randomText(r) + " " + not() + pick(r, "like ", "ilike ") +
			pick(r, "'n00_/x%'", "'%E%'", "'%n%c%'", "'tench'", "'%'", "'_a%'", "'%é'", "'caf_'", "''", "'%%x_1_'")
	case 2:
		return pick(r, "label_name", "label", "width", "format", "key") + " is " + not() + "null"
	case 3:
		return randomNumber(r, 1) + " " + not() + "in (" + randomNumber(r, 1) + ", " + pick(r, "null, ", "", "") + randomNumber(r, 0) + ")"
	case 4:
		return randomText(r) + " " + not() + "in (" + randomText(r) + ", " + randomText(r) + ")"
	case 5:
		return randomNumber(r, 1) + " " + not() + "between " + randomNumber(r, 1) + " and " + randomNumber(r, 1)
	}
	return randomNumber(r, 2) + compare() + randomNumber(r, 2)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"label_name = 'tench' and width >= 500", "not (a.size in (1, 2.5, null))", `"x-y.size" between -1 and 2 or key like '%_'`, "((", "1e", "'", "\xff",
	} {
		f.Add(s)
	}
	rows := table()
	f.Add("width / height - 1e308 * 10")
	f.Fuzz(func(t *testing.T, condition string) {
		if n, err := ParseNumber(condition, nil); err == nil {
			for i := range rows {
				if x, ok := n.Value(&rows[i]); math.IsNaN(x) || math.IsInf(x, 0) || !ok && x != 0 {
					t.Fatalf("%q is %v, %v", n, x, ok)
				}
			}
		}
		p, err := Parse(condition, nil)
		if err != nil {
			_ = err.Error()
			return
		}
		not, err := Parse("not ("+condition+")", nil)
		if err != nil {
			return // at the limit of depth or length
		}
		for i := range rows {
			if p.Match(&rows[i]) && not.Match(&rows[i]) {
				t.Fatalf("%q and its negation are both true", condition)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	f, err := Parse("label_name = 'tench' and width >= 500", nil)
	if err != nil {
		b.Fatal(err)
	}
	rows := table()
	for b.Loop() {
		for i := range rows {
			f.Match(&rows[i])
		}
	}
	b.ReportMetric(float64(b.N*len(rows))/b.Elapsed().Seconds(), "rows/s")
}
