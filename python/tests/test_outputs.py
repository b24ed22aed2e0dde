"""What an iteration yields: tuples, dicts and batches, of tensors, texts and fields."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread.config import plain

N = 24
SIZE = 32


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """Write a PNG, grey or RGB, of 8 bits."""
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def image(i: int) -> np.ndarray[Any, Any]:
    """Return image i, of a size of its own."""
    return np.random.default_rng(i).integers(0, 256, (SIZE + i, SIZE + 2 * i, 3), np.uint8)


def mask(i: int) -> np.ndarray[Any, Any]:
    return (image(i)[:, :, 0] > 100).astype(np.uint8)


def text(i: int) -> str:
    return "ünïcode " * (i % 3) + str(i)


def boxes(i: int) -> list[list[float]]:
    return [[1.0, 2.0, 11.0 + k, 12.0 + i] for k in range(i % 4)]


@pytest.fixture(scope="module")
def fields(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's tar with fields of all kinds, indexed."""
    folder = tmp_path_factory.mktemp("fields") / "data"
    folder.mkdir()
    with tarfile.open(folder / "x-000000.tar", "w") as tar:
        for i in range(N):
            npy = io.BytesIO()
            np.save(npy, np.full((i % 5 + 1, 2), i, np.float32))
            content = {
                "png": png(image(i)),
                "seg.png": png(mask(i)),
                "cls": str(i % 3).encode(),
                "txt": text(i).encode(),
                "json": json.dumps({"boxes": boxes(i), "ids": [*range(i % 4)]}).encode(),
                "npy": npy.getvalue(),
            }
            if i % 2:
                content["extra"] = bytes([i]) * i
            for name, data in content.items():
                info = tarfile.TarInfo(f"{i:03d}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    subprocess.run(
        [str(programs / "shardify"), "index", str(folder)], check=True, capture_output=True
    )
    return folder


GIVEN: dict[str, Any] = {
    "batch_size": 8,
    "shuffle": False,
    "framework": "numpy",
    "transform": [shardread.CenterCrop(SIZE)],
}


def test_tuples(fields: Path) -> None:
    with shardread.Loader(fields, **GIVEN) as loader:
        for i, batch in enumerate(loader):
            assert isinstance(batch, tuple)
            images, labels = batch
            assert images.shape == (8, 3, SIZE, SIZE)
            assert labels.tolist() == [(8 * i + k) % 3 for k in range(8)]
            del batch, images, labels


@pytest.mark.parametrize("output", ["tuple", "dict", "batch"])
@pytest.mark.parametrize("collate", ["pad", "ragged"])
def test_tensors_and_fields_in_order(output: Any, collate: Any, fields: Path) -> None:
    tensors = [
        shardread.Tensor("txt", name="caption"),
        shardread.Tensor("seg.png", name="mask", kind="mask"),
        {"field": "json", "name": "boxes", "path": "/boxes/*", "kind": "boxes"},
        shardread.Tensor("json", "ids", path="/ids", shape=[-1], dtype="int64", follows="boxes"),
        shardread.Tensor("npy", name="points", shape=[-1, 2]),
        "cls",
    ]
    specs = [t if t == "cls" else plain(t) | {"collate": collate} for t in tensors]
    specs[1].pop("collate")
    with shardread.Loader(
        fields, output=output, tensors=specs, fields=["extra", "txt"], **GIVEN
    ) as loader:
        names = ["image", "label", "caption", "mask", "boxes", "ids", "points", "cls"]
        seen = 0
        for batch in loader:
            if output == "tuple":
                assert len(batch) == len(names) + 2
                named = dict(zip([*names, "extra", "txt"], batch, strict=True))
            elif output == "dict":
                assert [*batch] == [*names, "extra", "txt"]
                named = batch
            else:
                assert [*batch.tensors] == names
                assert [*batch] == [*batch.tensors.values()]
                assert batch.keys == [f"{i:03d}" for i in range(seen, seen + 8)]
                assert batch.samples.tolist() == [*range(seen, seen + 8)]
                assert (batch.bad, batch.bucket, len(batch)) == ([], 0, 8)
                named = {**batch.tensors, **batch.fields}
            kind = shardread.Padded if collate == "pad" else shardread.Ragged
            for name in ("caption", "boxes", "ids", "points"):
                assert isinstance(named[name], kind)
                assert len(named[name].split()) == 8
            assert shardread.texts(named["caption"]) == [text(i) for i in range(seen, seen + 8)]
            assert shardread.texts(named["txt"]) == [text(i) for i in range(seen, seen + 8)]
            for k in range(8):
                i = seen + k
                top, left = round(i / 2), round((2 * i) / 2)
                cut = mask(i)[top:, left:][:SIZE, :SIZE]
                assert (named["mask"][k] == cut).all()
                assert (named["points"][k] == i).all()
                assert named["points"][k].shape == (i % 5 + 1, 2)
                assert len(named["ids"][k]) == len(named["boxes"][k])
                assert named["boxes"][k].shape[1:] == (4,)
                assert named["cls"][k] == named["label"][k] == i % 3
                assert named["extra"][k] == (bytes([i]) * i if i % 2 else None)
            values, *beside = named["points"]
            if collate == "pad":
                lengths, padded = beside
                assert (padded.sum(1) == lengths).all()
                assert values.shape == (8, lengths.max(), 2)
            else:
                assert beside[0][-1] == len(values)
            with pytest.raises(IndexError):
                named["points"][8]
            assert (named["points"][-1] == named["points"][7]).all()
            seen += 8
            del batch, named, values, beside
        assert seen == N


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("collate", ["pad", "ragged"])
def test_images_of_their_own_sizes(layout: Any, collate: Any, fields: Path) -> None:
    given = {**GIVEN, "transform": None, "layout": layout, "collate": collate}
    tensors = [shardread.Tensor("seg.png", name="mask", kind="mask")]
    with shardread.Loader(fields, tensors=tensors, **given) as loader:
        seen = 0
        for images, _labels, masks in loader:
            assert isinstance(images, shardread.Images)
            for k, (one, its) in enumerate(zip(images.split(), masks.split(), strict=True)):
                if layout == "NCHW":
                    one = one.transpose(1, 2, 0)  # noqa: PLW2901
                assert (one == image(seen + k)).all()
                assert (its == mask(seen + k)).all()
            seen += 8
            del images, masks, _labels, one, its
        assert seen == N


def test_samples_as_they_are(fields: Path) -> None:
    given = {**GIVEN, "transform": None, "decode": "none"}
    with shardread.Loader(fields, fields=["txt"], **given) as loader:
        labels, texts = next(iter(loader))
        assert labels.tolist() == [i % 3 for i in range(8)]
        assert shardread.texts(texts) == [text(i) for i in range(8)]
    with shardread.Loader(fields, output="dict", **given) as loader:
        batch = next(iter(loader))
        assert {*batch} == {"label", "png", "seg.png", "cls", "txt", "json", "npy", "extra"}
        assert batch["png"] == [png(image(i)) for i in range(8)]


def test_soft_labels_are_the_labels_of_a_tuple(shards: Path) -> None:
    given = {**GIVEN, "split": "train", "dtype": "float32", "mixup": 0.4}
    with shardread.Loader(shards, **given) as loader:
        _, soft = next(iter(loader))
        assert soft.shape == (8, 5)
        np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)
    with shardread.Loader(shards, output="dict", **given) as loader:
        batch = next(iter(loader))
        assert [*batch] == ["image", "label", "partner_label", "soft_label"]
        assert (batch["soft_label"] == soft).all()


def test_damaged_samples_are_named(fields: Path, tmp_path: Path) -> None:
    for file in fields.iterdir():
        data = bytearray(file.read_bytes())
        if file.suffix == ".tar":
            at = data.index(png(image(3)))
            data[at + 100] ^= 255
        (tmp_path / file.name).write_bytes(data)
    with shardread.Loader(tmp_path, **GIVEN) as loader:
        with pytest.raises(shardread.DataError) as caught:
            next(iter(loader))
        assert (caught.value.key, caught.value.field) == ("003", "png")
        assert caught.value.shard == str(tmp_path / "x-000000.tar")
        assert 0 < caught.value.offset <= at
    with shardread.Loader(tmp_path, on_bad="substitute", output="batch", **GIVEN) as loader:
        (bad,) = [bad for batch in loader for bad in batch.bad]
        assert (bad.key, bad.sample, bad.field) == ("003", 3, "png")
        assert bad.reason


def test_a_stream_of_shards_without_an_index(fields: Path, tmp_path: Path) -> None:
    (tmp_path / "y-000000.tar").write_bytes((fields / "x-000000.tar").read_bytes())
    with shardread.Loader(f"{tmp_path}/y-{{000000..000000}}.tar", stream=True, **GIVEN) as loader:
        with pytest.raises(TypeError, match="a stream has no length"):
            len(loader)
        first = [labels.tolist() for _, labels in loader]
        assert len(first) == N // 8
        assert loader.epoch == 1
        states = []
        for _ in loader:
            states.append(loader.state_dict())
        loader.load_state_dict(states[1])
        assert sum(1 for _ in loader) == 1


@pytest.mark.parametrize("names", [{"bfloat16"}, set()])
def test_bfloat16_needs_ml_dtypes(
    names: set[str], shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**GIVEN, "split": "train", "dtype": "bfloat16"}
    if names:
        pytest.importorskip("ml_dtypes")
    else:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with shardread.Loader(shards, **given) as loader:
        if not names:
            with pytest.raises(ImportError, match="pip install ml_dtypes"):
                next(iter(loader))
            return
        images, _ = next(iter(loader))
        with shardread.Loader(shards, **{**given, "dtype": "float32"}) as exact:
            floats, _ = next(iter(exact))
            assert (images == floats.astype(images.dtype)).all()
