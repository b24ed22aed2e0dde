"""Albumentations in the workers of a DataLoader, and Kornia on batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import albumentations
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shardread

augment = albumentations.Compose([
    albumentations.HorizontalFlip(p=0.5),
    albumentations.ToTensorV2(),
])  # fmt: skip


def item(sample: dict[str, Any]) -> tuple[torch.Tensor, int, str, int]:
    worker = torch.utils.data.get_worker_info()
    image = augment(image=sample["image"])["image"]
    return image, sample["label"], sample["key"], worker.id


def seed(worker: int) -> None:
    augment.set_random_seed(torch.initial_seed())


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (shardread.IterableDataset, "fork"),
        (shardread.IterableDataset, "spawn"),
        (shardread.Dataset, "fork"),
    ],
)
def test_albumentations(kind: Any, how: str, shards: Path) -> None:
    """Every sample comes once, as it is or mirrored, and by numbers of each worker's own."""
    small = [shardread.Resize((24, 32))]
    with shardread.open(shards, split="train", transform=small, layout="NCHW") as data:
        wanted = {sample["key"]: sample for sample in data}
    data = kind(shards, split="train", transform=small, map=item)
    torch.manual_seed(1)
    loader = DataLoader(
        data, batch_size=10, num_workers=2, multiprocessing_context=how, worker_init_fn=seed
    )
    seen: list[str] = []
    mirrored: list[list[bool]] = [[], []]
    for images, labels, keys, workers in loader:
        assert images.shape == (10, 3, 24, 32)
        seen += keys
        for image, label, key, worker in zip(images, labels, keys, workers, strict=True):
            assert label == wanted[key]["label"]
            pixels = wanted[key]["image"]
            mirrored[worker].append(not np.array_equal(image, pixels))
            if mirrored[worker][-1]:
                np.testing.assert_array_equal(image, pixels[..., ::-1])
    assert sorted(seen) == sorted(wanted)
    assert [len(drawn) for drawn in mirrored] == [60, 60]
    assert all(10 < sum(drawn) < 50 for drawn in mirrored)
    assert mirrored[0] != mirrored[1]
    data.close()


def test_kornia(shards: Path) -> None:
    """A batch is augmented as any tensor is, and stays what it was."""
    import kornia.augmentation as kornia  # noqa: PLC0415 - spawned workers do without

    flip = kornia.RandomHorizontalFlip(p=0.5)
    augment = torch.nn.Sequential(
        flip, kornia.Normalize(*(torch.tensor(values) for values in shardread.IMAGENET))
    )
    size = {"split": "train", "batch_size": 40, "seed": 3}
    uint8 = shardread.Loader(shards, transform=[shardread.Resize((24, 32))], **size)
    ours = shardread.Loader(
        shards,
        transform=[shardread.Resize((24, 32)), shardread.Normalize(shardread.IMAGENET)],
        **size,
    )
    torch.manual_seed(1)
    mirrored = 0
    for (images, labels), (wanted, same) in zip(uint8, ours, strict=True):
        assert torch.equal(labels, same)
        before = images.clone()
        made = augment(images.float() / 255)
        assert torch.equal(images, before)
        chosen = flip._params["batch_prob"].bool()
        mirrored += int(chosen.sum())
        wanted[chosen] = wanted[chosen].flip(3)
        torch.testing.assert_close(made, wanted, atol=1e-5, rtol=0)
    assert 30 < mirrored < 90
