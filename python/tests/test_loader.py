"""The loader yields what the engine makes, in its order, and goes on anywhere."""

from __future__ import annotations

import gc
import inspect
import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread import _client
from shardread.config import NAMES

TRAIN = [shardread.RandomResizedCrop(32), shardread.RandomHorizontalFlip()]


def streamed(
    programs: Path, shards: Path, config: dict[str, Any], tmp_path: Path
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Return the batches of epoch 0 as `shardread stream` writes them."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    command = [str(programs / "shardread"), "stream", str(shards)]
    command += ["--config", str(file), "--format", "npz"]
    run = subprocess.run(command, check=True, capture_output=True)
    batches: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    with np.load(io.BytesIO(run.stdout)) as archive:
        for name in archive.files:
            number, tensor = name.split("/")
            batches.setdefault(number, {})[tensor] = archive[name]
    return [batches[number] for number in sorted(batches)]


@pytest.mark.parametrize(
    "config",
    [
        {"transform": TRAIN},
        {"transform": [*TRAIN, shardread.Normalize(shardread.IMAGENET)]},
        {"transform": TRAIN, "dtype": "float16", "layout": "NHWC"},
        {"transform": TRAIN, "dtype": "float32", "mixup": 0.2, "cutmix": shardread.CutMix()},
        {"transform": TRAIN, "rank": 1, "world": 2, "shuffle": "window", "ends": "exact"},
        {"transform": TRAIN, "sampling": shardread.Sampling(labels=[1, 2], balanced=True)},
        {"collate": "pad", "fill": 7, "transform": [shardread.Resize(40)]},
        {"collate": "ragged", "transform": [shardread.Resize(40)]},
        {},
    ],
)
def test_batches_are_those_of_the_engine(
    config: dict[str, Any], programs: Path, shards: Path, tmp_path: Path
) -> None:
    given = {"split": "train", "batch_size": 16, "seed": 3, **config}
    with shardread.Loader(shards, output="batch", framework="numpy", **given) as loader:
        want = streamed(programs, shards, loader.config, tmp_path)
        n = 0
        for batch, wanted in zip(loader, want, strict=True):
            arrays = batch._raw.tensors()
            assert arrays.keys() == wanted.keys()
            for name, array in arrays.items():
                assert array.dtype == wanted[name].dtype
                np.testing.assert_array_equal(array, wanted[name])
                assert array.ctypes.data % 64 == 0
            assert len(batch.keys) == len(batch.samples) == len(batch)
            n += 1
            del batch, array, arrays
        assert n == len(loader)


def test_a_pass_is_an_epoch_and_the_next_one_follows(shards: Path) -> None:
    def samples(loader: shardread.Loader) -> list[list[int]]:
        return [b.samples.tolist() for b in loader.batches()]

    with shardread.Loader(shards, split="train", batch_size=16, transform=TRAIN) as loader:
        assert len(loader) == 8
        assert loader.samples == 120
        assert loader.batch_size == 16
        assert loader.epoch == 0
        first = samples(loader)
        assert sorted(n for batch in first for n in batch) == list(range(120))
        assert loader.epoch == 1
        second = samples(loader)
        assert first != second
        assert loader.epoch == 2
        loader.set_epoch(0)
        assert samples(loader) == first
        assert samples(loader) == second
        # One that is left begins again.
        for _ in loader:
            break
        assert loader.epoch == 2
        # Nobody asks for more than there is.
        for _ in zip(range(len(loader)), loader, strict=False):
            pass
        assert loader.epoch == 3
        with pytest.raises(ValueError, match="the first one is 0"):
            loader.set_epoch(-1)


def test_a_state_goes_on_behind_the_last_batch(shards: Path) -> None:
    given: dict[str, Any] = {
        "split": "train", "batch_size": 16, "ends": "drop", "seed": 5, "transform": TRAIN,
        "framework": "numpy",
    }  # fmt: skip

    def all_of(loader: shardread.Loader) -> list[tuple[int, int, bytes]]:
        return [(b.epoch, b.number, b["image"].tobytes()) for b in loader.batches()]

    with shardread.Loader(shards, **given) as loader:
        states = [json.loads(json.dumps(loader.state_dict()))]
        whole = []
        for _ in range(2):
            for batch in loader.batches():
                whole.append((batch.epoch, batch.number, batch["image"].tobytes()))
                states.append(pickle.loads(pickle.dumps(loader.state_dict())))
                assert states[-1] == batch.state
                del batch
    for at, state in enumerate(states[:-1]):
        with shardread.Loader(shards, **given) as loader:
            loader.load_state_dict(state)
            assert loader.epoch == at // 7
            assert loader.state_dict() == state
            loader.set_epoch(at // 7)  # as loops do
            assert len(loader) == 7
            assert all_of(loader) == whole[at : 7 * (at // 7 + 1)]
            if at < 7:
                assert all_of(loader) == whole[7:]
            assert loader.state_dict() == states[14]
    with shardread.Loader(shards, **{**given, "batch_size": 8}, rank=1, world=2) as loader:
        loader.load_state_dict(states[3])
        numbers = [(b.epoch, b.number) for b in loader.batches()]
        assert numbers == [(0, n) for n in range(3, 7)]


def test_states_that_do_not_fit_are_refused(shards: Path) -> None:
    with shardread.Loader(shards, split="train", batch_size=16, transform=TRAIN) as loader:
        state = loader.state_dict()
        for wrong in ({}, {"state": 3}, {"shardread": 2, "state": {"epoch": 0}}, 7):
            with pytest.raises(shardread.StateError):
                loader.load_state_dict(wrong)  # type: ignore[arg-type]
        loader.load_state_dict(state)
        with pytest.raises(shardread.StateError, match=re.escape("range(loader.epoch, …)")):
            loader.set_epoch(3)
        loader.set_epoch(0)
    with shardread.Loader(shards, split="val", batch_size=16, transform=TRAIN) as loader:
        loader.load_state_dict(state)
        with pytest.raises(shardread.StateError, match="split"):
            next(iter(loader))


def test_a_loader_goes_to_another_process_and_back(shards: Path) -> None:
    with shardread.Loader(
        shards, split="train", batch_size=16, transform=TRAIN, framework="numpy"
    ) as loader:
        batches = iter(loader)
        next(batches)
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert copy.state_dict() == loader.state_dict()
            copy.load_state_dict(loader.state_dict())
            for (a, b), (c, d) in zip(batches, copy, strict=True):
                np.testing.assert_array_equal(a, c)
                np.testing.assert_array_equal(b, d)


def test_settings_are_those_of_the_engine(shards: Path, programs: Path) -> None:
    go = Path(__file__).parents[2] / "reader/config.go"
    struct = go.read_text().split("type Config struct {")[1].split("\n}")[0]
    assert list(NAMES) == re.findall(r'json:"(\w+)', struct)
    parameters = inspect.signature(shardread.Loader).parameters
    assert set(NAMES) <= set(parameters)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bach_size": 3}, "did you mean 'batch_size'?"),
        ({"num_workers": 3}, "instead: workers="),
        ({"xyzzy": 3}, "there are: split, sampling"),
        ({"transform": [lambda image: image]}, "shardread.Dataset in a DataLoader"),
        ({"transform": shardread.CenterCrop(3)}, "want a list"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(
    given: dict[str, Any], message: str, shards: Path
) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        shardread.Loader(shards, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"split": "x", "transform": TRAIN}, "x"),
        ({"batch_size": -1, "dtype": "int9"}, "batch_size.*\n.*dtype"),
        ({"output": "list"}, 'none of "tuple"'),
        ({"framework": "caffe"}, "caffe"),
        ({"memory": "12 parsecs"}, "512MiB"),
        ({"server": "ftp://x"}, "tcp://HOST:PORT"),
        ({"server": "/tmp/x", "nice": 3}, "shardread serve"),
        ({"rank": 1}, "give both"),
        ({"prefetch": 0}, "1 batch or more"),
        ({"decode": "none"}, "fields="),
        ({"device": "cuda", "framework": "numpy"}, "set framework"),
        ({"transform_on": "gpu"}, 'none of "host"'),
        ({"transform_on": "device"}, 'set device="cuda"'),
        ({"transform": [{"resize": {"sise": 3}}]}, 'did you mean "size"'),
    ],
)
def test_what_is_wrong_is_said_at_once(given: dict[str, Any], message: str, shards: Path) -> None:
    with pytest.raises(shardread.ConfigError, match=message):
        shardread.Loader(shards, **{"framework": "numpy", "split": "train", **given})


def test_data_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        shardread.Loader(tmp_path / "nothing")
    assert isinstance(caught.value, shardread.DataNotFoundError)
    assert str(tmp_path / "nothing") in str(caught.value)


def test_several_data_sets_are_mixed(shards: Path) -> None:
    with shardread.Loader(
        [(shards, 1), {"url": str(shards), "share": 1}], split="train", transform=TRAIN
    ) as loader:
        assert loader.samples == 240


def test_loaders_of_a_process_share_a_server_that_ends_with_the_last(shards: Path) -> None:
    a = shardread.Loader(shards, split="train", transform=TRAIN)
    b = shardread.Loader(shards, split="val", batch_size=16, transform=TRAIN)
    assert a._open().connection is b._open().connection
    process = a._open().connection._attached._process
    assert process is not None
    a.close()
    assert process.poll() is None
    del b
    gc.collect()
    assert process.wait(60) == 0
    # A loader that was closed opens anew.
    assert len(a) == 2
    a.close()
    assert not _client._registry


def test_what_a_loader_knows_of_itself(shards: Path) -> None:
    with shardread.Loader(shards, split="train", batch_size=16, transform=TRAIN) as loader:
        assert len(loader.classes) == 5
        assert loader.config["transform"][0] == {"random_resized_crop": {"size": 32}}
        assert loader.manifest["splits"][0]["name"] == "train"
        assert sum(1 for _ in loader) == 8
        stats = loader.stats()
        assert stats["batches"] == 8
        assert stats["samples"] == 120
        assert stats["waits"].keys() >= {"decode_ns", "store_ns"}
        assert repr(loader) == f"Loader({shards!r}, rank 0 of 1)"


def test_a_word_for_every_batch(shards: Path) -> None:
    pytest.importorskip("tqdm")
    with shardread.Loader(shards, split="train", transform=TRAIN, progress=True) as loader:
        assert sum(1 for _ in loader) == len(loader)


def test_a_library_that_is_not_installed_is_named(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "jax", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"pip install {name}$"):
            shardread.Loader(shards, framework=name)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr("shardread._outputs.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^device='cuda' needs torch"):
        shardread.Loader(shards, device="cuda")
    with shardread.Loader(shards, split="train") as loader:
        assert isinstance(next(iter(loader))[0], np.ndarray)
