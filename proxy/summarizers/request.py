"""The open request: what the user asked last, carried from summary to summary in the user's own words.

Below all strategies. In an agent's loop one message of the user is followed by hundreds of tool rounds: once it is
summarized, nothing else tells what all of them are for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from proxy.core.conversation.messages import Message
from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.errors import SummaryRejected
from proxy.core.ports import Summarizer, SummaryTask, TokenCounter
from proxy.summarizers.transcript import NARRATIVE, join_line, read_back, shortened, utterances

REQUEST = "Open request"
"""The speaker of its line in a summary."""
_ANSWERED_CHARS = 600
"""Of a request that has had its answer, about 150 tokens."""
_OPEN_CHARS = 8000
"""Of one that is still worked on, about 2000 tokens: a task with the report that it came with."""
_LEAST_CHARS = 40
_REPEATED = re.compile(rf"^[ \t*•-]*{REQUEST}\**:.*\n?", re.MULTILINE)
"""The line in the narrator's words, who reads it in the summary before: beside the user's own it would only mislead."""


@dataclass(frozen=True, slots=True)
class Request:
    """The user's last message among those that are summarized."""

    text: str
    """On one line."""
    answered: bool
    """Whether an assistant's message that calls no tool came after it."""

    def within(self, answered_chars: int, open_chars: int) -> str:
        """The text, or beginning and end of one that is longer.

        :param answered_chars: most characters when it has been answered; few are enough then
        :param open_chars: most characters while it is worked on
        """
        most = min(_ANSWERED_CHARS, answered_chars) if self.answered else min(_OPEN_CHARS, open_chars)
        return shortened(self.text, max(_LEAST_CHARS, most))


def request_of(messages: Sequence[Message]) -> Request | None:
    """The last request among messages that are new to a summary."""
    answered = False
    for message in reversed(messages):
        if message.role == "user" and (said := next(iter(utterances([message])), None)):
            return Request(" ".join(said.text.split()), answered)
        answered = answered or (message.role == "assistant" and not message.calls and bool(message.text))
    return None


def carried(previous: str | None) -> Request | None:
    """The request that an earlier summary carries."""
    lines = (one.text for one in read_back(previous or "") if one.speaker == REQUEST and one.text)
    return next((Request(text, answered=False) for text in lines), None)


class CarriesRequest:
    """A strategy whose texts begin with the open request, word for word, and are marked as prose behind it.

    The mark is not for the narrator: it is what keeps the next summary from reading the prose as lines of speakers.
    Holds no state.
    """

    def __init__(self, counter: TokenCounter, narrator: Summarizer) -> None:
        self._counter = counter
        self._narrator = narrator

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """The narrator's, two versions on: the request, and the mark."""
        own = self._narrator.recipe
        return replace(own, version=own.version + 2)

    async def summarize(self, task: SummaryTask) -> str:
        """The request's line, then the narrator's text in what is left.

        :raises SummaryRejected, UpstreamError: the narrator gave no usable text, or nothing but the request
        """
        request = request_of(task.messages) or carried(task.previous)
        frame, tokens = self._frame(request, task)
        left = max(task.max_tokens - tokens, 1)
        told = await self._narrator.summarize(replace(task, previous=_unmarked(task.previous), max_tokens=left))
        told = _REPEATED.sub("", told).strip()
        if not told:
            raise SummaryRejected("the summarizer only repeated the open request")
        return frame + told

    def _frame(self, request: Request | None, task: SummaryTask) -> tuple[str, int]:
        """Request and mark, and their tokens: half of the bound at most, so that something else can be told."""
        most, chars = task.max_tokens // 2, task.max_tokens * 3 // 2
        while True:
            line = join_line(REQUEST, request.within(min(chars, task.max_tokens), chars)) + "\n" if request else ""
            frame = f"{line}{NARRATIVE}\n"
            tokens = self._counter.count_text(frame, task.model)
            if request is None or tokens <= most or chars <= _LEAST_CHARS:
                return frame, tokens
            chars = max(_LEAST_CHARS, chars * 3 // 4)


def _unmarked(previous: str | None) -> str | None:
    """An earlier summary as the narrator reads it."""
    return f"\n{previous}\n".replace(f"\n{NARRATIVE}\n", "\n", 1).strip() if previous else previous
