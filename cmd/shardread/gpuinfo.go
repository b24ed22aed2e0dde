package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"shardify/gpu"
	"shardify/internal/hint"
)

func newGPUInfoCommand() *cobra.Command {
	var asJSON, engines bool
	cmd := &cobra.Command{
		Use:   "gpu-info",
		Short: "The GPUs of this machine, or what is missing to use them",
		Long: `Say which NVIDIA GPUs there are and what they are doing, or why none can be used and
what to do about it; then the command ends with code 1. It takes no memory of a GPU, unless
--engines is given.`,
		Example: `  shardread gpu-info
  shardread gpu-info --json | jq '.devices[].name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(hint.Command(cmd, args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := gpu.Inspect()
			if engines && info.Problem == "" {
				if err := info.InspectJPEG(); err != nil {
					return err
				}
			}
			return runGPUInfo(info, asJSON, streamsOf(cmd))
		},
	}
	cmd.Flags().BoolVar(&engines, "engines", false, "also ask nvJPEG how each GPU decodes JPEG: a context on each for a moment, some 500 MB")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all of it as JSON")
	return cmd
}

func runGPUInfo(info gpu.Info, asJSON bool, s streams) error {
	if asJSON {
		if err := printJSON(s.out, info); err != nil {
			return err
		}
	} else if err := printGPUs(info, s); err != nil {
		return err
	}
	if info.Problem != "" {
		return errors.New(info.Problem)
	}
	return nil
}

func printGPUs(info gpu.Info, s streams) error {
	if info.Library == "" {
		return nil
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	driver := info.Driver
	if driver == "" {
		driver = "of unknown version"
	}
	fmt.Fprintf(w, "driver\t%s, for CUDA up to %s (%s)\n", driver, info.CUDA, info.Library)
	if n := info.NVJPEG; n != nil {
		fmt.Fprintf(w, "nvJPEG\t%s (%s)\n", n.Version, n.Library)
	}
	lockable := "no limit of locked memory"
	if info.Host.Lockable >= 0 {
		lockable = fmt.Sprintf("at most %s locked where the driver heeds `ulimit -l`", bytesText(info.Host.Lockable))
	}
	fmt.Fprintf(w, "pinned\tall batches, within --memory or --pinned; the machine has %s, and %s\n", bytesText(info.Host.Memory), lockable)
	for _, v := range info.Devices {
		fmt.Fprintf(w, "GPU %d\t%s, compute capability %s, %s, %d multiprocessors, %d copy engines\n",
			v.Ordinal, printable(v.Name), v.Capability, bytesText(v.Memory), v.Multiprocessors, v.CopyEngines)
		node := "no NUMA node"
		if v.NUMANode >= 0 {
			node = fmt.Sprintf("NUMA node %d", v.NUMANode)
		}
		fmt.Fprintf(w, "\t%s, PCI %s, %s\n", v.UUID, v.PCI, node)
		fmt.Fprintf(w, "\tuses: %s\n", usesText(v))
		if v.Closed != "" {
			fmt.Fprintf(w, "\t%s\n", v.Closed)
		}
		if r := v.Reading; r != nil {
			fmt.Fprintf(w, "\tnow: %s\n", readingText(r))
		}
		if j := v.JPEG; j != nil {
			fmt.Fprintf(w, "\tJPEG: %d engines, cores of each: %d; nvJPEG's backends: %s\n", j.Engines, j.Cores, backendsText(j.Backends))
		}
	}
	if info.NoNVJPEG != "" {
		fmt.Fprintf(s.err, "JPEG is decoded by the CPU alone: %s\n", info.NoNVJPEG)
	}
	if info.Unread != "" {
		fmt.Fprintf(s.err, "what the GPUs are doing is not known: %s\n", info.Unread)
	}
	return w.Flush()
}

// usesText says what of a GPU will be used.
func usesText(v gpu.DeviceInfo) string {
	var parts []string
	add := func(yes bool, text, otherwise string) {
		if !yes {
			text = otherwise
		}
		parts = append(parts, text)
	}
	add(v.CopyEngines > 0, "uploads beside kernels", "uploads that kernels wait for (no copy engine)")
	add(v.Kernels, "kernels", "no kernels, which need compute capability 7.5")
	add(v.Shares, "batches for other processes by files", "no batches for other processes (the driver cannot share memory by files)")
	if len(v.Peers) > 0 {
		text := "reaches GPU"
		for _, p := range v.Peers {
			text += fmt.Sprintf(" %d", p)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// readingText leaves out what the card does not tell.
func readingText(r *gpu.Reading) string {
	text := ""
	add := func(known bool, format string, args ...any) {
		if !known {
			return
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf(format, args...)
	}
	add(r.Used >= 0, "%s used", bytesText(r.Used))
	add(r.Busy >= 0, "%d%% busy", r.Busy)
	add(r.Power >= 0 && r.PowerLimit >= 0, "%.0f of %.0f W", float64(r.Power)/1000, float64(r.PowerLimit)/1000)
	add(r.Temperature >= 0, "%d °C", r.Temperature)
	add(r.LinkGeneration >= 0 && r.LinkWidth >= 0, "PCIe %d.0 x%d", r.LinkGeneration, r.LinkWidth)
	return text
}

func backendsText(all []gpu.Backend) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, b := range all {
		names = append(names, string(b))
	}
	return strings.Join(names, ", ")
}
