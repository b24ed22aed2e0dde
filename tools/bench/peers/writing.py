"""What the writers have in common that `bench pack` measures, and that `bench peers` makes
its peers' data with.

A writer is a program: python write_X.py SRC DST SHARD_BYTES. SRC is a folder of class
folders of JPEG files, DST a folder that it makes. Its last line of output is the seconds
it took, without the imports."""

import os
import sys
import time

WORKERS = 2


def photographs(src):
    """Every file's path, its class's name, and the number of that, in the order of names."""
    classes = sorted(entry.name for entry in os.scandir(src) if entry.is_dir())
    for label, name in enumerate(classes):
        folder = os.path.join(src, name)
        for file in sorted(os.listdir(folder)):
            yield os.path.join(folder, file), name, label


def run(write):
    """Times write(src, dst, shard_bytes)."""
    src, dst, shard_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    start = time.perf_counter()
    os.makedirs(dst)
    write(src, dst, shard_bytes)
    print(time.perf_counter() - start)
