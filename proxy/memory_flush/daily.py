"""The daily tier: one JSONL file for each day and tenant in the data folder, a line for each flush.

A consumer of the flush queue. A line is on the disk before its entry counts as taken, and stands there once, however
often the entry comes; what a crash left of a line is cut off by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from proxy.core.ports import FlushEntry

MOST_KNOWN = 64
"""Files whose keys are remembered, so that they need not be read again for each line."""
SUFFIX = ".jsonl"
_KEY = re.compile(rb'\{"key": ?"([0-9a-f]{32})"')
_TENANT = re.compile(r"[0-9a-f]{1,64}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl")


class DailyFiles:
    """Writes ``FOLDER/TENANT/YYYY-MM-DD.jsonl``. The mutable state is what is known of the files' keys.

    :param keep_days: files of earlier days are removed; None keeps them for good
    :param clock: Unix time in seconds
    """

    name = "daily"

    def __init__(self, folder: Path, *, keep_days: int | None, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._keep_days = keep_days
        self._clock = clock
        self._known: OrderedDict[Path, tuple[int, set[bytes]]] = OrderedDict()
        self._rotated = ""
        self._one_at_a_time = asyncio.Lock()

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Append an entry's line, unless it stands there.

        :raises OSError: the disk is full, or the folder cannot be written
        """
        del attempt
        async with self._one_at_a_time:
            await asyncio.to_thread(self._write, entry)

    async def aclose(self) -> None:
        """Nothing is held open."""

    def forget(self, tenant: str, conversations: set[str]) -> int:
        """Remove the lines of these conversations; how many there were.

        A file takes the place of the one before it at once: a reader sees the one or the other.
        """
        marks = [f'"conversation": "{one}"'.encode() for one in conversations]
        removed = 0
        for path in sorted(self._of(tenant).glob(f"*{SUFFIX}")):
            with _held(path.parent):
                lines = path.read_bytes().splitlines(keepends=True)
                kept = [line for line in lines if not any(mark in line.partition(b'"summary"')[0] for mark in marks)]
                if len(kept) == len(lines):
                    continue
                removed += len(lines) - len(kept)
                fresh = path.with_suffix(".new")
                _append(fresh, b"".join(kept), 0)
                fresh.replace(path)
                _sync_folder(path.parent)
                self._known.pop(path, None)
        return removed

    def _of(self, tenant: str) -> Path:
        # A tenant is hex; whatever else stands there must not become a path.
        return self._folder / (tenant if _TENANT.fullmatch(tenant) else "unknown")

    def _write(self, entry: FlushEntry) -> None:
        folder = self._of(entry.tenant)
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_folder(folder.parent)
        path = folder / f"{_day(entry.at)}{SUFFIX}"
        with _held(folder):
            size, keys = self._keys(path)
            if entry.key.encode() not in keys:
                line = entry.body + b"\n"
                new = not size
                _append(path, line, size)
                if new:
                    _sync_folder(folder)
                keys.add(entry.key.encode())
                self._known[path] = (size + len(line), keys)
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
        self._rotate()

    def _keys(self, path: Path) -> tuple[int, set[bytes]]:
        """The size of a file up to the end of its last whole line, and the keys that stand in it."""
        actual = path.stat().st_size if path.exists() else 0
        size, keys = self._known.pop(path, (-1, set[bytes]()))
        if size == actual:
            return size, keys
        keys, size = set(), 0
        if actual:
            with path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        size += len(line)
                        if found := _KEY.match(line):
                            keys.add(found[1])
        return size, keys

    def _rotate(self) -> None:
        """Once a day, remove what is too old."""
        today = _day(self._clock())
        if self._keep_days is None or today == self._rotated:
            return
        self._rotated = today
        oldest = _day((datetime.fromtimestamp(self._clock(), UTC) - timedelta(days=self._keep_days)).timestamp())
        for path in self._folder.glob(f"*/*{SUFFIX}"):
            if _DAY.fullmatch(path.name) and path.stem < oldest:
                path.unlink(missing_ok=True)
        for folder in self._folder.glob("*/"):
            if not any(folder.glob(f"*{SUFFIX}")):
                with contextlib.suppress(OSError):
                    (folder / ".lock").unlink(missing_ok=True)
                    folder.rmdir()


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _append(path: Path, data: bytes, size: int) -> None:
    """Write at the end of the last whole line, and to the disk; what could not be written in full is taken back."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.ftruncate(file, size)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], size + written)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    """A file's name is on the disk only when its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """No two processes write a tenant's files at once; the kernel lets go when one ends, however it ends."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
