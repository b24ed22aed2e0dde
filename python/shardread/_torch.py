"""Tensors of torch: over a batch's memory, pinned, or copied to a GPU ahead of time."""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from shardread._client import Pass, RawBatch
from shardread._frames import Memory
from shardread.errors import ConfigError, ShardreadError

_FLOATS16 = {"float16": torch.float16, "bfloat16": torch.bfloat16}

# How many batches are on their way to the GPU, or wait there, beside the one in use.
_AHEAD = 2


class Torch:
    """Tensors of torch.

    Parameters
    ----------
    device
        As torch's; None is the CPU.
    pin_memory
        Whether the batches' memory is pinned: for CUDA by default.
    uploads
        Who copies batches to a GPU: "client", or "server".
    """

    name = "torch"

    def __init__(self, device: Any, *, pin_memory: bool | None, uploads: str = "client") -> None:
        try:
            self.device = torch.device("cpu" if device is None else device)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"device: {error}") from None
        cuda = torch.cuda.is_available()
        if self.device.type == "cuda" and not cuda:
            why = "was built without it" if torch.version.cuda is None else "finds no GPU"
            raise ConfigError(
                f"device: {str(self.device)!r} needs CUDA, and this torch ({torch.__version__}) "
                f'{why}; leave device out, or set it to "cpu"'
            )
        if pin_memory and not cuda:
            raise ConfigError("pin_memory: there is no CUDA to pin memory for; leave it out")
        self.remote = self.device.type != "cpu"
        self._pins = bool(pin_memory) or (pin_memory is None and self.device.type == "cuda")
        self.server_device: str | None = None
        if uploads == "server" and self.device.type == "cuda":
            if self.device.index is None:
                self.device = torch.device("cuda", torch.cuda.current_device())
            from shardread import _cuda  # noqa: PLC0415 - few need it

            self.server_device = _cuda.card(self.device).uuid

    def arrays(self, raw: RawBatch) -> dict[str, torch.Tensor]:
        """Return the tensors of a batch by name, over its memory."""
        if self._pins and not raw.memory.pinned:
            pin(raw.memory, self.device)
        dtypes = raw.dtypes()
        tensors = {}
        for name, array in raw.tensors(bits=True).items():
            tensor = torch.from_numpy(array)
            if (wanted := _FLOATS16.get(dtypes[name])) is not None:
                tensor = tensor.view(wanted)
            tensors[name] = tensor
        return tensors

    def batches(
        self, run: Pass, wrap: Callable[[RawBatch, dict[str, Any]], Any]
    ) -> Iterator[tuple[RawBatch, Any]]:
        """Yield all batches of a pass, on the device."""
        if self.server_device is not None:
            yield from _Arrivals(run).batches(wrap)
            return
        if self.device.type == "cuda":
            yield from _Uploads(self, run, CUDA(self.device)).batches(wrap)
            return
        while (raw := run.next()) is not None:
            tensors = self.arrays(raw)
            if self.remote:
                tensors = {name: t.to(self.device) for name, t in tensors.items()}
            made = wrap(raw, tensors)
            del tensors
            yield raw, made
            # What the consumer has let go of must not be held here while the next one is
            # waited for.
            del raw, made


def pin(memory: Memory, device: torch.device) -> None:
    """Register memory with CUDA, so that copies from it need not pass another buffer.

    Raises
    ------
    ShardreadError
        CUDA refuses.
    """
    size = len(memory.map)
    # The call makes a context on the current device, which should be the one in use.
    with torch.cuda.device(device if device.type == "cuda" else torch.cuda.current_device()):
        status = int(torch.cuda.cudart().cudaHostRegister(memory.address, size, 0))
    if status != 0:
        raise ShardreadError(
            f"CUDA cannot pin {size} bytes (error {status}); raise `ulimit -l`, or set "
            "pin_memory=False"
        )
    memory.pinned = True
    # The map is an argument so that it is there until after the call.
    weakref.finalize(memory, _unpin, device, memory.address, memory.map).atexit = False


def _unpin(device: torch.device, address: int, mapped: mmap.mmap) -> None:
    with torch.cuda.device(device if device.type == "cuda" else torch.cuda.current_device()):
        torch.cuda.cudart().cudaHostUnregister(address)


class CUDA:
    """The few calls of CUDA that uploading needs: a stream of its own, and events."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def upload(self, tensors: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Begin to copy tensors to the device; the event happens when that is done."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            copies = {n: t.to(self._device, non_blocking=True) for n, t in tensors.items()}
            event = torch.cuda.Event()
            event.record(self._stream)
        return copies, event

    def hand_over(self, copies: dict[str, Any], event: Any) -> None:
        """Have the consumer's stream wait for the copies, which belong to it from now on."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        for tensor in copies.values():
            # Their memory was taken for the other stream: it must not be given to it again
            # before what the consumer's stream does with them is done.
            tensor.record_stream(stream)


class _Arrivals:
    """Batches that the server has brought to the device.

    torch asks for each tensor in its current stream, which is noted: the memory goes back when
    that stream has passed all that was in it as the batch's last tensor became garbage.
    """

    def __init__(self, run: Pass) -> None:
        self._run = run

    def batches(
        self, wrap: Callable[[RawBatch, dict[str, Any]], Any]
    ) -> Iterator[tuple[RawBatch, Any]]:
        """Yield the batches, in order."""
        while (raw := self._run.next()) is not None:
            made = wrap(raw, {name: torch.from_dlpack(a) for name, a in raw.on_device().items()})
            yield raw, made
            del raw, made


class _Uploads:
    """Batches on their way to a device.

    A batch's own memory is let go of when the event behind its copy has happened, and not
    before: until then the GPU reads from it.
    """

    def __init__(self, framework: Torch, run: Pass, cuda: Any) -> None:
        self._framework = framework
        self._run = run
        self._cuda = cuda
        self._under_way: deque[tuple[RawBatch, dict[str, Any], Any]] = deque()
        self._reading: deque[tuple[Any, dict[str, Any], RawBatch]] = deque()

    def batches(
        self, wrap: Callable[[RawBatch, dict[str, Any]], Any]
    ) -> Iterator[tuple[RawBatch, Any]]:
        """Yield the batches, in order, each usable in the consumer's current stream."""
        try:
            while True:
                while len(self._under_way) < _AHEAD and (raw := self._run.poll()) is not None:
                    self._begin(raw)
                    del raw
                if not self._under_way:
                    self._let_go(wait=True)
                    raw = self._run.next()
                    if raw is None:
                        return
                    self._begin(raw)
                    del raw
                raw, copies, event = self._under_way.popleft()
                self._cuda.hand_over(copies, event)
                self._let_go(wait=False)
                made = wrap(raw, copies)
                del copies, event
                yield raw, made
                del raw, made
        finally:
            self._under_way.clear()
            self._let_go(wait=True)

    def _begin(self, raw: RawBatch) -> None:
        tensors = self._framework.arrays(raw)
        copies, event = self._cuda.upload(tensors)
        self._under_way.append((raw, copies, event))
        self._reading.append((event, tensors, raw))

    def _let_go(self, *, wait: bool) -> None:
        """Let go of the memory of batches that have been copied, or wait for all."""
        while self._reading:
            event = self._reading[0][0]
            if wait:
                event.synchronize()
            elif not event.query():
                return
            self._reading.popleft()
