"""``transport.lane: litellm`` sends the same cases through litellm; ``litellm_differences.py`` lists what differs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.conformance.cases import GENERATIONS, HELLO, OTHERS, Case
from tests.conformance.conftest import Ways
from tests.conformance.differences import is_framed
from tests.conformance.litellm_differences import LITELLM, OWN_WARNING, found
from tests.support.scripted import Answer, Received, Script, tells

pytestmark = pytest.mark.filterwarnings(OWN_WARNING)
EVERYTHING = [*GENERATIONS, *OTHERS]
each = pytest.mark.parametrize("case", EVERYTHING, ids=[case.name.replace(" ", "-") for case in EVERYTHING])
STREAMS = [case for case in GENERATIONS if case.name.endswith(" streamed text")]
each_stream = pytest.mark.parametrize("case", STREAMS, ids=[case.dialect for case in STREAMS])
ENDS = {"chat": b"data: [DONE]\n\n", "responses": b"}\n\n", "messages": b'{"type":"message_stop"}\n\n'}


@pytest.fixture(scope="module")
def differences(ways: Ways) -> Mapping[str, set[str]]:
    """The differences that each case shows, by its name."""
    return {case.name: _differences(case, ways) for case in EVERYTHING}


def _differences(case: Case, ways: Ways) -> set[str]:
    straight, (received,) = ways.straight.ask_freely(case)
    through, asked = ways.litellm.ask_freely(case)
    if not asked:
        assert (through.status, case.path) == (400, "/v1/embeddings")
        return {"embedding without input"}
    assert through.status == straight.status
    assert through.broken == straight.broken
    assert is_framed(through.headers, through.body)
    return found(case, (straight, received), (through, asked[0]))


@each
def test_no_case_differs_in_what_is_not_listed(case: Case, differences: Mapping[str, set[str]]) -> None:
    """Status and framing are equal; everything else has a name and a reason."""
    assert differences[case.name] - LITELLM.keys() == set()


def test_every_difference_of_the_list_exists(differences: Mapping[str, set[str]]) -> None:
    """One that litellm no longer makes must leave the list, and the documentation."""
    assert set().union(*differences.values()) == LITELLM.keys()


def early(request: Received) -> Answer:
    """A body that ends in good order in the middle of its events."""
    return tells(HELLO)(request).cut(4)


def cut(request: Received) -> Answer:
    """A connection that breaks after four events."""
    return tells(HELLO)(request).cut(4, breaks=True)


@each_stream
@pytest.mark.parametrize("script", [early, cut], ids=["early", "cut"])
def test_a_stream_without_its_end_is_told_as_one(case: Case, script: Script, ways: Ways) -> None:
    """An end that litellm makes up would let a client keep half an answer as a whole one."""
    seen, _ = ways.litellm.ask(replace(case, script=script))
    assert b"upstream_incomplete" in seen.body
    assert b"[DONE]" not in seen.body
    assert not seen.broken


@each_stream
def test_each_event_arrives_before_the_next_is_sent(case: Case, ways: Ways) -> None:
    """The upstream waits before each piece of its text until the client has the one before."""
    gates: list[threading.Event] = []
    words = [word.encode() for word in HELLO.text.split()]

    def script(request: Received) -> Answer:
        answer = case.script(request)
        gates.extend(threading.Event() for _ in answer.pieces)
        for gate in gates[: 1 + 1]:  # the role and the first word
            gate.set()
        return replace(answer, waits=gates)

    upstream = ways.litellm.upstream
    upstream.script = script
    got, told = b"", 0
    with ways.litellm.http.stream("POST", case.target, content=case.body, headers=case.sent_headers) as answer:
        for piece in answer.iter_raw():
            got += piece
            while told < len(words) and words[told] in got:
                told += 1
                gates[told + 1].set()
            if told == len(words):
                for gate in gates:
                    gate.set()
    assert told == len(words)
    assert got.endswith(ENDS[case.dialect])
