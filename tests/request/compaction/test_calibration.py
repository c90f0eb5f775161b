"""Calibration over HTTP: the provider's own counts are learned, a tenant's alone, and a window is not shrunk twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import history, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import Answer, Received, error, whole


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """A bench upon a store of the test's own: what is learned stays."""
    with fresh_store() as server, benched(server.url, tmp_path) as made:
        yield made


CALIBRATED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 100, min_tokens: 100, calibrate: true}}
"""


def counting(bench: Bench, client: Client, density: float) -> Callable[[Received], Answer]:
    """An upstream whose tokenizer is denser: its usage is by our own count, times ``density``."""

    def answer(request: Received) -> Answer:
        counted = client.http.post("/tidemark/count", content=request.body).json()["input_tokens"]
        said = whole("Hello there.")
        (raw,) = said.pieces
        assert isinstance(raw, bytes)
        body = json.loads(raw)
        body["usage"]["prompt_tokens"] = round(density * counted)
        return Answer([json.dumps(body).encode()])

    return answer


def calibration(client: Client) -> Any:
    """The model's calibration, as its credential sees it."""
    got = client.http.get("/tidemark/models/openai:scripted", headers=client.headers())
    return got.json()["calibration"]


def told_and_true(bench: Bench, client: Client, messages: list[dict[str, Any]], **more: Any) -> tuple[int, int, int]:
    """Tokens forwarded by the header and by the upstream's own count, and the limit."""
    got = client.post({"model": "small", "messages": messages, "max_tokens": 100, **more})
    assert got.status_code == 200, got.text
    lines = got.headers
    return int(lines["x-tidemark-tokens-after"]), got.json()["usage"]["prompt_tokens"], int(lines["x-tidemark-limit"])


def test_five_replies_calibrate_a_denser_tokenizer(own: Bench) -> None:
    """1.46 times denser: after five replies the count is right to 1 %, and what is forwarded fits the true limit."""
    client, counter = own.client("k", config=CALIBRATED, window=2000), own.client("counter")
    own.upstream.script = counting(own, counter, 1.46)
    talk = [user("hello")]
    told, true, _ = told_and_true(own, client, talk)
    assert true > 1.3 * told
    for number in range(4):
        told_and_true(own, client, [*talk, *history(number + 1), user("and?")])
    for turns in (2, 5, 9, 14, 30):
        told, true, most = told_and_true(own, client, [*talk, *history(turns), user("and?")])
        assert abs(told - true) <= 0.01 * true
        assert true <= most == 1800
    shown = calibration(client)
    assert shown["replies"] == 10
    assert abs(shown["factor"] - 1.46) <= 0.0146
    other_worker = own.client("k", config=CALIBRATED, window=2000)
    told, true, _ = told_and_true(own, other_worker, [*talk, *history(3), user("more?")])
    assert abs(told - true) <= 0.01 * true


def test_a_calibration_is_its_tenants_own(own: Bench) -> None:
    """Promise 8: another credential counts as if nobody had ever learned anything, and sees nothing of it."""
    client, counter = own.client("k", config=CALIBRATED, window=2000), own.client("counter")
    own.upstream.script = counting(own, counter, 2.0)
    for _ in range(3):
        told_and_true(own, client, [user("hello")])
    stranger = Client(client.http, "another key")
    told, true, _ = told_and_true(own, stranger, [user("hello")])
    assert 1.9 * told < true


def test_a_sparser_tokenizer_never_costs_more_than_the_margin(own: Bench) -> None:
    """A factor below 1 is learned and shown, but what is told is never less than the count over 1.05."""
    client, counter = own.client("k", config=CALIBRATED, window=2000), own.client("counter")
    own.upstream.script = counting(own, counter, 0.2)
    for _ in range(5):
        told_and_true(own, client, [user("hello")])
    local = counter.http.post("/tidemark/count", content=json.dumps({"messages": [user("hello")]})).json()
    told, _, _ = told_and_true(own, client, [user("hello")])
    assert told >= local["input_tokens"] / 1.05 - 1
    shown = calibration(client)
    assert (shown["factor"], shown["applied"]) == (0.5, 0.9524)


def test_tool_sets_are_learned_apart_and_a_new_one_starts_from_the_model(own: Bench) -> None:
    """The way a provider renders tools is its own."""
    client, counter = own.client("k", config=CALIBRATED, window=2000), own.client("counter")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    own.upstream.script = counting(own, counter, 1.2)
    talk = [*history(4), user("hello")]
    for _ in range(3):
        told_and_true(own, client, talk)
    told, true, _ = told_and_true(own, client, talk, tools=tools)
    assert abs(told - true) <= 0.01 * true
    own.upstream.script = counting(own, counter, 2.0)
    for _ in range(5):
        told_and_true(own, client, talk, tools=tools)
    told, true, _ = told_and_true(own, client, talk, tools=tools)
    assert abs(told - true) <= 0.02 * true
    own.upstream.script = counting(own, counter, 1.2)
    told, true, _ = told_and_true(own, client, talk)
    assert abs(told - true) <= 0.01 * true


def test_without_the_key_nothing_is_learned(own: Bench) -> None:
    """FR-1.1.5: the default; the upstream's count is for monitoring only."""
    client, counter = own.client("k"), own.client("counter")
    own.upstream.script = counting(own, counter, 3.0)
    counts = {told_and_true(own, client, [user("hello")])[0] for _ in range(3)}
    assert len(counts) == 1
    assert calibration(client) is None


UNKNOWN = """
model_list: [{{model_name: small, litellm_params: {{model: openai/scripted, api_base: "{base}"}}}}]
compaction:
  defaults: {{strategy: extractive, retention_tokens: 100, min_tokens: 100, calibrate: true}}
"""
"""A model of which no source tells a window: 128,000 tokens are assumed."""


def refusing(
    answer: Callable[[Received], Answer], window: int, *, numbers: bool = True
) -> Callable[[Received], Answer]:
    """The same upstream with a window: what does not fit beside the reply is refused, by its own count."""

    def refuse(request: Received) -> Answer:
        said = answer(request)
        body = json.loads(b"".join(piece for piece in said.pieces if isinstance(piece, bytes)))
        size = body["usage"]["prompt_tokens"]
        if size + request.json["max_tokens"] <= window:
            return said
        requested = f" However, your messages resulted in {size} tokens." if numbers else ""
        told = f"This model's maximum context length is {window} tokens.{requested}"
        return error(400, told, code="context_length_exceeded")

    return refuse


@pytest.mark.parametrize("numbers", [True, False])
def test_a_window_that_an_overflow_taught_is_not_shrunk_again_by_the_factor(own: Bench, *, numbers: bool) -> None:
    """1.46 times denser, window unknown, an overflow first: after five replies the limit is the true window's."""
    client, counter = own.client("k", config=UNKNOWN), own.client("counter")
    own.upstream.script = refusing(counting(own, counter, 1.46), 2000, numbers=numbers)
    got = client.chat([*history(30), user("and?")])
    assert got.status_code == 200, got.text
    assert "sent again" in got.headers["x-tidemark-warning"]
    for number in range(4):
        told_and_true(own, client, [*history(number + 1), user("and?")])
    refused = len(own.upstream.received)
    for number, turns in enumerate((2, 14, 30)):
        told, true, limit = told_and_true(own, client, [*history(turns), user("and?")])
        assert abs(limit - 1800) <= 0.02 * 1800
        assert abs(told - true) <= 0.01 * true <= 0.01 * limit
        assert len(own.upstream.received) == refused + number + 1, "nothing is refused any more"


def test_an_upstream_without_usage_is_met_by_what_its_overflow_taught(own: Bench) -> None:
    """No reply calibrates: the density of the overflow holds, or every long request would be refused first."""
    client, counter = own.client("k", config=UNKNOWN), own.client("counter")
    tight = refusing(counting(own, counter, 1.2), 2000)

    def silent(request: Received) -> Answer:
        said = tight(request)
        body = json.loads(b"".join(piece for piece in said.pieces if isinstance(piece, bytes)))
        return Answer([json.dumps({**body, "usage": None}).encode()], said.status) if said.status == 200 else said

    own.upstream.script = silent
    assert client.chat([*history(30), user("and?")]).status_code == 200
    assert len(own.upstream.received) == 2
    for turns in (9, 14, 40):
        got = client.chat([*history(turns), user("and?")])
        assert (got.status_code, got.headers["x-tidemark-limit"]) == (200, "1800")
    assert len(own.upstream.received) == 5
    assert calibration(client) is None
