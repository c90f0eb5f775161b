"""Writes a summary of a ledger, which is carried verbatim, and a model's narrative after it.

It is the strategy ``hybrid``. It imports neither ``extractive`` nor ``llm``: the narrator is a port. The narrative has
at least half of the bound, and the model hears how much space that is. The ledger is carried from summary to summary
outside the prose, because free-form summaries lose rules within a few rounds. The ledger does not repeat what the
narrative states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from tidemark.core.conversation.prose import shorten_prose
from tidemark.core.conversation.summary import NARRATIVE, SummaryRecipe, SummaryText
from tidemark.core.ports import Clock, Summarizer, SummaryTask, TokenCounter
from tidemark.summarizers.compared_text import ComparedText
from tidemark.summarizers.deadline import READING_SECONDS, UNBOUNDED, Deadline, in_thread
from tidemark.summarizers.fitting import JOINT_TOKENS, cut_to_bound, fitting_lines, is_large, room_in
from tidemark.summarizers.ledger import EXACT_KINDS, SHARES, entry_text, ledger_of, render_ledger
from tidemark.summarizers.request import REQUEST
from tidemark.summarizers.sentences import words_of

_LEDGER_SHARE, _OPEN_SHARE = 0.25, 0.36
"""The part of the bound that is the ledger's alone, without and with an open request.

A request may be a long task. The model hears that the rest is for its narrative, and seldom fills it.
"""
_REQUEST_CHARS = 0.8
"""Characters of an open request for each token of the bound."""
_MOST_LEDGER_SHARE = 0.5
"""The ledger's share if the narrative left more."""
_LEAST_NARRATIVE_TOKENS = 48
"""With fewer tokens no prose says anything: the ledger takes the whole bound."""
_NOTHING = "Nothing was said."

_Value = TypeVar("_Value")
Entry = tuple[str, str]
"""The kind of a ledger's entry, and its text."""


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
        return SummaryRecipe("hybrid", own.template, version=8, model=own.model)

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Return the ledger and the narrator's text, which is there whole if it keeps to its space.

        :raises SummaryRejected, UpstreamError: the narrator gave no usable text
        :raises SummaryOverdue: the ledger took too long
        """
        task = replace(task, max_tokens=max(task.max_tokens - JOINT_TOKENS, 1))
        earlier, prose = _split(task.previous)
        deadline = Deadline(self._reading_seconds, self._clock) if is_large(task) else UNBOUNDED
        entries = await _run(deadline, self._entries, task, earlier, deadline)
        share = _OPEN_SHARE if any(kind == REQUEST for kind, _ in entries) else _LEDGER_SHARE
        reserved = self._fitting(entries, task, int(share * task.max_tokens))
        # The fitting counts a token for each line's end, which a later one of the same lines must find free.
        frame_tokens = self._counter.count_text(_text(reserved, ""), task.model) + len(reserved)
        free = task.max_tokens - frame_tokens - JOINT_TOKENS
        if free < _LEAST_NARRATIVE_TOKENS:
            return self._without_narrative(entries, prose, task)
        draft = await self._narrator.summarize(replace(task, previous=prose, max_tokens=free))
        shorter = shorten_prose(draft.text, room_in(self._counter, task.model, free))
        left_out = draft.statements_left_out + shorter.left_out
        draft = SummaryText(shorter.text, "hybrid", draft.statements or shorter.statements, left_out)
        return await _run(deadline, self._joined, entries, draft, task, deadline)

    def _without_narrative(self, entries: Sequence[Entry], prose: str | None, task: SummaryTask) -> SummaryText:
        """Return the ledger alone, or what is left of the earlier narrative if there is none."""
        ledger = self._fitting(entries, task, task.max_tokens)
        text = cut_to_bound(render_ledger(ledger or entries[:1]), task, self._counter)
        if text or not prose:
            return SummaryText(text or cut_to_bound(_NOTHING, task, self._counter), "extractive")
        return SummaryText(cut_to_bound(f"{NARRATIVE}\n{prose}", task, self._counter), "hybrid")

    def _joined(
        self, entries: Sequence[Entry], draft: SummaryText, task: SummaryTask, deadline: Deadline
    ) -> SummaryText:
        """Return the narrative with as much of the ledger before it as there is space for, without what it states."""
        narrative = ComparedText(draft.text)
        is_stated = {entry: _is_stated(entry, narrative) for entry in deadline.over(entries)}
        stated = render_ledger(entry for entry in entries if is_stated[entry])
        others = [entry for entry in entries if not is_stated[entry]]
        free = task.max_tokens - self._counter.count_text(_text((), draft.text), task.model)
        ledger = self._fitting(others, task, min(free, int(_MOST_LEDGER_SHARE * task.max_tokens)))
        has_room = room_in(self._counter, task.model, task.max_tokens)
        while ledger and not has_room(_text(ledger, draft.text)):
            ledger.pop()
        return replace(draft, text=_text(ledger, draft.text), stated=stated)

    def _fitting(self, entries: Sequence[Entry], task: SummaryTask, max_tokens: int) -> list[Entry]:
        texts = [(kind, entry_text(kind, entry)) for kind, entry in entries]
        return [entries[index] for index in fitting_lines(texts, SHARES, task, self._counter, max_tokens)]

    def _entries(self, task: SummaryTask, previous: str, deadline: Deadline = UNBOUNDED) -> list[Entry]:
        ledger = ledger_of(
            [*task.earlier, *task.messages],
            "" if task.earlier else previous,
            request_chars=int(_REQUEST_CHARS * task.max_tokens),
            reading=task.reading,
            deadline=deadline,
        )
        return list(ledger.lines())


def _text(ledger: Sequence[Entry], prose: str) -> str:
    return f"{render_ledger(ledger)}\n{NARRATIVE}\n{prose}".lstrip("\n")


def _is_stated(entry: Entry, narrative: ComparedText) -> bool:
    """Return whether a narrative has an entry word for word."""
    kind, text = entry
    words = words_of(text)
    return narrative.has_wording(text, words) if kind in EXACT_KINDS else narrative.has_phrase(words)


async def _run(deadline: Deadline, work: Callable[..., _Value], *arguments: Any) -> _Value:
    """Run work, in a thread if it has a deadline."""
    return work(*arguments) if deadline is UNBOUNDED else await in_thread(deadline, work, *arguments)


def _split(previous: str | None) -> tuple[str, str | None]:
    """Return the ledger and the prose of an earlier summary; another strategy's summary is both as a whole.

    No ledger entry is a line that reads like the mark, so the first such line is the mark. A model wrote what stands
    after it, so that text never becomes a rule of the user.
    """
    if not previous:
        return "", None
    ledger, mark, narrative = f"\n{previous}\n".partition(f"\n{NARRATIVE}\n")
    return ledger, (narrative if mark else previous).strip() or None
