package reader

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"shardify/dataset/datasettest"
)

// Images and labels are tensors of the batch's slab under these names, 64-byte aligned,
// and what Images and Labels return.
func TestTensors(t *testing.T) {
	for _, decode := range []Decode{DecodeImage, DecodeNone} {
		c := Config{BatchSize: 7, Decode: decode, Ends: EndsExact, Fields: []string{"cls"}}
		want := []string{"label int64 [7]"}
		if decode == DecodeImage {
			c.Transform = crop
			want = append([]string{"image uint8 [7 3 24 24]"}, want...)
		}
		r := newReader(t, small(t, datasettest.Options{}), c)
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range b.Tensors() {
				got = append(got, fmt.Sprint(x.Name, " ", x.DType, " ", x.Shape))
				if at := reflect.ValueOf(x.Data).Pointer(); at%64 != 0 {
					t.Errorf("%s at %#x", x.Name, at)
				}
				if same, ok := b.Tensor(x.Name); !ok || !reflect.DeepEqual(same, x) {
					t.Errorf("Tensor(%q) is %+v, %v", x.Name, same, ok)
				}
			}
			if b.Len() == 7 && !slices.Equal(got, want) {
				t.Errorf("tensors are %q, want %q", got, want)
			}
			images, ok := b.Tensor("image")
			if ok != (decode == DecodeImage) || !bytes.Equal(images.Data, b.Images().Data) {
				t.Errorf("image: %v", ok)
			}
			labels, _ := b.Tensor("label")
			for i, n := range b.Samples() {
				if labels.Int64()[i] != datasettest.Sample(int(n), 5).Label || b.Labels()[i] != labels.Int64()[i] {
					t.Errorf("sample %d has label %d", n, labels.Int64()[i])
				}
			}
			if _, ok := b.Tensor("cls"); ok {
				t.Error("a field that is no tensor is one")
			}
			b.Release()
		}
	}
}
