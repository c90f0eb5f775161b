"""Looks at the store once a minute, whether requests come or not, and reports what is wrong with it.

``tidemark/app`` starts one in each worker. It writes one key, as readiness does, and asks each server for its memory
policy: a store that evicts keys answers every call but loses conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tidemark.core.errors import SchemaUnknown, StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.store.repetition import RepeatedLook

WATCH_SECONDS = 60.0
"""Between two looks; ``FactLog`` writes one line a minute about a store that fails."""
EVICTION_MEND = "Set maxmemory-policy noeviction: conversations are no cache, and nothing else has them."
_KEEPS_ALL = ("noeviction", "")


class StoreWatch:
    """Looks at one store again and again. Belongs to one event loop. Mutable: what it saw last.

    :param ping: ``RedisStore.ping``, which writes one key on every server
    :param server_facts: ``RedisStore.server_facts``
    :param emit: takes ``StoreDegraded`` at every look at a store that fails
    :param warn: takes ``eviction`` at every look that finds one
    """

    def __init__(
        self,
        ping: Callable[[], Awaitable[None]],
        server_facts: Callable[[], Awaitable[Sequence[Mapping[str, str]]]],
        emit: Listener,
        warn: Callable[[str], None],
    ) -> None:
        self._ping = ping
        self._server_facts = server_facts
        self._emit = emit
        self._warn = warn
        self._looks = RepeatedLook(self._look, WATCH_SECONDS)
        self.eviction = ""
        """Why the store may lose conversations, and the mend; empty if it loses none, or does not say."""

    def start(self) -> None:
        """Look at once, and from now on once a minute."""
        self._looks.start()

    async def aclose(self) -> None:
        await self._looks.aclose()

    async def _look(self) -> None:
        await asyncio.gather(self._write_probe(), self._read_policies())

    async def _write_probe(self) -> None:
        try:
            await self._ping()
        except SchemaUnknown:
            pass  # ``SchemaWatch`` warns of it
        except StoreError as error:
            self._emit(StoreDegraded("watch", error.internal or str(error)))

    async def _read_policies(self) -> None:
        try:
            servers = await self._server_facts()
        except StoreError:
            return  # the probe's failure is the one that is reported
        evictions = [eviction for facts in servers if (eviction := eviction_of(facts))]
        self.eviction = evictions[0] if evictions else ""
        if evictions:
            self._warn(self.eviction)


def facts_of(answer: Any) -> Mapping[str, str]:
    """Return the fields of ``INFO``, which redis-py reads by itself."""
    if isinstance(answer, Mapping):
        return {str(name): str(value) for name, value in answer.items()}
    text = answer.decode() if isinstance(answer, bytes) else str(answer)
    lines = [line.partition(":") for line in text.splitlines() if ":" in line]
    return {name: value.strip() for name, _, value in lines}


def eviction_of(facts: Mapping[str, str]) -> str:
    """Say that a server evicts keys once its memory is full, and the mend; empty if it does not.

    Every key of Tidemark may have a lifetime, so the policies ``volatile-*`` evict conversations as well.

    :param facts: the fields of ``INFO memory``
    """
    policy = facts.get("maxmemory_policy", "")
    if policy in _KEEPS_ALL or not int(facts.get("maxmemory") or 0):
        return ""
    return f"The store may evict conversations: its maxmemory-policy is {policy}. {EVICTION_MEND}"
