"""Batches on a GPU: the tests of tests/cuda, on the tests' double of libcuda, in a process of
their own, whose loader finds the double in place of the driver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="SKIPPED LOUDLY: GPUs are for Linux only")
def test_on_the_double_of_the_driver(tmp_path: Path, programs: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get("SHARDIFY_PEERS") == "require":
            pytest.fail("a C compiler is missing, for the double of the driver")
        pytest.skip("SKIPPED LOUDLY: there is no C compiler for the double of the driver")
    sources = [ROOT / "gpu/gputest/testdata/fakecuda.c", ROOT / "gpu/kernels/kernels.c"]
    command = [compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread"]
    command += ["-DFAKE_KERNELS", "-ffp-contract=off", "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run([*command, *map(str, sources), "-lm"], check=True)
    counts = tmp_path / "counts"
    counts.mkdir()
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "FAKE_CUDA_LATE_COPIES": "5",
        "FAKE_CUDA_COUNTS": str(counts),
        "SHARDREAD_PROGRAMS": str(programs),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/cuda"],
        cwd=ROOT / "python",
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout, done.stdout
    assert " failed" not in done.stdout, done.stdout
