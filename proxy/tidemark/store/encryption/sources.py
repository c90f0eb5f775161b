"""Keeps the wrapped keys of the tenants apart from the store.

They are in a folder, or on a server of their own.

A backup of the store must not hold them: whoever has the backup, a wrapped key and the master key could read a tenant
that was erased since (docs/adr/0041). The calls block, since sealing needs a key at once; ``keyring.py`` caches.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tidemark.core.errors import EncryptionKeyLost

FOLDER = "keys"
"""The folder of the keys inside the data folder."""
SERVER_SECONDS = 0.5
"""The longest that a server of keys may take: requests wait for it."""
REST_SECONDS = 1.0
"""How long a server that did not answer is not asked again."""
_AWAY = "The server of keys does not answer. Check encryption.keys_url, and whether that server runs."
_CHANGED, _LOCK, _ASIDE = "changed", ".lock", ".new-"
LEFT_SECONDS = 60.0
"""After so long a file that is being written is one that a crash left."""
_NAME = re.compile(r"([0-9a-f]{32})\.json")


class KeySource(Protocol):
    """The wrapped keys of all tenants, by scope: 32 hex characters. All raise ``EncryptionKeyLost`` if it fails."""

    def read(self, scope: str) -> bytes | None:
        """Return a tenant's record; None if it has none, or was erased."""
        ...

    def create(self, scope: str, record: bytes) -> bytes:
        """Store a first record, unless another process was faster; return the one that stands."""
        ...

    def replace(self, scope: str, record: bytes, before: bytes) -> bool:
        """Replace a record that is still ``before``; return whether it was."""
        ...

    def erase(self, scope: str) -> bool:
        """Delete a record for good, and return whether there was one."""
        ...

    def scopes(self) -> Iterator[str]:
        """Yield the scopes of all records."""
        ...

    def version(self) -> str:
        """Return a text that is new after every change of a record."""
        ...


class FolderKeys:
    """A folder with a file for each tenant. Processes of one machine share it; its state is the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, scope: str) -> bytes | None:
        try:
            return self._path(scope).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from error

    def create(self, scope: str, record: bytes) -> bytes:
        path = self._path(scope)
        try:
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            name = self._write_aside(record)
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(name, path)
            finally:
                name.unlink()
            _sync(self.folder)
            return path.read_bytes()
        except OSError as error:
            raise self._failed(error) from error

    def replace(self, scope: str, record: bytes, before: bytes) -> bool:
        try:
            with self._locked():
                if self.read(scope) != before:
                    return False
                self._write_aside(record).replace(self._path(scope))
                self._note_change()
        except OSError as error:
            raise self._failed(error) from error
        return True

    def erase(self, scope: str) -> bool:
        """Overwrite the file before its name goes: a disk may keep the blocks of a deleted file.

        What a crash left of a record that was being written may have the same key, so it goes, too.
        """
        path = self._path(scope)
        try:
            with self._locked():
                for unfinished in self.folder.glob(f"{_ASIDE}*"):
                    if time.time() - unfinished.stat().st_mtime > LEFT_SECONDS:
                        _overwrite(unfinished)
                if not path.exists():
                    return False
                _overwrite(path)
                self._note_change()
        except OSError as error:
            raise self._failed(error) from error
        return True

    def scopes(self) -> Iterator[str]:
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:  # the data folder may be another user's
            raise self._failed(error) from error
        for name in names:
            if match := _NAME.fullmatch(name):
                yield match[1]

    def version(self) -> str:
        try:
            return (self.folder / _CHANGED).read_text()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._failed(error) from error

    def _path(self, scope: str) -> Path:
        return self.folder / f"{scope}.json"

    def _write_aside(self, content: bytes) -> Path:
        """Return a new file with the content, on the disk; only its owner may read it."""
        number, name = tempfile.mkstemp(prefix=_ASIDE, dir=self.folder)
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return Path(name)

    def _note_change(self) -> None:
        self._write_aside(uuid.uuid4().hex.encode()).replace(self.folder / _CHANGED)
        _sync(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl  # noqa: PLC0415 - Windows has none

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _failed(self, error: OSError) -> EncryptionKeyLost:
        return EncryptionKeyLost(
            f"The folder of keys {self.folder} cannot be used: {error.strerror}. Let the user of Tidemark write to it.",
            internal=repr(error),
        )


_REPLACE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2]) redis.call('SET', KEYS[2], ARGV[3]) return 1
"""
_ERASE = "redis.call('SET', KEYS[2], ARGV[1]) return redis.call('DEL', KEYS[1])"


class ServerKeys:
    """A Redis or Valkey that has nothing but keys, for several machines. Nobody should back it up beside the store.

    Mutable: until when it is not asked, because it did not answer.

    :param client: a client of redis-py that blocks
    :param failures: what it raises
    """

    def __init__(self, client: Any, failures: tuple[type[Exception], ...]) -> None:
        self._client = client
        self._failures = failures
        self._rests_until = -math.inf

    def read(self, scope: str) -> bytes | None:
        stored: bytes | None = self._call("GET", _key(scope))
        return stored

    def create(self, scope: str, record: bytes) -> bytes:
        self._call("SET", _key(scope), record, "NX")
        return self.read(scope) or record

    def replace(self, scope: str, record: bytes, before: bytes) -> bool:
        return bool(self._call("EVAL", _REPLACE, 2, _key(scope), _key(_CHANGED), before, record, uuid.uuid4().hex))

    def erase(self, scope: str) -> bool:
        erased = bool(self._call("EVAL", _ERASE, 2, _key(scope), _key(_CHANGED), uuid.uuid4().hex))
        with contextlib.suppress(EncryptionKeyLost):  # it has no append-only file, or rewrites it already
            self._call("BGREWRITEAOF")
        return erased

    def scopes(self) -> Iterator[str]:
        cursor = "0"
        while True:
            cursor, names = self._call("SCAN", cursor, "MATCH", _key("*"), "COUNT", 500)
            for name in names:
                scope = name.decode().removeprefix(_key(""))
                if _NAME.fullmatch(f"{scope}.json"):
                    yield scope
            cursor = str(int(cursor))
            if cursor == "0":
                return

    def version(self) -> str:
        stored: bytes | None = self._call("GET", _key(_CHANGED))
        return (stored or b"").decode()

    def _call(self, *command: str | bytes | int) -> Any:
        if time.monotonic() < self._rests_until:
            raise EncryptionKeyLost(_AWAY, internal="the server of keys did not answer a moment ago")
        try:
            return self._client.execute_command(*command)
        except self._failures as error:
            if command[0] != "BGREWRITEAOF":
                self._rests_until = time.monotonic() + REST_SECONDS
            raise EncryptionKeyLost(_AWAY, internal=f"the server of keys: {error!r}") from error


def _key(name: str) -> str:
    return f"tidemark-keys:{{keys}}:{name}"


def _overwrite(path: Path) -> None:
    """Delete a file, its bytes first."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(file, os.urandom(os.fstat(file).st_size), 0)
        os.fsync(file)
    finally:
        os.close(file)
    path.unlink()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
