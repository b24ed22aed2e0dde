"""Transforms are those of the engine, with its parameters and defaults."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread.transforms import TRANSFORMS, Transform

# One of each, with every parameter given and none as by default.
FULL: list[Transform] = [
    shardread.Resize((40, 50), "bicubic"),
    shardread.Resize(40, "lanczos", 90),
    shardread.CenterCrop((30, 31)),
    shardread.RandomResizedCrop(32, (0.5, 0.9), (0.8, 1.3), "box"),
    shardread.RandomCrop((8, 9), (1, 2, 3, 4), True, (1, 2, 3), "reflect"),
    shardread.Pad((1, 2), 9, "edge"),
    shardread.RandomHorizontalFlip(0.25),
    shardread.RandomVerticalFlip(0.75),
    shardread.RandomRotation((-10, 20), "bilinear", (3, 4), 9),
    shardread.RandomAffine(15, (0.1, 0.2), (0.5, 1.5), (1, 2, 3, 4), "bilinear", 7, (1, 2)),
    shardread.ColorJitter(0.4, (0.5, 1.5), 0.3, 0.1, 0.8),
    shardread.RandomGrayscale(0.2),
    shardread.Grayscale(),
    shardread.GaussianBlur((3, 5), (0.2, 1.0), 0.5),
    shardread.RandomErasing(0.3, (0.1, 0.2), (0.5, 2.0), "random"),
    shardread.RandAugment(3, 5, 21, "bilinear", 128),
    shardread.TrivialAugmentWide(21, "bilinear", (1, 2, 3)),
    shardread.RandomInvert(0.1),
    shardread.RandomPosterize(4, 0.2),
    shardread.RandomSolarize(128, 0.2),
    shardread.RandomAdjustSharpness(2, 0.2),
    shardread.RandomAutocontrast(0.2),
    shardread.RandomEqualize(0.2),
    shardread.RandomApply([shardread.RandomInvert(), {"random_equalize": 0.1}], 0.7),
    shardread.RandomChoice(["random_invert", shardread.RandomEqualize()], [1, 2]),
    shardread.Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
]


def engines(shards: Path, transforms: list[Any], **config: Any) -> list[dict[str, Any]]:
    """Return a list of transforms as the engine has read it."""
    with shardread.Loader(
        shards, split="train", batch_size=8, transform=transforms, **config
    ) as loader:
        found: list[dict[str, Any]] = loader.config["transform"]
        return found


def fault(shards: Path, transforms: list[Any]) -> str:
    with pytest.raises(shardread.ConfigError) as caught:
        engines(shards, transforms)
    return str(caught.value)


def names_in(message: str) -> list[str]:
    return re.findall(r"\w+", message.split("there are: ")[1].split("\n", maxsplit=1)[0])


def names(transforms: list[Any]) -> Iterator[str]:
    for transform in transforms:
        yield next(iter(transform.to_json()))


def test_all_transforms_of_the_engine_are_there(shards: Path) -> None:
    there = names_in(fault(shards, ["xxxxxxxx"]))
    classes = {re.sub(r"(?<!^)(?=[A-Z])", "_", c.__name__).lower(): c for c in TRANSFORMS}
    assert list(classes) == there
    assert all(getattr(shardread, c.__name__) is c for c in TRANSFORMS)
    assert set(names(FULL)) == set(there)
    # And all of their parameters.
    for name, transform in classes.items():
        message = fault(shards, [{name: {"xxxxxxxx": 1}}])
        fields = {f.name for f in dataclasses.fields(transform)}
        assert set(names_in(message[message.index('"xxxxxxxx"') :])) == fields, name


def test_parameters_arrive_as_they_were_given(shards: Path) -> None:
    for transform in FULL[:-1]:
        got = engines(shards, [transform, shardread.CenterCrop(32)])[0]
        name, parameters = next(iter(transform.to_json().items()))
        assert got.keys() == {name}
        for parameter, value in parameters.items():
            if parameter == "transforms":
                assert [next(iter(t)) for t in got[name][parameter]] == [
                    "random_invert",
                    "random_equalize",
                ]
                continue
            wanted, had = np.asarray(value), np.asarray(got[name][parameter])
            if parameter in {"brightness", "saturation"}:  # one number for 1 ± v
                wanted = np.asarray([1 - value, 1 + value])
            elif parameter == "hue" or (parameter == "degrees" and wanted.ndim == 0):
                wanted = np.asarray([-value, value])
            elif parameter == "padding" and wanted.shape == (2,):
                wanted = np.asarray([*value, *value])
            assert np.array_equal(*np.broadcast_arrays(wanted, had)), (name, parameter)
        for field in dataclasses.fields(transform):  # FULL is full
            if field.name != "num_output_channels" and not isinstance(transform, shardread.Resize):
                assert field.name in parameters, (name, field.name)


def test_defaults_are_the_engines(shards: Path) -> None:
    """What is left out and what is said to be the default make the same pictures."""
    needed: dict[str, Any] = {
        "size": 32, "padding": 2, "degrees": 9, "bits": 3, "threshold": 9, "sharpness_factor": 2,
        "transforms": [shardread.RandomInvert()], "mean": 0.5,
    }  # fmt: skip
    for transform in TRANSFORMS:
        fields = dataclasses.fields(transform)
        given = {
            f.name: needed[f.name]
            for f in fields
            if f.default is dataclasses.MISSING or f.name == "size"
        }
        (name,) = names([transform(**given)])
        said = {f.name: f.default for f in fields if f.default not in {dataclasses.MISSING, None}}
        if not said:
            continue
        crop: list[Any] = [] if name == "normalize" else [shardread.CenterCrop(32)]
        pictures = []
        for parameters in (
            transform(**given).to_json()[name],
            said | transform(**given).to_json()[name],
        ):
            with shardread.Loader(
                shards, split="train", batch_size=8, framework="numpy", prefetch=1,
                transform=[*crop, {name: parameters}, *crop],
            ) as loader:  # fmt: skip
                images, _ = next(iter(loader))
                pictures.append(images.tobytes())
        assert pictures[0] == pictures[1], name


def test_the_statistics_of_imagenet(shards: Path) -> None:
    crop = shardread.CenterCrop(32)
    ours = engines(shards, [crop, shardread.Normalize(shardread.IMAGENET)])
    assert ours == engines(shards, [crop, {"normalize": "imagenet"}], dtype="float32")


def test_equal_transforms_are_equal() -> None:
    for transform in FULL:
        assert pickle.loads(pickle.dumps(transform)) == transform
        assert dataclasses.replace(transform) == transform
    assert shardread.Resize([3, 4]) == shardread.Resize((3, 4))
    assert len({shardread.Resize(3), shardread.Resize(3), shardread.Resize(4)}) == 2


def test_what_torchvision_and_numpy_call_numbers() -> None:
    class InterpolationMode(Enum):
        BICUBIC = "bicubic"

    resize = shardread.Resize(np.asarray([3, 4]), InterpolationMode.BICUBIC)  # type: ignore[arg-type]
    assert resize == shardread.Resize((3, 4), "bicubic")
    assert resize.to_json() == {"resize": {"size": [3, 4], "interpolation": "bicubic"}}
