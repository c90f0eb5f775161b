"""Reads what one key holds, a page at a time.

The features ``upkeep`` and ``tenants`` use it, so that no key needs more memory than a page of its elements.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from tidemark.core.frozen import frozen
from tidemark.store.scripts import lua
from tidemark.store.whole_store import WholeStore

ELEMENTS = 200
"""Elements of one page; a message is a kilobyte or a few."""
_PAGE = lua(__file__, "page")


@frozen
class Element:
    """One element of a key."""

    place: bytes
    """Its index, field or id; the element itself in a set and a sorted set; empty for a string."""
    value: bytes
    """A member's score in a sorted set; empty in a set and in a stream."""
    fields: Sequence[bytes] = ()
    """Field, value, ... of an entry of a stream."""


@frozen
class KeyPage:
    """A page of what a key holds."""

    type: str
    """``none`` if there is no such key any more."""
    ttl_milliseconds: int
    """Negative if it has no limit."""
    elements: Sequence[Element]


async def read_pages(store: WholeStore, name: bytes, count: int = ELEMENTS) -> AsyncIterator[KeyPage]:
    """Yield what a key holds. While it changes, an element may come twice, and a new one not at all.

    :param count: elements of a page
    """
    cursor, first = b"", 0
    while True:
        kind, ttl, following, items = await store.call("EVAL", _PAGE, 1, name, cursor, count)
        yield KeyPage(kind.decode(), ttl, _elements(kind.decode(), items, first))
        if not following:
            return
        cursor, first = following, first + len(items)


def _elements(kind: str, items: Sequence[Any], first: int) -> list[Element]:
    match kind:
        case "list":
            return [Element(b"%d" % place, item) for place, item in enumerate(items, first)]
        case "hash" | "zset":
            return [Element(place, value) for place, value in zip(items[::2], items[1::2], strict=True)]
        case "set":
            return [Element(item, b"") for item in items]
        case "stream":
            return [Element(place, b"", fields) for place, fields in items]
        case _:
            return [Element(b"", item) for item in items]
