"""The store's adapter: ``ConversationStore`` over Redis or Valkey, one server or a cluster.

Met twice on the road of a request: ``recall`` before it is forwarded, ``record`` when its response has ended.
What is atomic happens in ``scripts.py``, how it travels in ``carriers.py``; here it is sent, bounded in time, and the
carriers' errors become ours.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.core.conversation.prefix import PrefixChain, is_id, split_id
from proxy.core.conversation.records import StoredState, TurnRecord
from proxy.core.conversation.summary import NO_SYSTEMS, InnerSystems, PrefixSummary, SummaryRecipe
from proxy.core.errors import StoreError, StoreFull, StoreUnavailable
from proxy.core.events import Listener
from proxy.core.ports import Lease, StartedTurn
from proxy.offload.threads import MANY_BYTES, MANY_MESSAGES
from proxy.store import codec, keys, scripts
from proxy.store.amends import Amends
from proxy.store.connection.call import LARGE_BYTES, AskingForLong, StoreCall
from proxy.store.connection.client import UNKNOWN_SCRIPT, connect
from proxy.store.connection.outage import OutageBackoff
from proxy.store.connection.probing import Probing
from proxy.store.lifetimes import Lifetimes, lifetime
from proxy.store.listing import Listing, Used
from proxy.store.records import RecordReader
from proxy.store.seen import BoundedSet
from proxy.store.usage import FULL, OUT_OF_MEMORY, STORE_FULL, TenantUsage

RECALL_SECONDS = 0.25
"""A client waits for it before its request is forwarded; on one machine it takes a thousandth."""
RECORD_SECONDS = 1.0
"""The last byte of the response waits for it."""
NOTHING_KNOWN = StoredState()
_PROBE_SECONDS = 60
"""So long the key of a probe stands."""


class RedisStore(RecordReader):
    """Conversations in Redis. Belongs to the event loop that uses it first.

    :param url: ``redis://``, ``rediss://``, ``unix://``; ``redis+cluster://`` or ``?cluster=true``
    :param ttl_seconds: how long what nobody uses is kept; None keeps it for good
    :param lifetimes: the same and more, by tenant
    :param emit: told of records that cannot be read
    :param max_tenant_bytes: what one credential may store; None for no bound
    :param library: send commands by redis-py, not only those to clusters and over TLS
    :raises ConfigError: the URL cannot be used
    """

    def __init__(
        self,
        url: str,
        *,
        ttl_seconds: float | None,
        lifetimes: Lifetimes | None = None,
        emit: Listener = lambda _: None,
        max_tenant_bytes: int | None = None,
        recall_timeout_seconds: float = RECALL_SECONDS,
        record_timeout_seconds: float = RECORD_SECONDS,
        library: bool = False,
    ) -> None:
        super().__init__(emit)
        self._carrier = connect(url, library=library)
        self._lifetimes = lifetimes or Lifetimes(lifetime(ttl_seconds))
        self._rest = rest = OutageBackoff(self._probe)
        self._probes = Probing(rest, self.ping)
        self._amends = Amends()
        self._recalling = StoreCall(rest, recall_timeout_seconds)
        self._record_seconds = record_timeout_seconds
        self._recording = StoreCall(rest, record_timeout_seconds)
        self._probing = StoreCall(rest, record_timeout_seconds, probe=True)
        self._seen = BoundedSet()
        longest = self._lifetimes.longest
        self.listing = Listing(self.ask, longest)
        self.usage = TenantUsage(self.ask, self._weigh, max_bytes=max_tenant_bytes, keep_seconds=longest)

    async def recall(
        self, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems = NO_SYSTEMS
    ) -> StoredState:
        """What is known of a request's conversation; whose it is, is in the chain.

        The newest prefixes are sent first; all only where none of those is known and there are more.

        :param systems: the request's own; a summary that absorbed any other system message is passed over
        :raises StoreUnavailable: the store did not answer in time
        """
        if not chain.hashes:
            return NOTHING_KNOWN
        before = max(0, len(chain.hashes) - scripts.NEAR)
        with self._recalling:
            found = await self._recall(chain, before, recipe, systems)
            if before and found[0] is None:
                found = await self._recall(chain, 0, recipe, systems)
        if found is None:
            return NOTHING_KNOWN
        own, known, held, packed, waiting, lease, name = found
        preparing, absorbed = codec.prepared_for(lease, chain, recipe, systems) if lease else (0, ())
        recollection = StoredState(
            conversation=chain.family + own.decode() if own else None,
            known=known,
            diverges=held > known,
            summary=codec.readable_summary(packed) if packed else None,
            prepared=codec.readable_summary(waiting) if waiting else None,
            preparing=preparing,
            preparing_absorbed=absorbed,
            preparing_name=name.decode() if lease else "",
        )
        return replace(recollection, unwritable=True) if self._rest.refusing else recollection

    async def record(self, turn: TurnRecord) -> str:
        """Append what a turn adds, in one atomic write; writing it twice changes nothing.

        :returns: the id of the conversation that holds the turn now
        :raises StoreFull: nothing more is stored for this credential, or for anybody
        :raises StoreUnavailable: the store did not answer in time
        """
        owner = turn.owner or turn.tenant
        if owner in self.usage.full:
            raise StoreFull(FULL)
        if len(turn.messages) > MANY_MESSAGES:
            parts = await asyncio.to_thread(codec.part_turn, turn, turn.known)
        else:
            parts = codec.part_turn(turn, turn.known)
        created = scripts.moment(turn.created_at)
        try:
            with self._recording_of(turn, parts):
                own = await self._record(turn, parts, turn.known, created)
                if own is None:  # what was known is gone meanwhile, or a fork has to hold system messages of its own
                    parts = codec.part_turn(turn, 0)
                    own = await self._record(turn, parts, 0, created)
                if own is None:
                    raise StoreError("The turn has no place in the store.", internal=f"of {turn.conversation}")
        except StoreUnavailable as error:
            if OUT_OF_MEMORY in error.internal:
                raise StoreFull(STORE_FULL, internal=error.internal) from error
            raise
        conversation = turn.chain.family + own.decode()
        self.listing.note(
            Used(
                owner,
                conversation,
                turn.name,
                created,
                self._lifetimes.of(turn.tenant).idle,
            )
        )
        for system in parts.systems:
            self._seen.add((conversation, system.digest))
        self.usage.note(owner, parts.size, accepted=not turn.imported)
        return conversation

    async def keep_summary(
        self,
        tenant: str,
        conversation: str,
        chain: PrefixChain,
        summary: PrefixSummary,
        *,
        waiting: bool = False,
        lease: Lease | None = None,
        replacing: bool = False,
    ) -> PrefixSummary | None:
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
        self,
        chain: PrefixChain,
        covered: int,
        recipe: SummaryRecipe,
        *,
        absorbed: Sequence[bytes] = (),
        waiting: bool = False,
    ) -> PrefixSummary | None:
        """The stored summary of the first ``covered`` messages of ``chain``, or the one that waits for its use.

        :param absorbed: digests of exactly the system messages that it tells
        :raises StoreUnavailable: the store did not answer in time
        """
        digest, prefix = codec.recipe_digest(recipe), chain.at(covered)
        packed = await self.ask("GET", keys.summary(chain.family, digest, prefix, absorbed, waiting=waiting))
        return codec.readable_summary(packed) if packed else None

    async def start_turn(self, family: str, own: str, tenant: str, seconds: float) -> StartedTurn | None:
        """Take the turn of a conversation of which the client sends new messages only.

        :param own: empty for the one that the family's name leads to, which may be yet to begin
        :returns: None where the conversation is another tenant's, or there is none with this id
        :raises StoreUnavailable: the store did not answer in time
        """
        await self._amends.settle(family)
        word = uuid.uuid4().hex  # the same where the line repeats the command: then the turn is ours already
        sent = not self._rest.resting
        try:
            with self._recording:
                found = await self._begin(family, own, tenant, math.ceil(seconds * 1000), word)
            if not found:
                return None
            head, flat, name, *value = found
            lease = Lease(family, name.decode(), value[0]) if value and value[0] is not None else None
            return StartedTurn(self.described(family, (head, flat)) if head else None, head.decode(), lease)
        except (StoreError, asyncio.CancelledError):
            if sent:  # it may be taken all the same, and nobody would give it back
                self._amends.owe(family, lambda: self._given_back(family, own, tenant, word))
            raise

    def give_up(self, turn: TurnRecord) -> None:
        """End a turn of stored history whose client was told that it is lost, as soon as the store answers.

        Where the write comes in late all the same, it becomes a fork. Where it came in already, its answer is marked as
        one that nobody got, so that the same question once more asks for it anew.
        """
        chain = turn.chain
        own = turn.head or split_id(turn.conversation)[1]
        given = (chain.family, chain.tip, len(chain) - 1, own, turn.lease, turn.held)
        self._amends.owe(chain.family, lambda: self._given_up(*given))

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
        await self.usage.forgotten(owner)
        return bool(gone)

    async def ping(self) -> None:
        """Write one key, even while the store rests: whether it is there, and takes writes.

        :raises StoreUnavailable: the store does not answer, or refuses to write
        """
        with self._probing:
            await self._carrier.call("SET", keys.PROBE, b"", "EX", _PROBE_SECONDS)
        self._rest.wrote()

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
        await self._probes.aclose()
        await self._amends.aclose()
        await self.listing.aclose()
        await self.usage.aclose()
        await self._carrier.aclose()

    def _probe(self) -> None:
        self._probes.begin()

    def _recall(self, chain: PrefixChain, before: int, recipe: SummaryRecipe, systems: InnerSystems) -> Awaitable[Any]:
        given = scripts.recall_arguments(chain, before, recipe, systems)
        return self._run(scripts.RECALL, chain.family, *given)

    def _recording_of(self, turn: TurnRecord, parts: codec.TurnParts) -> StoreCall:
        """What waits for a turn's record; of much new text, for as long as its size takes.

        Of stored history nobody else has the turn, so it is tried even where the store was left alone.
        """
        if parts.size <= LARGE_BYTES:
            return self._probing if turn.lease else self._recording
        return AskingForLong(self._rest, self._record_seconds, parts.size, probe=bool(turn.lease))

    def _record(self, turn: TurnRecord, parts: codec.TurnParts, known: int, created: str) -> Awaitable[bytes | None]:
        if parts.size > MANY_BYTES or len(parts.new) > MANY_MESSAGES:
            return self._record_much(turn, parts, known, created)
        lasting = self._lifetimes.of(turn.tenant)
        given = scripts.record_arguments(turn, parts, created, known=known, lifetime=lasting, seen=self._seen)
        return self._run(scripts.RECORD, turn.chain.family, *given)

    async def _record_much(self, turn: TurnRecord, parts: codec.TurnParts, known: int, created: str) -> bytes | None:
        """The same of what takes long to pack: in a thread."""
        lasting = self._lifetimes.of(turn.tenant)
        pack = partial(scripts.record_arguments, known=known, lifetime=lasting, seen=self._seen)
        given = await asyncio.to_thread(pack, turn, parts, created)
        script, prefix = scripts.RECORD, keys.family_prefix(turn.chain.family)
        try:
            own: bytes | None = await self._carrier.call_large("EVALSHA", script.sha, 1, prefix, *given)
        except UNKNOWN_SCRIPT:
            own = await self._carrier.call_large("EVAL", script.source, 1, prefix, *given)
        return own

    async def _weigh(self, conversation: str) -> int:
        return int(await self._read(scripts.WEIGH, conversation))

    async def _read(self, script: scripts.Script, conversation: str, *more: str) -> Any:
        if not is_id(conversation):
            return ()
        family, own = split_id(conversation)
        with self._recording:
            return await self._run(script, family, b"", 0, own, *more)

    def _begin(self, family: str, own: str, tenant: str, milliseconds: int, word: str) -> Awaitable[Any]:
        return self._run(scripts.BEGIN_TURN, family, b"", 0, own, tenant, milliseconds, word)

    async def _given_back(self, family: str, own: str, tenant: str, word: str) -> None:
        with self._recording:
            await self._begin(family, own, tenant, 0, word)

    async def _given_up(self, family: str, *given: str | bytes | float) -> None:
        with self._recording:
            await self._run(scripts.GIVE_UP, family, *given)

    async def _run(self, script: scripts.Script, family: str, *arguments: str | bytes | float) -> Any:
        """Run a script by name; a server that does not know it yet is sent the source."""
        prefix = keys.family_prefix(family)
        try:
            return await self._carrier.call("EVALSHA", script.sha, 1, prefix, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._carrier.call("EVAL", script.source, 1, prefix, *arguments)
