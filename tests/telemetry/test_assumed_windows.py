"""An assumed window is told to the operator, by the log and the live events (FR-3.2.3)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence

import pytest

from tests.support.logs import logging_put_back
from tidemark.core.events import WindowAssumed
from tidemark.features.live_events.events import LiveEvent
from tidemark.features.live_events.publisher import LiveEventPublisher
from tidemark.telemetry.logging import FactLog, configure

ASSUMED = WindowAssumed("house", 128_000, "tidemark models set house max_input_tokens=TOKENS")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log, which ends with the test."""
    made = io.StringIO()
    with logging_put_back():
        configure("info", json=True, stream=made)
        yield made


def test_the_log_warns_with_the_command_that_states_it(stream: io.StringIO) -> None:
    """One line, with the model and the window."""
    FactLog()(ASSUMED)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["event"], line["level"]) == ("window.assumed", "warning")
    assert (line["model"], line["window"], line["mend"]) == (ASSUMED.model, ASSUMED.window, ASSUMED.mend)


async def test_a_live_event_tells_the_operator() -> None:
    """It has no owner, so no tenant hears of it."""
    published: list[LiveEvent] = []

    async def publish(events: Sequence[LiveEvent]) -> bool:
        published.extend(events)
        return True

    publisher = LiveEventPublisher([publish])
    publisher(ASSUMED)
    await publisher.aclose()
    assert published == [LiveEvent("window.assumed", "", {"model": "house", "window": 128_000})]
