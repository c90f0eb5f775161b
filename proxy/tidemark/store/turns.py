"""Begins and gives up turns of stored history: the adapter of ``TurnStore``.

The pipeline begins such a turn before it adds the earlier messages (``pipeline/stored_history.py``). The turn's lease
ends with ``RedisStore.record``, or here.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidemark.core.conversation.prefix import split_id
from tidemark.core.conversation.records import ConversationRecord, TurnRecord
from tidemark.core.errors import StoreError
from tidemark.core.ports import Lease, StartedTurn
from tidemark.store import scripts
from tidemark.store.commands import CommandSender
from tidemark.store.repairs import Repairs

Describe = Callable[[str, Sequence[Any]], ConversationRecord | None]
"""``RecordReader.described``."""


class RedisTurns:
    """Turns of stored history in Redis. Its state is what failed calls may have left behind.

    :param describe: reads a conversation's record out of a script's answer
    """

    def __init__(self, sender: CommandSender, describe: Describe) -> None:
        self._sender = sender
        self._describe = describe
        self._repairs = Repairs()

    async def start_turn(self, family: str, own: str, tenant: str, seconds: float) -> StartedTurn | None:
        await self._repairs.settle(family)
        token = uuid.uuid4().hex  # a connection that repeats the command repeats this: then the turn is ours already
        node = self._sender.node(family)
        reachable = not node.backoff.is_away
        try:
            with node.recording:
                answer = await self._begin(family, own, tenant, math.ceil(seconds * 1000), token)
            if not answer:
                return None
            head, flat, name, value, lost = answer
            lease = Lease(family, name.decode(), value) if value else None
            record = self._describe(family, (head, flat)) if head else None
            return StartedTurn(record, head.decode(), lease, lost.decode())
        except (StoreError, asyncio.CancelledError):
            if reachable:  # the script may have run all the same, and then nothing else would end the lease
                self._repairs.owe(family, lambda: self._return_lease(family, own, tenant, token))
            raise

    def give_up(self, turn: TurnRecord) -> None:
        chain = turn.chain
        own = turn.base_branch or split_id(turn.conversation)[1]
        arguments = (chain.tip, len(chain) - 1, own, turn.lease_name, turn.lease_value)
        self._repairs.owe(chain.family, lambda: self._end_turn(chain.family, *arguments))

    async def aclose(self) -> None:
        """Stop the repairs that are under way."""
        await self._repairs.aclose()

    def _begin(self, family: str, own: str, tenant: str, milliseconds: int, token: str) -> Awaitable[Any]:
        return self._sender.run(scripts.BEGIN_TURN, family, b"", 0, own, tenant, milliseconds, token)

    async def _return_lease(self, family: str, own: str, tenant: str, token: str) -> None:
        with self._sender.node(family).recording:
            await self._begin(family, own, tenant, 0, token)

    async def _end_turn(self, family: str, *arguments: str | bytes | float) -> None:
        with self._sender.node(family).recording:
            await self._sender.run(scripts.GIVE_UP, family, *arguments)
