"""Compares what Kornia and DALI make of a photograph with what Pillow makes, and so we.

`make compare-pixels` runs it, in three Pythons, since no environment has all three:

    pixels.py pillow PHOTOGRAPH OUT.npz     Pillow's pictures
    pixels.py kornia OUT.npz                Kornia's against them
    pixels.py dali OUT.npz                  DALI's, of its CPU operators

A line is an operation: the share of samples that are equal, and the mean and the largest
difference, in levels of 8 bits. Of rotations only the circle that both show is compared.
"""

import sys

import numpy as np

FILTERS = ("bilinear", "bicubic", "lanczos")


def pillow(photograph: str, out: str) -> None:
    from PIL import Image, ImageEnhance, ImageOps

    image = Image.open(photograph).convert("RGB")

    def hue(turn: float) -> Image.Image:
        """torchvision's adjust_hue of a PIL image."""
        h, s, v = image.convert("HSV").split()
        turned = (np.asarray(h).astype(int) + int(turn * 255)) % 256
        return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), s, v)).convert("RGB")

    pictures = {
        "image": image,
        "rotated": image.rotate(30, resample=Image.Resampling.BILINEAR),
        "brightness": ImageEnhance.Brightness(image).enhance(1.3),
        "contrast": ImageEnhance.Contrast(image).enhance(1.5),
        "saturation": ImageEnhance.Color(image).enhance(1.5),
        "hue": hue(0.1),
        "sharpness": ImageEnhance.Sharpness(image).enhance(2),
        "equalize": ImageOps.equalize(image),
        "autocontrast": ImageOps.autocontrast(image),
    }
    for name in FILTERS:
        pictures[name] = image.resize((224, 224), Image.Resampling[name.upper()])
    np.savez(out, **{name: np.asarray(picture) for name, picture in pictures.items()})


def compare(what: str, got: np.ndarray, want: np.ndarray) -> None:
    d = np.abs(got.astype(int) - want.astype(int))
    print(f"{what:45} equal {np.mean(d == 0):7.2%}  mean {d.mean():7.3f}  largest {d.max()}")


def circle(m: np.ndarray) -> np.ndarray:
    height, width = m.shape[:2]
    y, x = np.mgrid[:height, :width]
    return m[np.hypot(x - width / 2, y - height / 2) < min(width, height) / 2 - 4]


def kornia(path: str) -> None:
    import kornia
    import kornia.augmentation as aug
    import kornia.geometry.transform as geometry
    import torch
    from kornia import enhance

    want = np.load(path)
    print("kornia", kornia.__version__)
    x = torch.from_numpy(want["image"]).permute(2, 0, 1)[None].float() / 255

    def bytes_of(t: torch.Tensor, cut: bool = False) -> np.ndarray:
        t = t[0].permute(1, 2, 0).clamp(0, 1) * 255
        return (t if cut else t.round()).byte().numpy()

    for name in FILTERS[:2]:
        for antialias in (False, True):
            got = geometry.resize(x, (224, 224), interpolation=name, antialias=antialias)
            compare(f"resize {name}, antialias={antialias}", bytes_of(got), want[name])
    turned = geometry.rotate(x, torch.tensor([30.0]))
    compare("rotate, rounded", circle(bytes_of(turned)), circle(want["rotated"]))
    compare("rotate, cut", circle(bytes_of(turned, cut=True)), circle(want["rotated"]))
    jitter = {"brightness": 1.3, "contrast": 1.5, "saturation": 1.5, "hue": 0.1}
    for cls in (aug.ColorJitter, aug.ColorJiggle):
        for name, value in jitter.items():
            got = cls(**{name: (value, value)})(x)
            compare(f"{cls.__name__} {name}", bytes_of(got), want[name])
    compare("sharpness", bytes_of(enhance.sharpness(x, 2.0)), want["sharpness"])
    compare("equalize", bytes_of(enhance.equalize(x)), want["equalize"])
    compare("normalize_min_max", bytes_of(enhance.normalize_min_max(x)), want["autocontrast"])
    ramp = torch.arange(8.0).view(1, 1, 1, 8).repeat(1, 1, 8, 1)
    move = torch.tensor([[[1.0, 0, 3], [0, 1, 0]]])
    for mode in ("zeros", "border", "reflection"):
        for align in (True, False):
            got = geometry.warp_affine(ramp, move, (8, 8), padding_mode=mode, align_corners=align)
            print(
                f"0 … 7 moved by 3, {mode}, align_corners={align}:",
                *got[0, 0, 4].round().int().tolist(),
            )


def dali(path: str) -> None:
    from nvidia import dali
    from nvidia.dali import fn, types

    want = np.load(path)
    print("DALI", dali.__version__)

    def run(op, image: np.ndarray) -> np.ndarray:
        @dali.pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def pipeline():
            return op(fn.external_source(lambda: [image], layout="HWC"))

        p = pipeline()
        p.build()
        return np.array(p.run()[0].at(0))

    image = want["image"]
    kinds = (types.INTERP_LINEAR, types.INTERP_CUBIC, types.INTERP_LANCZOS3)
    for name, kind in zip(FILTERS, kinds, strict=True):
        for antialias in (False, True):
            got = run(
                lambda i: fn.resize(i, size=[224, 224], interp_type=kind, antialias=antialias),
                image,
            )
            compare(f"resize {name}, antialias={antialias}", got, want[name])
    got = run(lambda i: fn.rotate(i, angle=30.0, keep_size=True, fill_value=0), image)
    compare("rotate", circle(got), circle(want["rotated"]))
    compare(
        "brightness", run(lambda i: fn.brightness(i, brightness=1.3), image), want["brightness"]
    )
    compare("contrast", run(lambda i: fn.contrast(i, contrast=1.5), image), want["contrast"])
    compare(
        "saturation", run(lambda i: fn.saturation(i, saturation=1.5), image), want["saturation"]
    )
    compare("hue", run(lambda i: fn.hue(i, hue=36.0), image), want["hue"])
    ramp = np.tile(np.arange(8, dtype=np.uint8)[None, :, None], (8, 1, 3))
    for fill in ({}, {"fill_value": 9.0}):
        got = run(lambda i: fn.warp_affine(i, matrix=[1.0, 0, -3, 0, 1, 0], **fill), ramp)
        print(f"0 … 7 moved by 3, {fill}:", *got[4, :, 0].tolist())


if __name__ == "__main__":
    {"pillow": pillow, "kornia": kornia, "dali": dali}[sys.argv[1]](*sys.argv[2:])
