"""The relay: the upstream's bytes go to the client as they come. The reply in them is read and stored at the end.

It comes after the upstream has answered. The write at the end is done before the last bytes are released, so that the
client's next turn finds this one; the store bounds its time. Reading, counting and storing can fail, and the client
still gets its bytes.

When a reply is over, the relay gives the endpoint its ending, which says how the exchange ended. The reply so far
decides it, and whether its turn is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from tidemark.codings.decoders import DECODE_ERRORS
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.reply import EMPTY_REPLY, Reply, ReplyFold
from tidemark.core.errors import StoreUnavailable, TurnNotStored, UpstreamBroken
from tidemark.core.events import Listener
from tidemark.core.ports import ConversationStore, TokenCounter, UpstreamReply
from tidemark.dialects.sse import WholeEvents
from tidemark.pipeline.plain_replies import DecodedReply, ReplyDecoder, are_known, codings_of, decode_whole
from tidemark.pipeline.record import Recorder
from tidemark.pipeline.reply_reader import LARGE_BYTES, ReplyReader
from tidemark.pipeline.values import Ending, Learn, LeaveOut, PendingTurn

Deliver = Callable[[bytes], Awaitable[None]]
"""Takes bytes to the client; raises or is cancelled when the client is gone."""
_NOT_STORED = (
    "The model answered, and the conversation store could not keep the turn, so the stored history goes on without it. "
    "Send the message again."
)
_NOT_READ = "The upstream's answer cannot be read, so it cannot be kept in the stored history. Send the message again."


class Relay:
    """Carries replies. Its only state is the recorder's.

    :param emits_stored: whether anybody listens to ``TurnStored``, which few logs are verbose enough for
    """

    def __init__(
        self,
        store: ConversationStore,
        counter: TokenCounter,
        emit: Listener,
        timer: Callable[[], float],
        *,
        emits_stored: bool = True,
    ) -> None:
        self._counter = counter
        self._recorder = recorder = Recorder(store, emit, timer, emits_stored=emits_stored)
        self._on_failure = recorder.report_failure
        self.streams = 0
        """The streams on their way to clients now."""

    async def whole(self, reply: UpstreamReply, turn: PendingTurn) -> tuple[bytes, Ending]:
        """Gather a reply that is no stream, so that a broken one can still be answered with a proper status.

        :raises UpstreamBroken: the body did not arrive in full; the turn is stored as incomplete
        """
        try:
            parts: list[bytes] = []
            async for chunk in reply.body():
                parts.append(chunk)  # noqa: PERF401 - before Python 3.12 a comprehension is a coroutine
            data = b"".join(parts)
        except (UpstreamBroken, asyncio.CancelledError):
            if reply.status < 400:
                self._recorder.record_later(turn.record, turn.give_up)
            raise
        finally:
            await reply.close()
        plain: bytes | None = data
        if codings_of(reply.headers):
            plain = await asyncio.to_thread(decode_whole, reply.headers, data)
        if plain is not None and len(plain) > LARGE_BYTES:
            return data, await self._large(reply, turn, plain)
        content = self._read(turn, plain) if plain is not None else None
        if reply.status >= 400:
            return data, Ending("refused", content or EMPTY_REPLY)
        stored = await self._store(turn, content)
        return data, with_storage(whole_ending(content), turn, content, stored=stored)

    async def stream(self, reply: UpstreamReply, turn: PendingTurn, deliver: Deliver) -> Ending:
        """Deliver an event stream, every event as it comes and byte for byte.

        An upstream that ends its stream early is a failure: the ending has the error to send, no closing event is
        made up, and the turn is stored as incomplete. An event that was cut short gives way to the error.
        """
        codings = codings_of(reply.headers)
        if turn.give_up is not None and codings:  # no reader finds our event in packed bytes later
            return await self._unreadable(reply, turn)
        self.streams += 1
        stream = _Stream(turn.dialect.fold_stream() if are_known(codings) else None, self._on_failure, codings)
        reader = stream.reader
        broken: UpstreamBroken | None = None
        try:
            try:
                await self._forward(reply, turn, deliver, stream)
            except UpstreamBroken as error:
                broken = error
            if turn.give_up is not None and isinstance(reply, DecodedReply) and reply.is_unreadable:
                return await self._unreadable(reply, turn)
            if not stream.ended:
                stream.ended = True
                stream.stored = await self._end(turn, reader)
            content = reader.reply()
            ending = with_storage(stream_ending(content, broken), turn, content, stored=stream.stored)
            if ending.error is None and (rest := _without(turn.leave_out, bytes(stream.events.pending))):
                await deliver(rest)
        except (asyncio.CancelledError, OSError):
            if not stream.ended:
                self._end_without_client(turn, reader)
            raise
        finally:
            self.streams -= 1
            await reply.close()
        return ending

    async def settle(self) -> None:
        """Wait for the writes of clients that have left; for the shutdown."""
        await self._recorder.settle()

    async def _forward(self, reply: UpstreamReply, turn: PendingTurn, deliver: Deliver, stream: _Stream) -> None:
        """Deliver the events as they come; the turn is stored before the event that ends the stream.

        If the client relies on a turn that could not be stored, that event is not released.
        """
        fold, reader, events, leave_out = stream.fold, stream.reader, stream.events, turn.leave_out
        async for chunk in reply.body():
            if fold:
                reading = reader.feed(fold, chunk) if stream.is_plain else stream.read_coded(fold, chunk)
                if reading is not None:
                    await reading
                if fold.ended and not stream.ended:
                    stream.ended = True
                    stream.stored = await self._end(turn, reader)
                    if not stream.stored and turn.must_be_stored and stream.is_plain:
                        if rest := _without(leave_out, turn.dialect.before_end(events.feed(chunk))):
                            await deliver(rest)
                        return
            ready = events.feed(chunk) if stream.is_plain else chunk
            if leave_out is not None and stream.is_plain:
                ready = leave_out(ready)
            if ready:
                await deliver(ready)

    async def _unreadable(self, reply: UpstreamReply, turn: PendingTurn) -> Ending:
        """End a turn of stored history whose reply can be carried and not be stored."""
        self._recorder.record_later(turn.record, turn.give_up)
        await reply.close()
        return unreadable_ending()

    async def _large(self, reply: UpstreamReply, turn: PendingTurn, data: bytes) -> Ending:
        """Read and store a large reply that is no stream, in a thread."""
        reader = ReplyReader(lambda: turn.dialect.fold_body(data), self._on_failure)
        if reply.status >= 400:
            return Ending("refused", await reader.reply_from_thread() or EMPTY_REPLY)
        stored = await self._recorder.run_apart(self._end_in_thread(turn, reader))
        content = reader.reply()
        return with_storage(whole_ending(content), turn, content, stored=stored)

    def _read(self, turn: PendingTurn, data: bytes) -> Reply | None:
        """Read a whole reply; None if it cannot be read."""
        try:
            return turn.dialect.fold_body(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must get its bytes
            self._on_failure(error)
            return None

    def _end(self, turn: PendingTurn, reader: ReplyReader) -> Awaitable[bool]:
        """Store a stream's turn, and return whether it is stored."""
        if reader.is_large:
            return self._recorder.run_apart(self._end_in_thread(turn, reader))
        return self._store(turn, reader.reply())

    def _end_without_client(self, turn: PendingTurn, reader: ReplyReader) -> None:
        """Store what a stream had brought when its client left."""
        if reader.is_large:
            self._recorder.run_apart(self._end_in_thread(turn, reader, has_client=False))
        else:
            self._recorder.record_later(self._record_of(turn, reader.reply()), turn.give_up)

    async def _end_in_thread(self, turn: PendingTurn, reader: ReplyReader, *, has_client: bool = True) -> bool:
        """Store a large reply, read and counted in a thread, and return whether it is stored.

        :param has_client: without a client, nothing is learned or prepared
        """
        content, record = await reader.reply_from_thread(), turn.record
        if content is not None:
            try:
                record = await asyncio.to_thread(turn.record_with, content, self._counter)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client must get its bytes
                self._on_failure(error)
        if not has_client:
            return await self._recorder.record_without_client(record, turn.give_up)
        return await self._store_record(turn, content, record)

    def _store(self, turn: PendingTurn, content: Reply | None) -> Awaitable[bool]:
        """Store a reply, and return whether it is stored."""
        return self._store_record(turn, content, self._record_of(turn, content))

    def _store_record(self, turn: PendingTurn, content: Reply | None, record: TurnRecord) -> Awaitable[bool]:
        """Store a turn's record, and learn from the upstream's own count at the same time."""
        complete = content is not None and content.complete
        recording = self._recorder.record(record, turn.prepare if complete else None, turn.give_up)
        if turn.give_up is not None and record.complete != complete:  # the reply could not be counted
            recording = _without_reply(recording)
        if content is None or not complete:
            return recording
        if turn.learn is not None:
            recording = self._recorded_and_learned(recording, self._learn(turn.learn, content))
        return recording if turn.add is None else self._recorded_and_added(recording, turn, turn.add(content))

    async def _recorded_and_added(
        self, recording: Awaitable[bool], turn: PendingTurn, adding: Coroutine[Any, Any, None]
    ) -> bool:
        """Wait for both, and return whether what the client relies on is stored. A client that leaves ends neither."""

        async def add() -> bool:
            try:
                await adding
            except Exception as error:  # noqa: BLE001 - whatever it is, the client must hear of it
                self._on_failure(error)
                return False
            return True

        added = self._recorder.run_apart(add())
        stored = await recording
        return await added and (stored or turn.give_up is None)

    @staticmethod
    async def _recorded_and_learned(recording: Awaitable[bool], learning: Coroutine[Any, Any, None]) -> bool:
        """Wait for both. The recording starts at once, so that it is under way if the client leaves now."""
        task = asyncio.create_task(learning)
        try:
            stored = await recording
            await task
        finally:
            task.cancel()
        return stored

    async def _learn(self, learn: Learn, content: Reply) -> None:
        try:
            await learn(content)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must get its bytes
            self._on_failure(error)

    def _record_of(self, turn: PendingTurn, content: Reply | None) -> TurnRecord:
        """Return the record of a turn; a reply that could not be read or counted is not in it."""
        if content is None:
            return turn.record
        try:
            return turn.record_with(content, self._counter)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must get its bytes
            self._on_failure(error)
            return turn.record


class _Stream:
    """A stream on its way: its content, the ends of its events, and its turn.

    :param fold: None if nothing can read the bytes, and they are carried only
    :param codings: the codings of the bytes, in the order in which they were applied
    """

    def __init__(self, fold: ReplyFold | None, on_failure: Callable[[Exception], None], codings: Sequence[str]) -> None:
        self.fold = fold
        self.reader = ReplyReader(fold.reply if fold else lambda: None, on_failure)
        self.events = WholeEvents()
        self.is_plain = not codings
        """Whether the bytes are events as they come. Others are carried in the pieces that they come in."""
        self.ended = False
        """Whether the end of the turn has begun."""
        self.stored = False
        """Whether the turn is in the store."""
        self._decoder = ReplyDecoder(codings) if fold and codings else None

    async def read_coded(self, fold: ReplyFold, chunk: bytes) -> None:
        """Read bytes that have a coding; bytes that cannot be decoded are not read from then on."""
        if self._decoder is None:
            return
        try:
            for piece in self._decoder.pieces(chunk):
                if (reading := self.reader.feed(fold, piece)) is not None:
                    await reading
                await asyncio.sleep(0)  # one chunk may become many pieces
        except DECODE_ERRORS as error:
            self._decoder = None
            self.reader.give_up(error)


def _without(leave_out: LeaveOut | None, events: bytes) -> bytes:
    """Return events without what the client did not ask for."""
    return events if leave_out is None or not events else leave_out(events)


async def _without_reply(recording: Awaitable[bool]) -> bool:
    """Record a turn without its reply, which is not what the client was promised."""
    await recording
    return False


def whole_ending(reply: Reply | None) -> Ending:
    """Return the ending of a reply that was no stream and came in full.

    :param reply: None if the bytes cannot be read
    """
    return Ending("complete" if reply is None or reply.complete else "incomplete", reply or EMPTY_REPLY)


def stream_ending(reply: Reply | None, broken: UpstreamBroken | None) -> Ending:
    """Return the ending of a stream. Its content decides or, if that cannot be read, how its connection ended."""
    if reply is None:
        return Ending("incomplete" if broken else "complete", error=broken)
    if reply.complete:  # if the connection broke, only its own end is missing
        return Ending("complete", reply)
    cut = broken or UpstreamBroken("The upstream ended its answer without a finish_reason.")
    return Ending("incomplete", reply, None if reply.error is not None else cut)


def unreadable_ending() -> Ending:
    """Return the ending of a turn of stored history whose reply can be carried and not be stored."""
    return Ending("error", error=TurnNotStored(_NOT_READ), stored=False)


def with_storage(ending: Ending, turn: PendingTurn, reply: Reply | None, *, stored: bool) -> Ending:
    """Return the ending of a turn that is stored or not; an error if the client relies on the store."""
    if stored and reply is not None:
        return ending
    if turn.must_be_stored and ending.error is None and ending.outcome == "complete":
        error = TurnNotStored(_NOT_READ if reply is None else _NOT_STORED)
        error.retry_after = 0.0 if reply is None else StoreUnavailable.retry_after
        return replace(ending, outcome="error", error=error, stored=False)
    return replace(ending, stored=stored)
