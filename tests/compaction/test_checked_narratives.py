"""A model's summary that contradicts the conversation is repaired within its bound, or refused."""

from __future__ import annotations

import pytest

from proxy.compaction.values import NotSummarized
from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.events import Event, NarrativeRepaired, SummaryFailed
from proxy.core.ports import SummaryTask
from tests.compaction.test_immediate import Slow, order
from tests.compaction.test_writer import writer

RECIPE = SummaryRecipe("llm", "general", 1, "small")


@pytest.fixture
def anyio_backend() -> str:
    """The flow belongs to asyncio."""
    return "asyncio"


async def summary_of(prose: str, strategy: SummaryRecipe = RECIPE) -> tuple[str | NotSummarized, list[Event]]:
    """What a model's prose becomes, and what was reported of it."""
    events: list[Event] = []

    def answer(_: SummaryTask) -> str:
        return f"Narrative:\n{prose}"

    slow = Slow(answer=answer, seconds=0.0, recipe=strategy)
    return await writer(slow, events.append).write(order(), slow), events


@pytest.mark.anyio
async def test_an_invented_value_is_dropped_and_reported() -> None:
    """By kind and outcome, without a word of the conversation."""
    text, events = await summary_of("They talked for a while. Ticket OPS-99999 is open.")
    assert text == "Narrative:\nThey talked for a while."
    (event,) = [event for event in events if isinstance(event, NarrativeRepaired)]
    assert [(repair.kind, repair.outcome, repair.count) for repair in event.repairs] == [("name", "dropped", 1)]
    assert (event.strategy, event.statements) == ("llm", 2)
    assert "OPS" not in str(event)


@pytest.mark.anyio
async def test_a_narrative_of_inventions_fails_the_summary() -> None:
    """The failure policy decides then, and the statements count as rejected."""
    text, events = await summary_of("\n".join(f"Ticket OPS-{number} is open." for number in range(90_000, 90_009)))
    assert isinstance(text, NotSummarized)
    assert "contradicts the conversation in 9 of 9 statements" in text.reason
    (event,) = [event for event in events if isinstance(event, NarrativeRepaired)]
    assert {repair.outcome for repair in event.repairs} == {"rejected"}
    assert any(isinstance(event, SummaryFailed) for event in events)


@pytest.mark.anyio
async def test_what_a_model_did_not_write_is_not_checked() -> None:
    """``extractive`` has the speakers' words only."""
    text, events = await summary_of("Ticket OPS-99999 is open.", SummaryRecipe("extractive", "", 1))
    assert text == "Narrative:\nTicket OPS-99999 is open."
    assert events == []
