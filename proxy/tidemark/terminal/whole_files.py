"""Writes files of the user's, so that nobody ever reads a half of one."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path


def write_whole(file: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file beside the old one, and replace it after the last piece.

    One that exists keeps its mode; a new one is its owner's only.

    :raises OSError: it cannot be written; the old one is as it was
    """
    part = file.with_name(f".{file.name[:100]}.{secrets.token_hex(4)}")
    try:
        part.touch(mode=0o600, exist_ok=False)
        with part.open("wb") as stream:
            stream.writelines(pieces)
        if file.exists():
            shutil.copymode(file, part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
