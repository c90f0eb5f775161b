"""One key, several people: an application sends equal turns for all of them, with each one's record among the turns."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.request.compaction.test_summarizers import SUMMARY, is_summary_call
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, long, system, user
from tests.support.scripted import Answer, Received, says, whole

PEOPLE = ("ALICE", "BOB", "CAROL")


def record(person: str) -> Said:
    """A person's record, longer than the window of 2,000 tokens, so that it has to be summarized."""
    items = " ".join(f"{person} owes {number} for item{number}." for number in range(240))
    return system(f"CONTEXT: the customer is {person}. Account number {person}-12345 is overdrawn. {items}")


def request_of(person: str, turns: int) -> list[Said]:
    """The request of a person's turn; but for the record all people's are the same."""
    said = [user("I want to know about my account."), assistant("One moment."), user("Please."), record(person)]
    for number in range(turns):
        said += [assistant(long(2 * number, 40)), user(long(2 * number + 1, 40))]
    return said


def strangers_in(received: Received, person: str) -> list[str]:
    """The other people of whom a request to the upstream tells anything."""
    sent = json.dumps(received.messages)
    return [other for other in PEOPLE if other != person and other in sent]


def action_of(got: httpx.Response) -> str:
    """What was done to a request that was answered."""
    assert got.status_code == 200, got.text
    return got.headers["x-tidemark-action"]


@pytest.mark.parametrize("more", ["", ", prepare: 0.3", ", prepare: 0.99"])
def test_a_summary_tells_nobody_another_persons_system_message(
    bench: Bench, request: pytest.FixtureRequest, more: str
) -> None:
    """Whatever a summary absorbed stands in the request's own prefix, prepared in the background or not."""
    client = bench.client(request.node.nodeid, more=more)
    actions: list[str] = []
    for turns in range(1, 16):
        for person in PEOPLE:
            actions.append(action_of(client.chat(request_of(person, turns))))
            assert strangers_in(bench.upstream.last, person) == []
    assert "compacted" in actions
    assert "reused" in actions


def test_each_person_keeps_the_summary_that_was_made_for_them(bench: Bench, client: Client) -> None:
    """Two variants of one prefix stand beside each other: who comes back finds their own, and nothing is made anew."""
    made = [action_of(client.chat(request_of(person, 8))) for person in PEOPLE]
    assert made == ["compacted"] * 3
    for _ in range(3):
        for person in PEOPLE:
            assert action_of(client.chat(request_of(person, 8))) == "reused"
            assert strangers_in(bench.upstream.last, person) == []


def test_one_summary_is_in_use_of_all_that_stand_for_the_same_messages(client: Client) -> None:
    """``/summaries`` lists everybody's of the key, and marks the newest."""
    answers = [client.chat(request_of(person, 8)) for person in PEOPLE]
    address = f"/tidemark/conversations/{answers[-1].headers['x-tidemark-conversation']}/summaries"
    listed = client.http.get(address, headers=client.headers(), params={"model": "small"}).json()["data"]
    assert [one["in_use"] for one in listed] == [False, False, True]


def test_a_person_without_a_record_is_told_none(bench: Bench, client: Client) -> None:
    """The same turns without any system message among them: the summary of somebody's record is not theirs."""
    assert action_of(client.chat(request_of("ALICE", 8))) == "compacted"
    plain = [one for one in request_of("ALICE", 30) if one["role"] != "system"]
    assert action_of(client.chat(plain)) == "compacted"
    assert "ALICE" not in json.dumps(bench.upstream.last.messages)


def test_a_summary_by_force_and_a_command_tell_nobody_elses_record(bench: Bench, client: Client) -> None:
    """``X-Tidemark-Summarize: force`` and ``/summarize`` take nothing in that the request does not hold."""
    assert action_of(client.chat(request_of("ALICE", 8))) == "compacted"
    client.chat([*request_of("BOB", 9), assistant("Yes?"), user("/summarize")])
    client.chat(request_of("BOB", 10), summarize="force")
    assert strangers_in(bench.upstream.last, "BOB") == []


def test_a_conversation_that_is_summarized_by_hand_holds_no_ones_record(bench: Bench, client: Client) -> None:
    """Stored messages are read back without the records among them, so the summary of all tells none of those."""
    got = client.chat(request_of("ALICE", 8))
    assert action_of(got) == "compacted"
    address = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}/summarize"
    for body in ({}, {"regenerate": True}):
        answer = client.http.post(address, headers=client.headers(), json={"model": "small", **body})
        assert answer.status_code == 200, answer.text
    client.chat(request_of("BOB", 9))
    assert strangers_in(bench.upstream.last, "BOB") == []


def test_a_summarizer_reads_no_other_persons_record(bench: Bench, request: pytest.FixtureRequest) -> None:
    """What the next summary takes in is what the request holds: its model never sees another person's."""
    client = bench.client(request.node.nodeid, strategy="hybrid")
    readers: list[dict[str, Any]] = []

    def answer(received: Received) -> Answer:
        if is_summary_call(received):
            readers.append({"text": json.dumps(received.messages)})
            return whole(SUMMARY)
        return says("Hello there.")(received)

    bench.upstream.script = answer
    for turns in range(6, 16, 2):
        for person in PEOPLE:
            client.chat(request_of(person, turns))
    assert readers
    assert all(sum(person in one["text"] for person in PEOPLE) <= 1 for one in readers)
