package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"shardify/reader"
)

// Protocol is the version of the protocol that this package speaks.
const Protocol = 1

// Code says what kind of error an Error is.
type Code string

// The codes, all of them.
const (
	// CodeProtocol: a frame or a request that is none.
	CodeProtocol Code = "protocol"
	// CodeVersion: the client speaks another version.
	CodeVersion Code = "version"
	// CodeToken: the client's token is not the server's.
	CodeToken Code = "token"
	// CodeNotFound: data, a reader or a pass that is not there.
	CodeNotFound Code = "not_found"
	// CodeConfig: the configuration is at fault: reader.ErrConfig.
	CodeConfig Code = "config"
	// CodeState: the state does not fit: reader.ErrState.
	CodeState Code = "state"
	// CodeData: samples are damaged, and the reader's policy does not bear that.
	CodeData Code = "data"
	// CodeStore: reading failed.
	CodeStore Code = "store"
	// CodeMemory: the server's memory is lent out.
	CodeMemory Code = "memory"
	// CodeDevice: the GPU that batches are wanted on cannot be used.
	CodeDevice Code = "device"
	// CodeHeld: the client waits for a batch, and holds all that may be lent.
	CodeHeld Code = "held"
	// CodeCanceled: the server, the reader or the pass has been ended.
	CodeCanceled Code = "canceled"
	// CodeInternal: the server has a fault.
	CodeInternal Code = "internal"
)

// Error is an error as it goes over the wire. Message is complete.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Sample is the damaged sample of CodeData, where it is a single one.
	Sample *Sample `json:"sample,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Unwrap is the error of package reader that the code stands for, so that errors.Is finds
// it; nil where there is none.
func (e *Error) Unwrap() error {
	switch e.Code {
	case CodeConfig:
		return reader.ErrConfig
	case CodeState:
		return reader.ErrState
	case CodeNotFound:
		return fs.ErrNotExist
	case CodeCanceled:
		return reader.ErrClosed
	}
	return nil
}

// Sample names a damaged sample, as reader.SampleError does.
type Sample struct {
	Shard  string `json:"shard"`
	Key    string `json:"key"`
	Sample int64  `json:"sample"`
	Field  string `json:"field,omitempty"`
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
}

func sampleOf(e *reader.SampleError) *Sample {
	return &Sample{Shard: e.Shard, Key: e.Key, Sample: e.Sample, Field: e.Field, Offset: e.Offset, Reason: e.Err.Error()}
}

// errorf makes an error of a code.
func errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// wireError is what goes over the wire of an error.
func wireError(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	e := &Error{Code: CodeStore, Message: err.Error()}
	var bad *reader.SampleError
	switch {
	case errors.Is(err, reader.ErrConfig):
		e.Code = CodeConfig
	case errors.Is(err, reader.ErrState):
		e.Code = CodeState
	case errors.Is(err, reader.ErrReplaced):
		e.Code = CodeStore
	case errors.As(err, &bad):
		e.Code, e.Sample = CodeData, sampleOf(bad)
	case errors.Is(err, fs.ErrNotExist):
		e.Code = CodeNotFound
	case errors.Is(err, reader.ErrClosed), errors.Is(err, context.Canceled):
		e.Code = CodeCanceled
	}
	return e
}

// request is all that a request may have; which fields one has, Op says.
type request struct {
	ID *int64 `json:"id,omitempty"`
	Op string `json:"op"`

	Protocol int    `json:"protocol,omitempty"`
	Client   string `json:"client,omitempty"`
	Token    string `json:"token,omitempty"`

	Data   json.RawMessage `json:"data,omitempty"`
	Stream bool            `json:"stream,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
	Device string          `json:"device,omitempty"`
	// TransformOn goes with Device.
	TransformOn TransformOn `json:"transform_on,omitempty"`

	Reader  int64           `json:"reader,omitempty"`
	Epoch   *int            `json:"epoch,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	Credit  int64           `json:"credit,omitempty"`
	Samples []int64         `json:"samples,omitempty"`
	Batch   int64           `json:"batch,omitempty"`
	From    int64           `json:"from,omitempty"`
	To      *int64          `json:"to,omitempty"`
	Split   string          `json:"split,omitempty"`
	Label   string          `json:"label,omitempty"`
	Where   string          `json:"where,omitempty"`

	Pass    int64   `json:"pass,omitempty"`
	Batches []int64 `json:"batches,omitempty"`
}

// reply answers a request.
type reply struct {
	ID    int64  `json:"id"`
	OK    any    `json:"ok,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// What is in OK.
type (
	helloOK struct {
		Protocol int    `json:"protocol"`
		Server   string `json:"server"`
		PID      int    `json:"pid"`
		Inline   bool   `json:"inline"`
	}
	openOK struct {
		Reader  int64         `json:"reader"`
		Len     int64         `json:"len"`
		Samples int64         `json:"samples"`
		Config  reader.Config `json:"config"`
		Classes []string      `json:"classes"`
		Tensors []tensorInfo  `json:"tensors"`
		Device  string        `json:"device,omitempty"`
	}
	startOK struct {
		Pass    int64 `json:"pass"`
		Credit  int64 `json:"credit"`
		Batches int64 `json:"batches"`
	}
	stateOK struct {
		State reader.State `json:"state"`
	}
	readOK struct {
		Batch *batchEvent `json:"batch"`
		// The payload, as a message has it.
		size    int64
		payload func(w io.Writer) error
		sent    func()
	}
	planOK struct {
		Samples [][]int64 `json:"samples"`
	}
	tableOK struct {
		// Parquet is a whole file; Next the place to go on from, if that is not all.
		Parquet []byte `json:"parquet"`
		Next    *int64 `json:"next,omitempty"`
		sent    func()
	}
	manifestOK struct {
		Manifest any `json:"manifest"`
	}
	statsOK struct {
		Stats reader.Stats `json:"stats"`
		Bound reader.Bound `json:"bound"`
	}
	emptyOK struct{}
)

// tensorInfo says what a tensor is; At where in its slab or payload it begins.
type tensorInfo struct {
	Name  string       `json:"name"`
	DType reader.DType `json:"dtype"`
	Shape []int        `json:"shape"`
	At    *int64       `json:"at,omitempty"`
}

// event is what the server says by itself.
type (
	slabEvent struct {
		Event  string `json:"event"`
		Slab   int64  `json:"slab"`
		Bytes  int64  `json:"bytes,omitempty"`
		Device string `json:"device,omitempty"`
	}
	batchEvent struct {
		Event  string `json:"event,omitempty"`
		Pass   int64  `json:"pass"`
		Number int64  `json:"number"`
		Epoch  int    `json:"epoch"`
		Bucket int    `json:"bucket,omitempty"`
		Len    int    `json:"len"`
		Slab   int64  `json:"slab,omitempty"`
		// DeviceSlab is where the tensors lie, if not in Slab.
		DeviceSlab int64            `json:"device_slab,omitempty"`
		Bytes      int64            `json:"bytes"`
		Tensors    []tensorInfo     `json:"tensors"`
		SamplesAt  int64            `json:"samples_at"`
		KeysAt     int64            `json:"keys_at"`
		FieldsAt   map[string]int64 `json:"fields_at"`
		Bad        []*Sample        `json:"bad"`
		State      *reader.State    `json:"state,omitempty"`
	}
	heldEvent struct {
		Event    string `json:"event"`
		Pass     int64  `json:"pass"`
		Batches  int    `json:"batches"`
		Bytes    int64  `json:"bytes"`
		Released int64  `json:"released"`
	}
	endEvent struct {
		Event string `json:"event"`
		Pass  int64  `json:"pass"`
		Error *Error `json:"error,omitempty"`
	}
	errorEvent struct {
		Event string `json:"event"`
		Error *Error `json:"error"`
	}
)
