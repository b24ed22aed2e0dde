"""The transforms of the loaders that leave them to torchvision."""

import torch
from torchvision.transforms import v2

import loading


def of_tensors(floats):
    """Of uint8 tensors, as torchvision's guide to v2 recommends them."""
    return v2.Compose([v2.RandomResizedCrop(loading.SIDE, antialias=True), v2.RandomHorizontalFlip(), *normalized(floats)])


def of_pictures(floats):
    """Of Pillow's images."""
    crop, flip = v2.RandomResizedCrop(loading.SIDE), v2.RandomHorizontalFlip()
    return v2.Compose([crop, flip, v2.PILToTensor(), *normalized(floats)])


def normalized(floats):
    if not floats:
        return []
    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean=loading.MEAN, std=loading.STD)]
