"""Tensors of torch: over shared memory, of every type, and on their way to a device."""

from __future__ import annotations

import ctypes
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shardread  # noqa: E402
from shardread import _torch  # noqa: E402

TRAIN = [shardread.RandomResizedCrop(32), shardread.RandomHorizontalFlip()]


def test_the_loop_of_the_tour(shards: Path, tmp_path: Path) -> None:
    """README's loop, word for word but for the place, the size and the GPU."""
    url, device, epochs, path = str(shards), "cpu", 2, tmp_path / "checkpoint.pt"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(5))

    loader = shardread.Loader(
        url, split="train", batch_size=16, seed=1,
        transform=[shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip(),
                   shardread.Normalize(shardread.IMAGENET)],
        device=device,
    )  # fmt: skip
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for images, labels in loader:
            assert images.shape == (len(labels), 3, 224, 224)
            assert images.dtype == torch.float32
            assert -2.2 < images.min() < images.max() < 2.7
            assert labels.dtype == torch.int64
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
        torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, path)

    state = torch.load(path)["loader"]  # weights_only: nothing but plain data
    assert state["state"]["epoch"] == epochs
    loader.load_state_dict(state)
    assert loader.epoch == epochs
    loader.close()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_types(dtype: Any, shards: Path) -> None:
    given: dict[str, Any] = {"split": "train", "batch_size": 16, "transform": TRAIN}
    with (
        shardread.Loader(shards, dtype=dtype, **given) as loader,
        shardread.Loader(shards, dtype="float32", framework="numpy", **given) as exact,
    ):
        for (images, labels), (floats, numbers) in zip(loader, exact, strict=True):
            assert images.dtype == getattr(torch, dtype)
            wanted = torch.from_numpy(floats)
            if dtype == "uint8":
                assert torch.equal(images, (wanted * 255).round().to(torch.uint8))
            else:
                assert torch.equal(images, wanted.to(images.dtype))
            assert torch.equal(labels, torch.from_numpy(numbers))
            del images, labels, floats, numbers, wanted


def test_a_tensor_keeps_its_memory_however_it_was_made(shards: Path, until: Any) -> None:
    with shardread.Loader(
        shards, split="train", batch_size=16, transform=TRAIN, output="batch"
    ) as loader:
        run = loader._start()
        raw = run.next()
        assert raw is not None
        tensor = loader._framework.arrays(raw)["image"]
        address = tensor.data_ptr()
        assert raw.memory.address <= address < raw.memory.address + len(raw.memory.map)
        copy = tensor.clone()
        through_dlpack = np.from_dlpack(tensor[3:5])
        del raw, tensor
        while (raw := run.next()) is not None:  # others take what room there is
            del raw
        until(lambda: run._released == run.batches - 1)
        assert (through_dlpack == copy[3:5].numpy()).all()
        assert run._released == run.batches - 1
        del through_dlpack
        until(lambda: run._released == run.batches)


def test_a_device_that_is_not_there(shards: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("SKIPPED LOUDLY: there is a GPU here; what is said without one cannot be seen")
    with pytest.raises(shardread.ConfigError, match="needs CUDA, and this torch"):
        shardread.Loader(shards, device="cuda")
    with pytest.raises(shardread.ConfigError, match="device: "):
        shardread.Loader(shards, device="warp:9")
    with pytest.raises(shardread.ConfigError, match="no CUDA to pin"):
        shardread.Loader(shards, pin_memory=True)


def test_a_device_is_copied_to(shards: Path) -> None:
    with shardread.Loader(
        shards, split="train", batch_size=16, transform=TRAIN, device="meta"
    ) as loader:
        for images, _ in loader:
            assert images.device.type == "meta"


class FakeCUDA:
    """What _torch.CUDA does, but that nothing is copied before somebody waits for it."""

    def __init__(self) -> None:
        self.work: deque[Any] = deque()
        self.begun = self.handed = 0

    def upload(self, tensors: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        event = FakeEvent(self, {n: torch.empty_like(t) for n, t in tensors.items()}, tensors)
        self.work.append(event)
        self.begun += 1
        return event.copies, event

    def hand_over(self, copies: dict[str, Any], event: Any) -> None:
        self.handed += 1
        event.synchronize()


class FakeEvent:
    def __init__(self, cuda: FakeCUDA, copies: dict[str, Any], tensors: dict[str, Any]) -> None:
        self.cuda, self.copies = cuda, copies
        # Addresses alone, as a GPU has them: they keep no memory.
        self.sources = {n: (t.data_ptr(), t.nbytes) for n, t in tensors.items()}
        self.happened = False

    def query(self) -> bool:
        return self.happened

    def synchronize(self) -> None:
        while not self.happened:
            event = self.cuda.work.popleft()
            for name, (address, size) in event.sources.items():
                ctypes.memmove(event.copies[name].data_ptr(), address, size)
            event.happened = True


def test_memory_is_let_go_of_when_its_copy_is_done_and_not_before(shards: Path) -> None:
    given: dict[str, Any] = {"split": "train", "batch_size": 8, "transform": TRAIN}
    with (
        shardread.Loader(shards, **given) as loader,
        shardread.Loader(shards, framework="numpy", **given) as plain,
    ):
        run = loader._start()
        cuda = FakeCUDA()
        uploads = _torch._Uploads(loader._framework, run, cuda)
        wanted = [(a.copy(), b.copy()) for a, b in plain]
        n = 0
        for (raw, tensors), (images, labels) in zip(
            uploads.batches(lambda raw, tensors: tensors), wanted, strict=True
        ):
            assert np.array_equal(tensors["image"].numpy(), images)
            assert np.array_equal(tensors["label"].numpy(), labels)
            # Of what the GPU has still to read, nothing was given back.
            assert run._released <= cuda.begun - len(cuda.work)
            assert len(uploads._reading) >= len(cuda.work)
            n += 1
            del raw, tensors
        assert n == cuda.begun == cuda.handed == len(loader)
        assert not uploads._reading


def test_copies_are_waited_for_where_the_loop_is_left(shards: Path) -> None:
    with shardread.Loader(shards, split="train", batch_size=8, transform=TRAIN) as loader:
        cuda = FakeCUDA()
        uploads = _torch._Uploads(loader._framework, loader._start(), cuda)
        batches = uploads.batches(lambda raw, tensors: tensors)
        next(batches)
        batches.close()
        assert not cuda.work
        assert not uploads._reading
