"""Bad input: a clear error in OpenAI's envelope, with ``param`` and a stable ``code``; nothing is sent or stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import user

HELLO = [user("hi")]
CASES: list[tuple[str, bytes | dict[str, Any], str | None, str]] = [
    ("empty", b"", None, "invalid_json"),
    ("no JSON", b"{'a': 1}", None, "invalid_json"),
    ("cut short", b'{"model": "small", "messages": [', None, "invalid_json"),
    ("an array", b"[]", None, "invalid_type"),
    ("a string", b'"hi"', None, "invalid_type"),
    ("null", b"null", None, "invalid_type"),
    (
        "not UTF-8",
        b'{"model": "small", "messages": [{"role": "user", "content": "\xff"}]}',
        "messages.[0]",
        "invalid_json",
    ),
    ("nested objects", b'{"a":' * 20_000 + b"1" + b"}" * 20_000, None, "invalid_json"),
    (
        "nested content",
        b'{"model":"small","messages":[{"role":"user","content":' + b"[" * 20_000 + b"]" * 20_000 + b"}]}",
        None,
        "invalid_json",
    ),
    ("no model", {"messages": HELLO}, "model", "missing_required_parameter"),
    ("model of another type", {"model": 7, "messages": HELLO}, "model", "invalid_type"),
    ("no messages", {"model": "small"}, "messages", "missing_required_parameter"),
    ("messages no array", {"model": "small", "messages": "hi"}, "messages", "invalid_type"),
    ("no message", {"model": "small", "messages": []}, "messages", "empty_array"),
    ("message no object", {"model": "small", "messages": ["hi"]}, "messages.[0]", "invalid_type"),
    ("unknown role", {"model": "small", "messages": [{"role": "wizard"}]}, "messages.[0].role", "invalid_value"),
    ("role no string", {"model": "small", "messages": [{"role": ["user"]}]}, "messages.[0].role", "invalid_value"),
    ("content a number", {"model": "small", "messages": [*HELLO, user(7)]}, "messages.[1].content", "invalid_type"),  # type: ignore[arg-type]
    ("part no object", {"model": "small", "messages": [user(["x"])]}, "messages.[0].content.[0]", "invalid_type"),  # type: ignore[arg-type]
    ("stream no flag", {"model": "small", "messages": HELLO, "stream": "yes"}, "stream", "invalid_type"),
    ("negative reply", {"model": "small", "messages": HELLO, "max_tokens": -7}, "max_tokens", "invalid_value"),
    ("absurd reply", {"model": "small", "messages": HELLO, "max_tokens": 10**12}, "max_tokens", "invalid_value"),
    (
        "reply no number",
        {"model": "small", "messages": HELLO, "max_completion_tokens": "9"},
        "max_completion_tokens",
        "invalid_type",
    ),
]


@pytest.mark.parametrize(("body", "param", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_body_that_cannot_be_used_is_a_400(
    bench: Bench, client: Client, body: bytes | dict[str, Any], param: str | None, code: str
) -> None:
    """The envelope names parameter and code; nothing reaches the upstream."""
    got = client.post(body)
    assert got.status_code == 400, got.text
    told = got.json()["error"]
    assert (told["type"], told["param"], told["code"]) == ("invalid_request_error", param, code)
    assert told["message"]
    assert not bench.upstream.received


def test_a_body_over_the_cap_is_a_413(bench: Bench, request: pytest.FixtureRequest) -> None:
    """By its declared length before it is read, and by its real one where none is declared."""
    client = bench.client(
        request.node.nodeid,
        config='model_list:\n  - model_name: small\n    litellm_params: {{model: openai/s, api_base: "{base}"}}\n'
        "server: {{max_body_mb: 1}}\n",
    )
    body = json.dumps({"model": "small", "messages": [user("x" * 1_100_000)]}).encode()
    declared = client.post(body)
    chunked = client.http.post("/v1/chat/completions", content=iter([body]), headers=client.headers())
    for got in (declared, chunked):
        assert got.status_code == 413
        assert got.json()["error"]["code"] == "request_too_large"
        assert "server.max_body_mb" in got.json()["error"]["message"]
    assert not bench.upstream.received


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("summarize", "please"),
        ("retention-tokens", "-1"),
        ("retention-tokens", "many"),
        ("conversation", "x" * 300),
        ("history", "stored"),
        ("overflow", "yes"),
    ],
)
def test_a_header_that_cannot_be_used_is_a_400(bench: Bench, client: Client, header: str, value: str) -> None:
    """The error names the header and what it takes."""
    got = client.chat(HELLO, **{header: value})
    assert got.status_code == 400
    told = got.json()["error"]
    assert told["code"] == "invalid_header"
    assert told["param"].lower() == f"x-tidemark-{header}"
    assert not bench.upstream.received


def test_a_tool_message_without_its_call_is_forwarded_as_it_came(bench: Bench, client: Client) -> None:
    """The upstream judges; Tidemark neither mends nor worsens it."""
    said = [user("hi"), {"role": "tool", "tool_call_id": "nobody", "content": "lost"}, user("well?")]
    assert client.chat(said).status_code == 200
    assert bench.upstream.last.messages == said


def test_an_upstream_that_is_not_there_is_a_502(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The message names the model, the URL and the mend."""
    config = 'model_list:\n  - model_name: small\n    litellm_params: {{model: openai/s, api_base: "http://127.0.0.1:9/v1"}}\n'
    got = bench.client(request.node.nodeid, config=config).chat(HELLO)
    assert got.status_code == 502
    told = got.json()["error"]
    assert told["code"] == "upstream_unreachable"
    assert "nothing listens at http://127.0.0.1:9/v1; start the server there" in told["message"]


def test_the_other_method_is_a_405(client: Client) -> None:
    """A DELETE of the chat endpoint is told in the envelope; a GET lists what a provider stored, and is carried."""
    got = client.http.delete("/v1/chat/completions")
    assert got.status_code == 405
    assert got.json()["error"]["code"] == "unknown_url"


def test_a_models_name_has_a_bound_wherever_it_is_given(bench: Bench, client: Client) -> None:
    """Names are keys of caches and are matched against globs; no provider's is half as long."""
    name = "m" * 257
    asked: dict[str, Any] = {"model": name, "messages": HELLO}
    given = [
        ("/v1/chat/completions", asked),
        ("/tidemark/count", asked),
        ("/tidemark/compact", {"request": asked}),
        ("/tidemark/conversations/import?model=" + name, asked),
        (f"/tidemark/conversations/{'a' * 48}/summarize", {"model": name}),
    ]
    for path, body in given:
        got = client.http.post(path, content=json.dumps(body), headers=client.headers())
        error = got.json()["error"]
        assert (got.status_code, error["param"], error["code"]) == (400, "model", "string_above_max_length"), path
        assert "256" in error["message"]
        assert len(error["message"]) < 200
    assert client.http.get(f"/tidemark/models/{name}", headers=client.headers()).status_code == 404
    asked["model"] = name[1:]
    assert client.http.post("/tidemark/count", json=asked, headers=client.headers()).status_code == 200
    assert not bench.upstream.received


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tidemark/models/llamafile/x"])
def test_a_name_that_nobody_configured_leads_to_no_service_of_this_machine(
    bench: Bench, client: Client, path: str
) -> None:
    """OpenAI's 404, with what is configured; nothing is asked, for the window neither."""
    body = {"model": "llamafile/x", "messages": [user("hi")]}
    got = (
        client.http.get(path, headers=client.headers())
        if "models" in path
        else client.http.post(path, json=body, headers=client.headers())
    )
    told = got.json()["error"]
    assert (got.status_code, told["code"], told["param"]) == (404, "model_not_found", "model")
    assert "Configured: small." in told["message"]
    assert not bench.upstream.received
