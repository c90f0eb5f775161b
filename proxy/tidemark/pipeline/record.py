"""Recording: writes a turn that has ended to the store, now or, if its client has left, later.

The relay says when a turn has ended. Nobody but the store keeps a turn of stored history, so its write is repeated for
some seconds, through a restart of the store (ADR 0015).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tidemark.core.conversation.records import TurnRecord
from tidemark.core.errors import StoreRefuses, StoreUnavailable, TidemarkError
from tidemark.core.events import Listener, StoreDegraded, TurnStored
from tidemark.core.ports import ConversationStore
from tidemark.pipeline.values import GiveUp, Prepare

PATIENT_SECONDS = 2.5
"""How long a turn of stored history is tried while its client waits for the last byte. It counts from the first
failure; the embedded store is back from a crash by then."""
LATE_SECONDS = 60.0
"""The same if the client has left, and cannot be told."""
PAUSE_SECONDS = 0.25
"""Between two attempts."""


class Recorder:
    """Writes turns. Its state is the tasks of turns whose clients have left, and whether the shutdown has begun.

    :param emits_stored: whether anybody listens to ``TurnStored``
    """

    def __init__(
        self, store: ConversationStore, emit: Listener, timer: Callable[[], float], *, emits_stored: bool
    ) -> None:
        self._store = store
        self._emit = emit
        self._timer = timer
        self._emits_stored = emits_stored
        self._late: set[asyncio.Task[bool]] = set()
        self._closing = False

    async def record(self, turn: TurnRecord, prepare: Prepare | None = None, give_up: GiveUp | None = None) -> bool:
        """Store a turn, and return whether it is stored.

        If the client leaves meanwhile, a task writes it once more: two writes are the same as one. The next summary's
        lease is taken before the last byte is released, so that the client's next request finds it.

        :param give_up: present for a turn of stored history; takes the turn if it is not stored
        """
        started = self._timer()
        try:
            try:
                conversation = await self._store.record(turn)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client must get its bytes
                repeated = await self._record_again(turn, error, give_up, PATIENT_SECONDS)
                if repeated is None:
                    return False
                conversation = repeated
            if self._emits_stored:
                self._emit(TurnStored(conversation, *_additions(turn), self._timer() - started))
            if prepare is not None:
                await prepare(conversation)
        except asyncio.CancelledError:
            self.record_later(turn, give_up)
            raise
        return True

    def record_later(self, turn: TurnRecord, give_up: GiveUp | None = None) -> None:
        """Store a turn from a task of its own, since the present one is being cancelled."""
        self.run_apart(self.record_without_client(turn, give_up))

    def run_apart(self, work: Coroutine[Any, Any, bool]) -> Awaitable[bool]:
        """Run work in a task of its own, which a client that leaves does not end. The shutdown waits for it."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        waiting = asyncio.shield(task)
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting
        return waiting

    async def settle(self) -> None:
        """Wait for the writes of clients that have left, each for one more attempt; for the shutdown."""
        self._closing = True
        if self._late:
            await asyncio.gather(*self._late, return_exceptions=True)

    def report_failure(self, error: Exception) -> None:
        """Report that a turn is not stored as it should be. A foreign error may quote contents: its kind only."""
        cause = (error.internal or str(error)) if isinstance(error, TidemarkError) else type(error).__name__
        self._emit(StoreDegraded("record", cause))

    async def record_without_client(self, turn: TurnRecord, give_up: GiveUp | None) -> bool:
        """Store a turn whose client has left, and return whether it is stored."""
        started = self._timer()
        conversation: str | None
        try:
            conversation = await self._store.record(turn)
        except Exception as error:  # noqa: BLE001 - nobody waits for it
            conversation = await self._record_again(turn, error, give_up, LATE_SECONDS)
        if conversation is not None and self._emits_stored:
            self._emit(TurnStored(conversation, *_additions(turn), self._timer() - started))
        return conversation is not None

    async def _record_again(
        self, turn: TurnRecord, error: Exception, give_up: GiveUp | None, seconds: float
    ) -> str | None:
        """Repeat the write of a turn, and return the id that it is stored under; None if it is not.

        :param seconds: how long a store that does not answer is asked again, for a turn of stored history
        """
        self.report_failure(error)
        if give_up is None:
            return None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds - PAUSE_SECONDS
        while _may_pass(error) and not self._closing and loop.time() <= deadline:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                return await self._store.record(turn)
            except Exception as repeated:  # noqa: BLE001 - as above
                error = repeated
                self.report_failure(error)
        give_up(turn)
        return None


def _may_pass(error: Exception) -> bool:
    """Return whether the store may be back in a moment; a store that refuses to write would refuse again."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreRefuses)


def _additions(turn: TurnRecord) -> tuple[int, int]:
    """Return how many messages a turn adds, and their bytes: its newest messages that are no system messages."""
    new, count, size = len(turn.chain) - turn.stored_count, 0, 0
    for message in reversed(turn.messages):
        if count >= new:
            break
        if not message.is_system:
            count += 1
            size += len(message.raw)
    return count, size
