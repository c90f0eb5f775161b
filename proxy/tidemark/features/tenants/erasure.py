"""Erases a tenant: its key first, then everything that it has.

Without the key no copy of the store can be read any more.

``feature.py`` serves it, and ``commands.py`` runs it without a server.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidemark.core.errors import EncryptionKeyLost, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.features.tenants.certificates import signed
from tidemark.features.tenants.trace_eraser import TraceEraser
from tidemark.features.tenants.traces import find_owner, has_sealed, traces_of
from tidemark.store.encryption.keyring import LOOK_SECONDS, KeyRing, scope_of
from tidemark.store.whole_store import WholeStore

MOST_PASSES = 4
"""How often the store is gone through. A turn that was under way may be stored after the first time."""
_NO_KEY = (
    "The tenant's records are sealed, and no master key is configured, so its key would stay. Set "
    "TIDEMARK_ENCRYPTION_KEY and encryption.keys_url as the servers have them."
)
FORGOTTEN_SECONDS = 2 * LOOK_SECONDS + 0.1
"""After this no worker has an erased key any more."""


@frozen(kw_only=True)
class ErasureParts:
    """What an erasure works on."""

    store: WholeStore
    keys: KeyRing | None
    """None without encryption."""
    flush_folder: Path
    """The folder of the daily files."""
    secret: bytes
    is_embedded: bool
    clock: Callable[[], float] = time.time


class TenantErasure:
    """Erases tenants. It holds no state of its own."""

    def __init__(self, parts: ErasureParts) -> None:
        self._parts = parts

    async def find(self, text: str) -> str:
        """Return the owner that a fingerprint, or the beginning of one, names.

        :raises InvalidRequest: there is none, or there are several
        """
        return await find_owner(self._parts.store, self._parts.keys, text)

    async def erase(self, owner: str, tell: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
        """Erase all of an owner, and return the signed certificate.

        :param tell: takes what is done now
        :raises StoreUnavailable: the store does not answer, or the tenant writes all the while
        :raises EncryptionKeyLost: the keys cannot be reached, or are not configured; nothing is deleted then
        """
        parts, key_ids, made_at = self._parts, list[str](), None
        traces = await traces_of(parts.store, owner)
        if parts.keys is None and await has_sealed(parts.store, traces):
            raise EncryptionKeyLost(_NO_KEY)
        eraser = TraceEraser(parts.store, traces)
        await eraser.mark()
        if parts.keys is not None:
            tell("key")
            made_at = await asyncio.to_thread(parts.keys.made_at, owner)
            key_ids = [*await asyncio.to_thread(parts.keys.erase, owner)]
            await asyncio.sleep(FORGOTTEN_SECONDS)
        tell("records")
        for _ in range(MOST_PASSES):
            if not await eraser.erase():
                break
            later = await traces_of(parts.store, owner)
            traces.families |= later.families
            traces.conversations |= later.conversations
            traces.api_keys |= later.api_keys
            traces.tenants |= later.tenants
            await eraser.mark()
        else:
            raise StoreUnavailable("The tenant is in use. Revoke its credential, then run the command again.")
        tell("files")
        files = await asyncio.to_thread(_remove_folders, parts.flush_folder, sorted(traces.tenants))
        if parts.is_embedded:
            await parts.store.rewrite_files()
        counts = {
            "conversations": len(traces.conversations),
            "keys": eraser.deleted.keys,
            "entries": eraser.deleted.entries,
            "files": files,
        }
        statement = {
            "certificate": 1,
            "tenant": owner,
            "erased_at": _text_of(parts.clock()),
            "key_scope": scope_of(owner).hex(),
            "key_ids": key_ids,
            "erased": counts,
            "backups_and_exports": self._copies(made_at, eraser.deleted.plain),
        }
        return signed(statement, parts.secret)

    def _copies(self, made_at: float | None, plain: int) -> str:
        """Say what can be read of copies that somebody made before.

        :param made_at: when the key was made that is gone now
        :param plain: conversations with messages that were never sealed
        """
        if self._parts.keys is None:
            return "can be read: nothing was encrypted. Delete them"
        if made_at is None:
            return "what was sealed cannot be read: there is no key. What was plain can"
        sealed = f"what was stored since {_text_of(made_at)} cannot be read: the key is gone"
        return f"{sealed}. {plain} conversations have plain messages from before" if plain else sealed


def _text_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _remove_folders(folder: Path, tenants: Sequence[str]) -> int:
    """Remove the daily files of tenants, and return how many they were."""
    removed = 0
    for tenant in tenants:
        own = folder / tenant
        if tenant.isalnum() and own.is_dir():
            removed += sum(path.suffix == ".jsonl" for path in own.iterdir())
            shutil.rmtree(own)
    return removed
