package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"

	"shardify/dataset"
)

// bar shows progress on a terminal, in one line that moves.
type bar struct {
	w     io.Writer
	label string
	total int64
	bar   *progressbar.ProgressBar
}

func newBar(w io.Writer) *bar { return &bar{w: w} }

// text shows a line while it is not known how much there is to do.
func (b *bar) text(line string) {
	b.clear()
	fmt.Fprint(b.w, line)
}

// set shows how far the bytes of a phase have come, at what rate.
func (b *bar) set(label string, done, total int64) {
	if b.bar == nil || b.label != label || b.total != total {
		b.clear()
		b.label, b.total = label, total
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(b.w),
			progressbar.OptionSetDescription(fmt.Sprintf("%-8s", label)),
			progressbar.OptionSetTheme(progressbar.ThemeUnicode),
			progressbar.OptionSetWidth(24),
			progressbar.OptionShowBytes(true),
			progressbar.OptionSetPredictTime(true))
	}
	// The bar cannot show more than its total, and only writes to the terminal.
	_ = b.bar.Set64(min(done, total))
}

// clear wipes the line.
func (b *bar) clear() {
	b.bar = nil
	fmt.Fprint(b.w, "\r\x1b[K")
}

// follow shows p until stop is called: a bar on a terminal, and in a log a line
// every ten seconds.
func follow(s streams, label string, p *dataset.Progress) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	every := 10 * time.Second
	var b *bar
	if s.terminal {
		every = 100 * time.Millisecond
		b = newBar(s.err)
	}
	began := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				if b != nil {
					b.clear()
				}
				return
			case <-tick.C:
			}
			done, total := p.Bytes.Load(), p.Total.Load()
			if b != nil {
				b.set(label, done, total)
				continue
			}
			rate := float64(done) / time.Since(began).Seconds()
			left := ""
			if rate > 0 && total > done {
				left = fmt.Sprintf(", %s left", time.Duration(float64(total-done)/rate*1e9).Round(time.Second))
			}
			fmt.Fprintf(s.err, "%-8s %s of %s, %s samples, %s/s%s\n", label, bytesText(done), bytesText(total),
				humanize.Comma(p.Samples.Load()), bytesText(int64(rate)), left)
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// bytesText is a number of bytes for people: "1.2 GB".
func bytesText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

// count is a number of things for people: "1 shard", "1,000 shards".
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}

// printJSON prints v as one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printable is text from a data set as it may go to a terminal: without control
// characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, text)
}
