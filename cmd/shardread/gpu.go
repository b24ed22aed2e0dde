package main

import (
	"shardify/feed"
	"shardify/gpu"
	"shardify/reader"
)

// uploader is feed.Config.Uploader: GPUs of this machine.
func uploader(device string, c reader.Config, transform bool) (feed.Uploader, error) {
	u, err := gpu.NewUploader(device, c, transform)
	if err != nil {
		return nil, err
	}
	return u, nil
}
