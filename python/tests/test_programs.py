"""The programs that come with the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shardread
from shardread import _programs


@pytest.mark.parametrize("name", ["shardify", "shardread"])
def test_programs_have_the_version_of_the_package(name: str) -> None:
    run = subprocess.run(
        [_programs.find(name), "--version"], check=True, capture_output=True, text=True
    )
    assert run.stdout == f"{name} {shardread.__version__}\n"


def test_a_named_folder_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDREAD_PROGRAMS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"program shardread is not in {tmp_path}"):
        _programs.find("shardread")


def test_path_is_the_last_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "shardsome"
    program.write_text("#!/bin/sh\n")
    monkeypatch.delenv("SHARDREAD_PROGRAMS")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="and PATH; it comes with the wheel"):
        _programs.find("shardsome")  # not executable
    program.chmod(0o755)
    assert _programs.find("shardsome") == str(program)


def test_importing_loads_nothing_optional() -> None:
    text = "import sys, shardread; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    optional = {"jax", "pandas", "pyarrow", "tensorflow", "torch", "tqdm"}
    assert not optional & set(run.stdout.split())
