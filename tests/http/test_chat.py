"""The chat endpoint as an ASGI application: what becomes of a request that is being given up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any, cast

import pytest

from proxy.core.events import Event, RequestServed
from proxy.http.auth import PassthroughAuth
from proxy.http.body import BodyParser
from proxy.http.chat import ChatEndpoint, EdgeLimits
from proxy.pipeline import ChatPipeline
from proxy.relay import Relay

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
            await asyncio.sleep(0.05)
            self.ended = True


def endpoint(pipeline: Slow, told: list[Event]) -> ChatEndpoint:
    """The endpoint before a pipeline."""
    return ChatEndpoint(
        pipeline=cast("ChatPipeline", pipeline),
        relay=cast("Relay", None),
        parser=BodyParser(),
        auth=PassthroughAuth(b"s"),
        limits=EdgeLimits(1000, 0),
        emit=told.append,
        timer=lambda: 0.0,
    )


class Caller:
    """A client that sends its request, and leaves when it is told to."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self._asked = False

    async def receive(self) -> MutableMapping[str, Any]:
        """ASGI's receive."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": BODY, "more_body": False}
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
