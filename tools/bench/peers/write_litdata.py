"""LitData's optimize, in two processes: see writing.py. Its Image of a path
keeps the file's bytes."""

import litdata

import writing


def sample(item):
    path, _, label = item
    return {"image": litdata.Image(path=path), "label": label}


def write(src, dst, shard_bytes):
    items = list(writing.photographs(src))
    litdata.optimize(fn=sample, inputs=items, output_dir=dst, num_workers=writing.WORKERS, chunk_bytes=shard_bytes)


if __name__ == "__main__":
    writing.run(write)
