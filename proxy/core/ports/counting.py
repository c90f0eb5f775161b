"""Counting tokens: what the flow needs of ``proxy/tokens``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from proxy.core.conversation.messages import Message
from proxy.core.conversation.request import ModelRequest
from proxy.core.values import value


@value
class RequestCount:
    """The tokens of a request, by part."""

    messages: tuple[int, ...]
    """Of each message in order, its overhead included."""
    fixed: int
    """Of all else: tools, response_format, priming of the reply."""
    encoding: str
    """The tokenizer's name."""
    exact: bool = False
    """Whether this is the model's own tokenizer and its provider's accounting, and not an estimate by another's."""

    scheme: str = ""
    """The mark of the rules it was counted by, for those who store it; empty for what must not be taken over."""
    summary_first: int = 0
    """By how much ``fixed`` changes where a summary becomes the first system message, which takes the tools in."""

    @property
    def total(self) -> int:
        """Of the whole request."""
        return self.fixed + sum(self.messages)


Stored = Callable[[str, int], Awaitable[Sequence[tuple[Message, int]]]]
"""Messages of a request with their tokens, as another worker counted and stored them: by the rules of that mark, from
that position on (1 for the first non-system message)."""


class TokenCounter(Protocol):
    """Local, exact counting."""

    async def count(
        self, request: ModelRequest, model: str, *, stored_count: int = 0, stored: Stored | None = None
    ) -> RequestCount:
        """Count a request for a model; large new text is counted off the event loop.

        :param stored_count: the number of leading non-system messages that are stored with their counts
        :param stored: asked where much of that is not remembered: what another worker counted is not counted again
        :raises TokenizerFailed: FR-5.2.1, nothing is approximated
        """
        ...

    def count_message(self, message: Message, model: str) -> int:
        """Tokens of one message, its overhead included."""
        ...

    def count_text(self, text: str, model: str) -> int:
        """Tokens of a bare text."""
        ...

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        """The longest beginning of ``text`` of at most ``max_tokens`` tokens, whole characters only."""
        ...
