"""JPEG on a GPU: gpu.Decode beside torchvision.io.decode_jpeg: `make bench-gpu-jpeg`.

Both decode the same photographs, in batches of 256, in turns. Ours is what BenchmarkJPEG of
package gpu measures: Decode with a share of 1, nvJPEG's batched API in a loop, both sides
together, and the CPU alone. Theirs is a call for each batch, which waits for the GPU. For each is
printed: images a second (medians over the rounds), and what torchvision reaches of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
BATCH = 256
FIGURES = re.compile(r"(\d+) and (\d+) images/s; card and CPU (\d+), CPU alone (\d+)")
OURS = ("Decode on the card", "nvJPEG's batches", "Decode on card and CPU", "Decode on the CPU")
THEIRS = "torchvision"


def arguments(given: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of torchvision in each round")
    parser.add_argument("--device", default="cuda", help="torchvision's; cpu, to try this program")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args(given)


def common(data: bytes) -> bool:
    """Say whether a file is baseline, of one scan, YCbCr at 4:4:4 to 4:2:0, as BenchmarkJPEG."""
    at = 2
    while data[:2] == b"\xff\xd8" and at + 4 <= len(data) and data[at] == 0xFF:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in range(0xC0, 0xC4):
            frame = data[at + 4 : at + 2 + size]
            if marker != 0xC0 or len(frame) != 15 or frame[6] == ord("R"):
                return False
            luma, *chroma = frame[7::3]
            return luma >> 4 <= 2 and luma & 15 <= 2 and chroma == [0x11, 0x11]
        at += 2 + size
    return False


def photographs(folder: Path) -> list[bytes]:
    """Read the first files that BenchmarkJPEG takes, too, in its order."""
    paths = itertools.chain(sorted(folder.glob("*")), sorted(folder.glob("*/*")))
    files = (path.read_bytes() for path in paths if path.is_file())
    chosen = list(itertools.islice(filter(common, files), BATCH))
    if not chosen:
        raise SystemExit(f"{folder} has no baseline JPEG files; give another --photos")
    return chosen


def theirs(files: list[bytes], device: str, seconds: float) -> float:
    """Measure torchvision: images a second."""
    import torch  # noqa: PLC0415
    from torchvision.io import ImageReadMode, decode_jpeg  # noqa: PLC0415

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(
            "torch sees no GPU: see shardread gpu-info; --device cpu tries the program"
        )
    tensors = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in files]
    pinned = [t.pin_memory() for t in tensors] if device.startswith("cuda") else tensors

    def batch() -> None:
        decode_jpeg(pinned, mode=ImageReadMode.RGB, device=device)
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    batch()
    begin, batches = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        batch()
        batches += 1
    return batches * len(files) / (time.perf_counter() - begin)


def ours(folder: Path) -> list[float]:
    """Run BenchmarkJPEG, and read what it prints."""
    settings = {
        "BENCH": "BenchmarkJPEG$",
        "BENCHTIME": "1x",
        "SHARDIFY_PHOTOS": str(folder.resolve()),
    }
    run = subprocess.run(
        ["sh", str(ROOT / "tools" / "gpu.sh"), "bench"],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = FIGURES.findall(run.stdout)
    if run.returncode or not found:
        raise SystemExit(f"BenchmarkJPEG has not run:\n{run.stdout}")
    return [float(figure) for figure in found[0]]


def main(given: list[str] | None = None) -> None:
    """Measure, and print."""
    options = arguments(given)
    files = photographs(options.photos)
    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        rates.setdefault(THEIRS, []).append(theirs(files, options.device, options.seconds))
        if options.device == "cpu":
            continue  # there is nothing of ours to compare
        for name, rate in zip(OURS, ours(options.photos), strict=True):
            rates.setdefault(name, []).append(rate)
    medians = {name: statistics.median(all_) for name, all_ in rates.items()}
    if options.json:
        json.dump({"files": len(files), "images_per_second": rates, "medians": medians}, sys.stdout)
        print()
        return
    print(f"{len(files)} files of {sum(map(len, files)) / len(files) / 1000:.0f} kB")
    for name, rate in medians.items():
        print(f"{name:24} {rate:9.0f} images/s  {medians[THEIRS] / rate:6.3f}")


if __name__ == "__main__":
    main()
