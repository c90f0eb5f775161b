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
from proxy.core.errors import TidemarkError, TurnNotStored, UpstreamBroken
from proxy.core.events import Listener, Outcome
from proxy.core.ports import ConversationStore, TokenCounter, UpstreamReply
from proxy.core.values import value
from proxy.dialects.chat.reply import NOTHING, Decode, Reply, fold_body
from proxy.dialects.chat.stream import StreamFold
from proxy.dialects.sse import WholeEvents
from proxy.pipeline.answer_fold import LARGE_BYTES, AnswerFold
from proxy.pipeline.record import Ahead, Recorder, Unstored

Deliver = Callable[[bytes], Awaitable[None]]
"""Takes bytes to the client; raises or is cancelled when the client is gone."""
Learn = Callable[[Reply], Awaitable[None]]
_NOT_STORED = (
    "The model answered, and the conversation store could not keep the turn, so the stored history goes on without it. "
    "Send the message again."
)
_NOT_READ = "The upstream's answer cannot be read, so it cannot be kept in the stored history. Send the message again."


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
    unstored: Unstored | None = None
    """Told of the record where it could not be stored; given where the client keeps no messages (stored history)."""

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
    error: TidemarkError | None = None
    """What the client is still to be told: the answer was cut short, and the upstream did not say so itself; or it is
    whole, and the turn of a stored history could not be kept."""
    stored: bool = True
    """Whether the turn is in the store; of a refusal nothing is."""


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
        self._counter = counter
        self._decode = decode
        self._recorder = recorder = Recorder(store, emit, timer, tells=tells_turns)
        self._unread = recorder.failed

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
                self._recorder.record_later(turn.record, turn.unstored)
            raise
        finally:
            await reply.close()
        if len(data) > LARGE_BYTES and _readable(reply):
            return data, await self._large(reply, turn, data)
        said = self._read(data) if _readable(reply) else None
        if reply.status >= 400:
            return data, Ending("refused", said or NOTHING)
        stored = await self._end(turn, said)
        return data, _ended(turn, _whole_ending(said), said, stored=stored)

    async def _large(self, reply: UpstreamReply, turn: PendingTurn, data: bytes) -> Ending:
        """A large answer that is no stream, read in a thread."""
        answer = AnswerFold(lambda: fold_body(data, self._decode), self._unread)
        if reply.status >= 400:
            return Ending("refused", await answer.reply_aside() or NOTHING)
        stored = await self._recorder.apart(self._end_aside(turn, answer))
        said = answer.reply()
        return _ended(turn, _whole_ending(said), said, stored=stored)

    async def stream(self, reply: UpstreamReply, turn: PendingTurn, deliver: Deliver) -> Ending:
        """An answer that is an event stream: every event is delivered as it comes, byte by byte as it was.

        An upstream that ends without a ``finish_reason`` is a failure: the ending holds the error to tell, no
        ``[DONE]`` is made up, and the turn is stored as incomplete. An event that was cut short gives way to
        the error.
        """
        if turn.unstored is not None and not _readable(reply):  # told now: no reader finds our event in packed bytes
            return await self._unreadable(reply, turn)
        stream = _Stream(StreamFold(self._decode) if _readable(reply) else None, self._unread)
        answer = stream.answer
        broken: UpstreamBroken | None = None
        try:
            try:
                await self._forward(reply, turn, deliver, stream)
            except UpstreamBroken as error:
                broken = error
            if not stream.ended:
                stream.ended = True
                stream.stored = await self._end_of(turn, answer)
            said = answer.reply()
            ending = _ended(turn, _ending(said, broken), said, stored=stream.stored)
            if stream.events.held and ending.error is None:
                await deliver(bytes(stream.events.held))
        except (asyncio.CancelledError, OSError):
            if not stream.ended:
                self._leave(turn, answer)
            raise
        finally:
            await reply.close()
        return ending

    async def _forward(self, reply: UpstreamReply, turn: PendingTurn, deliver: Deliver, stream: _Stream) -> None:
        """Deliver the events as they come; the turn is stored before the one that says that all is done.

        Where that one may not be released, since the client relies on a turn that is not stored, it is the end.
        """
        fold, answer, events = stream.fold, stream.answer, stream.events
        async for chunk in reply.body():
            if fold:
                if (reading := answer.take(fold, chunk)) is not None:
                    await reading
                if fold.ended and not stream.ended:
                    stream.ended = True
                    stream.stored = await self._end_of(turn, answer)
                    if not stream.stored and turn.unstored is not None:
                        if rest := _before_done(events.feed(chunk)):
                            await deliver(rest)
                        return
            ready = events.feed(chunk) if fold else chunk
            if ready:
                await deliver(ready)

    async def _unreadable(self, reply: UpstreamReply, turn: PendingTurn) -> Ending:
        """End a turn of stored history whose answer could be carried and not be kept."""
        self._recorder.record_later(turn.record, turn.unstored)
        await reply.close()
        return Ending("error", error=TurnNotStored(_NOT_READ), stored=False)

    async def settle(self) -> None:
        """Wait for writes that were left behind by clients that went away; for the shutdown."""
        await self._recorder.settle()

    def _read(self, data: bytes) -> Reply | None:
        """What a whole answer says; None where it cannot be read."""
        try:
            return fold_body(data, self._decode)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
            self._unread(error)
            return None

    def _end_of(self, turn: PendingTurn, answer: AnswerFold) -> Awaitable[bool]:
        """Store what a stream said, and tell whether it is stored."""
        if answer.large:
            return self._recorder.apart(self._end_aside(turn, answer))
        return self._end(turn, answer.reply())

    def _leave(self, turn: PendingTurn, answer: AnswerFold) -> None:
        """Store what a stream said until its client left."""
        if answer.large:
            self._recorder.apart(self._end_aside(turn, answer, left=True))
        else:
            self._recorder.record_later(self._told(turn, answer.reply()), turn.unstored)

    async def _end_aside(self, turn: PendingTurn, answer: AnswerFold, *, left: bool = False) -> bool:
        """Store what a large answer said, read and counted in a thread, and tell whether it is stored.

        :param left: the client is gone, so that nothing is learned or prepared
        """
        said, record = await answer.reply_aside(), turn.record
        if said is not None:
            try:
                record = await asyncio.to_thread(turn.told, said, self._counter)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is owed its bytes
                self._unread(error)
        if left:
            return await self._recorder.record_left(record, turn.unstored)
        return await self._keep(turn, said, record)

    def _end(self, turn: PendingTurn, said: Reply | None) -> Awaitable[bool]:
        """Store what was said, and tell whether it is stored."""
        return self._keep(turn, said, self._told(turn, said))

    def _keep(self, turn: PendingTurn, said: Reply | None, record: TurnRecord) -> Awaitable[bool]:
        """Store a turn's record; at the same time the upstream's own count is learned from."""
        complete = said is not None and said.complete
        recording = self._recorder.record(record, turn.ahead if complete else None, turn.unstored)
        if turn.unstored is not None and record.complete != complete:  # its answer could not be counted
            recording = _lacking(recording)
        if turn.learn is None or said is None or not complete:
            return recording
        return self._recorded(recording, self._taught(turn.learn, said))

    @staticmethod
    async def _recorded(recording: Awaitable[bool], teaching: Coroutine[Any, Any, None]) -> bool:
        """Wait for both. The recording begins at once, so that a client that leaves now finds it begun."""
        beside = asyncio.create_task(teaching)
        try:
            stored = await recording
            await beside
        finally:
            beside.cancel()
        return stored

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


class _Stream:
    """One stream on its way: what it says, where its events end, and what became of its turn."""

    def __init__(self, fold: StreamFold | None, failed: Callable[[Exception], None]) -> None:
        """:param fold: None where the bytes are not plain, and only carried"""
        self.fold = fold
        self.answer = AnswerFold(fold.reply if fold else lambda: None, failed)
        self.events = WholeEvents()
        self.ended = False
        """Whether the turn's end has been begun."""
        self.stored = False
        """Whether the turn is in the store."""


async def _lacking(recording: Awaitable[bool]) -> bool:
    """Record a turn without its answer, which is not what the client is promised."""
    await recording
    return False


def _ended(turn: PendingTurn, ending: Ending, said: Reply | None, *, stored: bool) -> Ending:
    """An ending with whether its turn is stored; it is an error where the client relies on that and it is not."""
    if stored and said is not None:
        return ending
    if turn.unstored is not None and ending.error is None and ending.outcome == "complete":
        error = TurnNotStored(_NOT_READ if said is None else _NOT_STORED)
        return replace(ending, outcome="error", error=error, stored=False)
    return replace(ending, stored=stored)


def _before_done(ready: bytes) -> bytes:
    """The events before the one that says that all is done."""
    done = ready.rfind(b"[DONE]")
    return ready if done < 0 else ready[: max(ready.rfind(b"data:", 0, done), 0)]


def _whole_ending(said: Reply | None) -> Ending:
    """How an answer ended that was no stream and came in full."""
    return Ending("complete" if said is None or said.complete else "incomplete", said or NOTHING)


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
