package main

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"shardify/reader"
	"shardify/sample/typed"
)

// npyStream writes the tensors of batches as NumPy arrays, one behind the other: the
// images, the labels, and those of --tensors, each followed by what comes with it.
type npyStream struct{ w io.Writer }

func newNpyStream(w io.Writer) batchWriter { return &npyStream{w} }

func (n *npyStream) write(b *reader.Batch) error {
	labels, others := []reader.Tensor(nil), []reader.Tensor(nil)
	for _, x := range b.Tensors() {
		switch x.Name {
		case "image", "image_offsets", "image_sizes":
			if err := writeNpy(n.w, x); err != nil {
				return err
			}
		case "label":
			labels = append(labels, x)
		case "soft_label": // says all that label and partner_label say
			labels = []reader.Tensor{x}
		case "partner_label":
		default:
			others = append(others, x)
		}
	}
	for _, x := range slices.Concat(labels, others) {
		if err := writeNpy(n.w, x); err != nil {
			return err
		}
	}
	return nil
}

func (n *npyStream) close() error { return nil }

// npzStream writes the tensors of all batches into one archive.
type npzStream struct{ w *zip.Writer }

func newNpzStream(w io.Writer) batchWriter { return &npzStream{zip.NewWriter(w)} }

func (n *npzStream) write(b *reader.Batch) error {
	for _, x := range b.Tensors() {
		w, err := n.w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("%06d/%s.npy", b.Number(), x.Name), Method: zip.Store})
		if err != nil {
			return err
		}
		if err := writeNpy(w, x); err != nil {
			return err
		}
	}
	return nil
}

func (n *npzStream) close() error { return n.w.Close() }

// bigEndian is the machine's order of bytes.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// writeNpy writes a tensor as a file of NumPy's.
func writeNpy(w io.Writer, x reader.Tensor) error {
	if _, err := w.Write(typed.AppendNPYHeader(nil, x.DType, x.Shape)); err != nil {
		return err
	}
	data := x.Data
	if size := x.DType.Size(); size > 1 && bigEndian {
		data = slices.Clone(data)
		for rest := data; len(rest) > 0; rest = rest[size:] {
			slices.Reverse(rest[:size])
		}
	}
	_, err := w.Write(data)
	return err
}
