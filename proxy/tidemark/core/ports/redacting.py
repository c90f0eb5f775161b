"""The port of redaction: what is changed before anything is stored or summarized.

``tidemark/privacy/redactor.py`` implements it; the store and the compaction use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.core.conversation.messages import Message


class Redactor(Protocol):
    """Changes texts. Each method returns as many as it gets, and the same objects for those that stay.

    Each raises ``RedactionFailed`` if a text could not be examined; then nothing may be stored.
    """

    async def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages whose digests are those of the client's own, so that a conversation is still recognized."""
        ...

    async def raws(self, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Return JSON with redacted texts: values, or several items of one message with commas between them."""
        ...

    async def texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Return redacted texts; one that is JSON stays JSON."""
        ...
