"""The budget's arithmetic: the table of docs/compaction.md, figure by figure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import profiles
from tidemark.core.planning.budget import (
    CompactionPolicy,
    ModelProfile,
    ModelWindow,
    above_head,
    budget_for,
    reply_reserve,
)


def marks(window: ModelWindow, max_output: int | None = None, **policy: float) -> dict[str, int]:
    """The marks of a model as a mapping."""
    made = budget_for(ModelProfile("m", window, CompactionPolicy(**policy)), max_output)  # type: ignore[arg-type]
    return {name: getattr(made, name) for name in made.__dataclass_fields__}


def test_gpt_4o_has_the_marks_that_the_design_computes() -> None:
    """A shared window of 128,000 with replies of 16,384: reserve and 5 % margin are kept free."""
    found = marks(ModelWindow(128_000, 16_384))
    assert found["limit"] == 128_000 - 16_384 - 6400
    assert found["high_water"] == found["limit"]
    assert found["prepare_mark"] == int(0.7 * found["high_water"])
    assert found["low_water"] == int(0.45 * found["limit"])
    assert found["retention"] == int(0.25 * found["limit"])
    assert found["max_summary"] == 4096
    assert found["min_tokens"] == 2000


def test_gpt_5_takes_less_in_than_its_window() -> None:
    """400,000 in all, 272,000 in: the input's own maximum is the bound, the margin is of the window."""
    found = marks(ModelWindow(272_000, 128_000, 400_000))
    assert found["limit"] == 272_000 - 20_000


def test_a_small_window_keeps_its_summary_and_its_minimum_small() -> None:
    """At most half of the limit for both."""
    found = marks(ModelWindow(2048), 60)
    assert found["limit"] == 2048 - 60 - 102
    assert found["max_summary"] == 256
    assert found["min_tokens"] == found["limit"] // 2


def test_the_reserve_is_what_the_request_asks_for_within_the_longest_reply_and_half_of_the_window() -> None:
    """An agent's one large number for every model is a bound: it leaves the input what the model can take."""
    assert marks(ModelWindow(8000, 8000))["limit"] == 8000 - 4000 - 400
    assert marks(ModelWindow(8000, 8000), 3000)["limit"] == 8000 - 3000 - 400
    assert marks(ModelWindow(8000, 8000), 6000)["limit"] == 8000 - 4000 - 400, "half of the window"
    assert marks(ModelWindow(8000), 7900)["limit"] == 8000 - 4000 - 400, "also where the longest reply is unknown"
    assert marks(ModelWindow(8000, 8000), 8000)["limit"] == 8000 - 4000 - 400
    assert marks(ModelWindow(32_768, 4096), 32_000)["limit"] == 32_768 - 4096 - 1638, "the longest reply"
    assert marks(ModelWindow(40_000, 1000), 32_000)["limit"] == 37_000


@given(
    st.integers(1000, 2_000_000),
    st.none() | st.integers(1, 200_000),
    st.integers(0, 200_000) | st.sampled_from([32_000]),
)
def test_the_reserve_is_at_most_the_longest_reply_and_half_of_the_window(
    window: int, longest: int | None, asked: int
) -> None:
    """Agents send 32,000 (opencode, Claude Code) or 16,384 (pydantic-ai) with every request, whatever the model."""
    reserve = reply_reserve(ModelWindow(window, longest), asked)
    assert reserve == min(asked, window // 2 if longest is None else min(longest, window // 2))


@given(st.integers(1000, 2_000_000), st.none() | st.integers(1, 200_000))
def test_a_reply_of_unknown_length_gets_a_quarter_of_the_window(window: int, longest: int | None) -> None:
    """Nobody states a length to a local server: of a small window, half would be kept for one reply in a hundred."""
    reserve = reply_reserve(ModelWindow(window, longest), None)
    assert reserve == (min(4096, window // 4) if longest is None else min(longest, window // 2))
    strict = reply_reserve(ModelWindow(window, longest), None, whole=True)
    assert strict == min(longest or 4096, window // 2), (
        "as much as an upstream keeps free that refuses what exceeds both"
    )


def test_a_window_that_must_hold_the_whole_reply_keeps_all_of_it_free() -> None:
    """Of an upstream that refuses input and reply together above its window, where that leaves anything to send."""
    strict = ModelProfile("m", ModelWindow(40_000, 1000), CompactionPolicy(), whole_reply=True)
    assert budget_for(strict, 32_000).limit == 6000
    assert budget_for(strict, 500).limit == 37_500
    assert budget_for(strict, None).limit == 37_000
    assert budget_for(strict, 38_000).limit == 37_000, "nothing would be left"


def test_the_least_reply_is_a_sixteenth_of_the_window_and_never_more_than_the_reserve() -> None:
    """Of a request that is refused otherwise; 256 tokens in a small window."""
    for window, asked, least in ((32_768, 32_000, 2048), (32_768, 500, 500), (2048, None, 256), (400, None, 100)):
        profile = ModelProfile("m", ModelWindow(window), CompactionPolicy())
        assert budget_for(profile, asked, least_reply=True).limit == window - least - round(0.05 * window)


@given(profiles(), st.integers(1, 10_000))
def test_no_reply_length_leaves_less_than_the_models_own_longest_reply_does(
    profile: ModelProfile, max_output: int
) -> None:
    """Where the longest reply is known, to ask for more refuses nobody; half of the window is the input's always."""
    window = profile.window
    asked = budget_for(profile, max_output).limit
    assert asked >= window.max_input_tokens - window.window // 2 - round(0.05 * window.window)
    if window.max_output_tokens is not None:
        assert asked >= budget_for(profile, None).limit


def test_a_threshold_is_a_share_or_a_number_of_tokens() -> None:
    """S3: 95 % of the window; S0: an absolute number."""
    assert marks(ModelWindow(10_000, 100), threshold=0.5)["high_water"] == 5000
    assert marks(ModelWindow(10_000, 100), threshold=1234)["high_water"] == 1234
    assert marks(ModelWindow(10_000, 100), threshold=99_999)["high_water"] == 9400


def test_the_other_marks_follow_a_threshold_in_tokens() -> None:
    """S0: ``max_tokens`` is the user's own limit. Else the low water would lie at it."""
    found = marks(ModelWindow(100_000, 1000), threshold=10_000)
    assert found["low_water"] == 4500
    assert found["retention"] == 2500
    assert found["max_summary"] == 1000
    assert found["max_work_summary"] == 500
    assert marks(ModelWindow(10_000, 100), threshold=99_999)["low_water"] == int(0.45 * 9400)


def test_the_summarys_bound_may_be_set() -> None:
    """S0: 256; S4: 200."""
    assert marks(ModelWindow(10_000), max_summary_tokens=200)["max_summary"] == 200


@given(profiles(), st.one_of(st.none(), st.integers(0, 10_000)), st.one_of(st.none(), st.integers(0, 10_000)))
def test_the_marks_are_in_order(profile: ModelProfile, max_output: int | None, retention: int | None) -> None:
    """Low water, high water and limit never cross, whatever was configured."""
    made = budget_for(profile, max_output, retention)
    assert 0 <= made.low_water <= made.high_water <= made.limit <= made.window
    assert 0 <= made.prepare_mark <= made.high_water
    assert made.min_tokens <= made.limit // 2
    if retention is not None:
        assert made.retention == retention


def test_the_marks_count_from_a_head_that_fills_the_low_water() -> None:
    """Of what such a head leaves, the low water and the prepare mark are the same shares."""
    policy = CompactionPolicy()
    made = budget_for(ModelProfile("m", ModelWindow(60_000, 4000), policy), None)
    assert above_head(made, policy, 2000) == made
    raised = above_head(made, policy, 30_000)
    space = made.high_water - 30_000
    assert raised.low_water == 30_000 + space * made.low_water // made.high_water
    assert raised.prepare_mark == 30_000 + int(0.7 * space)
    assert above_head(made, policy, 70_000) == made
