"""Begins and gives up turns of stored history: the adapter of ``TurnStore``.

The pipeline begins such a turn before it adds the earlier messages (``pipeline/stored_history.py``). The turn's lease
ends with ``RedisStore.record``, or here.

What failed calls may have left behind is repaired as soon as the store answers again. The store may still run a command
whose caller has given up: then a lease has no owner, or a turn is stored although its client heard that it is lost.
Each repair is a call that may be repeated.
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

Describe = Callable[[str, Sequence[Any]], ConversationRecord | None]
"""``RecordReader.described``."""
PAUSE_SECONDS = 0.25
"""Between two tries; during an outage a try costs nothing."""
LONGEST_SECONDS = 600.0
"""After this a repair is given up: leases have run out long before."""
MOST = 10_000
"""Repairs under way at once: they come from requests that were under way when the store failed."""
Work = Callable[[], Awaitable[object]]
"""Raises ``StoreError`` if it is to be done again; doing it twice changes nothing."""


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


class Repairs:
    """Makes repairs in tasks of its own. It belongs to the event loop that uses it first.

    Its state is the open repairs, each with its subject, and their tasks.
    """

    def __init__(self) -> None:
        self._open: dict[Work, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def owe(self, subject: str, work: Work) -> None:
        """Make a repair when the store answers.

        :param subject: what must wait for the repair, such as a family
        """
        if len(self._open) < MOST:
            self._open[work] = subject
            task = asyncio.create_task(self._follow(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self, subject: str) -> None:
        """Make the repairs of a subject now.

        :raises StoreError: the store does not answer yet
        """
        if self._open:
            for work in [work for work, of in self._open.items() if of == subject]:
                await work()
                self._open.pop(work, None)

    async def aclose(self) -> None:
        """Stop; what was not repaired expires by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, work: Work) -> None:
        until = asyncio.get_running_loop().time() + LONGEST_SECONDS
        while work in self._open and asyncio.get_running_loop().time() < until:
            try:
                await work()
            except StoreError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                break
        self._open.pop(work, None)
