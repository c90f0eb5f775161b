"""Measures the memory of a parsed message, for the caches of the parsers and of ``prefix_reuse.py``."""

from __future__ import annotations

from sys import getsizeof

from tidemark.core.conversation.messages import DIGEST_BYTES, Message

ENTRY_BYTES = 190
"""The memory of a message without its parts: the object and its place in a cache (CPython 3.11, measured)."""
_BARE_BYTES = ENTRY_BYTES + 2 * getsizeof(None) + getsizeof(()) + getsizeof(bytes(DIGEST_BYTES)) + getsizeof(b"")
"""The memory of a message that has a text only, without that text and the bytes of ``raw``."""


def message_bytes(message: Message) -> int:
    """Return the memory that a cached message takes.

    It is measured, because the length does not show it: a text with an emoji takes four bytes a character, and small
    objects take twenty times their JSON.
    """
    if not message.calls and not message.media and message.name is None and message.answers is None:
        # Nearly always. The absent parts are shared by all messages.
        return _BARE_BYTES + len(message.raw) + getsizeof(message.text)
    size = ENTRY_BYTES
    parts: list[object] = [message.raw, message.text, message.name, message.answers, message.digest, message.media]
    for call in message.calls:
        parts += [call, call.id, call.name, call.arguments]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        size += getsizeof(part)
    return size
