"""The wheel: what is in it, and that it works where nothing else is."""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import shardread

ROOT = Path(__file__).parents[2]


def hatchling(folder: Path, *args: str) -> None:
    """Build as pip does, but with the hatchling that is installed."""
    run = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    hatchling(ROOT / "python", "-t", "wheel", "-d", str(folder))
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a new virtual environment, which has nothing else but numpy."""
    folder = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    options = ["--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *options, wheel],
        check=True,
    )
    ours = Path(sysconfig.get_path("purelib"))
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    for name in ("numpy", "numpy.libs"):
        if (ours / name).exists():
            (Path(purelib) / name).symlink_to(ours / name)
    return folder


def clean(venv: Path) -> dict[str, str]:
    """Return an environment in which a virtual environment is active, and no tests are."""
    gone = {"PYTHONPATH", "SHARDREAD_PROGRAMS", "PYTHONHOME"}
    return {
        **{name: value for name, value in os.environ.items() if name not in gone},
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(venv),
    }


def test_the_wheel_is_for_this_platform(wheel: Path) -> None:
    assert wheel.name.startswith(f"shardread-{shardread.__version__}-py3-none-")
    if sys.platform == "linux":
        machine = platform.machine()
        assert wheel.name.endswith(f"-manylinux_2_17_{machine}.manylinux2014_{machine}.whl")


def test_the_wheel_has_the_package_and_both_programs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "python/shardread"
    sources = {f"shardread/{f.relative_to(package)}" for f in package.rglob("*.py")}
    scripts = f"shardread-{shardread.__version__}.data/scripts"
    wanted = {"shardread/py.typed", "shardread/LICENSE", f"{scripts}/shardify"}
    assert sources | wanted | {f"{scripts}/shardread"} <= names
    assert not [name for name in names if "test" in name or "__pycache__" in name]


@pytest.mark.skipif(sys.platform != "linux", reason="of ELF files")
@pytest.mark.parametrize("name", ["shardify", "shardread"])
def test_programs_need_no_more_than_the_tag_says(wheel: Path, name: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        scripts = f"shardread-{shardread.__version__}.data/scripts"
        program = archive.read(f"{scripts}/{name}")
    libraries, versions = needed(program)
    # Of libc, by names alone: any version of it will do.
    assert libraries <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    assert not versions


def needed(elf: bytes) -> tuple[set[str], bool]:
    """Return the libraries that an ELF file of 64 bits needs, and whether in some version."""
    assert elf[:6] == b"\x7fELF\x02\x01"
    (offset,) = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    segments = [struct.unpack_from("<IIQQQQ", elf, offset + i * size) for i in range(count)]
    dynamic = next((s for s in segments if s[0] == 2), None)  # PT_DYNAMIC
    if dynamic is None:
        return set(), False
    entries = []
    for i in range(dynamic[5] // 16):
        tag, value = struct.unpack_from("<qQ", elf, dynamic[2] + 16 * i)
        if tag == 0:
            break
        entries.append((tag, value))
    strings = next(value for tag, value in entries if tag == 5)  # DT_STRTAB, an address
    load = next(s for s in segments if s[0] == 1 and s[3] <= strings < s[3] + s[5])
    table = strings - load[3] + load[2]
    names = [elf[table + v : elf.index(b"\0", table + v)].decode() for t, v in entries if t == 1]
    return set(names), any(tag == 0x6FFFFFFE for tag, _ in entries)  # DT_VERNEED


def test_both_programs_are_on_path(installed: Path) -> None:
    for name in ("shardify", "shardread"):
        run = subprocess.run(
            [name, "--version"],
            check=True,
            capture_output=True,
            text=True,
            env=clean(installed),
            executable=installed / "bin" / name,
        )
        assert run.stdout == f"{name} {shardread.__version__}\n"


SCRIPT = """
import sys, numpy, shardread
assert shardread.__file__.startswith(sys.prefix), shardread.__file__
print(shardread.pack("images", "shards").splits["train"].samples)
loader = shardread.Loader("shards", batch_size=32, ends="exact", transform=[
    shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip()])
images = 0
for pixels, labels in loader:
    assert isinstance(pixels, numpy.ndarray) and pixels.shape[1:] == (3, 224, 224)
    images += len(labels)
print(images)
print(sorted({m.partition(".")[0] for m in sys.modules} & {"torch", "jax", "pyarrow"}))
"""


def test_it_packs_and_reads_photographs(installed: Path, photographs: Path, tmp_path: Path) -> None:
    files = sorted(photographs.glob("*.JPEG"))[:80]
    for file in files:
        folder = tmp_path / "images" / file.name.split("_")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).symlink_to(file)
    run = subprocess.run(
        [installed / "bin/python", "-c", SCRIPT],
        cwd=tmp_path,
        env=clean(installed),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{len(files)}\n{len(files)}\n[]\n"


def test_an_sdist_brings_the_go_sources(tmp_path: Path) -> None:
    hatchling(ROOT / "python", "-t", "sdist", "-d", str(tmp_path))
    (file,) = tmp_path.iterdir()
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path / "unpacked")
    assert {"go/go.mod", "go/go.sum", "go/cmd/shardread/main.go", "hatch_build.py"} <= names
    assert not [name for name in names if name.endswith("_test.go")]
    (folder,) = (tmp_path / "unpacked").iterdir()
    # All that the programs are made of, on every platform that there is a wheel for.
    for goos, goarch in [("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64")]:
        run = subprocess.run(
            ["go", "list", "-deps", "-e", "-f", "{{with .Error}}{{.}}{{end}}", "./cmd/..."],
            cwd=folder / "go",
            env={**os.environ, "GOOS": goos, "GOARCH": goarch, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert not run.stdout.strip()
    hatchling(folder, "-t", "wheel", "-d", str(tmp_path / "built"))
    (built,) = (tmp_path / "built").iterdir()
    assert re.match(r"shardread-.*\.whl", built.name)


def test_building_without_go_says_what_to_do(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT / "python",
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "there is no `go` on PATH: see https://go.dev/dl" in run.stderr
