"""The frames of docs/feed.md: length, JSON text and payload, as they come off a socket."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from shardread.errors import ServerError

PROTOCOL = 1
"""The version of the protocol that the client speaks."""

_HEADER = struct.Struct("<IIQ")
_MOST_TEXT = 64 << 20
_PIECE = 1 << 16
# Room for 16 descriptors; no recvmsg of Linux brings those of more than one message.
_ANCILLARY = socket.CMSG_SPACE(64) if hasattr(socket, "CMSG_SPACE") else 0
_FLAGS = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_LOST = int(getattr(socket, "MSG_CTRUNC", 0))


def frame(message: dict[str, Any]) -> bytes:
    """Write a message as a frame without payload."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return _HEADER.pack(len(text), 0, 0) + text


class Memory:
    """Memory in which batches lie: a slab that the server shares, or of our own.

    What wants to know when it goes uses weakref.finalize: batches keep it.
    """

    def __init__(self, size: int, fd: int = -1) -> None:
        self.map: Final = mmap.mmap(fd, size)
        self.type: Final = ctypes.c_char * size
        self.pinned = False

    @property
    def address(self) -> int:
        """Where it begins in this process."""
        return ctypes.addressof(self.type.from_buffer(self.map))


@dataclass
class Message:
    """A frame that has come, and its payload, if it has one."""

    fields: dict[str, Any]
    payload: Memory | None = None


class Inbox:
    """Puts together what comes off a non-blocking socket: frames, and file descriptors.

    Its memory of a frame that has come in part is kept between calls of
    :meth:`receive`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._unix = not self._tls and sock.family == getattr(socket, "AF_UNIX", None)
        self._piece = memoryview(bytearray(_PIECE))
        self._buffer = bytearray()
        self._text: dict[str, Any] | None = None  # of the frame whose payload is coming
        self._payload: Memory | None = None
        self._size = 0
        self._filled = 0
        self._free: list[Memory] = []
        self.descriptors: deque[int] = deque()
        self.ended = False

    def give_back(self, payload: Memory) -> None:
        """Take the memory of a payload for another."""
        if len(self._free) < 4:
            self._free.append(payload)

    def receive(self) -> Iterator[Message]:
        """Yield the frames that have come, until there is no more to read for now.

        At the stream's end ``ended`` is set.

        Raises
        ------
        ServerError
            What comes is no frame.
        OSError
            The connection broke.
        """
        while True:
            try:
                if self._payload is not None:
                    with memoryview(self._payload.map) as view:
                        n = wanted = self._sock.recv_into(view[self._filled : self._size])
                    self._filled += n
                else:
                    n, wanted = self._read(), len(self._piece)
                    self._buffer += self._piece[:n]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except InterruptedError:
                continue
            if n == 0:
                self.ended = True
                if self._buffer or self._text is not None:
                    raise ServerError("the server's stream ends in the middle of a message")
                return
            yield from self._messages()
            if n < wanted and not self._tls:
                return  # there was no more

    def _read(self) -> int:
        """Read into the piece, and take the descriptors that come with it."""
        if not self._unix:
            return self._sock.recv_into(self._piece)
        n, ancillary, flags, _ = self._sock.recvmsg_into([self._piece], _ANCILLARY, _FLAGS)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(content) // 4
                fds = struct.unpack(f"={count}i", content[: 4 * count])
                for fd in fds:
                    os.set_inheritable(fd, False)
                self.descriptors.extend(fds)
        if flags & _LOST:
            raise ServerError(
                "file descriptors of shared memory were lost on the way: this process may "
                "have no more open (ulimit -n)"
            )
        return n

    def _messages(self) -> Iterator[Message]:
        while True:
            if self._payload is not None and self._text is not None:
                if self._filled < self._size:
                    return
                message = Message(self._text, self._payload)
                self._text, self._payload, self._filled = None, None, 0
                yield message
                continue
            if len(self._buffer) < _HEADER.size:
                return
            length, zero, size = _HEADER.unpack_from(self._buffer)
            if not 2 <= length <= _MOST_TEXT or zero != 0 or (size and self._unix):
                raise ServerError("what the server sends is no message of shardread's protocol")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            try:
                fields = json.loads(bytes(self._buffer[_HEADER.size : end]))
            except ValueError as error:
                raise ServerError(f"the server sent what is no message: {error}") from None
            if not isinstance(fields, dict):
                raise ServerError("the server sent what is no message: no JSON object")
            del self._buffer[:end]
            if size == 0:
                yield Message(fields)
                continue
            self._text, self._payload, self._size = fields, self._memory(size), size
            n = min(size, len(self._buffer))
            self._payload.map[:n] = bytes(self._buffer[:n])
            del self._buffer[:n]
            self._filled = n

    def _memory(self, size: int) -> Memory:
        for i, memory in enumerate(self._free):
            if size <= len(memory.map) < 2 * size + _PIECE:
                return self._free.pop(i)
        try:
            return Memory(size)
        except (OSError, OverflowError, ValueError, MemoryError) as error:
            raise ServerError(f"no memory for a batch of {size} bytes: {error}") from None
