"""The loader: batches of a packed data set, for a training loop."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from shardread import _client, _outputs, _server
from shardread._world import rank_and_world
from shardread.batch import STATE_VERSION, Batch, state_dict
from shardread.config import NAMES, Config, as_json, check_names, plain, size_of
from shardread.errors import ConfigError, StateError

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

Path = str | os.PathLike[str]
Data = Path | Sequence[Path | tuple[Path, float] | Mapping[str, Any]]

_OWN = (
    "device", "output", "framework", "server", "cpus", "nice", "pin_memory", "prefetch",
    "stream", "progress", "transform_on",
)  # fmt: skip


class Loader:
    """Batches of a data set that `shardify pack` has written, or `shardify index` has indexed.

    ::

        loader = shardread.Loader("s3://bucket/imagenet", split="train", batch_size=256,
            transform=[shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip(),
                       shardread.Normalize(shardread.IMAGENET)], device="cuda")
        for epoch in range(90):
            loader.set_epoch(epoch)
            for images, labels in loader:
                ...

    Reading, decoding, augmenting and batching is done by `shardread serve`, a process that
    the loader starts and that ends with this one, however that ends. Batches lie in memory
    that the two share: an array or tensor keeps the memory of its batch until it, and every
    view of it, is garbage.

    Parameters
    ----------
    data
        Where the data set is: a folder, ``s3://…``, ``http://…``. Several are mixed, each
        as it is, as a pair with its share of an epoch, or as ``{"url": …, "share": …}``.
        With ``stream=True``, names of shards that have no index.
    device
        Where tensors are wanted: "cuda", "cuda:1", "cpu", a device of torch or JAX. To a
        GPU they are copied ahead of time, beside what it computes.
    output
        What an iteration yields: "tuple", the image, the label, then ``tensors`` and
        ``fields`` in order; "dict", the same by name; or "batch", a :class:`Batch`, which
        has keys and more. Under ``mixup`` and ``cutmix`` the label is the soft one.
    framework
        "torch", "numpy", "jax" or "tensorflow"; "auto" is torch if that is imported
        already, or a device other than the CPU is wanted, and otherwise NumPy. "dlpack" are
        arrays on a GPU, to which the server has brought them, for CuPy, JAX, torch and
        others: :class:`shardread.DeviceArray`.
    server
        None starts a server of this process, which all its loaders share. "host" shares
        one among the processes of a job on this host: give it to every rank. A path is the
        socket of a server that runs already, "tcp://HOST:PORT" and "tls://HOST:PORT" one
        elsewhere, with the token in SHARDREAD_TOKEN.
    cpus
        How many processors the server uses at once; by default all that it may.
    nice
        How far the server steps back for the training, 0 to 19.
    pin_memory
        Whether batches lie in pinned memory: by default if the device is a GPU.
    transform_on
        Where ``transform`` is carried out: "host", or "device", the GPU, with the same bytes,
        which spares the processors and takes more of the bus and of the GPU's memory. For
        torch and "dlpack", with a server on this host.
    prefetch
        How many batches are made ahead of the one in use, or how many bytes, as "2GiB"; by
        default as many as ``memory`` has room for.
    stream
        ``data`` names shards without an index.
    progress
        Show a bar for every epoch, with tqdm.
    config
        What to read and what to make of it; see :class:`shardread.config.Config`.
        ``rank`` and ``world`` are found out where they are not given: from
        torch.distributed, or what torchrun, srun or mpirun have set. ``ends`` is "exact":
        the last batch is smaller where samples are left that fill none, and no sample is
        left out; "drop" is drop_last.

    Raises
    ------
    ConfigError
        The configuration is wrong; the message names every fault.
    DataNotFoundError
        There is no such data set.
    """

    def __init__(
        self,
        data: Data,
        *,
        device: Any = None,
        output: Literal["tuple", "dict", "batch"] = "tuple",
        framework: Literal["auto", "torch", "numpy", "jax", "tensorflow", "dlpack"] = "auto",
        server: str | None = None,
        cpus: int | None = None,
        nice: int | None = None,
        pin_memory: bool | None = None,
        transform_on: Literal["host", "device"] = "host",
        prefetch: int | str | None = None,
        stream: bool = False,
        progress: bool = False,
        **config: Unpack[Config],
    ) -> None:
        check_names(config, "Loader", _OWN)
        self._reader: _client.Reader | None = None
        self._set_up(
            {
                "data": data,
                "device": device,
                "output": output,
                "framework": framework,
                "server": server,
                "cpus": cpus,
                "nice": nice,
                "pin_memory": pin_memory,
                "transform_on": transform_on,
                "prefetch": prefetch,
                "stream": stream,
                "progress": progress,
                "config": config,
            }
        )
        self._epoch = 0
        self._place: dict[str, Any] | None = None  # behind the last batch yielded
        self._resume: dict[str, Any] | None = None  # where the next iteration begins
        self._open()

    def _set_up(self, given: dict[str, Any]) -> None:
        """Check what can be checked without a server."""
        config: Config = given["config"]
        output = given["output"]
        if output not in {"tuple", "dict", "batch"}:
            raise ConfigError(f'output: {output!r} is none of "tuple", "dict", "batch"')
        if output == "tuple" and config.get("decode") == "none" and config.get("fields") is None:
            raise ConfigError(
                'output: with decode="none" there is no image for a tuple; name fields=[…], or '
                'choose output="dict" or "batch"'
            )
        where = given["transform_on"]
        if where not in {"host", "device"}:
            raise ConfigError(f'transform_on: {where!r} is none of "host", "device"')
        self._address = _server.address(given["server"], cpus=given["cpus"], nice=given["nice"])
        self._framework = _outputs.framework(
            given["framework"],
            given["device"],
            pin_memory=given["pin_memory"],
            transform_on=where,
        )
        # In another process torch may not be imported yet.
        self._given = {**given, "framework": self._framework.name}
        self._rank, self._world = rank_and_world(config.get("rank"), config.get("world"))
        self._request = {
            "data": _data(given["data"], stream=given["stream"], remote=self._address.remote),
            # The engine's default leaves out what fills no batch; torch's DataLoader does not.
            "config": {"ends": "exact"}
            | as_json(config)
            | {"rank": self._rank, "world": self._world},
        }
        if given["stream"]:
            self._request["stream"] = True
        if (gpu := self._framework.server_device) is not None:
            if self._address.remote:
                raise ConfigError(
                    "device: a server on another host brings no batches to a GPU of this one; "
                    'leave framework="dlpack" and transform_on="device" out'
                )
            self._request["device"] = gpu
        if where == "device":
            if gpu is None:
                raise ConfigError(
                    'transform_on="device" needs a GPU: set device="cuda", with framework="torch" '
                    'or "dlpack", or leave it out'
                )
            self._request["transform_on"] = where
        cache = self._request["config"].get("cache")
        if cache and not self._address.remote:
            cache["dir"] = os.path.abspath(os.path.expanduser(cache["dir"]))

    def _open(self) -> _client.Reader:
        """Open the data set, or open it again: after close, a server's death, a fork."""
        if self._reader is None or not self._reader.alive:
            connection = _client.connect(self._address)
            self._reader = _client.open_reader(connection, self._request)
            self._group = _outputs.grouped(self._reader)
            self._credit = self._credit_of(self._reader)
        return self._reader

    def _credit_of(self, reader: _client.Reader) -> int:
        """Return how many bytes of batches may be under way or in use."""
        prefetch = self._given["prefetch"]
        if prefetch is None:
            return 0
        if isinstance(prefetch, str):
            return size_of(prefetch, "prefetch")
        if prefetch < 1:
            raise ConfigError(f'prefetch: {prefetch}; want 1 batch or more, or a size: "2GiB"')
        if any(-1 in t["shape"] for t in reader.tensors):
            raise ConfigError(
                'prefetch: these batches have no fixed size; give it in bytes, as "2GiB"'
            )
        size = sum(
            math.prod(t["shape"]) * _client.dtype_of(t["dtype"], bits=True).itemsize
            for t in reader.tensors
        )
        return int((2 * prefetch + 3) * size // 2)  # with the one in use, and half for tables

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or what is left of one after :meth:`load_state_dict`.

        It is the one that :meth:`set_epoch` has set, or else the one after the last that
        was iterated to its end.
        """
        return self._iterate(self._start(), self._wrapper(self._given["output"]))

    def batches(self) -> Iterator[Batch]:
        """Begin an epoch as iterating does, and yield every :class:`Batch`."""
        return self._iterate(self._start(), self._wrapper("batch"))

    def _start(self) -> _client.Pass:
        reader = self._open()
        if self._resume is not None:
            run = reader.start(state=self._resume, credit=self._credit)
            self._resume = None
        else:
            run = reader.start(epoch=self._epoch, credit=self._credit)
            self._place = None
        return run

    def _iterate(
        self, run: _client.Pass, wrap: Callable[[_client.RawBatch, dict[str, Any]], Any]
    ) -> Iterator[Any]:
        epoch = self._epoch
        bar = self._bar(run, epoch) if self._given["progress"] else None
        try:
            for raw, made in self._framework.batches(run, wrap):
                self._place = raw.event["state"]
                if self._place is not None and self._epoch == epoch:
                    # Behind the last batch the next epoch begins, also where nobody asks
                    # whether there is another one.
                    self._epoch = max(epoch, self._place["epoch"])
                if bar is not None:
                    bar.update()
                yield made
                # Not to be held while the next one is waited for.
                del raw, made
            self._place = None
            if self._epoch == epoch:
                self._epoch = epoch + 1
        finally:
            run.stop()
            if bar is not None:
                bar.close()

    def _bar(self, run: _client.Pass, epoch: int) -> Any:
        try:
            from tqdm.auto import tqdm  # noqa: PLC0415 - it is optional
        except ImportError:
            raise ImportError("progress=True needs tqdm: pip install tqdm") from None
        length = self._open().length
        total, done = (length, length - run.batches) if length >= 0 else (None, 0)
        return tqdm(total=total, initial=done, desc=f"epoch {epoch}", unit="batch")

    def _wrapper(self, output: str) -> Callable[[_client.RawBatch, dict[str, Any]], Any]:
        """Return what makes of a batch's arrays what an iteration yields."""
        group = self._group
        if output == "batch":
            return lambda raw, arrays: Batch(raw, group(arrays))
        wanted = self._given["config"].get("fields")

        def named(raw: _client.RawBatch, arrays: dict[str, Any]) -> dict[str, Any]:
            out = group(arrays)
            if raw.event["fields_at"]:
                fields = raw.fields()
                out.update({name: fields[name] for name in wanted or fields})
            return out

        if output == "dict":
            return named

        def unnamed(raw: _client.RawBatch, arrays: dict[str, Any]) -> tuple[Any, ...]:
            out = named(raw, arrays)
            out.pop("partner_label", None)
            if (soft := out.pop("soft_label", None)) is not None:
                out["label"] = soft
            return tuple(out.values())

        return unnamed

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, of this rank.

        Raises
        ------
        TypeError
            Nobody knows it: shards without an index are streamed.
        """
        length: int = self._open().length
        if length < 0:
            raise TypeError(
                "a stream has no length; `shardify index` gives the shards an index, and "
                "sampling=shardread.Sampling(samples=…) an epoch a length"
            )
        return length

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is.

        Raises
        ------
        StateError
            A state was loaded that is in another epoch, and would be lost.
        """
        epoch = int(epoch)
        if epoch < 0:
            raise ValueError(f"epoch {epoch}: the first one is 0")
        if self._resume is not None:
            if self._resume["epoch"] != epoch:
                raise StateError(
                    f"the state that was loaded goes on in epoch {self._resume['epoch']}, and "
                    f"epoch {epoch} is set before that was iterated: begin the loop with "
                    "range(loader.epoch, …)"
                )
            return
        if epoch != self._epoch:
            self._place = None
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        """The epoch that is iterated, or that the next iteration is."""
        return self._epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the last batch that was yielded.

        It is a few hundred bytes that JSON, pickle and torch.save can keep, the same on all
        ranks, and good for any number of ranks.
        """
        place = self._place or self._resume
        return state_dict(place if place is not None else self._open().state(self._epoch))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration go on behind the batch after which the state was taken.

        Raises
        ------
        StateError
            It is no state of a loader. (Whether it fits the data shows as iterating begins.)
        """
        inner = state.get("state") if isinstance(state, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("epoch"), int):
            raise StateError("this is no state of a Loader: it has to come from state_dict()")
        if state.get("shardread") != STATE_VERSION:
            raise StateError(
                f"the state has version {state.get('shardread')}, and this shardread reads "
                f"{STATE_VERSION}: install a newer one"
            )
        self._resume = dict(inner)
        self._place = None
        self._epoch = inner["epoch"]

    @property
    def rank(self) -> int:
        """Which of the processes that share an epoch this is."""
        return self._rank

    @property
    def world(self) -> int:
        """How many processes share an epoch."""
        return self._world

    @property
    def samples(self) -> int:
        """Samples of an epoch, of all ranks."""
        return self._open().samples

    @property
    def batch_size(self) -> int:
        """Samples of a batch, of this rank."""
        return int(self._open().config["batch_size"])

    @property
    def classes(self) -> list[str]:
        """The names of the classes, by number."""
        return list(self._open().classes)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as JSON, with all defaults filled in."""
        return dict(self._open().config)

    @property
    def manifest(self) -> dict[str, Any]:
        """The data set's manifest."""
        return self._open().manifest()

    def stats(self) -> dict[str, Any]:
        """Return what each stage has done so far, and what was waited for, as JSON."""
        return self._open().stats()

    def close(self) -> None:
        """End iterations and close the data set; iterating again opens it anew.

        The server ends with the last loader of the process that uses it. Arrays over
        batches stay good.
        """
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __enter__(self) -> Loader:
        """Return the loader, which is closed at the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Loader({self._given['data']!r}, rank {self._rank} of {self._world})"

    def __getstate__(self) -> dict[str, Any]:
        return {
            "given": self._given,
            "epoch": self._epoch,
            "place": self._place,
            "resume": self._resume,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._reader = None
        self._epoch, self._place, self._resume = state["epoch"], state["place"], state["resume"]
        self._set_up(state["given"])


def _data(data: Data, *, stream: bool, remote: bool) -> Any:
    """Return the data's addresses as the protocol has them."""
    if isinstance(data, str | os.PathLike):
        return [address_of(data, remote)] if stream else address_of(data, remote)
    if isinstance(data, Mapping) or not isinstance(data, Sequence) or not data:
        raise ConfigError(f"data: {data!r} is neither an address nor a list of some")
    out: list[Any] = []
    for one in data:
        if isinstance(one, Mapping):
            out.append(plain(one) | {"url": address_of(one["url"], remote)})
        elif isinstance(one, tuple):
            out.append({"url": address_of(one[0], remote), "share": float(one[1])})
        elif stream:
            out.append(address_of(one, remote))
        else:
            out.append({"url": address_of(one, remote)})
    return out


def address_of(path: Path, remote: bool) -> str:
    """Return an address; a path of this host in full, as the server may be elsewhere on it."""
    text = os.fspath(path)
    if remote or ":" in text.split("/")[0] or text == "-":
        return text
    return os.path.abspath(os.path.expanduser(text))


# Help and completion show all settings, which are one table for all that take them.
_signature = inspect.signature(Loader.__init__)
Loader.__init__.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[
        *list(_signature.parameters.values())[:-1],
        *(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Config.__annotations__[name],
            )
            for name in NAMES
        ),
    ]
)
