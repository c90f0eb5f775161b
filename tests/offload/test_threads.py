"""Work over very many messages runs in a thread, and no visit of the garbage collector to all objects interrupts it."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tidemark.offload import threads
from tidemark.offload.threads import MANY_MESSAGES, RARE, FullCollections, offload_if_many
from tidemark.summarizers.deadline import UNBOUNDED, in_thread


@pytest.mark.anyio
@pytest.mark.parametrize("messages", [MANY_MESSAGES, MANY_MESSAGES + 1])
async def test_only_work_over_many_messages_runs_in_a_thread(messages: int) -> None:
    """Starting a thread takes longer than little work."""
    thread = await offload_if_many(messages, threading.get_ident)
    assert (thread == threading.get_ident()) == (messages == MANY_MESSAGES)


@pytest.mark.anyio
async def test_all_objects_are_visited_again_when_the_last_work_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after work that failed; young objects are visited as ever."""
    monkeypatch.setattr(threads, "_full_collections", FullCollections())
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


@pytest.mark.anyio
async def test_a_work_that_nobody_waits_for_any_more_goes_on_undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may leave; its thread makes objects until it ends."""
    monkeypatch.setattr(threads, "_full_collections", FullCollections())
    before, has_begun, may_end, has_ended = gc.get_threshold(), threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        may_end.wait()

    def watched() -> None:
        threads._full_collections.put_off_during(work)  # noqa: SLF001 - to see its end
        has_ended.set()

    waiting = asyncio.create_task(asyncio.to_thread(watched))
    await asyncio.to_thread(has_begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gc.get_threshold()[2] == RARE
    may_end.set()
    await asyncio.to_thread(has_ended.wait)
    assert gc.get_threshold() == before
