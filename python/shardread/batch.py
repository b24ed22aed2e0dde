"""Batches, and tensors whose samples differ in length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardread._client import RawBatch


class Ragged(NamedTuple):
    """Values of different lengths, one behind the other: of ``collate="ragged"``.

    ``ragged[i]`` are those of sample i: ``values[offsets[i]:offsets[i + 1]]``, a view.
    Unpacking gives the two arrays.
    """

    values: Any
    offsets: Any

    def __getitem__(self, sample: Any) -> Any:
        """Return the values of a sample."""
        i = range(len(self.offsets) - 1)[sample]
        return self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]

    def split(self) -> list[Any]:
        """Return the values of each sample, as views."""
        return [self[i] for i in range(len(self.offsets) - 1)]


class Padded(NamedTuple):
    """Values of different lengths, filled up to the longest: of ``collate="pad"``.

    ``padded[i]`` are those of sample i without the padding, a view where one dimension of
    the first varies. ``mask``, of the shape [samples, longest], is true where there is
    something.
    """

    values: Any
    lengths: Any
    mask: Any

    def __getitem__(self, sample: Any) -> Any:
        """Return the values of a sample, without what pads them."""
        return self.values[sample][: int(self.lengths[sample])]

    def split(self) -> list[Any]:
        """Return the values of each sample, as views."""
        return [self[i] for i in range(len(self.lengths))]


class Images(NamedTuple):
    """Images or masks of sizes of their own: of the loader's ``collate``.

    ``images[i]`` is image i, a view: [3, height, width] or [height, width, 3], and of masks
    [height, width].

    Attributes
    ----------
    values
        Under "ragged" the elements of all images, one behind the other; under "pad" the
        images at the top left of places of one size, [n, 3, most, most].
    sizes
        Heights and widths, [n, 2].
    offsets
        Under "ragged", where each image begins and ends in ``values``; None under "pad".
    channels_last
        Under "pad" and "ragged": whether the channels come last.
    """

    values: Any
    sizes: Any
    offsets: Any
    channels_last: bool

    def __getitem__(self, sample: Any) -> Any:
        """Return an image, without what pads it."""
        i = range(len(self.sizes))[sample]
        height, width = (int(side) for side in self.sizes[i])
        if self.offsets is None:
            image = self.values[i]
            if image.ndim == 2 or self.channels_last:
                return image[:height, :width]
            return image[:, :height, :width]
        image = self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]
        if len(image) == height * width:
            return image.reshape(height, width)
        if self.channels_last:
            return image.reshape(height, width, 3)
        return image.reshape(3, height, width)

    def split(self) -> list[Any]:
        """Return the images, as views."""
        return [self[i] for i in range(len(self.sizes))]


def texts(tensor: Ragged | Padded | Sequence[bytes | None]) -> list[str]:
    """Return the texts of a tensor of kind "text", or of a field's bytes.

    Raises
    ------
    UnicodeDecodeError
        They are not in UTF-8.
    """
    if isinstance(tensor, Ragged | Padded):
        return [np.asarray(values, np.uint8).tobytes().decode() for values in tensor.split()]
    return [(value or b"").decode() for value in tensor]


@dataclass(frozen=True)
class BadSample:
    """A damaged sample that another stands for, or that is left out."""

    shard: str
    key: str
    sample: int
    field: str
    offset: int
    reason: str


class Batch:
    """The samples of one step: what ``output="batch"`` yields.

    Attributes
    ----------
    tensors : mapping
        The tensors by name: "image", "label", those of ``tensors``. Of ragged and padded
        ones it is a :class:`Ragged` or :class:`Padded`.
    """

    __slots__ = ("_raw", "tensors")

    def __init__(self, raw: RawBatch, tensors: Mapping[str, Any]) -> None:
        self._raw = raw
        self.tensors = tensors

    def __getitem__(self, name: str) -> Any:
        """Return a tensor by its name."""
        return self.tensors[name]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._raw)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the tensors, in order: a batch can be unpacked."""
        return iter(self.tensors.values())

    def __repr__(self) -> str:
        return f"Batch(epoch={self.epoch}, number={self.number}, tensors={[*self.tensors]})"

    @property
    def epoch(self) -> int:
        """The epoch that it is of."""
        return int(self._raw.event["epoch"])

    @property
    def number(self) -> int:
        """Its place in the epoch, from 0."""
        return int(self._raw.event["number"])

    @property
    def bucket(self) -> int:
        """The bucket, from 0, that its samples are of; 0 without buckets."""
        return int(self._raw.event.get("bucket", 0))

    @property
    def keys(self) -> list[str]:
        """The samples' keys."""
        return self._raw.keys()

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """The samples' numbers; a copy."""
        numbers: npt.NDArray[np.int64] = self._raw.samples().copy()
        return numbers

    @property
    def fields(self) -> dict[str, list[bytes | None]]:
        """The contents of the fields that were asked for; None where a sample has none."""
        return self._raw.fields()

    @property
    def bad(self) -> list[BadSample]:
        """The damaged samples that it lacks, or in whose place others are."""
        return [
            BadSample(
                shard=str(b.get("shard", "")),
                key=str(b.get("key", "")),
                sample=int(b.get("sample", -1)),
                field=str(b.get("field", "")),
                offset=int(b.get("offset", -1)),
                reason=str(b.get("reason", "")),
            )
            for b in self._raw.event.get("bad") or ()
        ]

    @property
    def state(self) -> dict[str, Any]:
        """The place behind the batch, for :meth:`Loader.load_state_dict`."""
        return state_dict(self._raw.event["state"])


STATE_VERSION = 1


def state_dict(state: Mapping[str, Any]) -> dict[str, Any]:
    """Make what checkpoints keep of the server's state."""
    return {"shardread": STATE_VERSION, "state": dict(state)}
