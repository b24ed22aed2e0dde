"""Arrays of JAX and TensorFlow, and which framework is meant; tests/torch has torch's."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread._world import rank_and_world

GIVEN: dict[str, Any] = {
    "split": "train",
    "batch_size": 8,
    "seed": 1,
    "transform": [shardread.RandomResizedCrop(32), shardread.Normalize(shardread.IMAGENET)],
}


@pytest.fixture(params=["jax", "tensorflow"])
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.environ.get("SHARDIFY_PEERS") == "require":
        __import__(name)
    pytest.importorskip(name, reason=f"SKIPPED LOUDLY: {name} is not installed")
    return name


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
@pytest.mark.parametrize("device", [None, "cpu", "cpu:0"])
def test_arrays_are_those_of_numpy(framework: str, dtype: Any, device: Any, shards: Path) -> None:
    given = {**GIVEN, "dtype": dtype, "framework": framework}
    if dtype == "uint8":
        given["transform"] = GIVEN["transform"][:1]
    with (
        shardread.Loader(shards, device=device, **given) as loader,
        shardread.Loader(shards, **{**given, "framework": "numpy"}) as plain,
    ):
        kept = []
        for (images, labels), (pixels, numbers) in zip(loader, plain, strict=True):
            assert type(images).__module__.split(".")[0] in {"jaxlib", "tensorflow"}
            assert np.asarray(images).dtype == pixels.dtype
            assert np.array_equal(np.asarray(images), pixels)
            assert np.array_equal(np.asarray(labels), numbers)
            kept.append((images[0, 0] + 0, pixels[0, 0].copy()))
            del images, labels, pixels, numbers
        for one, other in kept:
            assert np.array_equal(np.asarray(one), other)


def test_memory_stays_while_arrays_lie_in_it(framework: str, shards: Path, until: Any) -> None:
    with shardread.Loader(shards, framework=framework, **GIVEN) as loader:  # type: ignore[arg-type]
        run = loader._start()
        raw = run.next()
        assert raw is not None
        wanted = raw.tensors()["image"].copy()
        image = loader._framework.arrays(raw)["image"]
        del raw
        while run.next() is not None:  # what room there is is used
            pass
        until(lambda: run._released >= run.batches - 1)
        for _ in loader:  # and used again
            pass
        assert np.array_equal(np.asarray(image), wanted)


def test_many_epochs_hold_nothing(framework: str, shards: Path) -> None:
    with shardread.Loader(shards, framework=framework, prefetch=2, **GIVEN) as loader:  # type: ignore[arg-type]
        for _ in range(3):
            n = sum(1 for _ in loader)
            assert n == len(loader)
        gc.collect()


def test_a_device_that_is_not_there(framework: str, shards: Path) -> None:
    if framework == "jax":
        with pytest.raises(shardread.ConfigError, match="JAX has no"):
            shardread.Loader(shards, framework="jax", device="cuda:9", **GIVEN)
    with pytest.raises(shardread.ConfigError, match="pin_memory is for"):
        shardread.Loader(shards, framework=framework, pin_memory=True, **GIVEN)  # type: ignore[arg-type]


def test_which_framework_is_meant(shards: Path) -> None:
    text = """
import sys, shardread
with shardread.Loader(sys.argv[1], split="train", batch_size=8) as loader:
    print(type(next(iter(loader))[0]).__module__)
assert not {"torch", "jax", "tensorflow"} & set(sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", text, str(shards)], check=True, capture_output=True, text=True
    )
    assert run.stdout == "numpy\n"


@pytest.mark.parametrize(
    ("environment", "given", "wanted"),
    [
        ({}, (None, None), (0, 1)),
        ({}, (3, 8), (3, 8)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (None, None), (2, 4)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (0, 1), (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (None, 1), (0, 1)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (None, None), (1, 2)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (None, None), (0, 1)),  # sbatch's script
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (None, None), (1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (None, None), (1, 2)),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            (None, None),
            (1, 2),
        ),
    ],
)
def test_ranks(
    environment: dict[str, str],
    given: tuple[int | None, int | None],
    wanted: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [*os.environ]:
        if name.startswith(("RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI_")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank_and_world(*given) == wanted


def test_ranks_that_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(shardread.ConfigError, match="RANK=4 and WORLD_SIZE=4, as torchrun"):
        rank_and_world(None, None)
    with pytest.raises(shardread.ConfigError, match="give both"):
        rank_and_world(1, None)
