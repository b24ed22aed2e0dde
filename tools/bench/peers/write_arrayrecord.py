"""ArrayRecordWriter, with pickled records, one in each group, as Grain's tutorial shows, and
compressed, which is its default: see writing.py."""

import os
import pickle

from array_record.python import array_record_module

import writing


def write(src, dst, shard_bytes):
    writer, written, shards = None, 0, 0
    for path, _, label in writing.photographs(src):
        with open(path, "rb") as file:
            record = pickle.dumps({"image": file.read(), "label": label})
        if writer is None or written + len(record) > shard_bytes:
            if writer is not None:
                writer.close()
            writer = array_record_module.ArrayRecordWriter(os.path.join(dst, f"train-{shards:05d}.array_record"), "group_size:1")
            written, shards = 0, shards + 1
        writer.write(record)
        written += len(record)
    if writer is not None:
        writer.close()


if __name__ == "__main__":
    writing.run(write)
