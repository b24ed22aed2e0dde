package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"shardify/internal/nearest"
)

// table is all transforms there are: their names in JSON, the parameter that a value
// stands for which is no object, whether that must be given, and their types.
var table = []struct {
	name, main string
	required   bool
	typ        reflect.Type
}{
	{"resize", "size", false, reflect.TypeFor[Resize]()},
	{"center_crop", "size", true, reflect.TypeFor[CenterCrop]()},
	{"random_resized_crop", "size", true, reflect.TypeFor[RandomResizedCrop]()},
	{"random_crop", "size", true, reflect.TypeFor[RandomCrop]()},
	{"pad", "padding", true, reflect.TypeFor[Pad]()},
	{"random_horizontal_flip", "p", false, reflect.TypeFor[RandomHorizontalFlip]()},
	{"random_vertical_flip", "p", false, reflect.TypeFor[RandomVerticalFlip]()},
	{"random_rotation", "degrees", true, reflect.TypeFor[RandomRotation]()},
	{"random_affine", "degrees", true, reflect.TypeFor[RandomAffine]()},
	{"color_jitter", "", false, reflect.TypeFor[ColorJitter]()},
	{"random_grayscale", "p", false, reflect.TypeFor[RandomGrayscale]()},
	{"grayscale", "", false, reflect.TypeFor[Grayscale]()},
	{"gaussian_blur", "kernel_size", false, reflect.TypeFor[GaussianBlur]()},
	{"random_erasing", "p", false, reflect.TypeFor[RandomErasing]()},
	{"rand_augment", "", false, reflect.TypeFor[RandAugment]()},
	{"trivial_augment_wide", "", false, reflect.TypeFor[TrivialAugmentWide]()},
	{"random_invert", "p", false, reflect.TypeFor[RandomInvert]()},
	{"random_posterize", "bits", true, reflect.TypeFor[RandomPosterize]()},
	{"random_solarize", "threshold", true, reflect.TypeFor[RandomSolarize]()},
	{"random_adjust_sharpness", "sharpness_factor", true, reflect.TypeFor[RandomAdjustSharpness]()},
	{"random_autocontrast", "p", false, reflect.TypeFor[RandomAutocontrast]()},
	{"random_equalize", "p", false, reflect.TypeFor[RandomEqualize]()},
	{"random_apply", "transforms", true, reflect.TypeFor[RandomApply]()},
	{"random_choice", "transforms", true, reflect.TypeFor[RandomChoice]()},
	{"normalize", "mean", true, reflect.TypeFor[Normalize]()},
}

// Names are the names of all transforms.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].name
	}
	return names
}

// nameOf returns a transform's name.
func nameOf(t Transform) (string, error) {
	if typ := reflect.TypeOf(t); typ != nil {
		for i := range table {
			if table[i].typ == typ {
				return table[i].name, nil
			}
		}
	}
	return "", fmt.Errorf("a %T is no transform; want a struct of package transform, by value", t)
}

// MarshalJSON returns a list of objects that have one name each.
func (l List) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("null"), nil
	}
	out := make([]map[string]Transform, len(l))
	for i, t := range l {
		name, err := nameOf(t)
		if err != nil {
			return nil, at(i, "", err)
		}
		out[i] = map[string]Transform{name: t}
	}
	return json.Marshal(out)
}

// UnmarshalJSON takes a list of transforms. Each is an object of one name with an object
// of parameters; a value that is none is the transform's main parameter, and a name
// alone has none. The error names every transform and parameter that is wrong.
func (l *List) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf(`%s is no list of transforms; want [{"resize": 256}, …]`, short(data))
	}
	if list == nil {
		*l = nil
		return nil
	}
	out := make(List, len(list))
	var faults []error
	for i, raw := range list {
		var name string
		var err error
		if name, out[i], err = parse(raw); err != nil {
			for _, fault := range split(err) {
				faults = append(faults, at(i, name, fault))
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	*l = out
	return nil
}

// parse reads one transform.
func parse(raw json.RawMessage) (name string, t Transform, err error) {
	params := json.RawMessage("{}")
	if json.Unmarshal(raw, &name) != nil || isNull(raw) {
		var named map[string]json.RawMessage
		if err := json.Unmarshal(raw, &named); err != nil || len(named) != 1 {
			return "", nil, fmt.Errorf(`%s; want an object with the name of one transform: {"resize": 256}`, short(raw))
		}
		for name, params = range named {
		}
	}
	for i := range table {
		if e := &table[i]; e.name == name {
			v := reflect.New(e.typ).Elem()
			if err := parameters(v, params, e.main, e.required); err != nil {
				return name, nil, err
			}
			return name, v.Interface().(Transform), nil
		}
	}
	names := Names()
	if n := nearest.Name(name, names); n != "" {
		return "", nil, fmt.Errorf("no transform %q; did you mean %q?", name, n)
	}
	return "", nil, fmt.Errorf("no transform %q; there are: %s", name, strings.Join(names, ", "))
}

// parameters reads a transform's parameters into v, a struct.
func parameters(v reflect.Value, raw json.RawMessage, main string, required bool) error {
	given := map[string]json.RawMessage{}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		if main == "" || isNull(raw) {
			return fmt.Errorf("%s; want an object of parameters: %s", short(raw), strings.Join(parameterNames(v.Type()), ", "))
		}
		if n, ok := v.Addr().Interface().(*Normalize); ok && string(bytes.TrimSpace(raw)) == `"imagenet"` {
			*n = ImageNet
			return nil
		}
		given[main] = raw
	} else if err := json.Unmarshal(raw, &given); err != nil {
		return err
	}
	var faults []error
	if _, ok := given[main]; required && !ok {
		faults = append(faults, fmt.Errorf("%s is missing", main))
	}
	names := parameterNames(v.Type())
	for i, name := range names {
		data, ok := given[name]
		if !ok {
			continue
		}
		delete(given, name)
		if err := parameter(v.Field(i), data); err != nil {
			for _, fault := range split(err) {
				faults = append(faults, fmt.Errorf("%s: %w", name, fault))
			}
		} else if name == "p" && v.Field(i).Kind() == reflect.Float64 && v.Field(i).Float() == 0 {
			faults = append(faults, errors.New("p is 0: leave the transform out"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if n := nearest.Name(name, names); n != "" {
			faults = append(faults, fmt.Errorf("no parameter %q; did you mean %q?", name, n))
			continue
		}
		faults = append(faults, fmt.Errorf("no parameter %q; there are: %s", name, strings.Join(names, ", ")))
	}
	return errors.Join(faults...)
}

// parameterNames are the names of a transform's parameters, in the order of its fields.
func parameterNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// parameter reads one value into v. Where that is a list of a certain length, the list
// must have that, and a single number stands for all.
func parameter(v reflect.Value, raw json.RawMessage) error {
	if isNull(raw) {
		return errors.New("null; want a value, or leave it out")
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if _, own := v.Addr().Interface().(json.Unmarshaler); !own && v.Kind() == reflect.Array {
		var list []json.RawMessage
		if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
			list = slices.Repeat([]json.RawMessage{raw}, v.Len())
		} else if err := json.Unmarshal(raw, &list); err != nil || len(list) != v.Len() {
			return fmt.Errorf("%s; want %d numbers, or one for all", short(raw), v.Len())
		}
		for i := range list {
			if err := parameter(v.Index(i), list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	err := json.Unmarshal(raw, v.Addr().Interface())
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && v.Kind() != reflect.Array {
		return fmt.Errorf("%s; want %s", short(raw), described(v))
	}
	return err
}

// described says in words what a parameter is.
func described(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int:
		if _, text := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); text {
			return "a name"
		}
		return "a whole number"
	case reflect.Slice:
		return "a list"
	}
	return "a value of another kind"
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// short is the beginning of what a user wrote.
func short(data []byte) string {
	const most = 40
	if data = bytes.TrimSpace(data); len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}
