"""Transforms, with the names and parameters of torchvision's v2; see docs/transforms.md.

They are descriptions: what they describe is done by the server, in the order of the list,
and drawn anew for each sample and epoch. Everywhere a transform is taken, so is its JSON:
``{"random_resized_crop": 224}`` or ``"random_horizontal_flip"``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Size = int | tuple[int, ...] | list[int]
Range = float | tuple[float, ...] | list[float]
Fill = int | tuple[int, ...] | list[int]


@dataclass(frozen=True)
class Transform:
    """The base of all transforms; equal ones compare equal, and can be hashed."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, _frozen(getattr(self, f.name)))

    def to_json(self) -> dict[str, Any]:
        """Return the transform's JSON, without the parameters that are as by default."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()
        return {name: self._parameters()}

    def _parameters(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        return {k: _plain(v) for k, v in values.items() if v != defaults[k]}


def _frozen(value: Any) -> Any:
    """Make tuples of lists, and names of torchvision's enumerations."""
    if isinstance(value, Statistics | Transform):
        return value
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    if hasattr(value, "tolist"):  # an array of NumPy's, a tensor
        return _frozen(value.tolist())
    if not isinstance(value, str) and isinstance(getattr(value, "value", None), str):
        return value.value  # InterpolationMode
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.to_json() if isinstance(value, Transform) else value


def as_json(transforms: Sequence[Transform | Mapping[str, Any] | str]) -> list[Any]:
    """Return the JSON of a list of transforms.

    Raises
    ------
    TypeError
        One of them is neither a Transform nor JSON.
    """
    if isinstance(transforms, Transform | Mapping | str) or not isinstance(transforms, Sequence):
        raise TypeError(f"transform: want a list of transforms, not {transforms!r}")
    return [_element(t) for t in transforms]


def _element(transform: Transform | Mapping[str, Any] | str) -> Any:
    if isinstance(transform, Transform):
        return transform.to_json()
    if isinstance(transform, Mapping | str):
        return dict(transform) if isinstance(transform, Mapping) else transform
    raise TypeError(
        f"transform: {transform!r} is no transform of shardread; for functions of Python, such as "
        "torchvision's or Albumentations', use shardread.Dataset in a DataLoader"
    )


class Statistics(NamedTuple):
    """Mean and standard deviation of red, green and blue, for values from 0 to 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET = Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""What models that were trained on ImageNet expect: ``Normalize(IMAGENET)``."""


@dataclass(frozen=True)
class Resize(Transform):
    """Scale to ``size``: (height, width), or one number for the shorter side.

    It is always antialiased. ``interpolation`` is "bilinear", "bicubic", "box" or
    "lanczos".
    """

    size: Size | None = None
    interpolation: Any = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Cut out the middle; what lies outside of the image is black."""

    size: Size


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Scale a part of random area and aspect ratio to ``size``."""

    size: Size
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Cut out ``size`` at a random place, of the image with ``padding`` around it."""

    size: Size
    padding: Size | None = None
    pad_if_needed: bool = False
    fill: Fill = 0
    padding_mode: str = "constant"


@dataclass(frozen=True)
class Pad(Transform):
    """Add pixels on all sides."""

    padding: Size
    fill: Fill = 0
    padding_mode: str = "constant"


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirror left and right, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Mirror top and bottom, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomRotation(Transform):
    """Turn by up to ``degrees``; ``interpolation`` is "nearest" or "bilinear"."""

    degrees: Range
    interpolation: Any = "nearest"
    center: tuple[float, float] | None = None
    fill: Fill = 0


@dataclass(frozen=True)
class RandomAffine(Transform):
    """Turn, move, scale and shear at random."""

    degrees: Range
    translate: Range | None = None
    scale: Range | None = None
    shear: Range | None = None
    interpolation: Any = "nearest"
    fill: Fill = 0
    center: tuple[float, float] | None = None


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue at random, in random order.

    A number v stands for the factors 1 ± v (``hue``: ± v). ``p`` is ours, and short for
    RandomApply.
    """

    brightness: Range = 0
    contrast: Range = 0
    saturation: Range = 0
    hue: Range = 0
    p: float = 1.0


@dataclass(frozen=True)
class RandomGrayscale(Transform):
    """Take the colours out, with probability ``p``."""

    p: float = 0.1


@dataclass(frozen=True)
class Grayscale(Transform):
    """Take the colours out; the three channels stay, and become equal."""

    num_output_channels: int = 3


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blur with a sigma drawn from a range; ``p`` is ours, and short for RandomApply."""

    kernel_size: Size = 23
    sigma: Range = (0.1, 2.0)
    p: float = 1.0


@dataclass(frozen=True)
class RandomErasing(Transform):
    """Paint over a part of random area and shape, with bytes: it stands before Normalize.

    ``value`` is one number, three, or "random".
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: Fill | str = 0


@dataclass(frozen=True)
class RandAugment(Transform):
    """Do ``num_ops`` operations drawn from a list, of the same magnitude."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: Fill = 0


@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Do one operation drawn from a list, of a magnitude that is drawn, too."""

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: Fill = 0


@dataclass(frozen=True)
class RandomInvert(Transform):
    """Make the negative, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomPosterize(Transform):
    """Keep ``bits`` bits of each channel, with probability ``p``."""

    bits: int
    p: float = 0.5


@dataclass(frozen=True)
class RandomSolarize(Transform):
    """Invert what is not below ``threshold``, with probability ``p``."""

    threshold: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomAdjustSharpness(Transform):
    """Blur (below 1) or sharpen (above), with probability ``p``."""

    sharpness_factor: float
    p: float = 0.5


@dataclass(frozen=True)
class RandomAutocontrast(Transform):
    """Stretch each channel from black to white, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomEqualize(Transform):
    """Flatten each channel's histogram, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True)
class RandomApply(Transform):
    """Do all of ``transforms``, with probability ``p``, or none."""

    transforms: Sequence[Transform | Mapping[str, Any] | str]
    p: float = 0.5


@dataclass(frozen=True)
class RandomChoice(Transform):
    """Do one of ``transforms``; ``p`` are their weights."""

    transforms: Sequence[Transform | Mapping[str, Any] | str]
    p: Sequence[float] | None = None


@dataclass(frozen=True)
class Normalize(Transform):
    """Make (v - ``mean``) / ``std`` of values from 0 to 1, as floats; it comes last."""

    mean: float | Sequence[float] | Statistics
    std: float | Sequence[float] | None = None

    def _parameters(self) -> dict[str, Any]:
        if isinstance(self.mean, Statistics):
            mean, std = self.mean
            return {"mean": list(mean), "std": list(std)}
        return super()._parameters()


def normalizes(transforms: Sequence[Any]) -> bool:
    """Whether a list of transforms, as JSON, makes floats."""
    return any(
        t == "normalize" or (isinstance(t, Mapping) and "normalize" in t) for t in transforms
    )


TRANSFORMS: tuple[type[Transform], ...] = (
    Resize,
    CenterCrop,
    RandomResizedCrop,
    RandomCrop,
    Pad,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    RandomRotation,
    RandomAffine,
    ColorJitter,
    RandomGrayscale,
    Grayscale,
    GaussianBlur,
    RandomErasing,
    RandAugment,
    TrivialAugmentWide,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomApply,
    RandomChoice,
    Normalize,
)
"""All of them, in the order of docs/transforms.md's table in Go."""
