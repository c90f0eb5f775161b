"""The base of the writers: a reply of chat completions becomes one of another dialect, streamed or whole.

``bridge.py`` gives a writer the pieces of the upstream's reply, and sends what it writes to the client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.upstream.bridges.pieces import CountsPiece, FinishPiece, Piece


class ReplyWriter(ABC):
    """Writes a reply in one dialect, piece by piece."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._usage: Mapping[str, JsonValue] | None = None

    @property
    def finished(self) -> bool:
        """Whether the reason is there why the answer ended."""
        return self._reason is not None

    @abstractmethod
    def begin(self) -> Iterator[bytes]:
        """Yield the first events."""

    def add(self, piece: Piece) -> Iterator[bytes]:
        """Take in a piece, and return its events, which must all be taken."""
        match piece:
            case FinishPiece():
                self._reason = piece.reason
            case CountsPiece():
                self._usage = piece.usage
            case _:
                return self._add_content(piece)
        return iter(())

    @abstractmethod
    def _add_content(self, piece: Piece) -> Iterator[bytes]:
        """Yield the events of a piece of the answer."""

    @abstractmethod
    def end(self) -> Iterator[bytes]:
        """Yield the events that end the stream."""

    @abstractmethod
    def whole(self) -> bytes:
        """Return the reply as one body."""

    @abstractmethod
    def failure(self, message: str) -> bytes:
        """Return the event of an error of the upstream within the stream."""

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return an upstream's refusal in the dialect's own envelope; OpenAI's formats have one."""
        del status
        return body
