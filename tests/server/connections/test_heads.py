"""The head of a request: how long it may be, and what it must say (RFC 9112)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.connections.served import GET, WAIT_SECONDS, Served, answered, hello
from tidemark.core.errors import CodingUnknown, InvalidHttp, VersionUnknown
from tidemark.server.connections import Bounds
from tidemark.server.connections.bounds import HEAD_BYTES, HEAD_LINES
from tidemark.server.connections.heads import check_head

PIECE = 16_384


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\nx-a: %b" % (b"a" * 8 * HEAD_BYTES), id="a line that never ends"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\n%b" % (b"a" * 8 * HEAD_BYTES), id="a name that never ends"),
        pytest.param(b"GET /%b" % (b"a" * 8 * HEAD_BYTES), id="a URL that never ends"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * (HEAD_LINES + 1), id="lines that never end"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * HEAD_LINES + b"\r\n", id="a line too many"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\nx-a: %b\r\n\r\n" % (b"a" * HEAD_BYTES), id="a line too long"),
        pytest.param(b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * HEAD_BYTES), id="a URL too long"),
        pytest.param(
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-a: %b"
            % (b"a" * 8 * HEAD_BYTES),
            id="a trailer that never ends",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
            + b"x-a: b\r\n" * (HEAD_LINES + 2),  # the parser hands a line over when the next one begins
            id="trailers that never end",
        ),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_head_beyond_its_bound_is_refused_in_words(*, head: bytes, whole: bool) -> None:
    """However it comes, and though the client has not finished it: 431, and the connection is closed."""
    with Served(hello) as served, served.client() as client:
        for at in range(0, len(head), len(head) if whole else PIECE):
            try:
                client.send(head[at : at + (len(head) if whole else PIECE)])
            except ConnectionError:
                break
        assert client.error() == (431, "request_head_too_large")


@pytest.mark.parametrize("before", [b"", GET])
def test_the_first_piece_of_a_head_counts_too(before: bytes) -> None:
    """Nothing follows it, so that only its own bytes can be too many; it could be as long as one read of the socket."""
    with Served(hello, Bounds(head_seconds=WAIT_SECONDS)) as served, served.client() as client:
        if before:
            client.send(before)
            assert client.answer()[0] == 200
        client.send(b"GET / HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * (HEAD_BYTES + 1))
        assert client.error() == (431, "request_head_too_large")


def test_the_parser_is_fed_no_more_of_an_endless_head_than_its_bound() -> None:
    """What grows with the square of a line's length is bounded by the bytes that reach the parser."""
    with Served(hello) as served, served.client() as client:
        client.send(GET)
        assert client.answer()[0] == 200
        connection: Any = next(iter(served.server.server_state.connections))
        fed: list[int] = []

        class Counting:
            """The parser, and how much it is given."""

            def feed_data(self, data: bytes) -> None:
                """Note it, and go on."""
                fed.append(len(data))
                parser.feed_data(data)

        parser, connection.parser = connection.parser, Counting()
        client.send(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(100):
            try:
                client.send(b"a" * PIECE)
            except ConnectionError:
                break
        assert client.error()[0] == 431
        assert sum(fed[:-1]) <= 2 * HEAD_BYTES + max(fed)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * (HEAD_BYTES - 1000)),
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * (HEAD_LINES - 1) + b"\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + b"a" * 1_000_000,
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n",
        GET * 200,
    ],
)
def test_within_the_bound_everything_is_served(request_: bytes) -> None:
    """Long bodies and many requests are no long heads."""
    with Served(hello) as served, served.client() as client:
        for _ in range(3):
            client.send(request_)
            for _ in range(max(1, request_.count(GET))):
                assert client.answer()[0] == 200


def test_trailers_have_no_effect() -> None:
    """Whatever an authenticating hop has looked at in the head is what the application sees (RFC 9110, 6.5.1)."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        seen.append(list(scope["headers"]))
        await answered(send, b"")

    head = [(b"host", b"x"), (b"authorization", b"Bearer a"), (b"transfer-encoding", b"chunked")]
    trailers = b"x-api-key: b\r\nx-tidemark-conversation: c\r\nconnection: authorization\r\nexpect: 100-continue\r\n"
    data = b"POST / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % line for line in head) + b"\r\n1\r\na\r\n"
    with Served(app) as served, served.client() as client:
        for pieces in (
            [data + b"0\r\n" + trailers + b"\r\n"],
            [data, b"0\r\n" + trailers[:20], trailers[20:] + b"\r\n"],
        ):
            for piece in pieces:
                client.send(piece)
                asyncio.run(asyncio.sleep(0.02))
            assert client.answer()[0] == 200
    assert seen == [head, head]


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400, "invalid_http_request"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400, "invalid_http_request"),
        (b"GET / HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n", 400, "invalid_http_request"),
        (b"GET / HTTP/1.1\r\nhost: x, y\r\n\r\n", 400, "invalid_http_request"),
        (b"GET / HTTP/1.1\r\nhost: x/y\r\n\r\n", 400, "invalid_http_request"),
        (b"GET http://evil/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http_request"),
        (b"GET http://localhost:1/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http_request"),
        (b"GET http://u:p@localhost/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http_request"),
        (b"GET ftp://localhost/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http_request"),
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 505, "http_version_not_supported"),
        (b"GET / HTTP/1.2\r\nhost: x\r\n\r\n", 505, "http_version_not_supported"),
        (b"GET /\r\n\r\n", 505, "http_version_not_supported"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"),
        (
            b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            400,
            "invalid_http_request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            501,
            "transfer_coding_not_supported",
        ),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", 501, "transfer_coding_not_supported"),
        (b"nonsense\r\n\r\n", 400, "invalid_http_request"),
        (b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_http_request"),
    ],
)
def test_a_head_that_others_may_read_otherwise_is_refused(head: bytes, status: int, code: str) -> None:
    """RFC 9112, sections 2.3, 3.2, 6.1; also where an earlier request of the connection was right."""
    with Served(hello, ws="none") as served:
        for before in (b"", GET):
            with served.client() as client:
                if before:
                    client.send(before)
                    assert client.answer()[0] == 200
                client.send(head)
                assert client.error() == (status, code)


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://x/ HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET http://X:80/?a=b HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET http://x HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET http://[::1]:80/ HTTP/1.1\r\nhost: [::1]\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost:\r\n\r\n",
        b"GET / HTTP/1.1\r\nHOST: [::1]:8787\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_a_head_that_is_right_is_served(head: bytes) -> None:
    """In each form of the target that RFC 9112, section 3.2, has for a server."""
    with Served(hello) as served, served.client() as client:
        client.send(head)
        assert client.answer()[0] == 200


def test_the_host_of_an_absolute_target_is_told_to_the_application() -> None:
    """HTTP/1.0 may leave out the line; who looks at it must not take the request for one without a name."""
    lines: list[tuple[bytes, bytes]] = []
    check_head("1.0", b"http://evil:81/x", lines)
    assert lines == [(b"host", b"evil:81")]


@given(st.text(max_size=5), st.binary(max_size=30), st.lists(st.tuples(st.binary(), st.binary()), max_size=4))
def test_a_head_of_nonsense_is_judged_by_our_errors_only(
    version: str, url: bytes, lines: list[tuple[bytes, bytes]]
) -> None:
    """Whatever passes the parser."""
    for name in (version, "1.1", "1.0"):
        with contextlib.suppress(InvalidHttp, VersionUnknown, CodingUnknown):
            check_head(name, url, [(b"host", b"x"), *lines])


@pytest.mark.parametrize("offers", [1, 1000])
def test_pipelined_offers_of_another_protocol_are_all_answered(offers: int) -> None:
    """A thousand are one packet of 64 KB, and no deeper in the stack than one."""
    offer = b"GET /%d HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    with Served(hello, ws="none") as served, served.client() as client:
        client.send(b"".join(offer % number for number in range(offers)))
        for _ in range(offers):
            assert client.answer()[0] == 200
        client.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert client.answer()[0] == 200


def test_a_refusal_comes_after_the_answers_of_earlier_requests() -> None:
    """A client that sends ahead could not tell otherwise whose answer it is."""
    with Served(hello) as served, served.client() as client:
        client.send(GET * 3 + b"nonsense\r\n\r\n")
        assert [client.answer()[0] for _ in range(3)] == [200, 200, 200]
        assert client.error() == (400, "invalid_http_request")


async def deaf(scope: Any, _: Any, send: Any) -> None:
    """An application that reads no body."""
    assert scope["type"] == "http"
    await answered(send, b"no")


def test_a_body_that_is_not_asked_for_ends_the_connection() -> None:
    """After ``Expect: 100-continue`` the client keeps its body, and its next request would be taken for that."""
    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    with Served(deaf) as served:
        with served.client() as client:
            client.send(head)
            status, lines, body = client.answer()
            assert (status, lines["connection"], body, client.ended) == (200, "close", b"no", True)
        with served.client() as client:
            client.send(head + b"{}" + GET)  # this one did not wait, so nothing is lost
            assert [client.answer()[0], client.answer()[0]] == [200, 200]


def test_an_offer_of_a_websocket_reaches_the_application() -> None:
    """Without its option in ``Connection``; of any other protocol nothing is left (RFC 9110, section 7.8)."""

    async def echo(scope: Any, _: Any, send: Any) -> None:
        named = [name + b"=" + value for name, value in scope["headers"] if name in (b"upgrade", b"connection")]
        await answered(send, b" ".join(named))

    with Served(echo) as served, served.client() as client:
        for offer, shown in ((b"WebSocket", b"connection= upgrade=WebSocket"), (b"h2c", b"connection=")):
            client.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: %b\r\n\r\n" % offer)
            assert client.answer()[2] == shown
