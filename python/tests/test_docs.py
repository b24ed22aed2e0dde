"""What the documents say of Python is so."""

from __future__ import annotations

import re
from pathlib import Path

import shardread
from shardread.config import NAMES

ROOT = Path(__file__).parents[2]


def test_promises_name_tests_that_exist() -> None:
    code = "".join(file.read_text() for file in (ROOT / "python/tests").rglob("test_*.py"))
    tests = set(re.findall(r"^def (test_\w+)\(", code, re.M))
    text = (ROOT / "docs/python.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 10
    assert named <= tests
    promises = False
    for line in text.splitlines():
        if line.startswith("| promise |"):
            promises = True
        elif not line.startswith("|"):
            promises = False
        elif promises and not line.startswith("|---"):
            assert "`test_" in line, f"a promise without a test: {line}"


def test_what_is_named_is_there() -> None:
    for file in ("docs/python.md", "README.md"):
        for name in re.findall(r"\bshardread\.([A-Za-z]\w*)", (ROOT / file).read_text()):
            assert hasattr(shardread, name) or name in {"sock", "whl"}, f"{file}: shardread.{name}"


def test_every_setting_and_error_is_named() -> None:
    errors = {
        name
        for name in shardread.__all__
        if isinstance(getattr(shardread, name), type)
        and issubclass(getattr(shardread, name), shardread.ShardreadError)
    }
    text = (ROOT / "docs/python.md").read_text()
    named = set(re.findall(r"`(?:shardread\.)?(\w+)", text))
    assert {*NAMES, *errors} <= named
