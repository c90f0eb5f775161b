"""A client that changes with each request what its summaries stand for costs no call of a model with each request."""

from __future__ import annotations

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, user
from tests.support.scripted import Answer, Received, says

SUMMARY = "They go through a list of points, one after another, and agree on each. " * 2
TURNS = 14
QUESTION = user("Point of the day?")


def clock(said: list[Said], turn: int) -> list[Said]:
    """The first message has the time, as that of some agents."""
    return [user(f"{said[0]['content']} It is {turn} o'clock."), *said[1:]]


def answering(request: Received) -> Answer:
    """An upstream that writes summaries, and answers the talk, whose requests end with a point."""
    return says(SUMMARY if is_for_summary(request) else "Agreed.")(request)


def is_for_summary(request: Received) -> bool:
    """Whether a request asks for a summary."""
    return not str(request.messages[-1]["content"]).startswith("Point")


def calls_for_summaries(bench: Bench) -> int:
    """How many calls of a model the summaries took."""
    bench.settle()
    return sum(map(is_for_summary, bench.upstream.received))


def send(client: Client, said: list[Said]) -> tuple[str, str]:
    """Send a talk above its high water; return the strategy of its summary and the warning."""
    answer = client.chat(said)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-tidemark-strategy"], answer.headers.get("x-tidemark-warning", "")


def test_after_three_lost_summaries_no_model_is_asked(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Rules write the others, the client is told, and a talk that nobody changes any more gets a model's again."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, strategy="llm")
    said = history(20)
    told: list[tuple[str, str]] = []
    calls: list[int] = []
    for turn in range(TURNS):
        said += [user(long(1000 + 2 * turn)), assistant(long(1001 + 2 * turn)), QUESTION]
        told.append(send(client, clock(said, turn)))
        calls.append(calls_for_summaries(bench))
        said.append(assistant("Agreed."))
    assert [strategy for strategy, _ in told] == ["llm"] * 3 + ["extractive"] * (TURNS - 3)
    assert calls[0] > 0
    assert calls[2:] == [calls[2]] * (TURNS - 2)
    assert all("what its summaries stand for" in warning for _, warning in told[3:])
    for turn in range(TURNS, 2 * TURNS):
        said += [user(long(1000 + 2 * turn, 120)), assistant(long(1001 + 2 * turn, 120)), QUESTION]
        told.append(send(client, clock(said, TURNS)))
        bench.settle()
        said.append(assistant("Agreed."))
    assert told[-1] == ("llm", "")


def test_talks_that_end_alike_are_no_lost_summaries(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Each has its own answer before the same last words."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, strategy="llm")
    for talk in range(6):
        said = [user(long(100 * talk)), assistant(long(100 * talk + 1)), *history(20)[2:]]
        said += [user(long(100 * talk + 2)), assistant(long(100 * talk + 3)), user("Point taken. Go on.")]
        assert send(client, said) == ("llm", "")


def test_an_operator_who_wants_no_other_summary_gets_none(bench: Bench, request: pytest.FixtureRequest) -> None:
    """With ``on_failure: block`` each request asks the model."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, strategy="llm", more=", on_failure: block")
    said = history(20)
    for turn in range(6):
        said += [user(long(1000 + 2 * turn)), assistant(long(1001 + 2 * turn))]
        assert send(client, [*clock(said, turn), QUESTION])[0] == "llm"
