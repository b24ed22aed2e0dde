package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the result of a benchmark.
type report struct {
	Title string    `json:"title"`
	Host  Host      `json:"host"`
	Date  time.Time `json:"date"`
	// Files and Bytes are the input's.
	Files    int64       `json:"files"`
	Bytes    int64       `json:"bytes"`
	Rows     []Row       `json:"rows,omitempty"`
	Memory   []MemoryRow `json:"memory,omitempty"`
	Decoding []Decoding  `json:"decoding,omitempty"`
	// Augmenting are the rows of bench augment, whose columns are the contenders'.
	Augmenting []Augmenting `json:"augmenting,omitempty"`
	Contenders []string     `json:"contenders,omitempty"`
	Loading    []Loading    `json:"loading,omitempty"`
	// Notes are what the reader must know to trust the figures.
	Notes []string `json:"notes"`

	Unit string `json:"unit,omitempty"` // what a file is called
}

// Row is one tool's figures.
type Row struct {
	Name    string `json:"name"`
	Command string `json:"command"`
	// Error is why there are no figures.
	Error string `json:"error,omitempty"`
	Runs  []Run  `json:"runs,omitempty"`
	// Min and Median are over the runs, of the seconds; Process and CPU are the
	// medians of those, Peak and Output the greatest of all.
	Min     float64 `json:"min_seconds"`
	Median  float64 `json:"median_seconds"`
	Process float64 `json:"median_process_seconds"`
	CPU     float64 `json:"median_cpu_seconds"`
	PeakRSS int64   `json:"peak_rss"`
	PeakPSS int64   `json:"peak_pss,omitempty"`
	Output  int64   `json:"output_bytes,omitempty"`
	// Ratios are this row's rate over another's, by medians.
	Ratios map[string]float64 `json:"ratios,omitempty"`
}

// failed says which of our own loaders have failed: that peers do is a result.
func (r *report) failed() error {
	var faults []error
	for _, l := range r.Loading {
		if l.Ours && l.Error != "" {
			faults = append(faults, fmt.Errorf("%s, %s: %s", l.Name, l.DType, l.Error))
		}
	}
	return errors.Join(faults...)
}

// rows makes the table's rows, with ratios to the processes named.
func (b *bench) rows(processes []*process, runs map[string][]Run, to ...string) []Row {
	var out []Row
	for _, p := range processes {
		rs := runs[p.name]
		r := Row{Name: p.name, Command: b.relative(strings.Join(append(slices.Clone(p.env), p.argv...), " ")), Runs: rs, Ratios: map[string]float64{}}
		if p.failed != nil {
			r.Error = b.relative(p.failed.Error())
			out = append(out, r)
			continue
		}
		var seconds, process, cpu []float64
		for _, run := range rs {
			seconds, process, cpu = append(seconds, run.Seconds), append(process, run.Process), append(cpu, run.CPU)
			r.PeakRSS, r.PeakPSS, r.Output = max(r.PeakRSS, run.PeakRSS), max(r.PeakPSS, run.PeakPSS), max(r.Output, run.Output)
		}
		r.Min, r.Median, r.Process, r.CPU = slices.Min(seconds), median(seconds), median(process), median(cpu)
		out = append(out, r)
	}
	for i := range out {
		for _, name := range to {
			for j := range out {
				if out[j].Name == name && out[i].Error == "" && out[j].Error == "" {
					out[i].Ratios[name] = out[j].Median / out[i].Median
				}
			}
		}
	}
	return out
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}

// print writes the report as a table in Markdown, as docs/benchmarks.md wants it.
func (r *report) print(w io.Writer) error {
	b := bufio.NewWriter(w)
	if r.Loading != nil {
		fmt.Fprintf(b, "\n### %s\n\n%s files, %.1f MB. %s\n\n", r.Title, thousands(r.Files), float64(r.Bytes)/1e6, r.Host)
		printLoading(b, r.Loading)
		r.printNotes(b)
		return b.Flush()
	}
	if r.Decoding != nil {
		fmt.Fprintf(b, "\n### %s\n\n%s files, %.1f MB. %s\n\n", r.Title, thousands(r.Files), float64(r.Bytes)/1e6, r.Host)
		printDecoding(b, r.Decoding)
		r.printNotes(b)
		return b.Flush()
	}
	if r.Augmenting != nil {
		fmt.Fprintf(b, "\n### %s\n\n%s\n", r.Title, r.Host)
		printAugmenting(b, r.Contenders, r.Augmenting)
		r.printNotes(b)
		return b.Flush()
	}
	if r.Memory != nil {
		fmt.Fprintf(b, "\n### %s\n\n%s\n\n", r.Title, r.Host)
		printMemory(b, r.Memory)
		r.printNotes(b)
		return b.Flush()
	}
	fmt.Fprintf(b, "\n### %s\n\n%s files, %.1f MB. %s\n\n", r.Title, thousands(r.Files), float64(r.Bytes)/1e6, r.Host)
	var to []string
	for _, row := range r.Rows {
		for name := range row.Ratios {
			if !slices.Contains(to, name) {
				to = append(to, name)
			}
		}
	}
	slices.Sort(to)
	output := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Output > 0 })
	columns := 8 + len(to)
	fmt.Fprintf(b, "| | s (median) | s (min) | process s | CPU s | %s/s | MB/s | MB/s a CPU | peak memory |", r.Unit)
	if output {
		columns++
		fmt.Fprint(b, " output, MB |")
	}
	for _, name := range to {
		fmt.Fprintf(b, " × %s |", name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---:|", columns))
	for _, row := range r.Rows {
		if row.Error != "" {
			fmt.Fprintf(b, "| %s | failed |%s\n", row.Name, strings.Repeat(" |", columns-1))
			continue
		}
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %.2f | %.2f | %s | %.0f | %.0f | %.0f MB |", row.Name, row.Median, row.Min, row.Process, row.CPU,
			thousands(int64(float64(r.Files)/row.Median)), float64(r.Bytes)/1e6/row.Median,
			float64(r.Bytes)/1e6/max(row.CPU, 1e-9), float64(row.peak())/1e6)
		if output {
			fmt.Fprintf(b, " %.1f |", float64(row.Output)/1e6)
		}
		for _, name := range to {
			fmt.Fprintf(b, " %.2f |", row.Ratios[name])
		}
		fmt.Fprintln(b)
	}
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Error != "" }) {
		fmt.Fprintln(b)
	}
	for _, row := range r.Rows {
		if row.Error != "" {
			fmt.Fprintf(b, "- failed: %s: %s\n", row.Name, firstAndLast(row.Error))
		}
	}
	r.printNotes(b)
	return b.Flush()
}

// peak is the memory of it and all below it, without counting anything twice.
func (r *Row) peak() int64 {
	if r.PeakPSS > 0 {
		return r.PeakPSS
	}
	return r.PeakRSS
}

func (r *report) printNotes(b io.Writer) {
	fmt.Fprintln(b)
	for _, n := range r.Notes {
		fmt.Fprintf(b, "- %s\n", n)
	}
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Host is the machine and the program measured.
type Host struct {
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	System   string `json:"system"`
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	MemoryGB int    `json:"memory_gb"`
	Disk     string `json:"disk"`
	// Load is how many processes ran, or waited to, in the minute before the benchmark
	// began, as Linux tells it.
	Load float64 `json:"load"`
}

func (h Host) String() string {
	return fmt.Sprintf("%s, %d cores, %d GB, %s, %s; %s, commit %s; load before it %.1f.", h.CPU, h.Cores, h.MemoryGB, h.Disk, h.System, h.Go, h.Commit, h.Load)
}

// host describes this machine, as far as it tells.
func host(ctx context.Context, b *bench) Host {
	h := Host{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), CPU: "unknown CPU", Disk: "unknown file system"}
	say := func(argv ...string) string {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = b.root
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	h.Commit = say("git", "describe", "--tags", "--always", "--dirty")
	if s := say("uname", "-sr"); s != "" {
		h.System = s + " " + runtime.GOARCH
	}
	if s := say("findmnt", "-n", "-o", "FSTYPE", "-T", b.results); s != "" {
		h.Disk = s
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				h.CPU = strings.TrimSpace(value)
				break
			}
		}
	} else if s := say("sysctl", "-n", "machdep.cpu.brand_string"); s != "" {
		h.CPU = s
	}
	if info, err := os.ReadFile("/proc/loadavg"); err == nil {
		// Where it says something else, the load stays 0, as where there is none.
		_, _ = fmt.Sscan(string(info), &h.Load)
	}
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int
		if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &kb); err == nil {
			h.MemoryGB = (kb + 1<<19) >> 20
		}
	}
	return h
}
