package main

import (
	"context"
	"errors"
	"io"
	"os"

	"shardify/feed"
	"shardify/imaging/transform"
	"shardify/reader"
)

var smallConfig = reader.Config{BatchSize: 3, Transform: transform.List{transform.CenterCrop{Size: transform.Size{32}}}}

// holderEnv is set in a process that attaches to the server at its value, holds a batch,
// and waits.
const holderEnv = "SHARDIFY_TEST_HOLDER"

// hold is what such a process does.
func hold(address, dir string) error {
	c, err := feed.Dial(context.Background(), "unix", address, feed.DialConfig{Name: "holder"})
	if err != nil {
		return err
	}
	r, err := c.Open(context.Background(), dir, smallConfig)
	if err != nil {
		return err
	}
	r.SetCredit(1)
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString("held\n"); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, os.Stdin)
		b.Release()
		return err
	}
	return errors.New("no batch came")
}
