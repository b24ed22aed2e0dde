"""Fixtures of the tests of batches on a GPU: a card, or the double of its driver."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = str(ROOT / "python")

import shardread  # noqa: E402

COUNTS = os.environ.get("FAKE_CUDA_COUNTS")
KINDS = (
    "memory", "pinned", "registered", "streams", "events", "modules", "contexts", "handles",
    "ranges", "mappings",
)  # fmt: skip

if not COUNTS and os.environ.get("SHARDIFY_GPU") != "require":
    collect_ignore_glob = ["test_*.py"]  # tests/test_cuda.py runs them, on the double


class Double:
    """The double of the driver, in this process."""

    def __init__(self) -> None:
        if not COUNTS:
            pytest.skip("SKIPPED LOUDLY: only the double can do this; make test-python runs it")
        self._library = ctypes.CDLL("libcuda.so.1")

    def set(self, name: str, value: int) -> None:
        """Change a setting of the double."""
        self._library.fake_set(name.encode(), value)

    def live(self, pid: int) -> dict[str, int]:
        """Return what a process has not freed."""
        data = (Path(str(COUNTS)) / str(pid)).read_bytes()
        counts = dict(zip(KINDS, struct.unpack(f"{len(data) // 8}q", data), strict=False))
        return {kind: n for kind, n in counts.items() if n}


@pytest.fixture
def double() -> Iterator[Double]:
    """Return the double, whose settings are as they were afterwards."""
    made = Double()
    yield made
    made.set("FAKE_CUDA_LATE_EVENTS", 0)


def on_host(array: shardread.DeviceArray) -> Any:
    """Return what is in an array, as NumPy has it; bfloat16 as its bits."""
    if COUNTS:  # the double's memory is the host's
        held = (ctypes.c_char * array.nbytes).from_address(array.pointer)
        dtype = "uint16" if array.dtype == "bfloat16" else array.dtype
        return np.frombuffer(bytes(held), dtype).reshape(array.shape)
    import torch  # noqa: PLC0415 - for a card it must be there

    tensor = torch.from_dlpack(array)
    if array.dtype == "bfloat16":
        tensor = tensor.view(torch.int16)
    found = tensor.cpu().numpy()
    return found.view(np.uint16) if array.dtype == "bfloat16" else found


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make and pack 120 images to train with, of five classes: a card's machine may have no Go."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(1)
    for number in range(130):
        split, label = "train" if number < 120 else "val", number % 5
        height, width = 60 + number % 17, 64 + number % 23
        pixels = random.integers(0, 256, (height, width, 3), np.uint8)
        file = folder / "images" / split / f"class {label}" / f"{number:03}.ppm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"P6\n{width} {height}\n255\n".encode() + pixels.tobytes())
    program = str(Path(os.environ["SHARDREAD_PROGRAMS"]) / "shardify")
    command = [program, "pack", str(folder / "images"), str(folder / "shards"), "--shards", "4"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "shards"
