"""FFCV's DatasetWriter, in two processes, to one .beton file: see writing.py. It encodes every
image anew, at its default quality of 90; it has no way to keep a file's bytes."""

import os

from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image

import writing


class Photographs:
    def __init__(self, src):
        self.items = list(writing.photographs(src))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        path, _, label = self.items[at]
        with Image.open(path) as image:
            return image.convert("RGB"), label


def write(src, dst, _):
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    writer = DatasetWriter(os.path.join(dst, "train.beton"), fields, num_workers=writing.WORKERS)
    writer.from_indexed_dataset(Photographs(src))


if __name__ == "__main__":
    writing.run(write)
