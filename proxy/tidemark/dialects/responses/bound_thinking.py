"""Finds and removes signed thinking in Responses: reasoning items in which a bridge has sealed it.

``pipeline/bound_thinking.py`` decides by it which thinking goes out; ``upstream/bridges/thinking.py`` seals it. What
OpenAI encrypts is not looked at.
"""

from __future__ import annotations

from tidemark.core.conversation.thinking import SEALED
from tidemark.dialects.raw_json import read_elements
from tidemark.dialects.signed_thinking import SignedThinking, digest_of_text, object_in


class ResponsesThinking(SignedThinking):
    """``ThinkingFormat`` of Responses."""

    def __init__(self) -> None:
        super().__init__("input", ("instructions", "tools"))

    def is_in(self, data: bytes) -> bool:
        """Return whether there is sealed thinking in these bytes."""
        return SEALED.encode() in data

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of the first sealed thinking of an item, or of a turn's items; empty without any."""
        for item in read_elements(b"[" + element + b"]") if self.is_in(element) else ():
            sealed = object_in(item).get("encrypted_content")
            if isinstance(sealed, str) and sealed.startswith(SEALED):
                return digest_of_text(sealed)
        return b""

    def without(self, element: bytes) -> bytes:
        """Return nothing: the whole item is thinking."""
        del element
        return b""
