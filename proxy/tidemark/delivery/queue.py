"""Queues what leaves the context: a Redis Stream with a group for each consumer.

No request waits for it (S0-4), but for the note that goes out beside a summary. All keys share one hash tag and so one
slot: every step is one script. ``lua/flush_queue.lua`` holds what the scripts share; ``keys.py`` lists the keys.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from tidemark.core.errors import EncryptionKeyLost, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConsumerState, DeadLetter, FlushEntry, QueueState
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

PAGE = 8
"""Entries of a page: each holds the messages that left at once, some hundred kilobytes before they are packed."""
INLINE_BYTES = 32 * 1024
"""What is longer is packed and unpacked in a thread, as the event loop has requests to serve."""
MARKS_SECONDS = 86_400
"""The shortest time for which the key of an added entry is stored."""


_ADD, _READ, _CLAIM, _BEGIN, _DONE, _BURY, _RANGE, _REPLAY, _FORGET, _LEAD, _STATE = (
    lua(__file__, "flush_queue", f"flush_{name}")
    for name in ("add", "read", "claim", "begin", "done", "bury", "range", "replay", "forget", "lead", "state")
)


@frozen
class QueueBounds:
    """Bounds of the queue, and the same again of dead letters; the oldest entries make way."""

    entries: int
    bytes_held: int


class RedisFlushQueue:
    """The queue in Redis, one for all workers. All state is the server's.

    Every method raises ``StoreUnavailable`` if the store did not answer.

    :param prefix: the beginning of its keys, for a queue of something else than flushes
    :param ttl_seconds: how long an unused conversation is stored; None for no limit
    """

    def __init__(
        self, ask: Ask, codec: Codec, *, ttl_seconds: float | None, bounds: QueueBounds, prefix: str = keys.FLUSHES
    ) -> None:
        self._ask = ask
        self._codec = codec
        self._prefix = prefix
        self._notes = f"{prefix}:o"
        self._ttl = max(MARKS_SECONDS, math.ceil(ttl_seconds)) if ttl_seconds else 0
        self._bounds = (bounds.entries, bounds.bytes_held)

    async def intend(self, owner: str, key: str, note: bytes) -> None:
        """Store a note until the entry of that key is added."""
        await self._codec.prepare(owner)
        sealed = self._codec.seal(note, owner, "flush note", key)
        await self._ask("HSET", self._notes, key, sealed, briefly=True)

    async def intents(self) -> Mapping[str, bytes]:
        """Return the notes whose entries have not been added; one that cannot be read is empty."""
        notes: dict[str, bytes] = {}
        for key, sealed in (await self._ask("HGETALL", self._notes)).items():
            try:
                notes[key.decode()] = self._codec.open(sealed, "flush note", key)
            except RecordUnreadable:
                notes[key.decode()] = b""
            except EncryptionKeyLost:  # it waits until the key is back
                continue
        return notes

    async def forget_intent(self, key: str) -> None:
        await self._ask("HDEL", self._notes, key)

    async def add(self, entry: FlushEntry) -> bool:
        """Append an entry, unless one of its key ever was; False if it was. One without a body is only marked."""
        await self._codec.prepare(_owner(entry))
        body = await self._packed(entry) if entry.body else b""
        about = (entry.tenant, entry.conversation, entry.at, body, entry.owner)
        return await self._run(_ADD, entry.key, self._ttl, *self._bounds, *about) is not None

    async def read(self, consumer: str, reader: str, count: int, after: str = "") -> Sequence[FlushEntry]:
        """Return the next entries of a consumer; before them those whose answer never reached this reader."""
        return await self._entries(await self._run(_READ, consumer, reader, min(count, PAGE), after))

    async def claim(self, consumer: str, reader: str, idle_seconds: float) -> Sequence[FlushEntry]:
        """Return all entries that other readers have had for so long without an end; they are this reader's now."""
        claimed: dict[str, FlushEntry] = {}
        cursor: bytes = b"0-0"
        while True:
            cursor, page = await self._run(_CLAIM, consumer, reader, int(idle_seconds * 1000), cursor, PAGE)
            claimed |= {entry.id: entry for entry in await self._entries(page)}
            if cursor == b"0-0":
                return list(claimed.values())

    async def begin(self, consumer: str, entry: FlushEntry) -> int:
        """Count one more attempt, before it is made; 0 if the entry is not in the queue any more."""
        attempts: int = await self._run(_BEGIN, consumer, entry.id)
        return attempts

    async def done(self, consumer: str, entry: FlushEntry, *, delivered: bool = True) -> None:
        """End an entry for a consumer that took it, or for which it was not."""
        await self._run(_DONE, consumer, entry.id, "done" if delivered else "")

    async def bury(self, consumer: str, entry: FlushEntry, reason: str, attempts: int) -> bool:
        """Make it a dead letter, which nobody delivers until it is replayed; False if the queue lost it."""
        about = (
            "key",
            entry.key,
            "tenant",
            entry.tenant,
            "conversation",
            entry.conversation,
            "at",
            entry.at,
            "owner",
            entry.owner,
        )
        packed = (*about, "body", await self._packed(entry))
        sealed = self._codec.seal(reason.encode(errors="replace"), _owner(entry), "flush reason", entry.key)
        return bool(await self._run(_BURY, consumer, entry.id, sealed, attempts, *self._bounds, *packed))

    async def lead(self, reader: str, seconds: float) -> bool:
        """Become, or stay, the only reader that delivers; 0 seconds gives that up."""
        return bool(await self._run(_LEAD, reader, int(seconds * 1000)))

    async def state(self) -> QueueState:
        """Return how full the queue is, and how far its consumers are."""
        length, size, dead, intents, now, flat, groups = await self._run(_STATE)
        counts = {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
        consumers = [
            ConsumerState(
                name=name.decode(),
                waiting=waiting,
                pending=pending,
                oldest_at=int(oldest) / 1000 if int(oldest) else None,
                delivered=counts.get(f"done:{name.decode()}", 0),
                dead=counts.get(f"dead:{name.decode()}", 0),
                lost=counts.get(f"lost:{name.decode()}", 0),
            )
            for name, waiting, pending, oldest in groups
        ]
        return QueueState(length, size, dead, intents, now / 1000, consumers)

    async def newest(self, count: int) -> Sequence[FlushEntry]:
        """Return the newest entries, oldest of them first."""
        entries: list[FlushEntry] = []
        end = "+"
        while len(entries) < count:
            page = await self._run(_RANGE, "s", end, "-", min(PAGE, count - len(entries)))
            if not page:
                break
            entries += await self._entries(page)
            end = f"({page[-1][0].decode()}"
        return entries[::-1]

    async def since(self, first: str) -> AsyncIterator[FlushEntry]:
        """Yield all entries from an id on, oldest first; ``-`` is the oldest, ``(ID`` the one after an id."""
        while page := await self._run(_RANGE, "s", first, "+", PAGE):
            for entry in await self._entries(page):
                yield entry
            first = f"({page[-1][0].decode()}"

    async def dead(self) -> AsyncIterator[DeadLetter]:
        """Yield all dead letters, oldest first."""
        first = "-"
        while page := await self._run(_RANGE, "d", first, "+", PAGE):
            for name, flat in page:
                fields, first = _fields(flat), f"({name.decode()}"
                entry = self._readable(name, fields)
                if entry is not None:
                    reason = self._codec.open(fields[b"reason"], "flush reason", fields[b"key"]).decode(
                        errors="replace"
                    )
                    consumer, attempts = fields[b"consumer"].decode(), int(fields[b"attempts"])
                    yield DeadLetter(entry, consumer, reason, attempts, float(fields[b"died"]))

    async def replay(self, entry: str, *, dead: bool, only: str = "") -> bool:
        """Queue an entry once more: for all consumers or for ``only``; a dead letter for its own consumer.

        :returns: False if there is none of that id
        """
        return await self._run(_REPLAY, "d" if dead else "s", entry, only, *self._bounds) is not None

    async def forget(self, conversations: Iterable[str]) -> None:
        """Remove everything of these conversations from the queue, the dead letters and the notes."""
        names = tuple(conversations)
        for source in "sd":
            first: str | None = "-"
            while first is not None:
                last = await self._run(_FORGET, source, first, PAGE, *names)
                first = f"({last.decode()}" if last else None
        for key, note in (await self.intents()).items():
            if any(name.encode() in note for name in names):
                await self.forget_intent(key)

    async def _run(self, script: str, *arguments: str | bytes | float) -> Any:
        """Run a script by its source: this is rare beside the commands of requests."""
        return await self._ask("EVAL", script, 1, self._prefix, *arguments)

    async def _packed(self, entry: FlushEntry) -> bytes:
        if len(entry.body) < INLINE_BYTES:
            return self._pack(entry)
        return await asyncio.to_thread(self._pack, entry)

    def _pack(self, entry: FlushEntry) -> bytes:
        return self._codec.seal(zlib.compress(entry.body, 1), _owner(entry), "flush", entry.key)

    async def _entries(self, page: Sequence[Any]) -> list[FlushEntry]:
        def unpacked() -> list[FlushEntry]:
            entries = (self._readable(name, _fields(flat)) for name, flat in page)
            return [entry for entry in entries if entry is not None]

        small = sum(len(piece) for _, flat in page for piece in flat) < INLINE_BYTES
        return unpacked() if small else await asyncio.to_thread(unpacked)

    def _readable(self, name: bytes, fields: Mapping[bytes, bytes]) -> FlushEntry | None:
        """Return an entry; None if its tenant's key is gone, so that it blocks nobody else's."""
        try:
            return self._entry(name, fields)
        except (RecordUnreadable, EncryptionKeyLost):
            return None

    def _entry(self, name: bytes, fields: Mapping[bytes, bytes]) -> FlushEntry:
        return FlushEntry(
            key=fields[b"key"].decode(),
            tenant=fields[b"tenant"].decode(),
            conversation=fields[b"conversation"].decode(),
            body=zlib.decompress(self._codec.open(fields[b"body"], "flush", fields[b"key"])),
            at=float(fields[b"at"]),
            only=fields.get(b"only", b"").decode(),
            id=name.decode(),
            owner=fields.get(b"owner", b"").decode(),
        )


def _owner(entry: FlushEntry) -> str:
    """Return whose key seals an entry; one of a version before has no owner, only a tenant."""
    return entry.owner or entry.tenant


def _fields(flat: Sequence[bytes]) -> Mapping[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
