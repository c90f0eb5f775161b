"""Finds and removes signed thinking in chat completions: ``thinking_blocks``, a member that litellm gives and takes.

``pipeline/bound_thinking.py`` decides by it which thinking goes out. Source: litellm's guide "Thinking".
"""

from __future__ import annotations

from tidemark.dialects.bodies import body_of
from tidemark.dialects.raw_json import read_members
from tidemark.dialects.signed_thinking import SignedThinking, digest_of_text, object_in, sealed_text

MEMBER = "thinking_blocks"


class ChatThinking(SignedThinking):
    """``ThinkingFormat`` of chat completions."""

    def __init__(self) -> None:
        super().__init__("messages", ("tools",))

    def is_in(self, data: bytes) -> bool:
        """Return whether there may be thinking in these bytes."""
        return b'"thinking_blocks"' in data

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of an answer's first signature or sealed thinking; empty where it has none."""
        sealed = sealed_text(object_in(element).get(MEMBER)) if self.is_in(element) else ""
        return digest_of_text(sealed) if sealed else b""

    def without(self, element: bytes) -> bytes:
        """Return an answer without its thinking; all other members keep their bytes."""
        members = read_members(element, bounded=False)
        return body_of({name: raw for name, raw in members.items() if name != MEMBER}, {})
