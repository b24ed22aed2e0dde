"""FFCV's Loader, from a .beton file: see loading.py. As its example of training on ImageNet
does it, on the CPU."""

import os

import numpy
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

import loading


def main():
    _, floats, data, epochs, check = loading.arguments()
    images = [RandomResizedCropRGBImageDecoder((loading.SIDE, loading.SIDE)), RandomHorizontalFlip()]
    if floats:
        mean, std = numpy.array(loading.MEAN_255), numpy.array(loading.STD_255)
        images.append(NormalizeImage(mean, std, numpy.float32))
    loader = Loader(
        os.path.join(data, "train.beton"),
        batch_size=loading.BATCH,
        num_workers=loading.WORKERS,
        os_cache=True,
        order=OrderOption.RANDOM,
        drop_last=False,
        pipelines={"image": [*images, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor(), Squeeze(1)]},
    )
    loading.run(lambda: iter(loader), epochs, check)


if __name__ == "__main__":
    main()
