"""Listeners of live events: each gets its own events in order, and none is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidemark.core.errors import ServerBusy
from tidemark.features.live_events import hub as live_events
from tidemark.features.live_events.events import LiveEvent, LiveEventPosition
from tidemark.features.live_events.hub import MAX_PAGES, LiveEventHub
from tidemark.features.live_events.store import RedisLiveEvents

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """As the server."""
    return "asyncio"


class Feed(RedisLiveEvents):
    """Batches in memory; it counts how often it is read."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, Sequence[LiveEvent]]] = []
        self.readings = 0
        self.started: Sequence[LiveEvent] = ()

    async def publish(self, events: Sequence[LiveEvent]) -> bool:
        """Add a batch."""
        self.batches.append((f"{len(self.batches) + 1}-0", events))
        return True

    async def newest(self) -> str:
        """The newest batch's id."""
        return self.batches[-1][0] if self.batches else "0-0"

    async def running(self) -> Sequence[LiveEvent]:
        """The compactions that run."""
        return self.started

    async def read(self, after: str, *, with_it: bool = False) -> Sequence[tuple[str, Sequence[LiveEvent]]]:
        """The batches after one."""
        self.readings += 1
        place = int(after.partition("-")[0])
        return self.batches[max(place - 1, 0) if with_it else place :]


def updated(owner: str, conversation: str) -> LiveEvent:
    """A conversation has a new turn."""
    return LiveEvent("conversation.updated", owner, {"conversation": conversation})


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause between two readings is nothing here."""
    monkeypatch.setattr(live_events, "POLL_SECONDS", 0.0)


async def test_the_operator_has_places_that_nobody_else_takes() -> None:
    """An owner has a share, all owners leave some, and the operator gets in beside them."""
    hub = LiveEventHub(Feed())

    async def take(owner: str | None) -> int:
        """How many places there were for it."""
        for number in range(live_events.MAX_LISTENERS + 1):
            try:
                await hub.listen(owner, lambda: None)
            except ServerBusy:
                return number
        raise AssertionError

    assert await take("anonymous") == live_events.OWNER_PLACES
    others = [await take(f"key {number}") for number in range(3)]
    assert live_events.OWNER_PLACES + sum(others) == live_events.MAX_LISTENERS - live_events.OPERATOR_PLACES
    assert await take(None) == live_events.OPERATOR_PLACES
    await hub.aclose()


async def test_a_listener_that_takes_nothing_is_dropped_and_the_others_go_on() -> None:
    """The slow one is told; the quick one misses nothing."""
    feed = Feed()
    hub = LiveEventHub(feed)
    dropped: list[str] = []
    slow = await hub.listen(None, lambda: dropped.append("slow"))
    quick = await hub.listen("mine", lambda: dropped.append("quick"))
    taken: list[object] = []
    for number in range(MAX_PAGES + 5):
        await feed.publish([updated("mine", f"c{number}"), updated("other", "x")])
        page = await quick.next(5)
        taken += [placed.event.fields["conversation"] for placed in page]
    assert taken == [f"c{number}" for number in range(MAX_PAGES + 5)]
    assert (dropped, slow.is_dropped, quick.is_dropped) == (["slow"], True, False)
    await hub.aclose()


async def test_the_feed_is_read_only_while_somebody_listens() -> None:
    """After the last listener has left, nothing is asked any more."""
    feed = Feed()
    hub = LiveEventHub(feed)
    listening = await hub.listen(None, lambda: None)
    hub.leave(listening)
    for _ in range(10):
        await asyncio.sleep(0)
    before = feed.readings
    for _ in range(10):
        await asyncio.sleep(0)
    assert feed.readings == before
    await feed.publish([updated("a", "before")])
    again = await hub.listen(None, lambda: None)
    await feed.publish([updated("a", "after")])
    assert [placed.event.fields["conversation"] for placed in await again.next(5)] == ["after"]
    await hub.aclose()


async def test_a_position_within_a_batch_gives_the_rest_of_it() -> None:
    """The connection broke between two events of one batch."""
    feed = Feed()
    hub = LiveEventHub(feed)
    await feed.publish([updated("a", "one"), updated("b", "two"), updated("a", "three")])
    await feed.publish([updated("a", "four")])
    listening = await hub.listen("a", lambda: None, LiveEventPosition("1-0", 0))
    pages = [*await listening.next(5), *await listening.next(5)]
    assert [placed.event.fields["conversation"] for placed in pages] == ["three", "four"]
    assert [str(placed.position) for placed in pages] == ["1-0-2", "2-0-0"]
    await hub.aclose()


async def test_a_new_listener_first_gets_the_compactions_of_its_own_that_run() -> None:
    """They have no position; one that comes back goes on from its last event."""
    feed = Feed()
    feed.started = [LiveEvent("compaction.started", owner, {"conversation": owner}) for owner in ("mine", "other")]
    hub = LiveEventHub(feed)
    listening = await hub.listen("mine", lambda: None)
    await feed.publish([updated("mine", "now")])
    pages = [*await listening.next(5), *await listening.next(5)]
    assert [(placed.event.fields["conversation"], placed.position) for placed in pages] == [
        ("mine", None),
        ("now", LiveEventPosition("1-0", 0)),
    ]
    again = await hub.listen("mine", lambda: None, LiveEventPosition("1-0", 0))
    await feed.publish([updated("mine", "later")])
    assert [placed.event.fields["conversation"] for placed in await again.next(5)] == ["later"]
    await hub.aclose()


async def test_the_end_of_the_process_ends_every_listener() -> None:
    """Each once."""
    hub = LiveEventHub(Feed())
    ended: list[int] = []
    for number in range(3):
        await hub.listen(None, lambda number=number: ended.append(number))  # type: ignore[misc]
    await hub.aclose()
    assert sorted(ended) == [0, 1, 2]
