"""Reads the master keys, which wrap the keys of the tenants. Nothing else is sealed with them.

``worker/stored.py`` calls it with the text of ``TIDEMARK_ENCRYPTION_KEY``, of a file, or of a command's output.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tidemark.codings.sealing import KEY_BYTES, Box
from tidemark.core.errors import ConfigError
from tidemark.core.frozen import frozen

COMMAND_SECONDS = 30.0
"""The longest that a command may take that prints the keys."""
_HEX = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")
_MEND = "Each key is 32 random bytes in hex or base64 (openssl rand -hex 32); several have commas between them."


@frozen
class MasterKey:
    """One master key."""

    id: str
    """16 hex characters, which say which key wrapped another one and nothing else."""
    box: Box


def read_masters(text: str, source: str) -> Sequence[MasterKey]:
    """Return the keys of a text; the first one wraps, all of them unwrap.

    :param source: where the text comes from, for the message
    :raises ConfigError: a key is none; the message does not quote it
    """
    pieces = [piece for piece in re.split(r"[,\s]+", text) if piece]
    if not pieces:
        raise ConfigError(f"{source} has no key. {_MEND}")
    masters: list[MasterKey] = []
    for place, piece in enumerate(pieces, 1):
        secret = _secret(piece)
        if secret is None:
            raise ConfigError(f"{source}: key {place} of {len(pieces)} is no key. {_MEND}")
        masters.append(MasterKey(hashlib.sha256(b"tidemark master key" + secret).hexdigest()[:16], Box(secret)))
    return masters


def read_key_file(path: Path) -> str:
    """Return what a file of keys holds.

    :raises ConfigError: it cannot be read
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"TIDEMARK_ENCRYPTION_KEY_FILE: {path} cannot be read: {reason}.") from error


def warning_of(path: Path) -> str:
    """Say that others may read a file of keys, with the mend; empty if they may not."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    return f"{path} can be read by every user of this machine; chmod 600 {path}" if mode & 0o007 else ""


def keys_of_command(command: Sequence[str]) -> str:
    """Return what a command prints.

    :raises ConfigError: it fails, or takes too long; what it prints is not quoted
    """
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL
        )
        return done.stdout.decode()
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"encryption.key_command ended with {error.returncode}; run it by hand.") from error
    except (OSError, UnicodeError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"encryption.key_command gave no key: {type(error).__name__}; run it by hand.") from error


def _secret(piece: str) -> bytes | None:
    if _HEX.fullmatch(piece):
        return bytes.fromhex(piece)
    try:
        secret = base64.b64decode(piece + "=" * (-len(piece) % 4), altchars=b"-_" if set(piece) & {*"-_"} else None)
    except ValueError:
        return None
    return secret if len(secret) == KEY_BYTES else None
