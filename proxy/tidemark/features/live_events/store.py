"""Carries live events in a stream of the store, from all workers to those that have listeners.

``features/live_events/publisher.py`` adds the batches of each worker, and ``features/live_events/hub.py`` reads those
of all workers if somebody listens. ADR 0022 gives the reasons for a stream. A hash beside it has the compactions
that run, for listeners that come meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import EncryptionKeyLost, RecordUnreadable
from tidemark.features.live_events.events import LiveEvent
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

MAX_BATCHES = 500
"""The newest batches, which a listener that comes back may still get."""
STORED_SECONDS = 600
LISTENING_SECONDS = 60
"""How long batches are stored after the last reading."""
PAGE = 100
MAX_RUNNING = 1000
"""The most compactions that are noted as running; a process that dies leaves its own for ``STORED_SECONDS``."""
_ADD, _READ = lua(__file__, "events_add"), lua(__file__, "events_read")


class RedisLiveEvents:
    """The feed in Redis. All state is the server's.

    Every method raises ``StoreUnavailable`` if the store does not answer in time.
    """

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def publish(self, events: Sequence[LiveEvent]) -> bool:
        """Add a batch, and return whether somebody listens; otherwise only the compactions that run are stored."""
        changes = [*self._running_changes(events)]
        if self._codec.cipher is not None and not changes and not await self._ask("EXISTS", f"{keys.EVENTS}:l"):
            return False  # each request has an event, and sealing it costs 2 % of it
        batch = json.dumps([(event.kind, event.owner, self._sealed(event)) for event in events]).encode()
        bounds = (MAX_BATCHES, STORED_SECONDS, MAX_RUNNING)
        added = await self._ask("EVAL", _ADD, 1, keys.EVENTS, batch, *bounds, *changes)
        return added is not None

    async def newest(self) -> str:
        """Return the id of the newest batch. From now on batches are stored, for a minute after the last call."""
        newest: bytes = await self._ask("EVAL", _READ, 1, keys.EVENTS, "", 0, LISTENING_SECONDS)
        return newest.decode()

    async def read(self, after: str, *, with_it: bool = False) -> Sequence[tuple[str, Sequence[LiveEvent]]]:
        """Return the next batches after an id, oldest first, each with its id; one that cannot be read is empty.

        :param with_it: begin with the batch of that id
        """
        first = after if with_it else f"({after}"
        batches = await self._ask("EVAL", _READ, 1, keys.EVENTS, first, PAGE, LISTENING_SECONDS)
        return [(batch.decode(), self._events(flat[1])) for batch, flat in batches]

    async def running(self) -> Sequence[LiveEvent]:
        """Return the events with which the compactions began that still run, at most ten minutes old."""
        values = await self._ask("HVALS", f"{keys.EVENTS}:r")
        oldest = time.time() - STORED_SECONDS
        return [event for packed in values for at, event in self._read_start(packed) if at > oldest]

    def _running_changes(self, events: Sequence[LiveEvent]) -> Iterator[str | bytes]:
        """Yield the name of each compaction that begins or ends, and what is stored of it; nothing at its end."""
        for event in events:
            if event.kind.startswith("compaction."):
                yield f"{event.owner}:{event.fields['conversation']}"
                is_start = event.kind == "compaction.started"
                yield json.dumps((time.time(), event.owner, self._sealed(event))).encode() if is_start else b""

    def _read_start(self, packed: bytes) -> Iterator[tuple[float, LiveEvent]]:
        """Yield the event with which a compaction began, and when; nothing if it cannot be read."""
        with suppress(RecordUnreadable, EncryptionKeyLost, ValueError, TypeError):
            at, owner, fields = json.loads(packed)
            yield float(at), LiveEvent("compaction.started", owner, self._opened(fields, "compaction.started"))

    def _events(self, packed: bytes) -> Sequence[LiveEvent]:
        events: list[LiveEvent] = []
        with suppress(ValueError, TypeError):
            for kind, owner, fields in json.loads(packed):
                with suppress(RecordUnreadable, EncryptionKeyLost):  # each tenant's are sealed by themselves
                    events.append(LiveEvent(kind, owner, self._opened(fields, kind)))
        return events

    def _sealed(self, event: LiveEvent) -> JsonValue:
        fields = event.fields
        if self._codec.cipher is None:
            return fields
        return self._codec.seal_text(json.dumps(fields), event.owner, "events", event.kind)

    def _opened(self, fields: Any, kind: str) -> Any:
        opened = self._codec.open_text(fields, "events", kind) if isinstance(fields, str) else fields
        return json.loads(opened) if isinstance(opened, str) else opened
