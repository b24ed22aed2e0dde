"""Batches that the server brings to a GPU: their bytes, their lifetimes, and whoever dies."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread import _client, _cuda, _outputs

from .conftest import Double, on_host

GIVEN: dict[str, Any] = {
    "split": "train",
    "batch_size": 16,
    "seed": 1,
    "memory": "256MiB",
    "transform": [shardread.RandomResizedCrop(48), shardread.RandomHorizontalFlip()],
}
NORMALIZED = [*GIVEN["transform"], shardread.Normalize(shardread.IMAGENET)]


def wait(condition: Callable[[], object]) -> None:
    """Wait until something is so, for a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come true within a minute"
        time.sleep(0.002)


def server_of(loader: shardread.Loader) -> int:
    """Return the number of the server's process."""
    reader = loader._reader
    assert reader is not None
    process = reader.connection._attached._process
    assert process is not None
    return int(process.pid)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"layout": "NHWC"},
        {"dtype": "float16", "transform": NORMALIZED},
        {"dtype": "bfloat16", "transform": NORMALIZED, "layout": "NHWC"},
        {"dtype": "float32"},
        {"dtype": "float32", "transform": NORMALIZED, "mixup": 0.2},
    ],
)
def test_batches_on_a_gpu_are_those_of_the_engine(shards: Path, config: dict[str, Any]) -> None:
    config = {**GIVEN, **config}
    bits = config.get("dtype") == "bfloat16"
    with shardread.Loader(shards, framework="numpy", **config) as loader:
        run = loader._open().start()
        want = []
        while (raw := run.next()) is not None:
            want.append({n: a.copy() for n, a in raw.tensors(bits=bits).items()})
            want[-1]["keys"] = raw.keys()
    with shardread.Loader(shards, framework="dlpack", device="cuda", **config) as loader:
        assert loader.config["dtype"] == config.get("dtype", "uint8")
        assert loader.config.get("layout", "NCHW") == config.get("layout", "NCHW")
        for epoch in range(2):
            loader.set_epoch(0)
            got = list(map(_copy, loader.batches()))
            (device,) = loader.stats()["devices"]
            assert device["device"] == "cuda:0"
            assert device["batches"] == 8 * (epoch + 1)
            assert device["bytes"] > 0
            assert device["copying_ns"] > 0
            assert len(got) == len(want)
            for a, b in zip(got, want, strict=True):
                assert a.keys() == b.keys()
                assert a["keys"] == b["keys"]
                for name in b.keys() - {"keys"}:
                    assert a[name].shape == b[name].shape
                    assert a[name].tobytes() == b[name].tobytes(), name


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"dtype": "bfloat16", "transform": NORMALIZED, "layout": "NHWC"},
        {
            "dtype": "float32",
            "transform": [
                shardread.Resize(64),
                shardread.CenterCrop(48),
                shardread.RandAugment(),
                shardread.Normalize(shardread.IMAGENET),
            ],
            "fields": ["cls"],
        },
        {
            "dtype": "float32",
            "transform": NORMALIZED,
            "mixup": 0.2,
            "cutmix": 1.0,
            "classes": 5,
        },
    ],
)
def test_transforms_on_a_gpu_make_the_same_bytes(shards: Path, config: dict[str, Any]) -> None:
    config = {**GIVEN, **config}

    def read(where: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        with shardread.Loader(
            shards, framework="dlpack", device="cuda", transform_on=where, **config
        ) as loader:
            made = []
            for epoch in range(2):
                loader.set_epoch(epoch)
                made += map(_copy, loader.batches())
            return made, {k: v for k, v in loader.config.items() if k != "memory"}

    got, shown = read("device")
    want, wanted = read("host")
    assert shown == wanted
    assert len(got) == len(want) == 16
    for a, b in zip(got, want, strict=True):
        assert list(a) == list(b)
        assert a["keys"] == b["keys"]
        for name in b.keys() - {"keys"}:
            assert a[name].shape == b[name].shape
            assert a[name].tobytes() == b[name].tobytes(), name


def test_transforms_that_a_gpu_refuses(shards: Path) -> None:
    late = [shardread.RandomResizedCrop(48), shardread.RandAugment(), shardread.CenterCrop(32)]
    mixed = {"transform": NORMALIZED, "dtype": "float32", "mixup": 0.2}
    for config, why in (
        ({"transform": late}, "transform 3: center_crop"),
        (mixed, "classes: soft labels"),
    ):
        with pytest.raises(shardread.ConfigError, match=why):
            shardread.Loader(
                shards,
                framework="dlpack",
                device="cuda:0",
                transform_on="device",
                **{**GIVEN, **config},
            )


def _copy(batch: shardread.Batch) -> dict[str, Any]:
    copied = {name: on_host(array) for name, array in batch.tensors.items()}
    assert all(array.__dlpack_device__() == (2, 0) for array in batch.tensors.values())
    copied["keys"] = batch.keys
    return copied


def test_held_batches_stay_in_whatever_order_they_go(shards: Path) -> None:
    with shardread.Loader(
        shards, framework="dlpack", device="cuda:0", prefetch=4, **GIVEN
    ) as loader:
        for order in itertools.permutations(range(3)):
            held = [(x, on_host(x)) for x, _ in itertools.islice(loader, 3)]
            for i in order:
                # It is noted as used by a stream, or not.
                capsule = held[i][0].__dlpack__(stream=1) if i else None
                del capsule
                held[i] = (None, None)  # type: ignore[call-overload]
                gc.collect()
                for array, was in held:
                    assert array is None or (on_host(array) == was).all()
        assert sum(1 for _ in loader) == 8


def test_held_batches_of_a_gpu_stay_when_all_is_closed(shards: Path) -> None:
    loader = shardread.Loader(shards, framework="dlpack", device="cuda:0", **GIVEN)
    images, labels = next(iter(loader))
    was = on_host(images), on_host(labels)
    loader.close()
    assert (on_host(images) == was[0]).all()
    assert (on_host(labels) == was[1]).all()


def test_holding_too_many_on_a_gpu_is_an_error_that_says_so(shards: Path) -> None:
    with shardread.Loader(
        shards, framework="dlpack", device="cuda:0", prefetch=1, **GIVEN
    ) as loader:
        held = []
        with pytest.raises(shardread.TooManyBatchesHeld, match="more prefetch="):
            held.extend(loader)
        assert len(held) == 2
        held.clear()
        assert sum(1 for _ in loader) == 8


def test_memory_waits_for_the_streams_that_use_it(
    shards: Path, double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_client, "GRACE_ALONE", 0.2)
    monkeypatch.setattr(_client, "GRACE_THREADS", 0.2)
    double.set("FAKE_CUDA_LATE_EVENTS", 1 << 30)  # the GPU has not come so far
    with shardread.Loader(
        shards, framework="dlpack", device="cuda:0", prefetch=2, **GIVEN
    ) as loader:
        seen: list[tuple[int, int, bytes]] = []
        done: list[BaseException | None] = []

        def train() -> None:
            try:
                for images, labels in loader:
                    at = images.pointer, images.nbytes
                    seen.append((*at, ctypes.string_at(*at)))
                    images.__dlpack__(stream=1)
                    labels.__dlpack__()
                    del images, labels
            except BaseException as error:
                done.append(error)
            done.append(None)

        thread = threading.Thread(target=train)
        thread.start()
        wait(lambda: len(seen) >= 3)
        time.sleep(1)  # it is no error to wait for the GPU
        assert not done
        assert len(seen) == 3
        assert len({at for at, _, _ in seen}) == 3
        # Dropped by Python, and untouched for the GPU.
        assert all(ctypes.string_at(at, n) == was for at, n, was in seen)
        double.set("FAKE_CUDA_LATE_EVENTS", 3)
        thread.join(60)
        assert done == [None]
        assert len(seen) == 8
        assert len({at for at, _, _ in seen}) == 3  # it is used again and again
        assert double.live(os.getpid())["mappings"] <= 4


def test_one_server_brings_batches_to_all_gpus(shards: Path) -> None:
    cards = ("cuda:0", "cuda:1") if "FAKE_CUDA_COUNTS" in os.environ else ("cuda:0", "cuda:0")
    loaders = [
        shardread.Loader(
            shards, framework="dlpack", device=card, dtype="float16", rank=rank, world=2, **GIVEN
        )
        for rank, card in enumerate(cards)
    ]
    with loaders[0], loaders[1]:
        assert server_of(loaders[0]) == server_of(loaders[1])
        keys: list[str] = []
        for both in zip(*(loader.batches() for loader in loaders), strict=True):
            for card, batch in zip(cards, both, strict=True):
                assert batch["image"].__dlpack_device__() == (2, int(card[-1]))
                assert np.isfinite(on_host(batch["image"])).all()
                keys += batch.keys
        assert len(keys) == len(set(keys)) == 120


def test_nothing_of_a_gpu_is_left(shards: Path, double: Double) -> None:
    gc.collect()
    before = double.live(os.getpid())
    for _ in range(3):
        loader = shardread.Loader(shards, framework="dlpack", device="cuda:1", **GIVEN)
        for images, labels in loader:
            images.__dlpack__()
            del images, labels
        server = server_of(loader)
        loader.close()
        del loader
        gc.collect()
        wait(lambda server=server: not double.live(server))
    after = double.live(os.getpid())
    assert after.get("mappings", 0) == before.get("mappings", 0)
    assert after.get("ranges", 0) == before.get("ranges", 0)
    assert after.get("handles", 0) == 0
    assert after["events"] <= 32  # which are kept, to be used again
    assert after["contexts"] <= 2


def test_a_server_that_is_killed_leaves_what_is_held(shards: Path) -> None:
    with shardread.Loader(shards, framework="dlpack", device="cuda:0", **GIVEN) as loader:
        it = iter(loader)
        images, _labels = next(it)
        was = on_host(images)
        os.kill(server_of(loader), signal.SIGKILL)
        with pytest.raises(shardread.ServerError, match=r"signal 9|SIGKILL|killed"):
            for _ in it:
                pass
        assert (on_host(images) == was).all()
        del images, _labels
        assert sum(1 for _ in loader) == 8  # by another server


def test_a_client_that_is_killed_leaves_nothing(
    shards: Path, tmp_path: Path, double: Double
) -> None:
    socket = tmp_path / "s"
    program = str(Path(os.environ["SHARDREAD_PROGRAMS"]) / "shardread")
    with subprocess.Popen([program, "serve", "--socket", str(socket)]) as server:
        wait(socket.exists)
        script = (
            "import shardread, sys\n"
            f"loader = shardread.Loader({str(shards)!r}, split='train', batch_size=16, "
            f"framework='dlpack', device='cuda:0', server={str(socket)!r}, "
            "transform=[shardread.RandomResizedCrop(48)], dtype='float16')\n"
            "held = next(iter(loader))\n"
            "held[0].__dlpack__(stream=1)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", script]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "held\n"
            live = double.live(server.pid)
            assert live["mappings"] > 0
            assert live["pinned"] > 0
            client.kill()
        wait(lambda: not double.live(server.pid))
        # It goes on.
        with shardread.Loader(
            shards, framework="dlpack", device="cuda:1", server=str(socket), **GIVEN
        ) as loader:
            assert sum(1 for _ in loader) == 8
        wait(lambda: not double.live(server.pid))
        server.terminate()


def test_the_capsule_is_what_dlpack_says(shards: Path) -> None:
    with shardread.Loader(
        shards, framework="dlpack", device="cuda:0", dtype="bfloat16", **GIVEN
    ) as loader:
        images, labels = next(iter(loader))
    get, name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for array, code, bits, itemsize in ((images, 4, 16, 2), (labels, 0, 64, 8)):
        for version in (None, (0, 8), (1, 1)):
            capsule = array.__dlpack__(stream=1, max_version=version, dl_device=(2, 0))
            if version == (1, 1):
                assert name(capsule) == b"dltensor_versioned"
                at = get(capsule, b"dltensor_versioned")
                assert at % 8 == 0
                # major, minor, manager_ctx, deleter, flags
                head = (ctypes.c_uint32 * 2).from_address(at)
                assert tuple(head) == (1, 0)
                assert ctypes.c_uint64.from_address(at + 24).value == 0
                tensor, deleter = at + 32, ctypes.c_void_p.from_address(at + 16).value
            else:
                assert name(capsule) == b"dltensor"
                tensor = get(capsule, b"dltensor")
                deleter = ctypes.c_void_p.from_address(tensor + 56).value
            assert ctypes.c_void_p.from_address(tensor).value == array.pointer
            assert tuple((ctypes.c_int32 * 3).from_address(tensor + 8)) == (2, 0, array.ndim)
            assert tuple((ctypes.c_uint8 * 2).from_address(tensor + 20)) == (code, bits)
            assert ctypes.c_uint16.from_address(tensor + 22).value == 1
            pointers = (ctypes.c_void_p * 2).from_address(tensor + 24)
            shape, strides = (
                tuple((ctypes.c_int64 * array.ndim).from_address(p)) if p else None
                for p in pointers
            )
            assert shape == array.shape
            dense = tuple(s // itemsize for s in np.empty(shape, f"V{itemsize}").strides)
            assert strides in {None, dense}
            assert ctypes.c_uint64.from_address(tensor + 40).value == 0
            references = _references(array)
            if version is not None:
                # A consumer takes it, and lets go of it in some thread.
                used = b"used_dltensor" if version[0] < 1 else b"used_dltensor_versioned"
                rename(capsule, used)
                struct = at if version == (1, 1) else tensor
                del capsule
                assert _references(array) == references
                call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter or 0)
                thread = threading.Thread(target=call, args=(struct,))
                thread.start()
                thread.join()
            else:
                del capsule  # nobody has taken it
            assert _references(array) == references - 1


def _references(array: shardread.DeviceArray) -> int:
    return sys.getrefcount(array._lease)


def test_an_error_on_its_way_survives_a_capsule_that_is_dropped(shards: Path) -> None:
    with shardread.Loader(shards, framework="dlpack", device="cuda:0", **GIVEN) as loader:
        images, _labels = next(iter(loader))

    def training() -> None:
        held = images.__dlpack__(stream=1)
        raise ArithmeticError(f"with {held} in hand")

    with pytest.raises(ArithmeticError, match="in hand"):
        training()


def test_an_array_keeps_its_batch_however_it_is_held(shards: Path) -> None:
    with shardread.Loader(
        shards, framework="dlpack", device="cuda:0", prefetch=1, **GIVEN
    ) as loader:
        it = iter(loader)
        images, labels = next(it)
        was = on_host(images)
        held: list[Any] = [images.__dlpack__(stream=1), labels]
        at = images.pointer, images.nbytes, images.dtype, images.shape
        del images, labels
        while held:
            for _ in range(2):
                next(it)
            same = shardread.DeviceArray.__new__(shardread.DeviceArray)
            same.pointer, _, same.dtype, same.shape = at
            if "FAKE_CUDA_COUNTS" in os.environ:
                assert (on_host(same) == was).all()
            held.pop()


def test_what_an_array_on_a_gpu_refuses(shards: Path) -> None:
    with shardread.Loader(
        shards, framework="dlpack", device="cuda:0", dtype="bfloat16", **GIVEN
    ) as loader:
        images, labels = next(iter(loader))
    assert repr(images) == "DeviceArray(bfloat16[16, 3, 48, 48], cuda:0)"
    assert (len(images), images.ndim, images.nbytes) == (16, 4, 16 * 3 * 48 * 48 * 2)
    for wrong in ({"dl_device": (1, 0)}, {"dl_device": (2, 1)}, {"copy": True}):
        with pytest.raises(BufferError):
            images.__dlpack__(**wrong)
    with pytest.raises(ValueError, match="stream 0"):
        images.__dlpack__(stream=0)
    # NumPy sees that it is not the host's.
    with pytest.raises((BufferError, RuntimeError), match=r"[Uu]nsupported device"):
        np.from_dlpack(labels)
    assert not hasattr(images, "__cuda_array_interface__")
    told = labels.__cuda_array_interface__
    assert told["shape"] == (16,)
    assert told["typestr"] == "<i8"
    assert told["data"] == (labels.pointer, False)
    assert told["version"] == 3


def test_gpus_that_are_not_there(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device, why in (("cuda:7", "there are"), ("tpu", "is no GPU"), ("cuda:x", "is no GPU")):
        with pytest.raises(shardread.ConfigError, match=why):
            shardread.Loader(shards, framework="dlpack", device=device, **GIVEN)
    with pytest.raises(shardread.ConfigError, match="another host"):
        shardread.Loader(shards, framework="dlpack", server="tcp://localhost:1", **GIVEN)
    if "FAKE_CUDA_COUNTS" not in os.environ:
        return
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "1")  # for the server, too
    double = ctypes.CDLL("libcuda.so.1")
    double.fake_set(b"FAKE_CUDA_DEVICES", 2)
    with pytest.raises(shardread.DeviceError, match=r"no GPU GPU-10111213-.* here"):
        shardread.Loader(shards, framework="dlpack", device="cuda:1", cpus=1, **GIVEN)


def test_a_fork_is_told_that_it_cannot(shards: Path) -> None:
    _cuda.card("cuda:0")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            shardread.Loader(shards, framework="dlpack", device="cuda:0", **GIVEN)
        except shardread.DeviceError as error:
            status = 0 if "spawn" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_torch_takes_what_the_server_has_brought(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "FAKE_CUDA_COUNTS" in os.environ:
        pytest.skip("SKIPPED LOUDLY: torch takes no double for a card; make test-gpu has one")
    import torch  # noqa: PLC0415 - it takes seconds

    config = {**GIVEN, "dtype": "bfloat16", "transform": NORMALIZED}
    seen = []
    for uploads in ("client", "server"):
        monkeypatch.setattr(_outputs, "UPLOADS", uploads)
        with shardread.Loader(shards, device="cuda", **config) as loader:
            total = torch.zeros((), device="cuda", dtype=torch.float64)
            batches = []
            for images, labels in loader:
                assert images.is_cuda
                total += (images.double() * labels[:, None, None, None]).sum()
                batches.append((images.clone(), labels.clone()))
            seen.append((total.item(), batches))
    assert seen[0][0] == seen[1][0]
    for a, b in zip(seen[0][1], seen[1][1], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
