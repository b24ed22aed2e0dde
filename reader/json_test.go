package reader

import (
	"reflect"
	"strings"
	"testing"

	"shardify/imaging/transform"
)

// A configuration in JSON is read as it is written, and what is no setting is an error that
// says what was probably meant.
func TestDecodeConfig(t *testing.T) {
	var c Config
	if err := DecodeConfig([]byte(`{"batch_size": 3, "transform": [{"center_crop": 24}], "cache": {"dir": "x"}}`), &c); err != nil {
		t.Fatal(err)
	}
	want := Config{BatchSize: 3, Transform: transform.List{transform.CenterCrop{Size: transform.Size{24}}}}
	want.Cache.Dir = "x"
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	for text, want := range map[string]string{
		`{"bath_size": 3}`:         `no setting "bath_size"; did you mean "batch_size"?`,
		`{"cache": {"folder": 3}}`: `no setting "folder"`,
		`{"Slabs": null}`:          `no setting "Slabs"`,
		`{"batch_size": "3"}`:      "batch_size: a JSON string stands at byte 18, where a whole number is wanted",
		`{"batch_size": 3`:         "stops before its end",
		`{} {}`:                    "there is more behind",
		``:                         "it is empty",
	} {
		if err := DecodeConfig([]byte(text), new(Config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
