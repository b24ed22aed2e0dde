package simd

import (
	"os"
	"os/exec"
	"testing"
)

// GODEBUG takes levels away; a process of its own sees it.
func TestSwitches(t *testing.T) {
	if want := os.Getenv("WANT_AT_MOST"); want != "" {
		if got := Best().String(); got != want && got != Generic.String() {
			t.Errorf("best is %v; want at most %v", got, want)
		}
		return
	}
	if n := len(All()); All()[0] != Generic || All()[n-1] != Best() {
		t.Errorf("%v does not go from generic to %v", All(), Best())
	}
	for godebug, want := range map[string]string{"cpu.avx512f=off": "AVX2", "cpu.avx2=off": "generic"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSwitches$")
		cmd.Env = append(os.Environ(), "GODEBUG="+godebug, "WANT_AT_MOST="+want)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GODEBUG=%s: %v\n%s", godebug, err, out)
		}
	}
}
