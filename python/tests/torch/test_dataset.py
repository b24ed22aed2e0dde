"""Dataset in a DataLoader, for torch's own samplers and wrappers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset

import shardread


def small(sample: dict[str, Any]) -> tuple[torch.Tensor, int, str]:
    image = torch.from_numpy(sample["image"][:16, :16].copy())
    return image, sample["label"], sample["key"]


@pytest.mark.parametrize(("workers", "how"), [(0, None), (2, "fork"), (2, "spawn")])
def test_workers_give_what_the_data_set_has(shards: Path, workers: int, how: str | None) -> None:
    with shardread.Dataset(shards, split="train", map=small) as data:
        want = {key: (image, label) for image, label, key in data}
        assert len(want) == 120
        loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=workers, multiprocessing_context=how
        )
        seen = []
        for images, labels, keys in loader:
            for image, label, key in zip(images, labels.tolist(), keys, strict=True):
                assert torch.equal(image, want[key][0])
                assert label == want[key][1]
                seen.append(key)
        assert sorted(seen) == sorted(want)
        assert seen != list(want)


def test_samplers_and_subsets(shards: Path) -> None:
    with shardread.Dataset(shards, split="val", map=small) as data:
        keys = [key for _, _, key in data]
        seen: list[str] = []
        for rank in range(2):
            sampler = DistributedSampler(data, num_replicas=2, rank=rank)  # type: ignore[arg-type]
            for _, _, some in DataLoader(data, batch_size=4, sampler=sampler):
                seen += some
        assert sorted(seen) == sorted(keys)
        assert [item[2] for item in Subset(data, [3, 1])] == [keys[3], keys[1]]
        train, rest = torch.utils.data.random_split(data, [0.8, 0.2])  # type: ignore[arg-type]
        assert (len(train), len(rest)) == (24, 6)


def test_it_is_used_again_in_a_fork_while_it_is_in_use(shards: Path) -> None:
    """The parent goes on with its own reader beside its workers, and after them."""
    with shardread.Dataset(shards, split="val", map=small) as data:
        for _, _, keys in DataLoader(data, batch_size=4, num_workers=2):
            assert data[0][2] not in keys[1:]
        np.testing.assert_array_equal(data[1][0], next(iter(DataLoader(data, 2)))[0][1])
