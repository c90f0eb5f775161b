"""Carries live events in a stream of the store: the adapter of ``LiveEventFeed``.

``telemetry/live_events.py`` adds the batches of each worker, and ``archive/live_events.py`` reads those of all workers
where somebody listens. ADR 0022 gives the reasons for a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proxy.core.errors import RecordUnreadable
from proxy.core.live_events import LiveEvent
from proxy.store import keys
from proxy.store.codec import Codec
from proxy.store.commands import Ask

MAX_BATCHES = 500
"""The newest batches, which a listener that comes back may still get."""
STORED_SECONDS = 600
LISTENING_SECONDS = 60
"""How long batches are stored after the last reading."""
PAGE = 100
_FOLDER = Path(__file__).with_name("lua")
_ADD, _READ = ((_FOLDER / f"events_{name}.lua").read_text("utf-8") for name in ("add", "read"))


class RedisLiveEvents:
    """The feed in Redis. All state is the server's."""

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def publish(self, events: Sequence[LiveEvent]) -> bool:
        """Add a batch, and return whether somebody listens; otherwise nothing is stored."""
        batch = self._codec.pack_json([(event.kind, event.owner, event.fields) for event in events])
        added = await self._ask("EVAL", _ADD, 1, keys.EVENTS, batch, MAX_BATCHES, STORED_SECONDS)
        return added is not None

    async def newest(self) -> str:
        """Return the id of the newest batch. From now on batches are stored, for a minute after the last call."""
        newest: bytes = await self._ask("EVAL", _READ, 1, keys.EVENTS, "", 0, LISTENING_SECONDS)
        return newest.decode()

    async def read(self, after: str, *, with_it: bool = False) -> Sequence[tuple[str, Sequence[LiveEvent]]]:
        """Return the next batches after an id, oldest first; a batch that cannot be read is empty."""
        first = after if with_it else f"({after}"
        batches = await self._ask("EVAL", _READ, 1, keys.EVENTS, first, PAGE, LISTENING_SECONDS)
        return [(batch.decode(), self._events(flat[1])) for batch, flat in batches]

    def _events(self, packed: bytes) -> Sequence[LiveEvent]:
        try:
            return [LiveEvent(kind, owner, fields) for kind, owner, fields in self._codec.unpack_json(packed)]
        except (RecordUnreadable, ValueError, TypeError):
            return []
