"""A data set's samples one after the other, in the loader's order, for torch's DataLoader."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shardread._client import Reader
from shardread._world import rank_and_world
from shardread.batch import STATE_VERSION, state_dict
from shardread.config import Config, check_names
from shardread.dataset import Family, Sample, sample_config, samples_of
from shardread.errors import ConfigError, StateError

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

from shardread.loader import Path

if TYPE_CHECKING:
    _Base = object
else:
    try:
        # A DataLoader asks what a data set is of.
        from torch.utils.data import IterableDataset as _Base
    except ImportError:
        _Base = object

# Samples that come at a time: enough that asking for them costs nothing, and few enough
# that padding the end of an epoch, which is done in whole rounds, adds few.
_CHUNK = 16

_FIXED = {"batch_size", "decode", "mixup", "cutmix", "buckets", "classes"}


class IterableDataset(_Base):
    """The samples of a split one after the other, shuffled, each decoded by itself.

    ::

        data = shardread.IterableDataset("s3://bucket/imagenet", split="train", map=augment)
        loader = torch.utils.data.DataLoader(data, batch_size=256, num_workers=8)

    It is for transforms in Python, Albumentations' or Kornia's, in the workers of a
    DataLoader: reading, decoding and shuffling is done by one server, which the first
    process starts and all workers share. Where no Python is needed for each sample,
    :class:`shardread.Loader` is many times as fast.

    Samples are those of :class:`shardread.Dataset`, and so are ``map``, ``fields``,
    ``layout``, ``server``, ``cpus`` and ``nice``; the order is that of
    :class:`shardread.Loader`, and so are the other settings. Ranks, and the workers within
    each, divide an epoch: together they have every sample once.

    Epochs count themselves up, or are set by :meth:`set_epoch`, before the DataLoader is
    iterated. Workers that are started anew for each epoch know of no other; without
    set_epoch and on a single rank, torch's generator then says which epoch it is, as it
    says what a DataLoader with ``shuffle=True`` does.

    Parameters
    ----------
    data
        Where the data set is: a folder, ``s3://…``, ``http://…``.
    map
        Called with each sample, in the worker; what it returns is the item.
    layout
        Of images: "NHWC", which is [height, width, 3], or "NCHW".
    fields
        The fields to read besides the image; none by default.
    ends
        What becomes of samples that do not divide: "exact" leaves some workers with one
        more than others, and is the default on a single rank; "pad" repeats some, and is
        the default on several, since they must go in step; "drop" leaves them out.
    config
        As those of :class:`shardread.Loader`.

    Raises
    ------
    ConfigError
        The configuration is wrong; the message names every fault.
    DataNotFoundError
        There is no such data set.
    """

    def __init__(
        self,
        data: Path,
        *,
        map: Callable[[Sample], Any] | None = None,  # noqa: A002 - as that of Dataset
        server: str | None = None,
        cpus: int | None = None,
        nice: int | None = None,
        **config: Unpack[Config],
    ) -> None:
        check_names(config, "IterableDataset", ("map", "server", "cpus", "nice"))
        if wrong := sorted(_FIXED & config.keys()):
            raise ConfigError(
                f"{', '.join(wrong)}: this is of batches, which a DataLoader makes of samples; "
                "shardread.Loader has it"
            )
        self.map = map
        self._data = data
        self._rank, self._world = rank_and_world(
            config.pop("rank", None), config.pop("world", None)
        )
        settings: dict[str, Any] = {"layout": "NHWC", **config}
        given = sample_config(**settings)
        given.setdefault("ends", "exact" if self._world == 1 else "pad")
        given["batch_size"] = _CHUNK
        self._family = Family(data, given, server, cpus=cpus, nice=nice)
        self._epoch: int | None = None
        self._resume: dict[str, Any] | None = None
        self._place: dict[str, Any] | None = None
        self._reader: Reader | None = None
        self._share = (-1, 0)
        reader = self._open(0, 1)
        self._length, self._classes = reader.samples, list(reader.classes)

    def _open(self, worker: int, workers: int) -> Reader:
        """Open the data set for a worker's share of an epoch."""
        if self._reader is None or not self._reader.alive or self._share != (worker, workers):
            request = dict(self._family.request)
            request["config"] = {
                **request["config"],
                "rank": self._rank * workers + worker,
                "world": self._world * workers,
            }
            self._reader = self._family.open(request)
            self._share = (worker, workers)
        return self._reader

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or what is left of one after :meth:`load_state_dict`."""
        worker, workers, drawn = _worker()
        reader = self._open(worker, workers)
        skip = 0
        if self._resume is not None:
            before, skip = self._resume["state"], self._resume["skip"]
            if self._resume["share"] != [worker, workers]:
                was = self._resume["share"][1]
                raise StateError(
                    f"the state is of a DataLoader with {was} workers, and this one has {workers}: "
                    "within an epoch each goes on with its own share"
                )
            self._resume = None
            run = reader.start(state=before)
            self._epoch = before["epoch"]
        else:
            if self._epoch is None:
                self._epoch = drawn if drawn is not None and self._world == 1 else 0
            before = reader.state(self._epoch)
            run = reader.start(epoch=self._epoch)
        epoch: int = self._epoch or 0
        try:
            while (raw := run.next()) is not None:
                after = raw.event["state"]
                samples = samples_of(raw, reader)
                del raw
                for i, sample in enumerate(samples):
                    if i >= skip:
                        self._place = _place(before, i + 1, worker, workers)
                        yield sample if self.map is None else self.map(sample)
                skip, before = 0, after
            if self._epoch == epoch:
                self._epoch = epoch + 1
            self._place = None
        finally:
            run.stop()

    def __len__(self) -> int:
        """Return the number of samples of an epoch, of this rank; some ends add a few."""
        return max(0, self._length - self._rank + self._world - 1) // self._world

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is."""
        self._epoch = int(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the last sample: torchdata's StatefulDataLoader keeps it.

        It is a worker's own, and good for as many workers and ranks as there are.
        """
        if self._place is not None:
            return self._place
        if self._resume is not None:
            return {"shardread": STATE_VERSION, **self._resume}
        worker, workers, _ = _worker()
        return _place(self._open(worker, workers).state(self._epoch or 0), 0, worker, workers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration go on behind the sample after which the state was taken.

        Raises
        ------
        StateError
            It is no state of an IterableDataset.
        """
        if state.get("shardread") != STATE_VERSION or not {"state", "skip", "share"} <= set(state):
            raise StateError("this is no state of an IterableDataset: state_dict() makes them")
        self._resume = {name: state[name] for name in ("state", "skip", "share")}
        self._place = None

    @property
    def classes(self) -> list[str]:
        """The names of the classes, by number."""
        return list(self._classes)

    def close(self) -> None:
        """Close the data set; using it again opens it anew."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._family.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def __repr__(self) -> str:
        return f"IterableDataset({os.fspath(self._data)!r}, rank {self._rank} of {self._world})"


def _place(before: dict[str, Any], skip: int, worker: int, workers: int) -> dict[str, Any]:
    return {**state_dict(before), "skip": skip, "share": [worker, workers]}


def _worker() -> tuple[int, int, int | None]:
    """Return which worker of a DataLoader this is, of how many, and what it has drawn."""
    module = sys.modules.get("torch.utils.data")
    info = module.get_worker_info() if module is not None else None
    if info is None:
        return 0, 1, None
    return info.id, info.num_workers, (info.seed - info.id) & 0x3FFFFFFF
