"""A ledger carried verbatim, and a model's narrative around it.

Beside ``extractive`` and ``llm``, whom it does not know: the narrator comes in as a port. The ledger goes
from summary to summary outside the prose, because free-form summaries lose their rules within a few rounds.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cached_property

from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.ports import Summarizer, SummaryTask, TokenCounter
from proxy.summarizers.fitting import cut_to_bound, fitting_lines, is_large
from proxy.summarizers.ledger import entry_text, ledger_of, render_ledger
from proxy.summarizers.transcript import NARRATIVE

_LEDGER_SHARE = 0.4
"""Of the bound; what it leaves is the narrative's."""
_LEAST_NARRATIVE_TOKENS = 48
"""Below this no prose says anything: the ledger takes the whole bound."""
_NOTHING = "Nothing was said."


class HybridSummarizer:
    """Ledger and narrative. Holds no state."""

    def __init__(self, counter: TokenCounter, narrator: Summarizer) -> None:
        self._counter = counter
        self._narrator = narrator

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """What its summaries depend on: these rules and the narrator's."""
        own = self._narrator.recipe
        return SummaryRecipe("hybrid", own.template, version=3, model=own.model)

    async def summarize(self, task: SummaryTask) -> str:
        """The ledger within its share, then the narrator's text in what is left.

        :raises SummaryRejected, UpstreamError: the narrator gave no usable text
        """
        noted, told = _split(task.previous)
        narrated = int(task.max_tokens * (1 - _LEDGER_SHARE)) >= _LEAST_NARRATIVE_TOKENS
        share = int(task.max_tokens * _LEDGER_SHARE) if narrated else task.max_tokens
        if is_large(task):
            ledger = await asyncio.to_thread(self._ledger, task, noted, share)
        else:
            ledger = self._ledger(task, noted, share)
        if not narrated:
            return ledger or cut_to_bound(f"{NARRATIVE}\n{told}" if told else _NOTHING, task, self._counter)
        frame = f"{ledger}\n{NARRATIVE}\n".lstrip()
        left = task.max_tokens - self._counter.count_text(frame, task.model) - 1
        narrative = await self._narrator.summarize(replace(task, previous=told, max_tokens=left))
        return cut_to_bound(frame + narrative.strip(), task, self._counter)

    def _ledger(self, task: SummaryTask, noted: str, max_tokens: int) -> str:
        ledger = ledger_of(task.messages, noted, request_chars=max_tokens * 3 // 2, open_chars=max_tokens * 2)
        lines = list(ledger.lines())
        texts = [entry_text(kind, entry) for kind, entry in lines]
        text = render_ledger(lines[index] for index in fitting_lines(texts, task, self._counter, max_tokens))
        if not text and lines:
            text = ": ".join(lines[0])
        return cut_to_bound(text, task, self._counter, max_tokens)


def _split(previous: str | None) -> tuple[str, str | None]:
    """An earlier summary's ledger and its prose; of another strategy's summary, all of it is both.

    No entry of the ledger is a line of its own that reads like the mark, so the first one is the mark. What
    stands behind it is a model's: it never becomes a rule of the user.
    """
    if not previous:
        return "", None
    ledger, mark, narrative = f"\n{previous}\n".partition(f"\n{NARRATIVE}\n")
    return ledger, (narrative if mark else previous).strip() or None
