"""What a client learns of a path without using it: its methods, and that there is no WebSocket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import user
from tests.support.toy import ToyDialect

TALK = "/v1/talk"
HANDSHAKE = (
    b"host: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nopenai-beta: responses_websockets\r\n\r\n"
)
CHAT = json.dumps({"model": "small", "messages": [user("hi")]}).encode()
APP = "https://chat.example.com"
ALLOWED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
server: {{allowed_origins: ["https://chat.example.com"]}}
"""


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("capabilities")) as made:
        yield made


@pytest.fixture(scope="module", params=[True, False], ids=["own transport", "uvicorn's"])
def client(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark on either transport; it serves a second dialect."""
    return bench.client("capabilities", own=request.param, dialects={TALK: ToyDialect()}, config=ALLOWED)


@pytest.fixture
def wire(client: Client) -> Iterator[socket.socket]:
    """A connection to Tidemark."""
    address = urlsplit(str(client.http.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=20) as made:
        yield made


def answer(wire: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, header lines and body of one answer."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = wire.recv(1)
        assert piece, head
        head += piece
    begun, *lines = head.decode().rstrip().split("\r\n")
    named = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = b""
    while len(body) < int(named.get("content-length", 0)):
        body += wire.recv(65_536)
    return int(begun.split()[1]), named, body


@pytest.mark.parametrize("path", [b"/v1/responses", b"/v1/chat/completions", b"/anything", b"/v1/models", b"/health"])
def test_a_websocket_is_refused_with_426_on_any_path(wire: socket.socket, path: bytes) -> None:
    """Codex goes on over HTTP at once; the connection stays, with the protocol that is spoken instead."""
    wire.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HANDSHAKE)
    status, lines, body = answer(wire)
    assert status == 426
    assert (lines["upgrade"], lines["connection"]) == ("HTTP/1.1", "upgrade")
    error = json.loads(body)["error"]
    assert (error["code"], error["type"]) == ("upgrade_required", "invalid_request_error")
    assert "HTTP" in error["message"]
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(CHAT)
    wire.sendall(request + CHAT)
    assert answer(wire)[0] == 200


def test_a_websocket_is_refused_in_the_format_of_its_path(wire: socket.socket) -> None:
    """Below the path of a dialect too."""
    for path in (b"/v1/talk", b"/v1/talk/7"):
        wire.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HANDSHAKE)
        status, _, body = answer(wire)
        assert (status, json.loads(body)["problem"]["code"]) == (426, "upgrade_required")


def test_an_offer_that_is_no_websocket_is_ignored(bench: Bench, wire: socket.socket) -> None:
    """RFC 9110, section 7.8: Java's HttpClient offers h2c with every request, and a body comes with it."""
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAAAAMAAAAA\r\n"
    wire.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n" + offer + b"\r\n")
    assert answer(wire)[0] == 200


def test_http_1_0_makes_no_offer(wire: socket.socket) -> None:
    """RFC 9110, section 7.8: the header of an old client is ignored."""
    wire.sendall(b"GET /health/liveness HTTP/1.0\r\nhost: localhost\r\nupgrade: websocket\r\n\r\n")
    assert answer(wire)[0] == 200


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/chat/completions", "GET, HEAD, POST, OPTIONS"),
        (TALK, "POST, OPTIONS"),
        ("/health/liveness", "GET, HEAD, OPTIONS"),
        ("/tidemark/models", "GET, HEAD, OPTIONS"),
        ("/tidemark/models/small", "GET, HEAD, PUT, DELETE, OPTIONS"),
    ],
)
def test_options_lists_the_methods_of_a_path(client: Client, path: str, methods: str) -> None:
    """RFC 9110, section 9.3.7; a method that is not among them is refused with the same list."""
    got = client.http.options(path)
    assert (got.status_code, got.headers["allow"], got.content) == (204, methods, b"")
    assert "content-length" not in got.headers
    refused = client.http.patch(path)
    assert (refused.status_code, refused.headers["allow"]) == (405, methods)


def test_options_of_the_whole_server_lists_all_methods(wire: socket.socket) -> None:
    """``OPTIONS *``."""
    wire.sendall(b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n")
    status, lines, _ = answer(wire)
    assert (status, lines["allow"]) == (204, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")


def test_every_endpoint_that_is_read_answers_head(client: Client) -> None:
    """Status and headers of the ``GET``, without its body."""
    for path in ("/health/liveness", "/health/liveliness", "/health/readiness", "/metrics", "/v1/models"):
        whole, head = client.http.get(path), client.http.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b""), path
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_a_refused_method_is_answered_in_the_format_of_its_path(client: Client) -> None:
    """A client of a dialect can read only that dialect's errors."""
    assert client.http.get(TALK).json()["problem"]["code"] == "unknown_url"
    assert client.http.put("/v1/chat/completions").json()["error"]["code"] == "unknown_url"


def test_a_body_is_asked_for_before_it_is_sent(bench: Bench, wire: socket.socket) -> None:
    """``Expect: 100-continue`` on both transports; the header stays on this hop."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    wire.sendall(head + b"content-length: %d\r\n\r\n" % len(CHAT))
    assert answer(wire)[0] == 100
    wire.sendall(CHAT)
    assert answer(wire)[0] == 200
    assert "expect" not in bench.upstream.last.headers


@pytest.mark.parametrize(
    ("line", "length", "status"),
    [
        (b"POST /none HTTP/1.1", 10, 404),
        (b"DELETE /v1/models HTTP/1.1", 10, 405),
        (b"POST /v1/chat/completions HTTP/1.1", 10**9, 413),
    ],
)
def test_a_body_that_nobody_wants_is_not_asked_for(wire: socket.socket, line: bytes, length: int, status: int) -> None:
    """The client gets its answer at once and keeps its body (RFC 9110, section 10.1.1)."""
    head = b"host: localhost\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % length
    wire.sendall(line + b"\r\n" + head)
    assert answer(wire)[0] == status


def test_a_body_in_chunks_is_read_whole(bench: Bench, wire: socket.socket) -> None:
    """On both transports; the upstream gets its length."""
    wire.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    for place in range(0, len(CHAT), 11):
        piece = CHAT[place : place + 11]
        wire.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    wire.sendall(b"0\r\n\r\n")
    assert answer(wire)[0] == 200
    assert int(bench.upstream.last.headers["content-length"]) == len(bench.upstream.last.body)


@pytest.mark.parametrize(
    ("line", "body", "headers", "status"),
    [
        ("POST /v1/chat/completions", CHAT, {}, 200),
        ("POST /v1/chat/completions", b"{", {}, 400),
        ("POST /v1/chat/completions", CHAT.replace(b"small", b"none"), {}, 404),
        ("POST /v1/chat/completions", CHAT, {"content-encoding": "compress"}, 415),
        (f"POST {TALK}", b"{}", {}, 400),
        ("GET /v1/responses", b"", {"upgrade": "websocket", "connection": "upgrade"}, 426),
        ("GET /none", b"", {}, 404),
        ("OPTIONS /v1/models", b"", {}, 204),
        ("DELETE /v1/models", b"", {}, 405),
    ],
)
def test_an_allowed_page_reads_every_answer(
    client: Client, line: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    """CORS in every dialect, and for errors: a browser hides what it may not show."""
    method, path = line.split()
    got = client.http.request(method, path, content=body, headers={"origin": APP, **headers})
    assert got.status_code == status
    assert got.headers.get_list("access-control-allow-origin") == [APP]
    shown = got.headers["access-control-expose-headers"].split(", ")
    assert {name for name in got.headers if name.startswith(("x-", "allow", "upgrade", "accept-"))} <= set(shown)
    assert "access-control-allow-origin" not in client.http.request(method, path, content=body, headers=headers).headers
