"""Has the conversation's own provider write the summary, and another strategy if that is not possible.

It is the strategy ``native``. The part that asks the provider is a port (``pipeline/native_compaction.py``), because it
needs the request as it is forwarded. It imports neither ``extractive`` nor ``hybrid``: both are ports.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from tidemark.core.conversation.summary import SummaryRecipe, SummaryText
from tidemark.core.errors import SummaryRejected, UpstreamError
from tidemark.core.ports import Summarizer, SummaryTask

_NO_REQUEST = "there is no request to go on from"


class NativeSummarizer:
    """Asks the provider; holds no state.

    :param substitute: writes if the provider does not
    :param reader: writes the text of a summary that the provider has sealed, for everybody else
    """

    def __init__(self, substitute: Summarizer, reader: Summarizer) -> None:
        self._substitute = substitute
        self._reader = reader

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """Return what its summaries depend on: the provider, and the substitute."""
        own = self._substitute.recipe
        return SummaryRecipe("native", own.template, version=own.version, model=own.model)

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Return the provider's summary, or the substitute's with a warning that says why.

        :raises SummaryRejected, UpstreamError, SummaryOverdue: the substitute gave no usable text
        """
        if task.ask_provider is None:
            return await self._substituted(task, _NO_REQUEST)
        try:
            draft = await task.ask_provider()
        except (SummaryRejected, UpstreamError) as error:
            return await self._substituted(task, str(error).rstrip("."))
        if draft.text:
            return draft
        readable = await self._reader.summarize(task)
        return replace(draft, text=readable.text)

    async def _substituted(self, task: SummaryTask, reason: str) -> SummaryText:
        draft = await self._substitute.summarize(task)
        return replace(draft, warning=f"the provider wrote no summary ({reason}); this one is {draft.made_by}")
