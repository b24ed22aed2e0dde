"""The loops of docs/python.md run."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

TEXT = (Path(__file__).parents[3] / "docs/python.md").read_text()
BLOCKS = [b for b in re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S) if '"shards",' in b]


@pytest.fixture(scope="module")
def captioned(images: Path, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make shards whose images have captions."""
    folder = tmp_path_factory.mktemp("captioned")
    for split in ("train", "val"):
        with tarfile.open(folder / f"{split}-000000.tar", "w") as tar:
            for i, file in enumerate(sorted((images / split).rglob("*.*"))):
                fields = {"cls": b"%d" % (i % 5), "txt": b"number %d" % i, "jpg": file.read_bytes()}
                for name, data in fields.items():
                    info = tarfile.TarInfo(f"{i:04d}.{name}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    subprocess.run([programs / "shardify", "index", folder], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("block", BLOCKS)
def test_it_runs(
    block: str, captioned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if 'device="cuda' in block and not torch.cuda.is_available():
        pytest.skip("SKIPPED LOUDLY: it takes a GPU, and there is none")
    (tmp_path / "shards").symlink_to(captioned)
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(5))
    names = {"device": "cpu", "model": model}
    exec("import shardread\n" + block, names)
    assert "loader" in names
