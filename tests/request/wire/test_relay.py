"""The relay alone: whatever fails beside the bytes, and whoever leaves, neither bytes nor turn are lost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.support.scripted import chunk, streamed, whole
from tests.support.waiting import settled
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.reply import Reply as Folded
from tidemark.core.errors import StoreError, StoreUnavailable, TokenizerFailed, UpstreamBroken
from tidemark.core.events import Event, StoreDegraded, TurnStored
from tidemark.core.ports import ConversationStore, Headers, TokenCounter
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.dialects.chat.reply import StreamFold, fold_body
from tidemark.pipeline.relay import Relay
from tidemark.pipeline.values import Ending, PendingTurn

ASKED = {"role": "user", "content": "hi"}
SAID = [piece for piece in streamed("the whole answer").pieces if isinstance(piece, bytes)]
DONE = SAID[-1]
BODY = cast("bytes", whole("the whole answer").pieces[0])


@dataclass
class Reply:
    """An upstream's answer; a number is a pause in seconds."""

    pieces: Sequence[bytes | float]
    breaks: bool = False
    status: int = 200
    headers: Headers = ()
    closed: bool = False

    async def body(self) -> AsyncIterator[bytes]:
        """The pieces, one after another."""
        for piece in self.pieces:
            if isinstance(piece, bytes):
                yield piece
            else:
                await asyncio.sleep(piece)
        if self.breaks:
            raise UpstreamBroken("The upstream stopped.")

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


class Decoding(ChatDialect):
    """Chat completions, read by a decoder of the test's."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        super().__init__()
        self.decode = decode

    def fold_body(self, data: bytes) -> Folded:
        """Read a completion."""
        return fold_body(data, self.decode)

    def fold_stream(self) -> StreamFold:
        """Begin to read a stream of chunks."""
        return StreamFold(self.decode)


@dataclass
class Room:
    """A relay, what it was given to store, and what it told."""

    told: list[Event] = field(default_factory=list)
    stored: list[TurnRecord] = field(default_factory=list)
    delivered: list[bytes] = field(default_factory=list)
    store_fails: Exception | None = None
    store_seconds: float = 0.0
    count_fails: Exception | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)
    decode: Callable[[bytes], Any] = json.loads
    threads: list[bool] = field(default_factory=list)
    """Of each event that was read and each message that was counted: whether the event loop's thread did it."""

    def __post_init__(self) -> None:
        self.relay = Relay(cast("ConversationStore", self), cast("TokenCounter", self), self.told.append, lambda: 0.0)
        self.dialect = Decoding(self.decoded)

    def decoded(self, data: bytes) -> Any:
        """The dialect's part."""
        self.threads.append(threading.current_thread() is threading.main_thread())
        return self.decode(data)

    async def record(self, turn: TurnRecord) -> str:
        """The store's part."""
        await asyncio.sleep(self.store_seconds)
        if self.store_fails:
            raise self.store_fails
        self.stored.append(turn)
        return turn.conversation

    def count_message(self, message: Any, model: str) -> int:
        """The counter's part."""
        self.threads.append(threading.current_thread() is threading.main_thread())
        if self.count_fails:
            raise self.count_fails
        return 3

    async def deliver(self, data: bytes) -> None:
        """The client's part."""
        self.delivered.append(data)
        self.came.set()

    async def has_delivered(self, pieces: int) -> None:
        """Wait until the client has so many pieces, and the next step has been taken."""
        while len(self.delivered) < pieces:
            self.came.clear()
            await self.came.wait()
        await settled()

    async def stream(self, *pieces: bytes | float, breaks: bool = False) -> Ending:
        """Carry a stream."""
        return await self.relay.stream(Reply(pieces, breaks), turn(self.dialect), self.deliver)

    @property
    def replies(self) -> list[str | None]:
        """The assistant's text in each stored turn; None where there is none."""
        return [one.messages[-1].text if one.messages[-1].role == "assistant" else None for one in self.stored]


def turn(dialect: ChatDialect) -> PendingTurn:
    """A turn of one question."""
    asked = parse_message(json.dumps(ASKED).encode(), ASKED, 0)
    record = TurnRecord(
        tenant="t",
        conversation="c",
        chain=chain_of("t", [asked]),
        stored_count=0,
        messages=[asked],
        tokens=[1],
        complete=False,
        model="m",
        action="none",
        tokens_before=1,
        tokens_after=1,
        summarized=0,
        created_at=0.0,
    )
    return PendingTurn(record, "m", dialect)


def unreadable(_: bytes) -> Any:
    """A decoder that fails as none should."""
    raise KeyError("a secret content")


FAILURES: dict[str, Callable[[], Room]] = {
    "reading": lambda: Room(decode=unreadable),
    "counting": lambda: Room(count_fails=TokenizerFailed("no tokenizer")),
    "counting, by a bug": lambda: Room(count_fails=RecursionError()),
    "storing": lambda: Room(store_fails=StoreUnavailable("no answer")),
    "storing, otherwise": lambda: Room(store_fails=StoreError("read only")),
    "storing, by a bug": lambda: Room(store_fails=ZeroDivisionError()),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_beside_the_bytes_costs_the_client_nothing(failure: str) -> None:
    """Every byte is delivered, the failure is told without contents, and the turn is stored without its answer."""
    room = FAILURES[failure]()
    ending = await room.stream(*SAID)
    assert b"".join(room.delivered) == b"".join(SAID)
    assert (ending.outcome, ending.error) == ("complete", None)
    data, ending = await room.relay.whole(Reply([BODY]), turn(room.dialect))
    assert (data, ending.outcome) == (BODY, "complete")
    told = [fact for fact in room.told if isinstance(fact, StoreDegraded)]
    assert len(told) == 2
    assert "secret" not in str(told)
    assert [(one.complete, len(one.messages)) for one in room.stored] == (
        [] if failure.startswith("storing") else [(False, 1)] * 2
    )


async def test_an_error_that_cannot_be_read_is_the_clients_all_the_same() -> None:
    """An upstream's refusal is carried whatever its body does to us."""
    room = Room(decode=unreadable)
    data, ending = await room.relay.whole(Reply([b"{}"], status=500), turn(room.dialect))
    assert (data, ending.outcome) == (b"{}", "refused")


async def test_what_is_no_answer_is_not_a_complete_one() -> None:
    """A page of HTML with status 200: carried, told as incomplete, and nothing of it is stored."""
    room = Room()
    data, ending = await room.relay.whole(Reply([b"<html>log in first</html>"]), turn(room.dialect))
    assert (data, ending.outcome) == (b"<html>log in first</html>", "incomplete")
    assert [(one.complete, len(one.messages)) for one in room.stored] == [(False, 1)]


@pytest.mark.parametrize("place", ["before [DONE]", "with [DONE] in hand"])
async def test_a_client_that_leaves_after_the_last_word_leaves_the_turn_behind(place: str) -> None:
    """``finish_reason`` was there: many clients do not wait for ``[DONE]``, and come back with the answer."""
    room = Room(store_seconds=0.05)
    pieces: list[bytes | float] = [*SAID[:-1], 60.0] if place == "before [DONE]" else [*SAID, 60.0]
    reply = Reply(pieces)
    task = asyncio.create_task(room.relay.stream(reply, turn(room.dialect), room.deliver))
    await room.has_delivered(len(SAID) - 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await room.relay.settle()
    assert room.replies == ["the whole answer"]
    assert room.stored[0].complete
    assert reply.closed


async def test_a_client_that_leaves_in_the_middle_leaves_an_incomplete_turn() -> None:
    """Half an answer is not stored as one."""
    room = Room()
    task = asyncio.create_task(room.stream(SAID[0], SAID[1], 60.0))
    await room.has_delivered(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await room.relay.settle()
    assert room.replies == [None]
    assert not room.stored[0].complete


async def test_a_client_that_leaves_while_a_whole_answer_is_stored_leaves_it_behind() -> None:
    """The body was there in full."""
    room = Room(store_seconds=0.05)
    task = asyncio.create_task(room.relay.whole(Reply([BODY]), turn(room.dialect)))
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await room.relay.settle()
    assert room.replies == ["the whole answer"]
    assert len([fact for fact in room.told if isinstance(fact, TurnStored)]) == 1


async def test_a_client_that_leaves_while_an_answer_is_learned_from_leaves_the_turn_behind() -> None:
    """However early: nothing that goes on beside the store's write keeps that from being begun."""
    room = Room()

    async def learn(_: object) -> None:
        await asyncio.Event().wait()

    carried = asyncio.create_task(room.relay.whole(Reply([BODY]), replace(turn(room.dialect), learn=learn)))
    await asyncio.sleep(0)
    carried.cancel()
    await asyncio.wait([carried])
    await room.relay.settle()
    assert room.replies == ["the whole answer"]


async def test_a_socket_that_fails_at_the_last_bytes_leaves_the_turn_behind() -> None:
    """ASGI servers tell the client's leaving by OSError, too."""
    room = Room()

    async def fail(data: bytes) -> None:
        if b"stop" in data:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await room.relay.stream(Reply(SAID), turn(room.dialect), fail)
    await room.relay.settle()
    assert room.replies == ["the whole answer"]


def of_choice(index: int, **more: Any) -> bytes:
    """One event of one of several choices."""
    return chunk(index=index, **{"delta": {"content": "a"}, "finish_reason": None, **more})


@pytest.mark.parametrize("breaks", [True, False], ids=["connection cut", "clean end"])
@pytest.mark.parametrize(("second", "outcome"), [(None, "incomplete"), ("length", "complete")])
async def test_an_answer_of_several_choices_is_complete_when_all_are(
    second: str | None, outcome: str, *, breaks: bool
) -> None:
    """``n: 2``: the end of the first choice says nothing of the second."""
    room = Room()
    pieces = [of_choice(0), of_choice(1), of_choice(0, finish_reason="stop"), of_choice(1, finish_reason=second)]
    ending = await room.stream(*pieces, breaks=breaks)
    assert ending.outcome == outcome
    assert (ending.error is None) == (outcome == "complete")


async def test_where_all_was_said_a_cut_connection_is_no_error() -> None:
    """Only the connection's own end is missing."""
    room = Room()
    ending = await room.stream(*SAID[:-1], b"data: [DO", breaks=True)
    assert (ending.outcome, ending.error) == ("complete", None)
    assert b"".join(room.delivered) == b"".join(SAID[:-1]) + b"data: [DO"
    assert room.replies == ["the whole answer"]


@pytest.mark.parametrize("breaks", [True, False], ids=["connection cut", "clean end"])
async def test_an_event_that_is_cut_short_gives_way_to_the_error(*, breaks: bool) -> None:
    """A reader would take our empty line for the end of it, and stumble over half an object."""
    room = Room()
    ending = await room.stream(SAID[0], SAID[1] + b'data: {"id":"chatcmpl-1","choi', breaks=breaks)
    assert ending.error is not None
    assert b"".join(room.delivered) == SAID[0] + SAID[1]


async def test_an_upstreams_own_error_is_not_doubled() -> None:
    """It told the client itself, and then hung up."""
    room = Room()
    ending = await room.stream(SAID[1], b'data: {"error": {"message": "overloaded"}}\n\n', breaks=True)
    assert (ending.outcome, ending.error) == ("incomplete", None)


LARGE = "word " * 100_000
"""Half a megabyte."""


def large_stream() -> list[bytes]:
    """One large event in the pieces that a network makes of it, and the stream's end."""
    event = chunk(delta={"role": "assistant", "content": LARGE}, finish_reason="stop")
    return [*(event[at : at + 65_536] for at in range(0, len(event), 65_536)), DONE]


async def test_a_large_answer_is_read_and_counted_in_a_thread() -> None:
    """The event loop is everybody's: a large event, a large body, and their counts are no work for it."""
    room = Room()
    ending = await room.stream(*large_stream())
    assert (ending.outcome, room.replies) == ("complete", [LARGE])
    assert b"".join(room.delivered) == b"".join(large_stream())
    _, ending = await room.relay.whole(Reply(whole(LARGE).pieces), turn(room.dialect))
    assert (ending.outcome, room.replies) == ("complete", [LARGE, LARGE])
    assert len(room.threads) >= 4
    assert not any(room.threads)
    await room.stream(*SAID)
    assert room.threads[-1], "a small one is not worth a thread"


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_beside_a_large_answer_costs_the_client_nothing(failure: str) -> None:
    """In a thread as on the loop: the bytes are delivered, and the turn is stored without its answer."""
    room = FAILURES[failure]()
    ending = await room.stream(*large_stream())
    assert b"".join(room.delivered) == b"".join(large_stream())
    assert (ending.outcome, ending.error) == ("complete", None)
    data, ending = await room.relay.whole(Reply(whole(LARGE).pieces), turn(room.dialect))
    assert (len(data) > len(LARGE), ending.outcome) == (True, "complete")
    told = [fact for fact in room.told if isinstance(fact, StoreDegraded)]
    assert len(told) == 2
    assert "secret" not in str(told)
    assert [(one.complete, len(one.messages)) for one in room.stored] == (
        [] if failure.startswith("storing") else [(False, 1)] * 2
    )


@pytest.mark.parametrize("left_in", ["reading", "counting", "storing"])
async def test_a_client_that_leaves_a_large_answer_leaves_the_turn_behind(left_in: str) -> None:
    """Whatever a thread is at: it is waited for, and what was said is stored once."""
    at_work, go_on = threading.Event(), threading.Event()

    def working(data: bytes) -> Any:
        if left_in == "reading" and len(data) > 100_000:
            at_work.set()
            go_on.wait(10)
        return json.loads(data)

    room = Room(decode=working, store_seconds=0.05 if left_in == "storing" else 0)
    counted = room.count_message

    def counting(message: Any, model: str) -> int:
        if left_in == "counting":
            at_work.set()
            go_on.wait(10)
        return counted(message, model)

    async def storing(turn: TurnRecord) -> str:
        if left_in == "storing":
            at_work.set()
        return await stored(turn)

    stored, room.record = room.record, storing  # type: ignore[method-assign]
    room.count_message = counting  # type: ignore[method-assign]
    task = asyncio.create_task(room.stream(*large_stream(), 60.0))
    await asyncio.to_thread(at_work.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await room.relay.settle()
    assert room.replies == [LARGE]
    assert room.stored[0].complete
