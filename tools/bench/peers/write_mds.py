"""MosaicML Streaming's MDSWriter: see writing.py. Its encoding "jpeg" of an image that Pillow
has opened, and not decoded, keeps the file's bytes."""

from PIL import Image
from streaming import MDSWriter

import writing


def write(src, dst, shard_bytes):
    with MDSWriter(out=dst, columns={"image": "jpeg", "label": "int"}, size_limit=shard_bytes, exist_ok=True) as writer:
        for path, _, label in writing.photographs(src):
            with Image.open(path) as image:
                writer.write({"image": image, "label": label})


if __name__ == "__main__":
    writing.run(write)
