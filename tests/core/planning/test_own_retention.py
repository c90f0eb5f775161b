"""A request's own retention (``X-Tidemark-Retention-Tokens``) comes before the low water, whatever sets the marks."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.core.planning.test_plan import chat
from tidemark.core.money import ModelPrice, Rates
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.plan import plan
from tidemark.core.planning.situation import Compact, CompactionPlan, PlanInput

HAIKU = ModelPrice(Rates(1e-6, 5e-6, 1e-7, 1.25e-6))
POLICIES = {
    "share": CompactionPolicy(strategy="extractive", threshold=0.2),
    "tokens": CompactionPolicy(strategy="extractive", threshold=40_000),
    "price": CompactionPolicy(strategy="extractive", by_price=True),
}
EACH = 600


def planned(policy: str, retention: int | None, count: int, head: int = 0) -> CompactionPlan:
    """The plan for so many messages of ``EACH`` tokens, in a window of 200,000."""
    profile = ModelProfile("m", ModelWindow(200_000, 8000), POLICIES[policy], price=HAIKU)
    budget = budget_for(profile, None, retention)
    return plan(PlanInput(chat(count), [EACH] * count, 3 + head, budget, POLICIES[policy]))


@pytest.mark.parametrize("policy", POLICIES)
@given(st.integers(0, 20_000), st.integers(90, 200), st.integers(0, 3000))
def test_the_most_messages_within_it_stay(policy: str, retention: int, count: int, head: int) -> None:
    """Above the low water, which is 10,000 by price, and below it."""
    outcome = planned(policy, retention, 2 * count + 1, head)
    assume(isinstance(outcome, Compact))
    assert isinstance(outcome, Compact)
    assert 2 * count + 1 - outcome.covered == max(retention // EACH, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_it_does_not_move_what_is_asked_without_it(policy: str) -> None:
    """The policy's own retention stays below the low water."""
    outcome, own = planned(policy, None, 301), planned(policy, 20_000, 301)
    assert isinstance(outcome, Compact)
    assert isinstance(own, Compact)
    assert outcome.covered < 301 - 1
    assert own.covered == 301 - 33


def test_one_beyond_the_threshold_keeps_what_fits_below_it() -> None:
    """So the request stays below the mark that its operator chose."""
    outcome = planned("tokens", 100_000, 301)
    assert isinstance(outcome, Compact)
    after = outcome.rest_tokens + outcome.max_summary_tokens
    assert 40_000 - EACH < after <= 40_000
