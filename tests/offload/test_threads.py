"""Work over very many messages runs in a thread, and no visit of the garbage collector to all objects interrupts it."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tidemark.offload.threads import MANY_MESSAGES, RARE, offload_if_many
from tidemark.summarizers.deadline import UNBOUNDED, in_thread


@pytest.mark.anyio
@pytest.mark.parametrize("messages", [MANY_MESSAGES, MANY_MESSAGES + 1])
async def test_only_work_over_many_messages_runs_in_a_thread(messages: int) -> None:
    """Starting a thread takes longer than little work."""
    thread = await offload_if_many(messages, threading.get_ident)
    assert (thread == threading.get_ident()) == (messages == MANY_MESSAGES)


@pytest.mark.anyio
async def test_all_objects_are_visited_again_when_the_last_work_has_ended() -> None:
    """Also after work that failed; young objects are visited as ever."""
    before, first_may_end = gc.get_threshold(), threading.Event()

    def wait() -> tuple[int, int, int]:
        first_may_end.wait()
        return gc.get_threshold()

    def fail() -> None:
        raise ValueError(gc.get_threshold())

    first = asyncio.create_task(offload_if_many(MANY_MESSAGES + 1, wait))
    second = asyncio.create_task(in_thread(UNBOUNDED, fail))
    with pytest.raises(ValueError, match=str(RARE)):
        await second
    assert gc.get_threshold() == (*before[:2], RARE)
    first_may_end.set()
    assert await first == (*before[:2], RARE)
    assert gc.get_threshold() == before
