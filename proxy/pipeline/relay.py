"""Relay: the upstream's bytes go to the client as they come; what was said is folded on the way and stored at the end.

On the road of a request after the upstream has answered, to its end. The write at the end is done before the last
bytes are released, so that the client's next turn finds this one, and it is bounded in time by the store. Nothing that
is done with the bytes here, folding, counting or storing, can keep them from the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from proxy.core.conversation.records import TurnRecord
from proxy.core.errors import TidemarkError, UpstreamBroken
from proxy.core.events import Listener, Outcome, StoreDegraded, TurnStored
from proxy.core.ports import ConversationStore, TokenCounter, UpstreamReply
from proxy.core.values import value
from proxy.dialects.chat.reply import NOTHING, Decode, Reply, fold_body
from proxy.dialects.chat.stream import StreamFold
from proxy.dialects.sse import WholeEvents

Deliver = Callable[[bytes], Awaitable[None]]
"""Takes bytes to the client; raises or is cancelled when the client is gone."""
Learn = Callable[[Reply], Awaitable[None]]
Ahead = Callable[[str], Awaitable[None]]


@value
class PendingTurn:
    """A turn whose answer is on its way."""

    record: TurnRecord
    """What is stored if no complete answer comes."""
    counted_as: str
    """The model whose tokenizer counts the answer."""
    learn: Learn | None = None
    """Takes a complete answer's ``usage``, where the model is calibrated."""
    ahead: Ahead | None = None
    """Begins to prepare the next summary, where that is due; told the id that the turn was stored under."""

    def told(self, folded: Reply, counter: TokenCounter) -> TurnRecord:
        """The record with what was said; an incomplete answer is not among its messages."""
        message = folded.message
        if message is None or not folded.complete:
            return replace(self.record, complete=folded.complete, usage=folded.usage)
        return self.record.answered(message, counter.count_message(message, self.counted_as), folded.usage)


@value
class Ending:
    """How an exchange ended, and what the upstream itself counted."""

    outcome: Outcome
    reply: Reply = NOTHING
    error: UpstreamBroken | None = None
    """What the client is still to be told: the answer was cut short, and the upstream did not say so itself."""


class Relay:
    """Carries answers; it holds no state of its own between them."""

    def __init__(
        self,
        store: ConversationStore,
        counter: TokenCounter,
        emit: Listener,
        decode: Decode,
        timer: Callable[[], float],
        *,
        tells_turns: bool = True,  # that each was stored as it should be, which few logs are loud enough for
    ) -> None:
        self._store = store
        self._counter = counter
        self._emit = emit
        self._decode = decode
        self._timer = timer
        self._tells_turns = tells_turns
        self._late: set[asyncio.Task[str | None]] = set()

    async def whole(self, reply: UpstreamReply, turn: PendingTurn) -> tuple[bytes, Ending]:
        """An answer that is no stream: gathered, so that a broken one can still be told with a proper status.

        :raises UpstreamBroken: the body did not arrive in full; the turn is stored as incomplete
        """
        try:
            parts: list[bytes] = []
            async for chunk in reply.body():
                parts.append(chunk)  # noqa: PERF401 - before Python 3.12 a comprehension is a coroutine
            data = b"".join(parts)
        except (UpstreamBroken, asyncio.CancelledError):
            if reply.status < 400:
                self._record_later(turn.record)
            raise
        finally:
            await reply.close()
        said = self._read(data) if _readable(reply) else None
        if reply.status >= 400:
            return data, Ending("refused", said or NOTHING)
        await self._end(turn, said)
        return data, Ending("complete" if said is None or said.complete else "incomplete", said or NOTHING)

    async def stream(self, reply: UpstreamReply, turn: PendingTurn, deliver: Deliver) -> Ending:
        """An answer that is an event stream: every event is delivered as it comes, byte by byte as it was.

        An upstream that ends without a ``finish_reason`` is a failure: the ending holds the error to tell, no
        ``[DONE]`` is made up, and the turn is stored as incomplete. An event that was cut short gives way to
        the error.
        """
        fold = StreamFold(self._decode) if _readable(reply) else None
        heard = _Heard(fold.reply if fold else lambda: None, self._unread)
        events = WholeEvents()
        kept = False
        broken: UpstreamBroken | None = None
        try:
            try:
                async for chunk in reply.body():
                    if fold:
                        heard.take(fold.feed, chunk)
                        if fold.ended and not kept:
                            kept = True
                            await self._end(turn, heard.reply())
                    ready = events.feed(chunk) if fold else chunk
                    if ready:
                        await deliver(ready)
            except UpstreamBroken as error:
                broken = error
            if not kept:
                kept = True
                await self._end(turn, heard.reply())
            ending = _ending(heard.reply(), broken)
            if events.held and ending.error is None:
                await deliver(bytes(events.held))
        except (asyncio.CancelledError, OSError):
            if not kept:
                self._record_later(self._told(turn, heard.reply()))
            raise
        finally:
            await reply.close()
        return ending

    async def settle(self) -> None:
        """Wait for writes that were left behind by clients that went away; for the shutdown."""
        if self._late:
            await asyncio.gather(*self._late, return_exceptions=True)

    def _read(self, data: bytes) -> Reply | None:
        """What a whole answer says; None where it cannot be read."""
        try:
            return fold_body(data, self._decode)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
            self._unread(error)
            return None

    def _end(self, turn: PendingTurn, said: Reply | None) -> Awaitable[object]:
        """Store what was said; at the same time the upstream's own count is learned from."""
        complete = said is not None and said.complete
        recording = self._record(self._told(turn, said), turn.ahead if complete else None)
        if turn.learn is None or said is None or not complete:
            return recording
        return self._recorded(recording, self._taught(turn.learn, said))

    @staticmethod
    async def _recorded(recording: Awaitable[None], teaching: Coroutine[Any, Any, None]) -> None:
        """Wait for both. The recording begins at once, so that a client that leaves now finds it begun."""
        beside = asyncio.create_task(teaching)
        try:
            await recording
            await beside
        finally:
            beside.cancel()

    async def _taught(self, learn: Learn, said: Reply) -> None:
        try:
            await learn(said)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
            self._unread(error)

    def _told(self, turn: PendingTurn, said: Reply | None) -> TurnRecord:
        """The record of a turn; an answer that could not be read or counted is not in it."""
        if said is None:
            return turn.record
        try:
            return turn.told(said, self._counter)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
            self._unread(error)
            return turn.record

    async def _record(self, turn: TurnRecord, ahead: Ahead | None = None) -> None:
        """Store a turn; where the client leaves meanwhile, once more by itself: writing it twice changes nothing.

        The next summary's lease is taken before the last byte is released, so the client's next request finds it.
        """
        try:
            conversation = await self._write(turn)
            if ahead is not None and conversation is not None:
                await ahead(conversation)
        except asyncio.CancelledError:
            self._record_later(turn)
            raise

    async def _write(self, turn: TurnRecord) -> str | None:
        """The id that the turn is stored under; None where it could not be."""
        started = self._timer()
        try:
            conversation = await self._store.record(turn)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
            self._unread(error)
            return None
        if self._tells_turns:
            self._emit(TurnStored(conversation, *_added(turn), self._timer() - started))
        return conversation

    def _record_later(self, turn: TurnRecord) -> None:
        """Store from a task of its own, since the present one is being cancelled."""
        task = asyncio.create_task(self._write(turn))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _unread(self, error: Exception) -> None:
        """An answer is not stored as it should be. Of a foreign error only the kind is told: it may quote contents."""
        told = (error.internal or str(error)) if isinstance(error, TidemarkError) else type(error).__name__
        self._emit(StoreDegraded("record", told))


class _Heard:
    """What a stream says, as far as it can be read: reading never raises, and is given up at the first failure."""

    def __init__(self, read: Callable[[], Reply | None], failed: Callable[[Exception], None]) -> None:
        self._read = read
        self._failed = failed
        self._reply: Reply | None = None
        self._over = False

    def take(self, feed: Callable[[bytes], None], chunk: bytes) -> None:
        """Take in the next bytes."""
        if not self._over:
            try:
                feed(chunk)
            except Exception as error:  # noqa: BLE001 - see the class
                self._over = True
                self._failed(error)

    def reply(self) -> Reply | None:
        """What was said, once and for all; None where the bytes cannot be read."""
        if not self._over:
            self._over = True
            try:
                self._reply = self._read()
            except Exception as error:  # noqa: BLE001 - see the class
                self._failed(error)
        return self._reply


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


def _ending(said: Reply | None, broken: UpstreamBroken | None) -> Ending:
    """How a stream ended: by what it said, and where that could not be read, by how its connection ended."""
    if said is None:
        return Ending("incomplete" if broken else "complete", error=broken)
    if said.complete:  # where the connection broke, only its own end is missing
        return Ending("complete", said)
    cut = broken or UpstreamBroken("The upstream ended its answer without a finish_reason.")
    return Ending("incomplete", said, None if said.error is not None else cut)


def _readable(reply: UpstreamReply) -> bool:
    """Whether the bytes are plain: an upstream that compresses although it was asked not to is carried, not read."""
    plain = True
    for name, coding in reply.headers:
        if name == b"content-encoding":
            plain = plain and coding.lower() == b"identity"
    return plain
