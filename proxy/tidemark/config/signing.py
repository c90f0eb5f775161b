"""Returns the secret that distinguishes tenants; generates and stores it, if none is configured.

``serve`` asks at the start, and so do commands that sign or verify; a generated one lies in the data folder.
"""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from tidemark.config.settings import Settings
from tidemark.core.conversation.messages import key_digests
from tidemark.core.errors import ConfigError

FILE = "secret"
SECRET_BYTES = 32


def secret_of(settings: Settings) -> bytes:
    """Return the configured secret, or the generated one in the data folder.

    :raises ConfigError: there is no usable secret
    """
    signing = settings.secrets.signing
    return (stored_secret(settings.data_dir) if signing is None else signing.reveal()).encode()


def key_digests_of(settings: Settings, secret: bytes = b"") -> None:
    """Key the digests of this process, if the settings say so (docs/adr/0046).

    :param secret: what ``secret_of`` returned, if the caller has it
    :raises ConfigError: there is no usable secret
    """
    if settings.encryption.keyed_digests:
        key_digests(hmac.digest(secret or secret_of(settings), b"tidemark digests", "sha256"))


def stored_secret(folder: Path) -> str:
    """Return the secret in ``folder``; processes that start at the same time get the same secret.

    :raises ConfigError: there is no usable secret; an empty one would give every installation the same tenants
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
    """Write the file under a temporary name and link it in one step, unless another process was faster."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # readable by its owner only
    try:
        with os.fdopen(number, "w") as file:
            file.write(secrets.token_hex(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()
