package dataset_test

import (
	"reflect"
	"testing"

	"shardify/dataset"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
)

func TestDescribe(t *testing.T) {
	s := &sample.Sample{Key: "n01/x", Fields: []sample.Field{{Name: "cls", Data: []byte("3")}, {Name: "jpg", Data: []byte("123456789")}}}
	at := shard.Placement{Offset: 1024, Size: 2048, Fields: []shard.FieldPlacement{{HeaderOffset: 1024, Offset: 1536, Size: 1}, {HeaderOffset: 2048, Offset: -1, Size: 9}}}
	facts := &shard.Facts{Label: 3, LabelName: "tench", Image: 1, Format: "jpeg", Width: 500, Height: 375, Channels: 3}
	label := int64(3)
	want := index.Row{
		Key: "n01/x", Label: &label, LabelName: "tench", Offset: 1024, Size: 2048, Format: "jpeg", Width: 500, Height: 375, Orientation: 6, Channels: 3,
		Fields: []index.FieldRow{
			{Name: "cls", HeaderOffset: 1024, Offset: 1536, Size: 1, CRC32C: index.FieldChecksum([]byte("3"))},
			{Name: "jpg", HeaderOffset: 2048, Offset: -1, Size: 9, CRC32C: 0xe3069283, Path: "n01/x.JPEG"},
		},
	}
	if got := dataset.Describe(s, at, facts, 6, []string{"", "n01/x.JPEG"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// Nothing known: nothing said.
	want.Label, want.LabelName, want.Format, want.Width, want.Height, want.Orientation, want.Channels = nil, "", "", 0, 0, 0, 0
	want.Fields[1].Path = ""
	if got := dataset.Describe(s, at, &shard.Facts{Label: -1, Image: 1}, 0, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := testing.AllocsPerRun(100, func() { dataset.Describe(s, at, facts, 6, nil) }); n > 2 {
		t.Errorf("%g allocations", n)
	}
}
