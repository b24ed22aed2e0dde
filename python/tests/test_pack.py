"""shardread.pack: the program's options, its results and its errors."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import signal
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

import shardread
from shardread import PackProgress


def digests(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def flags(programs: Path) -> set[str]:
    text = subprocess.run(
        [programs / "shardify", "pack", "--help"], check=True, capture_output=True, text=True
    ).stdout
    return {flag.replace("-", "_") for flag in re.findall(r"^ .*?--([a-z-]+)", text, re.M)}


def test_every_flag_is_an_argument(programs: Path) -> None:
    arguments = set(inspect.signature(shardread.pack).parameters)
    # What only people at a shell need, and what Python needs instead.
    assert flags(programs) - arguments == {"dry_run", "json", "help"}
    assert arguments - flags(programs) == {"source", "destination", "progress"}


def test_the_bytes_are_those_of_the_program(images: Path, programs: Path, tmp_path: Path) -> None:
    result = shardread.pack(images, tmp_path / "a" / "set", shards=3, seed=7, shard_samples=None)
    subprocess.run(
        [programs / "shardify", "pack", images, tmp_path / "b" / "set", "--shards=3", "--seed=7"],
        check=True,
        capture_output=True,
    )
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert result.finished
    assert not result.already
    assert {name: (split.samples, split.shards) for name, split in result.splits.items()} == {
        "train": (120, 3),
        "val": (30, 3),
    }
    assert (result.bad, result.bad_list, result.ignored) == (0, "", 0)
    assert result.url == str(tmp_path / "a" / "set")
    assert shardread.pack(images, tmp_path / "a" / "set", shards=3, seed=7).already


def test_options_reach_the_program(images: Path, tmp_path: Path) -> None:
    result = shardread.pack(
        images,
        tmp_path / "set",
        include=["**/*.JPEG"],
        exclude=["val/**"],
        classes=[f"n{i:08}" for i in reversed(range(5))],
        name="small",
        format="tar.zst",
        level=3,
        shard_size="1MiB",
        template="{split}-{shard:03}",
        order="path",
        check="decode",
        on_bad="skip",
        jpeg_seek=8,
        min_side=64,
        resize_filter="box",
        quality=80,
        subsampling="4:4:4",
        workers=1,
        memory=1 << 28,
        temp_dir=tmp_path,
    )
    assert list(result.splits) == ["train"]
    assert result.images["converted"] == 120
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    assert manifest["name"] == "small"
    assert manifest["classes"] == [f"n{i:08}" for i in reversed(range(5))]
    assert manifest["splits"][0]["shards"][0]["name"] == "train-000.tar.zst"
    assert manifest["splits"][0]["shards"][0]["seek"]["every"] == 8
    options = manifest["options"]
    assert options["source"]["include"] == ["**/*.JPEG"]
    assert options["source"]["exclude"] == ["val/**"]
    assert (options["order"], options["check"], options["on_bad"]) == ("path", "decode", "skip")
    assert options["level"] == 3
    assert options["convert"] == {
        "min_side": 64,
        "filter": "box",
        "quality": 80,
        "subsampling": "4:4:4",
    }


def test_a_list_of_paths(images: Path, tmp_path: Path) -> None:
    files = sorted(images.glob("val/*/*.JPEG"))[:7]
    paths = (file.relative_to(images) for file in files)
    result = shardread.pack(images, tmp_path / "set", files_from=paths)
    assert sum(split.samples for split in result.splits.values()) == 7


def test_a_table(images: Path, tmp_path: Path) -> None:
    files = sorted(images.glob("val/*/*.JPEG"))[:5]
    table = tmp_path / "labels.csv"
    table.write_text("file,kind\n" + "".join(f"{file},{i % 2}\n" for i, file in enumerate(files)))
    result = shardread.pack(
        images, tmp_path / "set", table=table, path_column="file", label_column="kind"
    )
    assert sum(split.samples for split in result.splits.values()) == 5


def test_parts_of_several_workers(images: Path, tmp_path: Path) -> None:
    parts = [shardread.pack(images, tmp_path / "set", shards=4, worker=(i, 2)) for i in range(2)]
    assert [part.finished for part in parts] == [False, True]
    shardread.pack(images, tmp_path / "one" / "set", shards=4)
    assert digests(tmp_path / "set") == digests(tmp_path / "one" / "set")


def test_bad_files_are_counted_not_raised(images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "a"
    folder.mkdir(parents=True)
    whole = min(images.glob("val/*/*.JPEG"), key=lambda file: file.stat().st_size).read_bytes()
    (folder / "good.jpg").write_bytes(whole)
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.txt").write_text("no image")
    result = shardread.pack(tmp_path / "photos", tmp_path / "set")
    assert (result.bad, result.bad_list, result.ignored) == (1, "bad.jsonl", 1)
    assert result.splits["train"].samples == 1
    with pytest.raises(shardread.PackError, match=r"cut\.jpg"):
        shardread.pack(tmp_path / "photos", tmp_path / "other", on_bad="fail")


def test_wrong_options_are_named_together(images: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="order") as caught:
        shardread.pack(images, tmp_path / "set", order="size", quality=400)  # type: ignore[arg-type]
    assert isinstance(caught.value, shardread.ConfigError)
    assert "quality" in str(caught.value)
    assert not (tmp_path / "set").exists()
    with pytest.raises(shardread.ConfigError, match="class ' a'"):
        shardread.pack(images, tmp_path / "set", classes=[" a"])


def test_what_cannot_be_done_says_why(tmp_path: Path) -> None:
    with pytest.raises(shardread.PackError, match="no/where"):
        shardread.pack(tmp_path / "no/where", tmp_path / "set")


def test_progress_is_reported(
    images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[PackProgress] = []
    shardread.pack(images, tmp_path / "set", shards=4, progress=seen.append)
    last = seen[-1]
    assert (last.phase, last.samples, last.done_samples) == ("done", 150, 150)
    assert (last.shards, last.done_shards, last.files, last.bad) == (8, 8, 150, 0)
    assert last.done_bytes == last.file_bytes
    assert all(a.done_bytes <= b.done_bytes for a, b in pairwise(seen))
    shardread.pack(images, tmp_path / "other", progress=True)
    assert capfd.readouterr().err.endswith("\n")


def test_an_error_of_the_function_ends_the_run(images: Path, tmp_path: Path) -> None:
    def refuse(_: PackProgress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        shardread.pack(images, tmp_path / "set", workers=1, quality=50, progress=refuse)
    assert shardread.pack(images, tmp_path / "set", workers=1, quality=50).finished


def test_an_interrupted_run_goes_on(images: Path, tmp_path: Path) -> None:
    def interrupt(p: PackProgress) -> None:
        if p.phase != "scan":
            signal.raise_signal(signal.SIGINT)

    options = {"shards": 20, "workers": 1, "quality": 50}
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        with pytest.raises(KeyboardInterrupt):
            shardread.pack(images, folder / "set", progress=interrupt, **options)
        if not (folder / "set/manifest.json").exists():
            break
    else:
        pytest.fail("five runs were done before they could be interrupted")
    found: list[int] = []
    result = shardread.pack(
        images, folder / "set", progress=lambda p: found.append(p.done_shards), **options
    )
    assert not result.already
    assert result.finished
    shardread.pack(images, tmp_path / "whole" / "set", **options)
    assert digests(folder) == digests(tmp_path / "whole")


def test_packing_leaves_nothing_behind(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    files = [file.relative_to(images) for file in images.glob("val/*/*.JPEG")]
    classes = sorted({file.parts[1] for file in files})
    before = sorted(os.listdir("/dev/fd"))
    shardread.pack(images, tmp_path / "set", files_from=files, classes=classes, name="set")
    assert sorted(os.listdir("/dev/fd")) == before
    assert not list((tmp_path / "temp").iterdir())
