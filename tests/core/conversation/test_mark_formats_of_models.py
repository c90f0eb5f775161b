"""Which requests are marked for a prompt cache: by the model's name, the sizes of the prefixes, and the client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.providers.prompt_cache import least_of
from tidemark.core.conversation.cache_marks import MarkFormat, claudes_format, marks_for, openais_format
from tidemark.core.money import ModelPrice, Rates

FORMAT = MarkFormat(b'"cache_control":{"type":"ephemeral"}', 1024, ("cache_control",))
HAIKU = Rates(1e-6, 5e-6, 1e-7, 1.25e-6)


@given(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from([1024, 4096]))
def test_no_prefix_below_the_providers_least_is_marked(head: int, summary: int, least: int) -> None:
    """The system text alone and with the summary; a longer prefix loses no mark."""
    marks = marks_for(MarkFormat(b"", least, ()), head, summary)
    assert (marks is not None) == (head + summary >= least)
    if marks is not None:
        assert marks.on_system == (head >= least)


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5-20251101",
        "claude-opus-4-6",
        "claude-opus-4-8",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-sonnet-4-20250514",
        "claude-sonnet-5-5",
        "claude-haiku-4-5",
        "claude-fable-5-1",
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-opus-4-1@20250805",
    ],
)
def test_the_least_size_of_a_model_is_never_taken_for_smaller(name: str) -> None:
    """As the provider has it."""
    form = claudes_format(name)
    assert form is not None
    assert form.least_tokens >= least_of(name)


@pytest.mark.parametrize("name", ["claude-3-opus-20240229", "claude-3-7-sonnet-latest", "house-model", "gpt-5.6", ""])
def test_a_model_of_another_name_gets_no_marks_of_claude(name: str) -> None:
    """Some clouds refuse marks for older models."""
    assert claudes_format(name) is None


def test_openais_models_take_marks_from_5_6_on() -> None:
    """By their names, with a provider's before them or not."""
    marked = ["gpt-5.6", "gpt-5.6-terra", "openai/gpt-5.10", "gpt-6", "gpt-6-mini"]
    assert all(openais_format(name) is not None for name in marked)
    others = ["gpt-5", "gpt-5.5", "gpt-4o", "gpt-4.1", "gpt-oss-120b", "o3", "chatgpt-6", "claude-opus-5-5"]
    assert all(openais_format(name) is None for name in others)


def test_a_client_marks_in_any_member() -> None:
    """In a block, in a tool or beside the messages; what a text quotes is no mark."""
    mark = b'{"type":"ephemeral"}'
    assert FORMAT.is_in({"system": b'[{"type":"text","text":"x","cache_control":' + mark + b"}]"})
    assert FORMAT.is_in({"tools": b'[{"cache_control" : ' + mark + b"}]"})
    assert FORMAT.is_in({"cache_control": mark})
    assert not FORMAT.is_in(
        {"messages": b'[{"content":"a \\"cache_control\\" member"}]', "model": b'"cache_control x"'}
    )


@given(st.floats(0, 1), st.floats(0, 3))
def test_a_cache_pays_if_one_read_pays_for_the_writing(read: float, write: float) -> None:
    """A prefix that is sent twice costs less than twice its input."""
    assert ModelPrice(Rates(1.0, 5.0, read, write)).caches == (write + read < 2)
    assert not ModelPrice(Rates(1.0, 5.0, read, write), cache_seconds=0).caches
    assert ModelPrice(HAIKU).caches
