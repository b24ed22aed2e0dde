"""The examples train, and go on where they were stopped as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORD = Path(__file__).with_name("record.py")
run = runpy.run_path(str(RECORD))["run"]

Batches = list[tuple[int, int, list[str]]]

# 160 training images of four classes: ten batches an epoch.
BATCH, STEPS = 16, 10
ARGUMENTS = ("--model", "resnet18", "--size", "32", "--batch-size", BATCH)
# Where nothing depends on what is learnt.
SMALL = ("--model", "shufflenet_v2_x0_5", *ARGUMENTS[2:])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let sums be made in one order, and not wait for cores that others use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batches(folder: Path, rank: int = 0) -> Batches:
    """Return the batches that a rank's loader has yielded: epoch, number, keys."""
    return [tuple(json.loads(line)) for line in (folder / f"{rank}.jsonl").open()]


def check_epochs(found: Batches, epochs: int) -> None:
    """Each epoch has its batches in turn, every sample once, in an order of its own."""
    assert [b[:2] for b in found] == [(e, n) for e in range(epochs) for n in range(STEPS)]
    orders = [[k for e, _, keys in found if e == epoch for k in keys] for epoch in range(epochs)]
    for order in orders:
        assert len(order) == len(set(order)) == BATCH * STEPS
        assert set(order) == set(orders[0])
    assert len({tuple(order) for order in orders}) == epochs


def equal(a: Any, b: Any) -> None:
    """The weights of two checkpoints are the same, to the last bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def progress(text: str) -> list[tuple[float, float]]:
    """Return the loss and the accuracy that were printed for each epoch."""
    return [(float(a), float(b)) for a, b in re.findall(r"loss (\S+)  val (\S+) %", text)]


def check_learns(text: str, epochs: int) -> None:
    """The loss falls, and what is learnt is more than chance."""
    found = progress(text)
    assert len(found) == epochs, text
    assert found[-1][0] < found[0][0]
    assert found[-1][1] > 60  # of four classes


def test_torch(colours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It learns; stopped in the middle of an epoch, it ends with the same weights."""
    script, more = EXAMPLES / "train_torch.py", ("--epochs", 3, "--lr", 0.05, "--save-every", STEPS)
    arguments = (colours, *ARGUMENTS, *more, "--checkpoint")
    run(tmp_path / "whole", script, *arguments, tmp_path / "whole.pt")
    check_learns(capsys.readouterr().out, 3)
    check_epochs(batches(tmp_path / "whole"), 3)

    run(tmp_path / "cut", script, *arguments, tmp_path / "cut.pt", "--steps", 14)
    assert len(batches(tmp_path / "cut")) == 14
    run(tmp_path / "cut", script, *arguments, tmp_path / "cut.pt", "--resume")
    assert batches(tmp_path / "cut") == batches(tmp_path / "whole")
    whole, cut = (torch.load(tmp_path / name) for name in ("whole.pt", "cut.pt"))
    assert whole["step"] == cut["step"] == 3 * STEPS
    assert whole["train"] == cut["train"]
    equal(whole["model"], cut["model"])


def test_torch_distributed(colours: Path, tmp_path: Path) -> None:
    """Two processes share every batch of one: their samples are disjoint, and make up the epoch.

    Stopped in the middle of an epoch, one process goes on alone.
    """
    script, steps = EXAMPLES / "train_torch.py", STEPS + 4
    rest = ("--epochs", 2, "--checkpoint", tmp_path / "checkpoint.pt")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    command += [RECORD, tmp_path / "two", script, colours, *SMALL[:-1], BATCH // 2, *rest]
    done = subprocess.run(
        [str(word) for word in [*command, "--steps", steps]],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(progress(done.stdout)) == 1
    ranks = [batches(tmp_path / "two", rank) for rank in range(2)]
    assert [len(keys) for found in ranks for *_, keys in found] == [BATCH // 2] * 2 * steps
    both = [(*a[:2], a[2] + b[2]) for a, b in zip(*ranks, strict=True)]
    run(tmp_path / "one", script, colours, *SMALL, *rest, "--resume")
    both += batches(tmp_path / "one")
    check_epochs(both, 2)

    # They are the batches of a single process.
    run(tmp_path / "whole", script, colours, *SMALL, *rest)
    whole = batches(tmp_path / "whole")
    assert [(*b[:2], set(b[2])) for b in both] == [(*b[:2], set(b[2])) for b in whole]


def test_lightning(colours: Path, tmp_path: Path) -> None:
    """A checkpoint of any step goes on with exactly the next batch."""
    script = EXAMPLES / "train_lightning.py"
    arguments = (colours, *SMALL, "--epochs", 2, "--save-every", STEPS // 2, "--runs")
    run(tmp_path / "whole", script, *arguments, tmp_path / "whole runs")
    check_epochs(batches(tmp_path / "whole"), 2)
    whole = torch.load(tmp_path / "whole runs/last.ckpt", weights_only=False)

    for steps in (STEPS // 2, STEPS, STEPS + STEPS // 2):
        cut, runs = tmp_path / f"cut {steps}", tmp_path / f"runs {steps}"
        run(cut, script, *arguments, runs, "--steps", steps)
        assert len(batches(cut)) == steps
        run(cut, script, *arguments, runs, "--resume")
        assert batches(cut) == batches(tmp_path / "whole")
        last = torch.load(runs / "last.ckpt", weights_only=False)
        assert whole["global_step"] == last["global_step"] == 2 * STEPS
        equal(whole["state_dict"], last["state_dict"])


def test_accelerate(colours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It learns; stopped in the middle of an epoch, it ends with the same weights."""
    script, more = EXAMPLES / "train_accelerate.py", ("--epochs", 3, "--lr", 0.003)
    arguments = (colours, *ARGUMENTS, *more, "--save-every", STEPS, "--checkpoint")
    run(tmp_path / "whole", script, *arguments, tmp_path / "whole.d")
    check_learns(capsys.readouterr().out, 3)
    check_epochs(batches(tmp_path / "whole"), 3)

    run(tmp_path / "cut", script, *arguments, tmp_path / "cut.d", "--steps", 14)
    run(tmp_path / "cut", script, *arguments, tmp_path / "cut.d", "--resume")
    assert batches(tmp_path / "cut") == batches(tmp_path / "whole")
    whole, cut = (load_file(tmp_path / d / "model.safetensors") for d in ("whole.d", "cut.d"))
    equal(whole, cut)
