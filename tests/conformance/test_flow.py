"""Each event reaches the client before the upstream sends the next one: nothing is gathered on the way."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.conformance.cases import GENERATIONS, OTHERS, Case
from tests.conformance.conftest import Way, Ways
from tests.support.scripted import Answer, Received

STREAMS = [
    case for case in GENERATIONS if case.name.endswith((" streamed calls", " streamed text", " streamed packed"))
]
STREAMS += [case for case in OTHERS if case.name in ("images streamed", "packed")]
each = pytest.mark.parametrize("case", STREAMS, ids=[case.name.replace(" ", "-") for case in STREAMS])


def follow(way: Way, case: Case) -> tuple[list[bytes], bytes]:
    """Ask for an answer whose upstream waits before each piece until the client has all earlier ones.

    The client gives up before the upstream does (``LONGEST_WAIT``); returned are the pieces, and what the client got.
    """
    pieces: list[bytes] = []
    gates: list[threading.Event] = []

    def script(request: Received) -> Answer:
        answer = case.script(request)
        pieces.extend(piece for piece in answer.pieces if isinstance(piece, bytes))
        gates.extend(threading.Event() for _ in pieces)
        return replace(answer, pieces=pieces, waits=gates)

    way.upstream.script = script
    got = b""
    with way.http.stream(case.method, case.target, content=case.body, headers=case.sent_headers, timeout=10) as answer:
        for chunk in answer.iter_raw():
            got += chunk
            arrived = 0
            for piece, gate in zip(pieces, gates, strict=True):
                arrived += len(piece)
                if arrived <= len(got):
                    gate.set()
    return pieces, got


@each
def test_each_piece_arrives_before_the_next_is_sent(case: Case, ways: Ways) -> None:
    """Byte by byte over the wire lane, and for requests that are carried."""
    pieces, got = follow(ways.through, case)
    assert len(pieces) > 2
    assert got == b"".join(pieces)
