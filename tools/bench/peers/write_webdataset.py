"""webdataset's ShardWriter, as its documentation shows: see writing.py."""

import os

import webdataset

import writing


def write(src, dst, shard_bytes):
    pattern = os.path.join(dst, "train-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=1 << 40, maxsize=shard_bytes, verbose=0) as writer:
        for path, name, label in writing.photographs(src):
            with open(path, "rb") as file:
                data = file.read()
            key = name + "/" + os.path.basename(path).split(".")[0]
            writer.write({"__key__": key, "jpg": data, "cls": label})


if __name__ == "__main__":
    writing.run(write)
