"""A forecast is what the plan would have done with each request of a conversation, one after the other."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.planning.test_plan import budget, situation
from tidemark.core.planning.forecast import MOST_REQUESTS, Forecast, forecast
from tidemark.core.planning.situation import PlanInput

SIZES = st.lists(st.integers(20, 1500), min_size=1, max_size=2 * MOST_REQUESTS)


def talk(sizes: list[int]) -> PlanInput:
    """A talk of these sizes, with the marks of a window of 10,000 tokens; it ends with a user's message."""
    return situation(sizes if len(sizes) % 2 else sizes[1:] or sizes, budget())


def first_messages(plan_input: PlanInput, count: int) -> PlanInput:
    """The request that had so many messages."""
    return situation(list(plan_input.tokens[:count]), plan_input.budget)


@given(SIZES)
def test_a_forecast_goes_on_from_the_one_before_as_if_it_were_made_anew(sizes: list[int]) -> None:
    """So a worker that has forgotten a conversation says the same as the one that has not."""
    whole = talk(sizes)
    latest: Forecast | None = None
    for count in range(1, len(whole.messages) + 1, 2):
        latest = forecast(first_messages(whole, count), latest)
    assert latest == forecast(whole)


@given(SIZES)
def test_what_would_be_forwarded_is_never_more_than_the_request_and_its_summary(sizes: list[int]) -> None:
    """And the request itself as long as nothing would have been compacted."""
    plan_input = talk(sizes)
    made = forecast(plan_input)
    assert 0 < made.tokens <= plan_input.total + plan_input.budget.max_summary
    if not made.compactions:
        assert made.tokens == plan_input.total


def test_a_talk_that_grows_beyond_the_high_water_would_have_been_compacted() -> None:
    """The forecast says with which request, and stays within the high water."""
    plan_input = talk([400] * 81)
    compacted = []
    latest: Forecast | None = None
    for count in range(1, 82, 2):
        latest = forecast(first_messages(plan_input, count), latest)
        compacted += [count] * latest.compacted
        assert latest.tokens <= plan_input.budget.high_water
    assert latest is not None
    assert len(compacted) == latest.compactions > 3


def test_a_long_conversation_that_nobody_remembers_is_forecast_from_its_newest_requests() -> None:
    """It counts as compacted with the first of them, and is soon as far as one that was followed all along."""
    plan_input = talk([400] * 301)
    latest: Forecast | None = None
    for count in range(1, 302, 2):
        latest = forecast(first_messages(plan_input, count), latest)
    assert latest is not None
    made = forecast(plan_input)
    assert 0 < made.compactions < latest.compactions
    assert made.tokens <= plan_input.budget.high_water


def test_a_conversation_that_goes_another_way_is_forecast_anew() -> None:
    """A rewind is shorter, and an edit has another message where the earlier request ended."""
    earlier = forecast(talk([400] * 31))
    shorter = talk([400] * 21)
    assert forecast(shorter, earlier) == forecast(shorter)
    longer = talk([400] * 41)
    assert earlier.continues(longer)
    assert not replace(earlier, last_digest=b"another").continues(longer)
