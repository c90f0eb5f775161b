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
from tidemark.core.receipt import Detail, Receipt

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
    """Whether ``extractive`` may drop empty words if not every sentence fits."""
    reading: Reading | None = None
    """What was read of the texts so far, for the next reader of this compaction."""
    live: CachedPrefix | None = None
    """The conversation as it is forwarded, for a summarizer that uses the provider's prompt cache."""
    ask_provider: AskProvider | None = None
    """Asks the provider, for the strategy ``native``; None if no client's request is there to go on from."""


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


class SummaryComparison(Protocol):
    """Compares summaries with what they stand for."""

    async def receipt(
        self,
        messages: Sequence[Message],
        previous: PrefixSummary | None,
        draft: SummaryText,
        reading: Reading | None = None,
    ) -> Receipt:
        """Return the receipt of a text that stands for ``previous`` and ``messages``; empty if it takes too long.

        :param reading: what the strategy has read of the same messages
        """
        ...

    async def details(
        self, messages: Sequence[Message], previous: str, text: str, *, by_model: bool = False
    ) -> Sequence[Detail]:
        """Return what was said in ``previous`` and ``messages``, and what became of it in ``text``.

        :param previous: an earlier summary's source
        :param by_model: whether a model wrote of it, so that what nobody said is a detail, too
        :raises SummaryOverdue: the comparison took too long
        """
        ...


ChooseSummarizer = Callable[[ModelProfile, Route], Summarizer]
"""Returns the summarizer that a model's policy names; ``app`` knows them all."""
