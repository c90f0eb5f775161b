"""HTTP as it comes from plain sockets and old clients: what no SDK would send, and some of what they all do."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import user
from tests.support.scripted import streamed

BODY = json.dumps({"model": "small", "messages": [user("hi")]}).encode()
CHAT = b"/v1/chat/completions"


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("plain")) as made:
        yield made


@pytest.fixture(scope="module")
def client(bench: Bench) -> Client:
    """A client of a Tidemark whose model ``small`` has a window of 2,000 tokens."""
    return bench.client("plain")


@pytest.fixture
def wire(client: Client) -> Iterator[socket.socket]:
    """A connection to Tidemark."""
    address = urlsplit(str(client.http.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=20) as made:
        yield made


def request(path: bytes = CHAT, body: bytes = BODY, *, headers: bytes = b"", version: bytes = b"1.1") -> bytes:
    """A POST in bytes."""
    head = b"POST %b HTTP/%b\r\nhost: localhost\r\n%bcontent-length: %d\r\n\r\n" % (path, version, headers, len(body))
    return head + body


def until(wire: socket.socket, ending: bytes) -> bytes:
    """What arrives, up to and with an ending; all where the connection ends before."""
    got = b""
    while not got.endswith(ending) and (piece := wire.recv(65536)):
        got += piece
    return got


def answer(wire: socket.socket) -> tuple[int, bytes]:
    """Status and body of one answer that says its length."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = wire.recv(1)
        assert piece, head
        head += piece
    sizes = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    body = b""
    while len(body) < sizes[0]:
        body += wire.recv(sizes[0] - len(body))
    return int(head.split()[1]), body


def test_a_connection_is_kept_for_the_next_request(wire: socket.socket) -> None:
    """One after the other, good and bad: an error does not cost the client its connection."""
    for path, body, status in ((CHAT, BODY, 200), (CHAT, b"{", 400), (b"/none", b"", 404), (CHAT, BODY, 200)):
        wire.sendall(request(path, body))
        assert answer(wire)[0] == status


def test_pipelined_requests_are_answered_in_order(wire: socket.socket) -> None:
    """RFC 9112, section 9.3.2."""
    wire.sendall(request(b"/tidemark/count") + request(CHAT) + request(b"/none"))
    assert b"input_tokens" in answer(wire)[1]
    assert b"Hello there." in answer(wire)[1]
    assert answer(wire)[0] == 404


def test_a_body_is_asked_for_before_it_is_sent(wire: socket.socket) -> None:
    """``Expect: 100-continue``, as curl sends it with a large body; the header stays on this hop."""
    whole = request(headers=b"expect: 100-continue\r\n")
    wire.sendall(whole[: -len(BODY)])
    assert until(wire, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
    wire.sendall(BODY)
    assert answer(wire)[0] == 200


def test_a_chunked_body_is_read_whole(bench: Bench, wire: socket.socket) -> None:
    """No length is declared; the pieces fall anywhere."""
    wire.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    for place in range(0, len(BODY), 7):
        piece = BODY[place : place + 7]
        wire.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    wire.sendall(b"0\r\n\r\n")
    assert answer(wire)[0] == 200
    assert bench.upstream.last.messages == [user("hi")]
    assert int(bench.upstream.last.headers["content-length"]) == len(bench.upstream.last.body)
    assert "transfer-encoding" not in bench.upstream.last.headers


def test_an_old_client_is_answered_and_let_go(wire: socket.socket) -> None:
    """HTTP/1.0, as nginx speaks it by default: the connection ends with the answer."""
    wire.sendall(request(version=b"1.0"))
    got = until(wire, b"never")
    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"Hello there." in got


def test_an_old_client_gets_a_stream(bench: Bench, wire: socket.socket) -> None:
    """HTTP/1.0 and ``stream``: every event, then the end of the connection."""
    before, bench.upstream.script = bench.upstream.script, lambda _: streamed("one two three")
    try:
        body = json.dumps({"model": "small", "messages": [user("hi")], "stream": True}).encode()
        wire.sendall(request(body=body, version=b"1.0"))
        got = until(wire, b"never")
    finally:
        bench.upstream.script = before
    assert got.count(b"data: ") == 6
    assert b"data: [DONE]" in got


@pytest.mark.parametrize(
    "headers",
    [
        b"x-big: " + b"a" * 60_000 + b"\r\n",
        b"".join(b"x-%d: 1\r\n" % number for number in range(300)),
        b"x-odd: caf\xe9 \xf0\x9f\x99\x82\r\n",
        b"authorization: Bearer caf\xe9\r\n",
        b"connection: close, x-hop\r\nx-hop: 1\r\n",
    ],
    ids=["60 kB", "300 lines", "bytes beyond ASCII", "a key beyond ASCII", "close"],
)
def test_odd_headers_do_no_harm(wire: socket.socket, headers: bytes) -> None:
    """Large, many or not ASCII: they are the upstream's to judge."""
    wire.sendall(request(headers=headers))
    assert answer(wire)[0] == 200


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"HEAD / HTTP/1.1", 200),
        (b"HEAD /v1/models HTTP/1.1", 200),
        (b"GET / HTTP/1.1", 404),
        (b"OPTIONS /v1/chat/completions HTTP/1.1", 204),
        (b"OPTIONS /none HTTP/1.1", 404),
        (b"OPTIONS * HTTP/1.1", 204),
        (b"GET /v1/chat/completions HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket", 426),
        (b"GET /none HTTP/1.1\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket", 426),
        (b"GET /v1/models HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c", 200),
        (b"POST /v1/chat/completions/ HTTP/1.1\r\ncontent-length: 0", 404),
        (b"GET /v1/models/ HTTP/1.1", 404),
        (b"TRACE / HTTP/1.1", 405),
        (b"GARBAGE", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: many", 400),
    ],
)
def test_what_is_no_request_to_a_model_has_its_status(wire: socket.socket, line: bytes, status: int) -> None:
    """A status, no redirect, and no body for HEAD and for what a path can do."""
    wire.sendall(line + b"\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    got = until(wire, b"never")
    assert got.startswith(b"HTTP/1.1 %d " % status), got
    assert got.endswith(b"\r\n\r\n") == (line.startswith(b"HEAD") or status == 204)


@pytest.mark.parametrize("path", [CHAT, b"/tidemark/count", b"/tidemark/compact"])
def test_a_client_that_leaves_in_its_body_is_no_failure(
    client: Client, wire: socket.socket, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is logged as an error of ours, and the next client is served."""
    with caplog.at_level(logging.ERROR):
        wire.sendall(request(path)[:-5])
        wire.close()
        for _ in range(3):
            assert client.http.get("/health/liveliness").status_code == 200
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
