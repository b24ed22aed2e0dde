"""Servers: their beginning and end, with whoever uses them, and everything in between."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardread
from shardread import _client, _frames, _server

GIVEN: dict[str, Any] = {
    "split": "train",
    "batch_size": 16,
    "seed": 1,
    "framework": "numpy",
    "transform": [shardread.RandomResizedCrop(32), shardread.RandomHorizontalFlip()],
}

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def script(text: str, *args: object) -> subprocess.Popen[str]:
    """Run a script in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", "import sys, os, shardread\n" + text, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def pid_of(loader: shardread.Loader) -> int:
    process = loader._open().connection._attached._process
    assert process is not None
    return process.pid


def digest(loader: shardread.Loader) -> list[bytes]:
    return [images.tobytes() for images, _ in loader]


@linux
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)", "sys.exit(0)", "1 / 0"])
def test_a_server_ends_with_its_process_however_that_ends(
    end: str, shards: Path, until: Any
) -> None:
    text = f"""
loader = shardread.Loader(sys.argv[1], split="train", batch_size=8)
batches = iter(loader)
kept = next(batches)
print(loader._open().connection._attached._process.pid, flush=True)
sys.stdin.read()
{end}
"""
    with script(text, shards) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        assert alive(pid)
        _, stderr = trainer.communicate()
    assert ("ZeroDivisionError" in stderr) == ("1 / 0" in end)
    assert "shardread" not in stderr.replace("import sys, os, shardread", "") or "1 / 0" in end
    until(lambda: not alive(pid))


@linux
def test_a_server_that_is_killed_is_an_error_and_the_next_iteration_has_another(
    shards: Path, until: Any
) -> None:
    with shardread.Loader(shards, **GIVEN, prefetch=1) as loader:
        want = digest(loader)
        loader.set_epoch(0)
        batches = iter(loader)
        images, _ = next(batches)
        copy = images.copy()
        pid = pid_of(loader)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))  # what it has sent ahead is not all
        with pytest.raises(shardread.ServerError, match="ended by SIGKILL: the system may"):
            for _ in batches:
                pass
        assert (images == copy).all()
        del images, batches
        loader.set_epoch(0)
        assert digest(loader) == want


@linux
def test_a_server_that_is_told_to_end_says_so(shards: Path, until: Any) -> None:
    with shardread.Loader(shards, **GIVEN, prefetch=1) as loader:
        batches = iter(loader)
        next(batches)
        pid = pid_of(loader)
        os.kill(pid, signal.SIGTERM)
        until(lambda: not alive(pid))
        with pytest.raises(shardread.CanceledError, match="told to end"):
            for _ in batches:
                pass


def test_the_last_words_of_a_server_are_told(tmp_path: Path, monkeypatch: Any) -> None:
    program = tmp_path / "shardread"
    program.write_text("#!/bin/sh\necho one >&2\necho 'panic: oh no' >&2\necho two >&2\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("SHARDREAD_PROGRAMS", str(tmp_path))
    with pytest.raises(shardread.ServerError) as caught:
        shardread.Loader("x")
    assert str(caught.value) == (
        "the loader's server (shardread serve) ended with exit status 7\n  panic: oh no\n  two"
    )
    program.unlink()
    with pytest.raises(FileNotFoundError, match="comes with the wheel"):
        shardread.Loader("x")


@linux
def test_an_interrupt_at_the_keyboard_ends_the_loop_and_nothing_else(
    shards: Path, until: Any
) -> None:
    text = """
import signal, threading
from shardread import _client
loader = shardread.Loader(sys.argv[1], split="train", batch_size=16, framework="numpy", seed=1,
                          prefetch=1)
pid = loader._open().connection._attached._process.pid
want = [images.tobytes() for images, _ in loader]
# Again and again, also while the loop waits for a batch: the server is stopped then.
for k in range(20):
    loader.set_epoch(0)
    n = 0
    os.kill(pid, signal.SIGSTOP)
    try:
        threading.Timer(0.001 * k, os.kill, [os.getpid(), signal.SIGINT]).start()
        for images, _ in loader:
            n += 1
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass
    os.kill(pid, signal.SIGCONT)
loader.set_epoch(0)
assert [images.tobytes() for images, _ in loader] == want
assert loader._open().connection._attached._process.pid == pid
print("done", pid)
"""
    with script(text, shards) as trainer:
        stdout, stderr = trainer.communicate()
    assert stderr == ""
    assert stdout.startswith("done ")
    until(lambda: not alive(int(stdout.split()[1])))


@linux
def test_an_interrupt_ends_a_read_and_nothing_else(shards: Path, until: Any) -> None:
    """The samples that nobody waits for any more do no harm, also where they never come."""
    text = r"""
import http.server, re, signal, threading, time
flows, asked = threading.Event(), threading.Event()
class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        content = open(sys.argv[1] + self.path, "rb").read()
        if self.path.endswith(".tar"):
            asked.set()
            flows.wait()
        span = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(n or len(content) - 1) for n in span.groups()) if span else (0, None)
        part = content[first : None if last is None else last + 1]
        self.send_response(206 if span else 200)
        self.send_header("ETag", '"1"')
        if span:
            last = first + len(part) - 1
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        try:
            self.wfile.write(part)
        except OSError:
            pass  # nobody waits any more
web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
web.daemon_threads = True
threading.Thread(target=web.serve_forever, daemon=True).start()
def interrupted(data):
    asked.clear()
    def interrupt():
        asked.wait()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        data[0]
    except KeyboardInterrupt:
        return True
with shardread.open(sys.argv[1], split="train") as own:
    want = [own[i]["image"].tobytes() for i in range(3)]
data = shardread.open(f"http://127.0.0.1:{web.server_port}", split="train")
connection = data._family.reader().connection
pid = connection._attached._process.pid
assert interrupted(data)
assert len(data.table()) == 120  # the connection answers, though the read is still under way
flows.set()
assert [data[i]["image"].tobytes() for i in range(3)] == want
while connection._lent:
    time.sleep(0.01)
assert data._family.reader().connection is connection
# At any moment, also as the reply comes.
for k in range(30):
    try:
        threading.Timer(0.0005 * k, os.kill, [os.getpid(), signal.SIGINT]).start()
        while True:
            assert data[k % 3]["image"].tobytes() == want[k % 3]
    except KeyboardInterrupt:
        pass
assert data._family.reader().connection is connection
flows.clear()
assert interrupted(data)
begun = time.monotonic()
data.close()
print("done", pid, time.monotonic() - begun)
"""
    with script(text, shards) as reader:
        stdout, stderr = reader.communicate()
    assert stderr == ""
    _, pid, took = stdout.split()
    assert float(took) < 5
    until(lambda: not alive(int(pid)))


@linux
def test_a_fork_has_a_server_of_its_own(shards: Path) -> None:
    text = """
import warnings
from shardread import _client
warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12, that threads are none in a fork
loader = shardread.Loader(sys.argv[1], split="train", batch_size=16, framework="numpy", seed=1)
want = [images.tobytes() for images, _ in loader]
loader.set_epoch(0)
batches = iter(loader)
kept = [next(batches)]
child = os.fork()
if child == 0:
    try:
        next(batches)
    except shardread.ForkedError:
        kept.clear()  # which is no business of the parent's server
        loader.set_epoch(0)
        assert [images.tobytes() for images, _ in loader] == want
        loader.close()
        assert not _client._connections
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
got = [kept.pop()[0].tobytes()] + [images.tobytes() for images, _ in batches]
assert got == want
"""
    with script(text, shards) as parent:
        _, stderr = parent.communicate()
    assert (parent.returncode, stderr) == (0, "")


@linux
def test_a_server_ends_with_its_process_though_a_fork_lives_on(shards: Path, until: Any) -> None:
    text = """
import signal, warnings
warnings.simplefilter("ignore", DeprecationWarning)
loader = shardread.Loader(sys.argv[1], split="train", batch_size=16, framework="numpy")
batches = iter(loader)
next(batches)
child = os.fork()
if child == 0:
    signal.pause()
print(loader._open().connection._attached._process.pid, child, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
    with script(text, shards) as trainer:
        assert trainer.stdout is not None
        pid, child = map(int, trainer.stdout.readline().split())
        assert alive(pid)
        assert alive(child)
        try:
            trainer.kill()
            trainer.wait()
            until(lambda: not alive(pid))
        finally:
            os.kill(child, signal.SIGKILL)


def _in_child(loader: shardread.Loader, queue: Any) -> None:
    with loader:
        queue.put([images.sum() for images, _ in loader])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_multiprocessing(method: str, shards: Path) -> None:
    context = multiprocessing.get_context(method)
    with shardread.Loader(shards, **GIVEN) as loader:
        queue = context.SimpleQueue()
        text = pickle.dumps(loader)
        assert len(text) < 2000
        process = context.Process(target=_run_pickled, args=(text, queue))
        process.start()
        want = [images.sum() for images, _ in loader]
        assert queue.get() == want
        process.join()
        assert process.exitcode == 0


def _run_pickled(text: bytes, queue: Any) -> None:
    _in_child(pickle.loads(text), queue)


@linux
def test_processes_of_a_host_share_one_server(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(_server, "_IDLE", "1s")
    text = """
from shardread import _server
_server._IDLE = "1s"
rank, world = int(sys.argv[2]), int(sys.argv[3])
with shardread.Loader(sys.argv[1], split="train", batch_size=4, seed=1, framework="numpy",
                      rank=rank, world=world, server="host") as loader:
    keys = [key for batch in loader.batches() for key in batch.keys]
    connection = loader._open().connection
    connection.request("manifest", {"reader": loader._reader._number})
    print(*keys)
    print(os.getpid())
    sys.stdout.flush()
    sys.stdin.read()
"""
    ranks = [script(text, shards, rank, 3) for rank in range(3)]
    seen: list[str] = []
    for rank in ranks:
        assert rank.stdout is not None
        seen += rank.stdout.readline().split()
    servers = _servers_of(tmp_path)
    assert len(servers) == 1
    for rank in ranks:
        _, stderr = rank.communicate()
        assert stderr == ""
    assert len(seen) == len(set(seen)) == 120
    until(lambda: not any(map(alive, servers)))
    # It can be begun again.
    with shardread.Loader(shards, server="host", prefetch=1, **GIVEN) as loader:
        assert sum(1 for _ in loader) == len(loader)
        batches = iter(loader)
        next(batches)
        (pid,) = _servers_of(tmp_path)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(shardread.ServerError, match="the host's server at"):
            for _ in batches:
                pass
        assert sum(1 for _ in loader) == len(loader)
    servers = _servers_of(tmp_path)
    until(lambda: not any(map(alive, servers)))


def _servers_of(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in command and any(os.fsencode(folder) in part for part in command):
                found.append(int(entry.name))
    return [pid for pid in found if alive(pid)]


def test_a_folder_that_others_can_write_to_is_not_used(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"shardread-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"shardread-{os.getuid()}").chmod(0o777)
    with pytest.raises(shardread.ServerError, match="mode 0700"):
        shardread.Loader(shards, server="host", **GIVEN)


def _listening(process: subprocess.Popen[str], until: Any, path: Path) -> None:
    until(lambda: path.exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def test_a_server_at_a_socket(shards: Path, tmp_path: Path, programs: Path, until: Any) -> None:
    path = tmp_path / "s"
    with pytest.raises(shardread.ServerError, match=re.escape(f"serve --socket {path}")):
        shardread.Loader(shards, server=str(path), **GIVEN)
    command = [str(programs / "shardread"), "serve", "--socket", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            _listening(server, until, path)
            with (
                shardread.Loader(shards, server=str(path), **GIVEN) as loader,
                shardread.Loader(shards, **GIVEN) as own,
            ):
                assert digest(loader) == digest(own)
        finally:
            server.terminate()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that nobody has signed."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_elsewhere(
    tls: bool,
    shards: Path,
    programs: Path,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    until: Any,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("SHARDREAD_TOKEN", "0123456789abcdef")
    command = [str(programs / "shardread"), "serve", "--listen", f"127.0.0.1:{port}"]
    if tls:
        command += ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    url = f"{'tls' if tls else 'tcp'}://127.0.0.1:{port}"
    with pytest.raises(shardread.ServerError, match=re.escape(f"serve --listen :{port}")):
        shardread.Loader(shards, server=url, **GIVEN)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:

            def answers() -> bool:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except OSError:
                    return False
                return True

            until(answers)
            given = {**GIVEN, "tensors": [{"field": "cls", "name": "class"}], "fields": ["jpg"]}
            with (
                shardread.Loader(shards, server=url, **given, output="batch") as loader,
                shardread.Loader(shards, **given, output="batch") as own,
            ):
                loaded = list(loader)  # more at once than there is credit is no question here
                assert len(loaded) == len(own)
                for a, b in zip(loaded, own, strict=True):
                    assert a.keys == b.keys
                    assert a.fields == b.fields
                    for name in a.tensors:
                        np.testing.assert_array_equal(a[name], b[name])
                    del b
                del loaded, a
                assert digest_of(loader) == digest_of(own)
            with (
                shardread.open(shards, server=url, split="train") as data,
                shardread.open(shards, split="train") as near,
            ):
                np.testing.assert_array_equal(data[7]["image"], near[7]["image"])
                where = {"where": "width > height", "label": 2}
                assert data.table(**where).to_pylist() == near.table(**where).to_pylist()
            monkeypatch.setenv("SHARDREAD_TOKEN", "0123456789abcdeX")
            with pytest.raises(shardread.TokenError):
                shardread.Loader(shards, server=url, **GIVEN)
            monkeypatch.delenv("SHARDREAD_TOKEN")
            with pytest.raises(shardread.ConfigError, match="SHARDREAD_TOKEN"):
                shardread.Loader(shards, server=url, **GIVEN)
            if tls:
                monkeypatch.setenv("SHARDREAD_TOKEN", "0123456789abcdef")
                monkeypatch.delenv("SSL_CERT_FILE")
                with pytest.raises(shardread.ServerError, match="SSL_CERT_FILE"):
                    shardread.Loader(shards, server=url, **GIVEN)
        finally:
            server.terminate()


def digest_of(loader: shardread.Loader) -> list[bytes]:
    return [batch["image"].tobytes() for batch in loader.batches()]


class Rogue:
    """The server's side of a connection, that says what no server says."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair()
        self.connection = _client.Connection(_server.Attached(ours, "the rogue"), None)

    def say(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        socket.send_fds(self.sock, [_frames.frame(message)], fds or [])

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self.sock.recv(1 << 16)[16:])
        return heard


@pytest.fixture
def rogue() -> Any:
    rogue = Rogue()
    yield rogue
    rogue.sock.close()
    rogue.connection.leave()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no message of shardread's protocol"),
        (b"\x02\0\0\0\x01\0\0\0" + bytes(8) + b"{}", "no message of shardread's protocol"),
        (b"\x02\0\0\0\0\0\0\0\x01" + bytes(7) + b"{}", "no message of shardread's protocol"),
        (b"\xff\xff\xff\xff" + bytes(12), "no message of shardread's protocol"),
        (b"\x02\0\0\0" + bytes(12) + b"[]", "no JSON object"),
        (b"\x02\0\0\0" + bytes(12) + b"}{", "what is no message"),
        (b"\x02\0\0\0" + bytes(12) + b"{}", "an event that is not known"),
        (b"\x02\0\0\0" + bytes(12) + b"{", "in the middle of a message"),
        (b"", "it closed the connection"),
        (_frames.frame({"event": "slab", "slab": 1, "bytes": 4096}), "no file descriptor"),
        (_frames.frame({"event": "batch", "pass": 1, "slab": 9}), "what the protocol does not"),
        (_frames.frame({"event": "unslab"}), "what the protocol does not"),
    ],
)
def test_a_server_that_speaks_no_sense(data: bytes, message: str, rogue: Rogue) -> None:
    rogue.sock.sendall(data)
    rogue.sock.shutdown(socket.SHUT_WR)
    with pytest.raises(shardread.ServerError, match=message):
        rogue.connection.greet()
    assert not rogue.connection.alive


def test_another_version_of_the_protocol(rogue: Rogue) -> None:
    def answer() -> None:
        request = rogue.hear()
        rogue.say({"id": request["id"], "ok": {"protocol": 2, "server": "shardread 9.9.9"}})

    threading.Thread(target=answer).start()
    with pytest.raises(shardread.VersionError, match=r"shardread 9\.9\.9 speaks version 2"):
        rogue.connection.greet()


def test_memory_that_cannot_be_mapped(rogue: Rogue) -> None:
    with open(os.devnull) as file:
        rogue.say({"event": "slab", "slab": 1, "bytes": 1 << 20}, [file.fileno()])
    with pytest.raises(shardread.ServerMemoryError, match="cannot be mapped"):
        rogue.connection.greet()


def test_batches_that_lie_outside_of_their_memory(rogue: Rogue, tmp_path: Path) -> None:
    with open(tmp_path / "slab", "wb+") as file:
        file.truncate(4096)
        rogue.say({"event": "slab", "slab": 1, "bytes": 4096}, [file.fileno()])

    def answer() -> None:
        batch = {
            "number": 0, "epoch": 0, "len": 2, "slab": 1, "bytes": 4096, "fields_at": {},
            "tensors": [{"name": "image", "dtype": "uint8", "shape": [4000, 2], "at": 0}],
            "samples_at": 4088, "keys_at": 0, "state": None,
        }  # fmt: skip
        rogue.say({"id": rogue.hear()["id"], "ok": {"batch": batch}})

    threading.Thread(target=answer).start()
    raw = rogue.connection.request(
        "read", {}, lambda ok, payload: rogue.connection._batch(ok["batch"], payload, 0)
    )
    with pytest.raises((TypeError, ValueError), match="too small"):
        raw.tensors()
    with pytest.raises((TypeError, ValueError), match="too small"):
        raw.samples()
    assert raw.keys() == ["", ""]
    np.ndarray(2, np.int64, raw.lease)[:] = 4000, 100
    with pytest.raises(shardread.ServerError, match="larger than its memory"):
        raw.keys()


def cycles(n: int, shards: Path, *, whole: bool) -> tuple[int, int, int]:
    """Open, use and close n times; return what is there of descriptors, threads and memory."""
    given = {**GIVEN, "batch_size": 1, "sampling": shardread.Sampling(samples=4)}
    with shardread.Loader(shards, **GIVEN) if not whole else contextlib.nullcontext():
        for k in range(n):
            loader = shardread.Loader(shards, **given)
            batches = iter(loader)
            kept = next(batches)
            if k % 2:
                loader.close()
            del loader, batches, kept
        return (
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        )


@linux
@pytest.mark.parametrize(
    ("whole", "n"), [(False, 200), (True, int(os.environ.get("SHARDREAD_SOAK", "60")))]
)
def test_opening_and_closing_leaves_nothing(whole: bool, n: int, shards: Path, until: Any) -> None:
    """With a server for each of them, or one for all; `make soak-python` does it 10,000 times."""

    def children() -> set[int]:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return {pid for pid in map(int, text.split()) if alive(pid)}

    others = children()  # of multiprocessing
    fds, threads, memory = cycles(20, shards, whole=whole)
    after = cycles(n, shards, whole=whole)
    # What was left to the garbage collector ends in a thread of its own.
    until(lambda: len(os.listdir("/proc/self/fd")) <= fds)
    until(lambda: threading.active_count() <= threads)
    assert after[2] - memory < 20e6
    until(lambda: children() <= others)
