package main

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
)

// bytesText is a number of bytes for people: "1.2 GB".
func bytesText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

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
