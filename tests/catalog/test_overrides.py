"""Overrides in a worker's memory: which routes they hold for, what ends a lesson, what is noted and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.upstream.callers import calling
from tidemark.catalog.catalog import Catalog
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.catalog.overrides import NOTED_SECONDS, REMEMBERED, WRITTEN_AT_ONCE, LiveOverrides
from tidemark.core.errors import StoreUnavailable
from tidemark.core.models import NOTHING_SET, ModelObservation, ModelOverrides, ModelRecord, RegistryVersion
from tidemark.core.planning.budget import ModelWindow
from tidemark.core.ports import Route
from tidemark.store.models import RedisModels
from tidemark.upstream.upstream import LiteLLMUpstream

ALICE = calling(("authorization", "Bearer a"), fingerprint=b"alice")
ROUTE = Route("wire", "mine", "m", "openai", "https://api.openai.com/v1")


class Shelf(RedisModels):
    """The registry's records in memory, which can be taken away, and counts what it is asked."""

    def __init__(self) -> None:
        self.here = True
        self.kept: dict[str, ModelRecord] = {}
        self.sightings: list[ModelObservation] = []
        self.asked = 0
        self.number = 0
        self.epoch = "first"

    async def version(self) -> RegistryVersion:
        """Counted."""
        self.asked += 1
        if not self.here:
            raise StoreUnavailable("gone")
        return RegistryVersion(self.epoch, str(self.number))

    async def changed(self) -> tuple[RegistryVersion, Sequence[ModelRecord]]:
        """All that is set."""
        return await self.version(), list(self.kept.values())

    async def records(self) -> Sequence[ModelRecord]:
        """The same."""
        return list(self.kept.values())

    async def record(self, model: str) -> ModelRecord | None:
        """One."""
        return self.kept.get(model)

    async def sight(self, sighting: ModelObservation, now: float) -> None:
        """Written down."""
        self.sightings.append(sighting)

    async def override(
        self, record: ModelRecord, change: Callable[[ModelOverrides], ModelOverrides], now: float
    ) -> None:
        """Set."""
        self.number += 1
        before = self.kept.get(record.id)
        overrides = change(before.overrides if before else NOTHING_SET)
        self.kept[record.id] = ModelRecord(record.provider, record.model, record.name, None, overrides)


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def shelf() -> Shelf:
    """An empty one."""
    return Shelf()


@pytest.fixture
def clock() -> Clock:
    """At zero."""
    return Clock()


@pytest.fixture
def live(shelf: Shelf, clock: Clock) -> LiveOverrides:
    """What this worker knows; its own task is not started."""
    return LiveOverrides(shelf, clock)


@pytest.fixture
async def catalog(live: LiveOverrides, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Catalog]:
    """A catalog without any data."""
    upstream = LiteLLMUpstream()
    yield Catalog(upstream, data=LiteLLMModelData(tmp_path / "none.json"), live=live)
    await upstream.aclose()


async def put(shelf: Shelf, live: LiveOverrides, overrides: ModelOverrides) -> None:
    """A person sets something of ``openai:m``."""
    await shelf.override(ModelRecord("openai", "m", "mine"), lambda _: overrides, 0.0)
    await live.refresh()


async def test_an_override_holds_for_its_model_by_whatever_name(shelf: Shelf, live: LiveOverrides) -> None:
    """By provider and upstream model; a request that goes nowhere is known by the client's name."""
    assert live.of(ROUTE) == NOTHING_SET
    own = ModelOverrides(max_input_tokens=5)
    await put(shelf, live, own)
    assert live.of(ROUTE) == live.of(Route("translate", "alias", "m", "openai", "")) == own
    assert live.of(Route("wire", "mine", "mine", "", "")) == own
    assert live.of(Route("wire", "mine", "m", "groq", "")) == NOTHING_SET
    assert live.of(Route("wire", "other", "other", "", "")) == NOTHING_SET


async def test_a_request_asks_the_store_nothing(shelf: Shelf, live: LiveOverrides, catalog: Catalog) -> None:
    """However many there are, and though each finds a model."""
    await put(shelf, live, ModelOverrides(threshold=0.5))
    asked = shelf.asked
    for _ in range(100):
        assert (await catalog.profile(ROUTE, ALICE)).policy.threshold == 0.5
    assert (shelf.asked, shelf.sightings) == (asked, [])


async def test_without_the_store_the_last_known_holds(shelf: Shelf, live: LiveOverrides) -> None:
    """And an emptied store's answer is believed."""
    await put(shelf, live, ModelOverrides(threshold=0.5))
    shelf.here = False
    with pytest.raises(StoreUnavailable):
        await live.refresh()
    await live.start()
    await live.aclose()
    assert live.of(ROUTE) == ModelOverrides(threshold=0.5)
    shelf.here, shelf.kept, shelf.number = True, {}, 0
    await live.refresh()
    assert live.of(ROUTE) == NOTHING_SET


async def test_a_sighting_is_written_once_and_a_wavering_one_once_a_minute(
    shelf: Shelf, live: LiveOverrides, catalog: Catalog, clock: Clock
) -> None:
    """In the background; a model that goes nowhere is none."""
    await live.refresh()
    for _ in range(5):
        await catalog.profile(ROUTE, ALICE)
    await catalog.profile(Route("wire", "x", "x", "", ""), ALICE)
    await live.aclose()
    assert [(one.provider, one.model, one.name) for one in shelf.sightings] == [("openai", "m", "mine")]
    seen = shelf.sightings[0]
    wavering = [ModelObservation("openai", "m", f"name-{number % 2}", seen.window, 0.9, 1) for number in range(10)]
    for one in wavering:
        live.note(one)
    await live.aclose()
    assert len(shelf.sightings) == 1
    clock.now += NOTED_SECONDS
    live.note(wavering[0])
    live.note(wavering[1])
    await live.aclose()
    assert len(shelf.sightings) == 2


async def test_what_is_used_is_written_again_once_a_minute(shelf: Shelf, live: LiveOverrides, clock: Clock) -> None:
    """Or it would leave as something long forgotten; what changes is not held up by that."""
    sighting = ModelObservation("openai", "m", "n", ModelWindow(), 0.9, 1)
    await live.refresh()
    for second in range(int(NOTED_SECONDS) * 3):
        clock.now = float(second)
        live.note(sighting)
        await live.aclose()
    assert shelf.sightings == [sighting] * 3
    live.note(replace(sighting, name="other"))
    await live.aclose()
    assert [one.name for one in shelf.sightings[3:]] == ["other"]


async def test_after_the_store_was_emptied_what_is_seen_is_written_at_once(shelf: Shelf, live: LiveOverrides) -> None:
    """After a change it is not."""
    sighting = ModelObservation("openai", "m", "n", ModelWindow(), 0.9, 1)
    await live.refresh()
    for epoch, written in (("first", 1), ("first", 1), ("second", 2), ("second", 2)):
        shelf.epoch, shelf.number = epoch, shelf.number + 1
        await live.refresh()
        live.note(sighting)
        await live.aclose()
        assert len(shelf.sightings) == written


async def test_what_is_found_while_an_older_sighting_is_written_is_written_next(clock: Clock) -> None:
    """It takes the older one's place in the row, and must not leave with it."""
    first = ModelObservation("openai", "m", "n", ModelWindow(), 0.9, 1)
    then = replace(first, name="other")

    class Busy(Shelf):
        """One on which time passes, and a model is found otherwise, while it is written to."""

        async def sight(self, sighting: ModelObservation, now: float) -> None:
            """Written down."""
            await super().sight(sighting, now)
            clock.now += NOTED_SECONDS
            worker.note(then)

    shelf = Busy()
    worker = LiveOverrides(shelf, clock)
    await worker.refresh()
    worker.note(first)
    await worker.aclose()
    await worker.aclose()
    assert shelf.sightings == [first, then]


async def test_a_store_that_is_emptied_while_it_is_written_to_is_written_to_again(clock: Clock, tmp_path: Path) -> None:
    """What is noted for the emptied store is the very same sighting, and must not leave with the one before."""

    class Emptied(Shelf):
        """One that is emptied, and looked at for another's sake, before its first answer is there."""

        async def sight(self, sighting: ModelObservation, now: float) -> None:
            """Written down, and lost at once."""
            await super().sight(sighting, now)
            if self.epoch == "first":
                self.epoch, self.sightings = "second", []
                await worker.refresh()
                await catalog.profile(ROUTE, ALICE)

    shelf = Emptied()
    worker = LiveOverrides(shelf, clock)
    catalog = Catalog(LiteLLMUpstream(), data=LiteLLMModelData(tmp_path / "none"), live=worker)
    await worker.refresh()
    await catalog.profile(ROUTE, ALICE)
    await worker.aclose()
    await worker.aclose()
    assert [one.name for one in shelf.sightings] == ["mine"]


async def test_many_sightings_do_not_hold_up_what_is_set(shelf: Shelf, live: LiveOverrides) -> None:
    """They are written a few at a time, and the version is asked for in between."""
    for number in range(3 * WRITTEN_AT_ONCE):
        live.note(ModelObservation("openai", f"m{number}", "n", ModelWindow(), 0.9, 1))
    await live.start()
    assert (len(shelf.sightings), shelf.asked) == (WRITTEN_AT_ONCE, 1)
    await live.aclose()
    assert len(shelf.sightings) == 3 * WRITTEN_AT_ONCE


async def test_sightings_wait_for_the_store_and_are_bounded(shelf: Shelf, live: LiveOverrides) -> None:
    """Clients choose names; of too many the oldest are forgotten."""
    shelf.here = False
    for number in range(REMEMBERED + 10):
        live.note(ModelObservation("openai", f"m{number}", "n", ModelWindow(), 0.9, 1))
    await live.aclose()
    assert shelf.sightings == []
    shelf.here = True
    await live.aclose()
    assert len(shelf.sightings) == REMEMBERED
    assert shelf.sightings[0].model == "m10"


async def test_a_persons_new_word_ends_what_an_overflow_taught(
    shelf: Shelf, live: LiveOverrides, catalog: Catalog
) -> None:
    """The server may have been made larger; if not, the next overflow teaches it again."""
    body = b'{"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}'
    await put(shelf, live, ModelOverrides(max_input_tokens=100_000))
    profile = await catalog.profile(ROUTE, ALICE)
    assert await catalog.learn(ROUTE, ALICE, profile, status=400, body=body, sent_tokens=9000) is not None
    assert (await catalog.profile(ROUTE, ALICE)).window.window == 8192
    await put(shelf, live, ModelOverrides(max_input_tokens=50_000))
    assert (await catalog.profile(ROUTE, ALICE)).window.window == 50_000


async def test_an_override_leaves_the_reply_to_the_next_source(live: LiveOverrides, shelf: Shelf) -> None:
    """What a person did not say of the longest reply, our own data does."""
    shipped = {"m": {"max_input_tokens": 100_000, "max_output_tokens": 9}}
    catalog = Catalog(LiteLLMUpstream(), data=LiteLLMModelData(Path("none.json")), shipped=shipped, live=live)
    await put(shelf, live, ModelOverrides(context_window=7000))
    assert (await catalog.profile(ROUTE, ALICE)).window == ModelWindow(7000, 9, 7000, "manual")
    await put(shelf, live, ModelOverrides(max_output_tokens=77))
    assert (await catalog.profile(ROUTE, ALICE)).window == ModelWindow(100_000, 77, None, "api")
