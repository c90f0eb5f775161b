"""The run file says in the data folder where a running ``tidemark serve`` listens.

``tidemark wrap`` and ``tidemark top`` read it.
``serve`` writes it once it listens, and removes it at its end. After a crash it may name a server that is gone, so
readers ask that address first.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tidemark.core.frozen import frozen

NAME = "serve.json"


@frozen
class RunningServer:
    """A server of this machine."""

    url: str
    """Without a path: ``http://127.0.0.1:8787``."""
    pid: int


@contextlib.contextmanager
def announced(folder: Path, url: str) -> Iterator[None]:
    """Name this process's server in the run file while the block runs; one that cannot be written is left out."""
    path = folder / NAME
    own = RunningServer(url, os.getpid())
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_suffix(f".{own.pid}")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(own)), encoding="utf-8")
        fresh.replace(path)
    try:
        yield
    finally:
        if read(folder) == own:
            with contextlib.suppress(OSError):
                path.unlink()


def read(folder: Path) -> RunningServer | None:
    """Return the server that the run file names; None without a file that can be read."""
    try:
        fields = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return RunningServer(str(fields["url"]), int(fields["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
