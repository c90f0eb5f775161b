"""What overflows teach where the model is calibrated: the upstream's own window, and its density beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstream.callers import calling
from tidemark.catalog.catalog import Catalog
from tidemark.catalog.learned import KEPT_RATIO, LEAST_RATIO, learn_from_reply, learn_window_and_density
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow
from tidemark.core.ports import Route
from tidemark.upstream.overflow import Overflow
from tidemark.upstream.upstream import LiteLLMUpstream

TOKENS = st.integers(1, 2_000_000)
WINDOWS = st.builds(
    ModelWindow, TOKENS, st.none() | TOKENS, st.none() | TOKENS, st.sampled_from(["api", "manual", "default"])
)
OVERFLOWS = st.builds(Overflow, st.none() | TOKENS, st.none() | TOKENS)
ALICE = calling(("authorization", "Bearer a"), fingerprint=b"alice")


@given(WINDOWS, OVERFLOWS, st.integers(0, 2_000_000), st.floats(0.95, 4))
def test_what_is_taught_is_bounded_whatever_is_told(
    window: ModelWindow, overflow: Overflow, sent: int, factor: float
) -> None:
    """One odd request shrinks no later one by more than a fifth; its own replay, by three quarters."""
    now, kept = learn_window_and_density(window, overflow, sent, factor)
    assert 1 <= kept.density <= 1 / KEPT_RATIO
    assert now.density <= 1 / LEAST_RATIO
    assert now.window == kept.window
    assert kept.window.max_input_tokens >= 1
    if overflow.window_tokens is None:
        assert kept.window.max_input_tokens <= max(KEPT_RATIO * window.window, 1)


@given(WINDOWS, TOKENS, st.none() | TOKENS, st.integers(1, 2_000_000), st.floats(0.95, 4))
def test_being_told_a_window_again_does_not_shrink_it_again(
    window: ModelWindow, told: int, requested: int | None, sent: int, factor: float
) -> None:
    """However often it overflows: what the upstream says of itself stays its window, all else is density."""
    overflow = Overflow(told, requested)
    once = learn_window_and_density(window, overflow, sent, factor)[1].window
    twice = learn_window_and_density(once, overflow, sent, factor)[1].window
    assert once == twice
    if window.source == "default":
        assert (once.max_input_tokens, once.window, once.source) == (told, told, "api")


@pytest.mark.parametrize(
    ("overflow", "sent", "factor", "taught"),
    [
        (Overflow(2000, 2190), 1500, 1.0, (2000, 1.46, 1.25)),  # denser than believed
        (Overflow(2000, 2190), 1500, 1.46, (2000, 1.46, 1.25)),  # as dense as believed: the window is what is new
        (Overflow(2000, 1000), 1500, 1.0, (2000, 1.0, 1.0)),  # sparser
        (Overflow(2000), 1500, 1.0, (2000, 1.0, 1.0)),
        (Overflow(128_000), 120_000, 1.0, (128_000, 1.25, 1.25)),  # nothing new
        (Overflow(128_000, 130_000), 120_000, 1.0, (128_000, 13 / 12, 13 / 12)),
        (Overflow(200_000, 210_000), 120_000, 1.0, (200_000, 1.75, 1.25)),  # larger than was assumed
        (Overflow(), 1500, 1.0, (1200, 1.0, 1.0)),
        (Overflow(), 1500, 1.46, (1752, 1.46, 1.25)),  # no number: in what is believed to be its tokens
        (Overflow(None, 2190), 1500, 1.0, (1752, 1.46, 1.25)),
    ],
)
def test_a_window_is_learned_in_the_upstreams_tokens(
    overflow: Overflow, sent: int, factor: float, taught: tuple[int, float, float]
) -> None:
    """From an assumed window of 128,000 tokens: the window, the density of the replay, and that of later requests."""
    now, then = learn_window_and_density(ModelWindow(), overflow, sent, factor)
    assert (then.window.window, now.density, then.density) == pytest.approx(taught)


@pytest.mark.parametrize(("calibrate", "taught"), [(True, (2000, 1.25)), (False, (1600, 1.0))])
async def test_the_catalog_learns_apart_where_the_model_is_calibrated(
    tmp_path: Path, *, calibrate: bool, taught: tuple[int, float]
) -> None:
    """And in one number where it is not: there is no factor that a density could go into."""
    body = b'{"error": {"message": "prompt is too long: 2190 tokens > 2000 maximum"}}'
    route = Route("wire", "mine", "m", "openai", "https://api.openai.com/v1")
    policy, data = CompactionPolicy(calibrate=calibrate), LiteLLMModelData(tmp_path / "none.json")
    catalog = Catalog(LiteLLMUpstream(), data=data, policy_for=lambda _: policy)
    profile = await catalog.profile(route, ALICE)
    assert profile.density == 1.0
    assert await catalog.learn(route, ALICE, profile, status=400, body=body, sent_tokens=1500, factor=1.0)
    after = await catalog.profile(route, ALICE)
    assert (after.window.window, after.density) == taught


@pytest.mark.parametrize(
    ("overflow", "sent", "asked", "taught"),
    [
        (Overflow(40_000, 9000), 9000, 32_000, 40_000),  # vLLM, SGLang, Anthropic: input and window
        (Overflow(40_000, 41_000), 9000, 32_000, 40_000),  # one number for both
        (Overflow(None, None), 9000, 32_000, 40_000),  # only that it is too much
        (Overflow(20_000, 9000), 9000, 18_000, 20_000),  # a window that was taken to be larger
        (Overflow(40_000, 41_000), 30_000, 32_000, None),  # the input alone is too long
        (Overflow(40_000, 9000), 9000, 900, None),  # so much was kept free
        (Overflow(40_000, 9000), 9000, None, None),
        (Overflow(40_000, 5000), 5000, 32_000, None),  # both fit: it was something else
    ],
)
def test_a_refusal_for_the_reply_alone_teaches_no_smaller_window(
    overflow: Overflow, sent: int, asked: int | None, taught: int | None
) -> None:
    """What is learned is that the whole reply counts; the window is what the upstream says it is."""
    profile = ModelProfile("m", ModelWindow(40_000, 1000), CompactionPolicy())
    lesson = learn_from_reply(profile, overflow, sent, asked)
    if taught is None:
        assert lesson is None
    else:
        assert lesson is not None
        assert (lesson.window.window, lesson.whole_reply, lesson.density) == (taught, True, 1.0)
