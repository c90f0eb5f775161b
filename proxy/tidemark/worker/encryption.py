"""Makes the cipher of the store from the configuration: the master keys, and where the tenants' keys are kept.

``stored.py`` gives it to the codec of a process. ``serve`` makes it once more before its workers, for the message of
a wrong key, and ``tidemark check`` asks what that message would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.config import Settings
from tidemark.core.errors import ConfigError, EncryptionKeyLost
from tidemark.store.connection.client import FAILURES, blocking_client
from tidemark.store.encryption.cipher import TenantCipher
from tidemark.store.encryption.keyring import KeyRing
from tidemark.store.encryption.masters import MasterKey, keys_of_command, read_key_file, read_masters, warning_of
from tidemark.store.encryption.sources import FOLDER, SERVER_SECONDS, FolderKeys, KeySource, ServerKeys

MOST_LOOKED_AT = 100
"""Tenants whose keys are tried at the start; ``tidemark doctor`` tries all."""
_LOST = (
    "The master key does not unwrap the keys of {lost} of the first {most} tenants: nothing of them is read or "
    "written. Put the key that wrapped them into TIDEMARK_ENCRYPTION_KEY, behind the one that writes."
)
IN_FOLDER = "folder"
"""The value of ``encryption.keys_url`` for the data folder."""
_NO_PLACE = (
    "encryption.keys_url: the store is a server, so say where the tenants' keys are kept: a Redis or Valkey of its own "
    "that no backup includes, or folder for data_dir, if one server alone uses the store."
)
_SAME_PLACE = (
    "encryption.keys_url names the store itself. A backup of it would hold the keys of erased tenants: name another "
    "server, which no backup includes."
)
_NO_KEY = (
    "The store is encrypted: there are keys of tenants in {place}. Set TIDEMARK_ENCRYPTION_KEY (or "
    "TIDEMARK_ENCRYPTION_KEY_FILE, or encryption.key_command) to the master key that wraps them."
)


def is_encrypted(settings: Settings) -> bool:
    """Tell whether the configuration names a master key."""
    secrets = settings.secrets
    return bool(secrets.encryption or secrets.encryption_file or settings.encryption.key_command)


def cipher_of(settings: Settings, warn: Callable[[str], None]) -> TenantCipher | None:
    """Return the cipher of the store; None if nothing asks for encryption.

    :raises ConfigError: a key cannot be used, it is unclear where keys are kept, or an encrypted store has no key
    """
    source = _used_source(settings)
    if source is None:
        return None
    return TenantCipher(KeyRing(masters_of(settings, warn), source), required=settings.encryption.required)


def key_warnings(settings: Settings) -> Sequence[str]:
    """Return what ``serve`` would warn of. ``encryption.key_command`` is not run: who checks a file may not trust it.

    :raises ConfigError: ``serve`` would refuse the configuration so
    """
    warnings: list[str] = []
    if _used_source(settings) is not None and not settings.encryption.key_command:
        masters_of(settings, warnings.append)
    return warnings


def _used_source(settings: Settings) -> KeySource | None:
    """Return where the keys of an encrypted store are kept; None for a store that is not encrypted."""
    source = source_of(settings)
    if is_encrypted(settings):
        if source is None:
            raise ConfigError(_NO_PLACE)
        return source
    if settings.encryption.keys_url is not None and str(settings.encryption.keys_url) != IN_FOLDER:
        raise ConfigError(_NO_KEY.format(place="encryption.keys_url"))
    try:
        has_keys = isinstance(source, FolderKeys) and next(source.scopes(), None) is not None
    except EncryptionKeyLost as error:
        raise ConfigError(str(error)) from error
    if has_keys:
        raise ConfigError(_NO_KEY.format(place=settings.data_dir / FOLDER))
    return None


def warn_of_lost_keys(cipher: TenantCipher, warn: Callable[[str], None]) -> None:
    """Warn if the first tenants' keys cannot be unwrapped: then the master key is most likely another one."""
    try:
        lost = cipher.keys.lost(MOST_LOOKED_AT)
    except EncryptionKeyLost as error:
        warn(str(error))
        return
    if lost:
        warn(_LOST.format(lost=lost, most=MOST_LOOKED_AT))


def masters_of(settings: Settings, warn: Callable[[str], None]) -> Sequence[MasterKey]:
    """Return the master keys, the one that wraps first.

    :raises ConfigError: there is none that can be used
    """
    secrets, command = settings.secrets, settings.encryption.key_command
    if secrets.encryption is not None:
        return read_masters(secrets.encryption.reveal(), "TIDEMARK_ENCRYPTION_KEY")
    if secrets.encryption_file is not None:
        if warning := warning_of(secrets.encryption_file):
            warn(warning)
        return read_masters(read_key_file(secrets.encryption_file), "TIDEMARK_ENCRYPTION_KEY_FILE")
    return read_masters(keys_of_command(command), "encryption.key_command")


def source_of(settings: Settings) -> KeySource | None:
    """Return where the tenants' keys are kept; None if the configuration does not say.

    :raises ConfigError: they would lie in the store
    """
    stated, store = settings.encryption.keys_url, str(settings.store.url)
    if stated is not None and str(stated) != IN_FOLDER:
        if _place(str(stated)) == _place(store):
            raise ConfigError(_SAME_PLACE)
        return ServerKeys(blocking_client(str(stated), SERVER_SECONDS), FAILURES)
    return FolderKeys(settings.data_dir / FOLDER) if stated is not None or store == "embedded" else None


def _place(url: str) -> str:
    """Return which server a URL names: another database of the same one has the same files."""
    if not url.startswith(("redis", "rediss")):
        return url.partition("?")[0]
    return url.partition("://")[2].rpartition("@")[2].partition("/")[0].partition("?")[0]
