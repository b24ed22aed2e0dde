package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// frozen are results as the benchmarks write them, of which some failed.
func frozen(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What the pages show is what docs/benchmarks/*.json says, and nothing of the machine on
// which it was measured is in it.
func TestPublished(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range publications {
		data, err := os.ReadFile(filepath.Join(root, "docs", "benchmarks", p.name+".json"))
		there := err == nil
		if errors.Is(err, fs.ErrNotExist) {
			data = frozen(t, p.name) // not yet published: its places are there
		} else if err != nil {
			t.Fatal(err)
		}
		for page, show := range p.pages() {
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
			if err != nil {
				t.Fatal(err)
			}
			if changed, err := show(text, data); err != nil || there && !bytes.Equal(changed, text) {
				t.Errorf("%s: %s does not show what the figures say (%v); make bench-publish", p.name, page, err)
			}
		}
		for _, word := range []string{root, os.TempDir() + "/", "/home/"} {
			if strings.Contains(string(data), word) {
				t.Errorf("%s.json names %s", p.name, word)
			}
		}
	}
}

func TestPublicationTable(t *testing.T) {
	p := publication{name: "peers", plot: "A plot"}
	begin, end := marks(p.name)
	text := "# Title\n\n" + begin + "old\n" + end + "\nmore\n"
	got, err := p.table([]byte(text), frozen(t, p.name))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Title\n\n" + begin + "\n![A plot](benchmarks/peers.png)\n\n### Training batches\n", "| DALI 2.4.0, CPU | 1,200 | 1.00 | 1.00 | 0.60 | 1.65 | 1000 MB | 990 MB |",
		"| **shardread bench, no seek points** | **5,100** | 4.25 | 4.12 |", "| FFCV 1.0.2 | failed |", "- failed: FFCV 1.0.2, float32: ", end + "\nmore\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old\n") {
		t.Error("the old table is still there")
	}
	again, err := p.table(got, frozen(t, p.name))
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("the second time it is another: %v", err)
	}
	for _, c := range []struct{ text, data, want string }{
		{"# Title\n", string(frozen(t, "peers")), "no line \"<!-- peers: "},
		{begin, string(frozen(t, "peers")), "end of peers"},
		{text, "{", "peers.json"},
	} {
		if _, err := p.table([]byte(c.text), []byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.text, err, c.want)
		}
	}
}

// The README has each loader once, the fastest first, whatever has failed.
func TestPublicationSummary(t *testing.T) {
	p := publication{name: "peers"}
	begin, end := marks(p.name)
	got, err := p.summary([]byte(begin+end), frozen(t, p.name))
	if err != nil {
		t.Fatal(err)
	}
	want := `| | images/s, uint8 | images/s, float32 | first batch, s | CPU s per 1,000 | memory |
|---|---:|---:|---:|---:|---:|
| **shardread bench, no seek points** | **5,100** | **2,100** | 0.20 | 0.40 | 250 MB |
| DALI 2.4.0, CPU | 1,200 | 1,100 | 0.60 | 1.65 | 990 MB |
| torchvision 0.29.2, Pillow | 900 | 800 | 3.00 | 2.10 | 900 MB |
| FFCV 1.0.2 | failed | failed | | | |

` + end
	if !strings.HasSuffix(string(got), want) || !strings.Contains(string(got), "peers-rate.png") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again, err := p.summary(got, frozen(t, p.name)); err != nil || !bytes.Equal(again, got) {
		t.Errorf("the second time it is another: %v", err)
	}
}

// The plots show every loader and its figures, say what has failed, and are the same bytes
// for the same figures.
func TestPlots(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{root: root}
	python, err := b.interpreter("plot")
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: %v, for benchmarks alone", err)
	}
	for name, want := range map[string][]string{
		"peers": {"DALI 2.4.0, CPU", "FFCV 1.0.2", "shardread bench, no seek points", "5,100", "2,100", "failed", "images/s (more is better)"},
		"pack":  {"tar cf", "shardify pack", "10,000", "failed", "output, MB"},
	} {
		t.Run(name, func(t *testing.T) {
			var made [2][]byte
			for i := range made {
				dir := t.TempDir()
				cmd := exec.CommandContext(t.Context(), python, filepath.Join(root, "tools", "bench", "peers", "plot.py"), filepath.Join("testdata", name+".json"), dir)
				if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
					t.Fatalf("%v\n%s", err, out)
				}
				svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
				if err != nil {
					t.Fatal(err)
				}
				data, err := os.ReadFile(filepath.Join(dir, name+".png"))
				if err != nil {
					t.Fatal(err)
				}
				picture, err := png.Decode(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				if size := picture.Bounds().Size(); size.X < 800 || size.Y < 200 {
					t.Errorf("a picture of %v", size)
				}
				made[i] = append(svg, data...)
				for _, text := range want {
					if !strings.Contains(string(svg), ">"+text+"<") {
						t.Errorf("%q is not in the plot", text)
					}
				}
				if strings.Contains(string(svg), "AVX-512") {
					t.Error("AVX-512 off is for the table")
				}
			}
			if !bytes.Equal(made[0], made[1]) {
				t.Error("the same figures make other bytes")
			}
		})
	}
}

// The frozen results are what this program reads and writes.
func TestFrozenResults(t *testing.T) {
	for _, p := range publications {
		name := p.name
		var rep report
		d := json.NewDecoder(bytes.NewReader(frozen(t, name)))
		d.DisallowUnknownFields()
		if err := d.Decode(&rep); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		data, err := json.MarshalIndent(rep, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if data = append(data, '\n'); !bytes.Equal(data, frozen(t, name)) {
			t.Errorf("%s is written as\n%s", name, data)
		}
	}
}
