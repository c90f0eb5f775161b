"""Conversations taken out and brought in, as lines of JSON: one message of OpenAI's format each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from proxy.archive.locate import ConversationLocator
from proxy.archive.pages import Told, told_conversation, told_gap
from proxy.compaction.leases import LEASE_SECONDS, keep_lease
from proxy.compaction.writer import Clock
from proxy.core.conversation.messages import ModelRequest
from proxy.core.conversation.prefix import PrefixChain, chain_of, conversation_id, owner_of
from proxy.core.conversation.records import TurnRecord
from proxy.core.errors import ConversationConflict, ConversationNotFound, StoreError
from proxy.core.ports import Caller, Lease, LeaseStore, TokenCounter
from proxy.dialects.chat.jsonl import read_lines
from proxy.pipeline.identify import tenant_of
from proxy.pipeline.stored_conversation import beside, request_of, under_way

EXPORT_PAGE = 500
"""Messages read at a time."""


class Imports(Protocol):
    """Who may import how much."""

    async def admit(self, owner: str, size: int, now: float, *, trusted: bool) -> bool:
        """Take an import into account before it is stored.

        :returns: whether it counts among what may be imported before an upstream has accepted the credential
        :raises StoreFull: the store, or what one credential may store in it, is full
        :raises ImportLimit: no upstream has accepted the credential, and what it may import is used up
        """
        ...

    async def withdraw(self, owner: str, size: int, now: float) -> None:
        """Give back what was counted for an import that was not stored."""
        ...


class Transfer:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self, finding: ConversationLocator, leases: LeaseStore, counter: TokenCounter, clock: Clock, imports: Imports
    ) -> None:
        self._imports = imports
        self._finding = finding
        self._leases = leases
        self._counter = counter
        self._clock = clock

    async def export(self, conversation: str, caller: Caller | None) -> AsyncIterator[bytes]:
        """A conversation as lines of JSON: the last request's system messages, then all messages, as they were sent.

        One that cannot be read is a line that says so and tells its place.

        :raises ConversationNotFound: there is none, or some have expired; if they go meanwhile, it breaks off
        """
        record = await self._finding.record(conversation, caller)
        heads = await self._finding.heads.head(record.id)

        async def page(start: int) -> bytes:
            stop = min(start + EXPORT_PAGE - 1, record.message_count)
            kept = await self._finding.store.messages(record.id, start=start, stop=stop)
            if len(kept) != stop - start + 1:  # a part must not pass for all
                raise ConversationNotFound(f"Messages of the conversation {record.id!r} have expired.")
            return b"".join(_line(json.dumps(told_gap(one)).encode() if one.unreadable else one.raw) for one in kept)

        first = await page(1)

        async def lines() -> AsyncIterator[bytes]:
            yield b"".join(map(_line, heads)) + first
            for start in range(1 + EXPORT_PAGE, record.message_count + 1, EXPORT_PAGE):
                yield await page(start)

        return lines()

    async def bring_in(
        self, data: bytes, caller: Caller, model: str, name: str | None, *, trusted: bool = False
    ) -> Told:
        """Store a conversation that was led elsewhere.

        :param model: whose conversation it is; it says which upstream, and so which tenant
        :param name: what its client calls it
        :param trusted: whether the operator asks
        :raises StoreFull: the store, or what one credential may store in it, is full
        :raises ImportLimit: no upstream has accepted the credential, and what it may import is used up
        :raises BadImport: the lines are no conversation, or tool calls and results have come apart
        :raises ConversationConflict: there is a conversation of that name, or somebody's turn may become one
        """
        route = await self._finding.upstream.resolve(model)
        tenant = tenant_of(caller, route)
        owner = owner_of(caller.fingerprint)
        async with (
            self._admitted(owner, len(data), trusted=trusted),
            self._turn(tenant, name) as lease,
        ):  # before the work, which a name that is taken does not cost

            def read() -> tuple[ModelRequest, PrefixChain]:
                messages = [line.message for line in read_lines(data)]
                return request_of(model, messages), chain_of(tenant, messages, conversation=name)

            request, chain = await beside(read, [data])
            count = await self._counter.count(request, route.upstream_model)
            turn = TurnRecord(
                tenant=tenant,
                conversation=conversation_id(chain, 0),
                chain=chain,
                known=0,
                messages=request.messages,
                tokens=count.messages,
                complete=True,
                model=model,
                action="none",
                tokens_before=count.total,
                tokens_after=count.total,
                summarized=0,
                created_at=self._clock(),
                scheme=count.scheme,
                owner=owner,
                name=name or "",
                lease=lease.name if lease else "",
                held=lease.value if lease else b"",
                imported=True,
            )
            stored = await self._finding.store.record(turn)
        record = await self._finding.store.conversation(stored)
        return told_conversation(record) if record is not None else {"id": stored}

    @asynccontextmanager
    async def _admitted(self, owner: str, size: int, *, trusted: bool) -> AsyncIterator[None]:
        """What the import takes, taken into account; given back where it comes to nothing."""
        now = self._clock()
        counted = await self._imports.admit(owner, size, now, trusted=trusted)
        try:
            yield
        except BaseException:
            if counted:
                with contextlib.suppress(StoreError):
                    await self._imports.withdraw(owner, size, now)
            raise

    @asynccontextmanager
    async def _turn(self, tenant: str, name: str | None) -> AsyncIterator[Lease | None]:
        """The turn of the conversation of that name, held as long as the import goes on; None where it gets no name."""
        if name is None:
            yield None
            return
        family = chain_of(tenant, (), conversation=name).family
        begun = await self._finding.store.turns.start_turn(family, "", tenant, LEASE_SECONDS)
        if begun is not None and begun.record is None:
            if begun.lease is None:
                raise under_way()
            async with keep_lease(self._leases, begun.lease, LEASE_SECONDS):
                yield begun.lease
            return
        if begun is not None and begun.lease is not None:
            await self._leases.release(begun.lease)
        raise ConversationConflict(
            f"There is a conversation {name[:80]!r} already. Import under another name, or forget that one."
        )


def _line(raw: bytes) -> bytes:
    """A message as one line: a line's end within JSON is white space, since none can stand in a string."""
    return raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
