"""Batches on a GPU that the server has brought there: the memory, and arrays over it.

The few functions of CUDA's driver that this takes are called through ctypes, in the primary
context of the GPU: the one that torch, JAX and CuPy use in the same process, so that their
streams are good here, and the arrays there. :func:`card` is where to begin; docs/feed.md,
under "GPUs", says what the server does.

A batch is all there when it comes, on whichever stream it is used. What has to be known is
when its use has ended: where an array is handed to a framework (``__dlpack__``), the stream is
noted that is to use it, and when nothing of the batch is left in Python, an event is recorded
on each stream that was noted. Behind these the memory goes back to the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from shardread.errors import ConfigError, DeviceError, ServerError

# Where libcuda is looked for: by the system's loader, then where it lies in containers,
# under WSL and on NixOS, whose loaders may not know it.
_LIBRARIES = (
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
)

_NOT_READY = 600
_WITHOUT_TIMING = 2
_POSIX = 1  # of CUmemAllocationHandleType: a file descriptor
_LEGACY_STREAM = 1  # which waits for all others that are not made not to


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("kind", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int))


_int, _size, _pointer, _long = (
    ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_ulonglong,
)  # fmt: skip
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (_int, _pointer),
    "cuDeviceGetCount": (_pointer,),
    "cuDeviceGet": (_pointer, _int),
    "cuDeviceGetUuid": (_pointer, _int),
    "cuDevicePrimaryCtxRetain": (_pointer, _int),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_pointer,),
    "cuCtxSynchronize": (),
    "cuMemImportFromShareableHandle": (_pointer, _pointer, _int),
    "cuMemAddressReserve": (_pointer, _size, _size, _long, _long),
    "cuMemAddressFree": (_long, _size),
    "cuMemMap": (_long, _size, _size, _long, _long),
    "cuMemSetAccess": (_long, _size, _pointer, _size),
    "cuMemUnmap": (_long, _size),
    "cuMemRelease": (_long,),
    "cuEventCreate": (_pointer, ctypes.c_uint),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventQuery": (_pointer,),
}


_FORKED = (
    "a GPU cannot be used in a fork of a process that has begun to use it: start the process "
    'with multiprocessing.get_context("spawn")'
)


class Driver:
    """libcuda.

    Raises
    ------
    DeviceError
        It is not there, or lacks a function, or finds no GPU.
    """

    def __init__(self) -> None:
        missing = None
        for path in _LIBRARIES:
            try:
                self._library = ctypes.CDLL(path)
                break
            except OSError as error:
                missing = missing or error
        else:
            raise DeviceError(
                f"device: there is no CUDA here: {missing}; `shardread gpu-info` says what to do"
            )
        for name, types in _FUNCTIONS.items():
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise DeviceError(
                    f"device: {self._library._name} lacks {name}: it is older than CUDA 11.0, or "
                    "no CUDA driver; install NVIDIA's driver 450 or newer"
                ) from None
            function.argtypes, function.restype = types, ctypes.c_int
        self.call("cuInit", 0)

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function, and return its result."""
        result: int = getattr(self._library, name)(*arguments)
        return result

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed."""
        if status := self.status(name, *arguments):
            raise self.error(name, status)

    def error(self, call: str, status: int) -> DeviceError:
        """Make the error of a result."""
        text = ctypes.c_char_p()
        self.status("cuGetErrorName", status, ctypes.byref(text))
        name = text.value.decode() if text.value else "CUDA_ERROR_unknown_to_this_driver"
        return DeviceError(f"{call}: {name} ({status})")


class Card:
    """A GPU of this process, whose primary context is kept as long as the process lives.

    Attributes
    ----------
    ordinal : int
        Its number, as CUDA_VISIBLE_DEVICES lets GPUs be seen.
    uuid : str
        The same in every process.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver: Final = driver
        self._pid: Final = os.getpid()
        self.ordinal: Final = ordinal
        device = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device.value
        identity = (ctypes.c_ubyte * 16)()
        driver.call("cuDeviceGetUuid", identity, device)
        text = bytes(identity).hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        self.uuid: Final = "GPU-" + "-".join(parts)
        self._context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._events: list[int] = []  # that nobody uses

    @contextlib.contextmanager
    def _current(self) -> Iterator[Driver]:
        """Have the context current on this thread."""
        if self._pid != os.getpid():
            raise DeviceError(_FORKED)
        self._driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield self._driver
        finally:
            self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def map(self, fd: int, size: int) -> DeviceMemory:
        """Map memory of this GPU that the server shares by a descriptor.

        Raises
        ------
        DeviceError
            CUDA refuses: it is another GPU's.
        """
        handle, address = ctypes.c_ulonglong(), ctypes.c_ulonglong()
        access = _Access(1, self._device, 3)
        with self._current() as cuda, contextlib.ExitStack() as undo:
            cuda.call("cuMemImportFromShareableHandle", ctypes.byref(handle), fd, _POSIX)
            try:
                cuda.call("cuMemAddressReserve", ctypes.byref(address), size, 0, 0, 0)
                undo.callback(cuda.status, "cuMemAddressFree", address, size)
                cuda.call("cuMemMap", address, size, 0, handle, 0)
                undo.callback(cuda.status, "cuMemUnmap", address, size)
            finally:
                cuda.call("cuMemRelease", handle)  # what is mapped stays
            cuda.call("cuMemSetAccess", address, size, ctypes.byref(access), 1)
            undo.pop_all()
        return DeviceMemory(self, address.value, size)

    def unmap(self, address: int, size: int) -> None:
        """Unmap such memory when all that the GPU does has ended."""
        if self._pid != os.getpid():
            return  # it is the parent's
        with contextlib.suppress(DeviceError), self._current() as cuda:
            cuda.status("cuCtxSynchronize")
            cuda.status("cuMemUnmap", address, size)
            cuda.status("cuMemAddressFree", address, size)

    def record(self, streams: Iterable[int]) -> list[int]:
        """Record an event on each stream, behind all that is in it now."""
        events = []
        with self._current() as cuda:
            for stream in streams:
                if self._events:
                    event = ctypes.c_void_p(self._events.pop())
                else:
                    event = ctypes.c_void_p()
                    cuda.call("cuEventCreate", ctypes.byref(event), _WITHOUT_TIMING)
                cuda.call("cuEventRecord", event, stream)
                events.append(event.value or 0)
        return events

    def passed(self, events: list[int]) -> bool:
        """Say whether all events of ``record`` have happened; they are given back then."""
        with self._current() as cuda:
            for event in events:
                status = cuda.status("cuEventQuery", event)
                if status == _NOT_READY:
                    return False
                if status:
                    raise cuda.error("cuEventQuery", status)
        self._events += events
        return True


class DeviceMemory:
    """Memory of a GPU that the server shares, mapped as long as anybody has this."""

    def __init__(self, card: Card, address: int, size: int) -> None:
        self.card: Final = card
        self.address: Final = address
        self.size: Final = size
        weakref.finalize(self, card.unmap, address, size).atexit = False


_cards: dict[int, Card] = {}
_lock = threading.Lock()
_driver: Driver | None = None
_forked = False  # from a process that had begun to use CUDA


def card(device: Any) -> Card:
    """Open a GPU: "cuda", "cuda:1", a number, or a device of torch.

    Raises
    ------
    ConfigError
        There is no such GPU.
    DeviceError
        There is no CUDA, or it refuses.
    """
    global _driver  # noqa: PLW0603 - it is loaded once
    kind, _, number = str(device).partition(":")
    if kind.isdecimal():
        kind, number = "cuda", kind
    if kind not in {"cuda", "gpu"} or not (number or "0").isdecimal():
        raise ConfigError(f'device: {device!r} is no GPU; want "cuda" or "cuda:1"')
    ordinal = int(number or 0)
    if _forked:
        raise DeviceError(_FORKED)
    with _lock:
        _driver = _driver or Driver()
        count = ctypes.c_int()
        _driver.call("cuDeviceGetCount", ctypes.byref(count))
        if ordinal >= count.value:
            raise ConfigError(f"device: there is no GPU {ordinal}: there are {count.value}")
        if ordinal not in _cards:
            _cards[ordinal] = Card(_driver, ordinal)
        return _cards[ordinal]


def opened(uuid: str) -> Card:
    """Return a GPU that this process has opened.

    Raises
    ------
    ServerError
        It has not: the server speaks of another one.
    """
    for one in list(_cards.values()):
        if one.uuid == uuid:
            return one
    if _forked:
        raise DeviceError(_FORKED)
    raise ServerError(f"the server sent memory of the GPU {uuid}, which was not asked for")


def _after_fork() -> None:
    """Forget, in a child, what is its parent's."""
    global _lock, _driver, _forked
    _lock, _driver, _forked = threading.Lock(), None, _forked or _driver is not None
    _cards.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# DLPack, https://dmlc.github.io/dlpack: what frameworks take arrays from each other by.

_ON_CUDA = 2
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_DTYPES: Final = {
    "bool": (_BOOL, 8, "|b1"),
    "uint8": (_UINT, 8, "|u1"),
    "uint16": (_UINT, 16, "<u2"),
    "uint32": (_UINT, 32, "<u4"),
    "uint64": (_UINT, 64, "<u8"),
    "int8": (_INT, 8, "|i1"),
    "int16": (_INT, 16, "<i2"),
    "int32": (_INT, 32, "<i4"),
    "int64": (_INT, 64, "<i8"),
    "float16": (_FLOAT, 16, "<f2"),
    "float32": (_FLOAT, 32, "<f4"),
    "float64": (_FLOAT, 64, "<f8"),
    "bfloat16": (_BFLOAT, 16, None),
}


class DLTensor(ctypes.Structure):
    """Where an array lies, and what it is."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


# Where the tensor lies in DLManagedTensor, and in DLManagedTensorVersioned, behind the version,
# two pointers and the flags.
_PLACES: Final = {b"dltensor": 0, b"dltensor_versioned": 32}
# NumPy has the latter from 2.1 on.
_VERSIONED: Final = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)

# Prototypes of our own: those of ctypes.pythonapi are everybody's.
_name_of: Any = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_struct_of: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class DeviceArray:
    """An array on a GPU: what ``framework="dlpack"`` yields.

    ``torch.from_dlpack(array)``, ``jax.dlpack.from_dlpack(array)``, ``cupy.from_dlpack(array)``
    make theirs of it, without a copy; by ``__cuda_array_interface__`` Numba and others do. It,
    and whatever is made of it, keeps the memory of its whole batch.

    It is there, on every stream. The stream that it is handed to is waited for before the
    memory is used for another batch: the one that is current where it is converted. What is
    put into other streams, that one must have been made to wait for when the last array of
    the batch becomes garbage; and it must be there as long as that.

    Attributes
    ----------
    shape : tuple of int
        Its elements lie in C order.
    dtype : str
        "uint8", "float16", "bfloat16", "int64", …
    pointer : int
        Where it begins, in the memory of the GPU.
    """

    __slots__ = ("_lease", "_memory", "_streams", "dtype", "pointer", "shape")

    def __init__(
        self,
        memory: DeviceMemory,
        lease: Any,
        streams: set[int],
        dtype: str,
        shape: tuple[int, ...],
        at: int,
    ) -> None:
        if dtype not in _DTYPES:
            raise ServerError(f"the server sent a tensor of a type that is not known: {dtype!r}")
        self._memory, self._lease, self._streams = memory, lease, streams
        self.dtype, self.shape = dtype, shape
        if min(shape, default=0) < 0 or at < 0 or at + self.nbytes > memory.size:
            raise ServerError("the server described a batch that is larger than its memory")
        self.pointer = memory.address + at

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * self.itemsize

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes."""
        return _DTYPES[self.dtype][1] // 8

    def __len__(self) -> int:
        """Return the length of the first dimension."""
        return self.shape[0]

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"DeviceArray({self.dtype}[{shape}], cuda:{self._memory.card.ordinal})"

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind of device, CUDA, and the GPU's number."""
        return (_ON_CUDA, self._memory.card.ordinal)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule of DLPack for a consumer whose work goes into ``stream``.

        Raises
        ------
        BufferError
            Another device, or a copy, is wanted.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"{self!r} is not on the device {dl_device}")
        if copy:
            raise BufferError("no copies are made here: copy what is made of the array")
        if stream == 0:
            raise ValueError("stream 0 is not told from others in DLPack: 1 is the default one")
        # Of None, 1, -1 and each thread's own default stream, 2, the legacy one knows.
        self._streams.add(_LEGACY_STREAM if stream is None or stream < 3 else stream)
        # NumPy makes the capsule, of an array like this one over the batch's memory in the
        # host: so what lets go of it is code in C, which consumers call in any thread, also
        # while an exception is on its way. Only the tensor in it is another one.
        dtype = np.dtype(f"u{self.itemsize}")
        like = np.ndarray(self.shape, dtype, self._lease, strides=(0,) * self.ndim)
        versioned = _VERSIONED and max_version is not None and max_version[0] >= 1
        capsule = like.__dlpack__(**({"max_version": (1, 0)} if versioned else {}))
        name = _name_of(capsule)
        tensor = DLTensor.from_address(_struct_of(capsule, name) + _PLACES[name])
        tensor.data = self.pointer
        tensor.device_type, tensor.device_id = self.__dlpack_device__()
        tensor.code, tensor.bits, _ = _DTYPES[self.dtype]
        if tensor.strides:  # or else they are in C order
            for i in range(self.ndim):
                tensor.strides[i] = math.prod(self.shape[i + 1 :])
        return capsule

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """What Numba and others take; NumPy's types only."""
        typestr = _DTYPES[self.dtype][2]
        if typestr is None:
            raise AttributeError(f"{self.dtype} has no __cuda_array_interface__; take from_dlpack")
        self._streams.add(_LEGACY_STREAM)
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.pointer if self.nbytes else 0, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }
