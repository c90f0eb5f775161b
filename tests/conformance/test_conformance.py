"""Through Tidemark a client gets what it would get from its upstream, and the upstream what the client sent."""

from __future__ import annotations

import pytest

from tests.conformance.cases import GENERATIONS, OTHERS, Case
from tests.conformance.conftest import Ways
from tests.conformance.differences import (
    CONNECTION_HEADERS,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    compared,
    expected_upstream,
    is_framed,
)
from tests.conformance.sdk_types import REQUEST, check_answer, events_of

EVERYTHING = [*GENERATIONS, *OTHERS]
each = pytest.mark.parametrize("case", EVERYTHING, ids=[case.name.replace(" ", "-") for case in EVERYTHING])
each_generation = pytest.mark.parametrize(
    "case", GENERATIONS, ids=[case.name.replace(" ", "-") for case in GENERATIONS]
)


@each
def test_the_client_gets_the_upstreams_status_headers_and_bytes(case: Case, ways: Ways) -> None:
    """But for the headers in differences.py."""
    straight, _ = ways.straight.ask(case)
    through, _ = ways.through.ask(case)
    assert through.status == straight.status
    differences = RESPONSE_HEADERS if case.dialect else {}
    assert compared(through.headers, differences) == compared(straight.headers, differences)
    assert through.body == straight.body
    assert through.broken == straight.broken
    assert is_framed(through.headers, through.body)


@each
def test_the_upstream_gets_the_clients_path_headers_and_bytes(case: Case, ways: Ways) -> None:
    """But for the headers in differences.py."""
    _, straight = ways.straight.ask(case)
    _, through = ways.through.ask(case)
    assert (through.method, through.path, through.query) == (straight.method, straight.path, straight.query)
    differences = REQUEST_HEADERS if case.dialect else CONNECTION_HEADERS
    assert compared(through.lines, differences) == expected_upstream(straight.lines, differences)
    assert through.body == straight.body == case.body
    assert not case.body or is_framed(through.lines, through.body)


@each_generation
def test_the_sdks_read_the_clients_request_and_its_answer(case: Case, ways: Ways) -> None:
    """Their own models are strict where clients are not."""
    seen, received = ways.through.ask(case)
    REQUEST[case.dialect].validate_python(received.json)
    if case.valid:
        check_answer(case.dialect, seen.body, streams=case.streams, failed=seen.status != 200)


@pytest.mark.parametrize("dialect", ["responses", "messages"])
@pytest.mark.parametrize("kind", ["whole", "streamed"])
def test_every_dialect_tells_its_own_end(dialect: str, kind: str, ways: Ways) -> None:
    """So a test that compares two empty streams would fail here."""
    [case] = [case for case in GENERATIONS if case.name == f"{dialect} {kind} text"]
    seen, _ = ways.through.ask(case)
    ends = {"responses": "response.completed", "messages": "message_stop"}
    if kind == "streamed":
        assert events_of(seen.body)[-1]["type"] == ends[dialect]
    else:
        assert b"Hello there" in seen.body
