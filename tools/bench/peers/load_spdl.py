"""SPDL, from a folder of class folders: see loading.py. As its example of preprocessing in
threads does it: FFmpeg decodes, crops and resizes each image in a filter, frames become
one batch, which PyTorch normalises. It decodes the whole image."""

import glob
import math
import os
import random

import spdl.io
from spdl.pipeline import PipelineBuilder
from torchvision.transforms import Normalize

import loading


def box(width, height):
    """RandomResizedCrop's, as torchvision has it."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return w, h, random.randint(0, width - w), random.randint(0, height - h)
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return w, h, (width - w) // 2, (height - h) // 2


def decode(item):
    path, label = item
    packets = spdl.io.demux_image(path)
    w, h, x, y = box(packets.width, packets.height)
    steps = [f"crop={w}:{h}:{x}:{y}", f"scale={loading.SIDE}:{loading.SIDE}:flags=bilinear", "format=rgb24"]
    if random.random() < 0.5:
        steps.insert(2, "hflip")
    return spdl.io.decode_packets(packets, filter_desc=",".join(steps)), label


def convert(items):
    frames, labels = zip(*items, strict=True)
    return spdl.io.to_torch(spdl.io.convert_frames(frames)).permute(0, 3, 1, 2), labels


def main():
    _, floats, data, epochs, check = loading.arguments()
    classes = sorted(entry.name for entry in os.scandir(data) if entry.is_dir())
    items = [(path, label) for label, name in enumerate(classes) for path in glob.glob(os.path.join(data, name, "*"))]
    normalize = Normalize(mean=loading.MEAN, std=loading.STD)

    def epoch():
        random.shuffle(items)
        builder = (
            PipelineBuilder()
            .add_source(items)
            .pipe(decode, concurrency=loading.WORKERS)
            .aggregate(loading.BATCH)
            .pipe(convert)
        )
        if floats:
            builder.pipe(lambda batch: (normalize(batch[0].float() / 255), batch[1]))
        pipeline = builder.add_sink(loading.WORKERS).build(num_threads=loading.WORKERS)
        with pipeline.auto_stop():
            yield from pipeline

    loading.run(epoch, epochs, check)


if __name__ == "__main__":
    main()
