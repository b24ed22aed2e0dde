"""The memory of a batch is lent for as long as anything lies in it, and no longer."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread import _client

GIVEN: dict[str, Any] = {
    "split": "train",
    "batch_size": 8,
    "seed": 1,
    "framework": "numpy",
    "transform": [shardread.RandomResizedCrop(64), shardread.RandomHorizontalFlip()],
}
BATCH = 8 * 3 * 64 * 64


def test_what_is_held_stays_as_it_is(shards: Path) -> None:
    rng = random.Random(1)
    with shardread.Loader(shards, memory="64MiB", **GIVEN) as loader:
        kept: list[tuple[Any, Any]] = []
        for _ in range(4):
            for images, _labels in loader:
                if rng.random() < 0.3:
                    view = images[rng.randrange(8) :: 2, :, ::3]
                    kept.append((view, view.copy()))
                if len(kept) > 5:
                    kept.pop(rng.randrange(len(kept)))
                for view, copy in kept:
                    assert (view == copy).all()
                del images, _labels
        loader.close()
        # Also when its pass, its reader and its server have ended.
        for view, copy in kept:
            assert (view == copy).all()
            view[:] = 1  # it is the holder's to change


@pytest.mark.parametrize(
    "derive",
    [
        lambda a: a,
        lambda a: a[2:3, 1],
        lambda a: a.reshape(-1)[::-1],
        lambda a: a.view(np.int8),
        memoryview,
        lambda a: np.asarray(memoryview(a)),
        lambda a: np.frombuffer(a.data.cast("B"), np.uint8),
        np.from_dlpack,
        lambda a: a.view(np.recarray),
        lambda a: iter(a.flat),
        lambda a: a.ctypes,
    ],
)
def test_whatever_lies_in_it_holds_it(derive: Any, shards: Path, until: Any) -> None:
    with shardread.Loader(shards, **GIVEN) as loader:
        run = loader._start()
        raw = run.next()
        assert raw is not None
        held = derive(raw.tensors()["image"])
        del raw
        while run.next() is not None:
            pass
        until(lambda: run._released == run.batches - 1)
        gc.collect()
        assert run._released == run.batches - 1
        del held
        until(lambda: run._released == run.batches)


def test_holding_too_many_is_an_error_that_says_so(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_client, "GRACE_ALONE", 0.1)
    with shardread.Loader(shards, prefetch=2, **GIVEN) as loader:
        kept: list[Any] = []
        with pytest.raises(shardread.TooManyBatchesHeld) as caught:
            kept.extend(images for images, _ in loader)
        assert str(caught.value).startswith(f"{len(kept)} batches (")
        assert "x.clone(), x.copy()" in str(caught.value)
        assert "memory=" in str(caught.value)
        assert len(kept) == 3
        # It can be gone on with.
        state = loader.state_dict()
        kept.clear()
        loader.load_state_dict(state)
        assert sum(1 for _ in loader) == len(loader) - state["state"]["batch"]


def test_batches_of_earlier_passes_count(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_client, "GRACE_ALONE", 0.1)
    with shardread.Loader(shards, prefetch=3, **GIVEN) as loader:
        kept = [images for i, (images, _) in enumerate(loader) if i < 2]
        stopped = iter(loader)
        kept.append(next(stopped)[0])
        stopped.close()
        with pytest.raises(shardread.TooManyBatchesHeld) as caught:
            kept.extend(images for images, _ in loader)
        assert len(kept) == 7
        assert str(caught.value).startswith("7 batches (")
        assert "3 of them of other passes, and with the next one those of this pass" in str(
            caught.value
        )
        # Those of a pass that goes on are in nobody's way after.
        kept.clear()
        assert sum(1 for _ in loader) == len(loader)


def test_garbage_in_cycles_is_not_held(shards: Path) -> None:
    with shardread.Loader(shards, prefetch=2, **GIVEN) as loader:
        gc.disable()
        try:
            n = 0
            for images, _ in loader:
                cycle: list[Any] = [images]
                cycle.append(cycle)
                del images, cycle
                n += 1
        finally:
            gc.enable()
        assert n == len(loader)


def test_batches_that_another_thread_holds_are_waited_for(shards: Path) -> None:
    with shardread.Loader(shards, prefetch=2, **GIVEN) as loader:
        stuck = threading.Event()
        kept: list[Any] = []

        def drop() -> None:
            stuck.wait(60)
            kept.clear()

        other = threading.Thread(target=drop)
        other.start()
        run = loader._start()
        waits = run._stuck
        # The test's way to know that the loop waits.
        run._stuck = lambda: waits() and (stuck.set() or True)  # type: ignore[method-assign]
        n = 0
        while (raw := run.next()) is not None:
            kept.append(raw.tensors()["image"])
            del raw
            n += 1
            if stuck.is_set():
                other.join()
                kept.clear()
        other.join()
        assert n == len(loader)


def test_a_pass_that_is_left_holds_nothing(shards: Path, until: Any) -> None:
    with shardread.Loader(shards, **GIVEN) as loader:
        connection = loader._open().connection
        for _ in range(5):
            for images, _labels in loader:
                del images, _labels
                break
        iter(loader)  # never asked for anything
        gc.collect()
        until(lambda: not connection._passes and not connection._calls)
        # Its memory is there for the next one.
        assert sum(1 for _ in loader) == len(loader)


def test_prefetching_is_bounded(shards: Path) -> None:
    with shardread.Loader(shards, prefetch=1, **GIVEN) as loader:
        run = loader._start()
        assert 2 * BATCH < run.credit < 3 * BATCH
        run.stop()
    with shardread.Loader(shards, prefetch="1MB", **GIVEN) as loader:
        run = loader._start()
        assert run.credit == 1_000_000
        run.stop()
