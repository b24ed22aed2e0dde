"""Packs a tree of class folders with webdataset's ShardWriter, as its
documentation shows: python webdataset_write.py SRC DST SHARD_BYTES
Its last line of output is the seconds it took, without the imports."""

import os
import sys
import time

import webdataset

src, dst, shard_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
start = time.perf_counter()
os.makedirs(dst)
classes = sorted(e.name for e in os.scandir(src) if e.is_dir())
pattern = os.path.join(dst, "train-%06d.tar")
with webdataset.ShardWriter(pattern, maxcount=1 << 40, maxsize=shard_bytes, verbose=0) as writer:
    for label, name in enumerate(classes):
        folder = os.path.join(src, name)
        for file in sorted(os.listdir(folder)):
            with open(os.path.join(folder, file), "rb") as f:
                data = f.read()
            writer.write({"__key__": name + "/" + file.split(".")[0], "jpg": data, "cls": label})
print(time.perf_counter() - start)
