"""A model learns through shardread what it learns through ImageFolder and DataLoader.

Evaluation and an epoch without randomness give the same pixels, so they are compared to the last
bit. Random crops are other ones of the same distribution, so there what is compared is accuracy,
over several seeds: `make test-training`, a few minutes, whose table is in docs/benchmarks.md.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import shardread

ROOT = Path(__file__).parents[3]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE = 32
BATCH = 64

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let sums be made in one order, and not wait for cores that others use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Shapes:
    """A data set of ten shapes, as a folder of files and as shards."""

    def __init__(self, folder: Path, programs: Path, images: int) -> None:
        self.files, self.shards = folder / "files", folder / "shards"
        made = ["go", "run", "./tools/gendata", str(self.files), "--shapes", "--quiet"]
        made += ["--images", str(images), "--splits", "train:0.8,val:0.2"]
        subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
        packed = [str(programs / "shardify"), "pack", str(self.files), str(self.shards)]
        subprocess.run([*packed, "--shards", "8"], check=True, capture_output=True)

    def folder(self, split: str, *transforms: Any) -> ImageFolder:
        """Return the files as torchvision's users read them."""
        to_floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        return ImageFolder(self.files / split, v2.Compose([*transforms, *to_floats]))

    def loader(self, split: str, *transforms: Any, **options: Any) -> shardread.Loader:
        """Return the shards, with the same transforms."""
        return shardread.Loader(
            str(self.shards),
            split=split,
            batch_size=BATCH,
            transform=[*transforms, shardread.Normalize(shardread.IMAGENET)],
            **options,
        )


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Shapes:
    return Shapes(tmp_path_factory.mktemp("shapes"), programs, 1000)


def network(seed: int) -> nn.Module:
    """Return a small convolutional network."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 3
    for width in (16, 32, 64):
        layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def fit(model: nn.Module, epochs: Iterable[Batches], steps: int) -> list[float]:
    """Train, with one cycle of learning rates over so many steps, and return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), 0.2, 0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
    model.train()
    losses = []
    for batches in epochs:
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    assert len(losses) == steps
    return losses


@torch.inference_mode()
def accuracy(model: nn.Module, batches: Batches) -> float:
    model.eval()
    right = total = 0
    for images, labels in batches:
        right += int((model(images).argmax(1) == labels).sum())
        total += len(labels)
    return right / total


def key_of(path: str) -> str:
    """Return the key of the sample that `shardify pack` makes of a file."""
    file = Path(path)
    return f"{file.parent.name}/{file.stem}"


def test_classes_are_the_same(shapes: Shapes) -> None:
    """A class has the number that ImageFolder gives it."""
    loader = shapes.loader("train", shardread.CenterCrop(SIZE))
    assert loader.classes == shapes.folder("train").classes


def test_same_evaluation(shapes: Shapes) -> None:
    """Resize and CenterCrop show a model what they show it through Pillow, to the last bit."""
    size = SIZE * 8 // 7
    folder = shapes.folder("val", v2.Resize(size), v2.CenterCrop(SIZE))
    images, labels = zip(*folder, strict=True)
    of_files = {key_of(path): at for at, (path, _) in enumerate(folder.samples)}

    val = shapes.loader(
        "val", shardread.Resize(size), shardread.CenterCrop(SIZE), shuffle=False, ends="exact"
    )
    model = network(1).eval()
    seen = 0
    for batch in val.batches():
        at = [of_files[key] for key in batch.keys]
        want = torch.stack([images[i] for i in at])
        assert torch.equal(batch["image"], want)
        assert batch["label"].tolist() == [labels[i] for i in at]
        assert torch.equal(model(batch["image"]), model(want))
        seen += len(at)
    assert seen == len(folder) == 200


def test_same_weights(shapes: Shapes) -> None:
    """Trained on the same samples in the same order, a model has the same weights, to the last bit.

    The order is shardread's, given to the DataLoader as its batch_sampler.
    """
    train = shapes.loader("train", shardread.Resize((SIZE, SIZE)), ends="drop", seed=7)
    order: list[list[str]] = []

    def of_shards(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        train.set_epoch(epoch)
        for batch in train.batches():
            order.append(batch.keys)
            yield batch["image"], batch["label"]

    epochs, steps = 2, 2 * len(train)
    through_shards = network(1)
    losses = fit(through_shards, map(of_shards, range(epochs)), steps)

    folder = shapes.folder("train", v2.Resize((SIZE, SIZE)))
    of_files = {key_of(path): at for at, (path, _) in enumerate(folder.samples)}
    batches = [[of_files[key] for key in keys] for keys in order]
    assert len({at for batch in batches[: len(train)] for at in batch}) == BATCH * len(train)
    through_files = network(1)
    assert fit(through_files, [DataLoader(folder, batch_sampler=batches)], steps) == losses
    for name, weights in through_files.state_dict().items():
        assert torch.equal(weights, through_shards.state_dict()[name]), name


@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    "SHARDIFY_TRAINING" not in os.environ,
    reason="SKIPPED LOUDLY: takes minutes; `make test-training` runs it",
)
def test_same_accuracy(tmp_path: Path, programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With random crops and flips, the accuracy is the same but for what seeds make of it."""
    shapes = Shapes(tmp_path, programs, 4000)
    scale, epochs = (0.5, 1), 12

    def files(seed: int) -> tuple[nn.Module, list[float]]:
        crop = v2.RandomResizedCrop(SIZE, scale=scale)
        folder = shapes.folder("train", crop, v2.RandomHorizontalFlip())
        model = network(seed)
        loader = DataLoader(folder, BATCH, shuffle=True, drop_last=True, num_workers=1)
        return model, fit(model, [loader] * epochs, epochs * len(loader))

    def shards(seed: int) -> tuple[nn.Module, list[float]]:
        crop = shardread.RandomResizedCrop(SIZE, scale=scale)
        flip = shardread.RandomHorizontalFlip()
        loader = shapes.loader("train", crop, flip, ends="drop", seed=seed)

        def epoch(number: int) -> Batches:
            loader.set_epoch(number)
            return loader

        model = network(seed)
        return model, fit(model, map(epoch, range(epochs)), epochs * len(loader))

    val = shapes.folder("val", v2.Resize((SIZE, SIZE)))
    images, labels = (
        torch.stack([torch.as_tensor(x) for x in xs]) for xs in zip(*val, strict=True)
    )
    results: dict[str, list[float]] = {}
    with capsys.disabled():
        print(f"\n{'':24} seed   accuracy   last loss   seconds")
        for seed in range(3):
            for name, train in (("ImageFolder, DataLoader", files), ("shardread", shards)):
                start = time.perf_counter()
                model, losses = train(seed)
                right = accuracy(model, [(images, labels)])
                results.setdefault(name, []).append(right)
                last, took = statistics.mean(losses[-50:]), time.perf_counter() - start
                print(f"{name:24} {seed:4}   {100 * right:6.1f} %   {last:9.4f}   {took:7.1f}")
        for name, found in results.items():
            mean, spread = statistics.mean(found), statistics.stdev(found)
            print(f"{name:24} mean   {100 * mean:6.1f} % ± {100 * spread:.1f}")
    means = [statistics.mean(found) for found in results.values()]
    assert min(min(found) for found in results.values()) > 0.85  # of ten classes
    assert abs(means[0] - means[1]) < 0.03
