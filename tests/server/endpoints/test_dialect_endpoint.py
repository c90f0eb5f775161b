"""The chat endpoint as an ASGI application: what becomes of a request that is being given up."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Receive

from tests.support.waiting import settled, until
from tidemark.core import ports
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import BodyTooLarge, Overloaded, UpstreamBroken
from tidemark.core.events import Event, RequestServed
from tidemark.core.grants import Grant
from tidemark.core.ports import Headers, UpstreamReply
from tidemark.core.report import Report, Usage
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.pipeline.relay import Deliver, Relay
from tidemark.pipeline.steps import Pipeline
from tidemark.pipeline.values import Ending, Exchange, PendingTurn, Progress
from tidemark.server.access import ConversationAccess
from tidemark.server.asgi import Response
from tidemark.server.auth import PassthroughAuth
from tidemark.server.endpoints.dialect import DialectEndpoint, EndpointLimits
from tidemark.server.operator import OperatorAccess
from tidemark.server.permits import LARGE_BYTES, Permits
from tidemark.server.request_log import RequestLog

TURN = cast("PendingTurn", SimpleNamespace(answered_here=False))
UNNAMED = owner_of(PassthroughAuth(b"s").caller([]).fingerprint)
"""Who sends no credential."""
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


class Slow:
    """A pipeline that takes its time, also to be given up."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.given_up = asyncio.Event()
        self.ended = False

    async def run(self, *_: Any, **__: Any) -> Any:
        """Never answer."""
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
            await settled()
            self.ended = True


def endpoint(
    pipeline: object,
    told: list[Event],
    keepalive_seconds: float = 0,
    relay: object = None,
    *,
    max_body_bytes: int = 1000,
    permits: Permits | None = None,
) -> DialectEndpoint:
    """The endpoint before a pipeline."""
    return DialectEndpoint(
        ChatDialect(),
        pipeline=cast("Pipeline", pipeline),
        relay=cast("Relay", relay),
        access=ConversationAccess(PassthroughAuth(b"s"), OperatorAccess("127.0.0.1")),
        limits=EndpointLimits(max_body_bytes, keepalive_seconds),
        permits=permits or Permits(math.inf, lambda _: Overloaded("No.")),
        emit=told.append,
        timer=lambda: 0.0,
    )


class Caller:
    """A client that sends its request, and leaves when it is told to."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self._asked = False
        self._body = BODY

    def asking(self, body: bytes) -> Receive:
        """ASGI's receive, of another request."""
        self._body = body
        return self.receive

    async def receive(self) -> MutableMapping[str, Any]:
        """ASGI's receive."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's send."""


async def test_a_client_that_leaves_ends_the_work_before_the_request_is_over() -> None:
    """One fact is told, when all that was done for it has ended."""
    pipeline, told, caller = Slow(), list[Event](), Caller()
    served = asyncio.create_task(endpoint(pipeline, told)({"path": "/", "headers": []}, caller.receive, caller.send))
    await pipeline.running.wait()
    caller.leaves.set()
    await served
    assert pipeline.ended
    assert [(type(one), getattr(one, "outcome", "")) for one in told] == [(RequestServed, "disconnected")]


class Refusal:
    """An answer that is no stream, and waits to be read or closed."""

    status = 400
    headers: Headers = ((b"content-type", b"application/json"),)
    closed = False

    def body(self) -> AsyncIterator[bytes]:
        """Never read here."""
        raise AssertionError

    async def close(self) -> None:
        """Give the upstream's connection back."""
        self.closed = True


class Late:
    """A pipeline whose answer comes when a comment is on its way already."""

    def __init__(self, commenting: asyncio.Event) -> None:
        self.reply = Refusal()
        self._commenting = commenting

    async def run(self, *_: Any, **__: Any) -> Exchange:
        """Answer then."""
        await self._commenting.wait()
        return Exchange(self.reply, TURN, Report("c", "t", 1))


async def test_an_answer_is_closed_when_its_client_leaves_over_a_comment() -> None:
    """The client takes no bytes, the comment is stuck, and the answer that came meanwhile has no other owner yet."""
    commenting, told, caller = asyncio.Event(), list[Event](), Caller()

    async def send(_: MutableMapping[str, Any]) -> None:
        commenting.set()
        await asyncio.Event().wait()

    pipeline = Late(commenting)
    body = BODY[:-1] + b', "stream": true}'
    served = asyncio.create_task(
        endpoint(pipeline, told, 0.001)({"path": "/", "headers": []}, caller.asking(body), send)
    )
    async with asyncio.timeout(5):
        await commenting.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not pipeline.reply.closed
        caller.leaves.set()
        await served
    assert pipeline.reply.closed


class Answering:
    """An upstream's answer of one kind, the pipeline that brings it, and the relay that carries it."""

    def __init__(self, kind: bytes | None) -> None:
        self.status = 200
        self.headers = [(b"content-length", b"9"), *([(b"content-type", kind)] if kind is not None else [])]

    async def run(self, *_: Any, **__: Any) -> Exchange:
        """The pipeline's part."""
        return Exchange(cast("UpstreamReply", self), TURN, Report("c", "t", 1))

    async def whole(self, *_: Any) -> tuple[bytes, Ending]:
        """The relay's part, for an answer that is gathered."""
        return b"whole", Ending("complete")

    async def stream(self, _: Any, __: Any, deliver: Deliver) -> Ending:
        """The relay's part, for a stream."""
        await deliver(b"piece")
        return Ending("complete")


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize(
    ("kind", "streams"),
    [
        (b"application/json", False),
        (b"text/event-stream", True),
        (b" Text/Event-Stream ; charset=utf-8", True),
        (b"text/plain", None),
        (None, None),
    ],
)
async def test_an_answer_goes_on_as_what_it_is(kind: bytes | None, *, streams: bool | None, asked: bool) -> None:
    """A stream piece by piece, anything else in one with its length; what does not say which, as it was asked for."""
    told, caller, sent = list[Event](), Caller(), list[MutableMapping[str, Any]]()
    answering = Answering(kind)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    body = BODY[:-1] + b', "stream": %b}' % (b"true" if asked else b"false")
    await endpoint(answering, told, 60, answering)({"path": "/", "headers": []}, caller.asking(body), send)
    streamed = asked if streams is None else streams
    assert [one["body"] for one in sent[1:]] == ([b"piece", b""] if streamed else [b"whole"])
    lengths = [value for name, value in sent[0]["headers"] if name == b"content-length"]
    assert lengths == ([] if streamed else [b"5"])
    assert [getattr(one, "outcome", "") for one in told] == ["complete"]


async def test_giving_up_does_not_swallow_a_cancellation_of_the_request() -> None:
    """The server stops while a client's leaving is dealt with: the request ends as cancelled, and is told once."""
    pipeline, told, caller = Slow(), list[Event](), Caller()
    served = asyncio.create_task(endpoint(pipeline, told)({"path": "/", "headers": []}, caller.receive, caller.send))
    await pipeline.running.wait()
    caller.leaves.set()
    await pipeline.given_up.wait()
    served.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served
    assert len(told) == 1


async def test_a_client_that_does_not_wait_for_its_refusal_is_told_once() -> None:
    """Its body is too large, and the connection is gone when it is to hear that."""
    told, caller = list[Event](), Caller()

    async def send(_: MutableMapping[str, Any]) -> None:
        raise OSError("the connection is closed")

    with pytest.raises(OSError, match="closed"):
        await endpoint(Slow(), told)({"path": "/", "headers": []}, caller.asking(b" " * 1001), send)
    assert told == [RequestServed("/", 499, "disconnected", 0.0, code=BodyTooLarge.code, owner=UNNAMED)]


async def test_a_request_that_is_cancelled_while_its_body_comes_is_told_once() -> None:
    """The server stops, and the client has not sent all of it yet."""
    told, caller = list[Event](), Caller()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    served = asyncio.create_task(endpoint(Slow(), told)({"path": "/", "headers": []}, receive, caller.send))
    await asyncio.sleep(0)
    served.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served
    assert told == [RequestServed("/", 499, "disconnected", 0.0, owner=UNNAMED)]


def test_every_fact_of_a_visit_is_told_in_its_own_field() -> None:
    """The fact is made by the order of its fields, so each has a value of its own here."""
    times = iter((1.0, 1.25, 1.5, 3.0))
    log = RequestLog("/path", Response(Caller().send), lambda: next(times), [(b"a", b"b"), (b"user-agent", b"client")])
    log.caller = ports.Caller(b"fingerprint", (), trace_id="trace", grant=Grant("key", "name"))
    log.request = ChatDialect().parser.parse_now(BODY[:-1] + b', "stream": true}')
    report = Report("conversation", "tenant", 1, "forced", 2, 3, 4, 5, "strategy", "warning", gap="gap")
    log.on_planned(report)
    log.note_error(UpstreamBroken("said", internal="cause"))
    log.note_first_byte()
    usage = {"prompt_tokens": 6, "prompt_tokens_details": {"cached_tokens": 7}, "completion_tokens": 8}
    log.ending = Ending("complete", Reply(None, complete=True, usage=usage))
    log.outcome = "incomplete"
    assert log.to_event() == RequestServed(
        path="/path",
        status=499,
        outcome="incomplete",
        seconds=2.0,
        first_byte_seconds=0.5,
        model="m",
        stream=True,
        report=report,
        usage=Usage(input_tokens=6, cached_tokens=7, output_tokens=8),
        code=UpstreamBroken.code,
        cause="cause",
        trace_id="trace",
        owner=owner_of(b"fingerprint"),
        tenant="name",
        client=b"client",
        upstream_seconds=0.25,
    )


def test_a_visit_of_which_nothing_is_known_tells_that_alone() -> None:
    """A client that left before its request was there."""
    log = RequestLog("/path", Response(Caller().send), lambda: 1.0)
    assert log.to_event() == RequestServed("/path", 499, "disconnected", 0.0)


class Planning:
    """A pipeline whose requests are planned and answered when they may be. Mutable: those that have come to it."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.planned: dict[str, asyncio.Event] = {}
        self.answered = asyncio.Event()

    async def run(self, request: ModelRequest, _: Any, __: Any, progress: Progress) -> Any:
        """Plan, then wait for the upstream, and fail."""
        model = request.model
        self.running.append(model)
        self.planned[model] = asyncio.Event()
        if not self.answered.is_set():
            await self.planned[model].wait()
        progress.on_planned(Report("c", "t", 1))
        await self.answered.wait()
        raise BodyTooLarge("No more.")


def large(model: str, size: int = LARGE_BYTES, *, stream: bool = False) -> bytes:
    """A body with so many letters."""
    said = [{"role": "user", "content": "x" * size}]
    return json.dumps({"model": model, "messages": said, "stream": stream}).encode()


class Worker:
    """An endpoint with one permit at a time, and the requests that are sent to it, by the model that each names."""

    def __init__(self, most_waiting: float = math.inf) -> None:
        self.pipeline = Planning()
        self.told: list[Event] = []
        self.sent: dict[str, list[MutableMapping[str, Any]]] = {}
        self._permits = Permits(most_waiting, lambda _: Overloaded("No."), at_once=1, seconds=60)
        self._serve = endpoint(self.pipeline, self.told, max_body_bytes=1_000_000, permits=self._permits)
        self._tasks: dict[str, tuple[Caller, asyncio.Task[None]]] = {}

    def send(self, body: bytes, model: str, key: bytes = b"a") -> None:
        """Send a request."""
        caller, sent = Caller(), self.sent.setdefault(model, [])

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {"path": "/", "headers": [(b"authorization", key)]}
        self._tasks[model] = caller, asyncio.create_task(self._serve(scope, caller.asking(body), send))

    async def until(self, *running: str, waiting: int) -> None:
        """Wait until these requests have come to the pipeline, in this order, and so many wait for a permit."""
        await until(lambda: len(self.pipeline.running) >= len(running) and self._permits.waiting == waiting)
        assert self.pipeline.running == list(running)

    def plan(self, model: str) -> None:
        """Let a request be planned."""
        self.pipeline.planned[model].set()

    async def leave(self, model: str) -> None:
        """Let the client of a request leave, and wait for its end."""
        caller, task = self._tasks[model]
        caller.leaves.set()
        await task

    async def end(self) -> None:
        """Answer everything."""
        self.pipeline.answered.set()
        for event in self.pipeline.planned.values():
            event.set()
        await asyncio.gather(*(task for _, task in self._tasks.values()))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_large_request_waits_until_the_one_before_it_is_planned(*, stream: bool) -> None:
    """Not until it is answered; small requests wait for nobody."""
    worker = Worker()
    worker.send(large("first", stream=stream), "first")
    worker.send(large("second", stream=stream), "second")
    await worker.until("first", waiting=1)
    worker.send(large("small", 10), "small")
    await worker.until("first", "small", waiting=1)
    worker.plan("first")
    await worker.until("first", "small", "second", waiting=0)
    await worker.end()


async def test_tenants_get_equal_shares_of_large_requests() -> None:
    """The second tenant's only request does not wait for all of the first one's."""
    worker = Worker()
    for model in ("a1", "a2", "a3"):
        worker.send(large(model), model)
    await worker.until("a1", waiting=2)
    worker.send(large("b1"), "b1", key=b"b")
    await worker.until("a1", waiting=3)
    worker.plan("a1")
    await worker.until("a1", "a2", waiting=2)
    worker.plan("a2")
    await worker.until("a1", "a2", "b1", waiting=1)
    worker.plan("b1")
    await worker.until("a1", "a2", "b1", "a3", waiting=0)
    await worker.end()


async def test_who_leaves_while_it_waits_for_a_permit_takes_none() -> None:
    """Nor does one that leaves with a permit keep it."""
    worker = Worker()
    for model in ("first", "second", "third"):
        worker.send(large(model), model)
    await worker.until("first", waiting=2)
    await worker.leave("second")
    await worker.until("first", waiting=1)
    await worker.leave("first")
    await worker.until("first", "third", waiting=0)
    await worker.end()


async def test_too_many_large_requests_are_refused_without_a_line_each() -> None:
    """``limits.max_waiting``: the newest of the tenant that has the most waiting."""
    worker = Worker(most_waiting=1)
    worker.send(large("first"), "first")
    worker.send(large("second"), "second")
    await worker.until("first", waiting=1)
    worker.send(large("third"), "third")
    await until(lambda: len(worker.sent["third"]) >= 2)
    assert worker.sent["third"][0]["status"] == 503
    assert b"overloaded" in worker.sent["third"][1]["body"]
    assert worker.told == []
    await worker.end()
    assert worker.pipeline.running == ["first", "second"]
    assert len(worker.told) == 2
