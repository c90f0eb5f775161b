"""The port of summarizers, which ``tidemark/summarizers`` implements, and the task that they are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import CachedPrefix
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe, SummaryText
from tidemark.core.frozen import frozen
from tidemark.core.phrases import Reading
from tidemark.core.planning.budget import ModelProfile
from tidemark.core.ports.upstream import Caller, Route
from tidemark.core.receipt import Receipt

AskProvider = Callable[[], Awaitable[SummaryText]]
"""Has the conversation's own provider write a summary; raises ``SummaryRejected`` or ``UpstreamError``."""


@frozen
class SummaryTask:
    """Everything that a summarizer needs for one summary."""

    messages: Sequence[Message]
    """The messages to summarize, oldest first; a system message only if the summary absorbs it."""
    previous: str | None
    """The previous summary as ``PrefixSummary.source`` gives it, which the new one includes (FR-1.4.2)."""
    max_tokens: int
    """Bound of the text, which the summarizer obeys and the compactor checks."""
    model: str
    """The conversation's model, by whose rules tokens are counted."""
    route: Route | None = None
    """The route of the conversation's model; None outside a request (``tidemark compact``)."""
    caller: Caller | None = None
    timeout_seconds: float = 60.0
    shorten_sentences: bool = True
    """Whether ``extractive`` may drop articles if not every sentence fits."""
    earlier: Sequence[Message] = ()
    """The messages that ``previous`` stands for, if it may be made anew from them; empty if it goes on."""
    reading: Reading | None = None
    """What was read of the texts so far, for the next reader of this compaction."""
    live: CachedPrefix | None = None
    """The conversation as it is forwarded, for a summarizer that uses the provider's prompt cache."""
    ask_provider: AskProvider | None = None
    """Asks the provider, for the strategy ``native``; None if no client's request is there to go on from."""
    conversation: str = ""
    """The conversation that calls of models are billed to; empty for none."""


class Summarizer(Protocol):
    """A strategy that writes summaries. It returns a text or raises, and stores and renders nothing."""

    @property
    def recipe(self) -> SummaryRecipe:
        """Return what its summaries depend on."""
        ...

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Write a text that stands for ``previous`` and ``messages``, of at most ``max_tokens`` tokens.

        :raises SummaryRejected, UpstreamError: there is no usable summary
        """
        ...


WriteReceipt = Callable[[Sequence[Message], PrefixSummary | None, SummaryText, Reading | None], Awaitable[Receipt]]
"""``ReceiptWriter.receipt``, which says what a text has lost of what it stands for."""

ChooseSummarizer = Callable[[ModelProfile, Route], Summarizer]
"""Returns the summarizer that a model's policy names; ``app`` knows them all."""
