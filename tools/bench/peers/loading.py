"""What the loaders that `bench peers` measures have in common.

A loader is a program: python load_X.py KIND DATA EPOCHS [check]. DATA is a folder of
class folders, or one of tar shards. It makes batches of 256 random crops, 224 x 224
pixels of three bytes, flipped at random, with two workers or threads, and says

    start                 before it asks for the first batch
    first                 when it has it
    epoch SECONDS IMAGES  after each epoch

With check it goes through one epoch more before these, in any order, and says what it has
seen: how many images, the CRC-32 of their labels, sorted, as 8 bytes each, little endian;
and the means of red, green and blue:

    seen IMAGES CRC RED GREEN BLUE
"""

import sys
import time
import zlib

import numpy

BATCH = 256
SIDE = 224
WORKERS = 2


def arguments():
    kind, data, epochs = sys.argv[1:4]
    return kind, data, int(epochs), sys.argv[4:] == ["check"]


def see(batches):
    """Goes through an epoch of (images, labels) and says what was in it."""
    labels, sums, pixels = [], numpy.zeros(3), 0
    for images, of in batches:
        images = numpy.asarray(images)
        if images.dtype != numpy.uint8:
            sys.exit(f"the images are {images.dtype}")
        # NCHW or NHWC
        axes = (0, 2, 3) if images.shape[1:] == (3, SIDE, SIDE) else (0, 1, 2)
        if axes == (0, 1, 2) and images.shape[1:] != (SIDE, SIDE, 3):
            sys.exit(f"the images are {images.shape}")
        sums += images.sum(axis=axes, dtype=numpy.int64)
        pixels += images.size // 3
        labels.extend(int(label) for label in of)
    crc = zlib.crc32(numpy.sort(numpy.array(labels, "<i8")).tobytes())
    print("seen", len(labels), crc, *(sums / pixels), flush=True)


def time_epochs(epoch, epochs):
    """Goes through epochs; epoch() iterates over the batches of one."""
    print("start", flush=True)
    first = True
    for _ in range(epochs):
        count, start = 0, time.perf_counter()
        for images, labels in epoch():
            if first:
                print("first", flush=True)
                first = False
            count += len(labels)
        print("epoch", time.perf_counter() - start, count, flush=True)


def run(epoch, epochs, check):
    if check:
        see(epoch())
    time_epochs(epoch, epochs)
