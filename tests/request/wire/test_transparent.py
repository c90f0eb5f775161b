"""Promise 1: under budget, bytes go through as they are, both ways."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.support.scripted import Answer, error, says, streamed, whole

ODD = (
    b'{ "model" : "small",\n "messages":[ {"role":"user","content":"h\\u00e9llo  \\/ \xf0\x9f\x99\x82",'
    b'"x_unknown":[1.50,1e3]} ],"temperature":0.70, "big": 123456789012345678901234567890 }'
)


@pytest.fixture
def same_name(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark whose model has the same name upstream."""
    config = (
        'model_list:\n  - model_name: scripted\n    litellm_params: {{model: openai/scripted, api_base: "{base}"}}\n'
        "compaction: {{defaults: {{strategy: extractive}}}}\n"
    )
    return bench.client(request.node.nodeid, config=config)


def test_the_upstream_gets_the_clients_bytes(bench: Bench, same_name: Client) -> None:
    """Not a byte is changed where the model's name is the same: white space, escapes and numbers stay."""
    body = ODD.replace(b'"small"', b'"scripted"')
    assert same_name.post(body).status_code == 200
    assert bench.upstream.last.body == body
    assert bench.upstream.last.path == "/v1/chat/completions"


def test_only_the_models_name_is_changed(bench: Bench, client: Client) -> None:
    """With an alias, every other member keeps its own bytes and its place."""
    assert client.post(ODD).status_code == 200
    sent = bench.upstream.last.body
    assert sent.startswith(b'{"model":"scripted","messages":[ {"role":"user"')
    assert b'"temperature":0.70' in sent
    assert b"123456789012345678901234567890" in sent
    assert b"h\\u00e9llo  \\/ \xf0\x9f\x99\x82" in sent


@pytest.mark.parametrize("stream", [False, True])
def test_the_client_gets_the_upstreams_bytes(bench: Bench, client: Client, *, stream: bool) -> None:
    """Body, status and headers are the upstream's; ours stand beside them."""
    answer = streamed("one two three") if stream else whole("one two three")
    answer.headers += [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"server", b"theirs"), (b"date", b"then")]
    bench.upstream.script = lambda _: answer
    got = client.post({"model": "small", "messages": [user("hi")], "stream": stream})
    assert got.content == b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))
    assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert got.headers.get_list("server") == ["theirs"]
    assert got.headers.get_list("date") == ["then"]
    assert got.headers["x-request-id"] == "req_1"
    assert got.headers["x-tidemark-action"] == "none"


def test_the_clients_headers_go_upstream_and_ours_do_not(bench: Bench, client: Client) -> None:
    """Credential and unknown headers travel; what is meant for Tidemark or for this hop stays here."""
    asked = client.headers(summarize="auto") | {
        "openai-organization": "org",
        "x-own": "1",
        "connection": "x-hop",
        "x-hop": "1",
    }
    body = json.dumps({"model": "small", "messages": [user("hi")]})
    client.http.post("/v1/chat/completions", content=body, headers=asked)
    got = bench.upstream.last.headers
    assert got["authorization"] == f"Bearer {client.key}"
    assert (got["openai-organization"], got["x-own"]) == ("org", "1")
    assert not [name for name in got if name.startswith("x-tidemark") or name == "x-hop"]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_an_upstreams_error_is_the_clients(bench: Bench, client: Client, status: int) -> None:
    """Status, body and headers of an error are unchanged, repeated headers too, and nothing is stored."""
    told = error(status, "no", code="some_code", headers=[(b"retry-after", b"7"), (b"x-ratelimit-limit-tokens", b"9")])
    bench.upstream.script = lambda _: told
    got = client.post({"model": "small", "messages": [user("hi")], "stream": True})
    assert got.status_code == status
    assert got.content == told.pieces[0]
    assert got.headers["retry-after"] == "7"
    assert got.headers["x-ratelimit-limit-tokens"] == "9"
    assert got.headers.get_list("content-type") == ["application/json"]


def test_a_body_that_is_compressed_is_carried_as_it_is(bench: Bench, client: Client) -> None:
    """An upstream that compresses although it was asked not to: the client can undo it, we do not."""
    import gzip

    plain = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"z"},"finish_reason":"stop"}]}'
    headers = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    bench.upstream.script = lambda _: Answer([gzip.compress(plain)], headers=headers)
    got = client.chat([user("hi")])
    assert got.content == plain
    assert bench.upstream.last.headers["accept-encoding"] == "identity"


def test_every_response_says_what_was_done(client: Client) -> None:
    """Promise 9: the facts stand in the headers, and ``usage`` is the upstream's own."""
    got = client.chat([user("hi")])
    assert got.json()["usage"]["prompt_tokens"] == 11
    assert got.headers["x-tidemark-tokens-before"] == got.headers["x-tidemark-tokens-after"] == "8"
    assert got.headers["x-tidemark-limit"] == str(2000 - 100 - 100)
    assert got.headers["x-tidemark-summarized-messages"] == "0"
    assert got.headers["x-tidemark-store"] == "ok"
    assert len(got.headers["x-tidemark-conversation"]) == 48


def test_an_unknown_model_is_told_with_what_is_configured(client: Client) -> None:
    """404 ``model_not_found``; it names what is there."""
    got = client.chat([user("hi")], model="no-such-model-anywhere")
    assert got.status_code == 404
    assert got.json()["error"]["code"] == "model_not_found"
    assert "small" in got.json()["error"]["message"]


def test_a_path_that_is_not_served_is_told_in_the_envelope(client: Client) -> None:
    """No HTML and no bare text: OpenAI clients read JSON errors."""
    got: httpx.Response = client.http.get("/nothing")
    assert got.status_code == 404
    assert got.json()["error"]["code"] == "unknown_url"


def test_credentials_in_a_body_change_nothing(bench: Bench, client: Client) -> None:
    """CVE-2024-6587: ``api_base`` and ``api_key`` in a body neither redirect nor replace anything."""
    bench.upstream.script = says("ok")
    body = {"model": "small", "messages": [user("hi")], "api_base": "http://127.0.0.1:9", "api_key": "stolen"}
    assert client.post(body).status_code == 200
    assert bench.upstream.last.headers["authorization"] == f"Bearer {client.key}"
