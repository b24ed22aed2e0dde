"""What a loader is told: reader.Config of docs/reader.md, by the same names.

Everything may be left out. What is a dataclass here may as well be given as its JSON, a
mapping. What is wrong with values is said by the server, all at once.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from shardread import transforms
from shardread.errors import ConfigError

DType = Literal[
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64",
]  # fmt: skip
JSON = Mapping[str, Any]


@dataclass(frozen=True)
class Weight:
    """How often samples come in an epoch that fulfil a condition; 2 is twice."""

    weight: float
    where: str | None = None


@dataclass(frozen=True)
class Sampling:
    """Which samples an epoch has, and how often.

    Parameters
    ----------
    where
        A condition on the index: ``"width >= 500 and label_name like 'n02%'"``.
    labels
        Classes, by names or numbers.
    keys
        Keys of samples.
    weights
        The first whose condition a sample fulfils is its weight.
    key_weights
        Weights by key, which go before those.
    shares
        Of several data sets, how much of an epoch each has.
    balanced
        All classes come equally often.
    samples
        The length of an epoch, of all ranks.
    distinct
        No sample comes twice in an epoch.
    """

    where: str | None = None
    labels: Sequence[str | int] | None = None
    keys: Sequence[str] | None = None
    weights: Sequence[Weight | JSON] | None = None
    key_weights: Mapping[str, float] | None = None
    shares: Sequence[float] | None = None
    balanced: bool | None = None
    samples: int | None = None
    distinct: bool | None = None

    def _plain(self) -> dict[str, Any]:
        values = _fields(self)
        if "labels" in values:
            values["labels"] = [str(label) for label in values["labels"]]
        return values


@dataclass(frozen=True)
class Buckets:
    """Batches of samples that are alike: by ``"width / height"``, ``"txt.size"``, ….

    Parameters
    ----------
    by
        An expression of the index's columns.
    edges
        The values at which a bucket ends and the next one begins.
    sizes
        Heights and widths of the images of each bucket.
    """

    by: str | None = None
    edges: Sequence[float] | None = None
    sizes: Sequence[int | Sequence[int]] | None = None


@dataclass(frozen=True)
class Boxes:
    """How boxes are written: formats "xyxy", "xywh", "cxcywh", units "pixels", "fractions".

    ``min_size``, ``min_area`` and ``min_visibility`` drop boxes of which the transforms
    have left too little.
    """

    format: Literal["xyxy", "xywh", "cxcywh"] | None = None
    unit: Literal["pixels", "fractions"] | None = None
    to_format: Literal["xyxy", "xywh", "cxcywh"] | None = None
    to_unit: Literal["pixels", "fractions"] | None = None
    min_size: float | None = None
    min_area: float | None = None
    min_visibility: float | None = None


@dataclass(frozen=True)
class Tensor:
    """What tensor of every batch is made of a field of its samples; see docs/reader.md.

    Parameters
    ----------
    field
        The field: ``"json"``, ``"txt"``, ``"seg.png"``.
    name
        The tensor's; by default the field's.
    kind
        How the field is decoded; by default its name says.
    path
        Where in a JSON document the value is: ``"/objects/*/bbox"``.
    dtype
        The type of the elements.
    shape
        Of one sample's value, for json and npy; -1 where it varies.
    collate
        How values of different lengths are put together; "pad" by default.
    pad_to
        The length of what is padded; by default the longest of the batch.
    fill
        The value of padding, and of samples that lack the field.
    optional
        A sample may lack the field.
    stored
        Of npy that varies: the narrowest type of the files.
    boxes
        How boxes are written.
    follows
        The tensor of boxes whose choice this one's values follow.
    """

    field: str
    name: str | None = None
    kind: Literal["int", "float", "text", "json", "npy", "image", "mask", "boxes"] | None = None
    path: str | None = None
    dtype: DType | None = None
    shape: Sequence[int] | None = None
    collate: Literal["stack", "pad", "ragged"] | None = None
    pad_to: int | None = None
    fill: float | None = None
    optional: bool | None = None
    stored: DType | None = None
    boxes: Boxes | JSON | None = None
    follows: str | None = None


@dataclass(frozen=True)
class MixUp:
    """torchvision's: images of a batch, and their labels, are blended with each other."""

    alpha: float = 1.0


@dataclass(frozen=True)
class CutMix:
    """torchvision's: parts of the images of a batch are pasted into each other."""

    alpha: float = 1.0


@dataclass(frozen=True)
class Retry:
    """How often operations of the store are tried again.

    Times are in seconds, or texts with their unit: ``"500ms"``.
    """

    attempts: int | None = None
    timeout: float | str | datetime.timedelta | None = None
    backoff: float | str | datetime.timedelta | None = None
    max_backoff: float | str | datetime.timedelta | None = None
    hedge: float | str | datetime.timedelta | None = None
    reads: int | None = None

    def _plain(self) -> dict[str, Any]:
        times = {"timeout", "backoff", "max_backoff", "hedge"}
        return {k: _time(v) if k in times else v for k, v in _fields(self).items()}


@dataclass(frozen=True)
class Cache:
    """A folder on a local disk that keeps what is read of a remote or slow store."""

    dir: str | os.PathLike[str]
    max_bytes: int | str | None = None
    block: int | str | None = None

    def _plain(self) -> dict[str, Any]:
        values = _fields(self)
        for name in {"max_bytes", "block"} & values.keys():
            values[name] = size_of(values[name], f"cache: {name}")
        return values


class Config(TypedDict, total=False):
    """The settings of reader.Config; None is the default of each.

    docs/python.md has them in a table. ``shuffle`` takes True and False, too, as a
    DataLoader does; bytes are numbers or texts like "4GiB".
    """

    split: str | None
    sampling: Sampling | JSON | None
    buckets: Buckets | JSON | None
    batch_size: int | None
    seed: int | None
    shuffle: Literal["none", "shards", "window", "global"] | bool | None
    window: int | None
    window_bytes: int | str | None
    lanes: int | None
    interleave: int | None
    block: int | None
    ends: Literal["drop", "pad", "exact"] | None
    world: int | None
    rank: int | None
    decode: Literal["image", "none"] | None
    transform: Sequence[transforms.Transform | JSON | str] | None
    collate: Literal["stack", "ragged", "pad"] | None
    pad_to: int | Sequence[int] | None
    fill: float | None
    dtype: Literal["uint8", "float32", "float16", "bfloat16"] | None
    layout: Literal["NCHW", "NHWC"] | None
    mixup: MixUp | float | JSON | None
    cutmix: CutMix | float | JSON | None
    classes: int | None
    fields: Sequence[str] | None
    tensors: Sequence[Tensor | JSON | str] | None
    on_bad: Literal["fail", "skip", "substitute"] | None
    max_bad: int | None
    max_pixels: int | None
    skip_checksums: bool | None
    retry: Retry | JSON | None
    cache: Cache | str | os.PathLike[str] | JSON | None
    read_ahead: int | str | None
    seek: Literal["auto", "on", "off"] | None
    workers: int | None
    memory: int | str | None


NAMES = tuple(Config.__annotations__)
"""The names of all settings."""

# What those who come from torch's DataLoader may look for.
_ELSEWHERE = {
    "collate_fn": "shardread.Dataset in a DataLoader does Python's part",
    "drop_last": 'ends="drop", the default, or ends="exact"',
    "generator": "seed=",
    "num_workers": "workers=",
    "persistent_workers": "the server stays",
    "prefetch_factor": "prefetch=",
    "sampler": "sampling=, world= and rank=",
    "timeout": "retry=shardread.Retry(timeout=…)",
    "transforms": "transform=",
    "world_size": "world=",
}


def check_names(given: Iterable[str], what: str, more: Iterable[str] = ()) -> None:
    """Make sure that settings exist.

    Raises
    ------
    TypeError
        One does not; the message proposes another.
    """
    known = [*NAMES, *more]
    for name in given:
        if name in known:
            continue
        if name in _ELSEWHERE:
            hint = f"; instead: {_ELSEWHERE[name]}"
        elif near := difflib.get_close_matches(name, known, n=1):
            hint = f"; did you mean {near[0]!r}?"
        else:
            hint = f"; there are: {', '.join(known)}"
        raise TypeError(f"{what} has no argument {name!r}{hint}")


def as_json(config: Config) -> dict[str, Any]:
    """Return the JSON of settings that :func:`check_names` has seen.

    With a Normalize among the transforms, ``dtype`` is float32 by default.
    """
    out: dict[str, Any] = {}
    for name, value in config.items():
        if value is not None:
            out[name] = _setting(name, value)
    if "dtype" not in out and transforms.normalizes(out.get("transform", ())):
        out["dtype"] = "float32"
    return out


def _setting(name: str, value: Any) -> Any:
    match name:
        case "transform":
            return transforms.as_json(value)
        case "shuffle" if value is False:
            return "none"
        case "shuffle" if value is True:
            return ""
        case "mixup" | "cutmix" if isinstance(value, int | float):
            return {"alpha": float(value)}
        case "cache" if isinstance(value, str | os.PathLike):
            return plain(Cache(value))
        case "memory" | "read_ahead" | "window_bytes":
            return size_of(value, name)
        case "tensors":
            return [{"field": t} if isinstance(t, str) else plain(t) for t in _list(name, value)]
        case "fields":
            return _list(name, value)
    return plain(value)


def _list(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: want a list, not {value!r}")
    return list(value)


def plain(value: Any) -> Any:
    """Return what JSON can say of a value: of a dataclass of this module, of a path."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = getattr(value, "_plain", None)
        return plain(own() if own is not None else _fields(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # of NumPy
        return value.tolist()
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(v) for v in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that were given."""
    found = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {k: v for k, v in found.items() if v is not None}


def _time(value: float | str | datetime.timedelta) -> str | int:
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, str) or value == -1:
        return int(value) if value == -1 else str(value)
    return f"{value:.9f}s"


_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", 1):
    _UNITS |= {_letter: 1000**_power, f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power}


def size_of(value: int | str, name: str) -> int:
    """Return a number of bytes, which may be a text like "4GiB" or "500MB".

    Raises
    ------
    ConfigError
        It is no size.
    """
    if not isinstance(value, str):
        return int(value)
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", value)
    try:
        if match is None or (unit := _UNITS.get(match[2].lower())) is None:
            raise ValueError
        return int(float(match[1]) * unit)
    except ValueError:
        raise ConfigError(
            f"{name}: {value!r} is no size; want a number of bytes, or one with a unit: "
            '"512MiB", "4GB"'
        ) from None
