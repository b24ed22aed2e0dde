package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"shardify/dataset/datasettest"
	"shardify/reader"
	"shardify/sample"
	"shardify/store/file"
)

// MemoryRow is the memory of a process with a budget, in bytes.
type MemoryRow struct {
	Name   string `json:"name"`
	Budget int64  `json:"budget"`
	// Resident is the most that the process had, Counted the most that it counted
	// against its budget.
	Resident int64   `json:"resident"`
	Counted  int64   `json:"counted"`
	Rate     float64 `json:"samples_per_second"`
}

// printMemory writes the table of budgets.
func printMemory(w io.Writer, rows []MemoryRow) {
	fmt.Fprint(w, "| | budget, MiB | resident at most, MiB | of budget | counted at most, MiB | samples/s |\n|---|---:|---:|---:|---:|---:|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %d | %.0f | %.2f | %.0f | %s |\n", r.Name, r.Budget>>20, float64(r.Resident)/(1<<20),
			float64(r.Resident)/float64(r.Budget), float64(r.Counted)/(1<<20), thousands(int64(r.Rate)))
	}
}

// memory measures the resident memory of `shardread bench` against its budget, over
// epochs in which one sample is far larger than the others.
func (b *bench) memory(ctx context.Context) (report, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	picture := func(width, height int, seed int) []byte {
		img := image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420)
		for i := range img.Y {
			img.Y[i] = noise[(i+seed*977)%len(noise)] & 63
		}
		var out bytes.Buffer
		if err := jpeg.Encode(&out, img, &jpeg.Options{Quality: 85}); err != nil {
			panic(err) // of an image in memory
		}
		return out.Bytes()
	}
	var pictures [16][]byte
	for i := range pictures {
		pictures[i] = picture(500, 375, i)
	}
	sets := []struct {
		name string
		argv []string
		make func(n int) []sample.Field
	}{
		{"100 KB fields, none larger", []string{"--decode", "none"}, func(n int) []sample.Field {
			return []sample.Field{{Name: "bin", Data: noise[n*31%len(noise)/2:][:100<<10]}}
		}},
		{"100 KB fields, one of 500 MB", []string{"--decode", "none"}, func(n int) []sample.Field {
			if n == 1234 {
				return []sample.Field{{Name: "bin", Data: bytes.Repeat(noise, 500)}}
			}
			return []sample.Field{{Name: "bin", Data: noise[n*31%len(noise)/2:][:100<<10]}}
		}},
		{"images of 0.2 megapixels", []string{"--crop", "224"}, func(n int) []sample.Field {
			return []sample.Field{{Name: "jpg", Data: pictures[n%len(pictures)]}}
		}},
		{"images of 0.2 megapixels, one of 100", []string{"--crop", "224"}, func(n int) []sample.Field {
			if n == 1234 {
				return []sample.Field{{Name: "jpg", Data: picture(10000, 10000, 1)}}
			}
			return []sample.Field{{Name: "jpg", Data: pictures[n%len(pictures)]}}
		}},
	}
	shardread := filepath.Join(b.root, "bin", "shardread"+exe())
	rep := report{Title: "Memory of shardread bench", Date: time.Now().UTC(), Notes: []string{
		"VmHWM of the process (with the program itself, some 15 MB) over two epochs of 2,560 samples, against --memory.",
	}}
	for i, set := range sets {
		dir := filepath.Join(b.dir, "set"+strconv.Itoa(i))
		b.say("making %s\n", set.name)
		_, err := datasettest.Make(file.New(dir), datasettest.Options{
			Shards: 10, Samples: 256, Classes: 10,
			Make: func(n, classes int) datasettest.Made {
				m := datasettest.Made{Label: int64(n % classes)}
				m.Key, m.Fields = fmt.Sprintf("%08d", n), set.make(n)
				return m
			},
		})
		if err != nil {
			return report{}, err
		}
		for _, mib := range []int64{256, 512, 1024} {
			p := &process{name: fmt.Sprintf("%s, %d MiB", set.name, mib), argv: append([]string{
				shardread, "bench", dir, "--epochs", "2", "--json", "--memory", strconv.FormatInt(mib, 10) + "MiB",
			}, set.argv...)}
			r, err := b.measure(ctx, p)
			if err != nil {
				return report{}, err
			}
			var line struct {
				Peak  int64        `json:"peak_memory_bytes"`
				Stats reader.Stats `json:"stats"`
			}
			if err := json.Unmarshal([]byte(r.stdout), &line); err != nil {
				return report{}, fmt.Errorf("%s: %w", p.name, err)
			}
			b.say("%s: %d MiB\n", p.name, line.Peak>>20)
			rep.Memory = append(rep.Memory, MemoryRow{
				Name: set.name, Budget: mib << 20, Resident: line.Peak, Counted: line.Stats.Memory.Peak,
				Rate: float64(line.Stats.Samples) / line.Stats.Elapsed.Seconds(),
			})
		}
	}
	return rep, nil
}
