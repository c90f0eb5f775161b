"""A request on its way through the steps, and the one loop that walks them.

``steps.py`` has the list. A step returns the walk, if the next step shall go on, or the result of the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.planning.situation import EarlierMessagesNeeded
from tidemark.core.ports import Caller
from tidemark.pipeline.values import (
    Controls,
    ConversationPlace,
    Exchange,
    FittedRequest,
    Progress,
    Refused,
    RequestContext,
    Result,
)


class Obligation(Protocol):
    """What a step has begun and must end, whatever becomes of the request."""

    async def settle(self, result: Result) -> Result:
        """End it, and return the result, which this may change."""
        ...

    async def abandon(self) -> None:
        """End it without a result: a later step failed, or the client has left."""
        ...


class Walk:
    """What is known of one request by now. Mutable: each step adds what it finds out."""

    __slots__ = (
        "caller",
        "context",
        "controls",
        "exchange",
        "fitted",
        "obligations",
        "place",
        "progress",
        "read_more",
        "request",
    )

    context: RequestContext
    """The request behind ``identify``."""
    fitted: FittedRequest
    """The request behind ``fit``."""
    exchange: Exchange
    """What ``send`` has led to."""

    def __init__(self, request: ModelRequest, caller: Caller, controls: Controls, progress: Progress) -> None:
        self.request = request
        self.caller = caller
        self.controls = controls
        self.progress = progress
        self.place: ConversationPlace | None = None
        """Where the request's messages were read from, if no client sent them."""
        self.obligations: list[Obligation] = []
        """What must be ended, the newest one first."""
        self.read_more: Callable[[], Awaitable[None]] | None = None
        """Adds the oldest messages to the request, if a step left them out and another one needs them."""


Step = Callable[[Walk], Awaitable[Walk | Result]]


async def walk_through(steps: Sequence[Step], walk: Walk, *, resume: int = 0) -> Result:
    """Take a request through the steps, until one of them has its result.

    :param resume: the place of the step from which a request goes on once all its messages are read
    :raises EarlierMessagesNeeded: a step needs messages that nobody can read
    """
    place = 0
    try:
        while True:
            try:
                outcome = await steps[place](walk)
            except EarlierMessagesNeeded:  # nothing was sent or answered
                read_more, walk.read_more = walk.read_more, None
                if read_more is None:
                    raise
                await read_more()
                place = resume
                continue
            if not isinstance(outcome, Walk):
                break
            place += 1
        while walk.obligations:
            outcome = await walk.obligations.pop().settle(outcome)
    except BaseException:  # also a client that leaves
        await _abandon(walk.obligations)
        raise
    return outcome


async def _abandon(obligations: list[Obligation]) -> None:
    """Abandon all, the newest first, also behind one that fails: others may wait for each of them."""
    try:
        while obligations:
            await obligations.pop().abandon()
    finally:
        if obligations:
            await _abandon(obligations)


async def send_again(steps: Sequence[Step], context: RequestContext, progress: Progress) -> Exchange | Refused:
    """Take an identified request through the steps that send it once more, in another form.

    :param steps: those that lead from an identified request to an exchange
    """
    walk = Walk(context.request, context.caller, context.controls, progress)
    walk.context = context
    for step in steps:
        outcome = await step(walk)
        if isinstance(outcome, Exchange | Refused):
            return outcome
    return walk.exchange
