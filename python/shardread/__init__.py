"""Packed shards of images to batches, by an engine in Go."""

from shardread._pack import PackedSplit, PackError, PackProgress, PackResult, pack
from shardread._version import __version__
from shardread.errors import ConfigError, ShardreadError

__all__ = [
    "ConfigError",
    "PackError",
    "PackProgress",
    "PackResult",
    "PackedSplit",
    "ShardreadError",
    "__version__",
    "pack",
]
