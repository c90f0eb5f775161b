"""Writes the daily tier. One JSONL file for each day and tenant in the data folder, a line for each flush.

It is a consumer of the flush queue. A line is on the disk before its entry counts as taken, and it is written once,
however often the entry comes. What a crash left of a line is cut off before the next line is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemark.core.bounded import BoundedCache
from tidemark.core.ports import FlushEntry
from tidemark.delivery.daily_lines import sealed_line
from tidemark.store.codec import Codec

MAX_CACHED_FILES = 64
"""Files whose keys are cached, so that they are not read again for each line."""
SUFFIX = ".jsonl"
_KEY = re.compile(rb'\{"key": ?"([0-9a-f]{32})"')
_TENANT = re.compile(r"[0-9a-f]{1,64}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl")


class DailyFiles:
    """Writes ``FOLDER/TENANT/YYYY-MM-DD.jsonl``. The mutable state is a cache of the files' keys.

    :param keep_days: files of earlier days are removed; None keeps them for good
    :param clock: Unix time in seconds
    :param codec: seals the lines, if it has a cipher
    """

    name = "daily"

    def __init__(
        self, folder: Path, *, keep_days: int | None, clock: Callable[[], float], codec: Codec | None = None
    ) -> None:
        self._folder = folder
        self._codec = codec or Codec()
        self._keep_days = keep_days
        self._clock = clock
        self._cached_keys: BoundedCache[Path, tuple[int, set[bytes]]] = BoundedCache(MAX_CACHED_FILES)
        self._last_rotation = ""
        self._writing = asyncio.Lock()

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Append the line of an entry, unless the file has it already.

        :raises OSError: the disk is full, or the folder cannot be written
        """
        del attempt
        async with self._writing:
            await asyncio.to_thread(self._write, entry)

    async def aclose(self) -> None:
        """Do nothing: no file stays open."""

    def forget(self, tenant: str, conversations: set[str]) -> int:
        """Remove the lines of conversations, and return how many they were.

        A file is replaced at once: a reader sees the old file or the new one.
        """
        marks = [f'"conversation": "{conversation}"'.encode() for conversation in conversations]
        removed = 0
        for path in sorted(self._folder_of(tenant).glob(f"*{SUFFIX}")):
            with _locked(path.parent):
                lines = path.read_bytes().splitlines(keepends=True)
                remaining = [
                    line for line in lines if not any(mark in line.partition(b'"summary"')[0] for mark in marks)
                ]
                if len(remaining) == len(lines):
                    continue
                removed += len(lines) - len(remaining)
                fresh = path.with_suffix(".new")
                _append(fresh, b"".join(remaining), 0)
                fresh.replace(path)
                _sync_folder(path.parent)
                self._cached_keys.pop(path, None)
        return removed

    def _folder_of(self, tenant: str) -> Path:
        # A tenant is hexadecimal; any other text must not become a path.
        return self._folder / (tenant if _TENANT.fullmatch(tenant) else "unknown")

    def _write(self, entry: FlushEntry) -> None:
        folder = self._folder_of(entry.tenant)
        if not folder.is_dir():
            # Each folder by itself, because ``parents`` are made without the mode.
            for level in (self._folder.parent, self._folder, folder):
                level.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_folder(folder.parent)
        path = folder / f"{_day(entry.at)}{SUFFIX}"
        with _locked(folder):
            size, keys = self._keys(path)
            if entry.key.encode() not in keys:
                line = sealed_line(self._codec, entry) + b"\n"
                is_new = not size
                _append(path, line, size)
                if is_new:
                    _sync_folder(folder)
                keys.add(entry.key.encode())
                self._cached_keys.put(path, (size + len(line), keys))
        self._rotate()

    def _keys(self, path: Path) -> tuple[int, set[bytes]]:
        """Return the size of a file up to its last complete line, and the keys of its lines."""
        actual = path.stat().st_size if path.exists() else 0
        size, keys = self._cached_keys.pop(path, (-1, set[bytes]()))
        if size == actual:
            return size, keys
        keys, size = set(), 0
        if actual:
            with path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        size += len(line)
                        if match := _KEY.match(line):
                            keys.add(match[1])
        return size, keys

    def _rotate(self) -> None:
        """Remove files that are too old, once a day."""
        today = _day(self._clock())
        if self._keep_days is None or today == self._last_rotation:
            return
        self._last_rotation = today
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
    """Write data after the last complete line, and to the disk; undo a write that fails.

    :param size: bytes up to the end of the last complete line
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.ftruncate(file, size)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], size + done)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    """Write a folder to the disk: only then a new file's name is there."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a tenant's files against other processes; the kernel unlocks them when a process ends, however it ends."""
    import fcntl  # noqa: PLC0415 - Windows has none

    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
