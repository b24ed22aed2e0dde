"""What the documents say of Python is so."""

from __future__ import annotations

import re
from pathlib import Path

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
    import shardread  # noqa: PLC0415

    for file in ("docs/python.md", "README.md"):
        for name in re.findall(r"\bshardread\.([A-Za-z]\w*)", (ROOT / file).read_text()):
            assert hasattr(shardread, name) or name in {"sock", "whl"}, f"{file}: shardread.{name}"
