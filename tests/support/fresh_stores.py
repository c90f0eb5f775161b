"""Lends empty stores to tests: a server that a test gives back is emptied for the next one, which need not start one.

A start takes a fifth of a second, of which 25 ms are CPU. A test that reads a server's files, kills it, or gives it
options starts its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tidemark.store.embedded.server import EmbeddedValkey


@dataclass
class _Lent:
    """A server and its settings when it was new."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tidemark-store-")))
    settings: Any = None

    def __post_init__(self) -> None:
        self.server = EmbeddedValkey(self.folder / "store")

    def renew(self) -> bool:
        """Have the server run, without data; return whether it is as a new one."""
        if self.server.pid is None:  # new, or ended by a test
            self.server.start()
        with redis.Redis.from_url(self.server.url) as admin:
            settings = admin.config_get("*")
            self.settings = self.settings or settings
            admin.flushall()
            admin.script_flush()
            admin.config_resetstat()
        return bool(settings == self.settings)

    def end(self) -> None:
        """End the server, and delete its files."""
        self.server.stop()
        shutil.rmtree(self.folder)


_SPARE: list[_Lent] = []


@contextmanager
def fresh_store() -> Iterator[EmbeddedValkey]:
    """Lend a server without data, which the test may also stop."""
    lent = _SPARE.pop() if _SPARE else _Lent()
    if not lent.renew():  # a test has changed its settings
        lent.end()
        lent = _Lent()
        lent.renew()
    try:
        yield lent.server
    finally:
        _SPARE.append(lent)


def end_fresh_stores() -> None:
    """End all that were lent; called when a process has run its tests."""
    while _SPARE:
        _SPARE.pop().end()
