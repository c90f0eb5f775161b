"""The registry's merge: what a person set goes over what was found, and comes off again without a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemark.core.models import (
    NOTHING_SET,
    SETTABLE,
    ModelObservation,
    ModelOverrides,
    ModelRecord,
    merged_observation,
)
from tidemark.core.planning.budget import CompactionPolicy, ModelWindow, budget_for

TOKENS = st.integers(1, 2_000_000)
WINDOWS = st.builds(
    ModelWindow, TOKENS, st.none() | TOKENS, st.none() | TOKENS, st.sampled_from(["api", "manual", "default"])
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "max_input_tokens": st.none() | TOKENS,
        "max_output_tokens": st.none() | TOKENS,
        "context_window": st.none() | TOKENS,
        "threshold": st.none() | st.floats(0.01, 1),
        "retention_tokens": st.none() | st.integers(0, 100_000),
    },
)
SIGHTINGS = st.builds(
    ModelObservation,
    st.just("openai"),
    st.just("m"),
    st.sampled_from("ab"),
    WINDOWS,
    st.floats(0.1, 1),
    st.integers(0, 5000),
)


def set_to(said: dict[str, int | float | None], start: ModelOverrides = NOTHING_SET) -> ModelOverrides:
    """Overrides after ``said``, where it does not contradict itself."""
    try:
        return start.with_fields(said)
    except ValueError:
        assume(condition=False)
        raise


@given(WINDOWS)
def test_nothing_set_changes_nothing(found: ModelWindow) -> None:
    """The found window and the configured policy, the very values."""
    policy = CompactionPolicy()
    assert NOTHING_SET.over_window(found) is found
    assert NOTHING_SET.over_policy(policy) is policy
    assert NOTHING_SET.set_fields == {}


@given(WINDOWS, FIELDS)
def test_what_is_set_holds(found: ModelWindow, said: dict[str, int | float | None]) -> None:
    """Every field that a person set is the one in force, and the source says that a person did it."""
    made = set_to(said)
    window, policy = made.over_window(found), made.over_policy(CompactionPolicy())
    given_fields = {name: value for name, value in said.items() if value is not None}
    assert made.set_fields == given_fields
    for name, value in given_fields.items():
        assert getattr(policy if name in ("threshold", "retention_tokens") else window, name) == value
    assert (window.source == "manual") >= made.states_window
    if not made.states_window:
        assert replace(window, max_output_tokens=found.max_output_tokens) == found
    assert budget_for(ModelRecord("p", "m", "m", None, made).profile(CompactionPolicy()), None).limit >= 0


@given(WINDOWS, FIELDS)
def test_a_window_is_taken_whole_from_one_source(found: ModelWindow, said: dict[str, int | float | None]) -> None:
    """No half of the found window stays beside a half that a person stated."""
    made = set_to(said)
    assume(made.states_window)
    window = made.over_window(found)
    assert window.context_window == made.context_window
    assert window.max_input_tokens == (made.max_input_tokens or made.context_window)


@given(FIELDS, FIELDS)
def test_the_newest_word_on_a_field_holds_and_others_stay(
    first: dict[str, int | float | None], then: dict[str, int | float | None]
) -> None:
    """Setting twice is setting the union, later fields first; null takes one back."""
    made = set_to(then, set_to(first))
    assert made == set_to({**first, **then})
    assert set_to(dict.fromkeys(SETTABLE), made) == NOTHING_SET


def test_a_smaller_whole_than_its_part_is_refused() -> None:
    """``context_window`` holds input and output together."""
    with pytest.raises(ValueError, match="100"):
        NOTHING_SET.with_fields({"max_input_tokens": 200, "context_window": 100})
    with pytest.raises(ValueError, match="100"):
        NOTHING_SET.with_fields({"max_input_tokens": 200}).with_fields({"context_window": 100})


@given(SIGHTINGS, SIGHTINGS, FIELDS)
def test_sightings_keep_what_was_set_and_when_it_began(
    first: ModelObservation, then: ModelObservation, said: dict[str, int | float | None]
) -> None:
    """The newest sighting holds, except that an assumption never takes the place of something found."""
    new = merged_observation(None, first, 1.0)
    assert new is not None
    assert (new.created_at, new.updated_at, new.observation) == (1.0, 1.0, first)
    assert merged_observation(new, first, 2.0) is None
    record = replace(new, overrides=set_to(said))
    after = merged_observation(record, then, 3.0)
    if after is None:
        assert then == first or (then.window.source == "default" != first.window.source)
    else:
        assert (after.observation, after.overrides, after.created_at, after.updated_at) == (
            then,
            record.overrides,
            1.0,
            3.0,
        )


def test_a_model_that_was_set_before_it_was_seen_keeps_both() -> None:
    """FR-3.2.3: a person may state a model that no request has named yet."""
    own = ModelOverrides(max_input_tokens=32_768)
    record = ModelRecord("openai", "house", "house", None, own, created_at=1.0, updated_at=1.0)
    sighting = ModelObservation("openai", "house", "mine", ModelWindow(), 0.9, 10)
    after = merged_observation(record, sighting, 5.0)
    assert after is not None
    assert after.profile(CompactionPolicy()).window.max_input_tokens == 32_768
    assert (after.name, after.created_at, after.observation) == ("mine", 1.0, sighting)
