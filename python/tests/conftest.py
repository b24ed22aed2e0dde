"""What all tests share: the programs, and small data sets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
"""The repository."""

# A job in the background of a shell has interrupts ignored, and so have the processes that
# it starts: there is no KeyboardInterrupt to test then.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The package is tested as it lies here, in this process and in those that tests start.
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])
)

# Albumentations asks the network whether there is a newer version, but for this.
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the programs, unless SHARDREAD_PROGRAMS says where they are."""
    if given := os.environ.get("SHARDREAD_PROGRAMS"):
        return Path(given)
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run(
        ["go", "build", "-o", f"{folder}{os.sep}", "./cmd/..."],
        cwd=ROOT,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    os.environ["SHARDREAD_PROGRAMS"] = str(folder)
    return folder


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Wait for a condition, for a minute at most."""

    def wait(condition: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, "it did not come true within a minute"
            time.sleep(0.002)

    return wait


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of 150 images like photographs: train and val, of five classes."""
    folder = tmp_path_factory.mktemp("images") / "images"
    command = ["go", "run", "./tools/gendata", str(folder)]
    command += ["--images", "150", "--classes", "5", "--splits", "train:0.8,val:0.2"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def shards(images: Path, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the images: four shards of each split."""
    folder = tmp_path_factory.mktemp("shards") / "shards"
    command = [str(programs / "shardify"), "pack", str(images), str(folder), "--shards", "4"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def photographs() -> Path:
    """Find real photographs: $SHARDIFY_PHOTOS, or those beside the repository."""
    given = os.environ.get("SHARDIFY_PHOTOS")
    folder = Path(given) if given else ROOT.parent / "shared/data/imagenet-sample"
    if not folder.is_dir():
        pytest.skip("SKIPPED LOUDLY: no photographs; set SHARDIFY_PHOTOS to a folder of JPEG files")
    return folder


@pytest.fixture(scope="session")
def photograph_shards(
    photographs: Path, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Pack the photographs, each in the class that its name ends with."""
    folder = tmp_path_factory.mktemp("photographs")
    for file in sorted(photographs.glob("*.JPEG")):
        wnid = folder / "images" / file.name.split("_")[0]
        wnid.mkdir(parents=True, exist_ok=True)
        (wnid / file.name).symlink_to(file)
    command = [str(programs / "shardify"), "pack", str(folder / "images"), str(folder / "shards")]
    subprocess.run([*command, "--shard-size", "8MiB"], check=True, capture_output=True)
    shutil.rmtree(folder / "images")
    return folder / "shards"


@pytest.fixture(scope="session")
def colours(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make and pack 160 images to train with and 40 to validate, whose colour is their class."""
    from PIL import Image  # noqa: PLC0415 - tests of an installed wheel have none

    folder = tmp_path_factory.mktemp("colours")
    random = np.random.default_rng(1)
    for number in range(200):
        split, label = "train" if number < 160 else "val", number % 4
        pixels = random.integers(0, 160, (36 + number % 9, 40, 3), np.uint8)
        if label < 3:
            pixels[..., label] += 90
        file = folder / "images" / split / f"class {label}" / f"{number:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    command = [str(programs / "shardify"), "pack", str(folder / "images"), str(folder / "shards")]
    subprocess.run([*command, "--shards", "4"], check=True, capture_output=True)
    return folder / "shards"
