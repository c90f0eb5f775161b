"""The secret that tells tenants apart, where none is configured: made at the first start and kept beside the data."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from proxy.core.errors import ConfigError

FILE = "secret"
SECRET_BYTES = 32


def kept_secret(folder: Path) -> str:
    """The secret that is kept in ``folder``; of several that start at once, all get the same.

    :raises ConfigError: there is none to be had; an empty one would give every installation the same tenants
    """
    path = folder / FILE
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path)
        secret = path.read_text().strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"The secret cannot be kept in {path}: {reason}. Set TIDEMARK_SECRET, or another TIDEMARK_DATA_DIR."
        ) from error
    if not secret:
        raise ConfigError(
            f"{path} is empty. Put the secret back into it, or delete it to have a new one made (what is stored will "
            "not be found by it any more), or set TIDEMARK_SECRET."
        )
    return secret


def _make(path: Path) -> None:
    """Write the whole file elsewhere and give it its name in one step, unless another was faster."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # for its owner's eyes only
    try:
        with os.fdopen(number, "w") as file:
            file.write(secrets.token_hex(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()
