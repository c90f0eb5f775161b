"""Examines the encryption: the master keys, the tenants' keys, and whether all of the store is sealed."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, aclosing

from tidemark.config import Settings
from tidemark.core.errors import TidemarkError
from tidemark.doctor.findings import Finding
from tidemark.features.upkeep.rotation import StoreRotation
from tidemark.store.codec import Codec
from tidemark.store.encryption.keyring import KeyRing
from tidemark.store.encryption.sources import FolderKeys
from tidemark.store.whole_store import WholeStore
from tidemark.terminal.options import store_url
from tidemark.worker.encryption import cipher_of, is_encrypted

ENCRYPTION = "encryption"
MOST_KEYS = 5000
"""Keys of the store that are looked at; a large store has millions."""
_SEAL = "Run tidemark store rotate: it seals them while the store is in use."


def check_encryption(settings: Settings) -> list[Finding]:
    """Return what is wrong with the keys, or with what they should have sealed; nothing without encryption."""
    warnings: list[str] = []
    try:
        cipher = cipher_of(settings, warnings.append)
    except TidemarkError as error:
        mend = "Set the master key, or correct it." if is_encrypted(settings) else "Set TIDEMARK_ENCRYPTION_KEY."
        return [Finding(ENCRYPTION, "error", str(error), mend)]
    if cipher is None:
        return []
    findings = [Finding(ENCRYPTION, "warning", text, "Do what it says.") for text in warnings]
    try:
        findings += _check_keys(cipher.keys)
        cipher.required = False
        with ExitStack() as stack:
            url = store_url(settings, stack)
            sealed, plain = asyncio.run(_survey(url, cipher.keys, Codec(cipher)))
    except TidemarkError as error:
        return [*findings, Finding(ENCRYPTION, "error", str(error), "See the finding of the store, or of the keys.")]
    if plain:
        detail = f"the store is partly unsealed: {plain:,} of the first {sealed + plain:,} values are plain"
        findings.append(Finding(ENCRYPTION, "warning", detail, _SEAL))
    return findings or [Finding(ENCRYPTION, "ok", f"all of the first {sealed:,} values are sealed")]


def _check_keys(ring: KeyRing) -> list[Finding]:
    """Return which tenants' keys cannot be unwrapped, and whether others may read their files."""
    findings, lost = list[Finding](), ring.lost()
    if isinstance(ring.source, FolderKeys) and ring.source.folder.is_dir():
        folder = ring.source.folder
        open_names = [path for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o077]
        if open_names:
            mend = f"chmod -R go= {folder}"
            findings.append(Finding(ENCRYPTION, "warning", f"others can read {open_names[0]}", mend))
    if lost:
        mend = (
            "Put the master key that wrapped them behind the present one in TIDEMARK_ENCRYPTION_KEY, or restore their "
            "files."
        )
        findings.append(Finding(ENCRYPTION, "error", f"the keys of {lost:,} tenants cannot be unwrapped", mend))
    return findings


async def _survey(url: str, ring: KeyRing, codec: Codec) -> tuple[int, int]:
    async with aclosing(WholeStore(url)) as whole:
        return await StoreRotation(whole, codec, ring).survey(MOST_KEYS)
