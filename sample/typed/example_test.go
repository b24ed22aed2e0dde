package typed_test

import (
	"fmt"

	"shardify/sample/typed"
)

// The boxes of all objects of an annotation, in one array.
func ExampleArray_DecodeJSON() {
	field := []byte(`{"objects": [
		{"category_id": 3, "bbox": [10, 20, 30.5, 40]},
		{"category_id": 1, "bbox": [0, 0, 5, 8]}
	]}`)
	path, err := typed.ParsePath("/objects/*/bbox")
	if err != nil {
		panic(err)
	}
	a := typed.Array{DType: typed.Float32}
	if err := a.DecodeJSON(field, path); err != nil {
		fmt.Println(err)
		return
	}
	boxes, _ := typed.As[float32](a.DType, a.Data)
	fmt.Println(a.Shape, boxes)

	a.DType = typed.Uint8
	fmt.Println(a.DecodeJSON(field, path))
	// Output:
	// [2 4] [10 20 30.5 40 0 0 5 8]
	// at /objects/*/bbox: 30.5 does not fit uint8
}
