"""A stream that ends without its last event says so to the client, in the client's dialect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.cases import GENERATIONS, HELLO, PATHS, Case
from tests.conformance.conftest import Ways
from tests.conformance.sdk_types import ANTHROPIC_ERROR, EVENT, events_of
from tests.support.scripted import Answer, Received, Script, tells

ENDS = {"chat": b'data: {"error"', "responses": b"event: error\n", "messages": b"event: error\n"}
"""How the event begins that ends a stream too early."""
STREAMS = [case for case in GENERATIONS if case.name.endswith(" streamed text")]
each = pytest.mark.parametrize("case", STREAMS, ids=list(PATHS))


def early(request: Received) -> Answer:
    """A body that ends in good order in the middle of its events."""
    return tells(HELLO)(request).cut(5)


def cut(request: Received) -> Answer:
    """A connection that breaks after five events."""
    return tells(HELLO)(request).cut(5, breaks=True)


@each
@pytest.mark.parametrize("script", [early, cut], ids=["early", "cut"])
def test_a_stream_without_its_end_ends_in_the_dialects_error_event(case: Case, script: Script, ways: Ways) -> None:
    """After all that came: ``an end too early`` in differences.py."""
    broken = replace(case, script=script)
    straight, _ = ways.straight.ask(broken)
    through, _ = ways.through.ask(broken)
    assert straight.broken == (script is cut)
    assert not through.broken
    assert len(events_of(straight.body)) in (4, 5)  # the scripted pieces, one of which may be a ping
    assert through.body.startswith(straight.body)
    added = through.body.removeprefix(straight.body)
    [last] = events_of(added)
    assert added.lstrip(b"\n").startswith(ENDS[case.dialect])
    assert added.endswith(b"\n\n")
    if case.dialect == "responses":
        assert last["sequence_number"] == len(events_of(straight.body))
        EVENT[case.dialect].validate_python(last)
        assert last["code"] == "upstream_incomplete"
    else:
        assert last["error"]["message"]
    if case.dialect == "messages":
        ANTHROPIC_ERROR.validate_python(last)


@each
def test_events_before_a_failure_are_still_the_dialects(case: Case, ways: Ways) -> None:
    """The SDKs' models read each of them."""
    through, _ = ways.through.ask(replace(case, script=cut))
    for event in events_of(through.body)[:-1]:
        EVENT[case.dialect].validate_python(event)
