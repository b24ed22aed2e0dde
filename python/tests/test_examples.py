"""The examples of JAX and Keras train. Those of torch are in torch/test_examples.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
EPOCHS = 3


@pytest.mark.parametrize(
    ("script", "pattern"),
    [
        ("train_jax.py", r"loss (\S+)  val (\S+) %"),
        ("train_keras.py", r"accuracy: \S+ - loss: (\S+) - val_accuracy: (\S+)"),
    ],
)
def test_learns(colours: Path, script: str, pattern: str) -> None:
    """The loss falls, and what is learnt is more than chance."""
    command = [
        sys.executable,
        EXAMPLES / script,
        colours,
        "--size",
        32,
        "--batch-size",
        16,
        "--lr",
        0.02,
    ]
    done = subprocess.run(
        [str(word) for word in [*command, "--epochs", EPOCHS]],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [(float(a), float(b)) for a, b in re.findall(pattern, done.stdout)]
    assert len(found) == EPOCHS, done.stdout
    assert found[-1][0] < found[0][0]
    assert found[-1][1] > (60 if "%" in pattern else 0.6)  # of four classes
