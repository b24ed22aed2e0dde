package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"shardify/reader"
)

// stateOptions are where to go on, and where to note how far one has come.
type stateOptions struct {
	resume, out string
	// state is that in the file resume.
	state *reader.State
}

func (o *stateOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.resume, "resume", "", "go on from the state in this file, as --state-out writes it; the settings of the order that are not given come from it")
	f.StringVar(&o.out, "state-out", "", "keep the state behind the last batch in this file, anew every second and at the end, however that comes")
}

// load reads the state.
func (o *stateOptions) load() error {
	if o.resume == "" {
		return nil
	}
	f, err := os.Open(o.resume)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	s, err := reader.ParseState(data)
	if err != nil {
		return fmt.Errorf("--resume %s: %w", o.resume, err)
	}
	o.state = &s
	return nil
}

// start is the state where the command begins: that of the file, or a batch of an
// epoch.
func (o *stateOptions) start(r batches, epoch int, batch int64) (reader.State, error) {
	if o.state == nil {
		return r.State(epoch, batch)
	}
	if err := r.CheckState(*o.state); err != nil {
		return reader.State{}, usage(fmt.Errorf("--resume %s: %w", o.resume, err))
	}
	return *o.state, nil
}

// exclude reports flags that say otherwise than --resume where to begin.
func (o *stateOptions) exclude(f *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if o.resume != "" && f.Changed(name) {
			return usagef("--%s: --resume says where to begin; give one of them", name)
		}
	}
	return nil
}

// stateFile keeps a state in a file. With an empty name it does nothing.
type stateFile struct {
	name string
	// flush makes visible what the state says is done; it may be nil.
	flush   func() error
	written time.Time
	state   reader.State
	dirty   bool
}

// stateInterval is how old the state in the file may be.
const stateInterval = time.Second

// begin writes the state where the command begins.
func (o *stateOptions) begin(s reader.State, flush func() error) (*stateFile, error) {
	f := &stateFile{name: o.out, flush: flush, state: s, dirty: o.out != ""}
	err := f.end(nil)
	return f, err
}

// done notes that everything before s is done.
func (f *stateFile) done(s reader.State) error {
	f.state, f.dirty = s, f.name != ""
	if f.dirty && time.Since(f.written) >= stateInterval {
		return f.end(nil)
	}
	return nil
}

// end writes the last state; err is why the command ends.
func (f *stateFile) end(err error) error {
	if !f.dirty {
		return err
	}
	if f.flush != nil {
		if e := f.flush(); e != nil {
			return errors.Join(err, e)
		}
	}
	if e := writeState(f.name, f.state); e != nil {
		return errors.Join(err, fmt.Errorf("--state-out: %w", e))
	}
	f.written, f.dirty = time.Now(), false
	return err
}

// writeState replaces the file in one step, so that a killed process leaves the old
// state or the new one.
func writeState(name string, s reader.State) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".tmp-"+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		// The first error says why; the file is only litter.
		_ = os.Remove(f.Name())
	}
	return err
}
