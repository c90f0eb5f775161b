"""A reply describes what an upstream answered, in terms that hold for every client format.

A dialect folds the upstream's bytes into a reply while the client gets them (``pipeline/relay.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.frozen import frozen


@frozen
class Reply:
    """What an upstream answered."""

    message: Message | None
    """The first choice's message; None when there was none to read."""
    complete: bool
    """Whether the reply came to its end: every choice has a reason why it ended."""
    usage: Mapping[str, JsonValue] = field(default_factory=dict)
    """The provider's own counts, as it wrote them; the dialect reads them."""
    error: JsonValue = None
    """The upstream's own error, sent within the stream."""
    original: bytes = b""
    """The response object as the upstream wrote it, if the dialect has responses that can be asked for again."""


EMPTY_REPLY = Reply(None, complete=False)
"""The reply of which nothing could be read."""


class ReplyFold(Protocol):
    """Reads a stream piece by piece. The pieces may end anywhere."""

    ended: bool
    """Whether the event that ends the stream has come."""

    def may_end_large(self, data: bytes) -> bool:
        """Return whether these bytes may end an event that takes long to fold, which is work for a thread."""
        ...

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        ...

    def reply(self) -> Reply:
        """Return what was read; the rest counts as a whole event, so call it once, at the end."""
        ...
