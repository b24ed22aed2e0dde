"""Servers: where they are, how they are started, and what they said before they ended."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from shardread import _programs
from shardread._frames import PROTOCOL
from shardread.errors import ConfigError, ServerError

if sys.platform != "win32":
    import fcntl

WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_log = logging.getLogger("shardread")

_PATIENCE = 30.0  # seconds for a connection over a network, and for a server to begin
_LEAVE = 5.0  # seconds that a server may take to end before it is told to, and made to
_IDLE = "30s"  # after which a host's server ends that nobody uses any more


@dataclass(frozen=True)
class Address:
    """Which server is meant.

    ``kind`` is "private", "host", "unix", "tcp" or "tls"; ``cpus`` and ``nice`` are for
    those that we start. A private one with a ``path`` listens there for this process's
    children, to which it is of the kind "unix".
    """

    kind: str
    path: str = ""
    host: str = ""
    port: int = 0
    cpus: int | None = None
    nice: int | None = None

    @property
    def remote(self) -> bool:
        """Whether it may be another machine, with other files."""
        return self.kind in {"tcp", "tls"}


def address(server: str | None, *, cpus: int | None = None, nice: int | None = None) -> Address:
    """Read what a user says of the server.

    Raises
    ------
    ConfigError
        It is no address, or the options are for a server that somebody else starts.
    """
    if server is None:
        return Address("private", cpus=cpus, nice=nice)
    if server == "host":
        return Address("host", path=_host_socket(), cpus=cpus, nice=nice)
    if cpus is not None or nice is not None:
        raise ConfigError(
            f"cpus and nice are for a server that the loader starts; {server!r} has its own, "
            "which `shardread serve` was given"
        )
    if not server.startswith(("tcp:", "tls:")):
        if "://" in server or not server:
            raise ConfigError(
                f'server: {server!r} is none of "host", the path of a socket, '
                '"tcp://HOST:PORT" and "tls://HOST:PORT"'
            )
        return Address("unix", path=os.path.abspath(os.path.expanduser(server)))
    parts = urlsplit(server)
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or port is None or parts.path or parts.query:
        raise ConfigError(f"server: {server!r}; want {parts.scheme}://HOST:PORT")
    return Address(parts.scheme, host=parts.hostname, port=port)


class Attached:
    """A socket that is connected with a server, and the server, if it is ours alone."""

    def __init__(
        self,
        sock: socket.socket,
        what: str,
        *,
        process: subprocess.Popen[bytes] | None = None,
        log: str = "",
        token: str = "",
    ) -> None:
        self.sock = sock
        self.token = token
        self._what = what
        self._process = process
        self._log = log
        self._lines: deque[str] = deque(maxlen=200)
        self._line = b""
        self.stderr: IO[bytes] | None = process.stderr if process is not None else None
        if self.stderr is not None:
            os.set_blocking(self.stderr.fileno(), False)

    def listen(self) -> bool:
        """Take what the server has written on standard error; False says it is the end."""
        if self.stderr is None:
            return False
        while True:
            try:
                data = os.read(self.stderr.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            *lines, self._line = (self._line + data).split(b"\n")
            if not data and self._line:
                lines, self._line = [self._line], b""
            for line in lines:
                self._lines.append(line.decode("utf-8", "replace"))
            if not data:
                return False

    def close(self) -> int | None:
        """Close the socket, with which a private server ends; return how it did."""
        with contextlib.suppress(OSError):
            self.sock.close()
        if self._process is None:
            return None
        for urge in (None, self._process.terminate, self._process.kill):
            if urge is not None:
                urge()
            end = time.monotonic() + _LEAVE
            while self.listen() and time.monotonic() < end:
                time.sleep(0.001)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.1, end - time.monotonic()))
                break
        if self.stderr is not None:
            self.stderr.close()
            self.stderr = None
        return self._process.returncode

    def why(self, error: str, status: int | None) -> str:
        """Say what became of the server: how it ended, and its last words."""
        if self._process is None:
            text = f"{self._what}: {error}"
            lines = _tail(self._log)
        else:
            text = f"{self._what} ended {_ending(status)}"
            lines = list(self._lines)
        for i, line in enumerate(lines):
            if line.startswith(("panic: ", "fatal error: ", "runtime: out of memory")):
                lines = lines[i : i + 20]
                break
        return "\n  ".join([text, *lines[-20:]])

    def abandon(self) -> None:
        """Close our ends, in a process that was forked: server and socket are its parent's."""
        self.sock.close()
        if self._process is not None:
            self._process.returncode = 0
        if self.stderr is not None:
            self.stderr.close()
            self.stderr = None


def _ending(status: int | None) -> str:
    if status is None or status >= 0:
        return f"with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    more = ": the system may have been short of memory" if name == "SIGKILL" else ""
    return f"by {name}{more}"


def attach(to: Address) -> Attached:
    """Connect with a server, and start it where it is ours.

    Raises
    ------
    ServerError
        It cannot be started or reached.
    """
    if to.remote:
        return _attach_tcp(to)
    if not hasattr(socket, "AF_UNIX") or not hasattr(socket, "SCM_RIGHTS"):
        raise ServerError(
            f"on {sys.platform}, memory cannot be shared with a server; it works on Linux and "
            "macOS, and with a server elsewhere: server='tcp://HOST:PORT'"
        )
    if to.kind == "private":
        return _start_private(to)
    try:
        return Attached(_connect(to.path), f"the server at {to.path}", log=_log_of(to))
    except OSError as error:
        if to.kind == "unix":
            raise ServerError(
                f"no server answers at {to.path}: {error}; start one with "
                f"`shardread serve --socket {to.path}`"
            ) from None
    return _start_shared(to)


def _command(to: Address, *args: str) -> list[str]:
    command = [_programs.find("shardread"), "serve", *args]
    if to.cpus is not None:
        command += ["--cpus", str(to.cpus)]
    if to.nice is not None:
        command += ["--nice", str(to.nice)]
    return command


def _start_private(to: Address) -> Attached:
    listen = ["--socket", to.path] if to.path else []
    if to.path:
        _wait_until_free(to.path)
    ours, theirs = socket.socketpair()
    try:
        # In a session of its own, as an interrupt at the keyboard is meant for us.
        process = subprocess.Popen(
            _command(to, "--fd", str(theirs.fileno()), *listen),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Attached(ours, "the loader's server (shardread serve)", process=process)


def _wait_until_free(path: str) -> None:
    """Wait for this process's last server to end, which listens there until it has."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            _connect(path).close()
        except OSError:
            return
        time.sleep(0.002)


def _connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


# Servers of the host that this process has started: they live on, and may end before it.
_started: list[subprocess.Popen[bytes]] = []


def _start_shared(to: Address) -> Attached:
    """Start the host's server, unless another process is faster."""
    what = f"the host's server at {to.path}"
    with _locked(to.path + ".lock"):
        try:
            return Attached(_connect(to.path), what, log=_log_of(to))
        except OSError:
            pass
        _started[:] = [p for p in _started if p.poll() is None]
        with open(_log_of(to), "wb") as log:
            process = subprocess.Popen(
                _command(to, "--socket", to.path, "--exit-when-idle", _IDLE),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        _started.append(process)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return Attached(_connect(to.path), what, log=_log_of(to))
            except OSError as error:
                if (status := process.poll()) is not None:
                    text = f"{what} ended {_ending(status)}"
                    raise ServerError("\n  ".join([text, *_tail(_log_of(to))])) from None
                if time.monotonic() > end:
                    raise ServerError(f"{what} does not answer: {error}") from None
            time.sleep(0.005)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _log_of(to: Address) -> str:
    return to.path + ".log" if to.kind == "host" else ""


def _tail(log: str) -> list[str]:
    if not log:
        return []
    try:
        text = Path(log).read_bytes()[-(1 << 16) :]
    except OSError:
        return []
    return text.decode("utf-8", "replace").splitlines()[-200:]


# What tells the processes of one job from those of another on the same host, by who
# started them.
_JOBS = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
    ("PMI_JOBID",),
    ("MASTER_ADDR", "MASTER_PORT"),
)


def _host_socket() -> str:
    """Return the path of the socket of this job's server on this host."""
    job = ""
    for names in _JOBS:
        if names[0] in os.environ:
            job = "/".join(f"{name}={os.environ.get(name, '')}" for name in names)
            break
    name = hashlib.sha256(job.encode()).hexdigest()[:16] if job else "default"
    return str(_folder() / f"{name}-{PROTOCOL}")


def family(to: Address) -> Address:
    """Return a private server's address, as one that listens for this process's children."""
    if to.kind != "private":
        return to
    pid = os.getpid()
    if pid not in _family_sockets:
        _family_sockets.clear()
        _family_sockets[pid] = str(_folder() / f"{pid}-{secrets.token_hex(4)}-{PROTOCOL}")
    return replace(to, path=_family_sockets[pid])


# By the process, since a fork has its parent's.
_family_sockets: dict[int, str] = {}


def _folder() -> Path:
    """Return the folder of our sockets, which nobody else may enter."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder /= f"shardread-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ServerError(
            f"{folder} must be a folder that belongs to you, with mode 0700: remove it, or set "
            "XDG_RUNTIME_DIR"
        )
    return folder


def _attach_tcp(to: Address) -> Attached:
    what = f"the server at {to.host}:{to.port}"
    token = os.environ.get("SHARDREAD_TOKEN", "")
    if not token:
        raise ConfigError(f"{what} wants a token: set SHARDREAD_TOKEN to the one it was given")
    try:
        sock = socket.create_connection((to.host, to.port), timeout=_PATIENCE)
    except OSError as error:
        raise ServerError(
            f"{what} cannot be reached: {error}; is `shardread serve --listen :{to.port}` running?"
        ) from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if to.kind == "tls":
            context = ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=to.host)
    except OSError as error:
        sock.close()
        raise ServerError(
            f"{what}: {error}; SSL_CERT_FILE names the certificates that are trusted"
        ) from None
    return Attached(sock, what, token=token)
