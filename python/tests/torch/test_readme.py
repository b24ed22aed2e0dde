"""The README's example trains on real photographs, word for word."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import shardread

ROOT = Path(__file__).parents[3]

SAYS = "print(images.shape, images.dtype, loss.isfinite())"
RESUMES = """
loader.load_state_dict(torch.load("checkpoint.pt")["loader"])
print(loader.epoch, epoch + 1)
"""


def test_the_example_of_the_readme(photographs: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (example,) = (block for block in blocks if "shardread.Loader" in block)
    (epochs,) = (block for block in blocks if "loader.state_dict" in block)
    for file in sorted(photographs.glob("*.JPEG"))[:40]:
        folder = tmp_path / "photos" / file.name.split("_")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).symlink_to(file)
    shardread.pack(tmp_path / "photos", tmp_path / "shards")
    run = subprocess.run(
        [sys.executable, "-c", "\n".join([example, SAYS, epochs.replace("90", "3"), RESUMES])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "torch.Size([8, 3, 224, 224]) torch.float32 tensor(True)\n3 3\n"
