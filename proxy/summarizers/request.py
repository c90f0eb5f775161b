"""Finds the open request, the user's last message, and carries it from summary to summary word for word.

All strategies use it. In an agent's loop hundreds of tool rounds follow one message of the user. Once that message is
summarized, nothing else says what the rounds are for.
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
"""The most characters of a request that has an answer, about 150 tokens."""
_OPEN_CHARS = 8000
"""The most characters of a request without an answer, about 2000 tokens: a task with the report that it brought."""
_LEAST_CHARS = 40
_REPEATED = re.compile(rf"^[ \t*•-]*{REQUEST}\**:.*\n?", re.MULTILINE)
"""A line in which the narrator repeats the request from the earlier summary; beside the user's words it would
mislead."""


@dataclass(frozen=True, slots=True)
class Request:
    """The user's last message among those that are summarized."""

    text: str
    """The message's text on one line."""
    answered: bool
    """Whether an assistant's message without tool calls came after it."""

    def within(self, answered_chars: int, open_chars: int) -> str:
        """Return the text, or the beginning and the end of a longer one.

        :param answered_chars: the most characters of an answered request, for which few are enough
        :param open_chars: the most characters of a request without an answer
        """
        max_chars = min(_ANSWERED_CHARS, answered_chars) if self.answered else min(_OPEN_CHARS, open_chars)
        return shortened(self.text, max(_LEAST_CHARS, max_chars))


def request_of(messages: Sequence[Message]) -> Request | None:
    """Return the last request among messages that are new to a summary."""
    answered = False
    for message in reversed(messages):
        if message.role == "user" and (utterance := next(iter(utterances([message])), None)):
            return Request(" ".join(utterance.text.split()), answered)
        answered = answered or (message.role == "assistant" and not message.calls and bool(message.text))
    return None


def carried_request(previous: str | None) -> Request | None:
    """Return the request that an earlier summary carries."""
    lines = (line.text for line in read_back(previous or "") if line.speaker == REQUEST and line.text)
    return next((Request(text, answered=False) for text in lines), None)


class CarriesRequest:
    """Puts the open request, word for word, and a mark before another strategy's prose; holds no state.

    The mark is not for the narrator: it keeps the next summary from reading the prose as lines of speakers.
    """

    def __init__(self, counter: TokenCounter, narrator: Summarizer) -> None:
        self._counter = counter
        self._narrator = narrator

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """Return the narrator's recipe with its version raised by two: the request and the mark."""
        own = self._narrator.recipe
        return replace(own, version=own.version + 2)

    async def summarize(self, task: SummaryTask) -> str:
        """Return the request's line and the mark, and the narrator's text in the rest of the bound.

        :raises SummaryRejected, UpstreamError: the narrator gave no usable text, or nothing but the request
        """
        request = request_of(task.messages) or carried_request(task.previous)
        frame, tokens = self._frame(request, task)
        free = max(task.max_tokens - tokens, 1)
        prose = await self._narrator.summarize(replace(task, previous=_unmarked(task.previous), max_tokens=free))
        prose = _REPEATED.sub("", prose).strip()
        if not prose:
            raise SummaryRejected("the summarizer only repeated the open request")
        return frame + prose

    def _frame(self, request: Request | None, task: SummaryTask) -> tuple[str, int]:
        """Return request and mark, and their tokens: at most half of the bound, so that the prose gets the rest."""
        max_tokens, chars = task.max_tokens // 2, task.max_tokens * 3 // 2
        while True:
            line = join_line(REQUEST, request.within(min(chars, task.max_tokens), chars)) + "\n" if request else ""
            frame = f"{line}{NARRATIVE}\n"
            tokens = self._counter.count_text(frame, task.model)
            if request is None or tokens <= max_tokens or chars <= _LEAST_CHARS:
                return frame, tokens
            chars = max(_LEAST_CHARS, chars * 3 // 4)


def _unmarked(previous: str | None) -> str | None:
    """Return an earlier summary as the narrator reads it, without the mark."""
    return f"\n{previous}\n".replace(f"\n{NARRATIVE}\n", "\n", 1).strip() if previous else previous
