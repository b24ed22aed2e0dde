"""IterableDataset in a DataLoader: every sample once, in step, and resumed in mid-epoch."""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import shardread


def key(sample: dict[str, Any]) -> str:
    return str(sample["key"])


def keys(loader: Any) -> list[str]:
    return [key for batch in loader for key in batch]


def tensor(sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
    image = torch.from_numpy(sample["image"]).permute(2, 0, 1)
    return image[:, :32, :32], sample["label"]


@pytest.fixture
def dataset(shards: Path) -> Callable[..., shardread.IterableDataset]:
    def make(**config: Any) -> shardread.IterableDataset:
        return shardread.IterableDataset(shards, **{"split": "train", "map": key, **config})

    return make


def test_torch_takes_it_for_what_it_is(dataset: Callable[..., Any]) -> None:
    assert isinstance(dataset(), torch.utils.data.IterableDataset)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_sample_comes_once(dataset: Callable[..., Any], workers: int) -> None:
    data = dataset(seed=3)
    loader = DataLoader(data, batch_size=7, num_workers=workers, collate_fn=list)
    orders = []
    for epoch in (1, 1, 2):
        data.set_epoch(epoch)
        orders.append(keys(loader))
        assert len(orders[-1]) == len(set(orders[-1])) == len(data) == 120
    assert orders[0] == orders[1] != orders[2]


def test_workers_may_be_spawned(dataset: Callable[..., Any]) -> None:
    loaders = [
        DataLoader(dataset(), 7, num_workers=2, multiprocessing_context=how, collate_fn=list)
        for how in ("fork", "spawn")
    ]
    torch.manual_seed(5)
    forked = keys(loaders[0])
    torch.manual_seed(5)
    assert keys(loaders[1]) == forked


def servers_of(pid: int) -> list[int]:
    """Return the servers that listen for the children of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if b"serve" in command and any(f"/{pid}-".encode() in word for word in command):
            found.append(int(folder.name))
    return found


def count_servers(sample: dict[str, Any]) -> tuple[int, int]:
    return os.getpid(), len(servers_of(os.getppid()))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_share_one_server(dataset: Callable[..., Any]) -> None:
    loader = DataLoader(dataset(map=count_servers), 8, num_workers=3, collate_fn=list)
    seen = [item for batch in loader for item in batch]
    assert len({pid for pid, _ in seen}) == 3
    assert {servers for _, servers in seen} == {1}
    assert not servers_of(seen[0][0])


def test_samples_are_whole_images(dataset: Callable[..., Any], images: Path) -> None:
    loader = DataLoader(dataset(map=tensor), batch_size=16, num_workers=2)
    labels: Counter[int] = Counter()
    for pixels, label in loader:
        assert pixels.shape[1:] == (3, 32, 32)
        assert pixels.dtype == torch.uint8
        labels.update(label.tolist())
    folders = {f.name: len(list(f.iterdir())) for f in sorted((images / "train").iterdir())}
    assert [labels[i] for i in range(5)] == list(folders.values())


def test_ranks_and_workers_divide_an_epoch(dataset: Callable[..., Any]) -> None:
    seen: list[str] = []
    batches = []
    for rank in range(2):
        data = dataset(rank=rank, world=2, ends="exact")
        assert len(data) == 60
        loader = DataLoader(data, batch_size=8, num_workers=2, collate_fn=list)
        batches.append([len(batch) for batch in loader])
        data.set_epoch(0)
        seen += keys(loader)
    assert len(seen) == len(set(seen)) == 120
    # By default several ranks go in step, and repeat samples where need be.
    batches = []
    for rank in range(7):
        loader = DataLoader(dataset(rank=rank, world=7), batch_size=4, collate_fn=list)
        batches.append([len(batch) for batch in loader])
    assert all(sizes == batches[0] for sizes in batches)


def test_epochs_go_on(dataset: Callable[..., Any]) -> None:
    data = dataset()
    loader = DataLoader(data, batch_size=8, num_workers=0, collate_fn=list)
    orders = [keys(loader) for _ in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    data.set_epoch(1)
    assert keys(loader) == orders[1]
    # Workers that stay count as well.
    data.set_epoch(0)
    loader = DataLoader(data, batch_size=8, num_workers=2, persistent_workers=True, collate_fn=list)
    staying = [keys(loader) for _ in range(2)]
    assert staying[0] != staying[1]
    # Those that are started anew go by torch's generator.
    data = dataset()
    loader = DataLoader(data, batch_size=8, num_workers=2, collate_fn=list)
    torch.manual_seed(1)
    a, b = keys(loader), keys(loader)
    torch.manual_seed(1)
    assert a == keys(loader)
    assert a != b


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", [1, 6, 13])
def test_it_resumes_in_mid_epoch(dataset: Callable[..., Any], workers: int, after: int) -> None:
    def make() -> StatefulDataLoader[Any]:
        data = dataset()
        data.set_epoch(4)
        return StatefulDataLoader(data, batch_size=7, num_workers=workers, collate_fn=list)

    whole = list(make())
    loader = make()
    iterator = iter(loader)
    begun = list(islice(iterator, after))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del iterator
    assert begun == whole[:after]
    loader = make()
    loader.load_state_dict(state)
    assert list(loader) == whole[after:]


def test_a_state_fits_its_workers(dataset: Callable[..., Any]) -> None:
    data = dataset()
    iterator = iter(data)
    next(iterator)
    state = data.state_dict()
    iterator.close()
    data.load_state_dict(state)
    with pytest.raises(shardread.StateError, match="1 workers, and this one has 2"):
        list(DataLoader(data, num_workers=2, collate_fn=list))
    with pytest.raises(shardread.StateError, match="no state of an IterableDataset"):
        data.load_state_dict({"shardread": 1})


def test_the_server_crops_before_python_augments(dataset: Callable[..., Any]) -> None:
    data = dataset(map=None, transform=[shardread.Resize(40), shardread.CenterCrop(32)])
    batch = next(iter(DataLoader(data, batch_size=8)))
    assert batch["image"].shape == (8, 32, 32, 3)
    assert batch["label"].shape == (8,)
    assert len(batch["key"]) == 8
    data = dataset(map=None, layout="NCHW", dtype="float32", transform=[{"resize": [8, 8]}])
    sample = next(iter(data))
    assert (sample["image"].shape, sample["image"].dtype) == ((3, 8, 8), np.float32)


def test_what_is_of_batches_is_refused(shards: Path) -> None:
    with pytest.raises(shardread.ConfigError, match=r"batch_size, mixup: this is of batches"):
        shardread.IterableDataset(shards, batch_size=3, mixup=0.2)
    with pytest.raises(TypeError, match=r"shuffel.*did you mean 'shuffle'"):
        shardread.IterableDataset(shards, shuffel=True)  # type: ignore[call-arg]
