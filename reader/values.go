package reader

import (
	"errors"
	"fmt"

	"shardify/sample/typed"
)

// value is what a tensor has of one sample.
type value struct {
	// at and room are its place in the slab, for all that its field can be.
	at, room int64
	// data is the value: in that place, or where a substitute needs more, in memory of
	// its own.
	data []byte
	// length is that of the dimension that varies.
	length int
	// padded: it is a picture that lies in its place as large as was planned for all.
	padded bool
}

// scratch is the memory in which a worker decodes fields.
type scratch struct {
	array    typed.Array
	npy      typed.NPY
	pictures pictures
}

// values makes the values of slot i of its fields. An error is of the field whose number
// is returned.
func (w *worker) values(j *job, i int, fields []extent) (field int, err error) {
	makers := j.canvas.makers
	w.pictures.had, w.pictures.kept = sized(w.pictures.had, len(makers)), sized(w.pictures.kept, len(makers))
	// Boxes first: others follow them.
	for _, boxes := range []bool{true, false} {
		for t := range makers {
			m := &makers[t]
			if (m.Kind == KindBoxes) != boxes {
				continue
			}
			v := &j.values[t*j.slots+i]
			var data []byte
			present := false
			if field = j.columns[t]; field >= 0 {
				data, present = j.content(&fields[field])
			}
			if err := w.value(j, t, v, data, present); err != nil {
				if m.Name != m.Field {
					err = fmt.Errorf("for tensor %q: %w", m.Name, err)
				}
				return field, err
			}
		}
	}
	return -1, nil
}

// content is the bytes of a field.
func (j *job) content(x *extent) (data []byte, ok bool) {
	switch {
	case x.offset == absent:
		return nil, false
	case x.data != nil:
		return x.data, true
	}
	return j.slab.data[x.at : x.at+x.size : x.at+x.size], true
}

var errNoField = errors.New("the sample lacks it; set optional where samples may")

// value makes the value of tensor t.
func (w *worker) value(j *job, t int, v *value, data []byte, present bool) (err error) {
	defer guard(&err)
	m := &j.canvas.makers[t]
	w.array.DType, w.array.Data = m.DType, j.slab.data[v.at:v.at:v.at+v.room]
	if !present {
		if !m.Optional {
			return errNoField
		}
		return w.missing(m, t, v)
	}
	err = w.decodeValue(m, t, data)
	if m.Optional && errors.Is(err, typed.ErrNotFound) {
		w.array.Data = j.slab.data[v.at : v.at : v.at+v.room]
		return w.missing(m, t, v)
	}
	if err != nil {
		return err
	}
	if m.follows >= 0 {
		if err := w.follow(m); err != nil {
			return err
		}
	}
	if v.length, err = w.array.Match(m.pattern); err != nil {
		return err
	}
	if m.PadTo > 0 && v.length > m.PadTo {
		return &typed.MismatchError{Msg: fmt.Sprintf("its length is %d, where pad_to is %d", v.length, m.PadTo)}
	}
	v.data = w.array.Data
	return nil
}

// missing makes the value of a sample that lacks the field.
func (w *worker) missing(m *maker, t int, v *value) error {
	v.data, v.length = w.array.Data, 0
	switch {
	case m.channels > 0:
		v.length = w.elements(m)
		v.data = fill(grown(v.data, int64(v.length)*m.size), m.fill)
	case m.vary < 0:
		v.data = fill(v.data[:m.unit], m.fill)
	case m.Kind == KindBoxes:
		w.pictures.had[t], w.pictures.kept[t] = 0, w.pictures.kept[t][:0]
	case m.follows >= 0 && w.pictures.had[m.follows] > 0:
		return &typed.MismatchError{Msg: fmt.Sprintf("there is none, and %d boxes", w.pictures.had[m.follows])}
	}
	return nil
}

// decodeValue decodes a field into w.array.
func (w *worker) decodeValue(m *maker, t int, data []byte) error {
	a := &w.array
	switch m.Kind {
	case KindInt:
		return a.DecodeInt(data)
	case KindFloat:
		return a.DecodeFloat(data)
	case KindText:
		if m.Path != "" {
			return a.DecodeJSONText(data, m.path)
		}
		return a.DecodeText(data)
	case KindJSON:
		return a.DecodeJSON(data, m.path)
	case KindNPY:
		return w.decodeNPY(m, a, data)
	}
	return w.otherPicture(m, t, data)
}

// decodeNPY decodes an array of NumPy's into a.
func (w *worker) decodeNPY(m *maker, a *typed.Array, data []byte) error {
	if err := w.npy.Parse(data); err != nil {
		return err
	}
	// Before its elements are converted: they could take more memory than was planned.
	a.Shape = append(a.Shape[:0], w.npy.Shape...)
	if _, err := a.Match(m.pattern); err != nil {
		return err
	}
	if m.Stored != "" && w.npy.DType.Size() < m.Stored.Size() {
		return &typed.MismatchError{Msg: fmt.Sprintf(
			"its elements are %s, narrower than the %s by which memory is planned: set stored (or dtype) to %[1]s", w.npy.DType, m.Stored)}
	}
	return a.ConvertNPY(&w.npy)
}

// fill fills data with an element.
func fill(data, element []byte) []byte {
	for n := copy(data, element); n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
	return data
}
