"""What a training loop gets, fed by whom: `make bench-train`.

The same loop (by default ResNet-50 with SGD, bfloat16 autocast, channels_last) is fed in turns:

- synthetic: by one batch that lies on the GPU already, which is the ceiling
- shardread: by a Loader
- dataloader: by torch's DataLoader over torchvision's ImageFolder, with pinned memory

All three hand over bytes, which the loop normalises on the GPU. For each is printed: images a
second (medians over the rounds); the share of the time that the GPU stood between two steps, by
events in its stream, and the share of steps before which it stood longer than a hundredth of a
step; and what NVML told of the GPU. Beside them `shardread bench` says what the machine's
processors decode without a trainer.

Floors, on a GPU: the loop fed by shardread reaches 0.97 of the ceiling, or what the
processors decode where that is less; and no step waits where they decode a tenth more than the
model takes. Without a GPU the loop runs on the processor, which the loaders want, too: its
figures say nothing about a GPU's.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
import torchvision  # noqa: E402
from torch.nn import functional  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import shardread  # noqa: E402
from shardread import _programs  # noqa: E402

MODES = ("synthetic", "shardread", "dataloader")
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def arguments(given: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files (default: generated)")
    parser.add_argument("--folder", type=Path, help="a folder of folders of images, one a class")
    parser.add_argument("--images", type=int, default=12800, help="of the data set, of --photos")
    parser.add_argument("--model", default="resnet50", help="a classifier of torchvision.models")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224, help="height and width of images")
    parser.add_argument("--steps", type=int, default=100, help="that are measured, each time")
    parser.add_argument("--warmup", type=int, default=20, help="steps before these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args(given)


def images_in(options: argparse.Namespace, folder: Path) -> Path:
    """Return a folder of classes; photographs are there as often as makes so many."""
    if options.folder is not None:
        return Path(options.folder)
    images = folder / "images"
    if options.photos is None:
        command = ["go", "run", "./tools/gendata", str(images), "--images", str(options.images)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return images
    files = [f for f in sorted(options.photos.iterdir()) if f.suffix.lower() in {".jpg", ".jpeg"}]
    for k in range(-(-options.images // len(files))):
        for file in files[: options.images - k * len(files)]:
            link = images / file.name.split("_")[0] / f"{k}-{file.name}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())
    return images


@contextlib.contextmanager
def synthetic(options: argparse.Namespace, _images: Path, _shards: Path) -> Iterator[Batches]:
    """Yield the same batch again and again."""
    shape = (options.batch_size, options.size, options.size, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=options.device)
    labels = torch.randint(0, 2, shape[:1], device=options.device)
    yield itertools.repeat((images, labels))


@contextlib.contextmanager
def by_shardread(options: argparse.Namespace, _images: Path, shards: Path) -> Iterator[Batches]:
    """Yield the batches of a Loader, epoch after epoch."""
    with shardread.Loader(
        shards,
        batch_size=options.batch_size,
        seed=1,
        transform=[shardread.RandomResizedCrop(options.size), shardread.RandomHorizontalFlip()],
        layout="NHWC",
        ends="drop",
        device=options.device,
    ) as loader:
        yield (batch for _ in itertools.count() for batch in loader)


@contextlib.contextmanager
def by_dataloader(options: argparse.Namespace, images: Path, _shards: Path) -> Iterator[Batches]:
    """Yield the batches of a DataLoader, epoch after epoch."""
    cuda = torch.device(options.device).type == "cuda"
    transform = v2.Compose(
        [v2.RandomResizedCrop(options.size), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    )
    loader = torch.utils.data.DataLoader(
        torchvision.datasets.ImageFolder(str(images), transform),
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=cuda,
    )

    def batches() -> Generator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in itertools.count():
            for pixels, labels in loader:
                there = pixels.to(options.device, non_blocking=True)
                # As the others: bytes, channels last.
                yield there.permute(0, 2, 3, 1), labels.to(options.device, non_blocking=True)

    found = batches()  # its workers end with it
    with contextlib.closing(found):
        yield found


SOURCES = {"synthetic": synthetic, "shardread": by_shardread, "dataloader": by_dataloader}


class Clock:
    """Notes when steps begin and end: by the GPU's clock, where there is one."""

    def __init__(self, device: str) -> None:
        self._cuda = torch.device(device).type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Note that all that was asked for before is done."""
        if not self._cuda:
            self._marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def seconds(self) -> list[float]:
        """Wait, and return the times between the marks."""
        if not self._cuda:
            return [b - a for a, b in itertools.pairwise(self._marks)]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(self._marks)]


class Monitor:
    """Reads NVML ten times a second, as long as it is entered."""

    def __init__(self, device: str) -> None:
        self.figures: dict[str, float] = {}
        self._readings: list[tuple[int, int, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._handle: ctypes.c_void_p | None = None
        if torch.device(device).type != "cuda":
            return
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        handle = ctypes.c_void_p()
        started = self._nvml.nvmlInit_v2() == 0
        if started and self._nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) == 0:
            self._handle = handle

    def _read(self) -> None:
        rates = (ctypes.c_uint * 2)()
        power = ctypes.c_uint()
        memory = (ctypes.c_ulonglong * 3)()
        while self._handle is not None and not self._ended.wait(0.1):
            self._nvml.nvmlDeviceGetUtilizationRates(self._handle, rates)
            self._nvml.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(power))
            self._nvml.nvmlDeviceGetMemoryInfo(self._handle, memory)
            self._readings.append((rates[0], power.value, memory[2]))

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._readings:
            busy, power, used = zip(*self._readings, strict=True)
            self.figures = {
                "gpu_busy_percent": statistics.mean(busy),
                "power_w": statistics.mean(power) / 1e3,
                "memory_used": max(used),
            }


class Trainer:
    """A network, and how it learns."""

    def __init__(self, options: argparse.Namespace, classes: int) -> None:
        self._device = torch.device(options.device)
        self._half = self._device.type == "cuda"
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(1)
        network = getattr(torchvision.models, options.model)(num_classes=classes)
        self._network = network.to(self._device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(
            self._network.parameters(), 0.1, momentum=0.9, weight_decay=1e-4
        )
        dtype = torch.bfloat16 if self._half else torch.float32
        mean, std = ([255 * v for v in values] for values in shardread.IMAGENET)
        self._mean = torch.tensor(mean, dtype=dtype, device=self._device).view(3, 1, 1)
        self._scale = 1 / torch.tensor(std, dtype=dtype, device=self._device).view(3, 1, 1)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Learn from a batch of bytes, N x H x W x 3."""
        x = images.permute(0, 3, 1, 2).to(self._mean.dtype, memory_format=torch.channels_last)
        x = x.sub_(self._mean).mul_(self._scale)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._half):
            loss = functional.cross_entropy(self._network(x), labels)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()


def run(trainer: Trainer, options: argparse.Namespace, batches: Batches) -> dict[str, float]:
    """Train some steps, and say how that fared."""
    for images, labels in itertools.islice(batches, options.warmup):
        trainer.step(images, labels)
    clock = Clock(options.device)
    with Monitor(options.device) as monitor:
        clock.mark()
        for images, labels in itertools.islice(batches, options.steps):
            clock.mark()
            trainer.step(images, labels)
            clock.mark()
        times = clock.seconds()
    stood, worked = times[::2], times[1::2]
    step = statistics.median(worked)
    return {
        "images_per_second": options.steps * options.batch_size / sum(times),
        "step_ms": step * 1e3,
        "stood": sum(stood) / sum(times),
        "waited": sum(t > step / 100 for t in stood) / len(stood),
        **monitor.figures,
    }


def bench(options: argparse.Namespace, shards: Path) -> float:
    """Return images a second of the processors alone."""
    command = [_programs.find("shardread"), "bench", str(shards), "--json", "--layout", "NHWC"]
    command += ["--crop", str(options.size), "--batch", str(options.batch_size), "--ends", "drop"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["images_per_second"])


def measure(options: argparse.Namespace, images: Path, shards: Path) -> dict[str, Any]:
    """Feed the loop by each, in turns."""
    trainer = Trainer(options, sum(p.is_dir() for p in images.iterdir()))
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in options.modes}
    decoded = []
    for _ in range(options.rounds):
        for mode in options.modes:
            with SOURCES[mode](options, images, shards) as batches:
                found[mode].append(run(trainer, options, batches))
        decoded.append(bench(options, shards))
    figures: dict[str, Any] = {
        mode: {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
        for mode, rounds in found.items()
    }
    figures["bench"] = {"images_per_second": statistics.median(decoded)}
    return figures


def floors(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is wanted of a GPU, beside what was found."""
    if not {"synthetic", "shardread"} <= figures.keys():
        return []
    ours, ceiling = figures["shardread"], figures["synthetic"]["images_per_second"]
    decoded = figures["bench"]["images_per_second"]
    want = min(0.97 * ceiling, decoded)
    of = "0.97 of the ceiling" if want < decoded else "what the processors decode"
    found = ours["images_per_second"] / want
    all_floors = [{"name": f"shardread / {of}", "got": found, "holds": found >= 1}]
    if decoded > 1.1 * ceiling:
        waited = ours["waited"]
        all_floors.append({"name": "steps that waited", "got": waited, "holds": waited == 0})
    return all_floors


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line for each."""
    options = arguments(given)
    cuda = torch.device(options.device).type == "cuda"
    with tempfile.TemporaryDirectory(prefix="bench-train-") as folder:
        images, shards = images_in(options, Path(folder)), Path(folder) / "shards"
        command = [_programs.find("shardify"), "pack", str(images), str(shards)]
        subprocess.run(command, check=True, capture_output=True)
        figures = measure(options, images, shards)
    figures["device"] = torch.cuda.get_device_name(options.device) if cuda else "the processor"
    figures["floors"] = floors(figures) if cuda else []
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{options.model}, batches of {options.batch_size}, on {figures['device']}\n")
    print(f"{'fed by':12} {'images/s':>9} {'ms/step':>8} {'stood':>7} {'waited':>7}  GPU")
    for mode in options.modes:
        f = figures[mode]
        gpu = "not known"
        if "gpu_busy_percent" in f:
            gpu = f"{f['gpu_busy_percent']:.0f}% busy, {f['power_w']:.0f} W, "
            gpu += f"{f['memory_used'] / 1e9:.1f} GB"
        line = f"{mode:12} {f['images_per_second']:9.0f} {f['step_ms']:8.2f}"
        print(f"{line} {100 * f['stood']:6.1f}% {100 * f['waited']:6.1f}%  {gpu}")
    print(f"{'(bench)':12} {figures['bench']['images_per_second']:9.0f}")
    for floor in figures["floors"]:
        verdict = "holds" if floor["holds"] else "FALLS SHORT"
        print(f"{floor['name']}: {floor['got']:.3f}  {verdict}")


if __name__ == "__main__":
    main()
