"""What a parsed message takes in memory. Below the caches of ``body.py`` and ``beginnings.py``."""

from __future__ import annotations

from sys import getsizeof

from proxy.core.conversation.messages import DIGEST_BYTES, Message

ENTRY_BYTES = 190
"""What a message takes beside its parts: the object itself and its place in a cache (CPython 3.11, measured)."""
_BARE_BYTES = ENTRY_BYTES + 2 * getsizeof(None) + getsizeof(()) + getsizeof(bytes(DIGEST_BYTES)) + getsizeof(b"")
"""Of a message that is a text alone, beside that text and the bytes of ``raw``."""


def message_bytes(message: Message) -> int:
    """Memory that a message in the cache takes.

    Text with an emoji in it takes four bytes a letter, and small objects twenty times their JSON, so it is
    measured, not reckoned from the length.
    """
    if not message.calls and not message.media and message.name is None and message.answers is None:
        # Nearly always; what is not there is the same everywhere.
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
