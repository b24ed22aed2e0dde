"""A data set's samples by their numbers: for looking at them, and for torch's DataLoader."""

from __future__ import annotations

import io
import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np

from shardread import _client, _server
from shardread._client import RawBatch, Reader
from shardread._outputs import grouped
from shardread.config import JSON, Cache, Config, Retry, Tensor, as_json
from shardread.errors import ConfigError, DataError, ServerError
from shardread.loader import Path, address_of
from shardread.transforms import Transform

Sample = dict[str, Any]

# The fields that may be a sample's image, of which the first is: reader.DecodeImage.
_IMAGES = {"jpg", "png", "webp", "gif", "bmp", "tiff", "pnm", "ppm", "pgm", "pbm"}

_CHUNK = 32  # samples that are read at a time by iterating


class Family:
    """A data set's reader in a server that a process shares with its children.

    It is opened when it is first used: in the process that made it, by that process's own
    server, which listens for the others; in a child, forked or spawned, by its parent's,
    while that is there.
    """

    def __init__(
        self,
        data: Path,
        config: dict[str, Any],
        server: str | None,
        *,
        cpus: int | None,
        nice: int | None,
    ) -> None:
        self.address = _server.family(_server.address(server, cpus=cpus, nice=nice))
        self.pid = os.getpid()
        remote = self.address.remote
        self.request: dict[str, Any] = {"data": address_of(data, remote), "config": config}
        if (cache := config.get("cache")) and not remote:
            cache["dir"] = os.path.abspath(os.path.expanduser(cache["dir"]))
        self._reader: Reader | None = None

    def reader(self) -> Reader:
        """Open the data set, or open it again: after close, a fork, the server's death."""
        reader = self._reader
        if reader is None or not reader.alive:
            self._reader = reader = self.open(self.request)
        return reader

    def set_config(self, **config: Any) -> None:
        """Change settings, and open the data set anew."""
        self.request = {**self.request, "config": {**self.request["config"], **config}}
        before, self._reader = self._reader, None
        self.reader()
        if before is not None:
            before.close()

    def open(self, request: dict[str, Any]) -> Reader:
        """Open a data set in the family's server."""
        if self.address.kind == "private" and self.pid != os.getpid():
            try:
                connection = _client.connect(_server.Address("unix", self.address.path))
            except ServerError:
                # The parent has gone: this process has a server of its own.
                self.address, self.pid = _server.family(self.address), os.getpid()
                connection = _client.connect(self.address)
        else:
            connection = _client.connect(self.address)
        return _client.open_reader(connection, request)

    def close(self) -> None:
        """Close the reader; a server ends with the last user that its process has."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}


class Dataset:
    """The samples of a split by their numbers, each decoded by itself.

    ::

        data = shardread.open("s3://bucket/imagenet", split="val")
        len(data), data.classes
        data[17]      # {"image": …, "label": 3, "key": "n01440764/…"}

    It is a map-style data set for ``torch.utils.data.DataLoader``, for transforms in
    Python: with ``map``, or in a subclass's ``__getitem__``. Workers of a DataLoader,
    forked or spawned, attach to one server, which the first process starts. Where no
    Python is needed for each sample, :class:`shardread.Loader` is many times as fast.

    A sample is a dict:

    - ``"image"``: uint8 [height, width, 3], of the image's own size, or of the one that
      ``transform`` gives it;
    - ``"label"``: the number of its class; -1 where it has none;
    - ``"key"``: its key;
    - by their names, what ``tensors`` make of fields, and ``fields``: those called json as
      the document, txt as text, cls as a number, npy as an array, others as bytes. What a
      sample lacks is None.

    With ``decode=False`` it has label and key, and the bytes of all fields.

    Arrays are the caller's. The object may be pickled, and used by several threads.

    Parameters
    ----------
    data
        Where the data set is: a folder, ``s3://…``, ``http://…``.
    split
        By default the only one, or "train".
    decode
        Whether images, and fields, are decoded.
    transform
        What the server does to each image: ``[shardread.Resize(256)]``. It may leave images
        of different sizes. What is random is drawn as in the epoch of :meth:`set_epoch`.
    map
        Called with each sample, in the process that asks for it; what it returns is the
        item. It must be picklable where workers are spawned.
    fields
        The fields to read besides the image; all by default.
    tensors
        What else to decode, masks and boxes among it; see :class:`shardread.Tensor`.
    dtype, layout
        Of images: "uint8", and "NHWC", which is [height, width, 3]; or "NCHW".
    max_pixels, skip_checksums, retry, cache, workers
        As those of :class:`shardread.Loader`.
    server, cpus, nice
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
        split: str | None = None,
        decode: bool = True,
        transform: Sequence[Transform | JSON | str] | None = None,
        map: Callable[[Sample], Any] | None = None,  # noqa: A002 - as in webdataset, datasets
        fields: Sequence[str] | None = None,
        tensors: Sequence[Tensor | JSON | str] | None = None,
        dtype: Literal["uint8", "float32", "float16", "bfloat16"] | None = None,
        layout: Literal["NHWC", "NCHW"] = "NHWC",
        max_pixels: int | None = None,
        skip_checksums: bool | None = None,
        retry: Retry | JSON | None = None,
        cache: Cache | str | os.PathLike[str] | JSON | None = None,
        workers: int | None = None,
        server: str | None = None,
        cpus: int | None = None,
        nice: int | None = None,
    ) -> None:
        self.map = map
        self._epoch = 0
        self._data = data
        config = sample_config(
            decode=decode,
            layout=layout,
            split=split,
            transform=transform,
            fields=fields,
            tensors=tensors,
            dtype=dtype,
            max_pixels=max_pixels,
            skip_checksums=skip_checksums,
            retry=retry,
            cache=cache,
            workers=workers,
        )
        self._family = Family(
            data, {**config, "shuffle": "none", "ends": "exact"}, server, cpus=cpus, nice=nice
        )
        manifest = self._family.reader().manifest()
        split_ = next(s for s in manifest["splits"] if s["name"] == self.split)
        self._length = int(split_["samples"])
        if decode and fields is None:
            self._family.set_config(fields=_other_fields(split_))

    def __len__(self) -> int:
        """Return the number of samples of the split."""
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Return a sample, or what ``map`` makes of it.

        Raises
        ------
        IndexError
            There are not as many.
        DataError
            The sample is damaged.
        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Iterable[int]) -> list[Any]:
        """Return several samples, which are read and decoded together."""
        n = len(self)
        numbers = []
        for index in indices:
            number = operator.index(index)
            if not -n <= number < n:
                raise IndexError(f"sample {number}: the split {self.split!r} has {n}")
            numbers.append(number % n)
        if not numbers:
            return []
        reader = self._family.reader()
        samples = samples_of(reader.read(numbers, self._epoch), reader)
        return samples if self.map is None else [self.map(sample) for sample in samples]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over all samples in order."""
        for first in range(0, len(self), _CHUNK):
            yield from self.__getitems__(range(first, min(first + _CHUNK, len(self))))

    def set_epoch(self, epoch: int) -> None:
        """Say whose random numbers transforms draw; of the copies in workers, too, anew."""
        self._epoch = int(epoch)

    @property
    def split(self) -> str:
        """The name of the split."""
        return str(self._family.reader().config["split"])

    @property
    def splits(self) -> dict[str, int]:
        """The splits of the data set, with the number of their samples."""
        return {split["name"]: split["samples"] for split in self.manifest["splits"]}

    @property
    def classes(self) -> list[str]:
        """The names of the classes, by number."""
        return list(self._family.reader().classes)

    @property
    def manifest(self) -> dict[str, Any]:
        """The data set's manifest: its splits, their shards, and how it was packed."""
        return self._family.reader().manifest()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as JSON, with all defaults filled in."""
        return dict(self._family.reader().config)

    def table(
        self,
        *,
        where: str | None = None,
        label: str | int | None = None,
        all_splits: bool = False,
    ) -> Any:
        """Return the index as a pyarrow.Table: a row for each sample.

        Columns are those of the shards' indexes (key, label, label_name, offset, size,
        format, width, height, …, fields) and split, shard, number (the place in the shard)
        and sample, which is what the data set is indexed by. ``.to_pandas()`` makes a
        DataFrame of it. No shard is read.

        Parameters
        ----------
        where
            A condition: ``"width >= 500 and label_name like 'n02%'"``; see
            ``shardify ls --help``.
        label
            Only this class, by name or number.
        all_splits
            Of all splits, not only this one.

        Raises
        ------
        ImportError
            pyarrow is not installed.
        ConfigError
            The condition is wrong.
        """
        try:
            import pyarrow  # noqa: PLC0415 - it is optional
            from pyarrow import parquet  # noqa: PLC0415
        except ImportError:
            raise ImportError("table() needs pyarrow: pip install pyarrow") from None
        files = self._family.reader().table(
            "" if all_splits else self.split, "" if label is None else str(label), where or ""
        )
        return pyarrow.concat_tables([parquet.read_table(io.BytesIO(file)) for file in files])

    def close(self) -> None:
        """Close the data set; using it again opens it anew."""
        self._family.close()

    def __enter__(self) -> Dataset:
        """Return the data set, which is closed at the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Dataset({os.fspath(self._data)!r}, split={self.split!r}): {len(self)} samples"


def open(data: Path, **options: Any) -> Dataset:  # noqa: A001 - as gzip.open, Image.open
    """Open a data set for looking at it; see :class:`Dataset` for the options."""
    return Dataset(data, **options)


def sample_config(*, decode: bool = True, **config: Any) -> dict[str, Any]:
    """Return the configuration under which batches can be taken apart into samples."""
    given = {"decode": "image" if decode else "none", **config}
    if not decode:
        for name in ("transform", "dtype", "tensors"):
            if given.get(name) is not None:
                raise ConfigError(f"{name}: with decode=False nothing is decoded")
        del given["layout"]
    elif given.get("fields") is None:
        given["fields"] = []
    made = as_json(Config(**given))  # type: ignore[typeddict-item]
    return {"collate": "ragged", **made} if decode else made


def _other_fields(split: Mapping[str, Any]) -> list[str]:
    """List the fields of a split that are neither the image nor the class."""
    names = {field["name"] for shard in split["shards"] for field in shard["fields"]}
    return sorted(names - _IMAGES - {"cls"})


def samples_of(raw: RawBatch, reader: Reader) -> list[Sample]:
    """Take a batch apart; what comes out does not keep its memory."""
    keys = raw.keys()
    samples: list[Sample] = [{} for _ in keys]
    for name, values in grouped(reader)(raw.tensors()).items():
        for i, sample in enumerate(samples):
            value = np.array(values[i])
            sample[name] = value if value.ndim else value.item()
    decoded = reader.config["decode"] != "none"
    for sample, key in zip(samples, keys, strict=True):
        sample["key"] = key
    for name, contents in raw.fields().items():
        for sample, content in zip(samples, contents, strict=True):
            sample[name] = _decode(name, content, sample["key"]) if decoded else content
    return samples


_TEXTS = {"txt", "text", "transcript"}
_NUMBERS = {"cls", "cls2", "class", "count", "index", "inx", "id"}


def _decode(name: str, value: bytes | None, key: str) -> Any:
    """Decode a field as its name says, by webdataset's own table."""
    if value is None:
        return None
    word = name.rpartition(".")[2]
    try:
        if word in _NUMBERS:
            return int(value)
        if word in _TEXTS:
            return value.decode()
        if word in {"json", "jsn"}:
            return json.loads(value)
        if word == "npy":
            return np.load(io.BytesIO(value), allow_pickle=False)
    except (EOFError, OSError, ValueError) as error:
        raise DataError(
            f"sample {key!r}: field {name!r}: {error}; decode=False, or fields=[…] without it, "
            "leaves it as it is",
            key=key,
            field=name,
        ) from None
    return value
