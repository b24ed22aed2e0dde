package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"shardify/imaging/augment"
	"shardify/internal/nearest"
	"shardify/store/cache"
	"shardify/store/retry"
)

// DecodeConfig decodes the JSON of a Config, or of a part of one, as people write it: a name
// that is no setting is an error, with the one that was probably meant, and so is what
// stands behind it.
func DecodeConfig(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			name = strings.Trim(name, `"`)
			if n := nearest.Name(name, jsonNames()); n != "" {
				return fmt.Errorf("no setting %q; did you mean %q?", name, n)
			}
			return fmt.Errorf("no setting %q; there are: %s", name, strings.Join(jsonNames(), ", "))
		}
		return jsonFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the JSON value")
	}
	return nil
}

// jsonFault says what is wrong with JSON that somebody wrote by hand, without Go's names.
// What transforms and other settings that read their own JSON say stays as it is.
func jsonFault(err error) error {
	switch e := err.(type) { //nolint:errorlint // one that is wrapped has been explained already
	case *json.UnmarshalTypeError:
		where := ""
		if e.Field != "" {
			where = e.Field + ": "
		}
		return fmt.Errorf("%sa JSON %s stands at byte %d, where %s is wanted", where, e.Value, e.Offset, jsonKind(e.Type))
	case *json.SyntaxError:
		return fmt.Errorf("no JSON from byte %d on: %w", e.Offset, err)
	}
	switch err {
	case io.EOF:
		return errors.New("it is empty; JSON is wanted")
	case io.ErrUnexpectedEOF:
		return errors.New("the JSON stops before its end; is a bracket or a quote missing?")
	}
	return err
}

// jsonKind is what a setting of type t is in JSON.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list: [ … ]"
	case reflect.Struct, reflect.Map:
		return "an object: { … }"
	}
	return "a whole number"
}

// jsonNames are the names of Config's settings.
func jsonNames() (names []string) {
	for _, t := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[augment.MixUp](), reflect.TypeFor[retry.Config](), reflect.TypeFor[cache.Config](), reflect.TypeFor[Sampling](), reflect.TypeFor[Weight](), reflect.TypeFor[Buckets](), reflect.TypeFor[TensorSpec](), reflect.TypeFor[BoxSpec](), reflect.TypeFor[augment.BoxFilter]()} {
		for i := range t.NumField() {
			if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" && name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
