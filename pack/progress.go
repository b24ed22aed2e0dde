package pack

import "sync/atomic"

// Phase is what a run is doing.
type Phase int32

// The phases, in order.
const (
	PhaseScan   Phase = iota // listing the source
	PhasePlan                // sorting, cutting into shards
	PhasePack                // writing shards
	PhaseCommit              // writing the manifest
	PhaseDone
)

func (p Phase) String() string {
	return [...]string{"scan", "plan", "pack", "commit", "done"}[p]
}

// Progress counts what a run has done. All of it may be read at any time.
type Progress struct {
	state atomic.Int32
	// Files and FileBytes count what has been listed.
	Files, FileBytes atomic.Int64
	// Shards and Samples say how many this worker has to do; SourceBytes how many
	// bytes of files they are.
	Shards, Samples, SourceBytes atomic.Int64
	// DoneShards counts the shards that are finished, found ones included;
	// DoneSamples and DoneBytes the samples and bytes of files read so far for them.
	DoneShards, DoneSamples, DoneBytes atomic.Int64
	// FoundShards counts the shards that an earlier run had finished, FoundBytes the
	// bytes of their files.
	FoundShards, FoundBytes atomic.Int64
	// Bad counts the bad samples and files met so far.
	Bad atomic.Int64
	// Converted counts the images that were converted so far, ConvertedFrom and
	// ConvertedTo their bytes before and after, Kept those that stay as they are; found
	// ones included.
	Converted, ConvertedFrom, ConvertedTo, Kept atomic.Int64
}

func (p *Progress) convert(c *Conversions) {
	p.Converted.Add(c.Converted)
	p.ConvertedFrom.Add(c.From)
	p.ConvertedTo.Add(c.To)
	p.Kept.Add(c.Kept)
}

// Phase returns what the run is doing.
func (p *Progress) Phase() Phase { return Phase(p.state.Load()) }

func (p *Progress) phase(ph Phase) { p.state.Store(int32(ph)) }
