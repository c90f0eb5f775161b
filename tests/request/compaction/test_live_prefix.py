"""``summarizer.cache_friendly``: the summarizer's call continues the forwarded bytes, which the provider has cached."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import Answer, Received, says, whole

ASKED = "The conversation ends here."
SUMMARY = "## Context\nThe points were gone through one after another, and each was agreed upon by both sides in turn."
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
HEAD: list[Said] = [system("You are a careful clerk.")]
OTHER = """
model_list:
  - {{model_name: small, litellm_params: {{model: openai/scripted, api_base: "{base}"}},
     model_info: {{max_input_tokens: 3000, max_output_tokens: 200}}}}
  - {{model_name: other, litellm_params: {{model: openai/other, api_base: "{base}"}}}}
compaction:
  defaults: {{strategy: llm, min_tokens: 300, summarizer: {{cache_friendly: true, model: MODEL}}}}
"""
LONG: list[Said] = [*HEAD, *history(26), user("Now?")]


def is_live_call(request: Received) -> bool:
    """Whether this is the conversation itself with our question at its end."""
    return str(request.messages[-1]["content"]).startswith(ASKED)


def is_quoted_call(request: Received) -> bool:
    """Whether this is the ordinary way: the conversation quoted, in pieces."""
    return "<<<TRANSCRIPT" in str(request.messages[-1]["content"])


def array(request: Received) -> bytes:
    """The bytes of ``messages``, up to the summarizer's own question if it is there."""
    return request.body.partition(b'"messages":[')[2].partition(f',{{"role":"user","content":"{ASKED}'.encode())[0]


def upstream_with(live: Callable[[Received], Answer]) -> Callable[[Received], Answer]:
    """An upstream that answers live calls in one way, and all else well."""

    def script(request: Received) -> Answer:
        if is_live_call(request):
            return live(request)
        return says(SUMMARY if is_quoted_call(request) else "Fine.")(request)

    return script


def friendly(bench: Bench, request: pytest.FixtureRequest, strategy: str = "llm", window: int = 3000) -> Client:
    """A client of a Tidemark that asks for summaries at the end of the live conversation."""
    more = ", summarizer: {cache_friendly: true}"
    return bench.client(request.node.nodeid, strategy=strategy, more=more, window=window)


@pytest.mark.parametrize("strategy", ["llm", "hybrid"])
def test_the_call_is_what_was_forwarded_with_one_message_more(
    bench: Bench, request: pytest.FixtureRequest, strategy: str
) -> None:
    """The client's own bytes, tools and head first; at the next compaction the earlier summary stands in its place."""
    client = friendly(bench, request, strategy)
    bench.upstream.script = upstream_with(says(SUMMARY))
    said = list(LONG)
    got = client.post({"model": "small", "tools": TOOLS, "messages": said, "max_tokens": 100})
    assert (got.headers["x-tidemark-action"], got.headers["x-tidemark-strategy"]) == ("compacted", strategy)
    first, forwarded = bench.upstream.received
    covered = len(first.messages) - 1
    assert array(first) == b",".join(json.dumps(one).encode() for one in said[:covered])
    assert first.json["tools"] == TOOLS
    assert first.headers["authorization"] == f"Bearer {client.key}"
    assert forwarded.messages[2:] == said[covered:]

    turn = 100
    while not any(is_live_call(one) for one in bench.upstream.received[2:]):
        said += [assistant("Fine."), user(f"Point {turn}: " + f"word{turn} " * 40)]
        client.post({"model": "small", "tools": TOOLS, "messages": said, "max_tokens": 100})
        turn += 1
    # Whether it was due or made ahead: what was forwarded right before it is what the provider has.
    received = bench.upstream.received
    place = next(place for place, one in enumerate(received) if place > 1 and is_live_call(one))
    second, forwarded = received[place], received[place - 1]
    assert len(second.messages) > 4
    assert array(forwarded).startswith(array(second))
    assert "Summary of earlier turns" in second.messages[1]["content"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: whole("", tool_calls=[{"id": "c", "type": "function", "function": {"name": "look"}}]),
        lambda _: whole("I'm sorry, but I can't help with that."),
        lambda _: Answer([b'{"error":{"message":"too long"}}'], 400),
    ],
    ids=["tool call", "refusal", "too long"],
)
def test_what_is_no_summary_is_asked_for_the_ordinary_way(
    bench: Bench, request: pytest.FixtureRequest, answer: Callable[[Received], Answer]
) -> None:
    """Who went on with the conversation instead of summarizing it gets it quoted, without any tools."""
    client = friendly(bench, request)
    bench.upstream.script = upstream_with(answer)
    got = client.post({"model": "small", "tools": TOOLS, "messages": LONG, "max_tokens": 100})
    assert got.headers["x-tidemark-strategy"] == "llm"
    assert "each was agreed upon" in bench.upstream.last.messages[1]["content"]
    live, quoted = (one for one in bench.upstream.received[:2])
    assert is_live_call(live)
    assert is_quoted_call(quoted)
    assert "tools" not in quoted.json


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        ([*HEAD, *history(60), user("Now?")], {}),
        (LONG, {"response_format": {"type": "json_object"}}),
        (LONG, {"tools": TOOLS, "tool_choice": "required"}),
    ],
    ids=["longer than the window", "JSON wanted", "tool forced"],
)
def test_what_cannot_be_continued_is_summarized_the_ordinary_way(
    bench: Bench, request: pytest.FixtureRequest, messages: list[Said], more: dict[str, object]
) -> None:
    """The cached prefix must fit the window beside the answer, and the answer must be free to be a text."""
    client = friendly(bench, request)
    bench.upstream.script = upstream_with(says(SUMMARY))
    got = client.post({"model": "small", "messages": messages, "max_tokens": 100, **more})
    assert got.headers["x-tidemark-strategy"] == "llm"
    assert not any(is_live_call(one) for one in bench.upstream.received)


def test_another_model_has_no_cache_to_hit(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A summarizer of its own is asked the ordinary way; the conversation's own by its name is asked live."""
    for number, model in enumerate(("other", "small")):
        config = OTHER.replace("MODEL", model)
        client = bench.client(f"{request.node.nodeid}{number}", config=config)
        bench.upstream.received.clear()
        bench.upstream.script = upstream_with(says(SUMMARY))
        assert client.chat(LONG).headers["x-tidemark-strategy"] == "llm"
        assert is_live_call(bench.upstream.received[0]) == (model == "small")


PRICED = """
model_list:
  - {{model_name: small, litellm_params: {{model: openai/scripted, api_base: "{base}"}},
     model_info: {{max_input_tokens: 3000, max_output_tokens: 200, input_cost_per_token: 1.0e-6,
                   cache_read_input_token_cost: CACHED, output_cost_per_token: 5.0e-6}}}}
  - {{model_name: alias, litellm_params: {{model: openai/scripted, api_base: "{base}"}}}}
  - {{model_name: other, litellm_params: {{model: openai/other, api_base: "{base}"}}}}
compaction:
  defaults: {{strategy: llm, min_tokens: 300, summarizer: {{model: MODEL}}}}
"""


@pytest.mark.parametrize(
    ("model", "cached", "is_live"),
    [
        ("auto", "1.0e-7", True),
        ("small", "1.0e-7", True),
        ("alias", "1.0e-7", True),
        ("other", "1.0e-7", False),
        ("auto", "1.0e-6", False),
    ],
    ids=["auto", "by its name", "by another name", "another model", "a cache that saves nothing"],
)
def test_the_models_own_cache_is_used_by_default_if_it_saves(
    bench: Bench, request: pytest.FixtureRequest, model: str, cached: str, *, is_live: bool
) -> None:
    """Nobody set ``cache_friendly``: the prices say that the cache saves, and the names that it is the same model."""
    config = PRICED.replace("MODEL", model).replace("CACHED", cached)
    client = bench.client(request.node.nodeid, config=config)
    bench.upstream.script = upstream_with(says(SUMMARY))
    assert client.chat(LONG).headers["x-tidemark-strategy"] == "llm"
    assert is_live_call(bench.upstream.received[0]) == is_live


def test_a_stored_history_is_continued_though_its_oldest_messages_were_not_read(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The call goes on from what was forwarded before: the head, the earlier summary and what follows it."""
    client = friendly(bench, request)
    bench.upstream.script = upstream_with(says(SUMMARY))
    turns = [long(turn, 40) for turn in range(120)]
    sent: list[Received] = []
    for text in turns:
        said = [*HEAD, user(text)]
        client.chat(said, conversation="talk", history="stored")
        bench.settle()
        sent = bench.upstream.received
    lives = [place for place, one in enumerate(sent) if is_live_call(one)]
    assert len(lives) > 1
    assert not any(is_quoted_call(one) for one in sent)
    later = sent[lives[-1]]
    assert later.messages[0] == HEAD[0]
    assert "Summary of earlier turns" in later.messages[1]["content"]
    assert any(array(one).startswith(array(later)) for one in sent[: lives[-1]] if not is_live_call(one))
