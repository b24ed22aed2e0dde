"""Grain's Dataset API with two worker processes, from ArrayRecord shards of pickled records,
as its tutorials have them: see loading.py. Grain leaves decoding to the user: here it is
OpenCV, which of Python's common decoders is the fastest with its resizing."""

import glob
import math
import os
import pickle

import cv2
import grain
import numpy

import loading


class Crop(grain.transforms.RandomMap):
    def __init__(self, floats):
        self.floats = floats

    def random_map(self, element, rng):
        record = pickle.loads(element)
        cv2.setNumThreads(0)  # the workers are what is parallel
        image = cv2.imdecode(numpy.frombuffer(record["image"], numpy.uint8), cv2.IMREAD_COLOR_RGB)
        x, y, w, h = box(rng, image.shape[1], image.shape[0])
        image = cv2.resize(image[y : y + h, x : x + w], (loading.SIDE, loading.SIDE), interpolation=cv2.INTER_LINEAR)
        if rng.random() < 0.5:
            image = cv2.flip(image, 1)
        if self.floats:
            image = (image - numpy.float32(loading.MEAN_255)) / numpy.float32(loading.STD_255)
        return image, record["label"]


def box(rng, width, height):
    """RandomResizedCrop's, as torchvision has it."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.integers(width - w + 1), rng.integers(height - h + 1), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def dataset(data, floats, repeat):
    source = grain.sources.ArrayRecordDataSource(sorted(glob.glob(os.path.join(data, "*.array_record"))))
    records = grain.MapDataset.source(source).seed(1).shuffle()
    if repeat:
        records = records.repeat()
    batches = records.random_map(Crop(floats)).to_iter_dataset().batch(loading.BATCH)
    return len(source), batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=loading.WORKERS))


def main():
    _, floats, data, epochs, check = loading.arguments()
    if check:
        loading.see(dataset(data, floats, False)[1])
    # One iterator serves all epochs, as in a training, so that the workers start once.
    size, batches = dataset(data, floats, True)
    loading.time_epochs(loading.parts(batches, size), epochs)


if __name__ == "__main__":
    main()
