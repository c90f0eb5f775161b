"""Rules of the cached prefix: what is forwarded, up to the last message that a summary is to stand for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidemark.core.conversation.messages import Message, system_message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import MaskedResults, PrefixSummary, SummaryRecipe, render_summary
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.cached_prefix import cached_prefix
from tidemark.core.planning.situation import Compact
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message

PROFILE = ModelProfile("m", ModelWindow(10_000), CompactionPolicy(summarizer_cache_friendly=True))


def message(role: str, text: str) -> Message:
    """One message."""
    value = {"role": role, "content": text}
    return parse_message(json.dumps(value).encode(), value, 0)


HEAD, INNER = message("system", "head"), message("system", "inner")
TALK = [message("assistant" if place % 2 else "user", f"text {place}") for place in range(6)]
MESSAGES = (HEAD, *TALK)
PLAN = Compact(
    covered=4,
    messages=tuple(TALK[:4]),
    previous=None,
    max_summary_tokens=200,
    absorbed=(),
    replaced_tokens=1000,
    rest_tokens=100,
    fallback=None,
)


def request(*, messages: tuple[Message, ...] = MESSAGES, **fields: str) -> ModelRequest:
    """A request with these members beside its messages, as raw JSON."""
    return ModelRequest(b"", {name: raw.encode() for name, raw in fields.items()}, "m", messages, ChatDialect())


def test_without_a_summary_it_is_the_clients_own_messages() -> None:
    """The head first."""
    live = cached_prefix(request(), PLAN, PROFILE)
    assert live is not None
    assert live.messages == (HEAD, *TALK[:4])
    assert live.limit == budget_for(PROFILE, 200).limit


@pytest.mark.parametrize("covered", [1, 2, 3])
def test_with_a_summary_it_is_what_was_forwarded_with_it(covered: int) -> None:
    """It begins as the request assembled with the earlier summary does, and ends before what is retained."""
    recipe = SummaryRecipe("llm", "general", 1)
    earlier = PrefixSummary(b"p", covered, "told", recipe, made_by="llm", cause="automatic", created_at=0.0)
    live = cached_prefix(request(), replace(PLAN, previous=earlier, messages=tuple(TALK[covered:4])), PROFILE)
    assert live is not None
    forwarded = assemble(MESSAGES, earlier)
    assert forwarded[: len(live.messages)] == live.messages
    assert forwarded[len(live.messages) :] == tuple(TALK[4:])


def test_what_is_cached_goes_along_and_nothing_else() -> None:
    """Tools, and what leads to the server with the cache; not how the client's own reply is sampled."""
    live = cached_prefix(
        request(tools="[1]", tool_choice='"auto"', user='"u"', temperature="2", stream="true", n="3", stop='"x"'),
        PLAN,
        PROFILE,
    )
    assert live is not None
    assert live.fields == {"tools": b"[1]", "tool_choice": b'"auto"', "user": b'"u"'}


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": '"required"'},
        {"tool_choice": '{"type": "function", "function": {"name": "f"}}'},
        {"function_call": '{"name": "f"}'},
        {"response_format": '{"type": "json_object"}'},
        {"response_format": '{ "type" : "json_schema", "json_schema": {}}'},
    ],
)
def test_there_is_none_where_the_answer_could_be_no_text(fields: dict[str, str]) -> None:
    """A forced tool, or JSON."""
    assert cached_prefix(request(messages=MESSAGES, **fields), PLAN, PROFILE) is None
    assert cached_prefix(request(response_format='{"type": "text"}'), PLAN, PROFILE) is not None


def test_there_is_none_where_system_messages_are_to_be_told() -> None:
    """Before the model they would be instructions, and not what it is to summarize."""
    assert cached_prefix(request(), replace(PLAN, messages=(system_message("inner"), *TALK[:4])), PROFILE) is None


def test_there_is_none_where_system_messages_stand_among_the_turns() -> None:
    """A summary by who has read them may tell them, and is used for all whose other messages are the same."""
    assert cached_prefix(request(messages=(HEAD, *TALK[:3], INNER, *TALK[3:])), PLAN, PROFILE) is None
    assert cached_prefix(request(messages=(HEAD, *TALK[:5], INNER, TALK[5])), PLAN, PROFILE) is not None


def test_there_is_none_unless_it_was_asked_for() -> None:
    """The default."""
    assert cached_prefix(request(), PLAN, replace(PROFILE, policy=CompactionPolicy())) is None


@pytest.mark.parametrize("covered", [2, 5])
def test_masks_that_a_plan_passes_over_are_not_forwarded_to_its_model(covered: int) -> None:
    """As behind a summary that a smaller window has no space for: it may even stand for more than is planned."""
    recipe = SummaryRecipe("llm", "general", 1)
    other = PrefixSummary(b"p", 3, "passed over", recipe, "llm", "automatic", 0.0)
    masks = PrefixSummary(b"q", 4, "", recipe, "mask", "automatic", 0.0, masked=MaskedResults(other, ()))
    live = cached_prefix(request(), replace(PLAN, covered=covered), PROFILE, masks)
    assert live is not None
    assert live.messages == (HEAD, *TALK[:covered])
    upon = cached_prefix(request(), replace(PLAN, covered=5, previous=other), PROFILE, masks)
    assert upon is not None
    assert upon.messages == (HEAD, render_summary(other), *TALK[3:5])


@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_what_was_not_read_does_not_change_it(left_out: int) -> None:
    """The earlier summary stands for the oldest messages, whether they were read or not."""
    earlier = PrefixSummary(b"p", 3, "so far", SummaryRecipe("llm", "general", 1), "llm", "automatic", 0.0)
    plan = replace(PLAN, covered=5, previous=earlier, messages=tuple(TALK[3:5]))
    whole = cached_prefix(request(), plan, PROFILE)
    rest = cached_prefix(request(messages=(HEAD, *TALK[left_out:])), plan, PROFILE, left_out=left_out)
    assert whole is not None
    assert rest == whole
