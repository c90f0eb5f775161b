"""The counts of streams: asked for where a model is calibrated, learned from, and hidden from who did not ask."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.dialects.test_second_dialect import TALK, Talker, human
from tests.request.talk import history, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import SSE_HEADERS, Answer, Received, error, says
from tests.support.toy import OVER, ToyDialect, word

CALIBRATED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 100, min_tokens: 100, calibrate: true}}
"""
USAGE = {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45}
ASK: dict[str, Any] = {"model": "small", "messages": [user("hi")], "stream": True, "max_tokens": 50}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """A bench upon a store of the test's own: what is learned stays."""
    with fresh_store() as server, benched(server.url, tmp_path) as made:
        yield made


@pytest.fixture
def calibrated(own: Bench) -> Client:
    """A client of a Tidemark that calibrates."""
    own.upstream.script = as_openai
    return own.client("k", config=CALIBRATED, window=2000)


def event(**members: Any) -> bytes:
    """One event, as OpenAI writes it."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps({**head, **members}, separators=(",", ":")).encode() + b"\n\n"


def events(*, asked: bool) -> list[bytes]:
    """A whole stream; with counts where they are asked for."""
    null: dict[str, Any] = {"usage": None} if asked else {}
    found = [
        event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None}], **null, obfuscation="ab")
        for text in ("It ", 'says "usage"', ":null}")
    ]
    found.append(event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], **null))
    if asked:
        found.append(event(choices=[], usage=USAGE))
    return [*found, b"data: [DONE]\n\n"]


def as_openai(request: Received) -> Answer:
    """An upstream that reports its counts where it is asked."""
    options = request.json.get("stream_options") or {}
    return Answer(events(asked=options.get("include_usage") is True), headers=list(SSE_HEADERS))


def replies(client: Client) -> int:
    """How many replies were learned from."""
    got = client.http.get("/tidemark/models/openai:scripted", headers=client.headers())
    calibration = got.json()["calibration"] or {"replies": 0}
    return int(calibration["replies"])


def test_a_calibrated_stream_is_learned_from_and_its_client_sees_nothing_of_it(own: Bench, calibrated: Client) -> None:
    """The question is one member more; the answer is what the client would have got without it, to the byte."""
    got = calibrated.post(ASK)
    assert got.content == b"".join(events(asked=False))
    assert own.upstream.last.json == {**ASK, "model": "scripted", "stream_options": {"include_usage": True}}
    own.settle()
    assert replies(calibrated) == 1


def test_a_client_that_asks_gets_what_it_asked_for(own: Bench, calibrated: Client) -> None:
    """Its request goes out as it came, and the stream comes back whole."""
    body = {**ASK, "stream_options": {"include_usage": True}}
    assert calibrated.post(body).content == b"".join(events(asked=True))
    assert own.upstream.last.json == {**body, "model": "scripted"}
    own.settle()
    assert replies(calibrated) == 1


def test_a_client_that_declines_the_counts_sees_none(own: Bench, calibrated: Client) -> None:
    """Its other options go on."""
    got = calibrated.post({**ASK, "stream_options": {"include_usage": False, "include_obfuscation": True}})
    assert got.content == b"".join(events(asked=False))
    assert own.upstream.last.json["stream_options"] == {"include_usage": True, "include_obfuscation": True}


def test_only_calibrated_streams_are_asked(own: Bench, client: Client, bench: Bench, calibrated: Client) -> None:
    """No other model's, no reply that is no stream, and none with an image, whose tokens teach nothing."""
    bench.upstream.script = as_openai
    client.post(ASK)
    assert "stream_options" not in bench.upstream.last.json
    calibrated.post({**ASK, "stream": False})
    assert "stream_options" not in own.upstream.last.json
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    calibrated.post({**ASK, "messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}]})
    assert "stream_options" not in own.upstream.last.json


def test_a_compacted_stream_is_asked_too(own: Bench, calibrated: Client) -> None:
    """The messages that go out are fewer, and the question stands beside them."""
    got = calibrated.post({**ASK, "messages": [*history(24), user("Now?")]})
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.content == b"".join(events(asked=False))
    assert own.upstream.last.json["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("status", [400, 422])
def test_an_upstream_that_refuses_the_question_is_not_asked_again(own: Bench, calibrated: Client, status: int) -> None:
    """The client sees its own answer, and the next request goes out once."""

    def refusing(request: Received) -> Answer:
        if "stream_options" in request.json:
            return error(status, "Unrecognized request argument supplied: stream_options")
        return as_openai(request)

    own.upstream.script = refusing
    for sent in (2, 3):
        assert calibrated.post(ASK).content == b"".join(events(asked=False))
        assert len(own.upstream.received) == sent
    assert own.upstream.last.json == {**ASK, "model": "scripted"}


QUOTED = {**ASK, "messages": [user("What is stream_options?")]}


def quoting(request: Received) -> Answer:
    """An upstream that quotes what it refuses."""
    if "What is stream_options?" in str(request.json["messages"]):
        return error(400, "refused: What is stream_options?")
    return as_openai(request)


@pytest.mark.parametrize("known", [False, True])
def test_a_refusal_that_quotes_the_clients_own_words_teaches_nothing(
    own: Bench, calibrated: Client, *, known: bool
) -> None:
    """Whether the upstream has answered before or not."""
    own.upstream.script = quoting
    if known:
        calibrated.post(ASK)
    before = len(own.upstream.received)
    assert calibrated.post(QUOTED).status_code == 400
    assert len(own.upstream.received) == before + (1 if known else 2)
    calibrated.post(ASK)
    assert "stream_options" in own.upstream.last.json


def test_an_upstream_that_refuses_the_question_of_one_credential_is_asked_for_another(
    own: Bench, calibrated: Client
) -> None:
    """Keys of one address may lead to different servers."""
    own.upstream.script = lambda request: (
        error(400, "stream_options?") if "stream_options" in request.json else as_openai(request)
    )
    calibrated.post(ASK)
    Client(calibrated.http, "another").post(ASK)
    assert [("stream_options" in request.json) for request in own.upstream.received] == [True, False, True, False]


def test_a_refusal_for_another_reason_is_the_clients(own: Bench, calibrated: Client) -> None:
    """It is not sent again, and the upstream is asked the next time."""
    own.upstream.script = lambda _: error(429, "slow down")
    got = calibrated.post(ASK)
    assert (got.status_code, got.json()["error"]["message"]) == (429, "slow down")
    assert len(own.upstream.received) == 1
    own.upstream.script = as_openai
    calibrated.post(ASK)
    assert "stream_options" in own.upstream.last.json


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_counts_are_left_out_however_the_stream_is_cut(own: Bench, calibrated: Client, size: int) -> None:
    """Pieces may end anywhere, and several events may come in one."""
    data = b"".join(events(asked=True))
    pieces = [data[place : place + size] for place in range(0, len(data), size)]
    own.upstream.script = lambda _: Answer(pieces, headers=list(SSE_HEADERS))
    assert calibrated.post(ASK).content == b"".join(events(asked=False))


def test_counts_are_left_out_of_a_compressed_stream(own: Bench, calibrated: Client) -> None:
    """It goes out plain."""
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(one) + packer.flush(zlib.Z_SYNC_FLUSH) for one in events(asked=True)]
    headers = [*SSE_HEADERS, (b"content-encoding", b"gzip")]
    own.upstream.script = lambda _: Answer([*pieces, packer.flush()], headers=headers)
    got = calibrated.post(ASK)
    assert "content-encoding" not in got.headers
    assert got.content == b"".join(events(asked=False))
    own.settle()
    assert replies(calibrated) == 1


def test_a_provider_behind_litellm_is_asked_too(own: Bench) -> None:
    """Litellm gives the counts in a chunk of their own, which the client sees only where it asked for it."""
    own.upstream.script = says("Hello there.")
    config = CALIBRATED.replace("openai/scripted", "anthropic/claude-sonnet-4-5").replace(
        '{base}"', '{base}", api_key: k'
    )
    client = own.client("k", config=config, window=2000)
    plain = client.post(ASK)
    assert b"Hello" in plain.content
    assert b'"usage"' not in plain.content
    assert b'"prompt_tokens":11' in client.post({**ASK, "stream_options": {"include_usage": True}}).content
    own.settle()
    got = client.http.get("/tidemark/models/anthropic:claude-sonnet-4-5", headers=client.headers())
    assert got.json()["calibration"]["replies"] == 2


def test_what_a_provider_compacts_teaches_nothing(own: Bench) -> None:
    """Its count is that of other messages than were sent."""
    own.upstream.script = lambda _: Answer([word("Fine."), OVER], headers=list(SSE_HEADERS))
    client = own.client("k", config=CALIBRATED, window=2000, dialects={TALK: ToyDialect()})
    Talker(client).talk([human("Hi.")], live=True, yours=True)
    assert "tally" not in own.upstream.last.json
    own.settle()
    assert replies(client) == 0


def test_a_second_dialect_asks_in_its_own_words(own: Bench) -> None:
    """The pipeline knows no member of either."""
    tally = b'event: tally\ndata: {"in": 40, "out": 5}\n\n'

    def answer(request: Received) -> Answer:
        counts = [tally] if request.json.get("tally") else []
        return Answer([word("Fine."), *counts, OVER], headers=list(SSE_HEADERS))

    own.upstream.script = answer
    client = own.client("k", config=CALIBRATED, window=2000, dialects={TALK: ToyDialect()})
    got = Talker(client).talk([human("Hi.")], live=True)
    assert got.content == word("Fine.") + OVER
    assert own.upstream.last.json["tally"] is True
    own.settle()
    assert replies(client) == 1
