"""What overflows have taught, each kept for the credential that met it alone (promise 8).

Between the catalog, which asks before every request, and the registry, which shows it. What an error says may
quote what a caller wrote, so no other caller's window follows it. Kept in the store for workers that come later, and in
memory: a worker asks the store once for each credential, so one that has asked already learns a window by itself.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict

from proxy.catalog.learned import LearnedWindow
from proxy.core.bounded import remember
from proxy.core.conversation.messages import digest_of
from proxy.core.conversation.prefix import owner_of
from proxy.core.errors import StoreError
from proxy.core.models import ModelOverrides
from proxy.core.planning.budget import ModelWindow
from proxy.core.ports import Caller, LearnedWindowStore, Route

REMEMBERED = 1024
"""Lessons that are kept; clients choose names, so there must be a bound."""
CREDENTIALS = 10_000
"""Remembered as asked for."""
_Identity = tuple[str, str, str, bytes, ModelOverrides]
"""Address, provider, the upstream's name of the model, the credential's fingerprint, and what a person had set."""


class LearnedWindows:
    """A bounded memory, the newest last.

    :param store: where they are kept for all workers; None where there is no store
    """

    def __init__(self, store: LearnedWindowStore | None = None) -> None:
        self._store = store
        self._learned: dict[_Identity, LearnedWindow] = {}
        self._asked: dict[bytes, bool] = {}
        """The credentials whose lessons the store was asked for."""

    async def keep(self, route: Route, caller: Caller, said: ModelOverrides, lesson: LearnedWindow) -> None:
        """Remember what an overflow taught; without the store, for the life of the process.

        :param said: what a person has set; a new word ends the lesson, for it may be the answer to a larger server
        """
        identity = _identity(route, caller, said)
        remember(self._learned, identity, lesson, most=REMEMBERED)
        if self._store is not None:
            packed = _pack(identity, lesson)
            name = digest_of(route.base_url.encode(), route.provider.encode(), route.upstream_model.encode()).hex()
            with contextlib.suppress(StoreError):
                await self._store.keep_lesson(owner_of(caller.fingerprint), name, packed)

    async def of(self, route: Route, caller: Caller, said: ModelOverrides) -> LearnedWindow | None:
        """What holds for a caller's requests."""
        if self._store is not None and caller.fingerprint not in self._asked:
            await self._recall(self._store, caller.fingerprint)
        if not self._learned:
            return None
        return self._learned.get(_identity(route, caller, said))

    async def _recall(self, store: LearnedWindowStore, fingerprint: bytes) -> None:
        try:
            packed = await store.lessons(owner_of(fingerprint))
        except StoreError:
            return  # asked again with the next request; a store that is gone is not waited for twice
        remember(self._asked, fingerprint, value=True, most=CREDENTIALS)
        for one in packed:
            if (read := _unpack(one, fingerprint)) is not None and read[0] not in self._learned:
                remember(self._learned, read[0], read[1], most=REMEMBERED)

    def shown(
        self, provider: str, model: str, said: ModelOverrides, owner: str | None, window: ModelWindow
    ) -> ModelWindow:
        """The window as an owner's credential meets it; for None, the operator, by the newest lesson of anybody's."""
        for (_, by, name, fingerprint, then), lesson in reversed(self._learned.items()):
            mine = owner is None or owner_of(fingerprint) == owner
            if mine and (by, name, then) == (provider, model, said):
                return lesson.over(window)
        return window


def _identity(route: Route, caller: Caller, said: ModelOverrides) -> _Identity:
    return (route.base_url, route.provider, route.upstream_model, caller.fingerprint, said)


def _pack(identity: _Identity, lesson: LearnedWindow) -> bytes:
    """All but the credential, whose key it is stored under."""
    base_url, provider, model, _, said = identity
    about = {"base_url": base_url, "provider": provider, "model": model, "said": said.given}
    taught = {"window": asdict(lesson.window), "density": lesson.density, "whole_reply": lesson.whole_reply}
    return json.dumps({**about, **taught}).encode()


def _unpack(packed: bytes, fingerprint: bytes) -> tuple[_Identity, LearnedWindow] | None:
    """None for what another version wrote and this one cannot read."""
    try:
        told = json.loads(packed)
        identity = (told["base_url"], told["provider"], told["model"], fingerprint, ModelOverrides(**told["said"]))
        whole_reply = told.get("whole_reply") is True  # what an older version wrote does not say
        return identity, LearnedWindow(ModelWindow(**told["window"]), float(told["density"]), whole_reply)
    except (ValueError, TypeError, KeyError):
        return None
