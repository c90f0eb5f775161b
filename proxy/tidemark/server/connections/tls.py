"""Reads certificates for TLS, and reads them again when their files change, without a restart.

Each handshake takes the newest context, so that open connections go on with theirs. If a new pair of files does not fit
together, as in the moment between two writes, the one before stays in use.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from tidemark.core.errors import ConfigError
from tidemark.core.frozen import frozen

LOOK_SECONDS = 2.0
"""Between two looks at the files, at each of which three file names are looked up."""
READ_BY_OTHERS = 0o004


@frozen
class TlsFiles:
    """The files of a server's certificate, all in PEM."""

    cert: Path
    """The certificate, followed by those that lead to its authority."""
    key: Path
    client_ca: Path | None = None
    """The authorities of clients' certificates; None if clients need none."""

    def warnings(self) -> tuple[str, ...]:
        """Return what works and is unsafe."""
        try:
            is_open = self.key.stat().st_mode & READ_BY_OTHERS
        except OSError:
            return ()
        if not is_open:
            return ()
        return (f"server.tls.key: every user of this machine can read {self.key}; chmod 600 {self.key}",)


class Certificates:
    """The TLS context of new connections. Mutable: the context, and the state of the files that it was read from.

    :param warn: told of files that changed and cannot be used
    :raises ConfigError: the files cannot be used; the message names the file and the mend
    """

    def __init__(self, files: TlsFiles, warn: Callable[[str], None]) -> None:
        self._files = files
        self._warn = warn
        self._state = self._look()
        self.context = context_of(files)

    def refresh(self) -> None:
        """Read the files again if one of them changed."""
        state = self._look()
        if state == self._state:
            return
        self._state = state
        try:
            self.context = context_of(self._files)
        except ConfigError as error:
            self._warn(f"The certificate stays as it was: {error}")

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Return what changes when a file is written or replaced."""
        return tuple(map(_state_of, filter(None, (self._files.cert, self._files.key, self._files.client_ca))))


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for a server.

    :raises ConfigError: the files cannot be used; the message names the file and the mend
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    for name, path in (("cert", files.cert), ("key", files.key), ("client_ca", files.client_ca)):
        if path is not None:
            _check_readable(name, path)
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: b"none")  # without it OpenSSL asks a terminal
    except (OSError, ValueError) as error:
        raise ConfigError(_mend(files, error)) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"server.tls.client_ca: {files.client_ca} has no certificate in PEM; write the authority's there"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _check_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"server.tls.{name}: {path} cannot be read: {error.strerror}; name a file that Tidemark may read"
        ) from error


def _mend(files: TlsFiles, error: Exception) -> str:
    """Say which file is wrong, and what to do."""
    reason, key = getattr(error, "reason", None) or "", files.key.read_bytes()
    if reason == "KEY_VALUES_MISMATCH":
        return f"server.tls: the key {files.key} is not the one of the certificate {files.cert}; name the pair"
    if b"ENCRYPTED" in key:
        return (
            f"server.tls.key: {files.key} has a passphrase, and nobody is there to type it; write it without one "
            "(openssl pkey), and let only Tidemark's user read it"
        )
    if b"PRIVATE KEY" not in key:
        return f"server.tls.key: {files.key} has no private key in PEM; write it there"
    return f"server.tls.cert: {files.cert} has no certificate in PEM, or its key is damaged ({reason or error})"
