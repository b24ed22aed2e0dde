"""What is made of a batch's memory: arrays of NumPy, torch, JAX or TensorFlow.

Each framework is one class with the same two methods; :func:`framework` chooses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

from shardread._client import Pass, RawBatch, Reader
from shardread.batch import Images, Padded, Ragged
from shardread.errors import ConfigError

# Who copies batches to a GPU for torch: "client" is this process, out of memory that it has
# pinned; "server" is shardread serve, from which the tensors come as they do for "dlpack",
# with floats made of bytes on the GPU. Which of them is faster has not been measured;
# python/benchmarks/device.py does it. Until it was, it is the one that uses no more of CUDA
# than torch does itself.
UPLOADS = "client"


class Framework(Protocol):
    """How batches become a framework's arrays, where the training wants them."""

    name: str
    remote: bool
    """Whether the device's memory is another than the host's."""
    server_device: str | None
    """The GPU, by its UUID, that the server brings batches to; None: it brings them to none."""

    def arrays(self, raw: RawBatch) -> dict[str, Any]:
        """Return the tensors of a batch by name."""

    def batches(
        self, run: Pass, wrap: Callable[[RawBatch, dict[str, Any]], Any]
    ) -> Iterator[tuple[RawBatch, Any]]:
        """Yield all batches of a pass, each with what ``wrap`` makes of its arrays."""


class NumPy:
    """Arrays of NumPy, over the batch's memory."""

    name = "numpy"
    remote = False
    server_device: str | None = None

    def arrays(self, raw: RawBatch) -> dict[str, Any]:
        """Return the tensors of a batch by name."""
        return dict(raw.tensors())

    def batches(
        self, run: Pass, wrap: Callable[[RawBatch, dict[str, Any]], Any]
    ) -> Iterator[tuple[RawBatch, Any]]:
        """Yield all batches of a pass."""
        while (raw := run.next()) is not None:
            made = wrap(raw, self.arrays(raw))
            yield raw, made
            # What the consumer has let go of must not be held here while the next one
            # is waited for.
            del raw, made


class JAX(NumPy):
    """Arrays of JAX, on a device: the default one, if it is None.

    On a CPU they may lie in the batch's memory; it is lent for as long as they are there.
    """

    name = "jax"

    def __init__(self, device: Any) -> None:
        import jax  # noqa: PLC0415 - it is optional

        if isinstance(device, str):
            kind, _, number = device.partition(":")
            try:
                device = jax.devices({"cuda": "gpu"}.get(kind, kind))[int(number or 0)]
            except (RuntimeError, ValueError, IndexError) as error:
                raise ConfigError(f"device: JAX has no {device!r}: {error}") from None
        self._put = jax.device_put
        self._device = device

    def arrays(self, raw: RawBatch) -> dict[str, Any]:
        """Return the tensors of a batch by name."""
        put: dict[str, Any] = self._put(raw.tensors(), self._device)
        return put


class DLPack(NumPy):
    """Arrays on a GPU, where the server has brought them, for whatever takes DLPack."""

    name = "dlpack"
    remote = True

    def __init__(self, device: Any) -> None:
        from shardread import _cuda  # noqa: PLC0415 - few need it

        self.server_device = _cuda.card("cuda" if device is None else device).uuid

    def arrays(self, raw: RawBatch) -> dict[str, Any]:
        """Return the tensors of a batch by name."""
        return dict(raw.on_device())


class TensorFlow(NumPy):
    """Tensors of TensorFlow, on a device such as "/GPU:0": the default one, if it is None."""

    name = "tensorflow"

    def __init__(self, device: Any) -> None:
        import tensorflow  # noqa: PLC0415 - it is optional

        self._tf = tensorflow
        if device is not None:
            kind, _, number = str(device).removeprefix("/").partition(":")
            kind = {"cuda": "GPU"}.get(kind.lower(), kind.upper())
            device = f"/{kind}:{number or 0}"
        self._device = device

    def arrays(self, raw: RawBatch) -> dict[str, Any]:
        """Return the tensors of a batch by name."""
        with self._tf.device(self._device):
            return {name: self._tf.convert_to_tensor(a) for name, a in raw.tensors().items()}


_LIBRARIES = {"torch", "jax", "tensorflow"}


def framework(
    name: str, device: Any, *, pin_memory: bool | None, transform_on: str = "host"
) -> Framework:
    """Choose a framework by its name; "auto" is torch where it is imported already.

    Raises
    ------
    ConfigError
        There is no such framework, or no such device.
    ImportError
        It is not installed.
    """
    asked = f'framework="{name}"'
    if name == "auto":
        wanted = device is not None and str(device).partition(":")[0] not in {"cpu", "numpy"}
        name = "torch" if "torch" in sys.modules or wanted else "numpy"
        asked = f"device={str(device)!r}"
    if name in _LIBRARIES and sys.modules.get(name) is None and find_spec(name) is None:
        raise ImportError(f"{asked} needs {name}, which is not installed: pip install {name}")
    match name:
        case "torch":
            from shardread._torch import Torch  # noqa: PLC0415 - torch is optional

            uploads = "server" if transform_on == "device" else UPLOADS
            return Torch(device, pin_memory=pin_memory, uploads=uploads)
        case "numpy":
            if device is not None and str(device) != "cpu":
                raise ConfigError(f"device: NumPy has no {device!r}; set framework")
            made: Framework = NumPy()
        case "dlpack":
            made = DLPack(device)
        case "jax":
            made = JAX(device)
        case "tensorflow":
            made = TensorFlow(device)
        case _:
            raise ConfigError(
                f'framework: {name!r} is none of "auto", "torch", "numpy", "jax", "tensorflow", '
                '"dlpack"'
            )
    if pin_memory:
        raise ConfigError(f'pin_memory is for framework="torch", not {name!r}')
    return made


def grouped(reader: Reader) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return how the tensors that belong together are put together.

    What a configuration's tensors have beside them becomes one Ragged, Padded or Images.
    """
    own_sizes = reader.config.get("collate", "stack") != "stack"
    images = {"image"} if own_sizes else set()
    lengths: dict[str, str] = {}
    for spec in reader.config.get("tensors") or ():
        if spec.get("kind") in {"image", "mask"}:
            images |= {spec["name"]} if own_sizes else set()
        elif spec.get("collate") in {"ragged", "pad"}:
            lengths[spec["name"]] = spec["collate"]
    if not images and not lengths:
        return dict
    last = reader.config.get("layout") == "NHWC"

    def group(arrays: Mapping[str, Any]) -> dict[str, Any]:
        left = dict(arrays)
        out: dict[str, Any] = {}
        sizes = left.pop("image_sizes") if own_sizes else None
        for name, array in arrays.items():
            if name in images:
                offsets = left.pop(f"{name}_offsets", None)
                out[name] = Images(array, sizes, offsets, last)
            elif lengths.get(name) == "ragged":
                out[name] = Ragged(array, left.pop(f"{name}_offsets"))
            elif name in lengths:
                out[name] = Padded(array, left.pop(f"{name}_lengths"), left.pop(f"{name}_mask"))
            elif name in left:
                out[name] = array
        return out

    return group
