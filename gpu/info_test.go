package gpu

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNUMANode(t *testing.T) {
	sys := t.TempDir()
	for pci, text := range map[string]string{"0000:1b:00.0": "1\n", "0000:1c:00.0": "-1\n", "0000:1d:00.0": "none\n"} {
		dir := filepath.Join(sys, "bus/pci/devices", pci)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "numa_node"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pci, want := range map[string]int{"0000:1B:00.0": 1, "0000:1c:00.0": -1, "0000:1d:00.0": -1, "0000:1e:00.0": -1} {
		if got := numaNode(sys, pci); got != want {
			t.Errorf("%s: node %d, want %d", pci, got, want)
		}
	}
}
