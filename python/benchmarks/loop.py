"""What the Python side costs: `make bench-python`.

Everything is measured in turns with what it is compared with, and medians are printed, with
the floors that are to be held. Run it on a machine that does nothing else.

- loop: images per second of a Loader's loop over an epoch of 46 batches, in uint8 and in
  normalised float32, by those of `shardread bench` (floor 0.95); of either a process that has
  just begun. Neither looks at the pixels: it is handing over that is compared. And by
  processor time, of server and trainer together, which is less disturbed
- overhead: time for a batch of 256 x 3 x 224 x 224 bytes where the server, a stand-in, has
  the next one at once (floor 200 µs); and processor time of the trainer's process for a batch
  in the loop, where its code has left the caches each time
- first: from before `import shardread` to the first batch of 256 (floor 0.6 s)
- memory: of both processes, above an interpreter with NumPy, by what the pass may hold
  (floor: 100 MB more)
- sample: time for a sample of random access, `dataset[i]`, with decoding, and processor time
  of this process for it; for one of a list of 256, and for one of an IterableDataset
- beside: images per second beside a thread that computes all the time, by what is left of
  the cores (floor 1: no more is lost than the thread's own use), with `nice` 10 besides
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402

import shardread  # noqa: E402
from shardread import _client, _frames, _outputs, _programs, _server, config  # noqa: E402

TRANSFORM = [shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip()]
KINDS: dict[str, dict[str, Any]] = {
    "uint8": {"transform": TRANSFORM},
    "float32": {"transform": [*TRANSFORM, shardread.Normalize(shardread.IMAGENET)]},
}
BATCH = 256
IMAGES = 12000


def pack(photos: Path | None, folder: Path) -> Path:
    """Pack photographs, each several times so that an epoch is long enough, or generated ones."""
    images = folder / "images"
    if photos is None:
        command = ["go", "run", "./tools/gendata", str(images), "--images", str(IMAGES)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    else:
        files = sorted(photos.glob("*.JP*G"))
        for k in range(-(-IMAGES // len(files))):
            for file in files:
                link = images / file.name.split("_")[0] / f"{k}-{file.name}"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.resolve())
    command = [_programs.find("shardify"), "pack", str(images), str(folder / "shards")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "shards"


@dataclasses.dataclass
class Speed:
    """What an epoch took."""

    images: float  # per second
    cpu: float  # seconds of processors for an image, of all processes
    trainer: float = 0  # microseconds of the trainer's process for a batch


def cpu_of(pid: int) -> float:
    """Return the seconds of processors that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loop(shards: Path, kind: str = "uint8", **given: Any) -> Speed:
    """Return the speed of an epoch in Python."""
    given = {"seed": 1, "ends": "drop", "framework": "numpy"} | KINDS[kind] | given
    with shardread.Loader(shards, batch_size=BATCH, **given) as loader:
        process = loader._open().connection._attached._process
        assert process is not None
        server, cpu, begin, n = cpu_of(process.pid), time.process_time(), time.perf_counter(), 0
        for images, _labels in loader:
            n += len(images)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        both = cpu + cpu_of(process.pid) - server
        return Speed(n / seconds, both / n, cpu / (n / BATCH) * 1e6)


def bench(shards: Path, kind: str = "uint8") -> Speed:
    """Return the speed of the engine alone."""
    command = [_programs.find("shardread"), "bench", str(shards), "--json", "--seed", "1"]
    command += ["--batch", str(BATCH), "--ends", "drop", "--transform"]
    command += [json.dumps(config.as_json(KINDS[kind])["transform"])]
    if kind == "float32":
        command += ["--dtype", kind]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = json.loads(run.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Speed(float(figures["images_per_second"]), cpu / figures["stats"]["samples"])


def samples(shards: Path, n: int = 4 * BATCH) -> dict[str, float]:
    """Return microseconds for a sample: of time, and of this process's processor."""
    out: dict[str, float] = {}
    with shardread.Dataset(shards, transform=TRANSFORM) as data:
        order = np.random.default_rng(0).permutation(len(data))[:n].tolist()
        data[0]
        begin, cpu = time.perf_counter(), time.process_time()
        for i in order:
            data[i]
        out["one_us"] = (time.perf_counter() - begin) / n * 1e6
        out["one_cpu_us"] = (time.process_time() - cpu) / n * 1e6
        cpu = time.process_time()
        for at in range(0, n, BATCH):
            data.__getitems__(order[at : at + BATCH])
        out["many_cpu_us"] = (time.process_time() - cpu) / n * 1e6
    iterable = shardread.IterableDataset(shards, transform=TRANSFORM)
    try:
        cpu, count = time.process_time(), 0
        for _sample in iterable:
            count += 1
        out["iterable_cpu_us"] = (time.process_time() - cpu) / count * 1e6
    finally:
        iterable.close()
    return out


def overhead(shards: Path, batches: int = 5000) -> float:
    """Return the microseconds of a batch that a server has ready: one that is sent again."""
    with shardread.Loader(
        shards, batch_size=BATCH, transform=TRANSFORM, framework="numpy", prefetch=1
    ) as loader:
        raw = loader._start().next()
        assert raw is not None
        event, size = json.dumps({**raw.event, "pass": 1, "slab": 1}), len(raw.memory.map)
        del raw
    head, tail = re.split(r'"number": \d+', event)
    ours, theirs = socket.socketpair()
    server = os.fork()
    if server == 0:
        ours.close()
        with contextlib.suppress(OSError):  # the end
            replay(theirs, lambda n: f'{head}"number": {n}{tail}'.encode(), batches, size)
        os._exit(0)
    theirs.close()
    connection = _client.Connection(_server.Attached(ours, "the stand-in"), None)
    reader = _client.open_reader(connection, {})
    begin = time.perf_counter()
    for raw, arrays in _outputs.NumPy().batches(reader.start(), lambda raw, arrays: arrays):
        del raw, arrays
    seconds = time.perf_counter() - begin
    reader.close()
    os.waitpid(server, 0)
    return seconds / batches * 1e6


def replay(sock: socket.socket, batch: Callable[[int], bytes], batches: int, size: int) -> None:
    """Be a server with one slab, four batches ahead."""
    with tempfile.TemporaryFile() as slab, sock.makefile("rb") as file:
        slab.truncate(size)
        sent = released = 0
        while head := file.read(16):
            request = json.loads(file.read(int.from_bytes(head[:4], "little")))
            if request["op"] == "release":
                released += len(request["batches"])
            else:
                ok = {"reader": 1, "len": batches, "samples": 0, "config": {}}
                ok |= {"pass": 1, "credit": 4 * size, "batches": batches}
                sock.sendall(_frames.frame({"id": request["id"], "ok": ok}))
            if request["op"] == "start":
                text = _frames.frame({"event": "slab", "slab": 1, "bytes": size})
                socket.send_fds(sock, [text], [slab.fileno()])
            while request["op"] in {"start", "release"} and sent < min(released + 4, batches):
                text = batch(sent)
                sock.sendall(len(text).to_bytes(16, "little") + text)
                if (sent := sent + 1) == batches:
                    sock.sendall(_frames.frame({"event": "end", "pass": 1}))


FIRST = f"""
import sys, time
sys.path.insert(0, {str(ROOT / "python")!r})
begin = time.perf_counter()
import shardread
transform = [shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip()]
with shardread.Loader(sys.argv[1], batch_size={BATCH}, transform=transform) as loader:
    for images, labels in loader:
        print(time.perf_counter() - begin)
        break
"""


def first(shards: Path) -> float:
    """Return the seconds from importing to the first batch."""
    run = subprocess.run(
        [sys.executable, "-c", FIRST, str(shards)], check=True, capture_output=True, text=True
    )
    return float(run.stdout)


def proportional(pid: int) -> int:
    """Return a process's share of the memory that it uses, in bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1]) << 10  # type: ignore[index]


def memory(shards: Path) -> tuple[int, int]:
    """Return the most that both processes take above what they began with, and the budget."""
    before, most = proportional(os.getpid()), 0
    with shardread.Loader(
        shards, batch_size=BATCH, transform=TRANSFORM, framework="numpy"
    ) as loader:
        server = loader._open().connection._attached._process
        assert server is not None
        for images, _labels in loader:
            images[:, 0, 0, 0].sum()
            most = max(most, proportional(os.getpid()) + proportional(server.pid) - before)
        return most, int(loader.config["memory"])


def beside(shards: Path, **given: Any) -> tuple[float, float]:
    """Return images per second beside a thread that computes, and that thread's cores."""
    ended = threading.Event()
    used = [0.0]
    a = np.random.default_rng(0).random((256, 256))

    def compute() -> None:
        begin = time.thread_time()
        while not ended.is_set():
            np.dot(a, a)
        used[0] = time.thread_time() - begin

    thread = threading.Thread(target=compute)
    begin = time.perf_counter()
    thread.start()
    try:
        speed = loop(shards, **given).images
    finally:
        ended.set()
        thread.join()
    return speed, used[0] / (time.perf_counter() - begin)


def main() -> None:
    """Measure, and print a line for each floor."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-python-") as folder:
        shards = pack(options.photos, Path(folder))
        loop(shards)
        bench(shards)
        rounds = {
            kind: [(loop(shards, kind), bench(shards, kind)) for _ in range(options.rounds)]
            for kind in KINDS
        }
        firsts = [first(shards) for _ in range(options.rounds)]
        taken = statistics.median(overhead(shards) for _ in range(options.rounds))
        most, budget = memory(shards)
        sample = samples(shards)
        besides = [
            {"nice": nice, "speeds": [beside(shards, nice=nice) for _ in range(3)]}
            for nice in (None, 10)
        ]
    figures: dict[str, Any] = {
        "cores": cores,
        **{
            name: {
                "of_bench": statistics.median(a.images / b.images for a, b in speeds),
                "of_bench_by_cpu": statistics.median(b.cpu / a.cpu for a, b in speeds),
                "images_per_second": statistics.median(a.images for a, _ in speeds),
                "trainer_cpu_us": statistics.median(a.trainer for a, _ in speeds),
            }
            for name, speeds in rounds.items()
        },
        "overhead_us": taken,
        "first_s": statistics.median(firsts),
        "memory": most,
        "budget": budget,
        "sample": sample,
    }
    for one in besides:
        speed, used = (statistics.median(s) for s in zip(*one["speeds"], strict=True))
        left = figures["uint8"]["images_per_second"] * (cores - used) / cores
        figures["beside" if one["nice"] is None else "beside_nice"] = speed / left
    if options.json:
        print(json.dumps(figures))
        return
    for kind in KINDS:
        of = figures[kind]
        print(
            f"loop      {of['of_bench']:.3f} of shardread bench, {kind}   (floor 0.95); "
            f"{of['of_bench_by_cpu']:.3f} by processor time"
        )
    print(f"overhead  {figures['overhead_us']:.0f} µs a batch   (floor 200)")
    cpu = figures["uint8"]["trainer_cpu_us"]
    print(f"          {cpu:.0f} µs of the trainer's processor time a batch in the loop")
    print(f"first     {figures['first_s']:.2f} s   (floor 0.6)")
    print(f"memory    {most / 1e6:.0f} MB, budget {budget / 1e6:.0f} MB   (floor: 100 MB more)")
    print(
        f"sample    {sample['one_us']:.0f} µs, {sample['one_cpu_us']:.0f} of this process's "
        f"processor; of 256 {sample['many_cpu_us']:.0f}; "
        f"IterableDataset {sample['iterable_cpu_us']:.0f}"
    )
    print(f"beside    {figures['beside']:.2f} of the rest, nice 10 {figures['beside_nice']:.2f}")


if __name__ == "__main__":
    main()
