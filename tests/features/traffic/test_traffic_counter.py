"""A worker's figures on their way to the store: nothing is lost or counted twice, and nothing grows without bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tidemark.core.errors import RecordUnreadable, StoreError, StoreUnavailable
from tidemark.core.traffic import TrafficCell, TrafficFigures, TrafficLevel
from tidemark.features.traffic.feature import BATCH_CELLS, MAX_CELLS, MAX_MINUTES, TrafficCounter
from tidemark.features.traffic.store import Part, RedisTraffic, StoredTraffic
from tidemark.worker import patient_writer

pytestmark = pytest.mark.anyio


class Store(RedisTraffic):
    """A store that fails as often as it is told; it keeps what it was sent."""

    def __init__(self, *failures: StoreError) -> None:
        self.failures = list(failures)
        self.sent: list[tuple[int, dict[int, int]]] = []
        self.cells: list[TrafficCell] = []

    async def add(self, writer: str, number: int, cells: Mapping[TrafficCell, TrafficFigures]) -> None:
        """Note the number of the batch and its requests by minute."""
        assert writer
        minutes = dict[int, int]()
        for cell, figures in cells.items():
            minutes[cell.minute] = minutes.get(cell.minute, 0) + figures.requests
        self.sent.append((number, minutes))
        self.cells += cells
        if self.failures:
            raise self.failures.pop(0)

    async def read(self, level: TrafficLevel, first: int, last: int, part: Part | None = None) -> StoredTraffic:
        """Nothing reads here."""
        raise NotImplementedError


@pytest.fixture
def anyio_backend() -> str:
    """As the server."""
    return "asyncio"


def counting(store: Store, now: list[float]) -> TrafficCounter:
    """A counter whose clock stands at the list's only number."""
    return TrafficCounter(store, lambda: now[0], lambda: None)


async def test_figures_of_one_minute_are_added_up_before_they_are_written() -> None:
    """They were noted before the task ran."""
    store, now = Store(), [120.0]
    counter = counting(store, now)
    for _ in range(3):
        counter.add({("m", "t"): TrafficFigures(requests=2)})
    now[0] = 180.0
    counter.add({("m", "t"): TrafficFigures(requests=1)})
    await counter.settle()
    assert store.sent == [(1, {2: 6, 3: 1})]


async def test_a_batch_that_failed_is_sent_again_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may have taken it all the same; what came meanwhile is another batch."""
    monkeypatch.setattr(patient_writer, "RETRY_SECONDS", 0.0)
    store, now = Store(StoreUnavailable("away"), StoreUnavailable("away")), [60.0]
    counter = counting(store, now)
    counter.add({("m", "t"): TrafficFigures(requests=1)})
    await counter.settle()
    counter.add({("m", "t"): TrafficFigures(requests=5)})
    for _ in range(100):
        await asyncio.sleep(0)
    assert store.sent == [(1, {1: 1}), (1, {1: 1}), (1, {1: 1}), (2, {1: 5})]
    await counter.aclose()


async def test_a_batch_that_meets_a_broken_record_is_not_sent_for_ever() -> None:
    """The next ones are."""
    store = Store(RecordUnreadable("of another kind"))
    counter = counting(store, [60.0])
    counter.add({("m", "t"): TrafficFigures(requests=1)})
    await counter.settle()
    counter.add({("m", "t"): TrafficFigures(requests=2)})
    await counter.settle()
    assert store.sent == [(1, {1: 1}), (2, {1: 2})]


async def test_a_long_outage_keeps_the_newest_day() -> None:
    """A minute is some hundred bytes, so the bound is about a megabyte."""
    store, now = Store(*[StoreUnavailable("away")] * 3), [0.0]
    counter = counting(store, now)
    for minute in range(MAX_MINUTES + 10):
        now[0] = 60.0 * minute
        counter.add({("m", "t"): TrafficFigures(requests=1)})
    store.failures.clear()
    await counter.aclose()
    written = {minute for _, batch in store.sent for minute in batch}
    assert written == set(range(10, MAX_MINUTES + 10))


async def test_the_end_of_the_process_writes_what_waits() -> None:
    """Also what the metrics had gathered and not handed over."""
    store = Store()
    gathered = [TrafficFigures(requests=4)]
    counter = TrafficCounter(
        store, lambda: 60.0, lambda: counter.add({("m", "t"): gathered.pop()}) if gathered else None
    )
    await counter.aclose()
    assert store.sent == [(1, {1: 4})]


async def test_many_models_and_tenants_leave_in_bounded_batches() -> None:
    """Each is one script, during which the store does nothing else."""
    store = Store()
    counter = counting(store, [60.0])
    counter.add({(f"m{number}", "t"): TrafficFigures(requests=1) for number in range(2 * BATCH_CELLS + 1)})
    await counter.settle()
    assert [batch for _, batch in store.sent] == [{1: BATCH_CELLS}, {1: BATCH_CELLS}, {1: 1}]


async def test_a_long_outage_with_many_tenants_keeps_the_sums() -> None:
    """Whose the figures are is dropped first, so memory has a bound and no request is missing in the sum."""
    store, now = Store(*[StoreUnavailable("away")] * 9), [0.0]
    counter = counting(store, now)
    tenants = MAX_CELLS // 10
    for minute in range(15):
        now[0] = 60.0 * minute
        counter.add({("m", f"t{number}"): TrafficFigures(requests=1) for number in range(tenants)})
    store.failures.clear()
    await counter.aclose()
    written = dict[int, int]()
    for _, batch in store.sent:
        for minute, requests in batch.items():
            written[minute] = written.get(minute, 0) + requests
    assert written == dict.fromkeys(range(15), tenants)
    assert [cell for cell in store.cells if not cell.tenant] == [TrafficCell(minute) for minute in range(11)]
    assert len(store.cells) <= MAX_CELLS
