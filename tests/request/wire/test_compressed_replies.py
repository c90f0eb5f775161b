"""Replies that an upstream compresses although it was asked not to: carried as they came, and read for the history."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import brotli
import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import assistant, history, user
from tests.support.scripted import Answer, Headers, Received, error, says, streamed, whole

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ASK: dict[str, Any] = {"model": "small", "messages": [user("hi")], "max_tokens": 50}
STORED = {"history": "stored", "conversation": "packed"}
PACKERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.compressobj(wbits=31),
    "deflate": zlib.compressobj,
    "br": brotli.Compressor,
    "zstd": zstd.ZstdCompressor,
}


def packed(coding: str, pieces: Iterable[bytes | float], *, whole_end: bool = True) -> list[bytes | float]:
    """The pieces in a coding, each of them readable as soon as it has come."""
    packer = PACKERS[coding]()
    found: list[bytes | float] = []
    for piece in pieces:
        if not isinstance(piece, bytes):
            found.append(piece)
        elif coding == "br":
            found.append(packer.process(piece) + packer.flush())
        elif coding == "zstd":
            found.append(packer.compress(piece, mode=packer.FLUSH_BLOCK))
        else:
            found.append(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH))
    if whole_end:
        found.append(packer.finish() if coding == "br" else packer.flush())
    return found


def coded(answer: Answer, coding: str, **how: bool) -> Answer:
    """An answer in a coding."""
    headers: Headers = [*answer.headers, (b"content-encoding", coding.encode())]
    return Answer(packed(coding, answer.pieces, **how), answer.status, headers, answer.breaks, answer.before_headers)


def raw_of(client: Client, body: Any, **asked: str) -> tuple[httpx.Response, bytes]:
    """The response, and its body's bytes as they came."""
    headers = client.headers(**asked)
    with client.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as got:
        return got, b"".join(got.iter_raw())


def joined(answer: Answer) -> bytes:
    """All bytes of an answer."""
    return b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("coding", PACKERS)
def test_a_compressed_reply_is_carried_and_is_part_of_the_conversation(
    bench: Bench, client: Client, coding: str, *, stream: bool
) -> None:
    """The client gets the upstream's bytes and its header; the next request goes on with the same conversation."""
    answer = coded(streamed("It is blue.") if stream else whole("It is blue."), coding)
    bench.upstream.script = lambda _: answer
    got, raw = raw_of(client, {**ASK, "stream": stream})
    assert (got.headers["content-encoding"], raw) == (coding, joined(answer))
    bench.upstream.script = says("Yes.")
    again = client.chat([user("hi"), assistant("It is blue."), user("Sure?")])
    assert again.headers["x-tidemark-conversation"] == got.headers["x-tidemark-conversation"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_compressed_reply_is_kept_in_a_stored_history(bench: Bench, client: Client, *, stream: bool) -> None:
    """A stream goes out plain, because an error of ours may have to follow it."""
    answer = coded(streamed("It is blue.") if stream else whole("It is blue."), "gzip")
    bench.upstream.script = lambda _: answer
    got, raw = raw_of(client, {**ASK, "stream": stream}, **STORED)
    assert got.status_code == 200
    assert raw == (joined(streamed("It is blue.")) if stream else joined(answer))
    assert got.headers.get("content-encoding") == (None if stream else "gzip")
    bench.upstream.script = says("Yes.")
    client.chat([user("Sure?")], **STORED)
    assert [one["content"] for one in bench.upstream.last.messages] == ["hi", "It is blue.", "Sure?"]


@pytest.mark.parametrize("coding", ["gzip", "snappy", "gzip, gzip, gzip, gzip"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_cannot_be_decoded_is_carried_all_the_same(
    bench: Bench, client: Client, coding: str, *, stream: bool
) -> None:
    """Another coding than the header says, an unknown one, and too many."""
    kind = b"text/event-stream" if stream else b"application/json"
    headers = [(b"content-type", kind), (b"content-encoding", coding.encode())]
    bench.upstream.script = lambda _: Answer([b"\x1f\x8b nobody's", b" bytes"], headers=headers)
    got, raw = raw_of(client, {**ASK, "stream": stream})
    assert (got.status_code, raw) == (200, b"\x1f\x8b nobody's bytes")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_bomb_is_carried_and_not_unpacked(bench: Bench, client: Client, *, stream: bool) -> None:
    """What is decoded for the history has a bound."""
    bomb = gzip.compress(b" " * 80_000_000)
    kind = b"text/event-stream" if stream else b"application/json"
    headers = [(b"content-type", kind), (b"content-encoding", b"gzip")]
    bench.upstream.script = lambda _: Answer([bomb], headers=headers)
    got, raw = raw_of(client, {**ASK, "stream": stream})
    assert (got.status_code, raw) == (200, bomb)


def test_a_stream_that_a_comment_began_goes_out_plain(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Its header can no longer name the coding."""
    config = (
        'model_list:\n  - model_name: small\n    litellm_params: {{model: openai/scripted, api_base: "{base}"}}\n'
        "server: {{keepalive_seconds: 0.05}}\n"
    )
    client = bench.client(request.node.nodeid, config=config)
    answer = coded(streamed("late but whole"), "br")
    answer.before_headers = 1.0
    bench.upstream.script = lambda _: answer
    got, raw = raw_of(client, {**ASK, "stream": True})
    assert "content-encoding" not in got.headers
    assert raw.startswith(b": keep-alive\n\n")
    assert raw.endswith(joined(streamed("late but whole")))
    refused = coded(error(429, "slow down"), "gzip")
    refused.before_headers = 1.0
    bench.upstream.script = lambda _: refused
    _, raw = raw_of(client, {**ASK, "stream": True})
    assert json.loads(raw.rpartition(b"data: ")[2])["error"]["message"] == "slow down"


def test_no_comment_comes_between_compressed_bytes(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A client could not read on."""
    config = (
        'model_list:\n  - model_name: small\n    litellm_params: {{model: openai/scripted, api_base: "{base}"}}\n'
        "server: {{keepalive_seconds: 0.6}}\n"
    )
    client = bench.client(request.node.nodeid, config=config)
    client.post(ASK)
    answer = coded(streamed("slow at first"), "gzip")
    answer.pieces = [2.0, *answer.pieces]
    bench.upstream.script = lambda _: answer
    got, raw = raw_of(client, {**ASK, "stream": True})
    if "content-encoding" in got.headers:
        assert raw == joined(answer)
    else:  # a machine so busy that a comment came before the upstream's headers
        assert raw.endswith(joined(streamed("slow at first")))


@pytest.mark.parametrize("breaks", [True, False], ids=["connection cut", "clean end"])
def test_a_compressed_stream_that_ends_early_ends_with_its_connection(
    bench: Bench, client: Client, *, breaks: bool
) -> None:
    """An error event would be no part of the compressed bytes, so the end itself is the error."""
    answer = coded(streamed("only a part", done=False, finish=False), "gzip", whole_end=not breaks)
    answer.breaks = breaks
    bench.upstream.script = lambda _: answer
    with pytest.raises(httpx.RemoteProtocolError):
        raw_of(client, {**ASK, "stream": True})


def test_a_compressed_refusal_teaches_the_window(bench: Bench, client: Client) -> None:
    """The request is sent again, smaller."""

    def small(request: Received) -> Answer:
        if len(request.body) > 3000:
            text = "This model's maximum context length is 1000 tokens. However, your messages resulted in 1500 tokens."
            return coded(error(400, text, code="context_length_exceeded"), "gzip")
        return whole("Fine.")

    bench.upstream.script = small
    got = client.chat([*history(14), user("Now?")])
    assert got.status_code == 200
    assert "sent again" in got.headers["x-tidemark-warning"]
