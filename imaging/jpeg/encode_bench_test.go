package jpeg

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
)

// pictures are some of the photographs, decoded.
func pictures(b *testing.B, n int) []raster.Image {
	b.Helper()
	var d Decoder
	var ms []raster.Image
	for _, name := range photographs(b) {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		h, err := ReadHeader(data)
		if err != nil || h.Width > 640 || h.Height > 640 || h.Components != 3 {
			continue
		}
		var m raster.Image
		if err := d.Decode(data, &m, Options{}); err != nil {
			b.Fatal(err)
		}
		if ms = append(ms, m); len(ms) == n {
			break
		}
	}
	return ms
}

// BenchmarkEncode compares, in one run, what encoding photographs takes here, in the
// system's libjpeg-turbo, and in Pillow, which has one of its own. Of each image the
// least of many rounds counts, so that other work on the machine does not. The files are
// the same.
func BenchmarkEncode(b *testing.B) {
	const rounds = 15
	ms := pictures(b, 60)
	var in bytes.Buffer
	for _, m := range ms {
		fmt.Fprintf(&in, "%d %d\n", m.Width, m.Height)
		in.Write(m.Pix)
	}
	bin := filepath.Join(b.TempDir(), "encode")
	if out, err := exec.Command(peers.Program(b, "gcc"), "-O2", "-o", bin, "testdata/encode.c", "-ljpeg").CombinedOutput(); err != nil {
		b.Skipf("no libjpeg to compile with: %v\n%s", err, out)
	}
	for _, c := range []struct {
		o    EncodeOptions
		h, v string
	}{
		{EncodeOptions{Quality: 75}, "2", "2"},
		{EncodeOptions{Quality: 90}, "2", "2"},
		{EncodeOptions{Quality: 95, Subsampling: Sub444}, "1", "1"},
		{EncodeOptions{Quality: 90, Optimize: true}, "2", "2"},
	} {
		name := fmt.Sprintf("q%d,%s", c.o.Quality, c.o.Subsampling)
		optimize := "0"
		if c.o.Optimize {
			name, optimize = name+",optimize", "1"
		}
		b.Run(name, func(b *testing.B) {
			turbo := outputs(b, in.Bytes(), 2*len(ms), bin, fmt.Sprint(rounds), fmt.Sprint(c.o.Quality), c.h, c.v, optimize)
			pillow := outputs(b, in.Bytes(), 2*len(ms), peers.Python(b), "-c", `
import sys, io, time
from PIL import Image, ImageFile
ImageFile.MAXBLOCK = 1 << 24
rounds, quality, h, v, optimize = map(int, sys.argv[1:])
while line := sys.stdin.buffer.readline():
    w, hh = map(int, line.split())
    im = Image.frombytes("RGB", (w, hh), sys.stdin.buffer.read(3 * w * hh))
    best = 1e12
    for _ in range(rounds):
        b = io.BytesIO()
        t = time.perf_counter()
        im.save(b, "JPEG", quality=quality, subsampling=h * v // 2, optimize=bool(optimize))
        best = min(best, time.perf_counter() - t)
    print(best * 1e6)
    print(len(b.getvalue()), flush=True)
`, fmt.Sprint(rounds), fmt.Sprint(c.o.Quality), c.h, c.v, optimize)
			var e Encoder
			var out []byte
			var ours, theirs, pillows float64
			for b.Loop() {
				ours, theirs, pillows = 0, 0, 0
				for i := range ms {
					best := time.Hour
					for range rounds {
						start := time.Now()
						var err error
						if out, err = e.Encode(out[:0], &ms[i], c.o); err != nil {
							b.Fatal(err)
						}
						best = min(best, time.Since(start))
					}
					if len(out) != int(turbo[2*i+1]) || len(out) != int(pillow[2*i+1]) {
						b.Fatalf("%d bytes; libjpeg's file has %v, Pillow's %v", len(out), turbo[2*i+1], pillow[2*i+1])
					}
					ours, theirs, pillows = ours+float64(best)/1e3, theirs+turbo[2*i], pillows+pillow[2*i]
				}
			}
			n := float64(len(ms))
			b.ReportMetric(ours/n, "µs/image")
			b.ReportMetric(theirs/n, "turbo-µs/image")
			b.ReportMetric(pillows/n, "pillow-µs/image")
			b.ReportMetric(theirs/ours, "x-turbo")
			b.ReportMetric(pillows/ours, "x-pillow")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkTranscode compares, in one run, what it takes here to make baseline files of
// photographs, as they are and made progressive, with the system's libjpeg-turbo, and with
// verification.
func BenchmarkTranscode(b *testing.B) {
	const rounds = 7
	bin := filepath.Join(b.TempDir(), "transcode")
	if out, err := exec.Command(peers.Program(b, "gcc"), "-O2", "-o", bin, "testdata/transcode.c", "-ljpeg").CombinedOutput(); err != nil {
		b.Skipf("no libjpeg to compile with: %v\n%s", err, out)
	}
	for _, kind := range []string{"baseline", "progressive"} {
		var names []string
		var files [][]byte
		for i, name := range photographs(b) {
			if i%5 != 0 {
				continue
			}
			if kind == "progressive" {
				out, err := exec.Command(peers.Program(b, "jpegtran"), "-progressive", name).Output()
				if err != nil {
					b.Fatal(err)
				}
				name = filepath.Join(b.TempDir(), filepath.Base(name))
				if err := os.WriteFile(name, out, 0o600); err != nil {
					b.Fatal(err)
				}
			}
			data, err := os.ReadFile(name)
			if err != nil {
				b.Fatal(err)
			}
			names, files = append(names, name), append(files, data)
		}
		b.Run(kind, func(b *testing.B) {
			turbo := outputs(b, []byte(strings.Join(names, "\n")), len(names), bin, fmt.Sprint(rounds))
			var t Transcoder
			var out []byte
			var ours, verified, theirs float64
			for b.Loop() {
				ours, verified, theirs = 0, 0, 0
				for i, data := range files {
					least := [2]time.Duration{time.Hour, time.Hour}
					for range rounds {
						start := time.Now()
						var err error
						if out, err = t.Transcode(out[:0], data, TranscodeOptions{}); err != nil {
							b.Fatal(err)
						}
						middle := time.Now()
						if out, err = t.Transcode(out[:0], data, TranscodeOptions{Verify: true}); err != nil {
							b.Fatal(err)
						}
						least[0], least[1] = min(least[0], middle.Sub(start)), min(least[1], time.Since(middle))
					}
					ours, verified, theirs = ours+float64(least[0])/1e3, verified+float64(least[1])/1e3, theirs+turbo[i]
				}
			}
			n := float64(len(files))
			b.ReportMetric(ours/n, "µs/image")
			b.ReportMetric(verified/n, "verified-µs/image")
			b.ReportMetric(theirs/n, "turbo-µs/image")
			b.ReportMetric(theirs/ours, "x-turbo")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// outputs runs a program and reads the numbers it prints.
func outputs(b *testing.B, in []byte, n int, name string, args ...string) []float64 {
	b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	numbers := make([]float64, n)
	text := bytes.NewReader(out)
	for i := range numbers {
		if _, err := fmt.Fscan(text, &numbers[i]); err != nil {
			b.Fatal(err)
		}
	}
	return numbers
}
