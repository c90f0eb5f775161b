"""Permits of large requests, and the line in which requests wait."""

from __future__ import annotations

import asyncio
import math

import pytest

from tidemark.core.errors import Overloaded
from tidemark.core.events import ShedReason
from tidemark.server.permits import MOST_AT_ONCE, Permits, permits_at_once
from tidemark.server.waiting import WaitingLine


def refusal(reason: ShedReason) -> Overloaded:
    """An error that says why."""
    return Overloaded(reason)


async def test_a_permit_that_lasts_too_long_keeps_nobody_waiting() -> None:
    """Its request goes on, and the next one begins beside it; the end of the first gives nothing twice."""
    permits = Permits(math.inf, refusal, at_once=1, seconds=0.01)
    first = await permits.take(b"a", 1)
    second = await permits.take(b"b", 1)
    first.end()
    waiting = asyncio.create_task(permits.take(b"b", 1))
    await asyncio.sleep(0)
    assert permits.waiting == 1
    second.end()
    (await waiting).end()
    assert permits.waiting == 0


@pytest.mark.parametrize(("cores", "permits"), [(1, 1), (2, 1), (4, 2), (64, MOST_AT_ONCE)])
def test_half_of_the_cores_are_left_to_the_event_loop_and_others(cores: int, permits: int) -> None:
    """Counting takes a core for itself."""
    assert permits_at_once(cores) == permits


async def test_who_waits_too_long_is_refused() -> None:
    """And leaves the line."""
    line = WaitingLine(1, refusal, give_back=lambda: None)
    with pytest.raises(Overloaded, match="waited"):
        await line.wait(b"a", seconds=0.001)
    assert not line.call_next()


async def test_a_call_is_not_lost_with_a_request_that_ends_just_then() -> None:
    """It is given back, so that another one is called."""
    given_back: list[bool] = []
    line = WaitingLine(1, refusal, give_back=lambda: given_back.append(True))
    waiting = asyncio.create_task(line.wait(b"a"))
    await asyncio.sleep(0)
    assert line.call_next()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert given_back == [True]


async def test_a_request_that_was_cancelled_is_not_called() -> None:
    """Not even before its task knows."""
    given_back: list[bool] = []
    line = WaitingLine(2, refusal, give_back=lambda: given_back.append(True))
    tasks = [asyncio.create_task(line.wait(b"a")) for _ in range(2)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    assert line.call_next()
    await tasks[1]
    assert (len(line), given_back) == (0, [])
