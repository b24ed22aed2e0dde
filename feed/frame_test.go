package feed

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// Frames come back as they went out, one behind the other.
func TestFrames(t *testing.T) {
	var b []byte
	texts := []string{"{}", `{"op":"hello"}`, `{"x":"` + strings.Repeat("y", 1<<17) + `"}`}
	for i, text := range texts {
		b = append(appendHead(b, len(text), int64(i)), text...)
	}
	r := bytes.NewReader(b)
	for i, want := range texts {
		text, payload, err := readFrame(r, maxText)
		if err != nil || string(text) != want || payload != int64(i) {
			t.Errorf("frame %d: %.20q, %d, %v", i, text, payload, err)
		}
	}
	if _, _, err := readFrame(r, maxText); err != io.EOF {
		t.Errorf("behind the last frame: %v, want io.EOF", err)
	}
}

// The bytes of a frame, and everything that is none.
func TestFrameBytes(t *testing.T) {
	if got := string(appendHead(nil, 0x0102, 0x0304)); got != "\x02\x01\x00\x00\x00\x00\x00\x00\x04\x03\x00\x00\x00\x00\x00\x00" {
		t.Errorf("a head is %q", got)
	}
	for _, c := range []struct{ bytes, want string }{
		{"\x02", "within its head"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{", "after 1 of 2 bytes"},
		{"\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{}", "not 0"},
		{"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{", "a message of 1 bytes"},
		{"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a message of 0 bytes"},
		{"\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a message of 4294967295 bytes"},
		{"\x01\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a message of 67108865 bytes"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff{}", "a payload of 18446744073709551615 bytes"},
		{"GET / HTTP/1.1\r\n\r\n", "not 0"},
	} {
		_, _, err := readFrame(strings.NewReader(c.bytes), maxText)
		if !errors.Is(err, errFrame) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.bytes, err, c.want)
		}
	}
}

// A length that is only claimed takes no memory.
func TestFrameClaims(t *testing.T) {
	claim := appendHead(nil, maxText, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := readFrame(bytes.NewReader(claim), maxText); !errors.Is(err, errFrame) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 1<<20 {
		t.Errorf("%d bytes for a frame that has none", allocated)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add(append(appendHead(nil, 30, 0), `{"id":1,"op":"hello","protocol":1}`...))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, payload, err := readFrame(bytes.NewReader(data), maxFirst)
		if err != nil {
			return
		}
		if again := append(appendHead(nil, len(text), payload), text...); !bytes.Equal(again, data[:len(again)]) {
			t.Errorf("%q became %q", data, again)
		}
		if q, err := parseRequest(text); err == nil && q == nil {
			t.Error("neither a request nor an error")
		}
	})
}
