"""Appends to the audit log, a stream in the store, and reads it.

The server's guard (``server/guarding.py``) and the commands append; ``features/audit`` reads and verifies. An entry is
added in one round trip, if its writer knows the newest one: several workers try again until they do. An entry's id in
the stream is its number. ADR 0043 gives the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tidemark.core.audit_chain import (
    HEAD_LOST,
    NO_SIGNATURE,
    TRIMMED,
    AuditEntry,
    ChainHead,
    ChainKey,
    StoredEntry,
    bounded,
    read_entry,
    read_head,
)
from tidemark.core.errors import StoreUnavailable
from tidemark.core.events import Audited
from tidemark.core.frozen import frozen
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

MAX_TRIES = 200
"""So often an entry is tried while others append; each loses to one that was added."""
PAGE = 500
DAY_MS = 86_400_000
TRIM_MS = 3_600_000
"""How often a worker looks for entries that are too old."""
_ADD = lua(__file__, "audit_add")


@frozen
class _End:
    """The end of the log, as the store had it."""

    packed_head: bytes = b""
    place: bytes = b""
    """The id of the last entry; empty if there is none."""
    entry: ChainHead = ChainHead()
    """The last entry's number and signature."""
    top: int = 0
    """The highest number that the stream ever had, if it takes no lower one; else 0."""

    @property
    def head(self) -> ChainHead:
        return read_head(self.packed_head) or ChainHead()

    @property
    def newest(self) -> ChainHead:
        """What a new entry follows: the head or, if that was set back or lost, the last entry."""
        newest = max(self.head, self.entry, key=lambda head: head.number)
        return ChainHead(max(newest.number, self.top), newest.signature)


class AuditLog:
    """The log. Its state is the end that it knows; all else is the server's.

    Every method raises ``StoreUnavailable`` if the store does not answer in time.

    :param clock: Unix time in seconds
    :param keep_days: the age at which entries are deleted; None: never
    """

    def __init__(
        self,
        ask: Ask,
        secret: bytes,
        *,
        worker: str,
        clock: Callable[[], float],
        keep_days: int | None = None,
    ) -> None:
        self._ask = ask
        self.key = ChainKey(secret)
        self._worker = worker
        self._clock = clock
        self._keep_ms = None if keep_days is None else keep_days * DAY_MS
        self._end = _End()
        self._trim_at = 0
        self._lock = asyncio.Lock()

    async def append(self, fact: Audited) -> ChainHead:
        """Append an entry, and return it once the store has it.

        :raises StoreUnavailable: it is not known to be appended
        """
        async with self._lock:
            head = await self._append(fact)
            if self._keep_ms is not None and self._now() >= self._trim_at:
                await self._trim(self._now() - self._keep_ms)
                self._trim_at = self._now() + TRIM_MS
            return head

    def _now(self) -> int:
        return int(self._clock() * 1000)

    async def _append(self, fact: Audited, removed: int = 0) -> ChainHead:
        """Append an entry as soon as nobody else does.

        :param removed: the number of the last entry that is deleted with it
        """
        for _ in range(MAX_TRIES):
            known_end = self._end
            actual = await self._add(fact, known_end, removed)
            if actual is None:
                return self._end.head
            lost = _lost(known_end, actual)
            self._end = actual
            if lost is not None and await self._add(Audited(HEAD_LOST, "operator", subject=lost), actual, 0) is None:
                continue
        raise StoreUnavailable("The audit log is appended to by too many at once.")

    async def _add(self, fact: Audited, known_end: _End, removed: int) -> _End | None:
        """Add an entry after the end that is known; return the actual end if it is another one."""
        before = known_end.newest
        plain = AuditEntry(before.number + 1, self._now(), self._worker, self.key.id, bounded(fact)).plain()
        head = ChainHead(before.number + 1, self.key.sign(before.signature, plain))
        packed, place = self.key.pack_head(head), f"{head.number}-0".encode()
        stays = head.number - removed if removed else 0
        entry = (plain, head.signature)
        found_end = await self._ask(
            "EVAL", _ADD, 1, keys.AUDIT, known_end.packed_head, known_end.place, place, *entry, packed, stays
        )
        if found_end is not None:
            return self._read_end(*found_end)
        self._end = _End(packed, place, head)
        return None

    def _read_end(self, packed_head: bytes, last: Sequence[Any], top: bytes) -> _End:
        highest = int(top.partition(b"-")[0] or 0)
        if not last:
            return _End(packed_head, top=highest)
        stored = self._read(*last)
        number = last[0].partition(b"-")[0]
        signature = stored.signature if len(stored.signature) == len(NO_SIGNATURE) else NO_SIGNATURE
        return _End(packed_head, last[0], ChainHead(int(number), signature), highest)

    async def _trim(self, oldest: int) -> None:
        """Delete the entries before a time, and append which was the last of them."""
        last: ChainHead | None = None
        async for stored in self.stored():
            entry = read_entry(stored.plain)
            if entry is None or entry.at >= oldest or entry.number >= self._end.head.number:
                break
            last = ChainHead(entry.number, stored.signature)
        if last is not None:
            await self._append(Audited(TRIMMED, "operator", subject=str(last)), last.number)

    async def stored(self, first: int = 1) -> AsyncIterator[StoredEntry]:
        """Yield the entries as the store has them, oldest first.

        :param first: the number of the first one
        """
        start = f"{first}-0"
        while True:
            batch = await self._ask("XRANGE", f"{keys.AUDIT}:s", start, "+", "COUNT", PAGE)
            for place, fields in batch:
                yield self._read(place, fields)
            if len(batch) < PAGE:
                return
            start = f"({batch[-1][0].decode()}"

    async def newest(self, count: int, before: int | None = None) -> Sequence[AuditEntry]:
        """Return the newest entries before a number, newest first; those that cannot be read are left out."""
        last = "+" if before is None else f"({before}-0"
        batch = await self._ask("XREVRANGE", f"{keys.AUDIT}:s", last, "-", "COUNT", count)
        entries = (read_entry(self._read(place, fields).plain) for place, fields in batch)
        return [entry for entry in entries if entry is not None]

    async def packed_head(self) -> bytes:
        """Return the head as the store has it; empty if it has none."""
        packed: bytes | None = await self._ask("GET", f"{keys.AUDIT}:h")
        return packed or b""

    def _read(self, place: bytes, fields: Sequence[bytes]) -> StoredEntry:
        plain = signature = b""
        if len(fields) == 4 and (fields[0], fields[2]) == (b"e", b"s"):
            signature = fields[3]
            plain = fields[1]
        return StoredEntry(place.decode("latin-1"), plain, signature)


def _lost(known_end: _End, actual: _End) -> str | None:
    """Return the head that the store has lost; None if others have only appended."""
    if actual.head != actual.entry or actual.top:
        return f"{actual.head} and the last entry {actual.entry.number}"
    if actual.head.number < known_end.head.number:
        return str(known_end.head)  # a replica without the newest entries took over, or somebody set the store back
    return None
