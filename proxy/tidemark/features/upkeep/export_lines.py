"""Defines the lines of an exported store: JSON, in Zstandard frames.

``exporting.py`` writes them and ``importing.py`` reads them. Each frame ends with a checkpoint, whose checksum covers
all records so far, and the last frame with the line ``end``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from tidemark.store.whole_store import ScanState

FORMAT = 1
"""The version of the format. A reader refuses a newer one."""
_START = b"\0" * 32


class Header(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="line", tag="header"):
    """The first line."""

    format: int
    schema: int
    """That of the store (``schema.py``)."""
    version: str
    """Of Tidemark."""
    created_at: float
    store: str
    """The epoch of the store: by it a later run knows that it goes on with the same store."""
    digests: str = ""
    """The mark of the key of its digests; empty without one."""


class PendingEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a stream that was delivered to a group's consumer and not acknowledged."""

    id: str
    consumer: str
    idle_milliseconds: int
    deliveries: int


class StreamGroup(msgspec.Struct, frozen=True):
    """A group of a stream."""

    name: str
    last_id: str
    """The last one that was delivered."""
    waiting: int
    """How many entries follow; -1 if the server could not tell."""
    pending: Sequence[PendingEntry]


class ExportedKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key, or a page of a large one."""

    key: str
    """The bytes of the name, one character for each (ISO 8859-1)."""
    type: str
    items: Sequence[bytes] = ()
    """Base64: the string; elements of a list or a set; field, value, ... of a hash; member, score, ... of a sorted set.
    """
    expires_at: int = 0
    """Unix milliseconds; 0 for no limit."""
    entries: Sequence[tuple[str, Sequence[bytes]]] = ()
    """Of a stream: id and field, value, ..."""
    groups: Sequence[StreamGroup] = ()
    last_id: str = ""
    """The newest id of a stream that ever was."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="line", tag="record"):
    """What belongs together: all keys of one conversation as they were at one instant, or one other key."""

    keys: Sequence[ExportedKey]
    conversation: str = ""
    """The conversation's own part of its id."""


class Checkpoint(msgspec.Struct, frozen=True, tag_field="line", tag="checkpoint"):
    """The end of a frame."""

    records: int
    keys: int
    """Both from the beginning of the file."""
    sha256: str
    scan: ScanState
    """How far the export is; a later run goes on from here."""


class End(msgspec.Struct, frozen=True, tag_field="line", tag="end"):
    """The last line of a complete file."""

    records: int
    keys: int
    sha256: str


Line = Header | Record | Checkpoint | End
_encode = msgspec.json.Encoder().encode
_DECODER = msgspec.json.Decoder(Line)


def write_line(line: Line) -> bytes:
    """Return a line with its end."""
    return _encode(line) + b"\n"


def read_lines(content: bytes) -> list[tuple[bytes, Line]]:
    """Return the lines of a frame, each with its bytes.

    :raises ValueError: one is no line of this format
    """
    return [(text + b"\n", _DECODER.decode(text)) for text in content.splitlines()]


class Checksum:
    """The checksum of all records so far. It can go on from its last value. Mutable: that value."""

    def __init__(self, value: str = "") -> None:
        self._before = bytes.fromhex(value) if value else _START
        self._hash = hashlib.sha256(self._before)

    def add(self, line: bytes) -> None:
        self._hash.update(line)

    def end_frame(self) -> str:
        """Return the checksum of all frames so far: SHA-256 of the one before and of this frame's lines."""
        value = self._hash.hexdigest()
        self._hash = hashlib.sha256(self._hash.digest())
        return value
