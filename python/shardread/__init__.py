"""Packed shards of images to batches, by an engine in Go.

:class:`Loader` is what a training loop iterates over. The rest says what it should do:
transforms with the names of torchvision's, and the dataclasses of its configuration.
docs/python.md is the guide.
"""

from typing import TYPE_CHECKING, Any

from shardread._pack import PackedSplit, PackError, PackProgress, PackResult, pack
from shardread._version import __version__
from shardread.batch import BadSample, Batch, Images, Padded, Ragged, texts
from shardread.config import (
    Boxes,
    Buckets,
    Cache,
    Config,
    CutMix,
    MixUp,
    Retry,
    Sampling,
    Tensor,
    Weight,
)
from shardread.dataset import Dataset, open  # noqa: A004 - as gzip.open, Image.open
from shardread.errors import (
    CanceledError,
    ConfigError,
    DataError,
    DataNotFoundError,
    DeviceError,
    ForkedError,
    ServerError,
    ServerMemoryError,
    ShardreadError,
    StateError,
    StoreError,
    TokenError,
    TooManyBatchesHeld,
    VersionError,
)
from shardread.loader import Loader
from shardread.transforms import (
    IMAGENET,
    CenterCrop,
    ColorJitter,
    GaussianBlur,
    Grayscale,
    Normalize,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    Statistics,
    Transform,
    TrivialAugmentWide,
)

if TYPE_CHECKING:
    from shardread._cuda import DeviceArray
    from shardread.iterable import IterableDataset

__all__ = [
    "IMAGENET",
    "BadSample",
    "Batch",
    "Boxes",
    "Buckets",
    "Cache",
    "CanceledError",
    "CenterCrop",
    "ColorJitter",
    "Config",
    "ConfigError",
    "CutMix",
    "DataError",
    "DataNotFoundError",
    "Dataset",
    "DeviceArray",
    "DeviceError",
    "ForkedError",
    "GaussianBlur",
    "Grayscale",
    "Images",
    "IterableDataset",
    "Loader",
    "MixUp",
    "Normalize",
    "PackError",
    "PackProgress",
    "PackResult",
    "PackedSplit",
    "Pad",
    "Padded",
    "Ragged",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "Retry",
    "Sampling",
    "ServerError",
    "ServerMemoryError",
    "ShardreadError",
    "StateError",
    "Statistics",
    "StoreError",
    "Tensor",
    "TokenError",
    "TooManyBatchesHeld",
    "Transform",
    "TrivialAugmentWide",
    "VersionError",
    "Weight",
    "__version__",
    "open",
    "pack",
    "texts",
]


def __getattr__(name: str) -> Any:
    # It is of torch's class of that name, and torch takes seconds to import.
    if name == "IterableDataset":
        from shardread.iterable import IterableDataset  # noqa: PLC0415

        return IterableDataset
    if name == "DeviceArray":
        from shardread._cuda import DeviceArray  # noqa: PLC0415 - few need it

        return DeviceArray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
