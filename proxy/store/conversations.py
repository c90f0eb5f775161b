"""The store's adapter: ``ConversationStore`` over Redis or Valkey, one server or a cluster.

Met twice on the road of a request: ``recall`` before it is forwarded, ``record`` when its response has ended.
What is atomic happens in ``scripts.py``, how it travels in ``carriers.py``; here it is sent, bounded in time, and the
carriers' errors become ours.
"""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from proxy.core.conversation.prefix import PrefixChain, is_id, split_id
from proxy.core.conversation.records import Recollection, StoredConversation, StoredMessage, TurnRecord
from proxy.core.conversation.summary import RunningSummary, SummaryRecipe
from proxy.core.errors import StoreError
from proxy.core.ports import BegunTurn, Lease
from proxy.store import codec, keys, scripts
from proxy.store.connection.call import Asking
from proxy.store.connection.client import UNKNOWN_SCRIPT, connect
from proxy.store.connection.outage import Rest
from proxy.store.lifetimes import Lifetimes, lifetime
from proxy.store.listing import Listing, Used
from proxy.store.seen import Seen

RECALL_SECONDS = 0.25
"""A client waits for it before its request is forwarded; on one machine it takes a thousandth."""
RECORD_SECONDS = 1.0
"""The last byte of the response waits for it."""
NOTHING_KNOWN = Recollection()
_PAGE = 500
"""Messages read at a time."""


class RedisStore:
    """Conversations in Redis. Belongs to the event loop that uses it first.

    :param url: ``redis://``, ``rediss://``, ``unix://``; ``redis+cluster://`` or ``?cluster=true``
    :param ttl_seconds: how long what nobody uses is kept; None keeps it for good
    :param lifetimes: the same and more, by tenant
    :raises ConfigError: the URL cannot be used
    """

    def __init__(
        self,
        url: str,
        *,
        ttl_seconds: float | None,
        lifetimes: Lifetimes | None = None,
        recall_timeout_seconds: float = RECALL_SECONDS,
        record_timeout_seconds: float = RECORD_SECONDS,
    ) -> None:
        self._carrier = connect(url)
        self._lifetimes = lifetimes or Lifetimes(lifetime(ttl_seconds))
        rest = Rest()
        self._recalling = Asking(rest, recall_timeout_seconds)
        self._recording = Asking(rest, record_timeout_seconds)
        self._probing = Asking(rest, record_timeout_seconds, probe=True)
        self._seen = Seen()
        self.listing = Listing(self.ask, self._lifetimes.longest)

    async def recall(self, chain: PrefixChain, recipe: SummaryRecipe) -> Recollection:
        """What is known of a request's conversation; whose it is, is in the chain.

        The newest prefixes are sent first; all only where none of those is known and there are more.

        :raises StoreUnavailable: the store did not answer in time
        """
        if not chain.hashes:
            return NOTHING_KNOWN
        before = max(0, len(chain.hashes) - scripts.NEAR)
        with self._recalling:
            found = await self._recall(chain, before, recipe)
            if before and found[0] is None:
                found = await self._recall(chain, 0, recipe)
        if found is None:
            return NOTHING_KNOWN
        own, known, held, packed, waiting, lease, preparing = found
        return Recollection(
            conversation=chain.family + own.decode() if own else None,
            known=known,
            diverges=held > known,
            summary=codec.readable_summary(packed) if packed else None,
            prepared=codec.readable_summary(waiting) if waiting else None,
            preparing=codec.prepared_for(lease, chain, recipe) if lease else 0,
            preparing_name=preparing.decode() if lease else "",
        )

    async def record(self, turn: TurnRecord) -> str:
        """Append what a turn adds, in one atomic write; writing it twice changes nothing.

        :returns: the id of the conversation that holds the turn now
        :raises StoreUnavailable: the store did not answer in time
        """
        parts, created = codec.part_turn(turn, turn.known), scripts.moment(turn.created_at)
        with self._recording:
            own = await self._record(turn, parts, turn.known, created)
            if own is None:  # what was known is gone meanwhile, or a fork has to hold system messages of its own
                parts = codec.part_turn(turn, 0)
                own = await self._record(turn, parts, 0, created)
            if own is None:
                raise StoreError("The turn has no place in the store.", internal=f"of {turn.conversation}")
        conversation = turn.chain.family + own.decode()
        self.listing.note(
            Used(
                turn.owner or turn.tenant,
                conversation,
                turn.name,
                created,
                self._lifetimes.of(turn.tenant).idle,
            )
        )
        for system in parts.systems:
            self._seen.add((conversation, system.digest))
        return conversation

    async def keep_summary(
        self,
        tenant: str,
        conversation: str,
        chain: PrefixChain,
        summary: RunningSummary,
        *,
        waiting: bool = False,
        lease: Lease | None = None,
        replacing: bool = False,
    ) -> RunningSummary | None:
        """Store a summary of the first ``summary.covered`` messages of ``chain``; the first one stays.

        :returns: the one that is stored now; None where there is none and the lease is somebody else's by now
        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        if family != chain.family:
            raise StoreError("The summary is of another conversation.", internal=f"{conversation} {chain.family}")
        packed = codec.pack_summary(summary)
        reference = codec.pack_reference(summary)
        with self._recording:
            kept = await self._run(
                scripts.KEEP_SUMMARY,
                family,
                b"",
                0,
                own,
                self._lifetimes.of(tenant).idle,
                summary.created_at,
                tenant,
                reference,
                packed,
                "w" if waiting else "s",
                lease.name if lease else "",
                lease.value if lease else "",
                int(replacing),
            )
        return None if kept is None else codec.readable_summary(kept) or summary

    async def summary(
        self, chain: PrefixChain, covered: int, recipe: SummaryRecipe, *, waiting: bool = False
    ) -> RunningSummary | None:
        """The stored summary of the first ``covered`` messages of ``chain``, or the one that waits for its use.

        :raises StoreUnavailable: the store did not answer in time
        """
        digest = codec.recipe_digest(recipe)
        packed = await self.ask("GET", keys.summary(chain.family, digest, chain.at(covered), waiting=waiting))
        return codec.readable_summary(packed) if packed else None

    async def conversation(self, conversation: str) -> StoredConversation | None:
        """A conversation's record; an id that was only told leads to the conversation that holds the turn."""
        family, _ = split_id(conversation)
        return codec.read_conversation(family, await self._read(scripts.DESCRIBE, conversation))

    async def messages(self, conversation: str, *, start: int = 1, stop: int | None = None) -> Sequence[StoredMessage]:
        """The original messages from ``start`` to ``stop``, both included, a fork's earlier ones too."""
        read: list[StoredMessage] = []
        last = math.inf if stop is None else stop
        for holder, base, count in await self._path(conversation):
            for first in range(max(start, base + 1), int(min(last, count)) + 1, _PAGE):
                page = min(last, count, first + _PAGE - 1)
                read += await self._page(holder, base, first, int(page))
            last = min(last, base)
        read.sort(key=lambda message: message.position)
        return read

    async def summaries(self, conversation: str, *, standing: bool = False) -> Sequence[RunningSummary]:
        """All summaries of a conversation, oldest first.

        :param standing: those only that stand for a beginning of what is stored; a turn that was never recorded may
            have left another one
        """
        packed = await self._read(scripts.SUMMARIES, conversation, *(["standing"] if standing else []))
        readable = [summary for one in packed if (summary := codec.readable_summary(one)) is not None]
        return sorted(readable, key=lambda summary: (summary.created_at, summary.covered))

    async def all_turns(self, conversation: str) -> Sequence[codec.StoredTurn]:
        """What was done in each turn up to now, those of what a fork rests on too, oldest first."""
        found: list[codec.StoredTurn] = []
        last = sys.maxsize
        for holder, base, _ in await self._path(conversation):
            packed = await self.ask("LRANGE", keys.turn_list(holder), 0, -1)
            found += [codec.clipped(turn, last) for turn in map(codec.unpack_turn, packed) if turn.first <= last]
            last = min(last, base)
        return sorted(found, key=lambda turn: turn.created_at)

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Every system message that was ever sent in a conversation: digest to the client's bytes."""
        found: dict[bytes, bytes] = {}
        for holder, _, _ in await self._path(conversation):
            found |= await self.ask("HGETALL", keys.system_hash(holder))
        return found

    async def begin_turn(self, family: str, own: str, tenant: str, seconds: float) -> BegunTurn | None:
        """Take the turn of a conversation of which the client sends new messages only.

        :param own: empty for the one that the family's name leads to, which may be yet to begin
        :returns: None where the conversation is another tenant's, or there is none with this id
        :raises StoreUnavailable: the store did not answer in time
        """
        word = uuid.uuid4().hex  # the same where the line repeats the command: then the turn is ours already
        with self._recording:
            found = await self._run(scripts.BEGIN_TURN, family, b"", 0, own, tenant, math.ceil(seconds * 1000), word)
        if not found:
            return None
        head, flat, name, *value = found
        record = codec.read_conversation(family, (head, flat)) if head else None
        lease = Lease(family, name.decode(), value[0]) if value and value[0] is not None else None
        return BegunTurn(record, head.decode(), lease)

    async def named(self, owner: str, name: str) -> str | None:
        """The id of the conversation that a credential's client calls by a name; None where it calls none so.

        :raises StoreUnavailable: the store did not answer in time
        """
        await self.listing.settle()
        found = await self.ask("GET", keys.name(owner, name))
        if found is None:
            return None
        family, own = split_id(found.decode())
        head = await self.ask("GET", keys.head(family))
        return family + (head.decode() if head else own)

    async def forget(self, conversation: str, owner: str, name: str, now: float) -> bool:
        """Delete a conversation's messages, summaries, turns and name; what other forks rest on stays theirs.

        :returns: whether there was one
        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        with self._recording:
            gone = await self._run(scripts.FORGET, family, b"", 0, own, now)
        await self.listing.drop(owner, conversation, name)
        return bool(gone)

    async def ping(self) -> None:
        """Ask for a sign of life, even while the store rests.

        :raises StoreUnavailable: the store does not answer
        """
        with self._probing:
            await self._carrier.call("PING")

    async def ask(self, *command: str | bytes | float, probe: bool = False, briefly: bool = False) -> Any:
        """Send one command; the rest of the room shares the connections through this.

        :param probe: ask even while the store rests
        :param briefly: wait no longer than ``recall`` does, because a client waits for its request to be forwarded
        :raises StoreUnavailable: the store did not answer in time
        """
        with self._probing if probe else self._recalling if briefly else self._recording:
            return await self._carrier.call(*command)

    async def close(self) -> None:
        """Write what waits, and close all connections."""
        await self.listing.aclose()
        await self._carrier.aclose()

    def _recall(self, chain: PrefixChain, before: int, recipe: SummaryRecipe) -> Awaitable[Any]:
        given = scripts.recall_arguments(chain, before, recipe)
        return self._run(scripts.RECALL, chain.family, *given)

    def _record(self, turn: TurnRecord, parts: codec.TurnParts, known: int, created: str) -> Awaitable[bytes | None]:
        lasting = self._lifetimes.of(turn.tenant)
        given = scripts.record_arguments(turn, parts, created, known=known, lifetime=lasting, seen=self._seen)
        return self._run(scripts.RECORD, turn.chain.family, *given)

    async def _path(self, conversation: str) -> list[tuple[str, int, int]]:
        family, _ = split_id(conversation)
        return codec.read_path(family, await self._read(scripts.PATH, conversation))

    async def _page(self, holder: str, base: int, first: int, last: int) -> list[StoredMessage]:
        low, high = first - base - 1, last - base - 1
        entries = await self.ask("LRANGE", keys.message_list(holder), low, high)
        hashes = await self.ask("GETRANGE", keys.hash_string(holder), 16 * low, 16 * high + 15)
        return [codec.unpack_message(entry, first + i, hashes[16 * i : 16 * i + 16]) for i, entry in enumerate(entries)]

    async def _read(self, script: scripts.Script, conversation: str, *more: str) -> Any:
        if not is_id(conversation):
            return ()
        family, own = split_id(conversation)
        with self._recording:
            return await self._run(script, family, b"", 0, own, *more)

    async def _run(self, script: scripts.Script, family: str, *arguments: str | bytes | float) -> Any:
        """Run a script by name; a server that does not know it yet is sent the source."""
        prefix = keys.family_prefix(family)
        try:
            return await self._carrier.call("EVALSHA", script.sha, 1, prefix, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._carrier.call("EVAL", script.source, 1, prefix, *arguments)
