package pass

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"shardify/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An error of one entry is yielded among the others, any other error is the last.
func TestErrors(t *testing.T) {
	one := &source.EntryError{Path: "x", Err: errors.New("bad")}
	end := errors.New("the end")
	var got []string
	for e, err := range Run(t.Context(), func() []func(*Pass) {
		return []func(*Pass){func(p *Pass) {
			p.Send([]Item{{Entry: source.Entry{Path: "a"}}, {Err: one}, {Entry: source.Entry{Path: "b"}}})
			p.Send(nil)
			p.Send([]Item{{Err: end}})
			for p.Send([]Item{{Entry: source.Entry{Path: "never"}}}) {
			}
		}}
	}) {
		text := e.Path
		if err != nil {
			text = err.Error()
		}
		got = append(got, text)
	}
	if want := []string{"a", one.Error(), "b", "the end"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every range starts its goroutines anew, and a batch that was yielded is used
// again.
func TestFresh(t *testing.T) {
	starts := 0
	seq := Run(t.Context(), func() []func(*Pass) {
		starts++
		return []func(*Pass){func(p *Pass) {
			for range 100 {
				if !p.Send(append(p.Batch(), Item{Entry: source.Entry{Path: "a"}})) {
					return
				}
			}
		}}
	})
	for range 3 {
		n := 0
		for e, err := range seq {
			if err != nil || e.Path != "a" {
				t.Fatal(e.Path, err)
			}
			n++
		}
		if n != 100 {
			t.Errorf("%d entries", n)
		}
	}
	if starts != 3 {
		t.Errorf("%d starts", starts)
	}
}
