// Command shuffling measures how well orders mix a data set that is sorted by class:
// those of the reader's plan with windows of several sizes, a full permutation, and
// WebDataset's shuffle buffer over permuted shards. It writes the table in
// docs/shuffling.md anew, between its two marks, and the plot beside it:
//
//	go run ./tools/shuffling docs/shuffling.md
package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"shardify/reader"
)

// dataset is a data set sorted by class, of classes × perClass samples in shards of
// perShard.
type dataset struct{ classes, perClass, perShard int64 }

// imagenet has ImageNet's dimensions.
var imagenet = dataset{1000, 1281, 1000}

func (d dataset) samples() int64 { return d.classes * d.perClass }

func (d dataset) counts() (counts []int64) {
	for n := d.samples(); n > 0; n -= d.perShard {
		counts = append(counts, min(n, d.perShard))
	}
	return counts
}

// batchSize is a global batch, of which mixing is measured.
const batchSize = 256

// measure says how well an order mixes.
type measure struct {
	// rank is Spearman's correlation of a sample's number and its place.
	rank float64
	// apart is how far samples that are neighbours in the data set are from each
	// other in the order, as a share of the epoch: 1/3 by chance.
	apart float64
	// near is the share of such neighbours that come into the same batch, times the
	// number of batches: 1 by chance.
	near float64
	// entropy is that of the labels in a batch, in bits, on average.
	entropy float64
	// shards is how many shards a batch has samples of, on average.
	shards float64
	// again is the share of pairs in a batch that meet again in a batch of the next
	// epoch, times the number of batches: 1 by chance.
	again float64
}

// evaluate measures an order and the next epoch's.
func evaluate(d dataset, order, next []int64) (m measure) {
	n := float64(len(order))
	place := make([]int64, len(order))
	for g, s := range order {
		place[s] = int64(g)
	}
	sum := 0.0
	for s, g := range place {
		diff := float64(g) - float64(s)
		sum += diff * diff
	}
	m.rank = 1 - 6*sum/(n*(n*n-1))
	for s := 1; s < len(place); s++ {
		m.apart += math.Abs(float64(place[s] - place[s-1]))
		if place[s]/batchSize == place[s-1]/batchSize {
			m.near++
		}
	}
	m.apart /= n * (n - 1)
	batches := int64(len(order)) / batchSize
	m.near *= float64(batches) / (n - 1)

	nextBatch := make([]int64, len(order))
	for g, s := range next {
		nextBatch[s] = int64(g) / batchSize
	}
	labels, shards, again := map[int64]int{}, map[int64]bool{}, map[int64]int{}
	pairs := 0.0
	for b := range batches {
		clear(labels)
		clear(shards)
		clear(again)
		for _, s := range order[b*batchSize:][:batchSize] {
			labels[s/d.perClass]++
			shards[s/d.perShard] = true
			again[nextBatch[s]]++
		}
		for _, k := range labels {
			p := float64(k) / batchSize
			m.entropy -= p * math.Log2(p)
		}
		m.shards += float64(len(shards))
		for _, k := range again {
			pairs += float64(k*(k-1)) / 2
		}
	}
	m.entropy /= float64(batches)
	m.shards /= float64(batches)
	m.again = pairs / (float64(batches) * batchSize * (batchSize - 1) / 2) * float64(batches)
	return m
}

// planned is an order of the reader.
func planned(d dataset, o reader.Order, epoch int) ([]int64, error) {
	o.BatchSize = 4096
	o.Ends = reader.EndsExact
	p, err := reader.NewPlan(d.counts(), o, epoch)
	if err != nil {
		return nil, err
	}
	list := make([]int64, 0, d.samples())
	for b := range p.Batches() {
		list = p.Batch(list, b, 0)
	}
	return list, nil
}

// buffered is the order of WebDataset 1.0.2 in one worker: shards permuted, and its
// filters.shuffle(size, initial 100): a sample is drawn from the buffer for each that
// comes, two while it fills.
func buffered(d dataset, size int, rng *rand.Rand) []int64 {
	order := make([]int64, 0, d.samples())
	buffer := make([]int64, 0, size)
	pick := func() {
		k := rng.IntN(len(buffer))
		order = append(order, buffer[k])
		buffer[k] = buffer[len(buffer)-1]
		buffer = buffer[:len(buffer)-1]
	}
	extra := false // the next sample is the second one of a turn
	counts := d.counts()
	for _, shard := range rng.Perm(len(counts)) {
		for row := range counts[shard] {
			buffer = append(buffer, int64(shard)*d.perShard+row)
			if !extra && len(buffer) < size {
				extra = true
				continue
			}
			extra = false
			if len(buffer) >= min(100, size) {
				pick()
			}
		}
	}
	for len(buffer) > 0 {
		pick()
	}
	return order
}

// result is a line of the table.
type result struct {
	name string
	// size is the window's or the buffer's, 0 for orders that have none.
	size    int
	buffer  bool
	measure measure
}

// sizes are those of windows and buffers.
var sizes = []int{256, 1024, 4096, 24576, 98304, 393216}

// measureAll measures all orders.
func measureAll(d dataset) ([]result, error) {
	var all []result
	plan := func(name string, o reader.Order, size int) error {
		o.Seed = 1
		order, err := planned(d, o, 0)
		if err != nil {
			return err
		}
		next, err := planned(d, o, 1)
		if err != nil {
			return err
		}
		all = append(all, result{name: name, size: size, measure: evaluate(d, order, next)})
		return nil
	}
	if err := plan("`none`", reader.Order{Shuffle: reader.ShuffleNone}, 0); err != nil {
		return nil, err
	}
	if err := plan("`shards`", reader.Order{Shuffle: reader.ShuffleShards}, 0); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		name := fmt.Sprintf("`window`, %s", thousands(size))
		if size == reader.DefaultWindow {
			name += " (default)"
		}
		if err := plan(name, reader.Order{Shuffle: reader.ShuffleWindow, Window: size}, size); err != nil {
			return nil, err
		}
	}
	if err := plan("`global`", reader.Order{Shuffle: reader.ShuffleGlobal}, 0); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		rng := rand.New(rand.NewPCG(1, uint64(size)))
		order := buffered(d, size, rng)
		all = append(all, result{
			name: fmt.Sprintf("WebDataset, buffer of %s", thousands(size)), size: size, buffer: true,
			measure: evaluate(d, order, buffered(d, size, rng)),
		})
	}
	return all, nil
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// table is the results in Markdown.
func table(all []result) string {
	var b strings.Builder
	b.WriteString("| order | rank correlation | neighbours apart | neighbours in a batch | label entropy | shards in a batch | pairs that meet again |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range all {
		m := r.measure
		fmt.Fprintf(&b, "| %s | %.3f | %.4f | %.1f | %.2f | %.0f | %.1f |\n", r.name, m.rank, m.apart, m.near, m.entropy, m.shards, m.again)
	}
	return b.String()
}

// plot draws the label entropy of batches over the size of window and buffer.
func plot(all []result) string {
	const (
		width, height            = 720, 400
		left, right, top, bottom = 70, 36, 30, 60
		low, high                = 0.0, 8.5
	)
	first, last := math.Log2(float64(sizes[0])), math.Log2(float64(sizes[len(sizes)-1]))
	x := func(size int) float64 {
		return left + (math.Log2(float64(size))-first)/(last-first)*(width-left-right)
	}
	y := func(bits float64) float64 { return height - bottom - (bits-low)/(high-low)*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for bits := 0.0; bits <= 8; bits += 2 {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			left, width-right, y(bits), y(bits), left-8, y(bits)+4, bits)
	}
	for _, size := range sizes {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(size), height-bottom+20, thousands(size))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">samples in the window, or in WebDataset's buffer</text>`+"\n", (left+width-right)/2, height-15)
	fmt.Fprintf(&b, `<text x="18" y="%d" text-anchor="middle" transform="rotate(-90 18 %d)">label entropy of a batch of %d, bits</text>`+"\n", (top+height-bottom)/2, (top+height-bottom)/2, batchSize)
	curve := func(buffer bool, colour, name string) {
		var points []string
		var end result
		for _, r := range all {
			if r.size > 0 && r.buffer == buffer {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(r.size), y(r.measure.entropy)))
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x(r.size), y(r.measure.entropy), colour)
				if r.size == 4096 {
					end = r
				}
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x(end.size)+8, y(end.measure.entropy)+18, colour, name)
	}
	curve(false, "#0868ac", "shardread, window")
	curve(true, "#b2182b", "WebDataset, shuffle buffer")
	for _, r := range all {
		if r.name == "`global`" {
			fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#333" stroke-dasharray="6 4"/><text x="%d" y="%.1f">full permutation (global)</text>`+"\n",
				left, width-right, y(r.measure.entropy), y(r.measure.entropy), left+6, y(r.measure.entropy)-6)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// The table stands between these lines.
const (
	begin = "<!-- table: go run ./tools/shuffling docs/shuffling.md -->\n"
	end   = "<!-- end of table -->\n"
)

// replaceTable puts a table between the marks of a document.
func replaceTable(doc []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(doc, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, fmt.Errorf("no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return bytes.Join([][]byte{before, []byte(begin), []byte(table), []byte(end), after}, nil), nil
}

func run(name string) error {
	doc, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	all, err := measureAll(imagenet)
	if err != nil {
		return err
	}
	if doc, err = replaceTable(doc, table(all)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(name, doc, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(name), "shuffling.svg"), []byte(plot(all)), 0o644)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./tools/shuffling docs/shuffling.md")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "shuffling:", err)
		os.Exit(1)
	}
}
