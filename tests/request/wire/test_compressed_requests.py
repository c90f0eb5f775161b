"""Compressed requests: read at every endpoint that takes a body, and forwarded plain."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import brotli
import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import history, user

ASK = {"model": "small", "messages": [user("What is a tide?")]}


def send(client: Client, path: str, packed: bytes, coding: str, method: str = "POST") -> httpx.Response:
    """A compressed body, for one endpoint."""
    headers = client.headers() | {"content-encoding": coding}
    return client.http.request(method, path, content=packed, headers=headers)


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli.compress)]
)
def test_a_compressed_chat_request_is_forwarded_plain(bench: Bench, client: Client, coding: str, pack: Any) -> None:
    """The upstream gets the bytes that were meant, and no word of their coding."""
    plain = json.dumps(ASK).encode()
    assert send(client, "/v1/chat/completions", pack(plain), coding).status_code == 200
    assert bench.upstream.last.json == ASK | {"model": "scripted"}
    assert "content-encoding" not in bench.upstream.last.headers


def test_every_endpoint_that_takes_a_body_takes_a_compressed_one(client: Client) -> None:
    """Counting, compacting, importing, compacting by hand and setting a model."""
    packed = {name: gzip.compress(json.dumps(value).encode()) for name, value in {
        "count": ASK, "compact": {"request": ASK}, "none": {}, "model": {"nonsense": 1},
    }.items()}  # fmt: skip
    lines = gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in history(2)))
    assert send(client, "/tidemark/count", packed["count"], "gzip").json()["input_tokens"] > 0
    assert send(client, "/tidemark/compact", packed["compact"], "gzip").json()["request"] == ASK
    # Refused by its name, since it was read: what is set of a model would hold for all tests on this store.
    refused = send(client, "/tidemark/models/small", packed["model"], "gzip", "PUT")
    assert (refused.status_code, "nonsense" in refused.text) == (400, True)
    brought = send(client, "/tidemark/conversations/import?model=small", lines, "gzip")
    assert brought.status_code == 201, brought.text
    by_hand = send(client, f"/tidemark/conversations/{brought.json()['id']}/summarize", packed["none"], "gzip")
    assert by_hand.status_code == 200, by_hand.text


def test_an_unknown_coding_and_a_bomb_are_refused(bench: Bench, client: Client) -> None:
    """415 with what is read, 413 at the cap of the plain body; the next request on the connection is served."""
    refused = send(client, "/v1/chat/completions", json.dumps(ASK).encode(), "snappy")
    assert (refused.status_code, refused.headers["accept-encoding"]) == (415, "gzip, deflate, br, zstd")
    assert refused.json()["error"]["code"] == "unsupported_encoding"
    bomb = gzip.compress(bytes(70_000_000))
    assert send(client, "/v1/chat/completions", bomb, "gzip").status_code == 413
    broken = send(client, "/tidemark/count", b"no gzip", "gzip")
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_encoding")
    assert not bench.upstream.received
    assert client.post(ASK).status_code == 200
