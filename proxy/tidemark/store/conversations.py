"""Stores conversations in Redis or Valkey: the adapter of ``ConversationStore``.

A request meets it twice: ``recall`` before it is forwarded, ``record`` when its response has ended. ``scripts.py``
holds what is atomic, ``commands.py`` sends it, and ``records.py`` reads stored conversations back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from tidemark.core.conversation.echoes import DivergingBranch, DivergingBranches
from tidemark.core.conversation.prefix import PrefixChain, split_id
from tidemark.core.conversation.records import ConversationState, TurnRecord
from tidemark.core.conversation.summary import NO_SYSTEMS, InnerSystems, PrefixSummary, SummaryRecipe
from tidemark.core.errors import StoreError, SummaryOutdated
from tidemark.core.events import Listener
from tidemark.core.ports import Lease, Redactor
from tidemark.store import keys, scripts
from tidemark.store.codec import Codec
from tidemark.store.commands import RECALL_SECONDS, RECORD_SECONDS, CommandSender
from tidemark.store.kept_conversations import RedisKeptConversations
from tidemark.store.lifetimes import Lifetimes, lifetime
from tidemark.store.listing import Listing
from tidemark.store.owners import RedisOwners
from tidemark.store.records import RecordReader
from tidemark.store.redacted_summary import redacted_summary
from tidemark.store.references import pack_reference, prepared_for
from tidemark.store.responses import RedisResponses
from tidemark.store.schema import SCHEMA
from tidemark.store.summary_replacement import MAX_VERSIONS
from tidemark.store.turn_writer import TurnWriter
from tidemark.store.turns import RedisTurns
from tidemark.store.usage import OwnerUsage

NOTHING_STORED = ConversationState()


class RedisStore(RecordReader):
    """Conversations in Redis. It belongs to the event loop that uses it first.

    Its state is the connection, and what its parts hold.

    :param url: ``redis://``, ``rediss://``, ``unix://``; ``redis+cluster://`` or ``?cluster=true``; ``redis+sentinel://``
    :param codec: packs every stored value
    :param ttl_seconds: how long an unused conversation is stored; None for no limit
    :param lifetimes: the same and more, by tenant
    :param emit: receives an event for each record that cannot be read
    :param max_tenant_bytes: what one credential may store; None for no bound
    :param own_tenant_bytes: the same by owner, for those that have a bound of their own
    :param library: send commands by redis-py, not only those over TLS
    :param wait_replicas: how many replicas must have a turn before it counts as stored, within ``wait_seconds``
    :param owner_seconds: how long it is known who made what a shared account has; None for no limit
    :param redactor: changes texts before they are stored; None stores them as they are
    :raises ConfigError: the URL cannot be used
    """

    def __init__(
        self,
        url: str,
        codec: Codec,
        *,
        ttl_seconds: float | None,
        lifetimes: Lifetimes | None = None,
        emit: Listener = lambda _: None,
        max_tenant_bytes: int | None = None,
        own_tenant_bytes: Mapping[str, int] | None = None,
        recall_timeout_seconds: float = RECALL_SECONDS,
        record_timeout_seconds: float = RECORD_SECONDS,
        library: bool = False,
        wait_replicas: int = 0,
        wait_seconds: float = 0.0,
        owner_seconds: float | None = 365 * 86_400.0,
        redactor: Redactor | None = None,
    ) -> None:
        sender = CommandSender(
            url,
            recall_timeout_seconds=recall_timeout_seconds,
            record_timeout_seconds=record_timeout_seconds,
            library=library,
            wait_replicas=wait_replicas,
            wait_seconds=wait_seconds,
        )
        super().__init__(sender, codec, emit)
        self._run, self._node, self._redactor = sender.run, sender.node, redactor
        self._lifetimes = lifetimes or Lifetimes(lifetime(ttl_seconds))
        longest = self._lifetimes.longest
        self.turns = RedisTurns(sender, self.described)
        self.owners = RedisOwners(sender, owner_seconds)
        self.responses = RedisResponses(sender, codec, longest, self.owners)
        self.kept_conversations = RedisKeptConversations(
            self.ask,
            codec,
            self._lifetimes,
            note_size=lambda owner, size: self.usage.note(owner, size, accepted=False),
            redactor=redactor,
        )
        self.listing = Listing(self.ask, longest, emit)
        self.usage = OwnerUsage(
            self.ask,
            self._weigh,
            max_bytes=max_tenant_bytes,
            own_bytes=own_tenant_bytes,
            keep_seconds=longest,
            weigh_others=self.kept_conversations.weigh,
        )
        self._writer = TurnWriter(
            sender,
            codec,
            lifetimes=self._lifetimes,
            responses=self.responses,
            listing=self.listing,
            usage=self.usage,
            emit=emit,
            redactor=redactor,
        )

    async def recall(
        self, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems = NO_SYSTEMS
    ) -> ConversationState:
        """Return what is stored of a request's conversation; the chain holds its tenant.

        The newest prefixes are sent first, and all of them only if none of those is stored and there are more.

        :param systems: the request's own; a summary that absorbed any other system message does not apply
        :raises StoreUnavailable: the store did not answer in time
        """
        if not chain.hashes:
            return NOTHING_STORED
        before = max(0, len(chain.hashes) - scripts.NEAR)
        node = self._node(chain.family)
        with node.recalling:
            answer = await self._recall(chain, before, recipe, systems)
            if before and answer[0] is None:
                answer = await self._recall(chain, 0, recipe, systems)
        if answer is None:
            return NOTHING_STORED
        own, shared, count, summary, prepared, lease, name, bindings, prompt_record, updated = answer
        preparing, absorbed = prepared_for(lease, chain, recipe, systems) if lease else (0, ())
        conversation_state = ConversationState(
            conversation=chain.family + own.decode() if own else None,
            stored_count=shared,
            diverges=count > shared,
            summary=self._standing(summary, chain),
            prepared=self._standing(prepared, chain),
            preparing_count=preparing,
            preparing_absorbed=absorbed,
            preparing_lease=name.decode() if lease else "",
            bindings=bindings or b"",
            prompt_record=prompt_record or b"",
            updated_at=float(updated or 0),
        )
        return replace(conversation_state, unwritable=True) if node.backoff.refuses_writes else conversation_state

    async def branches(self, chain: PrefixChain, conversation: str, shared: int) -> DivergingBranches:
        """Return the conversations that go on otherwise after a chain's first messages, newest first.

        Those are left out that the chain could not repeat as a whole, and those with a message that cannot be read.

        :param conversation: the one that ``recall`` found
        :param shared: how many messages the chain shares with it, at least 1
        :raises StoreUnavailable: the store did not answer in time
        """
        with self._node(chain.family).recalling:
            alone, *answer = await self._run(
                scripts.BRANCHES, chain.family, *scripts.branches_arguments(chain, conversation, shared)
            )
        branches: list[DivergingBranch] = []
        for own, count, tip, turns, entries in zip(*[iter(answer)] * 5, strict=True):
            messages = [
                self._codec.readable_message(entry, shared + i, b"", chain.family) for i, entry in enumerate(entries, 1)
            ]
            if any(message.unreadable for message in messages):
                alone = 0  # it may hold anything
                continue
            raws = tuple([message.raw for message in messages])
            branches.append(DivergingBranch(chain.family + own.decode(), count, tip, raws, turns))
        return DivergingBranches(branches, has_one_answer=bool(alone))

    def record(self, turn: TurnRecord) -> Coroutine[Any, Any, str]:
        """Append what a turn adds, in one atomic write; see ``TurnWriter``."""
        return self._writer.record(turn) if self._codec.cipher is None else self._record_sealed(turn)

    async def _record_sealed(self, turn: TurnRecord) -> str:
        await self._codec.prepare(turn.owner or turn.tenant)
        return await self._writer.record(turn)

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
        upon: PrefixSummary | None = None,
        begun_at: float | None = None,
        owner: str = "",
        model: str = "",
    ) -> PrefixSummary | None:
        """Store a summary of the first ``summary.covered`` messages of ``chain``; the first one stays.

        :returns: the one that is stored now; None if there is none and another worker has the lease by now
        :raises SummaryOutdated: a person has replaced ``upon`` since, or has had the conversation forgotten
        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        if family != chain.family:
            raise StoreError("The summary is of another conversation.", internal=f"{conversation} {chain.family}")
        summary = await redacted_summary(summary, self._redactor)
        await self._codec.prepare(owner or tenant)
        packed = self._codec.pack_summary(summary, owner or tenant, family)
        with self._node(family).recording:
            stored = await self._run(
                scripts.KEEP_SUMMARY,
                family,
                b"",
                0,
                own,
                self._lifetimes.of(tenant, model).idle,
                summary.created_at,
                tenant,
                pack_reference(summary),
                packed,
                "w" if waiting else "s",
                lease.name if lease else "",
                lease.value if lease else "",
                int(replacing),
                MAX_VERSIONS,
                pack_reference(upon) if upon else b"",
                upon.created_at if upon else "",
                summary.created_at if begun_at is None else begun_at,
            )
        if stored == 0:
            raise SummaryOutdated
        return None if stored is None else self._codec.readable_summary(stored, family) or summary

    async def find_by_name(self, owner: str, name: str) -> str | None:
        await self.listing.settle()
        conversation = await self.ask("GET", keys.name(owner, name))
        if conversation is None:
            return None
        family, own = split_id(conversation.decode())
        head = await self.ask("GET", keys.head(family))
        return family + (head.decode() if head else own)

    async def forget(self, conversation: str, owner: str, name: str, now: float) -> bool:
        """Delete a conversation's messages, summaries, turns and name; what forks share with it stays theirs.

        :returns: whether there was one
        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        with self._node(family).recording:
            deleted = await self._run(scripts.FORGET, family, b"", 0, own, now)
        await self.listing.drop(owner, conversation, name, now)
        await self.usage.forgotten(owner)
        return bool(deleted)

    @property
    def is_well(self) -> bool:
        """Whether the store answers and takes writes, as far as is known."""
        return self._sender.is_well

    async def ping(self) -> None:
        """Write one key, during an outage too, to learn whether the store takes writes.

        :raises StoreUnavailable: the store does not answer, or refuses to write, or a newer version wrote it
        """
        await asyncio.gather(self._sender.check_schema(), self._sender.ping())

    async def server_facts(self) -> list[Mapping[str, str]]:
        return await self._sender.server_facts()

    async def check_schema(self) -> int:
        """Refuse all calls while the store has an unknown schema; note the known one in a new store.

        :returns: the store's schema; 0 if it does not answer

        :raises SchemaUnknown: it is a newer one
        """
        return await self._sender.check_schema()

    async def raise_schema(self) -> None:
        """Give the store this program's schema, so that older workers leave it alone from their next look on.

        :raises StoreUnavailable: the store did not answer in time
        """
        await self.ask("SET", keys.SCHEMA, str(SCHEMA), "XX")

    async def close(self) -> None:
        """Write what has yet to be written, and close all connections."""
        await self._sender.end_probes()
        await self.turns.aclose()
        await self.listing.aclose()
        await self.usage.aclose()
        await self._sender.aclose()

    def _standing(self, packed: bytes | None, chain: PrefixChain) -> PrefixSummary | None:
        """Return a summary, unless it cannot be read or stands for another prefix: somebody has moved it."""
        summary = self._codec.readable_summary(packed, chain.family) if packed else None
        if summary is None or summary.covered > len(chain) or chain.at(summary.covered) != summary.prefix:
            return None
        return summary

    def _recall(self, chain: PrefixChain, before: int, recipe: SummaryRecipe, systems: InnerSystems) -> Awaitable[Any]:
        arguments = scripts.recall_arguments(chain, before, recipe, systems)
        return self._run(scripts.RECALL, chain.family, *arguments)

    async def _weigh(self, conversation: str) -> int:
        return int(await self._sender.read(scripts.WEIGH, conversation))
