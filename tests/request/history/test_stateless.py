"""Counting, compacting and the model list over HTTP: what is told, what is kept, and that nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import Said, history, long, system, user
from tests.support.scripted import says

ASK = {"model": "gpt-4o", "messages": [system("Be brief."), user("What is a tide?")]}
TELLING = " ".join(
    f"In the year {1500 + number} the harbour of town {number} was rebuilt with {number * 7} stones by mason {number}."
    for number in range(300)
)


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests: nothing is stored that they could share."""
    with benched(store_url, tmp_path_factory.mktemp("stateless")) as made:
        yield made


@pytest.fixture(scope="module")
def client(bench: Bench) -> Client:
    """A client of a Tidemark whose model ``small`` has a window of 2,000 tokens."""
    return bench.client("stateless")


def count(client: Client, body: Any) -> httpx.Response:
    """Send to ``/tidemark/count``: bytes as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.http.post("/tidemark/count", content=content, headers=client.headers())


def compact(client: Client, body: Any) -> httpx.Response:
    """Send to ``/tidemark/compact``: bytes as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.http.post("/tidemark/compact", content=content, headers=client.headers())


def tool_round(number: int, results: int = 2) -> list[Said]:
    """A message that calls several tools, and their results in another order."""
    ids = [f"call_{number}_{one}" for one in range(results)]
    calls = [
        {"id": one, "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}} for one in ids
    ]
    answers: list[Said] = [{"role": "tool", "tool_call_id": one, "content": long(number, 80)} for one in reversed(ids)]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *answers]


def test_a_count_says_what_it_counted(client: Client) -> None:
    """The total is the sum of its parts, and the time it took stands beside it."""
    got = count(client, ASK)
    assert got.status_code == 200
    assert got.headers["content-type"] == "application/json"
    told = got.json()
    assert told["input_tokens"] == sum(told["message_tokens"]) + told["other_tokens"] > 0
    assert (told["messages"], told["model"], told["encoding"]) == (2, "gpt-4o", "o200k_base")
    assert 0 <= told["seconds"] < 60


def test_a_count_needs_no_model(client: Client) -> None:
    """Nothing is forwarded, so the model may be left out."""
    got = count(client, {"messages": ASK["messages"]})
    assert got.status_code == 200
    assert got.json()["model"] is None


def test_tools_and_response_format_are_counted(client: Client) -> None:
    """What the provider bills beside the messages counts."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    plain, tools, formatted = (
        count(client, {**ASK, **more}).json() for more in ({}, {"tools": [tool]}, {"response_format": schema})
    )
    assert tools["input_tokens"] > plain["input_tokens"] < formatted["input_tokens"]
    assert plain["message_tokens"] == tools["message_tokens"]


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"max_tokens": 5}, {"unheard_of": [1]}])
def test_a_request_that_fits_comes_back_byte_for_byte(client: Client, more: dict[str, Any]) -> None:
    """White space, escapes and unknown fields stay as they were; the summary is empty."""
    raw = json.dumps({**ASK, **more, "odd": 1.50}, indent=3).replace("tide", "t\\u0069de").encode()
    got = compact(client, b'{"max_tokens": 500, "request": ' + raw + b"}")
    assert got.status_code == 200, got.text
    assert b'{"request":' + raw + b"," in got.content
    told = got.json()
    assert told["tokens_before"] == told["tokens_after"] == count(client, raw).json()["input_tokens"]
    assert (told["summary"], told["summarized_messages"], told["strategy"]) == ("", 0, "extractive")


@pytest.mark.parametrize("size", [64, 100, 150, 250, 400, 700, 1000, 1500, 2500, 4000])
def test_the_result_fits_its_budget_and_its_count_is_true(client: Client, size: int) -> None:
    """``tokens_after`` is what ``/tidemark/count`` says of the result, and never over ``max_tokens``."""
    request = {"model": "gpt-4o", "messages": [system("Be brief."), *history(60, 80), user("And now?")], "seed": 7}
    got = compact(client, {"request": request, "max_tokens": size, "strategy": "extractive"})
    assert got.status_code == 200, got.text
    told = got.json()
    result = told["request"]
    again = count(client, result).json()
    assert told["tokens_after"] == again["input_tokens"] <= size
    assert told["tokens_before"] == count(client, request).json()["input_tokens"] > 2 * size
    assert list(result) == list(request)
    assert result["seed"] == 7
    messages = request["messages"]
    assert isinstance(messages, list)
    assert result["messages"][0] == messages[0]
    assert result["messages"][1]["role"] == "system"
    assert told["summary"] in result["messages"][1]["content"]
    assert result["messages"][2:] == messages[1 + told["summarized_messages"] :]
    assert result["messages"][-1] == messages[-1]


@pytest.mark.parametrize("size", [250, 500, 1000, 2000, 4000])
@pytest.mark.parametrize("shape", ["turns", "one long telling", "tool rounds", "small talk"])
def test_a_budget_is_filled(client: Client, shape: str, size: int) -> None:
    """``max_tokens`` is the whole budget and no mark to stay far under: 60 % of it at least is used."""
    said = {
        "turns": [user(text) for text in TELLING.split(". ")],
        "one long telling": [user(TELLING)],
        "small talk": [user("ok"), user("yes")] * 1500,
        "tool rounds": [part for number in range(60) for part in tool_round(number)],
    }[shape]
    request = {"model": "gpt-4o", "messages": [user("Begin."), *said, user("And now?")]}
    told = compact(client, {"request": request, "max_tokens": size}).json()
    assert told["tokens_before"] > 1.5 * size
    # Nearly equal rounds are told once, and a round of 200 tokens fits whole or not at all.
    least = 0.5 if (shape, size) == ("tool rounds", 250) else 0.6
    assert least * size <= told["tokens_after"] <= size


@pytest.mark.parametrize("size", range(200, 2000, 150))
def test_calls_and_results_never_part(client: Client, size: int) -> None:
    """Promise 3, whatever the budget: no orphan, no duplicate, order kept."""
    said = [user("Look."), *(part for number in range(20) for part in tool_round(number, 1 + number % 3)), user("So?")]
    got = compact(client, {"request": {"model": "gpt-4o", "messages": said}, "max_tokens": size})
    assert got.status_code == 200, got.text
    kept = got.json()["request"]["messages"]
    called = [call["id"] for message in kept for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in kept if message["role"] == "tool"]
    assert sorted(called) == sorted(answered)
    assert len(set(called)) == len(called)
    assert kept[-1] == said[-1]


def test_system_messages_and_tools_are_untouched(client: Client) -> None:
    """Promise 2: system and developer messages stay, those inside the replaced prefix too."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    inner = system("From now on in French.")
    said = [system("A."), {"role": "developer", "content": "B."}, *history(20), inner, *history(20), user("?")]
    told = compact(client, {"request": {"model": "gpt-4o", "messages": said, "tools": tools}, "max_tokens": 800}).json()
    kept = told["request"]["messages"]
    assert kept[:2] == said[:2]
    assert inner in kept[3:]
    assert told["request"]["tools"] == tools


def test_without_max_tokens_the_models_own_marks_hold(client: Client) -> None:
    """The model ``small`` has a window of 2,000: the result is below its low water."""
    request = {"model": "small", "messages": [*history(60), user("?")]}
    told = compact(client, {"request": request}).json()
    assert told["tokens_before"] > 2000
    assert told["tokens_after"] <= 0.45 * 1700 + 1


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"request": ASK, "strategy": "magic"}, 400, "invalid_value", "strategy"),
        ({"request": ASK, "max_tokens": -5}, 400, "invalid_value", "max_tokens"),
        ({"request": ASK, "max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({"request": ASK, "max_tokens": "many"}, 400, "invalid_type", "max_tokens"),
        ({"request": ASK, "max_tokens": 1.5}, 400, "invalid_type", "max_tokens"),
        ({"request": ASK, "strategy": 7}, 400, "invalid_type", "strategy"),
        ({"max_tokens": 100}, 400, "missing_required_parameter", "request"),
        ({"request": ASK, "max_token": 100}, 400, "unknown_parameter", "max_token"),
        ({"request": [], "max_tokens": 100}, 400, "invalid_type", None),
        ({"request": {"model": "m"}}, 400, "missing_required_parameter", "messages"),
        ({"request": {"model": "m", "messages": []}}, 400, "empty_array", "messages"),
        ([], 400, "invalid_type", None),
        (b"{", 400, "invalid_json", None),
        (b"", 400, "invalid_json", None),
        (b'{"request": ' + b"[" * 20_000, 400, "invalid_json", None),
    ],
)  # fmt: skip
def test_a_wrong_wish_is_told_in_the_envelope(
    client: Client, body: Any, status: int, code: str, param: str | None
) -> None:
    """400 with ``param`` and a stable ``code``, as on the OpenAI side."""
    got = compact(client, body)
    assert got.status_code == status, got.text
    told = got.json()["error"]
    assert (told["type"], told["code"], told["param"]) == ("invalid_request_error", code, param)


def test_a_budget_that_nothing_fits_is_refused_with_numbers(client: Client) -> None:
    """Never a silent overflow: the newest message alone is over the budget."""
    got = compact(client, {"request": {"model": "m", "messages": [user("hi"), user(TELLING)]}, "max_tokens": 300})
    assert got.status_code == 400
    told = got.json()["error"]
    assert told["code"] == "context_length_exceeded"
    assert "300" in told["message"]


@pytest.mark.parametrize("path", ["/tidemark/count", "/tidemark/compact"])
def test_only_post_is_served(client: Client, path: str) -> None:
    """Another method is a 405 in the envelope, and says which is allowed (RFC 9110, section 15.5.6)."""
    got = client.http.get(path)
    assert got.status_code == 405
    assert got.json()["error"]["code"] == "unknown_url"
    assert got.headers["allow"] == "POST, OPTIONS"


def test_nothing_is_stored_and_nothing_is_sent(bench: Bench, client: Client, store_url: str) -> None:
    """Stateless: no key is written, and the upstream hears nothing of it."""
    heard = len(bench.upstream.received)
    with redis.Redis.from_url(store_url) as store:
        before = store.dbsize()
        assert count(client, ASK).status_code == 200
        assert compact(client, {"request": ASK | {"messages": [*history(20), user("?")]}, "max_tokens": 300}).is_success
        assert store.dbsize() == before
    assert len(bench.upstream.received) == heard


@pytest.mark.parametrize("strategy", ["llm", "hybrid"])
def test_a_model_writes_the_summary_where_it_is_asked_to(bench: Bench, client: Client, strategy: str) -> None:
    """``llm`` and ``hybrid`` ask the request's own model, with the caller's key; the result still fits."""
    bench.upstream.script = says("They spoke of points, one after the other, and agreed on the tide tables.")
    request = {"model": "small", "messages": [*history(20), user("And now?")]}
    got = compact(client, {"request": request, "max_tokens": 600, "strategy": strategy})
    assert got.status_code == 200, got.text
    told = got.json()
    assert "agreed on the tide tables" in told["summary"]
    assert (told["strategy"], told["tokens_after"] <= 600) == (strategy, True)
    assert bench.upstream.last.headers["authorization"] == f"Bearer {client.key}"
    assert bench.upstream.last.json["model"] == "scripted"


def test_models_are_listed_with_their_windows(client: Client) -> None:
    """``GET /v1/models``: OpenAI's shape, and ``context_length`` beside it."""
    listed = client.http.get("/v1/models", headers=client.headers())
    assert listed.status_code == 200
    told = listed.json()
    assert told["object"] == "list"
    assert [(one["id"], one["object"], one["context_length"]) for one in told["data"]] == [("small", "model", 2000)]
    assert client.http.get("/v1/models/small", headers=client.headers()).json() == told["data"][0]


@pytest.mark.parametrize("name", ["gpt-none", "org/gpt-none", "a%2Fb", "%22quoted%22"])
def test_a_model_that_is_not_there_is_a_404_in_the_envelope(client: Client, name: str) -> None:
    """``GET /v1/models/{id}``, a slash in the id included."""
    got = client.http.get(f"/v1/models/{name}", headers=client.headers())
    assert got.status_code == 404
    told = got.json()["error"]
    assert (told["type"], told["param"], told["code"]) == ("invalid_request_error", "model", "model_not_found")
