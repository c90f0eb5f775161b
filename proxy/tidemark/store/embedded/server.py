"""Runs a real Valkey as a child process, for ``store.url: embedded``.

The command starts it before the workers and ends it after them. Its ``url`` is used like that of any other Redis. The
wheel's own server class is not used: it does not lock the folder, ends at a Ctrl-C, and ends the server by SIGKILL at
exit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tidemark.core.errors import ConfigError, StoreDamaged, StoreInUse, StoreUnavailable
from tidemark.store.embedded.append_only import FileExamination, examine, examine_names, mend
from tidemark.store.embedded.program import server_program
from tidemark.store.embedded.whole_commands import Arities, read_arities

START_SECONDS = 10.0
"""The longest time until the server answers, unless it answers that it reads its data."""
LOADING_SECONDS = 600.0
"""The longest time to read its data. It reads about 100 MB in a second, so this is a very large folder."""
STOP_SECONDS = 10.0
"""The longest time to write its data and end; then it is killed."""
_SOCKET_BYTES = 100
"""Longest path of a socket: ``sun_path`` has 108 bytes on Linux, 104 on macOS (unix(7))."""
_LOG_BYTES = 1_000_000
"""A longer log is overwritten at the next start."""
_LOG_LINES = 12
_POLL_SECONDS = 0.01


def memory_options(max_mb: int | None) -> Sequence[str]:
    """Return the options of a server that refuses to write beyond a bound (``store.max_mb``); none without one."""
    return () if max_mb is None else ("--maxmemory", f"{max_mb}mb", "--maxmemory-policy", "noeviction")


class EmbeddedValkey:
    """A Valkey server on a unix socket, with its data in ``folder``, append-only, flushed every second.

    Start it in a thread that lives as long as the server should: Linux ends the child with that thread.

    :param folder: made if it does not exist, like the one around it; only its owner may read it
    :param options: further options of ``valkey-server``: ``("--maxmemory", "1gb")``
    :param tell: takes what a mend of damaged files set aside; None mends nothing, and refuses to start with them
    """

    def __init__(self, folder: Path, *, options: Sequence[str] = (), tell: Callable[[str], None] | None = None) -> None:
        self._folder = folder.absolute()
        self._options = options
        self._tell = tell
        self._socket = self._folder / "valkey.sock"
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"EmbeddedValkey({self._folder})"

    @property
    def url(self) -> str:
        """The address for ``RedisStore``, the same after every start on one folder."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Start the server and wait until it answers.

        :raises StoreInUse: another process runs on the same folder
        :raises StoreDamaged: files are damaged, and nothing is to be mended
        :raises StoreUnavailable: the server did not start; the message ends with the last lines of its log
        :raises ConfigError: the folder cannot be used, or there is no program to start
        """
        self.claim()
        try:
            self.bring_up()
        except BaseException:  # interrupted, too: the server must not outlive this process
            self.stop()
            raise
        return self

    def claim(self) -> None:
        """Make and lock the folder, and end a server that was left behind on it.

        :raises StoreInUse, ConfigError: as ``start``
        """
        server_program()  # without one no folder is made
        try:
            for folder in (self._folder.parent, self._folder):  # one by one: mkdir gives parents no mode
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            self._socket = _socket_path(self._folder)
            self._lock = _lock(self._folder)
        except OSError as error:
            raise ConfigError(
                f"The data folder {self._folder} cannot be used: {error.strerror}. Name another by TIDEMARK_DATA_DIR."
            ) from error
        try:
            _end_stale(self._socket)
        except BaseException:  # interrupted, too: the folder must not stay locked
            self.stop()
            raise

    def bring_up(self, lock: AbstractContextManager[object] | None = None) -> None:
        """Start the process on the claimed folder and wait until it answers; mend its files if they are damaged.

        :param lock: locked while the process is started or the files are changed
        :raises StoreDamaged, StoreUnavailable: as ``start``
        """
        lock = lock or nullcontext()
        with lock:
            if self._lock is None:  # stopped meanwhile
                return
            self._mend(partial(examine_names, self._folder))
            self.launch()
        try:
            self.wait_for_answer()
        except StoreUnavailable:
            with lock:
                look = partial(examine, self._folder, server_program(), _ask_arities)
                if not self._has_ended() or not self._mend(look):
                    raise  # it hangs, or was stopped meanwhile, or its files are not the cause
                self.launch()
            self.wait_for_answer()

    def _has_ended(self) -> bool:
        """Return whether the process ended by itself, so that its folder is still this object's."""
        return self._lock is not None and self._process is not None and self._process.poll() is not None

    def _mend(self, examine_files: Callable[[], FileExamination]) -> bool:
        """Mend what an examination finds; returns whether it found anything.

        :raises StoreDamaged, StoreUnavailable: as ``start``
        """
        try:
            examination = examine_files()
        except OSError as error:
            raise StoreUnavailable(
                f"The files of the embedded store in {self._folder} cannot be read: {error.strerror}."
            ) from error
        if not examination.damages:
            return False
        damages = "; ".join(examination.damages)
        if self._tell is None:
            raise StoreDamaged(
                f"The embedded store in {self._folder} is damaged: {damages}. tidemark serve and tidemark store check "
                "--repair load what is whole, and set the damaged files aside."
            )
        try:
            aside = mend(self._folder, examination)
        except OSError as error:
            raise StoreUnavailable(
                f"The embedded store in {self._folder} is damaged and cannot be mended: {error.strerror}. {damages}."
            ) from error
        self._tell(
            f"The embedded store was damaged: {damages}. What is whole was loaded; the files as they were are kept in "
            f"{aside}. Put a backup back, or delete that folder once nothing is missed."
        )
        return True

    def stop(self) -> None:
        """End the server after it has written its data, and unlock the folder. May be called more than once."""
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._lock is not None:
            self._socket.unlink(missing_ok=True)
            if self._socket.parent != self._folder:
                with contextlib.suppress(OSError):
                    self._socket.parent.rmdir()
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self._folder / "valkey.log"

    def wait(self) -> int:
        """Wait until the server ends, and return its exit code. Another thread may stop the server meanwhile."""
        process = self._process
        return process.wait() if process else 0

    def launch(self) -> None:
        """Start the process on the locked folder."""
        starter = [sys.executable, "-I", "-S", str(Path(__file__).with_name("die_with_parent.py")), str(os.getpid())]
        is_long = self._log.exists() and self._log.stat().st_size > _LOG_BYTES
        for path in self._folder.rglob("*"):  # an earlier version wrote them for everybody
            if not path.is_symlink() and (path.is_file() or path.is_dir()):
                path.chmod(0o700 if path.is_dir() else 0o600)
        with open(self._log, "wb" if is_long else "ab", opener=_for_owner) as output:
            self._process = subprocess.Popen(
                [*starter, str(server_program()), *self._settings()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                umask=0o077,
                start_new_session=True,  # a terminal's Ctrl-C is for the proxy, which then ends it in order
            )

    def _settings(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "no",  # one damaged length in the middle reads as an end, and all after it would go
            "save": "",
        }
        arguments = [argument for name, value in settings.items() for argument in (f"--{name}", value)]
        return [*arguments, *self._options]

    def wait_for_answer(self) -> None:
        """Wait until the server has read its data.

        :raises StoreUnavailable: it ended, or takes too long; the message ends with the last lines of its log
        """
        process = self._process
        started = time.monotonic()
        limit = START_SECONDS
        while process:
            answer = _ask(self._socket, b"PING")
            if answer.startswith(b"+PONG"):
                return
            if answer.startswith(b"-LOADING"):
                limit = LOADING_SECONDS
            if process.poll() is not None:
                raise StoreUnavailable(self._report(f"it ended with exit code {process.returncode}"))
            if time.monotonic() - started > limit:
                raise StoreUnavailable(self._report(f"it did not answer within {limit:.0f} s"))
            time.sleep(_POLL_SECONDS)

    def arities(self) -> Arities:
        """Return the commands of the running server.

        :raises StoreUnavailable: it does not answer
        """
        answer, end = b"", b"+PONG\r\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(START_SECONDS)
            try:
                client.connect(str(self._socket))
                client.sendall(b"COMMAND\r\nPING\r\n")
                while not answer.endswith(end) and (piece := client.recv(65_536)):
                    answer += piece
            except OSError as error:
                raise StoreUnavailable(f"The embedded store's server does not name its commands: {error}.") from error
        return read_arities(answer)

    def _report(self, what: str) -> str:
        return self.message_with_log(what, "did not start")

    def message_with_log(self, what: str, happened: str = "ended") -> str:
        """Return a message on the server's end, with the last lines of its log."""
        lines = self._log.read_text("utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"The embedded store {happened}: {what}. The last lines of its log:", *lines])


def running_url(folder: Path) -> str | None:
    """Return the address of the server that runs on a folder; None if none answers."""
    if not hasattr(os, "getuid"):  # on Windows, which embeds none
        return None
    path = _socket_path(folder.absolute())
    return f"unix://{quote(str(path))}" if _ask(path, b"PING").startswith(b"+PONG") else None


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(folder: Path) -> int:
    """Lock the folder for this process; the kernel unlocks it when the process ends, however it ends."""
    import fcntl  # noqa: PLC0415 - Windows has none

    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(lock, 20).decode() or "unknown"
        os.close(lock)
        raise StoreInUse(
            f"The data folder {folder} is in use by process {holder}. "
            "Stop it, or name another folder by TIDEMARK_DATA_DIR."
        ) from error
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def _socket_path(folder: Path) -> Path:
    """Return the socket's path: in the folder, or, if that is too long, in a private one named after it."""
    path = folder / "valkey.sock"
    if len(os.fsencode(path)) <= _SOCKET_BYTES:
        return path
    name = f"tidemark-{os.getuid()}-{hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()}"
    short = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(short / path.name)) > _SOCKET_BYTES:
        short = Path("/tmp") / name  # noqa: S108 - private by its mode and owner, which are checked below
    short.mkdir(mode=0o700, exist_ok=True)
    status = short.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o777 != 0o700:  # another user made it before
        raise PermissionError(0, f"{short} belongs to another user")
    return short / "valkey.sock"


def _end_stale(path: Path) -> None:
    """End a server that a killed parent left behind. This process has the folder's lock, so no other uses it."""
    holder = _holder(path)
    deadline = time.monotonic() + STOP_SECONDS
    while holder is not None:
        _ask(path, b"SHUTDOWN")
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        holder = _holder(path)
    path.unlink(missing_ok=True)


def _holder(path: Path) -> int | None:
    """Return the process that listens on a socket; None if no process does."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
            if sys.platform == "linux":  # struct ucred, unix(7)
                pid: int = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            else:  # LOCAL_PEERPID of SOL_LOCAL, sys/un.h
                pid = struct.unpack("i", client.getsockopt(0, 0x002, 4))[0]
        except OSError:
            return None
    return pid


def _ask(path: Path, command: bytes) -> bytes:
    """Return a server's answer to an inline command; empty if there is none."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
            client.sendall(command + b"\r\n")
            return client.recv(256)
        except OSError:
            return b""


def _ask_arities() -> Arities:
    """Ask a server without data for its commands.

    :raises StoreUnavailable: it does not start, or does not answer
    """
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-") as folder,
        EmbeddedValkey(Path(folder), options=("--appendonly", "no")) as server,
    ):
        return server.arities()


def url_of(folder: Path) -> str:
    """Return the address of a data folder's server, for another process than the one that started it.

    :raises ConfigError: the folder belongs to another user
    """
    try:
        return f"unix://{quote(str(_socket_path(folder.absolute())))}"
    except OSError as error:
        raise ConfigError(f"The data folder {folder} cannot be used: {error.strerror}.") from error
