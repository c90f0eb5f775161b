"""The plainest summary: the open request, the earlier summary's lines, and the beginnings of the newest messages.

Beside the other strategies, and what stands in for them where a text took too long to read. It reads no more of any
message than it may keep, so its time depends on the number of messages and on its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cached_property

from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.ports import SummaryTask, TokenCounter
from proxy.summarizers.fitting import cut_to_bound, is_large
from proxy.summarizers.request import REQUEST, carried
from proxy.summarizers.transcript import join_line, read_back, shortened, utterances

_EARLIER_SHARE, _REQUEST_SHARE = 0.5, 0.2
"""Of the bound that the earlier summary's lines and the open request may take."""
_LINE_CHARS = 200
"""Of each message: its beginning and its end."""
_REQUEST_CHARS = 4
"""Characters of the request for a token of its share."""
_READ_CHARS = 20_000
"""A message with a longer text is cut before it is looked at."""
_NOTHING = "Nothing was said."


class PlainSummarizer:
    """Keeps lines without weighing them. Holds no state."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """What its texts depend on; they are kept under the recipe of the strategy that they stand in for."""
        return SummaryRecipe("extractive", "plain", version=1)

    async def summarize(self, task: SummaryTask) -> str:
        """The newest lines within the bound, behind those of the earlier summary; a large task in a thread."""
        return await asyncio.to_thread(self._summarize, task) if is_large(task) else self._summarize(task)

    def _summarize(self, task: SummaryTask) -> str:
        lines = [*_request_line(task), *self._earlier(task)]
        lines += self._newest(task, task.max_tokens - sum(map(self._cost_for(task), lines)))
        return cut_to_bound("\n".join(lines), task, self._counter) or cut_to_bound(_NOTHING, task, self._counter)

    def _cost_for(self, task: SummaryTask) -> Callable[[str], int]:
        """Tokens of a line and its end."""
        return lambda line: self._counter.count_text(line, task.model) + 1

    def _earlier(self, task: SummaryTask) -> Iterator[str]:
        """The earlier summary's lines from its beginning on, where what is most important stands."""
        left, cost = _EARLIER_SHARE * task.max_tokens, self._cost_for(task)
        for one in read_back(task.previous or ""):
            if one.speaker != REQUEST:
                line = join_line(one.speaker, one.text)
                left -= cost(line)
                if left < 0:
                    return
                yield line

    def _newest(self, task: SummaryTask, left: int) -> list[str]:
        """A line for each of the newest messages, oldest first.

        :param left: tokens that they may take
        """
        lines: list[str] = []
        cost = self._cost_for(task)
        for message in reversed(task.messages):
            for one in reversed(list(utterances([message]))):
                line = join_line(one.speaker, shortened(_beginning(one.text), _LINE_CHARS))
                left -= cost(line)
                if left < 0:
                    return lines[::-1]
                lines.append(line)
        return lines[::-1]


def _beginning(text: str) -> str:
    if len(text) > 2 * _READ_CHARS:
        text = f"{text[:_READ_CHARS]} … {text[-_READ_CHARS:]}"
    return " ".join(text.split())


def _request_line(task: SummaryTask) -> list[str]:
    """The user's last request, or the one that the earlier summary carries."""
    most = max(40, int(task.max_tokens * _REQUEST_SHARE * _REQUEST_CHARS))
    for message in reversed(task.messages):
        if message.role == "user" and message.text.strip():
            return [join_line(REQUEST, shortened(_beginning(message.text), most))]
    request = carried(task.previous)
    return [join_line(REQUEST, shortened(request.text, most))] if request else []
