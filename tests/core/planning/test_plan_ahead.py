"""What is prepared ahead, when, and when it takes its place."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, message, orphans, profiles, size
from tests.core.planning.test_plan import budget, chat, situation, summary_of
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe, render_summary
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import Budget, CompactionPolicy, ModelProfile, budget_for
from tidemark.core.planning.plan import plan, plan_ahead, would_help
from tidemark.core.planning.situation import Compact, NoCompaction, PlanInput, SwapSummary

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
    case = PlanInput(said, [size(one) for one in said], 3, marks, profile.policy)
    ahead = plan_ahead(case)
    if ahead is None:
        return
    assert marks.prepare_mark < sum(case.tokens) + 3 <= marks.high_water
    chain = chain_of("tenant", said)
    text = "x" * data.draw(st.integers(1, 40))
    summary = PrefixSummary(
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
    ahead = plan_ahead(PlanInput(messages[:57], tokens[:57], 3, marks, situation([1], marks).policy))
    assert ahead is not None
    swapped = plan(
        PlanInput(
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


def grown_chat(marks: Budget, policy: CompactionPolicy, size_: int = 100) -> tuple[SwapSummary, int, int]:
    """Hold a chat of equal messages whose summaries are prepared at once, until one takes its place.

    :returns: the swap, how many messages stand beside the summary then, and how many summaries were prepared
    """
    prepared, made = None, 0
    for count in range(3, 200, 2):
        case = PlanInput(
            chat(count), [size_] * count, 3, marks, policy, prepared=prepared, prepared_tokens=100 if prepared else 0
        )
        planned = plan(case)
        if isinstance(planned, SwapSummary):
            return planned, count - planned.summary.covered, made
        assert isinstance(planned, NoCompaction), "nobody waits"
        ahead = plan_ahead(case)
        if ahead is not None:
            assert ahead.previous == prepared, "it goes on from the one that waits"
            prepared, made = summary_of(ahead.covered), made + 1
    raise AssertionError


def test_fr_1_3_3_a_prepared_summary_is_brought_up_to_date_until_the_retention_is_met() -> None:
    """Retention 1,000, and 2,400 come between the marks: in the end they stand, with a turn and a message more."""
    marks = budget(high_water=8000, limit=8000, prepare_mark=5600, low_water=3600, retention=1000)
    _, kept, made = grown_chat(marks, CompactionPolicy(retention_ratio=0))
    assert 10 <= kept <= 13
    assert made <= 4


def test_s2_2_a_prepared_summary_leaves_the_last_messages_and_a_turn() -> None:
    """``keep_last_messages: 10`` and no retention in tokens: never fewer than ten, and two turns more at the most."""
    marks = budget(high_water=8000, limit=8000, prepare_mark=5600, low_water=3600, retention=0)
    _, kept, made = grown_chat(marks, CompactionPolicy(keep_last_messages=10, retention_tokens=0, retention_ratio=0))
    assert 10 <= kept <= 14
    assert made <= 4


def test_with_the_default_retention_one_preparation_does() -> None:
    """What comes between the default marks is about the default retention: no model is asked a second time."""
    marks = budget(high_water=8000, limit=8000, prepare_mark=5600, low_water=3600, retention=2000)
    _, kept, made = grown_chat(marks, CompactionPolicy())
    assert made == 1
    assert 20 <= kept <= 26


def test_a_large_window_with_a_small_retention_asks_a_few_times_only() -> None:
    """30,000 tokens come between the marks, and 1,000 stay: each preparation takes three quarters of the rest."""
    marks = budget(window=110_000, high_water=100_000, limit=100_000, prepare_mark=70_000, low_water=45_000)
    _, kept, made = grown_chat(marks, CompactionPolicy(retention_ratio=0), size_=600)
    assert made <= 4
    assert kept * 600 <= 1000 + 4 * 600
