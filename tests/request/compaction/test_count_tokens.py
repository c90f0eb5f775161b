"""``POST /v1/messages/count_tokens``: the upstream's own count where it has one, else Tidemark's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from anthropic.types import MessageTokensCount

from tests.dialects.messages.anthropic_talk import text, user
from tests.request.conftest import Bench
from tests.support.scripted import Answer, Received

COUNT = "/v1/messages/count_tokens"
BODY = {"model": "small", "system": [text("Be brief.")], "messages": [user("How is the weather?")]}
CHAT_ALONE = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{dialects: [chat]}}
"""
CLAUDE = """
model_list:
  - model_name: small
    litellm_params: {{model: bedrock/anthropic.claude-3-haiku-20240307-v1:0, aws_region_name: us-east-1}}
"""


def ask(http: httpx.Client, body: Any = BODY, path: str = COUNT) -> httpx.Response:
    """Ask for a count."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.post(path, content=content, headers={"x-api-key": "k", "anthropic-version": "2023-06-01"})


def test_an_upstream_that_counts_is_asked(bench: Bench, request: pytest.FixtureRequest) -> None:
    """With its name of the model, the client's query and headers; its answer is the client's."""
    bench.upstream.others.counts = lambda _: Answer([b'{"input_tokens": 4711}'], headers=[(b"request-id", b"req_7")])
    http = bench.client(request.node.nodeid).http
    for path in (f"{COUNT}?beta=true", "/v1/v1/messages/count_tokens"):
        answer = ask(http, path=path)
        assert (answer.status_code, answer.json()) == (200, {"input_tokens": 4711})
        assert answer.headers["request-id"] == "req_7"
        assert bench.upstream.last.path == COUNT
        assert bench.upstream.last.json == {**BODY, "model": "scripted"}
        assert bench.upstream.last.headers["x-api-key"] == "k"


@pytest.mark.parametrize("status", [404, 405, 501])
def test_an_upstream_that_does_not_count_is_asked_once(
    bench: Bench, request: pytest.FixtureRequest, status: int
) -> None:
    """Tidemark counts then, as it counts the same request for a budget."""

    def script(received: Received) -> Answer:
        return Answer([b'{"error": {"message": "File Not Found"}}'], status)

    bench.upstream.others.counts = script
    http = bench.client(request.node.nodeid).http
    counts = [MessageTokensCount.model_validate_json(ask(http).content).input_tokens for _ in range(2)]
    assert len(bench.upstream.received) == 1
    assert counts[0] == counts[1] > 10


@pytest.mark.parametrize("known", [False, True])
def test_a_refusal_of_one_clients_text_is_not_believed_for_all(
    bench: Bench, request: pytest.FixtureRequest, *, known: bool
) -> None:
    """A firewall answers some texts with 405; another client's request is asked about as before."""
    bench.upstream.others.counts = lambda received: (
        Answer([b"no"], 405) if b"UNION" in received.body else Answer([b'{"input_tokens": 4711}'])
    )
    http = bench.client(request.node.nodeid).http
    if known:
        ask(http)
    attack = {**BODY, "messages": [user("UNION SELECT 1")]}
    headers = {"x-api-key": "k" if known else "mallory", "anthropic-version": "2023-06-01"}
    assert http.post(COUNT, json=attack, headers=headers).json()["input_tokens"] < 4711
    assert ask(http).json() == {"input_tokens": 4711}


def test_an_error_about_the_model_is_the_upstreams(bench: Bench, request: pytest.FixtureRequest) -> None:
    """It says nothing about the endpoint, which is asked again."""
    body = b'{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}'
    bench.upstream.others.counts = lambda _: Answer([body], 404)
    http = bench.client(request.node.nodeid).http
    assert [(answer.status_code, answer.content) for answer in (ask(http), ask(http))] == [(404, body)] * 2
    assert len(bench.upstream.received) == 2


def test_an_upstream_that_is_configured_for_chat_alone_is_not_asked(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """It would count a request that it never gets in this form."""
    bench.upstream.others.counts = lambda _: Answer([b'{"input_tokens": 4711}'])
    http = bench.client(request.node.nodeid, config=CHAT_ALONE).http
    assert 10 < ask(http).json()["input_tokens"] < 4711
    assert bench.upstream.received == []


def test_a_provider_behind_litellm_is_counted_for(bench: Bench, request: pytest.FixtureRequest) -> None:
    """There is nobody to ask."""
    http = bench.client(request.node.nodeid, config=CLAUDE).http
    assert ask(http).json()["input_tokens"] > 10
    assert bench.upstream.received == []


def test_a_bad_request_is_refused_in_anthropics_envelope(bench: Bench, request: pytest.FixtureRequest) -> None:
    """With the member's name."""
    answer = ask(bench.client(request.node.nodeid).http, {"model": "small", "messages": [7]})
    assert (answer.status_code, answer.json()["type"]) == (400, "error")
    assert answer.json()["error"]["param"] == "messages.0"


def test_a_base_url_answers_who_asks_whether_anybody_is_there(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Claude Code does so at its start."""
    http = bench.client(request.node.nodeid).http
    assert [http.head(path).status_code for path in ("/", "/v1")] == [200, 200]
    assert http.get("/").status_code == 404


def test_a_browser_at_the_servers_address_is_led_to_the_console(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The address is what ``serve`` prints first, so people open it."""
    http = bench.client(request.node.nodeid).http
    answer = http.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


@pytest.mark.parametrize(
    "path", ["/%6Detrics", "/health%2Freadiness", "/health/%72eadiness", "/%63onsole", "/tidemark/%6Dodels"]
)
def test_a_path_with_signs_is_no_other_way_to_tidemarks_own(
    bench: Bench, request: pytest.FixtureRequest, path: str
) -> None:
    """A reverse proxy that refuses ``/metrics`` compares what was written."""
    http = bench.client(request.node.nodeid).http
    answer = http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert http.get("/tidemark/models/openai%2Fnone").json()["error"]["code"] != "unknown_url"


ANTHROPIC = """
model_list:
  - model_name: small
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_base: "{base}", api_key: sk-ant-configured}}
"""


def test_anthropics_own_endpoint_is_asked_with_the_configured_key(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Over the wire, as its messages are."""
    http = bench.client(request.node.nodeid, config=ANTHROPIC).http
    assert ask(http).json() == {"input_tokens": 42}
    assert bench.upstream.last.path == COUNT
    assert bench.upstream.last.json["model"] == "claude-sonnet-4-5"
    assert bench.upstream.last.headers["x-api-key"] == "sk-ant-configured"
    assert bench.upstream.last.headers["anthropic-version"] == "2023-06-01"
