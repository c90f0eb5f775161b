"""Writes a summary without weighing: the open request, lines of the earlier summary, and the newest messages.

``Compactor`` uses it in place of another strategy if the messages took too long to read. It reads no more of a
message than it may keep, so its time depends on the number of messages and on its bound only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cached_property

from tidemark.core.conversation.summary import SummaryRecipe, SummaryText
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers.fitting import cut_to_bound, is_large
from tidemark.summarizers.request import REQUEST, carried_request
from tidemark.summarizers.transcript import join_line, read_back, shortened, utterances

_EARLIER_SHARE, _REQUEST_SHARE = 0.5, 0.2
"""Shares of the bound for the earlier summary's lines and for the open request."""
_LINE_CHARS = 200
"""Characters of each message: its beginning and its end."""
_REQUEST_CHARS = 4
"""Characters of the request for each token of its share."""
_READ_CHARS = 20_000
"""Characters of a message's beginning and of its end; the rest of a longer text is not read."""
_NOTHING = "Nothing was said."


class PlainSummarizer:
    """Keeps lines without weighing them; holds no state."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """Return what its texts depend on; they are stored under the recipe of the strategy that they replace."""
        return SummaryRecipe("extractive", "plain", version=1)

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Return the earlier summary's lines and the newest lines within the bound; a large task runs in a thread."""
        text = await asyncio.to_thread(self._summarize, task) if is_large(task) else self._summarize(task)
        return SummaryText(text, "extractive")

    def _summarize(self, task: SummaryTask) -> str:
        lines = [*_request_line(task), *self._earlier(task)]
        lines += self._newest(task, task.max_tokens - sum(map(self._cost_for(task), lines)))
        return cut_to_bound("\n".join(lines), task, self._counter) or cut_to_bound(_NOTHING, task, self._counter)

    def _cost_for(self, task: SummaryTask) -> Callable[[str], int]:
        """Return a function that counts the tokens of a line and its end."""
        return lambda line: self._counter.count_text(line, task.model) + 1

    def _earlier(self, task: SummaryTask) -> Iterator[str]:
        """Yield the earlier summary's lines from the beginning, where the most important ones stand."""
        free, cost = _EARLIER_SHARE * task.max_tokens, self._cost_for(task)
        for utterance in read_back(task.previous or ""):
            if utterance.speaker != REQUEST:
                line = join_line(utterance.speaker, utterance.text)
                free -= cost(line)
                if free < 0:
                    return
                yield line

    def _newest(self, task: SummaryTask, free: int) -> list[str]:
        """Return a line for each of the newest messages, oldest first.

        :param free: tokens that the lines may take
        """
        lines: list[str] = []
        cost = self._cost_for(task)
        for message in reversed(task.messages):
            for utterance in reversed(list(utterances([message]))):
                line = join_line(utterance.speaker, shortened(_ends_of(utterance.text), _LINE_CHARS))
                free -= cost(line)
                if free < 0:
                    return lines[::-1]
                lines.append(line)
        return lines[::-1]


def _ends_of(text: str) -> str:
    """Return a text on one line; the beginning and the end of a very long one."""
    if len(text) > 2 * _READ_CHARS:
        text = f"{text[:_READ_CHARS]} … {text[-_READ_CHARS:]}"
    return " ".join(text.split())


def _request_line(task: SummaryTask) -> list[str]:
    """Return the line of the user's last request, or of the one that the earlier summary carries."""
    max_chars = max(40, int(task.max_tokens * _REQUEST_SHARE * _REQUEST_CHARS))
    for message in reversed(task.messages):
        if message.role == "user" and message.text.strip():
            return [join_line(REQUEST, shortened(_ends_of(message.text), max_chars))]
    request = carried_request(task.previous)
    return [join_line(REQUEST, shortened(request.text, max_chars))] if request else []
