"""Every snippet of docs/migrate.md is run, as it stands there."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shardread

pytestmark = pytest.mark.timeout(900)  # some loaders take long to import

ROOT = Path(__file__).parents[2]
TORCH, TENSORFLOW = ".cache/peers/torch", ".venv"

# Where each section's loader of before is installed; with those of `make bench-peers`.
BEFORE = {
    "DataLoader and ImageFolder": TORCH,
    "WebDataset": TORCH,
    "FFCV": ".cache/peers/ffcv",
    "DALI": ".cache/peers/dali",
    "MosaicML Streaming": ".cache/peers/loaders",
    "LitData": ".cache/peers/loaders",
    "tf.data": TENSORFLOW,
}

# What the page says is there, and notes of each batch that a snippet is through with.
PRELUDE = """
device = "cpu"
_seen = []


def step(images, labels):
    n, *shape = images.shape
    assert n == len(labels), (images.shape, labels.shape)
    assert {int(label) for label in labels} <= set(range(10)), labels
    assert float(images[0].max() if hasattr(images, "max") else images[0].numpy().max()) > 0
    _seen.append([n, shape, str(images.dtype), str(labels.dtype)])
"""
EPILOGUE = """
if __name__ == "__main__":
    import json

    print(json.dumps(_seen))
"""


class Snippet(NamedTuple):
    section: str
    language: str
    when: str
    """before, after, or all: of what is the same for all."""
    line: int
    code: str


def snippets() -> list[Snippet]:
    text = (ROOT / "docs/migrate.md").read_text()
    found, section = [], ""
    for match in re.finditer(r"^## (.+)$|^```(\S*) ?(.*)\n((?:.*\n)*?)```$", text, re.M):
        if match[1]:
            section = match[1]
            continue
        line = text.count("\n", 0, match.start()) + 2
        found.append(Snippet(section, match[2], match[3], line, match[4]))
    return found


SNIPPETS = snippets()


def program(section: str, when: str) -> str:
    """Join the snippets of a section, each at the line where it stands on the page."""
    lines = [""] * len((ROOT / "docs/migrate.md").read_text().splitlines())
    for snippet in SNIPPETS:
        if (snippet.section, snippet.language, snippet.when) == (section, "python", when):
            code = snippet.code.splitlines()
            lines[snippet.line - 1 : snippet.line - 1 + len(code)] = code
    return "\n".join(lines)


def test_page() -> None:
    """Each section has both, all of it is code of Python or commands, and known to this test."""
    assert {s.section for s in SNIPPETS} == {*BEFORE, "What is the same for all"}
    for section in BEFORE:
        for when in ("before", "after"):
            assert any(s.section == section and s.when == when for s in SNIPPETS), (section, when)
    for s in SNIPPETS:
        assert (s.language, s.when) in {
            ("python", "before"),
            ("python", "after"),
            ("python", "all"),
            ("sh", "after"),
            ("sh", "all"),
        }, s
        if s.language == "python":
            compile(s.code, f"docs/migrate.md, line {s.line}", "exec")


def test_tables(programs: Path) -> None:
    """What the tables name of ours is there: settings, classes, flags."""
    rows = re.findall(r"^\| (.+) \| (.+) \|$", (ROOT / "docs/migrate.md").read_text(), re.M)
    ours = " ".join(right for _, right in rows)
    classes = [
        *(shardread.Loader, shardread.IterableDataset, shardread.Dataset, shardread.Sampling),
        *(shardread.Buckets, shardread.Cache, shardread.Retry, shardread.Tensor),
        *shardread.Transform.__subclasses__(),
    ]
    settings = {p for c in classes for p in inspect.signature(c).parameters}
    for name in re.findall(r"\b(\w+)=", ours):
        assert name in settings, name
    for code in re.findall(r"`([^`]+)`", ours):
        if call := re.match(r"(?:shardread\.)?([A-Z]\w+)", code):
            assert call[1] in shardread.__all__ or code.isupper(), code
        elif re.fullmatch(r"[a-z_]+", code):
            assert code in {*settings, "images", "labels"} or hasattr(shardread.Loader, code), code
    flags = ""
    for command in ("pack", "index"):
        done = subprocess.run(
            [programs / "shardify", command, "--help"], check=True, capture_output=True, text=True
        )
        flags += done.stdout
    for flag in re.findall(r"(--[a-z-]+)", ours):
        assert f"{flag} " in flags, flag


def python(environment: str) -> Path:
    """Find an environment's interpreter, which has to be there if tests install it."""
    found = ROOT / environment / "bin/python"
    if found.exists():
        return found
    installed = "make test-python" if environment in {TORCH, TENSORFLOW} else "make bench-peers"
    text = f"SKIPPED LOUDLY: {environment} is not there; `{installed}` installs it"
    if os.environ.get("SHARDIFY_PEERS") == "require" and "test" in installed:
        pytest.fail(text)
    pytest.skip(text)


def script_name(when: str, section: str) -> str:
    return f"{when}_{re.sub('[^a-z]', '_', section.lower())}"


def run(interpreter: Path, code: str, folder: Path, name: str) -> list[Any]:
    """Run a program, and return what step has seen."""
    script = folder / f"{name}.py"
    script.write_text(f"exec({PRELUDE!r})\n{code}\n{EPILOGUE}")
    # DALI's environment has no torch, which its iterator for torch needs.
    more = [str(p) for p in ROOT.glob(f"{TORCH}/lib/python*/site-packages")]
    path = [os.environ["PYTHONPATH"], *(more if "dali" in str(interpreter) else [])]
    done = subprocess.run(
        [str(interpreter), str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stderr}\n{done.stdout}"
    seen: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """Make what the page says is there: flowers, and shards of others without an index."""
    folder = tmp_path_factory.mktemp("migrate")
    made = ["go", "run", "./tools/gendata", str(folder / "flowers"), "--shapes", "--quiet"]
    made += ["--images", "400", "--splits", "train:0.8,val:0.2"]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
    for name, form in (("tars", "tar"), ("records", "tfrecord")):
        packed = [str(programs / "shardify"), "pack", "flowers/train", name]
        packed += ["--split", "train", "--shards", "4", "--format", form]
        subprocess.run(packed, cwd=folder, check=True, capture_output=True)
        for file in (folder / name).iterdir():
            if file.suffix != f".{form}":
                file.unlink()
    # The commands of the page.
    for snippet in SNIPPETS:
        if snippet.language == "sh":
            subprocess.run(
                ["sh", "-euc", snippet.code],
                cwd=folder,
                env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
                check=True,
                capture_output=True,
            )
    return folder


SIZES = {"What is the same for all": [224], "FFCV": [224, 128, 160]}


@pytest.mark.parametrize("section", ["What is the same for all", *BEFORE])
def test_after(section: str, workplace: Path) -> None:
    """Our snippets run, and give the batches that the section talks of."""
    interpreter = python(TENSORFLOW if section == "tf.data" else TORCH)
    when = "all" if section not in BEFORE else "after"
    seen = run(interpreter, program(section, when), workplace, script_name("after", section))
    full = [batch for batch in seen if batch[0] == 64]
    assert len(full) >= 10
    sizes = {side for _, shape, *_ in full for side in shape} - {3}
    assert sizes == set(SIZES.get(section, [224]))


@pytest.mark.parametrize("section", BEFORE)
def test_before(section: str, workplace: Path) -> None:
    """Their snippets run where their loader is installed; elsewhere they have been compiled."""
    interpreter = python(BEFORE[section])
    seen = run(interpreter, program(section, "before"), workplace, script_name("before", section))
    assert len(seen) >= 10
    assert {tuple(shape) for _, shape, *_ in seen} <= {(3, 224, 224), (224, 224, 3)}
