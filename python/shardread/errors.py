"""What goes wrong, each kind with its own type; all are a :class:`ShardreadError`."""

from __future__ import annotations

from typing import Any


class ShardreadError(Exception):
    """The base of every error that the package raises on its own."""


class ConfigError(ShardreadError, ValueError):
    """The configuration is wrong; the message names every fault."""


class StateError(ShardreadError, ValueError):
    """A state does not fit the data or its order; the message names all that differs."""


class DataNotFoundError(ShardreadError, FileNotFoundError):
    """There is no data set at the address, or no such split."""


class DataError(ShardreadError):
    """A sample is damaged, and ``on_bad`` is "fail", or there are more than ``max_bad``.

    Attributes
    ----------
    shard, key, field : str
        Where it lies; empty where that is not known.
    offset : int
        Where the field begins in the shard; -1 where that is not known.
    """

    def __init__(
        self, message: str, shard: str = "", key: str = "", field: str = "", offset: int = -1
    ) -> None:
        super().__init__(message)
        self.shard, self.key, self.field, self.offset = shard, key, field, offset

    def __reduce__(self) -> tuple[Any, ...]:
        return DataError, (str(self), self.shard, self.key, self.field, self.offset)


class StoreError(ShardreadError, OSError):
    """Reading the data failed, after all retries."""


class ServerMemoryError(ShardreadError, MemoryError):
    """The server's memory is lent to other passes, or memory for slabs cannot be had."""


class DeviceError(ShardreadError, RuntimeError):
    """The GPU cannot be used: it, or CUDA, is not there, refuses, or has failed."""


class TooManyBatchesHeld(ShardreadError, MemoryError):  # noqa: N818 - it says what is wrong
    """The next batch has no room, since arrays over earlier ones are still in use."""


class ServerError(ShardreadError, ConnectionError):
    """The server cannot be started or reached, has ended, or speaks another language."""


class TokenError(ServerError, PermissionError):
    """The server wants another token than SHARDREAD_TOKEN."""


class VersionError(ServerError):
    """The server speaks another version of the protocol."""


class CanceledError(ServerError):
    """The server was told to end."""


class ForkedError(ShardreadError, RuntimeError):
    """An iteration that began in one process goes on in another, a fork of it."""


_BY_CODE: dict[str, type[ShardreadError]] = {
    "protocol": ServerError,
    "version": VersionError,
    "token": TokenError,
    "not_found": DataNotFoundError,
    "config": ConfigError,
    "state": StateError,
    "store": StoreError,
    "memory": ServerMemoryError,
    "device": DeviceError,
    "held": TooManyBatchesHeld,
    "canceled": CanceledError,
}


def of_reply(error: dict[str, Any]) -> ShardreadError:
    """Make the error that a server's ``{"code": …, "message": …}`` stands for."""
    code, message = str(error.get("code")), str(error.get("message"))
    if code == "data":
        sample = error.get("sample") or {}
        return DataError(
            message,
            str(sample.get("shard", "")),
            str(sample.get("key", "")),
            str(sample.get("field", "")),
            int(sample.get("offset", -1)),
        )
    return _BY_CODE.get(code, ShardreadError)(message)
