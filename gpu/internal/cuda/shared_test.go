//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// Memory that one driver has shared, another maps by the file: a second double, which knows
// nothing of the first.
func TestShare(t *testing.T) {
	here, there := double(t), double(t)
	a, b := here.context(t, 1), there.context(t, 1)
	if err := a.Sharing(); err != nil {
		t.Fatal(err)
	}
	m, f, err := a.Share(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if m.Size() != 4<<20 {
		t.Errorf("%d bytes", m.Size())
	}
	theirs, err := b.Map(f, m.Size())
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("shared"), 1000)
	got := make([]byte, len(want))
	if err := errors.Join(a.Upload(m.At()+4096, want, 0), b.Download(got, theirs.At()+4096, 0), b.Synchronize()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes came, %v", err)
	}
	// What is mapped stays when all else of it has gone.
	if err := errors.Join(f.Close(), m.Free()); err != nil {
		t.Error(err)
	}
	got = make([]byte, len(want))
	if err := b.Download(got, theirs.At()+4096, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the memory has gone with its maker, %v", err)
	}
	if free, total, err := a.MemInfo(); free != total || err != nil {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	if err := errors.Join(theirs.Free(), a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	here.clean(t)
	there.clean(t)
}

func TestShareRefused(t *testing.T) {
	d := double(t)
	c, other := d.context(t, 0), d.context(t, 1)
	if _, _, err := c.Share(2 << 30); !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "2147483648 bytes were asked for, and 1073741824 of 1073741824 are free") {
		t.Error(err)
	}
	for _, n := range []int64{0, -1} {
		if _, _, err := c.Share(n); err == nil {
			t.Errorf("%d bytes were shared", n)
		}
		if _, err := c.Map(os.Stdin, n); err == nil {
			t.Errorf("%d bytes were mapped", n)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Map(null, 2<<20); err == nil || !strings.Contains(err.Error(), "cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_VALUE") {
		t.Errorf("a file that is no memory of a card: %v", err)
	}
	m, f, err := c.Share(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Map(f, m.Size()+2<<20); err == nil {
		t.Error("more was mapped than there is")
	}
	if _, err := other.Map(f, m.Size()); err == nil {
		t.Error("another card's memory was mapped")
	}
	if err := errors.Join(null.Close(), f.Close(), m.Free()); err != nil {
		t.Error(err)
	}
	// Wherever a call fails, nothing is left.
	for _, name := range []string{"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemRelease"} {
		d.failing(name, 1, errInvalidValue)
		if _, _, err := c.Share(1); err == nil || !strings.Contains(err.Error(), name+": CUDA_ERROR_INVALID_VALUE") {
			t.Errorf("%s fails: %v", name, err)
		}
		if name == "cuMemRelease" {
			if n := d.live.call(7); n != 1 {
				t.Errorf("%d handles are left of one that could not be released", n)
			}
			continue
		}
		for _, kind := range []uintptr{7, 8, 9} {
			if n := d.live.call(kind); n != 0 {
				t.Errorf("%s fails: %d %s are left", name, n, kinds[kind])
			}
		}
	}
	if v, err := d.DeviceOf("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"); err != nil || v.Ordinal != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := d.DeviceOf("GPU-0"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
		t.Error(err)
	}
	if err := errors.Join(c.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	without, err := Open(set(t, "FAKE_CUDA_SHARES", 0))
	if err != nil {
		t.Fatal(err)
	}
	v, err := without.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = without.Retain(v); err != nil {
		t.Fatal(err)
	}
	if err := c.Sharing(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "file descriptors") {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
