"""Recording: a turn that has ended is written to the store, now or, where nobody waits for it any more, later.

Below the relay, which says when a turn has ended. A turn of stored history is nobody else's to keep, so it is tried for
some seconds, through a restart of the store (ADR 0015).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from proxy.core.conversation.records import TurnRecord
from proxy.core.errors import StoreRefuses, StoreUnavailable, TidemarkError
from proxy.core.events import Listener, StoreDegraded, TurnStored
from proxy.core.ports import ConversationStore

Ahead = Callable[[str], Awaitable[None]]
Unstored = Callable[[TurnRecord], None]
PATIENT_SECONDS = 2.5
"""From its first failure, so long a turn of stored history is tried while its client waits for the last byte: the
embedded store is back from a crash by then."""
LATE_SECONDS = 60.0
"""The same where its client has left, and cannot be told."""
PAUSE_SECONDS = 0.25
"""Between two tries."""


class Recorder:
    """Writes turns. Its state is the tasks of those whose clients have left, and whether all is about to end."""

    def __init__(self, store: ConversationStore, emit: Listener, timer: Callable[[], float], *, tells: bool) -> None:
        """Nothing is written yet.

        :param tells: whether somebody listens to what was stored as it should be
        """
        self._store = store
        self._emit = emit
        self._timer = timer
        self._tells = tells
        self._late: set[asyncio.Task[bool]] = set()
        self._closing = False

    async def record(self, turn: TurnRecord, ahead: Ahead | None = None, unstored: Unstored | None = None) -> bool:
        """Store a turn; where the client leaves meanwhile, once more by itself: writing it twice changes nothing.

        The next summary's lease is taken before the last byte is released, so the client's next request finds it.

        :param unstored: given for a turn of stored history, and told where it is not stored
        :returns: whether it is stored
        """
        started = self._timer()
        try:
            try:
                conversation = await self._store.record(turn)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
                again = await self._tried_again(turn, error, unstored, PATIENT_SECONDS)
                if again is None:
                    return False
                conversation = again
            if self._tells:
                self._emit(TurnStored(conversation, *_added(turn), self._timer() - started))
            if ahead is not None:
                await ahead(conversation)
        except asyncio.CancelledError:
            self.record_later(turn, unstored)
            raise
        return True

    def record_later(self, turn: TurnRecord, unstored: Unstored | None = None) -> None:
        """Store from a task of its own, since the present one is being cancelled."""
        self.apart(self.record_left(turn, unstored))

    def apart(self, work: Coroutine[Any, Any, bool]) -> Awaitable[bool]:
        """Do work in a task of its own, which a client that leaves does not end; the shutdown waits for it."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        waiting = asyncio.shield(task)
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting
        return waiting

    async def settle(self) -> None:
        """Wait for the writes of clients that went away, each for one more try; for the shutdown."""
        self._closing = True
        if self._late:
            await asyncio.gather(*self._late, return_exceptions=True)

    def failed(self, error: Exception) -> None:
        """Tell that a turn is not stored as it should be. Of a foreign error only the kind: it may quote contents."""
        cause = (error.internal or str(error)) if isinstance(error, TidemarkError) else type(error).__name__
        self._emit(StoreDegraded("record", cause))

    async def record_left(self, turn: TurnRecord, unstored: Unstored | None) -> bool:
        """Store a turn whose client has left, and tell whether it is stored."""
        started = self._timer()
        conversation: str | None
        try:
            conversation = await self._store.record(turn)
        except Exception as error:  # noqa: BLE001 - nobody waits for it
            conversation = await self._tried_again(turn, error, unstored, LATE_SECONDS)
        if conversation is not None and self._tells:
            self._emit(TurnStored(conversation, *_added(turn), self._timer() - started))
        return conversation is not None

    async def _tried_again(
        self, turn: TurnRecord, error: Exception, unstored: Unstored | None, seconds: float
    ) -> str | None:
        """The id that a turn is stored under after it could not be; None where it is not, which ``unstored`` is told.

        :param seconds: for which a store that does not answer is asked again, for a turn of stored history
        """
        self.failed(error)
        if unstored is None:
            return None
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds - PAUSE_SECONDS
        while _away(error) and not self._closing and loop.time() <= until:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                return await self._store.record(turn)
            except Exception as another:  # noqa: BLE001 - as above
                error = another
                self.failed(error)
        unstored(turn)
        return None


def _away(error: Exception) -> bool:
    """Whether the store may be back in a moment; one that refuses to write would refuse again."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreRefuses)


def _added(turn: TurnRecord) -> tuple[int, int]:
    """How many messages a turn adds, and their bytes: the newest ones that are no system messages."""
    new, count, size = len(turn.chain) - turn.known, 0, 0
    for message in reversed(turn.messages):
        if count >= new:
            break
        if not message.is_system:
            count += 1
            size += len(message.raw)
    return count, size
