package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// writer makes data of others of a folder of classes: a program in peers/, of which
// peers/writing.py says how it is called, and an environment that has what it needs.
type writer struct {
	name string
	// data is what it makes, by which peerTable asks for it.
	data   string
	venv   string
	script string
	// smaller: it compresses, or encodes images again, and so may write less than it reads.
	smaller bool
}

// writerTable is all that there are, for `bench pack`, and for the peers of `bench peers`
// that read neither tar nor a folder.
var writerTable = []writer{
	{"ShardWriter, webdataset 1.0.2", "webdataset", "tensorflow", "write_webdataset.py", false},
	{"TFRecordWriter, TensorFlow 2.21.0", "tfrecord", "tensorflow", "write_tfrecord.py", false},
	{"ArrayRecordWriter, ArrayRecord 0.8.6", "arrayrecord", "grain", "write_arrayrecord.py", true},
	{"MDSWriter, MosaicML Streaming 0.13.0", "mds", "loaders", "write_mds.py", false},
	{"optimize, LitData 0.2.76", "litdata", "loaders", "write_litdata.py", false},
	{"DatasetWriter, FFCV 1.0.2", "ffcv", "ffcv", "write_ffcv.py", true},
}

// writer is how one is run.
func (b *bench) writer(w writer, src, dst string, shardBytes int64) *process {
	python, err := b.interpreter(w.venv)
	return &process{
		name: w.name, out: dst, env: b.scratch(), selfTimed: true, peer: true, failed: err,
		argv: []string{python, filepath.Join(b.root, "tools", "bench", "peers", w.script), src, dst, strconv.FormatInt(shardBytes, 10)},
	}
}

// madeData is a peer's data, or why it could not be made.
type madeData struct {
	dir    string
	failed error
}

// write makes a peer's data, and has it in the page cache.
func (b *bench) write(ctx context.Context, data, src string, shardBytes int64) (madeData, error) {
	for _, w := range writerTable {
		if w.data != data {
			continue
		}
		m := madeData{dir: filepath.Join(b.dir, data)}
		p := b.writer(w, src, m.dir, shardBytes)
		if m.failed = p.failed; m.failed == nil {
			_, m.failed = track(ctx, p.argv, p.env)
		}
		if m.failed == nil {
			_, _, m.failed = files(ctx, m.dir, true)
		}
		return m, ctx.Err()
	}
	return madeData{}, fmt.Errorf("there is no writer of %q", data)
}
