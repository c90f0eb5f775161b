"""Answers a turn of stored history that is sent again with the answer of the first try.

Clients send a request again when they wait too long or lose a connection. Only the store has the conversation, so it
would have the turn twice. Requests with the same ``Idempotency-Key`` are one turn for ten minutes. Without a key,
requests with the same bytes and the same ``known=N`` are one turn while the first one is answered, because a user may
ask the same twice later. Another worker finds the answer of a conversation's newest turn with a key in the store;
without a key it sees the turn there only (``stored_history.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest, StoreError
from tidemark.core.ports import AnswerStore, Caller, Clock, KeptAnswer, UpstreamReply
from tidemark.core.report import Report
from tidemark.pipeline.stored_history import HistoryTurn
from tidemark.pipeline.values import BufferedReply, Controls, Exchange, LeaveOut, PendingTurn, Repeated, Result

MAX_TURNS = 256
"""Turns that a worker remembers."""
MAX_BYTES = 262_144
"""A longer answer is not kept: a worker takes 64 MB for all of them at most."""
KEYED_SECONDS = 600.0
"""How long an ``Idempotency-Key`` is remembered after its answer."""
REPEATED_SECONDS = 10.0
"""The same for a turn without a key that was sent again while it was answered."""
KEEPING_SECONDS = 2.0
"""How long after a turn was stored its answer may take to be in the store, too."""
_PAUSE_SECONDS = 0.05
STORING_SECONDS = 3.0
"""How long after the last byte of an answer a turn may take to be stored."""
_Key = tuple[bytes, str, str, str]
_Keep = Callable[[str, Repeated], Awaitable[None]]
"""Stores an answer beside its conversation."""


class RepeatedTurns:
    """Remembers turns and their answers. The mutable state is both.

    :param answers: those of turns with a key, for the other workers
    :param timer: seconds of a clock that never goes back
    """

    def __init__(self, answers: AnswerStore, timer: Clock) -> None:
        self._answers = answers
        self._timer = timer
        self._turns: BoundedCache[_Key, RepeatableTurn] = BoundedCache(MAX_TURNS)

    async def join(
        self, request: ModelRequest, caller: Caller, controls: Controls, *, seconds: float
    ) -> Repeated | RepeatableTurn | None:
        """Return the answer of the same turn, which may still be under way, or begin it.

        :param seconds: the longest wait for that answer; after it the turn begins as any other
        :returns: what must end with the turn that begins; None if later tries must find the earlier one
        :raises InvalidRequest: the key came with another request before
        """
        body = digest_of(request.body)
        identity = controls.idempotency_key or f"{body.hex()} {controls.known_count}"
        key = (caller.fingerprint, request.dialect.name, controls.conversation or "", identity)
        # If one try fails, those that wait for it go on one by one: the next one is the first one of the others.
        while (earlier := self._turns.get(key)) is not None and earlier.until >= self._timer():
            if earlier.body != body:
                raise _reused_key()
            earlier.is_repeated = True
            answer = await earlier.answer(seconds)
            if answer is not None:
                return answer
            if earlier.is_under_way:
                return None
        keep = (
            partial(self._keep, owner_of(caller.fingerprint), _name_of(request, caller, controls), body)
            if controls.idempotency_key
            else None
        )
        turn = RepeatableTurn(body, self._timer, partial(self._forget, key), keep)
        self._turns.put(key, turn)
        return turn

    async def kept_answer(
        self, turn: HistoryTurn, request: ModelRequest, caller: Caller, controls: Controls
    ) -> Repeated | None:
        """Return the answer that another worker has given to a turn with the same key; None if none did.

        :raises InvalidRequest: the key came with another request before
        :raises StoreUnavailable: the store did not answer in time
        """
        record = turn.started.record
        if record is None or not controls.idempotency_key:
            return None
        name, deadline = _name_of(request, caller, controls), self._timer() + KEEPING_SECONDS
        while (answer := await self._answers.find(record.id)) is None or answer.turn != name:
            if not turn.may_be_answered or self._timer() > deadline:
                return None
            await asyncio.sleep(_PAUSE_SECONDS)
        if answer.body != digest_of(request.body):
            raise _reused_key()
        return Repeated(BufferedReply(answer.status, answer.headers, answer.data), answer.data, answer.report)

    async def _keep(self, owner: str, name: bytes, body: bytes, conversation: str, answer: Repeated) -> None:
        """Let other workers have an answer; an outage of the store only makes them ask again."""
        reply = answer.reply
        own = KeptAnswer(name, body, reply.status, reply.headers, answer.data, answer.report)
        with suppress(StoreError):
            await self._answers.keep(owner, conversation, own, int(KEYED_SECONDS))

    def _forget(self, key: _Key, turn: RepeatableTurn) -> None:
        """Free the place of a turn that is remembered no longer, for those that are."""
        if self._turns.get(key) is turn:
            del self._turns[key]


def _name_of(request: ModelRequest, caller: Caller, controls: Controls) -> bytes:
    """Return the name by which all workers know a turn with an idempotency key."""
    return digest_of(caller.fingerprint, request.dialect.name.encode(), controls.idempotency_key.encode())


def _reused_key() -> InvalidRequest:
    return InvalidRequest(
        "This Idempotency-Key came with another request before. Send a new key with each new request.",
        param="Idempotency-Key",
        code="idempotency_key_reused",
    )


class RepeatableTurn:
    """One turn. Mutable: whether it was sent again, how long it is remembered, and its answer."""

    def __init__(self, body: bytes, timer: Clock, forget: Callable[[RepeatableTurn], None], keep: _Keep | None) -> None:
        self.body = body
        self.is_repeated = False
        self.until = float("inf")
        self._timer = timer
        self._forget = forget
        self._keep = keep
        """Present if the turn has a key."""
        self._answer: asyncio.Future[Repeated | None] = asyncio.get_running_loop().create_future()
        self._pending: Repeated | None = None
        self._conversation = ""
        """The conversation that the turn with its complete reply is stored in; empty before."""

    @property
    def is_stored(self) -> bool:
        """Whether the store has the turn with its complete reply."""
        return bool(self._conversation)

    @property
    def is_under_way(self) -> bool:
        """Whether its answer is still to come."""
        return not self._answer.done()

    async def answer(self, seconds: float) -> Repeated | None:
        """Wait for the answer; None if there is none, or it is late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._answer)
        return None

    def end(self, answer: Repeated | None) -> None:
        """Take the answer; None if the turn has none that can be given again."""
        if self._answer.done():
            return
        self._answer.set_result(answer)
        seconds = KEYED_SECONDS if self._keep else REPEATED_SECONDS if self.is_repeated else 0.0
        if answer is not None and seconds:
            self.until = self._timer() + seconds
        else:
            self._forget(self)

    async def settle(self, result: Result) -> Result:
        """Follow the reply; a turn without one has no answer that can be given again."""
        if isinstance(result, Exchange) and result.reply.status < 400:
            return self._follow(result)
        self.end(None)
        return result

    async def abandon(self) -> None:
        """Let those that wait for its answer go on."""
        self.end(None)

    def _follow(self, exchange: Exchange) -> Exchange:
        """Return the exchange, whose answer is kept as it goes by, until its turn is stored."""
        turn = exchange.turn
        reply = _KeptReply(exchange.reply, self, exchange.report, turn.leave_out)
        return replace(exchange, reply=reply, turn=self._noting(turn))

    async def close(self, answer: Repeated | None) -> None:
        """Note that all bytes of the answer have come; None if they have not."""
        if answer is None:
            self.end(None)
            return
        if self.is_stored:
            await self._give(answer)
            return
        self._pending = answer
        asyncio.get_running_loop().call_later(STORING_SECONDS, self.end, None)

    async def _give(self, answer: Repeated) -> None:
        """Take the answer of a turn that is stored."""
        self.end(answer)
        if self._keep is not None:
            await self._keep(self._conversation, answer)

    def _noting(self, turn: PendingTurn) -> PendingTurn:
        """Return a turn that also tells whether it was stored."""
        prepare, give_up = turn.prepare, turn.give_up

        async def note_stored(conversation: str) -> None:
            self._conversation = conversation
            if self._pending is not None:
                await self._give(self._pending)
            if prepare is not None:
                await prepare(conversation)

        def give_up_both(record: TurnRecord) -> None:
            self.end(None)
            if give_up is not None:
                give_up(record)

        return replace(turn, prepare=note_stored, give_up=give_up_both)


class _KeptReply:
    """A reply whose bytes are kept as they go by."""

    def __init__(self, reply: UpstreamReply, turn: RepeatableTurn, report: Report, leave_out: LeaveOut | None) -> None:
        self._reply = reply
        self._turn = turn
        self._report = report
        self._leave_out = leave_out
        self._data = bytearray()
        self._is_whole = False
        self.status = reply.status
        self.headers = reply.headers

    async def body(self) -> AsyncIterator[bytes]:
        async for chunk in self._reply.body():
            if len(self._data) <= MAX_BYTES:
                self._data += chunk
            yield chunk
        self._is_whole = True

    async def close(self) -> None:
        """Close the reply, and give its answer to whoever waits for it."""
        try:
            await self._reply.close()
        finally:
            await self._turn.close(self._answer())

    def _answer(self) -> Repeated | None:
        is_whole = self._is_whole or self._turn.is_stored  # clients leave a stream at its last event, upstreams later
        if not is_whole or len(self._data) > MAX_BYTES:
            return None
        data = bytes(self._data) if self._leave_out is None else self._leave_out(bytes(self._data))
        return Repeated(BufferedReply(self.status, self.headers, data), data, self._report)
