"""Values that no client should send, in places where Tidemark reads them: an answer or a clear error, never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.request.conftest import Bench, Client

HALF = "\ud800"
"""Half of an emoji, as JavaScript cuts it: valid JSON as an escape, and no text of UTF-8."""
BRIDGED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{dialects: [chat], max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
"""
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
Member = dict[str, Any]


@pytest.fixture
def bridged(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a model whose upstream speaks chat completions only."""
    return bench.client(request.node.nodeid, config=BRIDGED, window=2000)


def post(client: Client, path: str, body: Member, status: int = 200) -> Any:
    """Send a body, and return the answer; the half character goes as an escape."""
    got = client.http.post(path, content=json.dumps(body).encode(), headers=client.headers())
    assert got.status_code == status, got.text
    return got


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"])
def test_an_id_of_a_response_may_be_any_text(bridged: Client, path: str) -> None:
    """Nobody has a response of that id, and the error says so."""
    got = post(bridged, path, {"model": "small", "input": "hi", "previous_response_id": HALF}, 400)
    assert got.json()["error"]["code"] == "previous_response_not_found"
    assert got.json()["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("member", [{"metadata": {"a": HALF}}, {"tools": [{"type": "function", "name": HALF}]}])
def test_a_bridge_repeats_half_a_character_as_the_escape_that_it_was(
    bridged: Client, member: Member, *, stream: bool
) -> None:
    """A response repeats members of its request."""
    got = post(bridged, "/v1/responses", {"model": "small", "input": "hi", "stream": stream, **member})
    assert rb"\ud800" in got.content


def test_a_bridge_carries_half_a_character_of_a_system_prompt(bench: Bench, bridged: Client) -> None:
    """The upstream decides whether it accepts it."""
    system = [{"type": "text", "text": f"cut {HALF}"}]
    post(bridged, "/v1/messages", {"model": "small", "max_tokens": 10, "system": system, "messages": HELLO})
    assert bench.upstream.last.messages[0]["role"] == "system"


PARTS: list[Any] = [{"type": []}, {"type": {"a": 1}}, {"type": 7}, {}]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_part_whose_type_is_no_text_crosses_a_bridge_as_a_note(bench: Bench, bridged: Client, part: Member) -> None:
    """The format has no place for it, so that a text says that it was there."""
    said = [{"role": "user", "content": [part, {"type": "input_text", "text": "hi"}]}]
    post(bridged, "/v1/responses", {"model": "small", "input": said})
    assert {"type": "text", "text": "[attachment]"} in bench.upstream.last.messages[0]["content"]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_part_whose_type_is_no_text_does_not_stop_a_summary(client: Client, part: Member) -> None:
    """A summary notes it as an attachment."""
    long = "The ferry leaves at seven. " * 150
    said = [
        {"role": "user", "content": [part, {"type": "input_text", "text": long}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": long},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "When?"},
    ]
    got = post(client, "/v1/responses", {"model": "small", "input": said, "max_output_tokens": 100})
    assert got.headers["x-tidemark-action"] == "compacted"
    assert "summarizer failed" not in got.headers.get("x-tidemark-warning", "")
