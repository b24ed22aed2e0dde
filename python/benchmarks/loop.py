"""What the Python side costs: `make bench-python`.

Everything is measured in turns with what it is compared with, and medians are printed, with
the floors that are to be held. Run it on a machine that does nothing else.

- loop: images per second of a Loader's loop, by those of `shardread bench` (floor 0.95)
- overhead: time for a batch of 256 x 3 x 224 x 224 bytes where the server, a stand-in, has
  the next one at once (floor 200 µs); and processor time of the trainer's process for a batch
  in the loop, where its code has left the caches each time
- first: from before `import shardread` to the first batch of 256 (floor 0.6 s)
- memory: of both processes, above an interpreter with NumPy, by what the pass may hold
  (floor: 100 MB more)
- beside: images per second beside a thread that computes all the time, by what is left of
  the cores (floor 1: no more is lost than the thread's own use), with `nice` 10 besides
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
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
from shardread import _client, _frames, _outputs, _programs, _server  # noqa: E402

TRANSFORM = [shardread.RandomResizedCrop(224), shardread.RandomHorizontalFlip()]
BATCH = 256


def pack(photos: Path | None, folder: Path) -> Path:
    """Pack photographs, each several times so that an epoch is long enough, or generated ones."""
    images = folder / "images"
    if photos is None:
        command = ["go", "run", "./tools/gendata", str(images), "--images", "3000"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    else:
        files = sorted(photos.glob("*.JP*G"))
        for k in range(-(-4000 // len(files))):
            for file in files:
                link = images / file.name.split("_")[0] / f"{k}-{file.name}"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.resolve())
    command = [_programs.find("shardify"), "pack", str(images), str(folder / "shards")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "shards"


def loop(shards: Path, **given: Any) -> tuple[float, float]:
    """Return images per second of an epoch, and microseconds of this process a batch."""
    with shardread.Loader(
        shards, batch_size=BATCH, seed=1, transform=TRANSFORM, framework="numpy", **given
    ) as loader:
        cpu, begin, n = time.process_time(), time.perf_counter(), 0
        for images, _labels in loader:
            n += len(images)
        seconds = time.perf_counter() - begin
        return n / seconds, (time.process_time() - cpu) / (n / BATCH) * 1e6


def bench(shards: Path) -> float:
    """Return images per second of the engine alone."""
    command = [_programs.find("shardread"), "bench", str(shards), "--json", "--seed", "1"]
    command += ["--crop", "224", "--batch", str(BATCH), "--ends", "drop"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(run.stdout)["images_per_second"])


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
        speed, _ = loop(shards, **given)
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
        rounds = [(*loop(shards), bench(shards)) for _ in range(options.rounds)]
        firsts = [first(shards) for _ in range(options.rounds)]
        taken = statistics.median(overhead(shards) for _ in range(options.rounds))
        most, budget = memory(shards)
        besides = [
            {"nice": nice, "speeds": [beside(shards, nice=nice) for _ in range(3)]}
            for nice in (None, 10)
        ]
    figures: dict[str, Any] = {
        "cores": cores,
        "loop": statistics.median(a / b for a, _, b in rounds),
        "images_per_second": statistics.median(a for a, _, _ in rounds),
        "overhead_us": taken,
        "cpu_us": statistics.median(cpu for _, cpu, _ in rounds),
        "first_s": statistics.median(firsts),
        "memory": most,
        "budget": budget,
    }
    for one in besides:
        speed, used = (statistics.median(s) for s in zip(*one["speeds"], strict=True))
        left = figures["images_per_second"] * (cores - used) / cores
        figures["beside" if one["nice"] is None else "beside_nice"] = speed / left
    if options.json:
        print(json.dumps(figures))
        return
    print(f"loop      {figures['loop']:.3f} of shardread bench   (floor 0.95)")
    print(f"overhead  {figures['overhead_us']:.0f} µs a batch   (floor 200)")
    print(f"          {figures['cpu_us']:.0f} µs of processor time a batch in the loop")
    print(f"first     {figures['first_s']:.2f} s   (floor 0.6)")
    print(f"memory    {most / 1e6:.0f} MB, budget {budget / 1e6:.0f} MB   (floor: 100 MB more)")
    print(f"beside    {figures['beside']:.2f} of the rest, nice 10 {figures['beside_nice']:.2f}")


if __name__ == "__main__":
    main()
