"""The client of docs/feed.md: connections, readers, passes and the memory of batches.

:func:`open_reader` is what the rest of the package calls. It attaches to a server, or
starts one, and returns a :class:`Reader`; :meth:`Reader.start` begins a :class:`Pass` of an
epoch, which yields :class:`RawBatch`; :meth:`Reader.read` gives single samples. Everything
here may be used by several threads at once.

A connection is served by one thread of its own, which does all reading and writing on the
socket, so that neither an interrupt nor a finalizer in some other thread can tear a message
apart. What others want of it they put in a queue without taking any lock: finalizers run
wherever the garbage collector happens to. That a batch's memory is free is told to it by a
weak reference whose callback is a method of C's, in which no interrupt can be raised, and
lost. It looks for such soon after it has handed a batch over, if the server needs the room.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import copy
import gc
import itertools
import logging
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shardread import _server
from shardread._frames import PROTOCOL, Inbox, Memory, Message, frame
from shardread._version import __version__
from shardread.errors import (
    DeviceError,
    ForkedError,
    ServerError,
    ServerMemoryError,
    ShardreadError,
    TooManyBatchesHeld,
    VersionError,
    of_reply,
)

if TYPE_CHECKING:
    from shardread._cuda import DeviceArray, DeviceMemory

Array = npt.NDArray[Any]

_log = logging.getLogger("shardread")

# How long a pass waits for batches that are held, before it says that they are: where no
# other thread of Python could give them back, only for what runs in C++.
GRACE_ALONE = 2.0
GRACE_THREADS = 60.0

# When, in seconds, a GPU is asked whether its streams have passed a batch: at first, each
# time twice as late, and at last.
_ASK, _ASK_LATER = 0.0005, 0.004

# When, in seconds, a thread looks for what was given back, while anything is lent: at first,
# each time twice as late, and at last.
_SOON, _LATER = 0.001, 0.25

_ATTEMPTS = 10  # to find a host's server that stays

_BITS16: Final = {"float16": np.dtype(np.int16), "bfloat16": np.dtype(np.int16)}


def dtype_of(name: str, *, bits: bool = False) -> np.dtype[Any]:
    """Return NumPy's type of that name; with ``bits``, int16 for the floats of 16 bits.

    Raises
    ------
    ImportError
        bfloat16 is not NumPy's own, and ml_dtypes is not installed.
    """
    if bits and name in _BITS16:
        return _BITS16[name]
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: PLC0415 - it is optional
        except ImportError:
            raise ImportError(
                "NumPy has no bfloat16 of its own: pip install ml_dtypes, choose dtype "
                '"float16" or "float32", or take the tensors in torch or jax'
            ) from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


class RawBatch:
    """A batch as the server describes it, and the memory that it lies in.

    The memory goes back to the server when neither this object nor any array made by it is
    left: each has ``lease`` as its base. Of a batch on a GPU, ``device`` has the tensors, and
    ``memory`` all else; ``streams`` are those of the GPU that use it.
    """

    __slots__ = ("__weakref__", "device", "event", "lease", "memory", "streams")

    def __init__(
        self,
        event: dict[str, Any],
        memory: Memory,
        lease: Any,
        device: DeviceMemory | None = None,
        streams: set[int] | None = None,
    ) -> None:
        self.event: Final = event
        self.memory: Final = memory
        self.lease: Final = lease
        self.device: Final = device
        self.streams: Final = streams

    def __len__(self) -> int:
        return int(self.event["len"])

    @property
    def nbytes(self) -> int:
        """What the batch costs of the pass's credit, in bytes."""
        return int(self.event["bytes"])

    def tensors(self, *, bits: bool = False) -> dict[str, Array]:
        """Return the arrays by name, over the batch's memory; for ``bits`` see dtype_of."""
        return {
            t["name"]: np.ndarray(t["shape"], dtype_of(t["dtype"], bits=bits), self.lease, t["at"])
            for t in self.event["tensors"]
        }

    def on_device(self) -> dict[str, DeviceArray]:
        """Return the arrays by name, on the GPU that the server has brought them to."""
        from shardread._cuda import DeviceArray  # noqa: PLC0415 - few need it

        if self.device is None or self.streams is None:
            raise ServerError("the server sent a batch that is not on the GPU it was to come on")
        return {
            t["name"]: DeviceArray(
                self.device, self.lease, self.streams, t["dtype"], tuple(t["shape"]), t["at"]
            )
            for t in self.event["tensors"]
        }

    def dtypes(self) -> dict[str, str]:
        """Return the types of the tensors by name, as the protocol calls them."""
        return {t["name"]: t["dtype"] for t in self.event["tensors"]}

    def samples(self) -> npt.NDArray[np.int64]:
        """Return the numbers of the samples, over the batch's memory."""
        at = self.event["samples_at"]
        numbers: npt.NDArray[np.int64] = np.ndarray(len(self), np.int64, self.lease, at)
        return numbers

    def keys(self) -> list[str]:
        """Return the samples' keys."""
        keys = self._strings(self.event["keys_at"])
        return [(key or b"").decode("utf-8", "replace") for key in keys]

    def fields(self) -> dict[str, list[bytes | None]]:
        """Return the contents of the fields that the batch carries; None where absent."""
        return {name: self._strings(at) for name, at in self.event["fields_at"].items()}

    def _strings(self, at: int) -> list[bytes | None]:
        """Return the byte strings of a table of places and lengths."""
        table: list[list[int]] = np.ndarray((len(self), 2), np.int64, self.lease, at).tolist()
        view = memoryview(self.lease).cast("B")
        if any(at < 0 or at + n > len(view) for at, n in table):
            raise ServerError("the server described a batch that is larger than its memory")
        return [bytes(view[at : at + n]) if n >= 0 else None for at, n in table]


class _Lent(weakref.ref[Any]):
    """What keeps a batch's memory lent, by a reference that lets go of it."""

    __slots__ = ("batch", "device", "memory", "nbytes", "own", "run", "streams", "tally")

    run: int
    batch: int
    nbytes: int
    memory: Memory
    own: bool  # not the server's
    device: DeviceMemory | None
    streams: set[int]
    tally: _Tally | None  # of its reader; None of a read


@dataclass
class _Tally:
    """Batches of all passes of a reader."""

    batches: int = 0  # lent
    nbytes: int = 0
    released: int = 0


@dataclass
class _Call:
    """A request under way."""

    op: str
    # What the reply's fields become; called in the connection's thread.
    make: Callable[[dict[str, Any], Memory | None], Any]
    # What undoes that, where nobody waits any more.
    undo: Callable[[Any], None]
    done: bool = False
    left: bool = False
    result: Any = None
    error: ShardreadError | None = None


@dataclass
class _Leave:
    """A user of the connection leaves, and where it had a reader, closes it."""

    reader: int | None = None
    done: threading.Event = field(default_factory=threading.Event)


class _Wake:
    """A pipe that wakes a thread up.

    It is closed with its last user, not before: a finalizer that writes to it must never
    hit a descriptor that has become another file.
    """

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self._writing, False)

    def __call__(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake
            os.write(self._writing, b"!")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.reading, 4096):
                pass

    def __del__(self) -> None:
        os.close(self.reading)
        os.close(self._writing)


class Connection:
    """A connection with a server; see :func:`open_reader`."""

    def __init__(self, attached: _server.Attached, key: object) -> None:
        self.key: Final = key
        self.users = 1  # guarded by _registry_lock
        self._attached: Final = attached
        self._pid: Final = os.getpid()
        self._changed = threading.Condition()
        self._commands: deque[Any] = deque()
        self._returned: deque[_Lent] = deque()
        self._lent: dict[tuple[int, int], _Lent] = {}
        # Those that GPUs still use, with the events behind that.
        self._passing: list[tuple[_Lent, DeviceMemory, list[int]]] = []
        self._asked = _ASK
        self._slept = _SOON
        self._wake: Final = _Wake()
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._passes: weakref.WeakValueDictionary[int, Pass] = weakref.WeakValueDictionary()
        self._slabs: dict[int, Memory] = {}
        self._device_slabs: dict[int, DeviceMemory] = {}
        self._failure: ShardreadError | None = None
        self._inbox: Final = Inbox(attached.sock)
        self._selector: Final = selectors.DefaultSelector()
        self._waiting: list[_Leave] = []
        attached.sock.setblocking(False)
        self._thread: Final = threading.Thread(target=self._run, name="shardread", daemon=True)
        _connections.add(self)
        self._thread.start()

    def greet(self) -> None:
        """Say hello, as the first request of a connection.

        Raises
        ------
        VersionError
            The server speaks another protocol.
        TokenError
            It wants another token.
        """
        hello: dict[str, Any] = {"protocol": PROTOCOL, "client": f"shardread-python {__version__}"}
        if self._attached.token:
            hello["token"] = self._attached.token
        server = self.request("hello", hello)
        if server.get("protocol") != PROTOCOL:
            raise VersionError(
                f"{server.get('server')} speaks version {server.get('protocol')} of the protocol, "
                f"and shardread {__version__} speaks {PROTOCOL}: install the same version of both"
            )

    @property
    def alive(self) -> bool:
        """Whether the server answers, and this is the process that it talks to."""
        return self._failure is None and self._pid == os.getpid()

    def request(
        self,
        op: str,
        fields: dict[str, Any],
        make: Callable[[dict[str, Any], Memory | None], Any] = lambda ok, payload: ok,
        undo: Callable[[Any], None] = lambda result: None,
    ) -> Any:
        """Make a request, and wait for what its reply becomes.

        Raises
        ------
        ShardreadError
            The server's error, or the connection's.
        """
        call = _Call(op, make, undo)
        self._send(op, fields, call)
        with self._changed:
            try:
                while not call.done:
                    self._check()
                    self._changed.wait()
            except BaseException:
                call.left = True
                if call.done and call.error is None:
                    undo(call.result)
                raise
        if call.error is not None:
            raise call.error
        return call.result

    def _send(self, op: str, fields: dict[str, Any], call: _Call | None = None) -> None:
        """Send a request; nobody waits for the reply if there is no call."""
        self.check_process()
        number = next(self._ids)
        if call is not None:
            self._calls[number] = call
        self._post(frame({**fields, "id": number, "op": op}))

    def _post(self, command: Any) -> None:
        """Hand a command to the connection's thread; it takes no lock and never blocks."""
        if self._pid == os.getpid():
            self._commands.append(command)
            self._wake()

    def _check(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)

    def check_process(self) -> None:
        """Make sure that this is the process that the connection was made in.

        Raises
        ------
        ForkedError
            It is a fork of it.
        """
        if self._pid != os.getpid():
            raise ForkedError(_FORKED)

    def leave(self) -> None:
        """End one use of the connection; with the last one it and its server end."""
        self._leave(_Leave(), wait=True)

    def _leave(self, leave: _Leave, *, wait: bool) -> None:
        self._post(leave)
        if wait and self._pid == os.getpid():
            while not leave.done.wait(0.05) and self._thread.is_alive():
                pass

    # What follows runs in the connection's thread.

    def _run(self) -> None:
        sock, stderr = self._attached.sock, self._attached.stderr
        sending = bytearray()
        ready: list[int] = []
        try:
            self._selector.register(self._wake.reading, selectors.EVENT_READ)
            self._selector.register(sock, selectors.EVENT_READ)
            if stderr is not None:
                self._selector.register(stderr, selectors.EVENT_READ)
            while True:
                stays = self._obey(sending)
                if sending:
                    self._write(sending)
                if not stays:
                    break
                both = selectors.EVENT_READ | (selectors.EVENT_WRITE if sending else 0)
                self._selector.modify(sock, both)
                ready = [k.fd for k, _ in self._selector.select(self._patience(bool(ready)))]
                if self._wake.reading in ready:
                    self._wake.clear()
                if stderr is not None and stderr.fileno() in ready and not self._attached.listen():
                    self._selector.unregister(stderr)
                    stderr = None
                if sock.fileno() in ready:
                    for message in self._inbox.receive():
                        self._take(message)
                    if self._inbox.ended:
                        raise ConnectionResetError("it closed the connection")
        except ShardreadError as error:
            self._fail(error)
        except OSError as error:
            self._fail(ServerError(str(error)), gone=True)
        except (KeyError, TypeError, ValueError) as error:
            self._fail(ServerError(f"it sent what the protocol does not know: {error!r}"))
        except BaseException as error:
            self._fail(ServerError(f"an error of the client itself: {error!r}"))
            raise
        else:
            self._fail(ServerError("the connection was closed"))

    def _patience(self, busy: bool) -> float | None:
        """Return how long to sleep, at most, before looking for what was given back."""
        if not self._lent:
            return None
        if self._passing:
            self._asked = min(2 * self._asked, _ASK_LATER)
            return self._asked
        if not any(run._tight() for run in list(self._passes.values())):
            return _LATER
        self._slept = _SOON if busy else min(2 * self._slept, _LATER)
        return self._slept

    def _obey(self, sending: bytearray) -> bool:
        """Do what was posted; False says that the last user has left."""
        released: dict[int, list[int]] = {}
        for lent in self._passed():
            del self._lent[lent.run, lent.batch]
            released.setdefault(lent.run, []).append(lent.batch)
            if lent.own:
                self._inbox.give_back(lent.memory)
            if (run := self._passes.get(lent.run)) is not None:
                run._outstanding -= lent.nbytes
                run._released += 1
            if (tally := lent.tally) is not None:
                tally.batches -= 1
                tally.nbytes -= lent.nbytes
                tally.released += 1
        for number, batches in released.items():
            sending += frame({"op": "release", "pass": number, "batches": batches})
        if released:
            with self._changed:
                self._changed.notify_all()
        while self._commands:
            command = self._commands.popleft()
            if command is None:
                return False
            if isinstance(command, bytes):
                sending += command
                continue
            if command.reader is not None:
                sending += frame({"op": "close", "id": next(self._ids), "reader": command.reader})
            with _registry_lock:
                self.users -= 1
                last = self.users <= 0
                if last and _registry.get(self.key) is self:
                    del _registry[self.key]
            if last:
                self._waiting.append(command)
                return False
            command.done.set()
        return True

    def _passed(self) -> Iterator[_Lent]:
        """Yield what was returned, that of GPUs when all their streams have passed it."""
        done, still = [], []
        for passing in self._passing:
            lent, device, events = passing
            if device.card.passed(events):
                done.append(lent)
            else:
                still.append(passing)
        self._passing = still
        yield from done
        while self._returned:
            lent = self._returned[0]
            if lent.device is not None and lent.streams:
                # All that uses it was put into the streams before now. It is never in neither
                # list, where others look for what is on its way back.
                events = lent.device.card.record(lent.streams)
                self._passing.append((lent, lent.device, events))
                self._asked = _ASK / 2
                self._returned.popleft()
            else:
                self._returned.popleft()
                yield lent

    def _write(self, sending: bytearray) -> None:
        try:
            while sending:
                del sending[: self._attached.sock.send(sending)]
        except _server.WOULD_BLOCK:
            pass
        except OSError:
            sending.clear()  # it reads no more, and what it sent says why

    def _take(self, message: Message) -> None:
        """Deal with what the server sent."""
        fields = message.fields
        if (number := fields.get("id")) is not None:
            call = self._calls.pop(number, None)
            if call is None:
                return  # nobody asked to know
            result, error = None, None
            if fields.get("error") is not None:
                error = of_reply(fields["error"])
            else:
                try:
                    result = call.make(fields.get("ok") or {}, message.payload)
                except ShardreadError as wrong:
                    error = wrong
            with self._changed:
                call.result, call.error, call.done = result, error, True
                if call.left and error is None:
                    call.undo(result)
                self._changed.notify_all()
            return
        match fields.get("event"):
            case "batch":
                batch = self._batch(fields, message.payload, fields["pass"])
                if (run := self._passes.get(fields["pass"])) is not None:
                    run._take(batch)
            case "end" | "held" as event:
                if (run := self._passes.get(fields["pass"])) is not None:
                    run._hear(event, fields)
            case "slab":
                self._map(fields)
            case "unslab":
                self._slabs.pop(fields["slab"], None)
                self._device_slabs.pop(fields["slab"], None)
            case "error":
                raise of_reply(fields["error"])
            case event:
                raise ServerError(f"the server sent an event that is not known: {event!r}")

    def _map(self, fields: dict[str, Any]) -> None:
        if not self._inbox.descriptors:
            raise ServerError("the server sent no file descriptor with a slab")
        fd = self._inbox.descriptors.popleft()
        if "device" in fields:
            self._map_device(fields, fd)
            return
        try:
            self._slabs[fields["slab"]] = Memory(fields["bytes"], fd)
        except (OSError, ValueError) as error:
            raise ServerMemoryError(
                f"{fields['bytes']} bytes of the server's memory cannot be mapped: {error}"
            ) from None
        finally:
            os.close(fd)

    def _map_device(self, fields: dict[str, Any], fd: int) -> None:
        from shardread import _cuda  # noqa: PLC0415 - few need it

        try:
            card = _cuda.opened(fields["device"])
            self._device_slabs[fields["slab"]] = card.map(fd, fields["bytes"])
        except DeviceError as error:
            raise DeviceError(
                f"{fields['bytes']} bytes of the server's on the GPU {fields['device']} cannot be "
                f"mapped: {error}; the server must use the same GPU"
            ) from None
        finally:
            os.close(fd)

    def _batch(self, fields: dict[str, Any], payload: Memory | None, number: int) -> RawBatch:
        """Make a batch of its description."""
        memory = self._slabs[fields["slab"]] if payload is None else payload
        lease: Any = memory.type.from_buffer(memory.map)
        lent = _Lent(lease, self._returned.append)
        lent.run, lent.batch, lent.nbytes = number, fields["number"], fields["bytes"]
        lent.memory, lent.own = memory, payload is not None
        lent.device, lent.streams = None, set()
        if (slab := fields.get("device_slab")) is not None:
            lent.device = self._device_slabs[slab]
            lease.device = lent.device  # which is mapped as long as anything has the batch
        lent.tally = None
        if (run := self._passes.get(number)) is not None:
            lent.tally = tally = run._reader._tally
            tally.batches += 1
            tally.nbytes += lent.nbytes
        self._lent[number, lent.batch] = lent
        return RawBatch(fields, memory, lease, lent.device, lent.streams)

    def _fail(self, error: ShardreadError, *, gone: bool = False) -> None:
        """End the connection, and tell everyone why; ``gone`` is the server, without a word."""
        with _registry_lock:
            if _registry.get(self.key) is self:
                del _registry[self.key]
        status = self._attached.close()
        if gone:
            error = ServerError(self._attached.why(str(error), status))
        for fd in self._inbox.descriptors:
            os.close(fd)
        self._inbox.descriptors.clear()
        self._selector.close()
        with self._changed:
            self._failure = error
            self._slabs.clear()
            self._device_slabs.clear()
            self._calls.clear()
            self._changed.notify_all()
        for leave in self._waiting:
            leave.done.set()

    def _abandon(self) -> None:
        """Let go of everything, in a process that was forked from the connection's."""
        self._changed = threading.Condition()
        self._failure = ForkedError(_FORKED)
        self._selector.close()
        self._attached.abandon()


_FORKED = (
    "this iteration began in another process, and cannot go on in a fork of it; a new one over "
    "the same loader can begin here"
)


class Reader:
    """A data set that a server has opened with a configuration.

    Attributes
    ----------
    length : int
        Batches of an epoch; -1 of a stream.
    samples : int
        Samples of an epoch, of all ranks.
    config : dict
        reader.Config as JSON, with all defaults filled in.
    classes : list of str
        Names of the classes, by number.
    tensors : list of dict
        ``name``, ``dtype`` and ``shape`` of the tensors of a full batch; -1 where a length
        varies.
    device : str or None
        The GPU that batches come on, by its UUID.
    """

    def __init__(self, connection: Connection, ok: dict[str, Any]) -> None:
        self.connection: Final = connection
        self._number: Final[int] = ok["reader"]
        self.length: Final[int] = ok["len"]
        self.samples: Final[int] = ok["samples"]
        self.config: Final[dict[str, Any]] = ok["config"]
        self.classes: Final[list[str]] = ok.get("classes") or []
        self.tensors: Final[list[dict[str, Any]]] = ok.get("tensors") or []
        self.device: Final[str | None] = ok.get("device")
        self._tally: Final = _Tally()
        self._finalizer = weakref.finalize(
            self, connection._leave, _Leave(self._number), wait=False
        )
        self._finalizer.atexit = False

    @property
    def alive(self) -> bool:
        """Whether it can be used: its server answers, and it was not closed or forked."""
        return self._finalizer.alive and self.connection.alive

    def _request(
        self,
        op: str,
        fields: dict[str, Any],
        make: Callable[[dict[str, Any], Memory | None], Any] = lambda ok, payload: ok,
        undo: Callable[[Any], None] = lambda result: None,
    ) -> Any:
        if not self._finalizer.alive:
            raise ShardreadError("it was closed")
        return self.connection.request(op, {**fields, "reader": self._number}, make, undo)

    def start(
        self, *, epoch: int = 0, state: dict[str, Any] | None = None, credit: int = 0
    ) -> Pass:
        """Begin a pass over an epoch, or over what is left of one behind ``state``.

        ``credit`` is how many bytes of batches may be sent ahead; 0 is as many as the pass
        can spare.
        """
        fields: dict[str, Any] = {"credit": credit}
        if state is not None:
            fields["state"] = state
        else:
            fields["epoch"] = epoch
        run: Pass = self._request(
            "start", fields, lambda ok, payload: Pass(self, ok), lambda run: run.stop()
        )
        return run

    def read(self, samples: Sequence[int], epoch: int = 0) -> RawBatch:
        """Read some samples by their numbers, as a batch.

        ``epoch`` says whose random numbers the transforms draw.
        """
        fields = {"samples": [int(n) for n in samples], "epoch": epoch}
        batch: RawBatch = self._request(
            "read",
            fields,
            lambda ok, payload: self.connection._batch(ok["batch"], payload, 0),
        )
        return batch

    def state(self, epoch: int = 0, batch: int = 0) -> dict[str, Any]:
        """Return the place before a batch of an epoch."""
        state: dict[str, Any] = self._request("state", {"epoch": epoch, "batch": batch})["state"]
        return state

    def plan(self, epoch: int, begin: int, end: int) -> list[list[int]]:
        """Return the numbers of the samples of batches ``begin`` to ``end`` of an epoch."""
        fields = {"epoch": epoch, "from": begin, "to": end}
        plan: list[list[int]] = self._request("plan", fields)["samples"]
        return plan

    def manifest(self) -> dict[str, Any]:
        """Return the data set's manifest."""
        manifest: dict[str, Any] = self._request("manifest", {})["manifest"]
        return manifest

    def table(self, split: str, label: str, where: str) -> Iterator[bytes]:
        """Yield the index as Parquet files, each with some rows; "" is all splits, labels, rows."""
        fields = {"split": split, "label": label, "where": where}
        place: int | None = 0
        while place is not None:
            part = self._request("table", {**fields, "from": place})
            yield base64.b64decode(part["parquet"])
            place = part.get("next")

    def stats(self) -> dict[str, Any]:
        """Return reader.Stats, and as ``bound`` what held its passes up."""
        reply = self._request("stats", {})
        return {**reply["stats"], "bound": reply["bound"]}

    def close(self) -> None:
        """End the reader's passes and close it; the last one of a server ends that, too.

        Arrays over batches stay good. Closing twice does nothing.
        """
        if self._finalizer.detach():
            self.connection._leave(_Leave(self._number), wait=True)


class Pass:
    """An epoch, or the rest of one, as batches that come in order."""

    def __init__(self, reader: Reader, ok: dict[str, Any]) -> None:
        self._reader: Final = reader
        self._connection: Final = reader.connection
        self.number: Final[int] = ok["pass"]
        self.credit: Final[int] = ok.get("credit", 0)
        self.batches: Final[int] = ok.get("batches", -1)
        self._queue: deque[RawBatch] = deque()
        self._ended = False
        self._error: ShardreadError | None = None
        self._held: dict[str, Any] | None = None
        self._released = 0  # as the server was told
        self._outstanding = 0  # bytes of those that it was not told of
        self._largest = 0
        self._connection._passes[self.number] = self
        self._finalizer = weakref.finalize(self, _stop, self._connection, self.number)
        self._finalizer.atexit = False

    def _take(self, batch: RawBatch) -> None:
        self._outstanding += batch.nbytes
        self._largest = max(self._largest, batch.nbytes)
        with self._connection._changed:
            if self._finalizer.alive:
                self._queue.append(batch)
            self._held = None
            self._connection._changed.notify_all()

    def _hear(self, event: str, fields: dict[str, Any]) -> None:
        with self._connection._changed:
            if event == "held":
                self._held = fields
            else:
                self._ended = True
                if fields.get("error") is not None:
                    self._error = of_reply(fields["error"])
                self._finalizer.detach()
            self._connection._changed.notify_all()

    def poll(self) -> RawBatch | None:
        """Return the next batch if it is there already."""
        self._connection.check_process()
        with self._connection._changed:
            return self._hand_over() if self._queue else None

    def _hand_over(self) -> RawBatch:
        """Take the first batch of the queue, for a consumer that may now drop the one before."""
        if self._tight():
            self._connection._wake()
        return self._queue.popleft()

    def next(self) -> RawBatch | None:
        """Wait for the next batch; None says that there is none.

        Raises
        ------
        TooManyBatchesHeld
            It has no room, since arrays over earlier batches are in use, and nothing seems
            to be about to change that.
        ShardreadError
            Of the data, the store or the server.
        """
        connection = self._connection
        connection.check_process()
        deadline: float | None = None
        tally, released = self._reader._tally, 0
        with connection._changed:
            while True:
                if self._queue:
                    return self._hand_over()
                if self._error is not None:
                    raise copy.copy(self._error)
                if self._ended:
                    return None
                connection._check()
                if not self._finalizer.alive:
                    return None  # it was stopped
                if not self._stuck():
                    deadline = None
                    connection._changed.wait()
                elif deadline is None or tally.released != released:
                    # Those of earlier passes may have been in the way, too.
                    released = tally.released
                    connection._wake()
                    # Arrays in reference cycles would be in nobody's hands.
                    connection._changed.release()
                    try:
                        gc.collect()
                    finally:
                        connection._changed.acquire()
                    others = threading.active_count() - sum(c.alive for c in list(_connections))
                    deadline = time.monotonic() + (GRACE_ALONE if others <= 1 else GRACE_THREADS)
                elif (left := deadline - time.monotonic()) > 0:
                    connection._changed.wait(left)
                else:
                    raise self._too_many()

    def _tight(self) -> bool:
        """Whether the server has no room for another batch, as far as we know."""
        return self._held is not None or self._outstanding + self._largest > self.credit

    def _stuck(self) -> bool:
        """Whether the server waits for batches of which none is on its way back."""
        held = self._held
        return (
            held is not None
            and held["released"] >= self._released
            and not self._connection._commands
            and not self._connection._returned
            and not self._connection._passing
        )

    def _too_many(self) -> TooManyBatchesHeld:
        tally, held = self._reader._tally, self._held or {}
        others = tally.batches - held.get("batches", 0)
        mine, of_others = "they", ""
        if others > 0:
            mine, of_others = "those of this pass", f", {others} of them of other passes"
        why = "leave no memory for the next one"
        if held.get("bytes", 0) + self._largest > self.credit:
            most = f"{self.credit / 1e6:.1f} MB that may be sent ahead"
            why = f"with the next one {mine} would be more than the {most}"
        return TooManyBatchesHeld(
            f"{tally.batches} batches ({tally.nbytes / 1e6:.1f} MB) are still in use{of_others}, "
            f"and {why}. An array keeps "
            "the memory of its whole batch for as long as it, or a view of it, is there: keep "
            "copies of what is to stay (x.clone(), x.copy()), drop what is not needed any more "
            "(also the variables of the loop, which hold the batch before), or give the loader "
            f"more {'prefetch' if self._reader.device else 'memory'}="
        )

    def stop(self) -> None:
        """End the pass. Batches that were taken stay good."""
        with self._connection._changed:
            self._finalizer()
            self._queue.clear()


def _stop(connection: Connection, number: int) -> None:
    """Tell the server that a pass ends; what it has sent of it is given back unseen."""
    connection._passes.pop(number, None)
    if connection.alive:
        connection._send("stop", {"pass": number})


# One connection for each server that the process uses, by who started it and how.
_registry: dict[object, Connection] = {}
_registry_lock = threading.Lock()  # of _registry, and of Connection.users
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def connect(address: _server.Address) -> Connection:
    """Attach to a server, or use the connection with it that there is.

    The caller owes one :meth:`Connection.leave`.

    Raises
    ------
    ServerError
        It cannot be started or reached, or speaks another version.
    """
    with _registry_lock:
        connection = _registry.get(address)
        if connection is not None and connection.alive:
            connection.users += 1
            return connection
    # Two threads at once may start two servers, which is no harm.
    connection = _greeted(address)
    with _registry_lock:
        _registry.setdefault(address, connection)
    return connection


def _greeted(address: _server.Address) -> Connection:
    """Attach to a server and say hello; to a host's again, which may just have been ending."""
    attempt = 0
    while True:
        connection = Connection(_server.attach(address), address)
        try:
            connection.greet()
        except BaseException as error:
            connection.leave()
            attempt += 1
            if address.kind != "host" or type(error) is not ServerError or attempt == _ATTEMPTS:
                raise
            time.sleep(0.05 * attempt)
        else:
            return connection


def open_reader(connection: Connection, request: dict[str, Any]) -> Reader:
    """Open a data set; ``request`` has the fields of the protocol's ``open``.

    The reader takes over one use of the connection, also where this fails.

    Raises
    ------
    ShardreadError
        ConfigError, DataNotFoundError, StoreError.
    """
    try:
        reader: Reader = connection.request(
            "open",
            request,
            lambda ok, payload: Reader(connection, ok),
            lambda reader: reader._finalizer(),
        )
    except BaseException:
        connection.leave()
        raise
    return reader


def _close_all() -> None:
    """End all connections as the interpreter ends."""
    for connection in list(_connections):
        if connection.alive:
            connection._post(None)
            connection._thread.join()


def _after_fork() -> None:
    """Let go, in a child, of what is its parent's."""
    global _registry_lock  # noqa: PLW0603 - another thread of the parent may hold it
    _registry_lock = threading.Lock()
    _registry.clear()
    for connection in list(_connections):
        connection._abandon()
    _connections.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
