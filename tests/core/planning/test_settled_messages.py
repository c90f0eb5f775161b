"""While a client changes what it sent before, a summary stands for the messages that it left as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.planning.test_plan import budget, situation
from tidemark.core.planning.plan import least_tokens, plan, plan_ahead
from tidemark.core.planning.situation import CannotFit, Compact, NoCompaction

TALK = [700] * 10
"""Ten messages between the prepare mark and the high water."""


@pytest.mark.parametrize(("settled", "covered"), [(None, 8), (9, 8), (4, 4), (0, None)])
def test_a_preparation_reads_settled_messages_only(settled: int | None, covered: int | None) -> None:
    """What the client has just changed, and all after it, may change again before the summary is used."""
    ahead = plan_ahead(replace(situation(TALK, budget()), settled=settled))
    assert (ahead.covered if ahead else None) == covered


def test_a_request_over_its_limit_is_compacted_up_to_the_change() -> None:
    """More messages stay than otherwise, and the next request can use the summary."""
    crossed = situation([700] * 13, budget())
    whole, settled = plan(crossed), plan(replace(crossed, settled=7))
    assert isinstance(whole, Compact)
    assert isinstance(settled, Compact)
    assert (whole.covered, settled.covered) == (12, 7)


@pytest.mark.parametrize("settled", [0, 1, 3])
def test_what_does_not_fit_with_settled_messages_is_compacted_as_ever(settled: int) -> None:
    """No summary is squeezed, and no request is refused or left above the high water, because of a change."""
    crossed = situation([900] * 14, budget())
    assert plan(replace(crossed, settled=settled)) == plan(crossed)


def test_a_change_refuses_no_request_and_counts_as_no_more() -> None:
    """The fewest tokens are those of a request without a change."""
    large = situation([900] * 3 + [9500], budget())
    assert isinstance(plan(large), CannotFit)
    assert plan(replace(large, settled=1)) == plan(large)
    assert least_tokens(replace(large, settled=1)) == least_tokens(large)


def test_between_high_water_and_limit_a_changed_request_may_wait() -> None:
    """Nothing is summarized that the next request could not use, while the request fits as it is."""
    crossed = situation([820] * 10, budget())
    assert isinstance(plan(crossed), Compact)
    assert plan(replace(crossed, settled=0)) == NoCompaction("nothing_to_summarize", 8203)
