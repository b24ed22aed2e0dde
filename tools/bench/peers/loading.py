"""What the loaders that `bench peers` measures have in common.

A loader is a program: python load_X.py KIND DTYPE DATA EPOCHS [check]. DATA is a folder of
class folders, or one of what peers/write_X.py makes of that. It makes batches of 256 random
crops, 224 x 224 pixels, flipped at random, with two workers or threads. DTYPE is uint8, or
float32 normalised with ImageNet's mean and deviation. It says

    start                 before it asks for the first batch
    first                 when it has it
    epoch SECONDS IMAGES  after each epoch

With check it goes through one epoch more before these, in any order, and says what it has
seen: how many images, the CRC-32 of their labels, sorted, as 8 bytes each, little endian;
and the means of red, green and blue, in bytes again where they were normalised:

    seen IMAGES CRC RED GREEN BLUE
"""

import sys
import time
import zlib

import numpy

BATCH = 256
SIDE = 224
WORKERS = 2
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
# The same of pixels from 0 to 255.
MEAN_255 = tuple(255 * m for m in MEAN)
STD_255 = tuple(255 * s for s in STD)


def arguments():
    """KIND, whether DTYPE is float32, DATA, EPOCHS, and whether to check."""
    kind, dtype, data, epochs = sys.argv[1:5]
    if dtype not in ("uint8", "float32"):
        sys.exit(f"there are no images of {dtype}")
    return kind, dtype == "float32", data, int(epochs), sys.argv[5:] == ["check"]


def see(batches):
    """Goes through an epoch of (images, labels) and says what was in it."""
    dtype = numpy.dtype(sys.argv[2])
    labels, sums, pixels = [], numpy.zeros(3), 0
    for images, of in batches:
        images = numpy.asarray(images)
        if images.dtype != dtype:
            sys.exit(f"the images are {images.dtype}")
        # NCHW or NHWC
        axes = (0, 2, 3) if images.shape[1:] == (3, SIDE, SIDE) else (0, 1, 2)
        if axes == (0, 1, 2) and images.shape[1:] != (SIDE, SIDE, 3):
            sys.exit(f"the images are {images.shape}")
        sums += images.sum(axis=axes, dtype=numpy.int64 if dtype == numpy.uint8 else numpy.float64)
        pixels += images.size // 3
        labels.extend(int(label) for label in of)
    means = sums / pixels
    if dtype != numpy.uint8:
        means = means * STD_255 + MEAN_255
    crc = zlib.crc32(numpy.sort(numpy.array(labels, "<i8")).tobytes())
    print("seen", len(labels), crc, *means, flush=True)


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


def parts(batches, size):
    """Of an endless iterator, whose last batch of an epoch goes on into the next one, a
    function that takes batches until there are size images."""
    stream = iter(batches)

    def epoch():
        seen = 0
        while seen < size:
            batch = next(stream)
            seen += len(batch[1])
            yield batch

    return epoch
