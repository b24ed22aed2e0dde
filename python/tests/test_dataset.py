"""Dataset: samples by their numbers, as others see them, and the index as a table."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread


def contents(shards: Path, split: str) -> dict[str, dict[str, bytes]]:
    """Read the shards of a split with tarfile: the fields of each sample, by its key."""
    samples: dict[str, dict[str, bytes]] = {}
    for shard in sorted(shards.glob(f"{split}-*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                stem, _, field = name.partition(".")
                file = archive.extractfile(member)
                assert file is not None
                samples.setdefault(f"{folder}/{stem}", {})[field] = file.read()
    return samples


@pytest.fixture
def train(shards: Path) -> Iterator[shardread.Dataset]:
    with shardread.open(shards, split="train") as dataset:
        yield dataset


def test_samples_are_what_the_shards_hold(train: shardread.Dataset, shards: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    wanted = contents(shards, "train")
    assert len(train) == len(wanted) == 120
    for sample, (key, fields) in zip(train, wanted.items(), strict=True):
        assert list(sample) == ["image", "label", "key"]
        assert (sample["key"], sample["label"]) == (key, int(fields["cls"]))
        pixels = np.asarray(image.open(io.BytesIO(fields["jpg"])).convert("RGB"))
        np.testing.assert_array_equal(sample["image"], pixels)
        assert sample["image"].flags.owndata or sample["image"].base.flags.owndata


def test_numbers_count_from_both_ends(train: shardread.Dataset) -> None:
    keys = [sample["key"] for sample in train]
    assert [train[i]["key"] for i in (0, 7, 119, np.int64(3))] == [keys[i] for i in (0, 7, 119, 3)]
    assert [train[i]["key"] for i in (-1, -120)] == [keys[119], keys[0]]
    for i in (120, -121):
        with pytest.raises(IndexError, match=f"sample {i}: the split 'train' has 120"):
            train[i]
    with pytest.raises(TypeError):
        train["0"]  # type: ignore[index]
    many = train.__getitems__([5, 3, 5])
    assert [sample["key"] for sample in many] == [keys[5], keys[3], keys[5]]
    assert train.__getitems__([]) == []


def test_a_data_set_says_what_it_is(train: shardread.Dataset, shards: Path) -> None:
    assert train.manifest == json.loads((shards / "manifest.json").read_text())
    assert train.splits == {"train": 120, "val": 30}
    assert train.split == "train"
    assert train.classes == [f"n{i:08}" for i in range(5)]
    assert repr(train) == f"Dataset({str(shards)!r}, split='train'): 120 samples"
    with shardread.open(shards) as other:
        assert other.split == "train"  # of several
    with pytest.raises(shardread.ShardreadError, match="train, val"):
        shardread.open(shards, split="test")
    with pytest.raises(FileNotFoundError, match="no/where"):
        shardread.open(shards / "no/where")
    with pytest.raises(TypeError, match="shuffle"):
        shardread.open(shards, shuffle=True)


def test_bytes_stay_as_they_are(shards: Path) -> None:
    wanted = contents(shards, "val")
    with shardread.open(shards, split="val", decode=False) as raw:
        for sample in raw:
            key, label = sample.pop("key"), sample.pop("label")
            assert sample == wanted[key]
            assert label == int(sample["cls"])
        with pytest.raises(shardread.ConfigError, match="transform: with decode=False"):
            shardread.open(shards, decode=False, transform=["grayscale"])


@pytest.fixture(scope="module")
def mixed(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack images with captions, boxes, arrays and masks; the last has an image alone."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "images").mkdir()
    files = sorted((images / "val").glob("*/*.JPEG"))[:4]
    for i, file in enumerate(files):
        (folder / f"images/{i}.jpg").symlink_to(file)
        if i == 3:
            continue
        stem = folder / "images" / str(i)
        stem.with_suffix(".txt").write_text(f"Über {i}")
        stem.with_suffix(".json").write_text(json.dumps({"boxes": [[0, 0, i + 1, 9]] * i}))
        np.save(stem.with_suffix(".npy"), np.arange(i, dtype=np.float32))
        mask = np.full(image.open(file).size[::-1], i, np.uint8)
        image.fromarray(mask).save(stem.with_suffix(".seg.png"))
        stem.with_suffix(".bin").write_bytes(bytes([i]))
    shardread.pack(folder / "images", folder / "shards", layout="flat", order="path")
    return folder / "shards"


def test_fields_are_decoded_as_their_names_say(mixed: Path) -> None:
    with shardread.open(mixed) as data:
        for i in range(3):
            sample = data[i]
            assert sample["txt"] == f"Über {i}"
            assert sample["json"] == {"boxes": [[0, 0, i + 1, 9]] * i}
            np.testing.assert_array_equal(sample["npy"], np.arange(i, dtype=np.float32))
            assert sample["bin"] == bytes([i])
            assert sample["seg.png"].startswith(b"\x89PNG")
            assert sample["label"] == -1
        bare = data[3]
        assert {name for name, value in bare.items() if value is None} == {
            "txt", "json", "npy", "bin", "seg.png",
        }  # fmt: skip
    with shardread.open(mixed, fields=["txt"]) as data:
        assert list(data[0]) == ["image", "label", "key", "txt"]


def test_tensors_go_the_way_of_the_image(mixed: Path) -> None:
    tensors = [
        shardread.Tensor("seg.png", kind="mask", optional=True),
        shardread.Tensor("json", name="boxes", kind="boxes", path="/boxes", optional=True),
    ]
    resize = shardread.Resize((10, 20))
    with shardread.open(mixed, fields=[], tensors=tensors, transform=[resize]) as data:
        for i in range(3):
            sample = data[i]
            assert sample["image"].shape == (10, 20, 3)
            np.testing.assert_array_equal(sample["seg.png"], np.full((10, 20), i, np.uint8))
            assert sample["boxes"].shape == (i, 4)


def test_map_makes_the_items(shards: Path) -> None:
    with shardread.Dataset(shards, map=lambda sample: sample["key"].upper()) as data:
        assert data[3] == data[3].upper() == data.__getitems__([3])[0]


def test_random_transforms_are_those_of_the_epoch(shards: Path) -> None:
    crop = [shardread.RandomResizedCrop(32)]
    with shardread.open(shards, transform=crop) as a, shardread.open(shards, transform=crop) as b:
        np.testing.assert_array_equal(a[5]["image"], b[5]["image"])
        b.set_epoch(1)
        assert (a[5]["image"] != b[5]["image"]).any()


def test_a_damaged_sample_is_named(images: Path, tmp_path: Path) -> None:
    shardread.pack(images, tmp_path / "set", shards=1, order="path")
    with tarfile.open(tmp_path / "set/val-000000.tar") as archive:
        member = next(m for m in archive if m.name.endswith(".jpg"))
        at = member.offset_data + member.size // 2
    with open(tmp_path / "set/val-000000.tar", "r+b") as shard:
        shard.seek(at)
        shard.write(b"damage")
    key = member.name.removesuffix(".jpg")
    with shardread.open(tmp_path / "set", split="val") as data:
        numbers = [i for i, k in enumerate(data.table()["key"].to_pylist()) if k == key]
        with pytest.raises(shardread.DataError, match=key) as caught:
            data[numbers[0]]
        assert caught.value.key == key
        assert data[numbers[0] + 1]["label"] == 0


def test_the_index_is_a_table(train: shardread.Dataset, shards: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = train.table()
    frame = table.to_pandas()
    assert len(frame) == 120
    assert set(frame["split"]) == {"train"}
    assert list(frame["sample"]) == list(range(120))
    for i in (0, 50, 119):
        sample, row = train[i], frame.loc[i]
        assert (row["key"], row["label"]) == (sample["key"], sample["label"])
        assert (row["height"], row["width"]) == sample["image"].shape[:2]
    parts = [pandas.read_parquet(file) for file in sorted(shards.glob("train-*.parquet"))]
    own = pandas.concat(parts, ignore_index=True)
    pandas.testing.assert_frame_equal(
        frame[own.columns].drop(columns="fields"), own.drop(columns="fields"), check_dtype=False
    )
    assert len(train.table(all_splits=True)) == 150
    wide = train.table(where="width > height and label in (1, 2)").to_pandas()
    assert 0 < len(wide) < 120
    assert set(wide["label"]) == {1, 2}
    assert set(train.table(label="n00000003")["label"].to_pylist()) == {3}
    with pytest.raises(shardread.ConfigError, match="did you mean width"):
        train.table(where="widht > 3")


def test_threads_may_share_one(train: shardread.Dataset) -> None:
    keys = [sample["key"] for sample in train]
    wrong: list[str] = []

    def read(start: int) -> None:
        for i in range(start, 120, 4):
            if train[i]["key"] != keys[i]:
                wrong.append(keys[i])

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_copy_is_another_one(train: shardread.Dataset) -> None:
    copy = pickle.loads(pickle.dumps(train))
    with copy:
        np.testing.assert_array_equal(copy[9]["image"], train[9]["image"])


def test_closing_leaves_nothing(shards: Path) -> None:
    with shardread.open(shards) as data:
        kept = data[0]["image"]
        total = int(kept.sum())
    before = sorted(os.listdir("/dev/fd"))
    for _ in range(5):
        with shardread.open(shards) as data:
            assert data[0]["label"] >= 0
    assert sorted(os.listdir("/dev/fd")) == before
    assert int(kept.sum()) == total
    assert data[1]["label"] >= 0  # it opens again
    data.close()


CHILD = """
import pickle, sys
import shardread
data = pickle.load(open(sys.argv[1], "rb"))
print(data[3]["key"], flush=True)
"""


def test_a_copy_outlives_its_process(shards: Path, tmp_path: Path) -> None:
    """It attaches to its parent's server, and without one has its own."""
    make = (
        "import pickle, sys, shardread\n"
        "data = shardread.open(sys.argv[1])\n"
        "pickle.dump(data, open(sys.argv[2], 'wb'))\n"
        "print(data[3]['key'], data._family.address.path, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    file = tmp_path / "data.pickle"
    parent = subprocess.Popen(
        [sys.executable, "-c", make, shards, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    try:
        key, socket = parent.stdout.readline().split()

        def child() -> str:
            command = [sys.executable, "-c", CHILD, str(file)]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        assert child() == key + "\n"
        assert Path(socket).exists()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        # Its server ends with it, however it ended, and leaves no socket.
        end = time.monotonic() + 60
        while Path(socket).exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert child() == key + "\n"
    finally:
        parent.kill()
        parent.communicate()


def items(data: shardread.Dataset, numbers: list[int], out: Any) -> None:
    out.put([data[i]["key"] for i in numbers])


def share(shards: str, how: str) -> None:
    """Let two processes of a kind read beside this one."""
    import multiprocessing  # noqa: PLC0415

    context: Any = multiprocessing.get_context(how)
    out = context.Queue()
    with shardread.open(shards, split="train") as train:
        keys = [sample["key"] for sample in train]
        processes = [context.Process(target=items, args=(train, [i, 9], out)) for i in range(2)]
        for process in processes:
            process.start()
        found = sorted(out.get(timeout=120) for _ in processes)
        for process in processes:
            process.join(60)
        assert found == sorted([[keys[0], keys[9]], [keys[1], keys[9]]])
        assert train[2]["key"] == keys[2]


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_processes_may_share_one(shards: Path, how: str) -> None:
    # In a process of its own: a fork of one that has JAX or TensorFlow may never end.
    call = f"import test_dataset; test_dataset.share({str(shards)!r}, {how!r})"
    run = subprocess.run(
        [sys.executable, "-c", call],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_a_server_follows_another_at_once(shards: Path) -> None:
    """The one that ends listens where the next one is to."""
    for i in range(20):
        dataset = shardread.IterableDataset(shards, split="train")
        for sample in dataset:
            assert sample["image"].shape[2] == 3, i
            break
        del dataset, sample
