"""Thinking that a provider binds to what stood before it, and how a dialect reads and removes it.

From some models on, a signed thinking block is valid only behind the exact system text, tools and messages that it was
made behind. ``pipeline/bound_thinking.py`` keeps requests within that rule (docs/adr/0030). Source: Anthropic's guides
"Preserved thinking" and "Prefix checks on thinking blocks".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

KEY_BYTES = 8
"""Of the digest that names an answer's thinking, and of the digest of the prefix behind which it was made."""
MOST_BINDINGS = 1024
"""Bindings that a conversation keeps, the newest; ``record.lua`` has the same bound in bytes. Those before a
compaction are of use for a rewind only."""
SEALED = "tidemark.thinking:"
"""Begins ``encrypted_content`` of Responses that holds signed blocks, as JSON in base64."""
SIGNATURE = "extra_content"
"""The member of a call with Gemini's signature. Of the calls of an answer, it wants the first signed."""
ANY_SIGNATURE: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    SIGNATURE: {"google": {"thought_signature": "skip_thought_signature_validator"}}
}
"""What Gemini takes in place of a signature that is lost. Source: Google's guide "Thought signatures", "FAQs"."""
NOWHERE = bytes(KEY_BYTES)
"""In the place of a prefix: the upstream refused this thinking behind the client's own bytes."""
BINDING = b"bound to a different conversation"
"""In the words of a refusal of thinking that stands behind another prefix."""
REMEMBERED_NAMES = 1024
_FLOORS = {"fable": (5, 1), "mythos": (5, 0), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}
"""The first version of each family that checks ("Preserved thinking", "Supported models")."""
_NAME = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?![\d.])")
_BEFORE = re.compile(r"claude-(?:\d|instant|v\d)")
"""Names of the time when the version came first: ``claude-3-5-sonnet``."""


@lru_cache(maxsize=REMEMBERED_NAMES)
def checks_thinking(model: str) -> bool | None:
    """Return whether a model checks what its thinking stands behind; None if its name does not say so."""
    match = _NAME.search(model.lower())
    if match is None or match[1] not in _FLOORS:
        return False if _BEFORE.search(model.lower()) else None
    return (int(match[2]), int(match[3] or 0)) >= _FLOORS[match[1]]


class ThinkingFormat(Protocol):
    """How a dialect finds signed thinking in the bytes of a request, and removes it.

    An element is one member of the request's array of messages, in its bytes.
    """

    is_native: bool
    """Whether the dialect's own providers bind thinking; in others only models of known names are watched."""
    head: Sequence[str]
    """The members beside the messages that thinking is bound to."""
    beta: bytes
    """The value of ``anthropic-beta`` with which an upstream is told to drop thinking itself."""

    def is_in(self, data: bytes) -> bool:
        """Return whether there may be thinking in these bytes, without a parse."""
        ...

    def members(self, body: bytes) -> Mapping[str, bytes]:
        """Return the members of a request's body."""
        ...

    def elements(self, fields: Mapping[str, bytes]) -> Sequence[bytes]:
        """Return the elements of a request's messages."""
        ...

    def joined(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> bytes:
        """Write a body with other elements."""
        ...

    def key_of(self, element: bytes) -> bytes:
        """Return the digest that names an answer's thinking; empty for an element without any."""
        ...

    def without(self, element: bytes) -> bytes:
        """Return an element without its thinking."""
        ...

    def meaning(self, data: bytes) -> bytes:
        """Return a digest of a member or an element, of all that thinking is bound to."""
        ...

    def demanded(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> int:
        """Return the place from which on the upstream demands thinking where it was; the end if it does not."""
        ...

    def dropping(self, fields: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return members that tell the upstream to drop invalid thinking; with ``beta``."""
        ...

    def refused_place(self, body: bytes) -> int | None:
        """Return the place of the first element whose thinking is refused: behind another prefix, or as nobody's.

        None if the refusal is about something else.
        """
        ...

    def is_binding(self, body: bytes) -> bool:
        """Return whether such a refusal says that the thinking stands behind another prefix."""
        ...
