"""Seals and opens the lines of daily files, which ``features/memory_flush/daily.py`` writes."""

from __future__ import annotations

import json

from tidemark.core.ports import FlushEntry
from tidemark.store.codec import Codec


def sealed_line(codec: Codec, entry: FlushEntry) -> bytes:
    """Return the line of an entry: its document, or what can be told of a sealed one."""
    if codec.cipher is None:
        return entry.body
    sealed = codec.seal_text(entry.body.decode(), entry.owner or entry.tenant, "daily", entry.key)
    return json.dumps({"key": entry.key, "conversation": entry.conversation, "sealed": sealed}).encode()


def opened_line(codec: Codec, line: bytes) -> bytes:
    """Return the document of a line, sealed or not.

    :raises RecordUnreadable: it was changed, or its key is gone
    """
    fields = json.loads(line) if b'"sealed": "' in line else {}
    if set(fields) != {"key", "conversation", "sealed"}:
        return line
    return codec.open_text(fields["sealed"], "daily", fields["key"]).encode()
