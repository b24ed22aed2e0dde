"""Writes torchvision.json: what torchvision's transforms v2 make of small images, masks
and boxes, and which parameters they draw of given random numbers. `make golden-augment`
runs it, with the versions that tools/peers/torch.txt pins.

Of every operation the SHA-256 of what it makes of a PIL image stands there, which is to
be ours; and in how many bytes, by how much at most, differs what it makes of a uint8
tensor.
"""

import base64
import hashlib
import json
import math
import pathlib

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import MixUp, RandAugment, RandomAffine, RandomCrop, RandomErasing
from torchvision.transforms.v2 import RandomResizedCrop, RandomRotation, TrivialAugmentWide
from torchvision.transforms.v2 import _augment, _auto_augment, _geometry
from torchvision.transforms.v2 import functional as F

torch.set_num_threads(1)
noise = np.random.default_rng(1)


def photograph(w, h):
    y, x = np.mgrid[0:h, 0:w]
    waves = [128 + 110 * np.sin(x / 7 + c) * np.cos(y / 9) for c in range(3)]
    a = np.stack(waves, -1) + noise.uniform(-8, 8, (h, w, 3))
    return np.clip(a, 0, 255).astype(np.uint8)


images = [photograph(48, 36), noise.integers(0, 256, (24, 33, 3), dtype=np.uint8)]
modes = {"nearest": InterpolationMode.NEAREST, "bilinear": InterpolationMode.BILINEAR}
filters = {"box": InterpolationMode.BOX, "bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC, "lanczos": InterpolationMode.LANCZOS}
fill = [9, 8, 7]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def tensor(a):
    return torch.from_numpy(a.copy()).permute(2, 0, 1)


def case(name, given, do, tensors=True):
    """Does something to all images, as PIL images and as tensors."""
    digest, pixels, apart, most, count = [], [], 0, 0, 0
    for a in images:
        pil = np.asarray(do(Image.fromarray(a)))
        digest.append(sha(pil.tobytes()))
        pixels.append(base64.b64encode(pil.tobytes()).decode())
        if tensors:
            other = do(tensor(a)).permute(1, 2, 0).numpy()
            difference = np.abs(pil.astype(int) - other)
            apart, most, count = apart + int((difference > 0).sum()), max(most, int(difference.max())), count + difference.size
    out = {"name": name, **given}
    if name == "GaussianBlur":  # rounded by the order of its sums, which the machine decides
        out["pixels"] = pixels
    else:
        out["sha256"] = digest
    if tensors:
        out |= {"bytes": count, "apart": apart, "by": most}
    return out


def op(kind, value=0.0, **more):
    return {"op": {"kind": kind, "value": value, **more}}


def operations():
    for factor in (0.0, 0.3, 1.0, 1.4, 7.0):
        for kind, do in (("Brightness", F.adjust_brightness), ("Contrast", F.adjust_contrast), ("Color", F.adjust_saturation), ("Sharpness", F.adjust_sharpness)):
            yield case(kind, op(kind, factor), lambda i: do(i, factor))
    for value in (-0.5, -0.13, 0.0, 0.2):
        yield case("Hue", op("Hue", value), lambda i: F.adjust_hue(i, value))
    yield case("Grayscale", op("Grayscale"), lambda i: F.rgb_to_grayscale(i, 3))
    yield case("Invert", op("Invert"), F.invert)
    for bits in (1, 3, 8):
        yield case("Posterize", op("Posterize", bits), lambda i: F.posterize(i, bits))
    for threshold in (0, 100.5, 255):
        yield case("Solarize", op("Solarize", threshold), lambda i: F.solarize(i, threshold))
    yield case("AutoContrast", op("AutoContrast"), F.autocontrast)
    yield case("Equalize", op("Equalize"), F.equalize)
    for k, sigma in (((3, 3), 0.4), ((7, 5), 1.3), ((23, 23), 2.0)):
        yield case("GaussianBlur", op("GaussianBlur", sigma, kernel=k), lambda i: F.gaussian_blur(i, list(k), [sigma, sigma]))
    for name, mode in modes.items():
        for angle, dx, dy, scale, shear in ((20, 2, -3, 1.2, (7, -4)), (-100, 0, 5, 0.6, (0, 0)), (0, 4, 1, 1, (0, 0)), (5, 0, 0, 1, (20, 10))):
            yield case(f"Affine, {name}", {"affine": [angle, dx, dy, scale, *shear], "interpolation": name}, lambda i: F.affine(i, angle, [dx, dy], scale, list(shear), mode, fill))
        for angle in (0, 20, 90, -133.7):
            yield case(f"Rotate, {name}", {"rotate": angle, "interpolation": name}, lambda i: F.rotate(i, angle, mode, fill=fill))
    for name, mode in filters.items():
        for h, w in ((17, 29), (60, 50), (36, 12)):
            # Tensors know neither box nor Lanczos.
            yield case(f"Resize, {name}", {"geometry": {"width": w, "height": h}, "filter": name}, lambda i: F.resize(i, [h, w], mode, antialias=True), name in ("bilinear", "bicubic"))
    crop = {"x": 3, "y": 2, "width": 21, "height": 15}
    yield case("ResizedCrop", {"geometry": {"crop": crop, "width": 16, "height": 20}, "filter": "bilinear"}, lambda i: F.resized_crop(i, 2, 3, 15, 21, [20, 16], InterpolationMode.BILINEAR, antialias=True))
    yield case("Crop", {"geometry": {"window": {"x": -2, "y": 5, "width": 60, "height": 30}}}, lambda i: F.crop(i, 5, -2, 30, 60))
    for mode in ("constant", "edge", "reflect", "symmetric"):
        yield case(f"Pad, {mode}", {"pad": [3, 4, 5, 6], "mode": mode}, lambda i: F.pad(i, [3, 4, 5, 6], fill=fill if mode == "constant" else 0, padding_mode=mode))
    yield case("HorizontalFlip", {"geometry": {"flip_x": True}}, F.horizontal_flip)
    yield case("VerticalFlip", {"geometry": {"flip_y": True}}, F.vertical_flip)
    value = torch.tensor(fill, dtype=torch.uint8).reshape(3, 1, 1)
    yield case("Erase", {"erase": {"x": 4, "y": 3, "width": 9, "height": 11}}, lambda i: F.erase(i, 3, 4, 11, 9, value))


def floats():
    """Normalize, of the first image, and MixUp, of it and its negative."""
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    one = F.to_dtype(tensor(images[0]), torch.float32, scale=True)
    normal = F.normalize(one, mean, std)
    mix = MixUp(alpha=1.0, num_classes=2)
    weight = 0.3125001
    mix._dist.sample = lambda *_: torch.tensor(weight)
    mixed, labels = mix(torch.stack([normal, -normal]), torch.tensor([0, 1]))
    return {
        "normalize": sha(normal.numpy().astype("<f4").tobytes()),
        "lambda": weight,
        "mixup": sha(mixed.numpy().astype("<f4").tobytes()),
    }


def masks():
    """Of the first image's red, whose size is 48 x 36; what a mask's pixels become."""
    mask = tv_tensors.Mask(torch.from_numpy(images[0][:, :, 0].copy()))
    given = [
        ("flip_x", {"flip_x": True}, lambda m: F.horizontal_flip(m)),
        ("flip_y", {"flip_y": True}, lambda m: F.vertical_flip(m)),
        ("crop", {"crop": {"x": 3, "y": 2, "width": 21, "height": 15}}, lambda m: F.crop(m, 2, 3, 15, 21)),
        ("pad", {"window": {"x": -3, "y": -4, "width": 56, "height": 46}}, lambda m: F.pad(m, [3, 4, 5, 6], fill=211)),
        ("halved", {"width": 24, "height": 18}, lambda m: F.resize(m, [18, 24])),
        ("odd", {"width": 31, "height": 50}, lambda m: F.resize(m, [50, 31])),
    ]
    for name, geometry, do in given:
        out = do(mask).numpy()
        yield {"name": name, "geometry": geometry, "mask": base64.b64encode(out.tobytes()).decode()}


def boxes():
    """Boxes in an image of 48 x 36, clipped as the transforms clip them."""
    start = [[1, 2, 30, 20], [-5, 3, 12, 40], [20, 10, 47, 35], [0, 0, 48, 36]]
    of = tv_tensors.BoundingBoxes(torch.tensor(start, dtype=torch.float32), format="XYXY", canvas_size=(36, 48))
    given = [
        ({"geometry": {"flip_x": True}}, F.horizontal_flip(of)),
        ({"geometry": {"flip_y": True}}, F.vertical_flip(of)),
        ({"geometry": {"width": 30, "height": 70}}, F.resize(of, [70, 30])),
        ({"geometry": {"crop": {"x": 3, "y": 2, "width": 21, "height": 15}}}, F.crop(of, 2, 3, 15, 21)),
        ({"geometry": {"window": {"x": -3, "y": -4, "width": 56, "height": 46}}}, F.pad(of, [3, 4, 5, 6])),
        ({"rotate": 20}, F.rotate(of, 20)),
        ({"affine": [20, 2, -3, 1.2, 7, -4]}, F.affine(of, 20, [2, -3], 1.2, [7, -4])),
    ]
    for what, out in given:
        yield {**what, "boxes": F.clamp_bounding_boxes(out).tolist()}
    # What torchvision clips before it maps, we do, too.
    assert F.clamp_bounding_boxes(of).shape == of.shape


def magnitudes():
    """The magnitudes of the automatic augmentations as they are handed to the operations."""
    for policy, name in ((RandAugment(), "RandAugment"), (TrivialAugmentWide(), "TrivialAugmentWide")):
        for h, w in ((224, 224), (375, 500)):
            for kind, (make, signed) in policy._AUGMENTATION_SPACE.items():
                values = make(31, h, w)
                values = [0.0] * 31 if values is None else [float(v) for v in values.expand(31)]
                if kind in ("Brightness", "Color", "Contrast", "Sharpness"):
                    values = [1.0 + v for v in values]
                elif kind == "Solarize":
                    values = [255 * v for v in values]
                elif kind in ("Posterize", "TranslateX", "TranslateY"):
                    values = [float(int(v)) for v in values]
                yield {"policy": name, "width": w, "height": h, "kind": kind, "signed": signed, "values": values}


class Stream:
    """augment.Rand."""

    def __init__(self, seed, epoch, sample):
        counter = ((sample << 64) - 1) % (1 << 256)  # numpy counts before it draws
        self.bits = np.random.Philox(key=seed | epoch << 64, counter=counter)

    def uniform(self, low, high):
        return low + (high - low) * ((int(self.bits.random_raw()) >> 11) * 2.0**-53)

    def randint(self, n):
        m = int(self.bits.random_raw()) * n
        while m % 2**64 < 2**64 % n:
            m = int(self.bits.random_raw()) * n
        return m >> 64


class Number(float):
    item = float.__float__


class Torch:
    """torch, but for its random numbers, which come from a stream, in float64."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *_):
        return self

    def uniform_(self, low, high):
        return Number(self.stream.uniform(float(low), float(high)))

    def exp(self, v):
        return Number(math.exp(v))

    def randint(self, low, high, size):
        return Number(low + self.stream.randint(high - low))


def drawn():
    """Parameters that make_params draws of the streams of seed 11, epoch 5."""
    sizes = [(500, 375), (375, 500), (640, 480), (33, 500), (500, 33), (64, 64)]
    for sample in range(60):
        w, h = sizes[sample % len(sizes)]
        blank = [torch.zeros(3, h, w, dtype=torch.uint8)]
        for name, transform in (
            ("RandomResizedCrop", RandomResizedCrop(224, antialias=True)),
            ("RandomErasing", RandomErasing()),
            ("RandomCrop", RandomCrop((32, 24))),
            ("RandomRotation", RandomRotation(30)),
            ("RandomAffine", RandomAffine(15, (0.1, 0.2), (0.8, 1.2), (-10, 10, -5, 5))),
        ):
            stream = Stream(11, 5, sample)
            if name == "RandomErasing":
                stream.bits.random_raw()  # whether to
            _geometry.torch = _augment.torch = Torch(stream)
            p = transform.make_params(blank)
            _geometry.torch = _augment.torch = torch
            if name == "RandomErasing":
                values = [0, 0, 0, 0] if p["v"] is None else [p["i"], p["j"], p["h"], p["w"]]
            elif name == "RandomResizedCrop":
                values = [p["top"], p["left"], p["height"], p["width"]]
            elif name == "RandomCrop":
                values = [p["top"], p["left"], p["height"], p["width"]]
            elif name == "RandomRotation":
                values = [p["angle"]]
            else:
                values = [p["angle"], *p["translate"], p["scale"], *p["shear"]]
            yield {"transform": name, "sample": sample, "width": w, "height": h, "values": [float(v) for v in values]}


golden = {
    "torch": torch.__version__.split("+")[0],
    "torchvision": torchvision.__version__.split("+")[0],
    "pillow": PIL.__version__,
    "images": [{"width": a.shape[1], "height": a.shape[0], "rgb": base64.b64encode(a.tobytes()).decode()} for a in images],
    "operations": list(operations()),
    "floats": floats(),
    "masks": list(masks()),
    "boxes": list(boxes()),
    "magnitudes": list(magnitudes()),
    "drawn": list(drawn()),
}
path = pathlib.Path(__file__).with_name("torchvision.json")
lines = []
for key, value in golden.items():
    if isinstance(value, list):
        value = "[\n" + ",\n".join("  " + json.dumps(v) for v in value) + "\n ]"
    else:
        value = json.dumps(value)
    lines.append(f" {json.dumps(key)}: {value}")
path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
