"""The examples train, and go on where they were stopped as if nothing had happened."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORD = Path(__file__).with_name("record.py")
run = runpy.run_path(str(RECORD))["run"]

Batches = list[tuple[int, int, list[str]]]

# 160 training images of four classes: ten batches an epoch.
BATCH, STEPS = 16, 10
ARGUMENTS = ("--model", "resnet18", "--size", "32", "--batch-size", BATCH)
# Where nothing depends on what is learnt.
SMALL = ("--model", "shufflenet_v2_x0_5", *ARGUMENTS[2:])
HALF = (*SMALL[:-1], BATCH // 2)


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


def in_two(folder: Path, script: Path, *arguments: object) -> None:
    """Run the script in two processes, as torchrun does, but forked where all is imported."""
    multiprocessing.set_forkserver_preload(
        ["accelerate", "lightning", "torchvision", "transformers"]
    )
    words = [str(word) for word in arguments]
    code = "import pathlib, runpy, torch; torch.set_num_threads(1); "
    code += f"runpy.run_path({str(RECORD)!r})['run'](pathlib.{folder!r}, {str(script)!r}, *{words})"
    config = LaunchConfig(
        1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="forkserver"
    )
    with mock.patch.dict(os.environ, ACCELERATE_USE_CPU="true"):
        elastic_launch(config, exec)(code)


def both_ranks(folder: Path) -> Batches:
    """Return the batches of two ranks that have shared each: with the keys of both."""
    ranks = [batches(folder, rank) for rank in range(2)]
    assert {len(keys) for found in ranks for *_, keys in found} == {BATCH // 2}
    assert [b[:2] for b in ranks[0]] == [b[:2] for b in ranks[1]]
    return [(*a[:2], a[2] + b[2]) for a, b in zip(*ranks, strict=True)]


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
    command += [RECORD, tmp_path / "two", script, colours, *HALF, *rest, "--steps", steps]
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(progress(done.stdout)) == 1
    both = both_ranks(tmp_path / "two")
    assert len(both) == steps
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


def test_lightning_distributed(colours: Path, tmp_path: Path) -> None:
    """Two processes share every batch, and go on in the middle of an epoch."""
    script, steps = EXAMPLES / "train_lightning.py", STEPS + STEPS // 2
    more = ("--devices", 2, "--epochs", 2, "--save-every", STEPS // 2, "--runs", tmp_path / "runs")
    in_two(tmp_path / "two", script, colours, *HALF, *more, "--steps", steps)
    assert len(both_ranks(tmp_path / "two")) == steps
    in_two(tmp_path / "two", script, colours, *HALF, *more, "--resume")
    check_epochs(both_ranks(tmp_path / "two"), 2)


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


@pytest.fixture
def resnet(tmp_path: Path) -> Path:
    """Make the configuration of a network that is small enough to be trained here."""
    config = {"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [32, 64]}
    config |= {"depths": [1, 1], "layer_type": "basic"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(("accumulate", "saved", "seen"), [(1, 14, 14), (4, 5, 18)])
def test_transformers(
    accumulate: int, saved: int, seen: int, colours: Path, resnet: Path, tmp_path: Path
) -> None:
    """It learns; from a checkpoint in the middle of an epoch it ends with the same weights.

    Also where the last step of an epoch has fewer batches than the others.
    """
    script, more = EXAMPLES / "train_transformers.py", ("--epochs", 3, "--lr", 0.01)
    more += ("--accumulate", accumulate, "--save-every", saved, "--checkpoints")
    arguments = (colours, "--model", resnet, *ARGUMENTS[2:], *more)
    run(tmp_path / "whole", script, *arguments, tmp_path / "whole.d")
    check_epochs(batches(tmp_path / "whole"), 3)

    checkpoint = f"checkpoint-{saved}"
    shutil.copytree(tmp_path / "whole.d" / checkpoint, tmp_path / "cut.d" / checkpoint)
    run(tmp_path / "cut", script, *arguments, tmp_path / "cut.d", "--resume")
    # What the checkpoint has seen is not read again.
    assert batches(tmp_path / "cut") == batches(tmp_path / "whole")[seen:]
    last = f"checkpoint-{-(-STEPS // accumulate) * 3}"
    whole, cut = tmp_path / "whole.d" / last, tmp_path / "cut.d" / last
    equal(*(load_file(d / "model.safetensors") for d in (whole, cut)))
    states = [json.loads((d / "trainer_state.json").read_text()) for d in (whole, cut)]
    assert states[0]["stateful_callbacks"] == states[1]["stateful_callbacks"]
    logs = [state["log_history"] for state in states]
    assert [log["epoch"] for log in logs[0]] == [log["epoch"] for log in logs[1]]
    losses = [log["loss"] for log in logs[0] if "loss" in log]
    assert losses[-1] < losses[0]
    assert [log["eval_accuracy"] for log in logs[0] if "eval_accuracy" in log][-1] > 0.6


def test_transformers_distributed(colours: Path, resnet: Path, tmp_path: Path) -> None:
    """Two processes share every batch, and go on in the middle of an epoch."""
    script, more = EXAMPLES / "train_transformers.py", ("--epochs", 2, "--save-every", 14)
    arguments = (colours, "--model", resnet, *HALF[2:], *more, "--checkpoints")
    in_two(tmp_path / "whole", script, *arguments, tmp_path / "whole.d")
    whole = both_ranks(tmp_path / "whole")
    check_epochs(whole, 2)
    shutil.copytree(tmp_path / "whole.d/checkpoint-14", tmp_path / "cut.d/checkpoint-14")
    in_two(tmp_path / "cut", script, *arguments, tmp_path / "cut.d", "--resume")
    assert both_ranks(tmp_path / "cut") == whole[14:]
    equal(
        *(load_file(tmp_path / d / "checkpoint-20/model.safetensors") for d in ("whole.d", "cut.d"))
    )


def test_accelerate_distributed(colours: Path, tmp_path: Path) -> None:
    """Two processes share every batch, and go on in the middle of an epoch."""
    script, steps = EXAMPLES / "train_accelerate.py", STEPS + 4
    more = ("--epochs", 2, "--checkpoint", tmp_path / "checkpoint")
    in_two(tmp_path / "two", script, colours, *HALF, *more, "--steps", steps)
    assert len(both_ranks(tmp_path / "two")) == steps
    in_two(tmp_path / "two", script, colours, *HALF, *more, "--resume")
    check_epochs(both_ranks(tmp_path / "two"), 2)
