"""Clients that change answers before they send them back keep their conversation; forks stay forks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, user
from tests.support.scripted import Answer, Received, whole

TURNS = 14
TEXT = "The ferry to the islands leaves at seven.\nThe next one goes at nine, if the tide allows it; this is number"
Change = Callable[[str], str]
CHANGES: dict[str, Change] = {
    "think block removed": lambda text: text.partition("</think>")[2].lstrip(),
    "line ends": lambda text: text.replace("\n", "\r\n"),
    "cut off": lambda text: text[:70],
    "footer": lambda text: f"{text}\n\n---\n*Answered by a machine.*",
}


def answering(request: Received) -> Answer:
    """An upstream that thinks aloud, and answers each question otherwise."""
    return whole(f"<think>Question {len(request.messages)}?</think>\n\n{TEXT} {len(request.messages)}")


def id_of(client: Client, said: list[Said], **asked: str) -> tuple[str, Said]:
    """Ask, and return the conversation's id and the answer."""
    answer = client.chat(said, **asked)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-tidemark-conversation"], answer.json()["choices"][0]["message"]


def listed(bench: Bench, client: Client) -> list[Any]:
    """The client's conversations."""
    bench.settle()
    entries: list[Any] = client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]
    return entries


def stored(bench: Bench, client: Client, conversation: str) -> list[Any]:
    """The messages of a conversation."""
    bench.settle()
    page = client.http.get(f"/tidemark/conversations/{conversation}?limit=100", headers=client.headers())
    assert page.status_code == 200, page.text
    entries: list[Any] = page.json()["data"]
    return entries


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_fourteen_turns_have_one_id_and_one_entry(bench: Bench, change: Change, request: pytest.FixtureRequest) -> None:
    """The client's wording is forwarded and stored, and each original stays readable."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, window=20_000)
    said: list[Said] = []
    conversation, ids, originals = "", set(), []
    for turn in range(TURNS):
        said.append(user(f"Question {turn}?"))
        conversation, message = id_of(client, said)
        ids.add(conversation)
        assert bench.upstream.last.messages == said
        originals.append(message["content"])
        said.append(assistant(change(message["content"])))
    assert len(ids) == 1
    (entry,) = listed(bench, client)
    assert (entry["id"], entry["messages"], entry["parent"]) == (conversation, 2 * TURNS, None)
    messages = stored(bench, client, conversation)
    assert [one["message"]["content"] for one in messages[:-1]] == [one["content"] for one in said[:-1]]
    assert [one["original"]["content"] for one in messages[1:-1:2]] == originals[:-1]
    assert not any("original" in one for one in messages[::2])


OTHER_WORDS = {
    "translated": lambda text: (
        f"Die Nummer {text[-2:]} gehört zur Fähre, die um sieben Uhr zu den Inseln fährt, und neun."
    ),
    "shortened": lambda text: f"[Turn summary: when boats go, see {text[-2:]}; omitted here to save context space]",
}


@pytest.mark.parametrize("change", OTHER_WORDS.values(), ids=OTHER_WORDS.keys())
@pytest.mark.parametrize(
    ("opening", "asked", "most"),
    [
        ("When do the boats to both islands go tomorrow, and which one takes four bicycles?", {}, 1),
        ("Hi", {"conversation": "boats"}, 1),
        ("Hi", {}, 2),
    ],
    ids=["a question of its own", "a greeting in a named conversation", "a greeting"],
)
def test_answers_in_wholly_other_words_keep_the_conversation(
    bench: Bench, request: pytest.FixtureRequest, *, change: Change, opening: str, asked: dict[str, str], most: int
) -> None:
    """As soon as something tells the talk: the questions, its name, or the first answer that was put otherwise."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, window=20_000)
    said: list[Said] = []
    ids = set()
    for turn in range(TURNS):
        said.append(user(f"Question {turn}?" if turn else opening))
        conversation, message = id_of(client, said, **asked)
        ids.add(conversation)
        said.append(assistant(change(message["content"])))
    assert len(ids) == most
    assert len(listed(bench, client)) == most


def test_two_workers_share_the_conversation(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Every other turn comes to the other one, under the client's own name for the conversation."""
    bench.upstream.script = answering
    clients = [bench.client(request.node.nodeid, window=20_000) for _ in range(2)]
    said: list[Said] = []
    ids = set()
    for turn in range(TURNS):
        said.append(user(f"Question {turn}?"))
        conversation, message = id_of(clients[turn % 2], said, conversation="shared")
        ids.add(conversation)
        said.append(assistant(CHANGES["footer"](message["content"])))
    assert len(ids) == 1
    assert len(listed(bench, clients[0])) == 1


def test_what_the_model_saw_is_shown_of_a_changed_conversation(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Now, and at the message that was changed since."""
    client = bench.client(request.node.nodeid, window=20_000)
    conversation, said = conversing(bench, client, 3)
    bench.settle()

    def shown(query: str) -> Any:
        path = f"/tidemark/conversations/{conversation}/context{query}"
        return client.http.get(path, headers=client.headers()).json()["messages"]

    assert shown("?at=2") == said[:1]
    assert shown("?at=4") == said[:3]
    assert [one["content"] for one in shown("")][:5] == [one["content"] for one in said[:5]]


def test_of_two_regenerations_the_client_goes_on_with_its_own(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Each of both, changed, is the conversation that it was answered in."""
    texts = iter(["<think>1</think>Take the ferry at seven, it is never late.", "<think>2</think>Rather call a taxi."])
    bench.upstream.script = lambda _: whole(next(texts, "Yes."))
    client = bench.client(request.node.nodeid)
    first, _ = id_of(client, [user("How?")])
    second, _ = id_of(client, [user("How?")])
    assert first != second
    assert id_of(client, [user("How?"), assistant("Rather call a taxi."), user("Sure?")])[0] == second
    ferry = assistant("Take the ferry at seven, it is never late.")
    assert id_of(client, [user("How?"), ferry, user("Sure?")])[0] == first
    assert len(listed(bench, client)) == 2


def conversing(bench: Bench, client: Client, turns: int) -> tuple[str, list[Said]]:
    """A conversation whose answers the client changes; the last answer is among the messages, changed too."""
    bench.upstream.script = answering
    said: list[Said] = []
    conversation = ""
    for turn in range(turns):
        said.append(user(f"Question {turn}?"))
        conversation, message = id_of(client, said)
        said.append(assistant(CHANGES["think block removed"](message["content"])))
    return conversation, said


@pytest.mark.parametrize(
    "edit",
    [
        lambda said: [*said[:4], user("Otherwise?")],
        lambda said: [*said[:2], user("Otherwise?"), *said[3:], user("On?")],
        lambda said: [user("Otherwise?"), *said[1:], user("On?")],
        lambda said: said[:5],
    ],
    ids=["rewind", "a question edited", "the first question edited", "regeneration"],
)
def test_what_is_asked_otherwise_is_a_conversation_of_its_own(
    bench: Bench, edit: Callable[[list[Said]], list[Said]], request: pytest.FixtureRequest
) -> None:
    """The conversation that it leaves can go on."""
    client = bench.client(request.node.nodeid, window=20_000)
    conversation, said = conversing(bench, client, 4)
    other, _ = id_of(client, edit(said))
    assert other != conversation
    assert len(listed(bench, client)) == 2
    assert id_of(client, [*said, user("And now?")])[0] == conversation
    assert len(listed(bench, client)) == 2


def test_two_talks_that_begin_alike_stay_two(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Also where each of them changes its answers, turn by turn."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, window=20_000)
    one, other = [user("Hi.")], [user("Hi.")]
    ids: list[list[str]] = [[], []]
    for turn in range(6):
        for talk, said in enumerate((one, other)):
            conversation, message = id_of(client, said)
            ids[talk].append(conversation)
            said += [assistant(CHANGES["footer"](message["content"])), user(f"{talk}: {turn}?")]
    assert len(set(ids[0])) == 1  # the first answer is the same, so both begin as one conversation
    assert len(set(ids[1][1:])) == 1
    assert ids[1][-1] != ids[0][-1]


def test_a_summary_before_the_changed_answer_is_used_again(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Nothing is summarized twice because the client changes each newest answer."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid)
    said = [*history(10, 200), user("And now?")]
    made = client.chat(said)
    assert made.headers["x-tidemark-action"] == "compacted"
    text = made.json()["choices"][0]["message"]["content"]
    again = client.chat([*said, assistant(CHANGES["think block removed"](text)), user(long(99))])
    assert again.headers["x-tidemark-action"] == "reused"
    assert again.headers["x-tidemark-conversation"] == made.headers["x-tidemark-conversation"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("window", [2, 3, 100])
def test_a_window_of_stored_history_is_found_although_answers_changed(
    bench: Bench, change: Change, window: int, request: pytest.FixtureRequest
) -> None:
    """Nothing is appended twice, and what is stored stays as it was answered."""
    bench.upstream.script = answering
    client = bench.client(request.node.nodeid, window=20_000)
    said: list[Said] = []
    asked = {"conversation": "windows", "history": "stored"}
    conversation, answers = "", []
    for turn in range(5):
        said.append(user(f"Question {turn}?"))
        answer = client.chat(said[-window:], **asked)
        assert "x-tidemark-history-gap" not in answer.headers
        conversation = answer.headers["x-tidemark-conversation"]
        answers.append(answer.json()["choices"][0]["message"]["content"])
        said.append(assistant(change(answers[-1])))
    messages = stored(bench, client, conversation)
    assert [one["message"]["content"] for one in messages[1::2]] == answers
    assert len(messages) == 10


def test_changed_answers_cost_no_more_summaries(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Of a client that changes each newest answer, as much is summarized as of one that changes nothing."""

    def told_at_length(received: Received) -> Answer:
        return whole(f"<think>Hm.</think>{long(len(received.body), 200)}")

    bench.upstream.script = told_at_length
    counts = []
    for name, change in (("as it came", str), ("changed", CHANGES["think block removed"])):
        client = bench.client(f"{request.node.nodeid} {name}")
        said: list[Said] = []
        actions, ids = [], set()
        for turn in range(TURNS):
            said.append(user(long(1000 + turn, 200)))
            answer = client.chat(said)
            actions.append(answer.headers["x-tidemark-action"])
            ids.add(answer.headers["x-tidemark-conversation"])
            said.append(assistant(change(answer.json()["choices"][0]["message"]["content"])))
            bench.settle()
        assert len(ids) == 1
        assert "reused" in actions
        counts.append(len([action for action in actions if action not in ("none", "reused")]))
    assert counts[1] <= counts[0]
