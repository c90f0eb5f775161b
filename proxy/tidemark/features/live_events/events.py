"""Live events: what happens to conversations, as ``GET /tidemark/events`` and the webhook report it at once (FR-1.6.1).

``features/live_events/publisher.py`` makes them of the events of ``core/events.py``. They have ids and numbers, and no
text of a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from tidemark.core.frozen import frozen

LiveEventKind = Literal[
    "compaction.started",
    "compaction.finished",
    "compaction.failed",
    "window.learned",
    "window.assumed",
    "conversation.updated",
]
_POSITION = re.compile(r"(\d{1,20}-\d{1,20})-(\d{1,6})", re.ASCII)


@frozen
class LiveEvent:
    """One live event."""

    kind: LiveEventKind
    owner: str
    """The owner of the conversation, who may see the event; it is never sent."""
    fields: Mapping[str, str | int | float]
    """The members of its JSON object, by the names of the endpoint."""


@frozen
class LiveEventPosition:
    """The place of an event among all events: its batch, and its number in the batch."""

    batch: str
    number: int

    def __str__(self) -> str:
        return f"{self.batch}-{self.number}"


def read_position(text: str) -> LiveEventPosition | None:
    """Return the position that ``str`` wrote; None for any other text."""
    match = _POSITION.fullmatch(text)
    return LiveEventPosition(match[1], int(match[2])) if match else None
