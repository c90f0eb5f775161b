"""Summaries that a provider writes itself, and how a dialect asks for one.

Such a summary goes out in the provider's own form, byte for byte, in the place where the summary message would stand.
Its readable text serves every other model and dialect (docs/adr/0031).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Protocol

from tidemark.core.conversation.messages import JsonValue, Message, digest_of
from tidemark.core.frozen import frozen

REMEMBERED_NAMES = 1024
_FLOORS = {"fable": (5, 0), "mythos": (0, 0), "opus": (4, 6), "sonnet": (4, 6), "haiku": (5, 5)}
"""The first version of each family of Claude that writes summaries ("Compaction on demand", "Compatibility")."""
_NAME = re.compile(r"claude-([a-z]+)-(?:preview|(\d{1,2})(?:[-.](\d{1,2}))?(?![\d.]))")


@frozen
class NativeForm:
    """The form of a summary that its provider wrote: what goes out in place of the summary message."""

    dialect: str
    model: str
    """The upstream's name of the model that wrote it. Another model gets the text."""
    raws: tuple[bytes, ...]
    """The elements of the request's messages, as the provider wrote them."""
    tokens: int = 0
    """The provider's own count of it; 0 if the text's count stands for it."""
    stands_for: bytes = b""
    """Digests of the messages that it replaced, for thinking behind it (``pipeline/bound_thinking.py``)."""

    def messages(self, text: str) -> tuple[Message, ...]:
        """Return the messages that go out.

        :param text: the summary's readable text
        """
        first, *others = self.raws
        messages = [Message(first, "assistant", text, digest_of(b"native", first))]
        return tuple(messages + [Message(raw, "assistant", "", digest_of(b"native", raw)) for raw in others])


@frozen
class NativeAnswer:
    """What a provider answered to the request for a summary."""

    raws: tuple[bytes, ...] = ()
    """The elements; empty if there is no summary."""
    text: str = ""
    """What of it can be read."""
    tokens: int = 0
    reason: str = ""
    """Why there is no summary."""
    usage: Mapping[str, JsonValue] = field(default_factory=dict)
    """The provider's counts of what it read and wrote for it, as it wrote them."""


class NativeFormat(Protocol):
    """How a dialect asks its provider for a summary, and reads the answer."""

    path: str
    """Of the endpoint below the upstream's base URL."""
    beta: bytes
    """The value of ``anthropic-beta`` for that request and for all that carry the summary; empty for none."""
    stands_first: bool
    """Whether the summary must be the first message, so that no system message may stand before it."""

    def asking(self, body: bytes, most_tokens: int) -> bytes:
        """Return the body of the request for a summary.

        :param body: that of a request with the messages to be summarized
        :param most_tokens: the longest reply of the model; 0 if it is unknown
        """
        ...

    def may_carry(self, fields: Mapping[str, bytes]) -> bool:
        """Return whether a request with these members may have a summary of the provider's."""
        ...

    def read(self, body: bytes) -> NativeAnswer:
        """Read the provider's answer."""
        ...

    def is_refused(self, body: bytes) -> bool:
        """Return whether an upstream's refusal of a request is about the summary in it."""
        ...


def may_part(last: Message, first: Message) -> bool:
    """Return whether a provider's summary may end between two messages.

    They must have different roles as the provider sees them, or it would make one message of both. A result is the
    user's. Source: Anthropic's guide "Compaction and preserved thinking", "Conditions for kept thinking to stay valid".
    """
    return (last.role == "assistant") != (first.role == "assistant")


@lru_cache(maxsize=REMEMBERED_NAMES)
def writes_summaries(model: str) -> bool:
    """Return whether a model of Anthropic's writes summaries on demand, by its name; False if that does not say."""
    match = _NAME.search(model.lower())
    if match is None or match[1] not in _FLOORS:
        return False
    return (int(match[2] or 0), int(match[3] or 0)) >= _FLOORS[match[1]]
