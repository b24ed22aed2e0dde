package dataset_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// unprivileged runs f without root's power over files. f must not start
// goroutines that need to be without it too.
func unprivileged(t *testing.T, f func()) {
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked, so it ends with the goroutine.
		runtime.LockOSThread()
		const nobody = 65534
		if err := unix.Setfsuid(nobody); err != nil {
			t.Errorf("setfsuid: %v", err)
			return
		}
		f()
	}()
	<-done
}
