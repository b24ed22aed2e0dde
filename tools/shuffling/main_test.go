package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"shardify/internal/peers"
	"shardify/reader"
)

// The table and the plot in docs are what the tool makes today.
func TestDocs(t *testing.T) {
	all, err := measureAll(imagenet)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/shuffling.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := replaceTable(doc, table(all))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, want) {
		t.Errorf("docs/shuffling.md is stale: run go run ./tools/shuffling docs/shuffling.md; the table is\n%s", table(all))
	}
	svg, err := os.ReadFile("../../docs/shuffling.svg")
	if err != nil || string(svg) != plot(all) {
		t.Errorf("docs/shuffling.svg is stale: run go run ./tools/shuffling docs/shuffling.md (%v)", err)
	}
}

var small = dataset{100, 1281, 1000}

// A shuffle of math/rand measures as chance has it, and the reader's permutation as that.
func TestGlobalIsAFullPermutation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	perm := func() []int64 {
		list := make([]int64, small.samples())
		for i := range list {
			list[i] = int64(i)
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	chance := evaluate(small, perm(), perm())
	a, err := planned(small, reader.Order{Shuffle: reader.ShuffleGlobal, Seed: 3}, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := planned(small, reader.Order{Shuffle: reader.ShuffleGlobal, Seed: 3}, 1)
	if err != nil {
		t.Fatal(err)
	}
	global := evaluate(small, a, b)
	for name, m := range map[string]measure{"math/rand": chance, "global": global} {
		if math.Abs(m.rank) > 0.012 || math.Abs(m.apart-1.0/3) > 0.004 || math.Abs(m.near-1) > 0.25 || math.Abs(m.again-1) > 0.03 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if math.Abs(chance.entropy-global.entropy) > 0.01 || math.Abs(chance.shards-global.shards) > 0.5 {
		t.Errorf("global %+v, math/rand %+v", global, chance)
	}
}

// An order that is not shuffled measures so.
func TestNone(t *testing.T) {
	a, err := planned(small, reader.Order{Shuffle: reader.ShuffleNone}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := evaluate(small, a, a)
	batches := float64(small.samples() / batchSize)
	if m.rank != 1 || m.entropy > 0.3 || m.shards > 2 || math.Abs(m.again-batches) > 1 || m.near < 0.99*batches {
		t.Errorf("%+v, %v batches", m, batches)
	}
}

// The model of WebDataset's buffer measures as WebDataset itself.
func TestBufferIsWebDatasets(t *testing.T) {
	python := peers.Python(t)
	for _, size := range []int{50, 1000, 8000} {
		cmd := exec.Command(python, "-c", `
import json, random, sys
from webdataset.filters import _shuffle
counts, per, size, seed = json.load(sys.stdin)
orders = []
for epoch in range(2):
    rng = random.Random(seed + epoch)
    shards = list(range(len(counts)))
    rng.shuffle(shards)
    orders.append(list(_shuffle((s * per + row for s in shards for row in range(counts[s])), size, 100, rng)))
json.dump(orders, sys.stdout)
`)
		in, err := json.Marshal([]any{small.counts(), small.perShard, size, 7})
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var orders [2][]int64
		if err := json.Unmarshal(out, &orders); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(uint64(size), 1))
		got, want := evaluate(small, buffered(small, size, rng), buffered(small, size, rng)), evaluate(small, orders[0], orders[1])
		for name, v := range map[string][2]float64{
			"apart": {got.apart, want.apart}, "near": {got.near, want.near}, "entropy": {got.entropy, want.entropy}, "shards": {got.shards, want.shards},
		} {
			if math.Abs(v[0]-v[1]) > 0.03*math.Abs(v[1])+1e-4 { // where shards meet, apart is chance
				t.Errorf("buffer of %d, %s: the model has %.4f, WebDataset %.4f", size, name, v[0], v[1])
			}
		}
	}
}

func TestReplaceTable(t *testing.T) {
	doc := []byte("a\n" + begin + "old\n" + end + "b\n")
	if got, err := replaceTable(doc, "new\n"); err != nil || string(got) != "a\n"+begin+"new\n"+end+"b\n" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := replaceTable([]byte("nothing"), ""); err == nil {
		t.Error("a document without marks")
	}
	if got := fmt.Sprintf("%s %s %s", thousands(7), thousands(1024), thousands(1281000)); got != "7 1,024 1,281,000" {
		t.Error(got)
	}
}
