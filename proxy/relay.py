"""Relay: the upstream's bytes go to the client as they come; what was said is folded and stored at the end.

Eighth and last step on the road of a request. The write at the end is done before the last bytes are
released, so that the client's next turn finds this one, and it is bounded in time by the store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from proxy.core.conversation import TurnRecord
from proxy.core.delta import NOTHING, Decode, Reply, ends_stream, fold_body, fold_stream
from proxy.core.errors import StoreUnavailable, UpstreamBroken
from proxy.core.events import Listener, Outcome, StoreDegraded, TurnStored
from proxy.core.ports import ConversationStore, TokenCounter, UpstreamReply

Deliver = Callable[[bytes], Awaitable[None]]
"""Takes bytes to the client; raises or is cancelled when the client is gone."""
Learn = Callable[[Reply], Awaitable[None]]
TAIL_BYTES = 32
"""Enough to hold ``data: [DONE]`` and its line ends, which may arrive in two pieces."""


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """A turn whose answer is on its way."""

    record: TurnRecord
    """What is stored if no complete answer comes."""
    counted_as: str
    """The model whose tokenizer counts the answer."""
    learn: Learn | None = None
    """Takes a complete answer's ``usage``, where the model is calibrated."""

    def told(self, folded: Reply, counter: TokenCounter) -> TurnRecord:
        """The record with what was said; an incomplete answer is not among its messages."""
        message = folded.message
        if message is None or not folded.complete:
            return replace(self.record, complete=folded.complete, usage=folded.usage)
        return replace(
            self.record,
            complete=True,
            usage=folded.usage,
            chain=self.record.chain.extended([message]),
            messages=(*self.record.messages, message),
            tokens=(*self.record.tokens, counter.count_message(message, self.counted_as)),
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """How an exchange ended, and what the upstream itself counted."""

    outcome: Outcome
    reply: Reply = NOTHING


class Relay:
    """Carries answers; it holds no state of its own between them."""

    def __init__(
        self,
        store: ConversationStore,
        counter: TokenCounter,
        emit: Listener,
        decode: Decode,
        timer: Callable[[], float],
    ) -> None:
        self._store = store
        self._counter = counter
        self._emit = emit
        self._decode = decode
        self._timer = timer
        self._late: set[asyncio.Task[None]] = set()

    async def whole(self, reply: UpstreamReply, turn: PendingTurn) -> tuple[bytes, Ending]:
        """An answer that is no stream: gathered, so that a broken one can still be told with a proper status.

        :raises UpstreamBroken: the body did not arrive in full; the turn is stored as incomplete
        """
        try:
            data = b"".join([chunk async for chunk in reply.body()])
        except (UpstreamBroken, asyncio.CancelledError):
            if reply.status < 400:
                self._record_later(turn.record)
            raise
        finally:
            await reply.close()
        if reply.status >= 400:
            return data, Ending("refused", fold_body(data, self._decode))
        folded = fold_body(data, self._decode) if _readable(reply) else Reply(None, complete=True)
        await self._end(turn, folded)
        return data, Ending("complete", folded)

    async def stream(self, reply: UpstreamReply, turn: PendingTurn, deliver: Deliver) -> Ending:
        """An answer that is an event stream: every chunk is delivered as it comes, byte by byte as it was.

        An upstream that ends without a ``finish_reason`` is a failure: the client is told by an event, no
        ``[DONE]`` is made up, and the turn is stored as incomplete.
        """
        chunks: list[bytes] = []
        tail = b""
        folded: Reply | None = None
        try:
            async for chunk in reply.body():
                chunks.append(chunk)
                tail = (tail + chunk)[-TAIL_BYTES:]
                if folded is None and ends_stream(tail):
                    folded = await self._finish(reply, turn, chunks)
                await deliver(chunk)
            folded = folded or await self._finish(reply, turn, chunks)
        except UpstreamBroken as error:
            return await self._broken(reply, turn, chunks, deliver, error)
        except (asyncio.CancelledError, OSError):
            if folded is None:
                self._record_later(turn.record)
            raise
        finally:
            await reply.close()
        if not folded.complete:
            if folded.error is None:
                await deliver(error_event(UpstreamBroken("The upstream ended its answer without a finish_reason.")))
            return Ending("incomplete", folded)
        return Ending("complete", folded)

    async def settle(self) -> None:
        """Wait for writes that were left behind by clients that went away; for the shutdown."""
        if self._late:
            await asyncio.gather(*self._late, return_exceptions=True)

    async def _finish(self, reply: UpstreamReply, turn: PendingTurn, chunks: list[bytes]) -> Reply:
        folded = fold_stream(b"".join(chunks), self._decode) if _readable(reply) else Reply(None, complete=True)
        await self._end(turn, folded)
        return folded

    async def _broken(
        self, reply: UpstreamReply, turn: PendingTurn, chunks: list[bytes], deliver: Deliver, error: UpstreamBroken
    ) -> Ending:
        folded = fold_stream(b"".join(chunks), self._decode) if _readable(reply) else NOTHING
        if folded.complete:  # all was said; only the connection's own end is missing
            await self._end(turn, folded)
            return Ending("complete", folded)
        await self._record(turn.record)
        await deliver(error_event(error))
        return Ending("incomplete", folded)

    async def _end(self, turn: PendingTurn, folded: Reply) -> None:
        """Store what was said; at the same time the upstream's own count is learned from."""
        told = turn.told(folded, self._counter)
        if turn.learn is None or not folded.complete:
            await self._record(told)
        else:
            await asyncio.gather(self._record(told), turn.learn(folded))

    async def _record(self, turn: TurnRecord) -> None:
        started = self._timer()
        try:
            conversation = await self._store.record(turn)
        except StoreUnavailable as error:
            self._emit(StoreDegraded("record", error.internal or str(error)))
            return
        new = [message for message in turn.messages if not message.is_system][turn.known :]
        self._emit(
            TurnStored(conversation, len(new), sum(len(message.raw) for message in new), self._timer() - started)
        )

    def _record_later(self, turn: TurnRecord) -> None:
        """Store from a task of its own, since the present one is being cancelled."""
        task = asyncio.create_task(self._record(turn))
        self._late.add(task)
        task.add_done_callback(self._late.discard)


def error_event(error: UpstreamBroken) -> bytes:
    """An error that comes after the first byte: an event of the stream, in OpenAI's envelope.

    It opens with a line end of its own, so that it stands apart from an event that was cut short.
    """
    body = {"message": str(error), "type": "upstream_error", "param": None, "code": error.code}
    return b"\n\ndata: " + json.dumps({"error": body}).encode() + b"\n\n"


def _readable(reply: UpstreamReply) -> bool:
    """Whether the bytes are plain: an upstream that compresses although it was asked not to is carried, not read."""
    return all(value.lower() == b"identity" for name, value in reply.headers if name == b"content-encoding")
