"""Stored history: a client that sends its new messages only gets what one gets that resends all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.request.conftest import WINDOW, Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import Answer, Received, error, says, streamed, whole
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

STORED = {"history": "stored"}


def reply_of(got: httpx.Response) -> str:
    """What the model said."""
    assert got.status_code == 200, got.text
    text: str = got.json()["choices"][0]["message"]["content"]
    return text


def counting(bench: Bench) -> None:
    """Answers that differ, as a model's do."""
    numbers = iter(range(10_000))

    def script(request: Received) -> Answer:
        return says(f"Answer {next(numbers)}.")(request)

    bench.upstream.script = script


def test_what_is_forwarded_is_what_a_client_with_all_messages_would_send(bench: Bench) -> None:
    """Both are compacted at the same turn, to the same bytes, but for how each writes an answer down."""
    replies: list[str] = []
    sent: dict[str, list[list[Said]]] = {"whole": [], "new": []}
    actions: dict[str, list[str]] = {"whole": [], "new": []}
    for kind in ("whole", "new"):
        client = bench.client(f"test_what_is_forwarded-{kind}")
        counting(bench)
        said: list[Said] = []
        for turn in range(12):
            new = user(long(turn, 200))
            said.append(new)
            if kind == "whole":
                got = client.chat([system("Be brief."), *said], conversation="talk")
            else:
                got = client.chat([system("Be brief."), new], conversation="talk", **STORED)
            replies.append(reply_of(got))
            said.append(assistant(replies[-1]))
            sent[kind].append([{k: one[k] for k in ("role", "content")} for one in bench.upstream.last.messages])
            actions[kind].append(got.headers["x-tidemark-action"])
    assert replies[:12] == replies[12:]
    assert actions["new"] == actions["whole"]
    assert {"compacted", "reused"} <= set(actions["new"])
    assert sent["new"] == sent["whole"]


def test_a_stored_answer_goes_out_as_a_client_would_send_it(bench: Bench, client: Client) -> None:
    """A strict server refuses null members, annotations and reasoning; the archive and the export keep them."""
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    plain: Said = {
        "role": "assistant",
        "content": "Yes.",
        "refusal": None,
        "annotations": [],
        "reasoning_content": "Hm.",
    }
    calling: Said = {"role": "assistant", "content": None, "tool_calls": [call], "audio": None, "function_call": None}

    def turn(said: Said, answer: Said) -> str:
        body = {"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
        bench.upstream.script = lambda _: Answer([json.dumps(body).encode()])
        return client.chat([said], conversation="strict", **STORED).headers["x-tidemark-conversation"]

    turn(user("One?"), plain)
    turn(user("Two?"), calling)
    id_ = turn({"role": "tool", "tool_call_id": "c", "content": "Found."}, plain)
    sent = bench.upstream.last.messages
    assert sent[1] == {"role": "assistant", "content": "Yes."}
    assert sent[3] == {"role": "assistant", "content": None, "tool_calls": [call]}
    shown = client.http.get(f"/tidemark/conversations/{id_}", headers=client.headers()).json()["data"]
    assert [shown[1]["message"], shown[3]["message"]] == [plain, calling]
    exported = client.http.get(f"/tidemark/conversations/{id_}/export", headers=client.headers()).text.splitlines()
    assert [json.loads(exported[1]), json.loads(exported[3])] == [plain, calling]


def test_both_ways_of_sending_are_one_conversation(bench: Bench, client: Client) -> None:
    """A client may change from one to the other, with the name or with the id it was told."""
    first = client.chat([user("My name is Ada.")], conversation="mine")
    id_ = first.headers["x-tidemark-conversation"]
    second = client.chat([user("And I am 36.")], conversation="mine", **STORED)
    third = client.chat([user("Who am I?")], conversation=id_, **STORED)
    assert {second.headers["x-tidemark-conversation"], third.headers["x-tidemark-conversation"]} == {id_}
    assert [one["content"] for one in bench.upstream.last.messages] == [
        "My name is Ada.",
        "Hello there.",
        "And I am 36.",
        "Hello there.",
        "Who am I?",
    ]


def test_a_conversation_without_a_name_goes_on_by_its_id(bench: Bench, client: Client) -> None:
    """It was begun by a client that sends all."""
    id_ = client.chat([user("One.")]).headers["x-tidemark-conversation"]
    got = client.chat([user("Two.")], conversation=id_, **STORED)
    assert got.headers["x-tidemark-conversation"] == id_
    assert len(bench.upstream.last.messages) == 3


def test_system_messages_and_tools_hold_for_their_request(bench: Bench, client: Client) -> None:
    """Those at the beginning of the last request are kept where a request brings none; tools never are."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    body = {"model": "small", "messages": [system("Be brief."), user("One.")], "max_tokens": 100, "tools": tools}
    client.post(body, conversation="c", **STORED)
    client.chat([user("Two.")], conversation="c", **STORED)
    assert bench.upstream.last.messages[0] == system("Be brief.")
    assert "tools" not in bench.upstream.last.json
    client.chat([system("Be long."), user("Three.")], conversation="c", **STORED)
    roles = [one["role"] for one in bench.upstream.last.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert bench.upstream.last.messages[0] == system("Be long.")


def test_tool_results_alone_go_on_after_the_calls(bench: Bench, client: Client) -> None:
    """An agent sends results only; its calls are stored."""
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]

    def script(received: Received) -> Answer:
        last = received.messages[-1]["role"]
        return whole("Done.") if last == "tool" else whole("", content=None, tool_calls=calls)

    bench.upstream.script = script
    client.chat([user("Look.")], conversation="agent", **STORED)
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Nothing."}
    assert reply_of(client.chat([result], conversation="agent", **STORED)) == "Done."
    sent = bench.upstream.last.messages
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"] == calls
    assert sent[2] == result


@pytest.mark.parametrize("window", [1, 2, 5, 20, 100])
def test_an_overlapping_window_appends_nothing_twice(bench: Bench, client: Client, window: int) -> None:
    """Whatever part of the older messages a client sends along, the model gets each once."""
    counting(bench)
    said: list[Said] = []
    for turn in range(6):
        said.append(user(f"Question {turn}."))
        got = client.chat(said[-window:], conversation="windowed", **STORED)
        assert "x-tidemark-history-gap" not in got.headers
        said.append(assistant(reply_of(got)))
    plain = [{"role": one["role"], "content": one["content"]} for one in bench.upstream.last.messages]
    assert plain == said[:-1]


def test_what_both_do_not_know_is_told(client: Client) -> None:
    """In a header, and nothing is dropped of what is stored."""
    said = history(3, 20)
    client.chat([*said, user("Last.")], conversation="gap", **STORED)
    behind = client.chat([*said[-2:], user("From another window.")], conversation="gap", **STORED)
    assert behind.headers["x-tidemark-history-gap"] == "unseen=2"
    apart = client.chat([user("Elsewhere."), assistant("Yes."), user("And now?")], conversation="gap", **STORED)
    assert apart.headers["x-tidemark-history-gap"] == "unknown"


def test_a_lost_answer_is_asked_for_again_and_an_older_one_is_a_conflict(bench: Bench, client: Client) -> None:
    """The window ends with a question that was answered: once more, unless the user has gone on since."""
    counting(bench)
    client.chat([user("One.")], conversation="lost", **STORED)
    first = client.chat([assistant("Answer 0."), user("Two.")], conversation="lost", **STORED)
    again = client.chat([assistant("Answer 0."), user("Two.")], conversation="lost", **STORED)
    assert (reply_of(first), reply_of(again)) == ("Answer 1.", "Answer 2.")
    assert again.headers["x-tidemark-conversation"] != first.headers["x-tidemark-conversation"]
    client.chat([user("Three.")], conversation="lost", **STORED)
    assert [one["content"] for one in bench.upstream.last.messages] == [
        "One.",
        "Answer 0.",
        "Two.",
        "Answer 2.",
        "Three.",
    ]
    late = client.chat([assistant("Answer 0."), user("Two.")], conversation="lost", **STORED)
    assert (late.status_code, late.json()["error"]["code"]) == (409, "conversation_conflict")


def test_commands_work_and_are_not_stored(bench: Bench, client: Client) -> None:
    """The whole conversation is what they tell about."""
    client.chat([*history(3), user("Now.")], conversation="asked", **STORED)
    got = client.chat([user("/context")], conversation="asked", **STORED)
    assert "Messages: 8" in reply_of(got)
    client.chat([user("On.")], conversation="asked", **STORED)
    assert len(bench.upstream.last.messages) == 9


def test_an_unknown_id_is_404_and_an_unknown_name_begins(client: Client) -> None:
    """A name is the client's to give; an id is Tidemark's."""
    got = client.chat([user("Hello.")], conversation="0" * 48, **STORED)
    assert (got.status_code, got.json()["error"]["code"]) == (404, "conversation_not_found")
    assert client.chat([user("Hello.")], conversation="never heard of", **STORED).status_code == 200


def test_another_tenants_id_is_404_and_its_name_is_another_conversation(bench: Bench) -> None:
    """Nobody can tell whether there is one (promise 8)."""
    ada, bob = bench.client("history-ada"), bench.client("history-bob")
    id_ = ada.chat([user("A secret.")], conversation="diary", **STORED).headers["x-tidemark-conversation"]
    assert bob.chat([user("Hello.")], conversation=id_, **STORED).status_code == 404
    assert bob.chat([user("Hello.")], conversation="diary", **STORED).status_code == 200
    assert bench.upstream.last.messages == [user("Hello.")]


@pytest.mark.parametrize(
    ("asked", "status"), [({"history": "stored"}, 400), ({"history": "mine", "conversation": "c"}, 400)]
)
def test_a_history_without_a_conversation_is_refused(client: Client, asked: dict[str, str], status: int) -> None:
    """There is nothing to go on from."""
    got = client.chat([user("Hello.")], **asked)
    assert (got.status_code, got.json()["error"]["param"]) == (status, "X-Tidemark-History")


def test_a_refusal_of_the_upstream_ends_the_turn(bench: Bench, client: Client) -> None:
    """Nothing is stored, and the next request need not wait for a lease."""
    client.chat([user("One.")], conversation="refused", **STORED)
    bench.upstream.script = lambda _: error(429, "slow down")
    assert client.chat([user("Two.")], conversation="refused", **STORED).status_code == 429
    bench.upstream.script = says("Hello there.")
    assert client.chat([user("Two, again.")], conversation="refused", **STORED).status_code == 200
    assert len(bench.upstream.last.messages) == 3


def test_without_the_store_there_is_no_stored_history(bench: Bench) -> None:
    """Nobody knows the messages, so the request is not answered as if there were none."""
    client = bench.client("no-store", store="redis://127.0.0.1:1")
    got = client.chat([user("Hello.")], conversation="c", **STORED)
    assert (got.status_code, got.json()["error"]["code"]) == (503, "store_unavailable")
    assert got.headers["retry-after"] == "1"
    assert client.chat([user("Hello.")], conversation="c").status_code == 200


WAITING = WINDOW.lstrip("\n") + "history: {{on_conflict: wait}}\n"


async def at_once(client: Client, texts: list[str], *, stream: bool) -> list[httpx.Response]:
    """Several requests of one conversation at the same time."""
    async with httpx.AsyncClient(base_url=client.http.base_url, timeout=30, verify=NO_TLS) as http:

        async def one(text: str) -> httpx.Response:
            body = {"model": "small", "messages": [user(text)], "max_tokens": 100, "stream": stream}
            headers = client.headers(conversation="shared", **STORED)
            return await http.post("/v1/chat/completions", content=json.dumps(body), headers=headers)

        return await asyncio.gather(*map(one, texts))


def slow(bench: Bench) -> None:
    """An upstream that takes its time, and says what it was asked."""

    def script(request: Received) -> Any:
        text = f"To {request.messages[-1]['content']}"
        if request.json.get("stream"):
            return streamed(text, pace=0.02)
        answer = whole(text)
        answer.before_headers = 0.1
        return answer

    bench.upstream.script = script


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_of_two_turns_at_once_one_is_refused(bench: Bench, client: Client, stream: bool) -> None:  # noqa: FBT001
    """With 409, before a byte of an answer; the other one is stored whole."""
    slow(bench)
    got = await at_once(client, ["a", "b", "c"], stream=stream)
    assert sorted(one.status_code for one in got) == [200, 409, 409]
    refused = next(one for one in got if one.status_code == 409)
    assert refused.json()["error"]["code"] == "conversation_conflict"
    assert refused.headers["retry-after"] == "1"
    client.chat([user("After.")], conversation="shared", **STORED)
    assert len(bench.upstream.last.messages) == 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_turns_at_once_are_taken_one_after_the_other(bench: Bench, stream: bool) -> None:  # noqa: FBT001
    """Where that is the rule: none is lost, and each answer follows its question."""
    client = bench.client(f"waiting-{stream}", config=WAITING)
    slow(bench)
    got = await at_once(client, ["a", "b", "c", "d"], stream=stream)
    assert [one.status_code for one in got] == [200] * 4
    client.chat([user("After.")], conversation="shared", **STORED)
    said = [one["content"] for one in bench.upstream.last.messages]
    assert sorted(said[:-1:2]) == ["a", "b", "c", "d"]
    assert said[1::2] == [f"To {text}" for text in said[:-1:2]]


async def test_two_servers_share_the_turn(bench: Bench) -> None:
    """The lease is in the store, so it does not matter which worker a request comes to."""
    slow(bench)
    one, other = bench.client("two-servers"), bench.client("two-servers")
    first, second = await asyncio.gather(
        at_once(one, ["a"], stream=True),
        at_once(other, ["b"], stream=True),
    )
    assert sorted([first[0].status_code, second[0].status_code]) == [200, 409]


def test_a_client_that_leaves_has_said_what_it_said(bench: Bench, client: Client) -> None:
    """Its question is stored, the turn is over, and the question sent again is not asked twice."""
    bench.upstream.script = lambda _: streamed("slowly, slowly, slowly, slowly", pace=0.2)
    body = {"model": "small", "messages": [user("One.")], "max_tokens": 100, "stream": True}
    headers = client.headers(conversation="left", **STORED)
    with client.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        next(response.iter_bytes())
    bench.upstream.script = says("Hello there.")

    def again() -> bool:
        return client.chat([user("One.")], conversation="left", **STORED).status_code == 200

    wait_until(again)
    assert bench.upstream.last.messages == [user("One.")]


def test_half_a_character_can_be_gone_on_with_and_read(bench: Bench, client: Client) -> None:
    """JavaScript cuts emoji in two; what was stored so is sent so, and shown so."""
    body = b'{"model": "small", "messages": [{"role": "user", "content": "half \\ud83d"}]}'
    id_ = client.post(body, conversation="half", **STORED).headers["x-tidemark-conversation"]
    assert client.chat([user("On.")], conversation="half", **STORED).status_code == 200
    assert b"half \\ud83d" in bench.upstream.last.body
    shown = client.http.get(f"/tidemark/conversations/{id_}", headers=client.headers())
    assert shown.status_code == 200
    assert b"half \\ud83d" in shown.content


def test_a_turn_that_does_not_fit_is_refused_and_ends(client: Client) -> None:
    """The error is OpenAI's, and the conversation can go on."""
    client.chat([user("One.")], conversation="large", **STORED)
    got = client.chat([user("word " * 4000)], conversation="large", **STORED)
    assert (got.status_code, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert client.chat([user("Two.")], conversation="large", **STORED).status_code == 200
