package dataset_test

import (
	"context"
	"fmt"
	"log"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/store/mem"
)

func Example() {
	ctx := context.Background()
	st := mem.New() // or the store that store/open finds for a path or URL
	if _, err := datasettest.Make(st, datasettest.Options{}); err != nil {
		log.Fatal(err)
	}

	d, err := dataset.Open(ctx, st)
	if err != nil {
		log.Fatal(err)
	}
	for s, err := range d.Select(ctx, dataset.Selection{Label: "class-002", Where: "width > 70"}) {
		if err != nil {
			log.Fatal(err)
		}
		jpg, err := d.ReadField(ctx, s.Shard, s.Row, s.Row.Field("jpg"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.Row.Key, s.Row.Width, s.Row.Height, len(jpg))
	}
	// Output:
	// class-002/img_000007 78 74 4441
	// class-002/img_000017 76 55 3474
}

func ExampleVerify() {
	ctx := context.Background()
	st := mem.New()
	d, err := datasettest.Make(st, datasettest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := st.Remove(ctx, "train-000001.tar"); err != nil {
		log.Fatal(err)
	}
	result, err := dataset.Verify(ctx, d, dataset.VerifyOptions{}, func(p dataset.Problem) {
		fmt.Println(p.Kind, p.File, p.Samples)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Problems, "problem,", result.Samples, "samples checked")
	// Output:
	// missing train-000001.tar 10
	// 1 problem, 20 samples checked
}
