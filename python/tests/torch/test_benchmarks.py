"""The benchmark of training runs, without a GPU: what it measures is there."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "train.py"


def test_train(
    images: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three feed the loop, in the table and as JSON."""
    module = runpy.run_path(str(BENCHMARK))
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # not to wait for cores that others use
    request.addfinalizer(lambda: torch.set_num_threads(before))
    small = "--model squeezenet1_1 --size 32 --batch-size 8 --steps 4 --warmup 1 --rounds 1"
    arguments = [*small.split(), "--workers", "1", "--device", "cpu"]
    module["main"]([*arguments, "--folder", str(images / "train"), "--json"])
    figures = json.loads(capsys.readouterr().out)
    for mode in module["MODES"]:
        found = figures[mode]
        assert found["images_per_second"] > 0
        assert found["step_ms"] > 0
        assert 0 <= found["stood"] <= 1
        assert 0 <= found["waited"] <= 1
    assert figures["bench"]["images_per_second"] > 0
    assert figures["floors"] == []  # of a GPU
    few = [*arguments, "--modes", "synthetic", "shardread", "--folder", str(images / "train")]
    module["main"](few)
    out = capsys.readouterr().out
    assert "squeezenet1_1, batches of 8, on the processor" in out
    assert [line.split()[0] for line in out.splitlines()[3:]] == [
        "synthetic",
        "shardread",
        "(bench)",
    ]


@pytest.mark.parametrize(
    ("ours", "ceiling", "decoded", "waited", "names", "holds"),
    [
        (980, 1000, 2000, 0, ["0.97 of the ceiling", "steps that waited"], [True, True]),
        (960, 1000, 2000, 0.01, ["0.97 of the ceiling", "steps that waited"], [False, False]),
        (500, 1000, 490, 0.9, ["what the processors decode"], [True]),
        (480, 1000, 490, 0.9, ["what the processors decode"], [False]),
    ],
)
def test_floors(
    ours: int, ceiling: int, decoded: int, waited: float, names: list[str], holds: list[bool]
) -> None:
    """The loop is held to its ceiling, or to the processors where these are slower."""
    found = runpy.run_path(str(BENCHMARK))["floors"](
        {
            "synthetic": {"images_per_second": ceiling},
            "shardread": {"images_per_second": ours, "waited": waited},
            "bench": {"images_per_second": decoded},
        }
    )
    assert [f["name"].removeprefix("shardread / ") for f in found] == names
    assert [f["holds"] for f in found] == holds
