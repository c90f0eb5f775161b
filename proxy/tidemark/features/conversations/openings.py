"""The first words of a conversation: what a list calls it if its client gave it no name.

They are read for each page and stored nowhere. So redaction, encryption, erasure and ``store.keep`` hold for them too.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.keeping import NOT_STORED
from tidemark.core.conversation.messages import Message

OPENING_MESSAGES = 4
"""Agents begin with up to two messages of their own, before the first words of a person."""
OPENING_BYTES = 65_536
"""A message that takes more of the store has no first words: it is a picture or a document."""
MAX_CHARACTERS = 300
_INSTRUCTIONS = "# AGENTS.md instructions"
"""What Codex begins with, before what its user writes."""
_WRAPPERS = ("task", "user_query", "user_message", "feedback")
"""Elements in which agents wrap what a person wrote."""
_LONGEST_TAG = 60
_MOST_BLOCKS = 20
"""Blocks that are left out of one message; each costs as much as the text is long."""


def opening_of(messages: Sequence[Message]) -> str:
    """Return the first words that a person wrote, in one line; empty if none of the messages has any."""
    for message in messages:
        words = _words(message.text) if message.role == "user" else ""
        if words:
            return words
    return ""


def _words(text: str) -> str:
    """Return the text without the blocks that its harness has put before it."""
    rest = text.lstrip()
    if rest.startswith(_INSTRUCTIONS) or rest == NOT_STORED:
        return ""
    for _ in range(_MOST_BLOCKS):
        if not rest.startswith("<"):
            break
        name = rest[1:_LONGEST_TAG].partition(">")[0]
        inner, end, after = rest[len(name) + 2 :].partition(f"</{name}>")
        if name in _WRAPPERS:
            rest = inner.lstrip()
        elif end and {"-", "_"} & set(name) and name.replace("-", "").replace("_", "").isalnum():
            rest = after.lstrip()
        else:
            break
    return " ".join(rest[: 4 * MAX_CHARACTERS].split())[:MAX_CHARACTERS]
