"""The port of token counting, which ``tidemark/tokens`` implements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.frozen import frozen
from tidemark.core.planning.situation import NOTHING_LEFT_OUT, LeftOut


@frozen
class RequestCount:
    """The tokens of a request, by part."""

    messages: tuple[int, ...]
    """Tokens of each message in order, with its overhead."""
    other_tokens: int
    """Tokens of everything else: tools, response_format, priming of the reply."""
    encoding: str
    """The tokenizer's name."""
    exact: bool = False
    """Whether the count uses the model's own tokenizer and its provider's accounting, and is no estimate."""

    scheme: str = ""
    """The mark of the counting rules, to be stored with the count; empty if the count must not be reused."""
    first_summary_tokens: int = 0
    """How much ``other_tokens`` changes if a summary becomes the first system message, which has the tools."""
    left_out: LeftOut = NOTHING_LEFT_OUT
    """The messages before ``messages`` that were not read."""

    @property
    def total(self) -> int:
        """Return the tokens of the whole request."""
        return self.other_tokens + sum(self.messages) + self.left_out.tokens


Stored = Callable[[str, int], Awaitable[Sequence[tuple[Message, int]]]]
"""Reads stored messages of a request with their tokens. It takes the mark of the counting rules and the position to
start from (1 for the first non-system message)."""


class TokenCounter(Protocol):
    """Counts tokens locally and exactly."""

    async def count(
        self, request: ModelRequest, model: str, *, stored_count: int = 0, stored: Stored | None = None
    ) -> RequestCount:
        """Count a request for a model; large new text is counted off the event loop.

        :param stored_count: the number of leading non-system messages that are stored with their counts
        :param stored: reads those counts; used if this process does not have many of them
        :raises TokenizerFailed: FR-5.2.1, nothing is approximated
        """
        ...

    def count_message(self, message: Message, model: str) -> int:
        """Count one message, with its overhead."""
        ...

    def count_text(self, text: str, model: str) -> int:
        """Count a text without any overhead."""
        ...

    def rank_of(self, word: str, model: str) -> int | None:
        """Return the place of a word in the tokenizer's vocabulary, which lists frequent ones first.

        None if it is not one token, or the vocabulary is missing.
        """
        ...

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        """Return the longest beginning of ``text`` of at most ``max_tokens`` tokens, whole characters only."""
        ...
