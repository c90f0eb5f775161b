"""Cache marks of Tidemark's own: in compacted requests whose clients set none, and in no others (docs/adr/0039)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.providers.anthropic_compaction import CompactingAnthropic
from tests.providers.anthropic_messages import EnforcingAnthropic
from tests.providers.prompt_cache import PromptCache
from tests.request.compaction.test_native_compaction import before_summarizer
from tests.request.conftest import Bench, Client
from tests.request.dialects.test_bound_thinking import Talker, thoughts_in
from tests.request.talk import long

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/MODEL, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200INFO}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 400, min_tokens: 300, cache_marks: "MARKS"{more}}}
"""
RULES = "Rules of the house. " + " ".join(f"rule {number} holds;" for number in range(400))
WINDOW = 6000
MARK = {"type": "ephemeral"}


def config_of(marks: str = "on", model: str = "claude-sonnet-5-5", info: str = "") -> str:
    """A configuration before the scripted upstream."""
    return CONFIG.replace("MODEL", model).replace("MARKS", marks).replace("INFO", info)


class Marker(Talker):
    """A client of the Messages API with a long system text, which sets no marks unless a test adds them."""

    streams = False

    def post(self, path: str = "/v1/messages", **asked: str) -> httpx.Response:
        """Send the history as it is."""
        body = {"model": "small", "max_tokens": 100, "system": RULES, "messages": self.messages, **self.members}
        return self.client.http.post(path, json=body, headers=self.client.headers(**asked))


@pytest.fixture
def api(bench: Bench) -> EnforcingAnthropic:
    """Anthropic's API behind the bench."""
    bench.upstream.script = EnforcingAnthropic()
    return bench.upstream.script


@pytest.fixture
def marker_of(bench: Bench, request: pytest.FixtureRequest) -> Callable[..., Marker]:
    """Makes a client of a Tidemark of its own."""

    def make(config: str = "", **settings: Any) -> Marker:
        return Marker(bench.client(request.node.nodeid, config=config or config_of(), window=WINDOW, **settings))

    return make


def marks_of(body: Json) -> list[str]:
    """The beginning of each marked text of a request, in order."""
    blocks = [*(body["system"] if isinstance(body["system"], list) else ())]
    for said in body["messages"]:
        blocks += said["content"] if isinstance(said["content"], list) else ()
    return [block["text"][:7] for block in blocks if block.get("cache_control") == MARK]


def test_a_compacted_request_is_marked_from_its_first_on_and_others_go_out_as_they_came(
    bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker]
) -> None:
    """On the system text and on the summary, in the same bytes until the next one; no thinking is refused for it."""
    marker = marker_of()
    marker.talk(60)
    bodies = [received.json for received in bench.upstream.received]
    assert marker.actions.count("compacted") >= 2
    for body, action in zip(bodies, marker.actions, strict=True):
        assert marks_of(body) == ([] if action == "none" else ["Rules o", "Summary"])
        assert action != "none" or body["system"] == RULES
    sent = thoughts_in(bench)
    for before, after, action in zip(bodies, bodies[1:], marker.actions[1:], strict=False):
        place = bodies.index(after)
        assert action == "compacted" or sent[place][-1], "the newest answer's thinking stays"
        if action == "reused":
            assert after["system"] == before["system"]
            assert after["messages"][: len(before["messages"])] == before["messages"]
    assert api.refusals == []


def test_the_provider_then_reads_what_stands_before_the_newest_messages(
    api: EnforcingAnthropic, marker_of: Callable[..., Marker]
) -> None:
    """Without marks nothing is read from the cache."""
    marker_of().talk(40)
    marked = api.cache
    api.cache = PromptCache()
    marker_of(config_of("off")).talk(40)
    assert api.cache.read == 0
    assert marked.read > 0.2 * api.cache.plain, (marked.read, marked.written, marked.plain, api.cache.plain)


def test_a_stream_is_marked_too(bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker]) -> None:
    """The body is the same but for the member that asks for it."""
    marker = marker_of()
    marker.talk(30)
    marker.members = {**marker.members, "stream": True}
    marker.messages.append({"role": "user", "content": long(99, 90)})
    assert marker.post().status_code == 200
    assert marks_of(bench.upstream.received[-1].json) == ["Rules o", "Summary"]
    assert api.refusals == []


@pytest.mark.parametrize("marks", ["auto", "off"])
def test_a_server_of_ones_own_gets_none(
    bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker], marks: str
) -> None:
    """Unless the configuration says that it takes them: some refuse members that they do not know."""
    marker = marker_of(config_of(marks))
    marker.talk(30)
    assert "compacted" in marker.actions
    assert not any(marks_of(received.json) for received in bench.upstream.received)
    assert api.refusals == []


def test_a_model_that_is_no_cheaper_with_a_cache_gets_none(
    bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker]
) -> None:
    """By its price, if that is known."""
    price = ", input_cost_per_token: 0.000001, output_cost_per_token: 0.000005"
    marker = marker_of(config_of(info=price))
    marker.talk(30)
    assert "compacted" in marker.actions
    assert not any(marks_of(received.json) for received in bench.upstream.received)
    assert api.refusals == []


def test_a_prefix_that_the_model_does_not_cache_is_not_marked(
    bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker]
) -> None:
    """Haiku 4.5 caches none below 4,096 tokens."""
    api.checks = False
    marker = marker_of(config_of(model="claude-haiku-4-5"))
    marker.talk(30)
    assert "compacted" in marker.actions
    assert not any(marks_of(received.json) for received in bench.upstream.received)
    assert api.refusals == []


def test_a_client_that_marks_anything_marks_alone(
    bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker]
) -> None:
    """Its newest message has a mark, so the summary has a copy of it, and the system text stays as it is."""
    marker = marker_of()
    for number in range(30):
        text = {"type": "text", "text": long(number, 90)}
        marker.messages.append({"role": "user", "content": [{**text, "cache_control": MARK}]})
        answer = marker.post()
        marker.messages[-1] = {"role": "user", "content": [text]}
        marker.messages.append({"role": "assistant", "content": answer.json()["content"]})
        marker.answers.append(answer)
    assert "compacted" in marker.actions
    assert all(received.json["system"] == RULES for received in bench.upstream.received)
    assert marks_of(bench.upstream.received[-1].json) == ["Summary", "Point 2"]
    assert api.refusals == []


def test_the_search_of_the_model_is_marked_in_each_round(
    bench: Bench, api: EnforcingAnthropic, marker_of: Callable[..., Marker]
) -> None:
    """The function goes behind the client's tools, before all that is marked."""
    marker = marker_of(more=", recall: {tool: true}")
    marker.talk(40)
    compacted = [
        received.json
        for received, action in zip(bench.upstream.received, marker.actions, strict=True)
        if action != "none"
    ]
    assert compacted
    assert all(marks_of(body) == ["Rules o", "Summary"] and body["tools"] for body in compacted)
    assert api.refusals == []


def test_a_summary_in_its_providers_own_form_is_left_alone(bench: Bench, marker_of: Callable[..., Marker]) -> None:
    """And the system text with it, so that thinking behind it stays valid byte for byte."""
    api = CompactingAnthropic()
    bench.upstream.script = before_summarizer(api)
    marker = marker_of(config_of(model="claude-opus-5-5"), strategy="native")
    marker.talk(40)
    assert "compacted" in marker.actions
    assert api.refusals == []
    assert all(
        received.json["system"] == RULES for received in bench.upstream.received if received.path.endswith("/messages")
    )


@pytest.mark.parametrize(
    ("path", "member", "part"), [("/v1/chat/completions", "messages", "text"), ("/v1/responses", "input", "input_text")]
)
def test_openais_models_get_breakpoints(
    bench: Bench, request: pytest.FixtureRequest, path: str, member: str, part: str
) -> None:
    """On the last system message and on the summary, which are parts then."""
    client: Client = bench.client(request.node.nodeid, config=config_of(model="gpt-5.6"), window=WINDOW)
    said: list[Json] = [{"role": "system", "content": RULES}]
    for number in range(60):
        said.append({"role": "user", "content": long(number, 90)})
        answer = client.http.post(path, json={"model": "small", member: said}, headers=client.headers())
        assert answer.status_code == 200, answer.text
        said.append({"role": "assistant", "content": "Fine."})
    body = bench.upstream.received[-1].json
    breakpoint_of = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    assert [json.dumps(breakpoint_of)[1:-1] in json.dumps(each) for each in body[member][:3]] == [True, True, False]
    assert body[member][0]["content"] == [{"type": part, "text": RULES, **breakpoint_of}]
    assert body[member][1]["content"][0]["text"].startswith("Summary of earlier turns")
