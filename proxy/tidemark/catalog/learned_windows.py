"""Caches and stores the windows that overflow errors taught, each for its credential alone (promise 8).

The catalog looks here before every request, and the registry shows these windows. An error may quote what a caller
wrote, so it changes no other caller's window. The store keeps the windows for other workers and later ones. A worker
loads a credential's windows once; what other workers learn afterwards, it learns by itself.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict

from tidemark.catalog.learned import LearnedWindow
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import StoreError
from tidemark.core.events import Listener, WindowLearned
from tidemark.core.models import ModelOverrides
from tidemark.core.planning.budget import ModelWindow
from tidemark.core.ports import Caller, LearnedWindowStore, Route

REMEMBERED = 1024
"""The most windows in memory. Clients choose the names, so the memory needs a bound."""
CREDENTIALS = 10_000
"""The most credentials that are remembered as loaded."""
_Identity = tuple[str, str, str, bytes, ModelOverrides]
"""Address, provider, the upstream's name of the model, the credential's fingerprint, and the registry's settings."""


class LearnedWindows:
    """A bounded cache in front of the store, with the newest window last.

    :param store: None where there is no store
    :param emit: is given each window that an overflow taught this process
    """

    def __init__(self, store: LearnedWindowStore | None = None, emit: Listener = lambda _: None) -> None:
        self._store = store
        self._emit = emit
        self._learned: BoundedCache[_Identity, LearnedWindow] = BoundedCache(REMEMBERED)
        self._loaded: BoundedCache[bytes, bool] = BoundedCache(CREDENTIALS)
        """The credentials whose windows were loaded from the store."""

    async def keep(self, route: Route, caller: Caller, overrides: ModelOverrides, learned: LearnedWindow) -> None:
        """Store a learned window; without a store, it lasts as long as the process.

        :param overrides: the registry's settings; a new setting ends the learned window, because the server may be
            larger now
        """
        identity = _identity(route, caller, overrides)
        self._learned.put(identity, learned)
        self._emit(WindowLearned(route.name, learned.window.window, owner_of(caller.fingerprint)))
        if self._store is not None:
            packed = _pack(identity, learned)
            name = digest_of(route.base_url.encode(), route.provider.encode(), route.upstream_model.encode()).hex()
            with contextlib.suppress(StoreError):
                await self._store.keep_lesson(owner_of(caller.fingerprint), name, packed)

    async def of(self, route: Route, caller: Caller, overrides: ModelOverrides) -> LearnedWindow | None:
        """Return the learned window for a caller's requests."""
        if self._store is not None and caller.fingerprint not in self._loaded:
            await self._recall(self._store, caller.fingerprint)
        if not self._learned:
            return None
        return self._learned.get(_identity(route, caller, overrides))

    async def _recall(self, store: LearnedWindowStore, fingerprint: bytes) -> None:
        try:
            packed_windows = await store.lessons(owner_of(fingerprint))
        except StoreError:
            return  # the next request tries again; the store's outage handling keeps that from waiting twice
        self._loaded.put(fingerprint, value=True)
        for packed_window in packed_windows:
            if (read := _unpack(packed_window, fingerprint)) is not None and read[0] not in self._learned:
                self._learned.put(read[0], read[1])

    def shown(
        self, provider: str, model: str, overrides: ModelOverrides, owner: str | None, window: ModelWindow
    ) -> ModelWindow:
        """Return the window that an owner's requests get; for the operator (None), the newest one of any owner."""
        for (_, by, name, fingerprint, then), learned in reversed(self._learned.items()):
            mine = owner is None or owner_of(fingerprint) == owner
            if mine and (by, name, then) == (provider, model, overrides):
                return learned.over(window)
        return window


def _identity(route: Route, caller: Caller, overrides: ModelOverrides) -> _Identity:
    return (route.base_url, route.provider, route.upstream_model, caller.fingerprint, overrides)


def _pack(identity: _Identity, learned: LearnedWindow) -> bytes:
    """Encode a learned window, without the credential that its store key contains."""
    base_url, provider, model, _, overrides = identity
    identity_fields = {"base_url": base_url, "provider": provider, "model": model, "said": overrides.set_fields}
    window_fields = {"window": asdict(learned.window), "density": learned.density, "whole_reply": learned.whole_reply}
    return json.dumps({**identity_fields, **window_fields}).encode()


def _unpack(packed: bytes, fingerprint: bytes) -> tuple[_Identity, LearnedWindow] | None:
    """Decode a learned window; None where another version wrote what this one cannot read."""
    try:
        record = json.loads(packed)
        identity = (
            record["base_url"],
            record["provider"],
            record["model"],
            fingerprint,
            ModelOverrides(**record["said"]),
        )
        whole_reply = record.get("whole_reply") is True  # older records lack it
        return identity, LearnedWindow(ModelWindow(**record["window"]), float(record["density"]), whole_reply)
    except (ValueError, TypeError, KeyError):
        return None
