package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"shardify/dataset"
	"shardify/store/open"
)

type infoOptions struct {
	split   string
	quick   bool
	classes bool
	json    bool
}

func newInfoCommand() *cobra.Command {
	o := new(infoOptions)
	cmd := &cobra.Command{
		Use:   "info DST",
		Short: "Say what a data set holds",
		Long: `Say what a data set holds: splits, shards, sizes, fields, classes and their balance,
formats and dimensions of the images, and how it was made. The manifest and the
indexes are read, never the shards; with --quick only the manifest.`,
		Example: `  shardify info /data/imagenet
  shardify info /data/imagenet --split val --classes
  shardify info /data/imagenet --json | jq .contents.labels`,
		Args: exactArgs("DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runInfo(cmd.Context(), o, args[0], streamsOf(cmd))
		},
	}
	cmd.Flags().StringVar(&o.split, "split", "", "only this split")
	cmd.Flags().BoolVar(&o.quick, "quick", false, "only what the manifest says")
	cmd.Flags().BoolVar(&o.classes, "classes", false, "list every class with its number of samples")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON object")
	return cmd
}

func runInfo(ctx context.Context, o *infoOptions, dst string, s streams) error {
	st, err := open.Retried(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	if err := d.Check(dataset.Selection{Split: o.split}); err != nil {
		return usage(err)
	}
	sum, err := dataset.Summarize(ctx, d, o.split, !o.quick)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, sum)
	}
	out := bufio.NewWriter(s.out)
	printInfo(out, sum, o.classes)
	return out.Flush()
}

// printInfo prints a summary for people. Errors of w are kept by its buffer.
func printInfo(w io.Writer, s *dataset.Summary, classes bool) {
	format := s.Container
	if s.Compression != "" {
		format += "." + s.Compression
	}
	fmt.Fprintf(w, "%s: %s in %s of %s, %s", printable(s.Name), count(s.Samples, "sample", "samples"), count(s.Shards, "shard", "shards"), format, bytesText(s.Bytes))
	if s.RawBytes != s.Bytes {
		fmt.Fprintf(w, " (%s before compression)", bytesText(s.RawBytes))
	}
	fmt.Fprintf(w, ", indexes %s", bytesText(s.IndexBytes))
	if p := s.Seek; p != nil {
		where := "every row"
		if p.Spacing != "row" {
			where = "every " + p.Spacing + " MCUs"
		}
		fmt.Fprintf(w, ", seek points %s (%s of %s)", bytesText(p.Bytes), where, count(p.Samples, "JPEG", "JPEGs"))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "made by %s\n", cmp.Or(printable(s.Tool), "an unnamed program"))

	table := func(heads ...string) *tabwriter.Writer {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, strings.Join(heads, "\t")+"\t")
		return t
	}
	fmt.Fprintln(w)
	t := table("split", "samples", "shards", "bytes", "smallest", "largest")
	for _, sp := range s.Splits {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", printable(sp.Name), humanize.Comma(sp.Samples), humanize.Comma(sp.Shards),
			bytesText(sp.Bytes), bytesText(sp.Smallest), bytesText(sp.Largest))
	}
	t.Flush()

	fmt.Fprintln(w)
	t = table("field", "samples", "bytes", "average")
	for _, f := range s.Fields {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", printable(f.Name), humanize.Comma(f.Count), bytesText(f.Bytes), bytesText(f.Bytes/max(f.Count, 1)))
	}
	t.Flush()

	if c := s.Contents; c != nil {
		printClasses(w, c.Labels, c.Unlabelled, classes)
		if c.Images > 0 {
			var parts []string
			for _, f := range c.Formats {
				parts = append(parts, fmt.Sprintf("%s %s", f.Name, humanize.Comma(f.Samples)))
			}
			fmt.Fprintf(w, "\nimages   %s", strings.Join(parts, ", "))
			if c.Rotated > 0 {
				fmt.Fprintf(w, "; %s rotated by EXIF", humanize.Comma(c.Rotated))
			}
			fmt.Fprintln(w)
		}
		printHistogram(w, "bytes of a sample", &c.SampleBytes, func(n int64) string { return humanize.IBytes(uint64(n)) })
		pixels := func(n int64) string { return humanize.Comma(n) }
		printHistogram(w, "width", &c.Width, pixels)
		printHistogram(w, "height", &c.Height, pixels)
	} else if s.Classes > 0 {
		fmt.Fprintf(w, "\nclasses  %s\n", humanize.Comma(s.Classes))
	}
	if raw, ok := s.Options.(json.RawMessage); ok {
		fmt.Fprintf(w, "\noptions  %s\n", printable(compact(raw)))
	}
}

// compact puts JSON into one line.
func compact(raw json.RawMessage) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return string(raw)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(out)
}

// printClasses says how many classes there are and how balanced they are.
func printClasses(w io.Writer, labels []dataset.LabelCount, unlabelled int64, all bool) {
	if len(labels) == 0 {
		fmt.Fprintf(w, "\nclasses  none; no sample has a label\n")
		return
	}
	name := func(l dataset.LabelCount) string {
		if l.Name == "" {
			return fmt.Sprint(l.Label)
		}
		return printable(l.Name)
	}
	sorted := slices.Clone(labels)
	slices.SortStableFunc(sorted, func(a, b dataset.LabelCount) int { return cmp.Compare(a.Samples, b.Samples) })
	least, most := sorted[0], sorted[len(sorted)-1]
	fmt.Fprintf(w, "\nclasses  %s; samples of a class: %s (%s) to %s (%s), median %s", humanize.Comma(int64(len(labels))),
		humanize.Comma(least.Samples), name(least), humanize.Comma(most.Samples), name(most), humanize.Comma(sorted[len(sorted)/2].Samples))
	if unlabelled > 0 {
		fmt.Fprintf(w, "; %s without a label", count(unlabelled, "sample", "samples"))
	}
	fmt.Fprintln(w)
	if !all {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "label\tsamples\t  class")
	for _, l := range labels {
		fmt.Fprintf(t, "%d\t%s\t  %s\n", l.Label, humanize.Comma(l.Samples), printable(l.Name))
	}
	t.Flush()
}

// histogramRows is about how many rows a histogram has.
const histogramRows = 10

// printHistogram draws a histogram, in rows that double, or grow by 2^(1/2) or
// 2^(1/4) where that makes few rows.
func printHistogram(w io.Writer, title string, h *dataset.Histogram, text func(int64) string) {
	if h.Count == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: %s to %s, average %s, median %s, 99%% below %s\n", title,
		text(h.Min), text(h.Max), text(int64(h.Mean())), text(h.Quantile(0.5)), text(h.Quantile(0.99)))
	if h.Min == h.Max {
		return
	}
	octaves := bits.Len64(uint64(h.Max)) - bits.Len64(uint64(max(h.Min, 1))) + 1
	step := 8
	for step > 2 && octaves*8/step*2 <= histogramRows {
		step /= 2
	}
	rows := h.Rows(step)
	most := int64(0)
	for _, r := range rows {
		most = max(most, r.Count)
	}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t to %s\t %s\t", text(r.From), text(r.To), humanize.Comma(r.Count))
		fmt.Fprintf(t, " %s\n", strings.Repeat("█", int(r.Count*32/most))+thin(r.Count*32%most, most, r.Count))
	}
	t.Flush()
}

// thin is the last, partial block of a bar; the least there is for the least count.
func thin(rest, whole, n int64) string {
	eighths := []rune("▏▎▍▌▋▊▉")
	i := rest * 8 / whole
	if i == 0 {
		if n > 0 && n*32 < whole {
			return string(eighths[0])
		}
		return ""
	}
	return string(eighths[i-1])
}
