"""What is prepared ahead, when, and when it takes its place."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation.messages import Message
from proxy.core.conversation.prefix import chain_of
from proxy.core.conversation.summary import RunningSummary, SummaryRecipe, render_summary
from proxy.core.planning.assemble import assemble
from proxy.core.planning.budget import ModelProfile, budget_for
from proxy.core.planning.plan import plan, plan_ahead, would_help
from proxy.core.planning.situation import Compact, NoCompaction, Situation, SwapSummary
from tests.core.histories import conversations, message, orphans, profiles, size
from tests.core.planning.test_plan import budget, chat, situation, summary_of

RECIPE = SummaryRecipe("extractive", "general", 1)


def test_nothing_is_prepared_before_the_mark() -> None:
    """Nor past the high water, where it would come too late."""
    assert plan_ahead(situation([5000, 500, 90], budget())) is None
    assert plan_ahead(situation([5000, 500, 98], budget())) is not None
    assert plan_ahead(situation([9000, 500, 98], budget())) is None


def test_what_is_to_come_takes_the_place_of_what_would_have_to_stay() -> None:
    """2,297 tokens are missing to the high water; with them the retention of 1,000 is more than filled."""
    ahead = plan_ahead(situation([1000] * 5 + [700], budget()))
    assert ahead is not None
    assert ahead.covered == 5


def test_a_larger_retention_keeps_what_is_missing_to_it() -> None:
    """Retention 3,000, of which 2,297 are to come: the newest two messages of 700 tokens stay, and no more."""
    ahead = plan_ahead(situation([1000] * 5 + [400, 300], budget(retention=3000)))
    assert ahead is not None
    assert ahead.covered == 5


def test_what_is_prepared_already_is_not_prepared_again() -> None:
    """Until it is used, or another prefix is needed."""
    given_case = situation([1000] * 5 + [700], budget())
    assert plan_ahead(replace(given_case, prepared=summary_of(4), prepared_tokens=100)) is None
    assert plan_ahead(replace(given_case, summary=summary_of(2), summary_tokens=100)) is None  # 3,803 is below the mark


def test_what_would_bring_little_is_not_prepared() -> None:
    """``min_gain`` holds here, too."""
    assert plan_ahead(situation([100, 100, 5500], budget())) is None


def test_off_and_force_prepare_nothing() -> None:
    """The former wants no summary, the latter has just made one."""
    for mode in ("off", "force"):
        assert plan_ahead(situation([1000] * 6, budget(), mode=mode)) is None


def test_the_prepared_summary_takes_its_place_at_the_high_water_and_not_before() -> None:
    """Promise 5 before, promise 7 then."""
    before = replace(situation([1000] * 7 + [900], budget()), prepared=summary_of(5), prepared_tokens=200)
    assert plan(before) == NoCompaction("fits", 7903)
    after = replace(situation([1000] * 8 + [900], budget()), prepared=summary_of(5), prepared_tokens=200)
    assert plan(after) == SwapSummary(summary_of(5), 4103, 5000)


def test_a_prepared_summary_that_does_not_bring_it_under_the_mark_is_not_used() -> None:
    """A turn that is larger than the gap: a new summary is made, which covers more."""
    late = replace(
        situation([1000] * 5 + [300, 9000, 50], budget(limit=9500)), prepared=summary_of(5), prepared_tokens=9
    )
    assert isinstance(plan(late), Compact)


@given(conversations(max_turns=10), profiles(), st.data())
def test_a_conversation_that_was_prepared_for_is_sent_valid_and_within_its_budget(
    said: list[Message], profile: ModelProfile, data: st.DataObject
) -> None:
    """Any history grows by any messages after its summary was prepared: pairs whole, newest message as it came."""
    marks = budget_for(profile, None)
    case = Situation(said, [size(one) for one in said], 3, marks, profile.policy)
    ahead = plan_ahead(case)
    if ahead is None:
        return
    assert marks.prepare_mark < sum(case.tokens) + 3 <= marks.high_water
    chain = chain_of("tenant", said)
    text = "x" * data.draw(st.integers(1, 40))
    summary = RunningSummary(
        chain.at(ahead.covered), ahead.covered, text, RECIPE, "extractive", "prepared", 0.0, absorbed=ahead.absorbed
    )
    rendered = size(render_summary(summary))
    coming = data.draw(st.lists(st.integers(1, 4000), min_size=1, max_size=4))
    grown = [*said, *(message(role="user" if i % 2 else "assistant", content="y" * n) for i, n in enumerate(coming))]
    planned = plan(
        replace(case, messages=grown, tokens=[size(one) for one in grown], prepared=summary, prepared_tokens=rendered)
    )
    if isinstance(planned, SwapSummary):
        sent = assemble(grown, planned.summary)
        assert sum(size(one) for one in sent) + 3 == planned.tokens <= marks.high_water
        assert sent[-1].raw == grown[-1].raw
        assert len(orphans(sent)) <= len(orphans(grown))


def test_a_chat_that_grows_steadily_is_compacted_to_the_low_water() -> None:
    """With the default marks: what is kept at the high water is what came since the prepare mark."""
    messages, tokens = chat(81), [100] * 81
    marks = budget(high_water=8000, limit=8000, prepare_mark=5600, low_water=3600, retention=2000)
    ahead = plan_ahead(Situation(messages[:57], tokens[:57], 3, marks, situation([1], marks).policy))
    assert ahead is not None
    swapped = plan(
        Situation(
            messages,
            tokens,
            3,
            marks,
            situation([1], marks).policy,
            prepared=summary_of(ahead.covered),
            prepared_tokens=256,
        )
    )
    assert isinstance(swapped, SwapSummary)
    assert swapped.tokens <= marks.low_water


def test_a_swap_keeps_what_the_retention_of_its_own_request_keeps() -> None:
    """Prepared for a larger window, it would keep less than this one's retention: a new one is made instead."""
    grown = situation([500] * 20, budget(high_water=8000, retention=3000))
    assert isinstance(plan(replace(grown, prepared=summary_of(13), prepared_tokens=200)), SwapSummary)
    assert isinstance(plan(replace(grown, prepared=summary_of(18), prepared_tokens=200)), Compact)


def test_only_a_preparation_that_can_help_is_worth_waiting_for() -> None:
    """One that covers no more than the present summary, or leaves the request over its mark, is not."""
    grown = situation([1000] * 8 + [900], budget())
    assert would_help(grown, 5)
    assert not would_help(replace(grown, summary=summary_of(6), summary_tokens=4000), 5)
    assert not would_help(situation([300, 300, 300, 9000, 50], budget(limit=9500)), 3)
