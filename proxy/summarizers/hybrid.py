"""Writes a summary of a ledger, which is carried verbatim, and a model's narrative after it.

It is the strategy ``hybrid``. It imports neither ``extractive`` nor ``llm``: the narrator is a port. The ledger is
carried from summary to summary outside the prose, because free-form summaries lose rules within a few rounds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property

from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.ports import Clock, Summarizer, SummaryTask, TokenCounter
from proxy.summarizers.deadline import READING_SECONDS, UNBOUNDED, Deadline, in_thread
from proxy.summarizers.fitting import cut_to_bound, fitting_lines, is_large
from proxy.summarizers.ledger import SHARES, entry_text, ledger_of, render_ledger
from proxy.summarizers.transcript import NARRATIVE

_LEDGER_SHARE = 0.4
"""The ledger's share of the bound; the narrative gets the rest."""
_LEAST_NARRATIVE_TOKENS = 48
"""With fewer tokens no prose says anything: the ledger takes the whole bound."""
_NOTHING = "Nothing was said."


class HybridSummarizer:
    """Writes a ledger and a narrative; holds no state."""

    def __init__(
        self,
        counter: TokenCounter,
        narrator: Summarizer,
        *,
        clock: Clock = time.thread_time,
        reading_seconds: float = READING_SECONDS,
    ) -> None:
        """:param clock: measures ``reading_seconds``, the most time that a large ledger may take"""
        self._counter = counter
        self._narrator = narrator
        self._clock = clock
        self._reading_seconds = reading_seconds

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """Return what its summaries depend on: these rules and the narrator's."""
        own = self._narrator.recipe
        return SummaryRecipe("hybrid", own.template, version=5, model=own.model)

    async def summarize(self, task: SummaryTask) -> str:
        """Return the ledger within its share, and the narrator's text in the rest of the bound.

        :raises SummaryRejected, UpstreamError: the narrator gave no usable text
        :raises SummaryOverdue: the ledger took too long
        """
        ledger_lines, prose = _split(task.previous)
        has_narrative = int(task.max_tokens * (1 - _LEDGER_SHARE)) >= _LEAST_NARRATIVE_TOKENS
        share = int(task.max_tokens * _LEDGER_SHARE) if has_narrative else task.max_tokens
        if is_large(task):
            deadline = Deadline(self._reading_seconds, self._clock)
            ledger = await in_thread(deadline, self._ledger, task, ledger_lines, share, deadline)
        else:
            ledger = self._ledger(task, ledger_lines, share)
        if not has_narrative:
            return ledger or cut_to_bound(f"{NARRATIVE}\n{prose}" if prose else _NOTHING, task, self._counter)
        frame = f"{ledger}\n{NARRATIVE}\n".lstrip()
        free = task.max_tokens - self._counter.count_text(frame, task.model) - 1
        narrative = await self._narrator.summarize(replace(task, previous=prose, max_tokens=free))
        return cut_to_bound(frame + narrative.strip(), task, self._counter)

    def _ledger(self, task: SummaryTask, previous: str, max_tokens: int, deadline: Deadline = UNBOUNDED) -> str:
        ledger = ledger_of(
            task.messages,
            previous,
            request_chars=max_tokens * 3 // 2,
            open_chars=max_tokens * 2,
            reading=task.reading,
            deadline=deadline,
        )
        lines = list(ledger.lines())
        texts = [(kind, entry_text(kind, entry)) for kind, entry in lines]
        text = render_ledger(lines[index] for index in fitting_lines(texts, SHARES, task, self._counter, max_tokens))
        if not text and lines:
            text = ": ".join(lines[0])
        return cut_to_bound(text, task, self._counter, max_tokens)


def _split(previous: str | None) -> tuple[str, str | None]:
    """Return the ledger and the prose of an earlier summary; another strategy's summary is both as a whole.

    No ledger entry is a line that reads like the mark, so the first such line is the mark. A model wrote what stands
    after it, so that text never becomes a rule of the user.
    """
    if not previous:
        return "", None
    ledger, mark, narrative = f"\n{previous}\n".partition(f"\n{NARRATIVE}\n")
    return ledger, (narrative if mark else previous).strip() or None
