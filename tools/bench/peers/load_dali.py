"""NVIDIA DALI on the CPU, from tar shards: see loading.py. As its documentation's example
of training on ImageNet does it: the fused decoder of random crops, then resize and a
mirror, which normalises too, in threads of its own that run two batches ahead."""

import glob
import os

import numpy
from nvidia.dali import fn, pipeline_def, types

import loading


@pipeline_def(batch_size=loading.BATCH, num_threads=loading.WORKERS, device_id=None, prefetch_queue_depth=2)
def pipeline(shards, shuffle, floats):
    jpegs, labels = fn.readers.webdataset(
        paths=shards, ext=["jpg", "cls"], missing_component_behavior="error", random_shuffle=shuffle, name="reader"
    )
    images = fn.decoders.image_random_crop(
        jpegs, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
    )
    images = fn.resize(images, device="cpu", resize_x=loading.SIDE, resize_y=loading.SIDE, interp_type=types.INTERP_LINEAR)
    mirror = fn.random.coin_flip()
    if floats:
        mean, std = list(loading.MEAN_255), list(loading.STD_255)
        images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror)
    else:
        images = fn.flip(images, device="cpu", horizontal=mirror)
    return images, labels


def number(label):
    return int(bytes(label))


def main():
    _, floats, data, epochs, check = loading.arguments()
    # The last batch of an epoch goes on into the next one; to be checked, images must come
    # in order, so that those can be left out.
    pipe = pipeline(sorted(glob.glob(os.path.join(data, "*.tar"))), not check, floats)
    pipe.build()
    size = pipe.epoch_size("reader")

    def epoch():
        seen = 0
        while seen < size:
            images, labels = pipe.run()
            keep = min(len(labels), size - seen) if check else len(labels)
            seen += len(labels)
            images = images.as_tensor()
            yield numpy.asarray(images)[:keep] if check else images, [number(labels.at(i)) for i in range(keep)]

    loading.run(epoch, epochs, check)


if __name__ == "__main__":
    main()
