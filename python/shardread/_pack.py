"""Pack image files into shards with an index, by the program shardify."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from shardread import _programs
from shardread.errors import ConfigError, ShardreadError

_EXIT_USAGE = 2
_EXIT_LEFT_OUT = 3

StrPath: TypeAlias = str | os.PathLike[str]


class PackError(ShardreadError):
    """Packing could not be done; the message says why, and what to do."""


@dataclass(frozen=True)
class PackProgress:
    """How far a run has come; see :func:`pack`."""

    phase: str
    """What is being done: "scan", "plan", "pack", "commit"."""
    seconds: float
    """Since the run began."""
    files: int
    """Files found by now, and their bytes."""
    file_bytes: int
    samples: int
    """Samples of the plan, and those that are in finished shards; the same of shards."""
    done_samples: int
    shards: int
    done_shards: int
    done_bytes: int
    """Bytes of files packed."""
    bad: int
    """Bad files left out."""


@dataclass(frozen=True)
class PackedSplit:
    """A split of a data set that was packed."""

    samples: int
    shards: int
    bytes: int


@dataclass(frozen=True)
class PackResult:
    """What a run has come to; see :func:`pack`."""

    url: str
    """Where the data set is."""
    finished: bool
    """False where other workers have shards to pack yet: ``worker=``."""
    already: bool = False
    """The data set was finished before."""
    splits: dict[str, PackedSplit] = field(default_factory=dict)
    bad: int = 0
    """How many bad files were left out; ``bad_list`` in the data set lists them."""
    bad_list: str = ""
    ignored: int = 0
    """How many files are no images, and belong to none."""
    seconds: float = 0.0
    images: dict[str, Any] = field(default_factory=dict)
    """Where images were converted: how many, and their bytes before and after."""


def pack(
    source: StrPath | Sequence[StrPath],
    destination: StrPath,
    *,
    # What is packed.
    layout: Literal["classes", "splits", "flat"] | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    files_from: StrPath | Iterable[StrPath] | None = None,
    table: StrPath | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    key_column: str | None = None,
    split: str | None = None,
    classes: Sequence[str] | StrPath | None = None,
    # What the data set shall be.
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - as everywhere else
    level: int | None = None,
    shard_size: int | str | None = None,
    shard_samples: int | None = None,
    shards: int | None = None,
    template: str | None = None,
    order: Literal["shuffle", "path", "class-interleaved"] | None = None,
    seed: int | None = None,
    check: Literal["header", "none", "decode"] | None = None,
    on_bad: Literal["quarantine", "skip", "fail"] | None = None,
    jpeg_seek: bool | int | Literal["row"] = False,
    # What becomes of images.
    max_side: int | None = None,
    min_side: int | None = None,
    resize_filter: Literal["lanczos", "bicubic", "bilinear", "box"] | None = None,
    quality: int | None = None,
    subsampling: Literal["4:4:4", "4:2:2", "4:4:0", "4:2:0", "4:1:1"] | None = None,
    jpeg_baseline: bool = False,
    store: Literal["jpeg", "raw"] | None = None,
    # How the work is done.
    workers: int | None = None,
    memory: int | str | None = None,
    worker: tuple[int, int] | str | None = None,
    temp_dir: StrPath | None = None,
    restart: bool = False,
    progress: bool | Callable[[PackProgress], object] | None = None,
) -> PackResult:
    """Pack image files into shards with an index.

    This is ``shardify pack``; ``shardify pack --help`` and the README say what becomes of
    files, labels, splits and keys. Stop it at any time, and call it again to go on:
    finished shards are kept, and nobody takes ``destination`` for a data set before it is
    one. The result does not depend on ``workers`` or on interruptions, byte for byte.

    Parameters
    ----------
    source, destination
        Folders, tar shards, or ``s3://bucket/prefix``; several sources make one data set.
        With ``files_from`` or ``table``, ``source`` is the folder that their paths are
        relative to, or ``()`` for the default.
    layout, include, exclude, split
        How ``source`` is laid out (found out by default), patterns such as
        ``"**/*.jpg"`` of the files to take and to leave out, and the name of the split
        where there is none ("train").
    files_from, table
        A file with a list of files, or the paths themselves; a table (.csv, .tsv, .jsonl,
        .parquet) of paths, labels and further fields, with its columns
        ``path_column``, ``label_column``, ``split_column``, ``key_column``.
    classes
        The names of the classes in the order of their numbers, or a file of them; by
        default in the order of names, as torchvision's ImageFolder has it.
    name, format, level, template, order, seed
        The data set's name; "tar" (default), "tar.gz", "tar.zst", "tfrecord", …; the
        compressor's level; names of shards; order of samples ("shuffle") and its seed.
    shard_size, shard_samples, shards
        One of: bytes of a shard (``"256MiB"``), its samples, or shards of each split.
    check, on_bad
        How images are checked ("header"), and what becomes of bad files ("quarantine").
    jpeg_seek
        Note where JPEGs can be entered, so that crops of them are decoded faster: True
        for each row of blocks, or a number for every so many blocks, too.
    max_side, min_side, resize_filter, quality, subsampling, jpeg_baseline, store
        What images are converted to; by default they stay as they are, byte for byte.
    workers, memory, temp_dir
        Threads that read and convert, bytes of samples held at once, a temporary folder.
    worker
        ``(i, n)``: pack part i of n only, as one of n processes or machines that share
        source and destination. The last one writes the manifest.
    restart
        Drop an unfinished run in ``destination`` instead of going on with it.
    progress
        True shows a line on standard error, and None, the default, does where that is a
        terminal; a function is called with a :class:`PackProgress` about once a second,
        and ends the run if it raises an error.

    Returns
    -------
    PackResult
        Look at ``bad``: files that are no images, or end early, are left out and listed
        rather than an error.

    Raises
    ------
    ConfigError
        The options are wrong; the message names all faults. Nothing was done.
    PackError
        It could not be done; the message says why, and what to do.
    KeyboardInterrupt
        After Ctrl-C, when the shards in hand are finished; a second one does not wait for
        them. Call it again to go on.
    """
    arguments: list[str] = []

    def option(flag: str, value: object) -> None:
        if value is not None:
            arguments.append(f"--{flag}={value}")

    with ExitStack() as stack:
        stdin: bytes | None = None
        if files_from is not None and not isinstance(files_from, str | os.PathLike):
            stdin = b"".join(os.fsencode(file) + b"\0" for file in files_from)
            files_from = "-"
        if classes is not None and not isinstance(classes, str | os.PathLike):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardread-")))
            classes = _write_classes(classes, folder / "classes.txt")
        option("layout", layout)
        for pattern in include:
            option("include", pattern)
        for pattern in exclude:
            option("exclude", pattern)
        option("files-from", _path(files_from))
        option("table", _path(table))
        option("path-column", path_column)
        option("label-column", label_column)
        option("split-column", split_column)
        option("key-column", key_column)
        option("split", split)
        option("classes", _path(classes))
        option("name", name)
        option("format", format)
        option("level", level)
        option("shard-size", shard_size)
        option("shard-samples", shard_samples)
        option("shards", shards)
        option("template", template)
        option("order", order)
        option("seed", seed)
        option("check", check)
        option("on-bad", on_bad)
        if jpeg_seek is not False:
            option("jpeg-seek", "row" if jpeg_seek is True else jpeg_seek)
        option("max-side", max_side)
        option("min-side", min_side)
        option("resize-filter", resize_filter)
        option("quality", quality)
        option("subsampling", subsampling)
        if jpeg_baseline:
            arguments.append("--jpeg-baseline")
        option("store", store)
        option("workers", workers)
        option("memory", memory)
        option(
            "worker",
            worker if worker is None or isinstance(worker, str) else "/".join(map(str, worker)),
        )
        option("temp-dir", _path(temp_dir))
        if restart:
            arguments.append("--restart")
        sources = [source] if isinstance(source, str | os.PathLike) else source
        paths = [os.fspath(path) for path in [*sources, destination]]
        command = [_programs.find("shardify"), "pack", "--json", *arguments, "--", *paths]
        return _run(command, stdin, paths[-1], stack.enter_context(_Reporter(progress)))


def _path(path: Any) -> str | None:
    return None if path is None else os.fspath(path)


def _write_classes(classes: Iterable[str], file: Path) -> Path:
    names = list(classes)
    if wrong := [name for name in names if name != name.strip() or "\n" in name or not name]:
        raise ConfigError(f"class {wrong[0]!r}: want a name without space at its ends")
    file.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return file


class _Reporter:
    """Shows progress: in a line that moves, or to a function."""

    def __init__(self, progress: bool | Callable[[PackProgress], object] | None) -> None:
        if progress is None:
            progress = sys.stderr is not None and sys.stderr.isatty()
        self.call = progress if callable(progress) else None
        self.line = progress is True
        self.shown = 0

    def __enter__(self) -> Callable[[PackProgress], object]:
        return self.call or (self.show if self.line else lambda _: None)

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print(file=sys.stderr)

    def show(self, p: PackProgress) -> None:
        if p.phase == "pack":
            share = p.done_samples / max(1, p.samples)
            text = (
                f"{p.phase:8} {share:6.1%}  {p.done_samples:,} of {p.samples:,} samples, "
                f"{p.done_shards:,} of {p.shards:,} shards, {p.done_bytes / 1e6:,.0f} MB"
            )
        else:
            text = f"{p.phase:8} {p.files:,} files, {p.file_bytes / 1e6:,.0f} MB"
        print("\r" + text.ljust(self.shown), end="", file=sys.stderr, flush=True)
        self.shown = len(text)


def _run(
    command: list[str],
    stdin: bytes | None,
    url: str,
    report: Callable[[PackProgress], object],
) -> PackResult:
    """Run the program, and make of its events what pack returns or raises."""
    # In a process group of its own it gets no Ctrl-C of the terminal's, and so each of
    # them once.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    events = _Events(process.stdout)
    words: list[bytes] = []
    threads = [
        threading.Thread(target=events.read, daemon=True),
        threading.Thread(target=_drain, args=(process.stderr, words), daemon=True),
    ]
    if stdin is not None:
        threads.append(threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True))
    for thread in threads:
        thread.start()
    interrupts = 0
    try:
        while True:
            try:
                events.follow(report)
                code = process.wait()
                break
            except KeyboardInterrupt:
                # The first lets it finish the shards in hand, the second does not.
                interrupts += 1
                process.send_signal(signal.SIGINT if interrupts < 3 else signal.SIGKILL)
    finally:
        # Here with an error of the function that is told of progress.
        if process.poll() is None:
            process.terminate()
            process.wait()
        for thread in threads:
            thread.join()
    if interrupts:
        raise KeyboardInterrupt
    text = b"".join(words).decode(errors="replace").strip().removeprefix("shardify: ")
    if code == _EXIT_USAGE:
        raise ConfigError(text)
    last = events.last
    if code not in {0, _EXIT_LEFT_OUT} or last.get("event") not in {"done", "part"}:
        raise PackError(text or str(last.get("error") or f"shardify ended with code {code}"))
    return PackResult(
        url=url,
        finished=last["event"] == "done",
        already=last.get("already", False),
        splits={
            s["name"]: PackedSplit(s["samples"], s["shards"], s["bytes"])
            for s in last.get("splits") or ()
        },
        bad=last["bad"],
        bad_list=last.get("bad_list", ""),
        ignored=last.get("ignored", 0),
        seconds=last["seconds"],
        images=last.get("images") or {},
    )


class _Events:
    """What the program prints, a JSON object a line.

    A thread reads it, so that Ctrl-C, wherever it strikes, cannot lose a part of a line.
    """

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self.pipe = pipe
        self.last: dict[str, Any] = {}
        self.changed = threading.Condition()
        self.count = 0
        self.followed = 0
        self.ended = False

    def read(self) -> None:
        """Read all events."""
        try:
            with self.pipe:
                for line in self.pipe:
                    event = json.loads(line)
                    with self.changed:
                        self.last = event
                        self.count += 1
                        self.changed.notify()
        finally:
            with self.changed:
                self.ended = True
                self.changed.notify()

    def follow(self, report: Callable[[PackProgress], object]) -> None:
        """Report events until they end; may be called again after an exception."""
        names = PackProgress.__dataclass_fields__
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.count > self.followed or self.ended)
                event, ended = self.last, self.ended
                new, self.followed = self.count > self.followed, self.count
            if new and event["event"] in {"progress", "done"}:
                report(PackProgress(**{name: event.get(name, 0) for name in names}))
            if ended:
                return


def _drain(pipe: IO[bytes] | None, words: list[bytes]) -> None:
    assert pipe is not None
    with pipe:
        words.append(pipe.read())


def _feed(pipe: IO[bytes] | None, text: bytes) -> None:
    assert pipe is not None
    # Where it ends before, it says why.
    with suppress(BrokenPipeError), pipe:
        pipe.write(text)
