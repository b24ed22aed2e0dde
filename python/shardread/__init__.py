"""Packed shards of images to batches, by an engine in Go."""

from shardread._version import __version__

__all__ = ["__version__"]
