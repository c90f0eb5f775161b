"""An answer is the same however its bytes come apart on the way; no socket is needed to see that."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidemark.upstream.http1.answer import HttpAnswer

CHUNKS = st.lists(st.binary(min_size=1, max_size=30), max_size=6)
CUTS = st.lists(st.integers(0, 400), max_size=12)


class Wire:
    """A connection that only notes what is asked of it."""

    def __init__(self) -> None:
        self.aborted = False

    def watch(self, due: float) -> None:
        """No time passes."""

    def pause(self) -> None:
        """Little comes."""

    def resume(self) -> None:
        """Nor was it paused."""

    def abort(self) -> None:
        """Closed."""
        self.aborted = True


def fed(raw: bytes, cuts: list[int]) -> tuple[int, list[tuple[bytes, bytes]], bytes, bool, bool]:
    """What an answer is whose bytes come in these parts."""
    loop = asyncio.new_event_loop()
    try:
        answer = HttpAnswer(Wire(), loop)
        places = sorted({0, len(raw), *[cut for cut in cuts if cut < len(raw)]})
        for begin, end in pairwise(places):
            answer.feed(raw[begin:end])

        async def read() -> bytes:
            pieces = []
            while piece := await answer.read(1):
                pieces.append(piece)
            return b"".join(pieces)

        body = loop.run_until_complete(read()) if answer.complete else b""
        return answer.status, answer.headers, body, answer.complete, answer.keeps_connection
    finally:
        loop.close()


@given(CHUNKS, CUTS)
def test_where_the_bytes_come_apart_changes_nothing(chunks: list[bytes], cuts: list[int]) -> None:
    """Interim answer, head, chunks and trailer: cut anywhere, within a line's end too."""
    raw = b"".join(
        [
            b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nX-One: 1 \r\nset-cookie: a\r\n",
            b"Set-Cookie: b\r\ntransfer-encoding: chunked\r\n\r\n",
            *[b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks],
            b"0\r\nx-sum: 1\r\n\r\n",
        ]
    )
    headers = [
        (b"X-One", b"1"),
        (b"set-cookie", b"a"),
        (b"Set-Cookie", b"b"),
        (b"transfer-encoding", b"chunked"),
    ]
    assert fed(raw, cuts) == (200, headers, b"".join(chunks), True, True)


@given(st.binary(max_size=100), CUTS)
def test_a_length_is_kept_to(body: bytes, cuts: list[int]) -> None:
    """Not a byte more is the body's; what is more keeps the connection from being used again."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    headers = [(b"content-length", b"%d" % len(body))]
    assert fed(head + body, cuts) == (200, headers, body, True, True)
    assert fed(head + body + b"x", [])[2:] == (body, True, False)


@given(st.binary(max_size=300), CUTS)
def test_nothing_that_comes_is_more_than_an_answer_or_an_error(raw: bytes, cuts: list[int]) -> None:
    """Whatever a server sends, feeding it raises nothing into the event loop."""
    fed(raw, cuts)
    fed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + raw, cuts)
    fed(b"HTTP/1.1 200 OK\r\n" + raw, cuts)
