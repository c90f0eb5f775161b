"""What a reply of several rounds has in common, streamed or not: one id, one sum of tokens, one text.

``searched_body.py`` and ``searched_stream.py`` read the rounds. The client gets signed thinking of one round at most,
the first whose text it gets or else the last: a provider refuses an answer that comes back with thinking which the
model did not write at once (Anthropic API guide, "Extended thinking").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.searching import sum_of

_HEAD = ("id", "created", "model", "system_fingerprint")
"""The members that are the same in all chunks of a completion."""
_CUT_SHORT = ("length", "content_filter")
"""Reasons to end with which a call is not whole."""
THINKING = "thinking_blocks"
"""Signed thinking, as litellm gives and takes it."""
PARAGRAPH = "\n\n"
"""Stands between the texts of two rounds."""


class RoundsBefore:
    """What the rounds before the present one brought: the head of the first, their text and their tokens."""

    def __init__(self) -> None:
        self.number = 0
        self.head: dict[str, JsonValue] = {}
        self.text = ""
        """Of all earlier rounds, as the client has it."""
        self.usage: Mapping[str, JsonValue] = {}

    def note_head(self, body: Mapping[str, JsonValue]) -> None:
        """Keep the head of the first body or chunk that has one."""
        if not self.head:
            self.head = {name: body[name] for name in _HEAD if name in body}

    def with_head(self, body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a body or chunk with the head of the first, and with the tokens of all rounds."""
        members = {name: self.head.get(name, value) for name, value in body.items()}
        usage = members.get("usage")
        if isinstance(usage, dict) and self.usage:
            members["usage"] = sum_of(self.usage, usage)
        return members

    def separator(self, text: str) -> str:
        """Return what goes before the first text of a round."""
        return PARAGRAPH if self.text and text and not self.text[-1].isspace() and not text[0].isspace() else ""

    def add(self, message: Message | None, usage: Mapping[str, JsonValue]) -> None:
        """Count a round among those before."""
        self.number += 1
        if message is not None:
            self.text += self.separator(message.text) + message.text
        self.usage = sum_of(self.usage, usage)


def is_search(call: Mapping[str, JsonValue]) -> bool:
    """Return whether a call, or what has come of it, is one of the search function."""
    return name_of(call) == FUNCTION_NAME


def name_of(call: Mapping[str, JsonValue]) -> JsonValue:
    """Return the name of a call's function; None where there is none yet."""
    for kind in ("function", "custom"):
        body = call.get(kind)
        if isinstance(body, dict) and body.get("name"):
            return body["name"]
    return None


def asks_to_search(searches: Iterable[bool], reason: JsonValue) -> bool:
    """Return whether a round that ended for this reason waits for nothing but searches.

    :param searches: for each call whether it is one
    """
    calls = list(searches)
    return bool(calls) and all(calls) and reason not in _CUT_SHORT
