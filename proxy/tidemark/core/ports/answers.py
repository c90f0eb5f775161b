"""The port of stored answers: a client that sends a turn of stored history again gets one.

``tidemark/store/answers.py`` implements it; ``tidemark/pipeline/repeated_turns.py`` uses it.
"""

from __future__ import annotations

from typing import Protocol

from tidemark.core.frozen import frozen
from tidemark.core.ports.upstream import Headers
from tidemark.core.report import Report


@frozen
class KeptAnswer:
    """The answer of one turn, in its own bytes."""

    turn: bytes
    """The digest of who sent the turn, in which dialect, and of its ``Idempotency-Key``."""
    body: bytes
    """The digest of the request's body."""
    status: int
    headers: Headers
    data: bytes
    report: Report


class AnswerStore(Protocol):
    """The newest answer of each conversation that may be asked for again.

    Both methods raise ``StoreUnavailable`` when the store did not answer in time.
    """

    async def find(self, conversation: str) -> KeptAnswer | None:
        """Return the answer; None if none is kept, or it cannot be read."""
        ...

    async def keep(self, owner: str, conversation: str, answer: KeptAnswer, seconds: int) -> None:
        """Keep an answer in place of the one before, unless the conversation is gone."""
        ...
