"""Reads shards with webdataset and makes training batches with Pillow, in several
processes, as a DataLoader's workers do: python webdataset_read.py SHARDS PROCESSES BATCH
Each image becomes a random crop scaled to 224 x 224, flipped at random, as torchvision's
RandomResizedCrop and RandomHorizontalFlip do it; a batch is one array of bytes, N x 3 x
224 x 224. Batches are dropped where they are made: handing them to another process, which
a DataLoader has to do, costs nothing here. Its last line of output is the seconds it took,
without the imports."""

import glob
import io
import math
import multiprocessing
import os
import random
import sys
import time

import numpy as np
import webdataset
from PIL import Image

SIDE = 224


def crop(width, height):
    """torchvision's RandomResizedCrop.get_params."""
    area = width * height
    for _ in range(10):
        target = area * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            return x, y, x + w, y + h
    side = min(width, height)
    x, y = (width - side) // 2, (height - side) // 2
    return x, y, x + side, y + side


def picture(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image = image.crop(crop(*image.size)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


def read(shards, batch, counted):
    images, count = [], 0
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        images.append(picture(sample["jpg"]))
        count += 1
        if len(images) == batch:
            np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2))
            images = []
    if images:
        np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2))
    counted.put(count)


def main():
    folder, processes, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    shards = sorted(glob.glob(os.path.join(folder, "*.tar")))
    context = multiprocessing.get_context("fork")
    counted = context.Queue()
    start = time.perf_counter()
    workers = [context.Process(target=read, args=(shards[i::processes], batch, counted)) for i in range(processes)]
    for worker in workers:
        worker.start()
    count = sum(counted.get() for _ in workers)
    for worker in workers:
        worker.join()
    print(count)
    print(time.perf_counter() - start)


main()
