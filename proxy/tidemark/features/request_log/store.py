"""Stores the log in one stream, whose entries have the requests of one tenant that were written together.

``writer.py`` adds a worker's requests, and ``reader.py`` reads those of all workers. The bound counts requests, so the
number of each entry is beside it. An owner stands unsealed, so that an erasure finds its entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tidemark.core.errors import EncryptionKeyLost, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask
from tidemark.store.request_facts import RequestFacts, pack_requests, unpack_requests
from tidemark.store.scripts import lua

NUMBER_SECONDS = 86_400
"""How long the number of a worker's last batch is stored."""
MAX_ENTRY = 256
"""The most requests of one entry: the oldest ones leave by whole entries."""
_ADD = lua(__file__, "request_log_add")


@frozen
class StoredRequests:
    """An entry of the stream."""

    id: str
    owner: str
    count: int
    packed: bytes


class RedisRequestLog:
    """The log in Redis. All state is the server's.

    Every method raises ``StoreUnavailable`` if the store does not answer in time.

    :param most: the most requests that are stored, up to one entry more
    :param keep_seconds: how long a request is stored; 0 for no limit
    """

    def __init__(self, ask: Ask, codec: Codec, most: int, keep_seconds: int) -> None:
        self._ask = ask
        self._codec = codec
        self._most = most
        self._keep_seconds = keep_seconds

    async def add(self, writer: str, number: int, requests: Mapping[str, Sequence[RequestFacts]], now: float) -> None:
        """Add a worker's requests. A batch that is sent again adds nothing.

        :param writer: the worker's name among all workers
        :param number: the batch's number, greater than that of the worker's batch before
        :param requests: by owner, oldest first
        """
        entries: list[str | int | float | bytes] = []
        for owner, facts in requests.items():
            with suppress(EncryptionKeyLost):  # what cannot be sealed is not stored
                await self._codec.prepare(owner)
                for first in range(0, len(facts), MAX_ENTRY):
                    part = facts[first : first + MAX_ENTRY]
                    packed = pack_requests(self._codec, owner, part)
                    entries += (owner, len(part), part[-1].at, packed)
        oldest_ms = int(1000 * (now - self._keep_seconds)) if self._keep_seconds else 0
        bounds = (writer, number, NUMBER_SECONDS, self._most, oldest_ms, self._keep_seconds)
        await self._ask("EVAL", _ADD, 1, keys.REQUESTS, *bounds, *entries)

    async def read(self, newest: str, count: int) -> Sequence[StoredRequests]:
        """Return entries, newest first.

        :param newest: the id to begin with; ``+`` for the newest of all, and after ``(`` it is left out
        """
        stored = await self._ask("XREVRANGE", f"{keys.REQUESTS}:s", newest, "-", "COUNT", count)
        return [entry_of(identifier, flat) for identifier, flat in stored]

    async def entry(self, identifier: str) -> StoredRequests | None:
        """Return one entry; None if the log has none of this id."""
        for stored_id, flat in await self._ask("XRANGE", f"{keys.REQUESTS}:s", identifier, identifier):
            return entry_of(stored_id, flat)
        return None

    def requests_of(self, entry: StoredRequests) -> Sequence[RequestFacts]:
        """Return the requests of an entry; none if it cannot be read."""
        with suppress(RecordUnreadable, EncryptionKeyLost):
            return unpack_requests(self._codec, entry.owner, entry.packed)
        return ()


def entry_of(identifier: bytes, flat: Sequence[bytes]) -> StoredRequests:
    """Return an entry as the stream has it."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return StoredRequests(identifier.decode(), fields[b"o"].decode(), int(fields[b"c"]), fields[b"f"])
