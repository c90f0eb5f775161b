"""Makes live events of a worker's events, and publishes them in batches.

A batch goes out five times a second while somebody listens, else every two seconds. It has compactions and learned
windows; the list of conversations reports each stored turn. A request adds one entry to a dictionary, and no request
waits for the publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from tidemark.core.errors import StoreError
from tidemark.core.events import (
    CompactionGivenUp,
    CompactionStarted,
    ConversationCompacted,
    Event,
    SummaryPrepared,
    SummaryReplaced,
    WindowAssumed,
    WindowLearned,
)
from tidemark.features.live_events.events import LiveEvent, LiveEventKind

BATCH_SECONDS = 0.2
UNHEARD_SECONDS = 2.0
"""The pause between two batches while nobody listens. The store takes none then, and its answer says so."""
MAX_EVENTS = 1000
"""The most compactions and windows of one batch, and the most updated conversations; others are left out."""
SECONDS_DIGITS = 3
Fields = dict[str, str | int | float]
Publish = Callable[[Sequence[LiveEvent]], Awaitable[bool]]
_SHOWN = frozenset(
    {
        CompactionGivenUp,
        CompactionStarted,
        ConversationCompacted,
        SummaryPrepared,
        SummaryReplaced,
        WindowAssumed,
        WindowLearned,
    }
)
"""The events that may become live events; every request has others."""


class LiveEventPublisher:
    """Collects live events, and publishes them.

    The mutable state is the events that wait. A batch that the store does not take is dropped: it tells what happens
    now, and what has happened stands in the store.

    :param publishers: what each batch is given to
    """

    def __init__(self, publishers: Sequence[Publish]) -> None:
        self._publishers = publishers
        self._events: list[LiveEvent] = []
        self._updated: dict[str, str] = {}
        """The owner of each conversation with a new turn."""
        self._is_heard = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __call__(self, event: Event) -> None:
        """Collect an event that listeners want to know of."""
        live_event = _live_event(event) if type(event) in _SHOWN else None
        if live_event is not None and len(self._events) < MAX_EVENTS:
            self._events.append(live_event)
            self._publish_soon()

    def note_updated(self, owner: str, conversation: str) -> None:
        """Collect that a conversation has a new turn; once for each batch."""
        if len(self._updated) < MAX_EVENTS:
            self._updated[conversation] = owner
            if self._timer is None:
                self._publish_soon()

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._publish()

    def _publish_soon(self) -> None:
        if self._timer is None:
            seconds = BATCH_SECONDS if self._is_heard else UNHEARD_SECONDS
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._publish())
        else:  # the batch before is still on its way
            self._publish_soon()

    async def _publish(self) -> None:
        updated, self._updated = self._updated, {}
        events, self._events = self._events, []
        events += [
            LiveEvent("conversation.updated", owner, {"conversation": conversation})
            for conversation, owner in updated.items()
        ]
        if events:
            is_heard = False
            for publish in self._publishers:
                with suppress(StoreError):
                    is_heard |= await publish(events)
            self._is_heard = is_heard


def _live_event(event: Event) -> LiveEvent | None:
    """Return the live event of an event; None for others, and for a compaction without a conversation."""
    match event:
        case WindowLearned() | WindowAssumed():
            # What is assumed concerns nobody's conversation: the operator alone hears of it.
            kind: LiveEventKind = "window.learned" if isinstance(event, WindowLearned) else "window.assumed"
            owner = event.owner if isinstance(event, WindowLearned) else ""
            return LiveEvent(kind, owner, {"model": event.model, "window": event.window})
        case CompactionStarted() if event.conversation:
            return LiveEvent("compaction.started", event.owner, _scope(event))
        case CompactionGivenUp() if event.conversation:
            outcome: Fields = {"reason": event.reason, "seconds": round(event.seconds, SECONDS_DIGITS)}
            return LiveEvent("compaction.failed", event.owner, _scope(event) | outcome)
        case SummaryReplaced() | ConversationCompacted(trigger="swap") if event.conversation:
            return LiveEvent("conversation.updated", event.owner, {"conversation": event.conversation})
        case ConversationCompacted() | SummaryPrepared() if event.conversation:
            figures: Fields = {
                "tokens_before": event.tokens_before,
                "tokens_after": event.tokens_after,
                "strategy": event.strategy,
                "seconds": round(event.seconds, SECONDS_DIGITS),
            }
            return LiveEvent("compaction.finished", event.owner, _scope(event) | figures)
        case _:
            return None


def _scope(
    event: CompactionStarted | CompactionGivenUp | ConversationCompacted | SummaryPrepared,
) -> Fields:
    """Return the members that all events of a compaction have."""
    tokens = event.tokens if isinstance(event, CompactionStarted | CompactionGivenUp) else event.tokens_replaced
    return {
        "conversation": event.conversation,
        "messages": event.messages,
        "tokens": tokens,
        "trigger": event.trigger,
    }
