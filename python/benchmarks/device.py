"""Who should copy batches to a GPU for torch: `make bench-gpu-python`.

On a machine with a card, with a torch that has CUDA. Each of the two ways (`UPLOADS` in
shardread/_outputs.py) is run in turns with the other, for bytes and for floats, and medians are
printed:

- client: this process copies from the server's memory, which it has pinned
- server: shardread serve copies to memory on the card that both have; floats are made there

`images/s` is of a loop that does nothing with the batches but add them up on the card: how
fast they can come. `beside` is of a loop that multiplies matrices for --work milliseconds of
the card's time each step, by what that loop does with one batch that lies there already: 1
means that the step waits for nothing. `cpu` is microseconds of this process's time a batch.

The choice is to be made by these figures; there are none yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import shardread
from shardread import _outputs

sys.path.insert(0, str(Path(__file__).parent))

from loop import pack

BATCH = 256
TRANSFORM = [shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip()]
KINDS: dict[str, dict[str, Any]] = {
    "uint8": {"transform": TRANSFORM},
    "bfloat16": {
        "transform": [*TRANSFORM, shardread.Normalize(shardread.IMAGENET)],
        "dtype": "bfloat16",
        "layout": "NHWC",
    },
}


class Work:
    """Something for the card to do for so many milliseconds, as a model does."""

    def __init__(self, milliseconds: float) -> None:
        import torch  # noqa: PLC0415 - main says what to do without it

        self._torch = torch
        self._matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self._times = 1
        if milliseconds:
            self._step(20)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self._step(100)
            end.record()
            end.synchronize()
            self._times = max(1, round(milliseconds / (begin.elapsed_time(end) / 100)))

    def _step(self, times: int) -> None:
        for _ in range(times):
            self._matrix @ self._matrix

    def __call__(self, images: Any) -> Any:
        """Use a batch, and compute."""
        total = images.sum(dtype=self._torch.float32)
        self._step(self._times)
        return total


def epoch(shards: Path, uploads: str, work: Any, kind: dict[str, Any]) -> tuple[float, float]:
    """Return images per second of an epoch, and microseconds of this process a batch."""
    import torch  # noqa: PLC0415

    _outputs.UPLOADS = uploads
    with shardread.Loader(shards, batch_size=BATCH, seed=1, device="cuda", **kind) as loader:
        n, cpu, begin = 0, 0.0, 0.0
        for images, _labels in loader:
            if begin == 0:  # memory has been mapped, and kernels compiled
                work(images)
                torch.cuda.synchronize()
                cpu, begin = time.process_time(), time.perf_counter()
                continue
            work(images)
            n += len(images)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return n / seconds, (time.process_time() - cpu) / (n / BATCH) * 1e6


def resident(shards: Path, work: Any, kind: dict[str, Any], batches: int = 50) -> float:
    """Return images per second where the batch is on the card already."""
    import torch  # noqa: PLC0415

    with shardread.Loader(shards, batch_size=BATCH, seed=1, device="cuda", **kind) as loader:
        images = next(iter(loader))[0].clone()
    work(images)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(batches):
        work(images)
    torch.cuda.synchronize()
    return batches * BATCH / (time.perf_counter() - begin)


def main() -> int:
    """Measure, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=float, default=100, help="milliseconds of a step")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        torch = None  # type: ignore[assignment]
    if torch is None or not torch.cuda.is_available():
        print("device.py: it takes a card, and a torch that has CUDA", file=sys.stderr)
        return 1
    figures: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory(prefix="bench-device-") as folder:
        shards = pack(options.photos, Path(folder))
        light, heavy = Work(0), Work(options.work)
        for name, kind in KINDS.items():
            rounds: dict[str, list[tuple[float, float, float]]] = {"client": [], "server": []}
            for uploads in rounds:
                epoch(shards, uploads, light, kind)
            for _ in range(options.rounds):
                ceiling = resident(shards, heavy, kind)
                for uploads, list_ in rounds.items():
                    speed, cpu = epoch(shards, uploads, light, kind)
                    beside, _ = epoch(shards, uploads, heavy, kind)
                    list_.append((speed, cpu, beside / ceiling))
            figures[name] = {
                uploads: dict(
                    zip(
                        ("images_per_second", "cpu_us", "beside"),
                        (statistics.median(column) for column in zip(*list_, strict=True)),
                        strict=True,
                    )
                )
                for uploads, list_ in rounds.items()
            }
    if options.json:
        print(json.dumps(figures))
        return 0
    print(figures["card"])
    for name in KINDS:
        for uploads, one in figures[name].items():
            print(
                f"{name:9} {uploads:7} {one['images_per_second']:8.0f} images/s   "
                f"beside {one['beside']:.3f}   cpu {one['cpu_us']:.0f} µs"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
