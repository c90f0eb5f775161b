"""Streams: pace, keep-alive, early ends, and clients that leave."""

from __future__ import annotations

import json
import time
from functools import partial
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import Answer, Received, chunk, error, says, streamed
from tests.support.waiting import wait_until

ASK: dict[str, Any] = {"model": "small", "messages": [user("hi")], "stream": True, "max_tokens": 50}


def always(answer: Answer, _: Received) -> Answer:
    """A script that gives one answer."""
    return answer


def events(data: bytes) -> list[Any]:
    """The decoded events of a stream; ``[DONE]`` as it is."""
    payloads = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [payload.decode() if payload == b"[DONE]" else json.loads(payload) for payload in payloads]


def test_a_paced_stream_keeps_its_pace(bench: Bench, client: Client) -> None:
    """Each chunk arrives before the next is sent; nothing is gathered."""
    bench.upstream.script = lambda _: streamed("a b c d e f", pace=0.15)
    arrived = []
    with client.http.stream("POST", "/v1/chat/completions", json=ASK, headers=client.headers()) as got:
        arrived = [time.monotonic() for piece in got.iter_raw() if piece]
    gaps = [after - before for before, after in pairwise(arrived)]
    assert len([gap for gap in gaps if gap > 0.1]) >= 5


def test_the_next_turn_finds_the_streamed_one(bench: Bench, client: Client) -> None:
    """The turn is stored before the last byte is released: the same conversation goes on, without a fork."""
    said: list[Said] = [user("hi")]
    ids = []
    for number in range(6):
        answer = streamed(f"answer {number} of many words")
        bench.upstream.script = partial(always, answer)
        got = client.post({**ASK, "messages": said})
        ids.append(got.headers["x-tidemark-conversation"])
        said += [assistant(f"answer {number} of many words"), user(f"go on {number}")]
    assert len(set(ids)) == 1


def test_a_compacted_stream_says_so_in_its_headers(bench: Bench, client: Client) -> None:
    """Promise 9 on streams, too."""
    bench.upstream.script = says("ok then")
    got = client.post({**ASK, "messages": [*history(18), user("Now?")]})
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("breaks", [True, False], ids=["connection cut", "clean end"])
def test_an_upstream_that_ends_early_is_reported(bench: Bench, client: Client, *, breaks: bool) -> None:
    """No ``finish_reason``: an error event, no made-up ``[DONE]``, and the turn is not stored as complete."""
    answer = streamed("only a part", done=False, finish=False)
    answer.breaks = breaks
    bench.upstream.script = lambda _: answer
    got = client.post(ASK)
    told = events(got.content)
    assert got.content.startswith(b"".join(piece for piece in answer.pieces if isinstance(piece, bytes)))
    assert told[-1]["error"]["code"] == "upstream_incomplete"
    assert "[DONE]" not in told
    later = client.chat([user("hi"), assistant("only a part"), user("go on")])
    assert later.status_code == 200


def test_a_server_that_never_says_why_an_answer_ended_has_complete_answers(bench: Bench, client: Client) -> None:
    """``[DONE]`` is there, and clients stop there: nothing follows it, and stored history goes on."""
    answer = streamed("the whole answer", finish=False)
    bench.upstream.script = lambda _: answer
    stored = {"conversation": "talk", "history": "stored"}
    for _ in range(2):
        got = client.post(ASK, **stored)
        assert got.content == b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))
    assert [said["content"] for said in bench.upstream.last.messages] == ["hi", "the whole answer", "hi"]


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_such_an_answer_ends_in_other_dialects_too(bench: Bench, client: Client, dialect: str) -> None:
    """A bridge says that the model stopped."""
    bench.upstream.dialects = {"chat"}
    bench.upstream.script = lambda _: streamed("the whole answer", finish=False)
    asked = {"input": "hi"} if dialect == "responses" else {"messages": [user("hi")]}
    body = {"model": "small", "stream": True, "max_tokens": 50, **asked}
    got = client.http.post(f"/v1/{dialect}", json=body, headers=client.headers())
    assert events(got.content)[-1]["type"] == {"messages": "message_stop", "responses": "response.completed"}[dialect]


def test_an_upstream_that_tells_its_own_error_in_the_stream_is_not_doubled(bench: Bench, client: Client) -> None:
    """The upstream's error event reaches the client as it is, and ours does not follow."""
    event = b'data: {"error": {"message": "overloaded", "type": "server_error", "code": null}}\n\n'
    bench.upstream.script = lambda _: Answer(
        [chunk(delta={"content": "a"}), event], headers=[(b"content-type", b"text/event-stream")]
    )
    told = [one for one in events(client.post(ASK).content) if "error" in one]
    assert len(told) == 1


def test_a_body_that_breaks_off_is_a_502(bench: Bench, client: Client) -> None:
    """An answer that is no stream is told whole or not at all."""
    bench.upstream.script = lambda _: Answer([b'{"choices": ['], breaks=True)
    got = client.chat([user("hi")])
    assert got.status_code == 502
    assert got.json()["error"]["code"] == "upstream_incomplete"


@pytest.mark.parametrize("when", ["before the headers", "before the first token", "in the middle"])
def test_a_client_that_leaves_closes_the_upstream_call(bench: Bench, client: Client, when: str) -> None:
    """Also before the first token: the upstream sees the connection closed."""
    answer = {
        "before the headers": Answer([b"data: x\n\n"], before_headers=20),
        "before the first token": Answer([20.0], headers=[(b"content-type", b"text/event-stream")]),
        "in the middle": Answer(
            [chunk(delta={"content": "a"}), 20.0], headers=[(b"content-type", b"text/event-stream")]
        ),
    }[when]
    bench.upstream.script = lambda _: answer
    with pytest.raises(httpx.ReadTimeout):
        client.http.post("/v1/chat/completions", json=ASK, headers=client.headers(), timeout=0.5)
    wait_until(lambda: bench.upstream.received and bench.upstream.last.gone)


def test_a_silent_stream_gets_comments_until_its_first_byte(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Keep-alive: comments while the upstream thinks, then its own bytes; an error after a comment is an event."""
    config = (
        'model_list:\n  - model_name: small\n    litellm_params: {{model: openai/scripted, api_base: "{base}"}}\n'
        "server: {{keepalive_seconds: 0.1}}\ncompaction: {{defaults: {{strategy: extractive}}}}\n"
    )
    client = bench.client(request.node.nodeid, config=config)
    slow = streamed("late but whole")
    slow.before_headers = 0.5
    bench.upstream.script = lambda _: slow
    got = client.post(ASK)
    assert got.status_code == 200
    assert got.content.startswith(b": keep-alive\n\n")
    assert got.content.endswith(b"".join(piece for piece in slow.pieces if isinstance(piece, bytes)))
    failing = error(429, "slow down")
    failing.before_headers = 0.5
    bench.upstream.script = lambda _: failing
    got = client.post(ASK)
    assert got.status_code == 200
    assert events(got.content)[-1]["error"]["message"] == "slow down"


STALLING = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}", timeout: 1.5}}
"""


@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_that_hangs_after_its_headers_ends_with_an_error(
    bench: Bench, request: pytest.FixtureRequest, *, begun: bool
) -> None:
    """No client waits until it leaves: an event where something was sent, else 504; a comment is a sign of life."""
    client = bench.client(request.node.nodeid, config=STALLING)
    thinking: list[bytes | float] = [0.5, b": thinking\n\n"]
    pieces = [chunk(delta={"content": "a"}), *thinking * 4] if begun else []
    bench.upstream.script = lambda _: Answer([*pieces, 20.0], headers=[(b"content-type", b"text/event-stream")])
    got = client.post(ASK)
    if begun:
        assert got.status_code == 200
        assert got.content.count(b": thinking") == 4
        told = events(got.content)[-1]["error"]
    else:
        assert got.status_code == 504
        told = got.json()["error"]
    assert told["code"] == "upstream_timeout"
    assert "stream_timeout" in told["message"]
    wait_until(lambda: bench.upstream.last.gone)


def test_an_answer_that_hangs_after_its_headers_is_a_504(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Also where it is no stream, and where the upstream refuses."""
    client = bench.client(request.node.nodeid, config=STALLING)
    for status in (200, 400):
        bench.upstream.script = lambda _, status=status: Answer([b'{"choices": [', 20.0], status)  # type: ignore[misc]
        got = client.chat([user("hi")])
        assert (got.status_code, got.json()["error"]["code"]) == (504, "upstream_timeout")


def test_a_request_that_is_not_streamed_gets_no_comments(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A JSON answer has no place for them; its status is the upstream's however long it takes."""
    config = (
        'model_list:\n  - model_name: small\n    litellm_params: {{model: openai/scripted, api_base: "{base}"}}\n'
        "server: {{keepalive_seconds: 0.1}}\n"
    )
    client = bench.client(request.node.nodeid, config=config)
    failing = error(429, "slow down")
    failing.before_headers = 0.4
    bench.upstream.script = lambda _: failing
    assert client.chat([user("hi")]).status_code == 429


def test_a_tool_call_that_was_streamed_is_known_on_the_next_turn(bench: Bench, client: Client) -> None:
    """Pieces of parallel calls are folded by their index into what the client echoes."""
    pieces: list[bytes | float] = [
        chunk(delta={"role": "assistant", "content": None}),
        chunk(
            delta={
                "tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]
            }
        ),
        chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": '{"x":'}}]}),
        chunk(
            delta={
                "tool_calls": [
                    {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}
                ]
            }
        ),
        chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}),
        chunk(delta={}, finish_reason="tool_calls"),
        b"data: [DO",
        b"NE]\n\n",
    ]
    bench.upstream.script = lambda _: Answer(pieces, headers=[(b"content-type", b"text/event-stream")])
    first = client.post(ASK)
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    results = [{"role": "tool", "tool_call_id": one, "content": "r"} for one in "ab"]
    bench.upstream.script = says("done")
    said = [user("hi"), {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    second = client.chat(said)
    assert second.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
