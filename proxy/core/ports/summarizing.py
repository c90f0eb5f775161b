"""Writing a summary: what the flow needs of ``proxy/summarizers``, and what a strategy is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.core.conversation.messages import Message
from proxy.core.conversation.request import CachedPrefix
from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.planning.budget import ModelProfile
from proxy.core.ports.upstream import Caller, Route


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """What a summarizer is given."""

    messages: Sequence[Message]
    """The messages to stand for, oldest first; system messages only where they found no room of their own."""
    previous: str | None
    """The text of the summary that came before and must be taken in (FR-1.4.2)."""
    max_tokens: int
    """Bound of the text; the summarizer keeps it, and the compactor checks it."""
    model: str
    """The conversation's model: tokens are counted as it counts them."""
    route: Route | None = None
    """Where the conversation's model is served; None outside a request (``tidemark compact``)."""
    caller: Caller | None = None
    timeout_seconds: float = 60.0
    live: CachedPrefix | None = None
    """The same conversation as it is forwarded, for a summarizer that is to continue the provider's prompt cache."""


class Summarizer(Protocol):
    """A strategy. It returns text or raises; it stores nothing and renders nothing."""

    @property
    def recipe(self) -> SummaryRecipe:
        """What its summaries depend on."""
        ...

    async def summarize(self, task: SummaryTask) -> str:
        """A text that stands for ``previous`` and ``messages``, of at most ``max_tokens`` tokens.

        :raises SummaryRejected, UpstreamError: there is no usable summary
        """
        ...


ChooseSummarizer = Callable[[ModelProfile, Route], Summarizer]
"""Returns the summarizer that a model's policy names; ``app`` knows them all."""
