"""What a response of several rounds has in common, streamed or not: one head, one output, one sum of tokens.

``searched_body.py`` and ``searched_stream.py`` read the rounds. The client gets neither the calls of the search
function, nor the reasoning that led to them alone, nor the function among the tools that a response repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.searching import sum_of

Response = Mapping[str, JsonValue]
"""A response object, decoded."""
_HEAD = ("id", "created_at", "model", "tools", "tool_choice")
"""The members that the client has of the first round."""


class ResponseRounds:
    """The rounds of one response: the head of the first, and what those before the present one brought."""

    def __init__(self) -> None:
        self.output: list[JsonValue] = []
        """The client's items of all earlier rounds."""
        self.is_later = False
        """Whether a round came before the present one."""
        self._head: dict[str, JsonValue] = {}
        self._usage: Mapping[str, JsonValue] = {}

    def note_head(self, response: Response) -> None:
        """Keep the head of the first response object."""
        self._head = self._head or {name: response[name] for name in _HEAD if name in response}

    def add(self, items: Iterable[JsonValue], usage: Mapping[str, JsonValue]) -> None:
        """Count a round among those before.

        :param items: of its output
        """
        self.output += clients_items(items, is_over=False)
        self._usage = sum_of(self._usage, usage)
        self.is_later = True

    def joined(self, response: Response, items: Iterable[JsonValue]) -> dict[str, JsonValue]:
        """Return the client's response of all rounds.

        :param response: of the newest round
        :param items: of its output
        """
        members = without_function({**response, **self._head})
        members["output"] = self.output + clients_items(items, is_over=True)
        usage = response.get("usage")
        if isinstance(usage, dict):
            members["usage"] = sum_of(self._usage, usage)
        return members


def is_search(item: Mapping[str, JsonValue]) -> bool:
    """Return whether an item is a call of the search function."""
    return item.get("type") == "function_call" and item.get("name") == FUNCTION_NAME


def is_reasoning(item: Mapping[str, JsonValue]) -> bool:
    """Return whether an item is what the model wrote for itself."""
    return item.get("type") == "reasoning"


def asks_to_search(message: Message | None, status: JsonValue) -> bool:
    """Return whether a round that ended in this state waits for nothing but searches."""
    calls = message.calls if message is not None else ()
    return bool(calls) and all(call.name == FUNCTION_NAME for call in calls) and status in (None, "completed")


def clients_items(items: Iterable[JsonValue], *, is_over: bool) -> list[JsonValue]:
    """Return the items of a round that are the client's; reasoning is, where an item of the client's follows.

    :param is_over: whether no round follows, so that the reasoning at the end is the client's too
    """
    remaining: list[JsonValue] = []
    waiting: list[JsonValue] = []
    for item in items:
        if isinstance(item, dict) and is_reasoning(item):
            waiting.append(item)
        elif not (isinstance(item, dict) and is_search(item)):
            remaining += [*waiting, item]
            waiting = []
    return remaining + waiting if is_over else remaining


def without_function(response: Response) -> dict[str, JsonValue]:
    """Return a response that does not repeat the search function among its tools."""
    members, tools = dict(response), response.get("tools")
    if isinstance(tools, list):
        members["tools"] = [
            tool for tool in tools if not (isinstance(tool, dict) and tool.get("name") == FUNCTION_NAME)
        ]
    return members
