"""Contenders of `bench augment`: python augmenters.py tensors|pillow

They are torchvision's functions v2 of uint8 tensors, and of PIL images. Asked for
"WIDTH HEIGHT TIMES NAME", a contender does that to an image so many times, and answers
with the seconds of processor time of one. It works in one thread."""

import sys
import time

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

torch.set_num_threads(1)
MIXED = 8


def picture(w, h):
    y, x = np.mgrid[0:h, 0:w]
    waves = [128 + 110 * np.sin(x / 17 + c) * np.cos(y / 23) for c in range(3)]
    a = np.stack(waves, -1) + np.random.default_rng(1).uniform(-8, 8, (h, w, 3))
    return np.clip(a, 0, 255).astype(np.uint8)


def jitter(i):
    i = F.adjust_contrast(F.adjust_brightness(i, 1.3), 1.3)
    return F.adjust_hue(F.adjust_saturation(i, 0.7), 0.1)


black = torch.zeros(3, 1, 1, dtype=torch.uint8)


def normalize(i):
    return F.normalize(F.to_dtype(F.to_image(i), torch.float32, scale=True), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def mixup(batch):  # of v2.MixUp
    return batch.roll(1, 0).mul_(0.6).add_(batch.mul(0.4))


BILINEAR = InterpolationMode.BILINEAR
functions = {
    "brightness": lambda i: F.adjust_brightness(i, 1.3),
    "contrast": lambda i: F.adjust_contrast(i, 1.3),
    "saturation": lambda i: F.adjust_saturation(i, 0.7),
    "hue": lambda i: F.adjust_hue(i, 0.1),
    "all four (color_jitter)": jitter,
    "grayscale": lambda i: F.rgb_to_grayscale(i, 3),
    "invert": F.invert,
    "posterize": lambda i: F.posterize(i, 4),
    "solarize": lambda i: F.solarize(i, 128),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "sharpness": lambda i: F.adjust_sharpness(i, 1.3),
    "gaussian_blur 23, σ 1.5": lambda i: F.gaussian_blur(i, [23, 23], [1.5, 1.5]),
    "flip": F.horizontal_flip,
    "translate, nearest": lambda i: F.affine(i, 0, [15, 0], 1, [0, 0]),
    "rotate 15°, nearest": lambda i: F.rotate(i, 15),
    "rotate 15°, bilinear": lambda i: F.rotate(i, 15, BILINEAR),
    "shear, bilinear": lambda i: F.affine(i, 0, [0, 0], 1, [16.7, 0], BILINEAR, center=[0, 0]),
    "erase": lambda i: F.erase(i, 30, 40, 100, 90, black),
    "normalize, to float32 NCHW": normalize,
    "mixup, for an image": mixup,
}


def main():
    (kind,) = sys.argv[1:]
    name = f"torchvision {torchvision.__version__.split('+')[0]}, tensors"
    if kind == "pillow":
        name = f"Pillow {PIL.__version__}"
    print("ready", name, flush=True)
    for line in sys.stdin:
        w, h, times, task = line.rstrip("\n").split(" ", 3)
        w, h, times, do = int(w), int(h), int(times), functions[task]
        image = picture(w, h)
        image = Image.fromarray(image) if kind == "pillow" else torch.from_numpy(image).permute(2, 0, 1).contiguous()
        share = 1
        if do is mixup:
            image, share = torch.rand(MIXED, 3, h, w), MIXED
        start = time.process_time()
        for _ in range(times):
            do(image)
        print((time.process_time() - start) / times / share, flush=True)


main()
