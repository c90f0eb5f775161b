"""A turn of stored history that is sent again is one turn, and gets the answer of the first try."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest
import redis

from tests.request.conftest import WINDOW, Bench, Client
from tests.request.talk import user
from tests.support.scripted import Received, error, streamed, whole
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

WAITING = WINDOW + "history: {{on_conflict: wait}}\n"
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [user("One?")], "max_tokens": 100},
    "responses": {"input": [user("One?")], "max_output_tokens": 100},
    "messages": {"messages": [user("One?")], "max_tokens": 100},
}


def count_calls(bench: Bench) -> None:
    """An upstream that takes its time, and numbers its answers."""
    numbers = iter(range(100))
    usual = bench.upstream.script

    def script(request: Received) -> Any:
        text = f"Answer {next(numbers)}."
        if request.dialect != "chat":
            return usual(request)
        if request.json.get("stream"):
            return streamed(text, pace=0.02)
        answer = whole(text)
        answer.before_headers = 0.15
        return answer

    bench.upstream.script = script


async def send_all(client: Client, dialect: str, bodies: list[dict[str, Any]], **more: str) -> list[httpx.Response]:
    """Send requests of one stored conversation at once."""
    headers = {**client.headers(conversation="talk", history="stored"), **more}
    async with httpx.AsyncClient(base_url=client.http.base_url, timeout=30, verify=NO_TLS) as http:
        sending = [http.post(PATHS[dialect], json={"model": "small", **body}, headers=headers) for body in bodies]
        return list(await asyncio.gather(*sending))


def stored_texts(client: Client, conversation: str = "talk") -> list[str]:
    """What the conversation has by now."""
    shown = client.http.get(f"/tidemark/conversations/{conversation}", headers=client.headers()).json()
    return [one["message"]["content"] for one in shown["data"]]


@pytest.mark.parametrize("config", [WINDOW, WAITING], ids=["reject", "wait"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_the_same_messages_at_once_are_one_turn(bench: Bench, *, config: str, is_streamed: bool) -> None:
    """One call upstream, one answer for all in the same bytes, and the turn is stored once."""
    client = bench.client("at-once", config=config)
    count_calls(bench)
    body = BODIES["chat"] | ({"stream": True} if is_streamed else {})
    got = await send_all(client, "chat", [body] * 3)
    assert [one.status_code for one in got] == [200] * 3
    assert len({one.content for one in got}) == 1
    assert len({one.headers["x-tidemark-conversation"] for one in got}) == 1
    assert len(bench.upstream.received) == 1
    assert stored_texts(client) == ["One?", "Answer 0."]


@pytest.mark.parametrize("dialect", PATHS)
async def test_one_key_is_one_turn_in_every_dialect(bench: Bench, dialect: str) -> None:
    """Also after the first answer has come; another key, or none, is another turn."""
    client = bench.client(f"key-{dialect}")
    first = (await send_all(client, dialect, [BODIES[dialect]], **{"idempotency-key": "a"}))[0]
    again = (await send_all(client, dialect, [BODIES[dialect]], **{"idempotency-key": "a"}))[0]
    assert (again.status_code, again.content) == (first.status_code, first.content) == (200, first.content)
    assert len(bench.upstream.received) == 1
    await send_all(client, dialect, [BODIES[dialect]], **{"idempotency-key": "b"})
    await send_all(client, dialect, [BODIES[dialect]])
    assert len(bench.upstream.received) == 3


async def test_one_key_with_another_request_is_refused(client: Client) -> None:
    """It would get an answer to another question."""
    await send_all(client, "chat", [BODIES["chat"]], **{"idempotency-key": "a"})
    other = BODIES["chat"] | {"messages": [user("Two?")]}
    refused = (await send_all(client, "chat", [other], **{"idempotency-key": "a"}))[0]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "idempotency_key_reused")


async def test_a_refused_turn_is_tried_anew(bench: Bench, client: Client) -> None:
    """Only an answer that is stored is given again."""
    usual = bench.upstream.script
    bench.upstream.script = lambda _: error(500, "Down.")
    failed = (await send_all(client, "chat", [BODIES["chat"]], **{"idempotency-key": "a"}))[0]
    bench.upstream.script = usual
    again = (await send_all(client, "chat", [BODIES["chat"]], **{"idempotency-key": "a"}))[0]
    assert (failed.status_code, again.status_code) == (500, 200)


@pytest.mark.parametrize("config", [WINDOW, WAITING], ids=["reject", "wait"])
@pytest.mark.parametrize("key", [{}, {"idempotency-key": "a"}], ids=["no key", "one key"])
async def test_those_that_wait_for_a_try_that_fails_are_one_turn(
    bench: Bench, *, config: str, key: dict[str, str]
) -> None:
    """One of them is the next try, and the others get its answer."""
    client = bench.client("failing", config=config)
    numbers = iter(range(100))

    def script(_: Received) -> Any:
        number = next(numbers)
        return replace(whole(f"Answer {number}.") if number else error(500, "Down."), before_headers=0.3)

    bench.upstream.script = script
    got = await send_all(client, "chat", [BODIES["chat"]] * 4, **key)
    assert sorted(one.status_code for one in got) == [200, 200, 200, 500]
    assert len(bench.upstream.received) == 2
    assert stored_texts(client) == ["One?", "Answer 1."]


async def test_a_try_that_waits_too_long_does_not_make_a_key_forgotten(bench: Bench) -> None:
    """It is refused, as the turn is still under way; a later one gets the answer."""
    client = bench.client("late", config=WINDOW + "history: {{wait_seconds: 0.05}}\n")
    released = threading.Event()
    bench.upstream.script = lambda _: replace(streamed("Fine."), waits=[released])
    body = BODIES["chat"] | {"stream": True}
    first = asyncio.create_task(send_all(client, "chat", [body], **{"idempotency-key": "a"}))
    await asyncio.to_thread(wait_until, lambda: bool(bench.upstream.received))
    late = (await send_all(client, "chat", [body], **{"idempotency-key": "a"}))[0]
    released.set()
    answer = (await first)[0]
    again = (await send_all(client, "chat", [body], **{"idempotency-key": "a"}))[0]
    assert (late.status_code, again.status_code) == (409, 200)
    assert again.content == answer.content
    assert stored_texts(client) == ["One?", "Fine."]


async def test_a_client_that_leaves_at_the_last_event_has_the_turn(bench: Bench, client: Client) -> None:
    """SDKs close a stream at ``[DONE]``, and some upstreams end theirs later."""
    answer = streamed("Fine.")
    passed, held = threading.Event(), threading.Event()
    passed.set()
    bench.upstream.script = lambda _: replace(answer, waits=[*[passed] * (len(answer.pieces) - 1), held])
    body = {"model": "small", **BODIES["chat"], "stream": True}
    headers = {**client.headers(conversation="talk", history="stored"), "idempotency-key": "a"}
    seen = b""
    async with (
        httpx.AsyncClient(base_url=client.http.base_url, timeout=30, verify=NO_TLS) as http,
        http.stream("POST", PATHS["chat"], json=body, headers=headers) as first,
    ):
        async for piece in first.aiter_raw():
            seen += piece
            if b"[DONE]" in seen:
                break
    again = (await send_all(client, "chat", [BODIES["chat"] | {"stream": True}], **{"idempotency-key": "a"}))[0]
    held.set()
    assert again.content == seen
    assert len(bench.upstream.received) == 1
    assert stored_texts(client) == ["One?", "Fine."]


async def test_turns_without_a_key_do_not_make_a_key_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker remembers so many turns; one that is over and was not sent again takes no place."""
    monkeypatch.setattr("tidemark.pipeline.repeated_turns.MAX_TURNS", 2)
    client = bench.client("many")
    await send_all(client, "chat", [BODIES["chat"]], **{"idempotency-key": "a"})
    for number in range(3):
        await send_all(client, "chat", [BODIES["chat"] | {"messages": [user(f"{number}?")]}])
    await send_all(client, "chat", [BODIES["chat"]], **{"idempotency-key": "a"})
    assert len(bench.upstream.received) == 4


async def test_a_client_that_knows_of_another_number_of_messages_sends_another_turn(bench: Bench) -> None:
    """The same words at once with another ``known=N`` are not the same request; the second one is refused."""
    client = bench.client("known", config=WAITING)
    count_calls(bench)
    knowing = [{"x-tidemark-history": f"stored; known={count}"} for count in (0, 4)]
    got = await asyncio.gather(*[send_all(client, "chat", [BODIES["chat"]], **one) for one in knowing])
    assert [answers[0].status_code for answers in got] == [200, 409]
    assert stored_texts(client) == ["One?", "Answer 0."]


async def test_two_workers_store_a_repeated_turn_once(bench: Bench) -> None:
    """The second one waits for the first one's turn, and sees in the store that it was its own."""
    count_calls(bench)
    one, other = bench.client("two", config=WAITING), bench.client("two", config=WAITING)
    got = await asyncio.gather(*[send_all(client, "chat", [BODIES["chat"]]) for client in (one, other)])
    assert [answers[0].status_code for answers in got] == [200, 200]
    texts = stored_texts(one)
    assert texts[0] == "One?"
    assert len(texts) == 2


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_one_key_at_once_on_two_workers_is_one_call_upstream(bench: Bench, *, is_streamed: bool) -> None:
    """The second worker waits for the first one's turn, and finds its answer in the store."""
    count_calls(bench)
    one, other = bench.client("two-keyed", config=WAITING), bench.client("two-keyed", config=WAITING)
    body = BODIES["chat"] | ({"stream": True} if is_streamed else {})
    sending = [send_all(client, "chat", [body], **{"idempotency-key": "a"}) for client in (one, other)]
    got = [answers[0] for answers in await asyncio.gather(*sending)]
    assert [answer.status_code for answer in got] == [200, 200]
    assert got[0].content == got[1].content
    conversation = got[0].headers["x-tidemark-conversation"]
    assert got[1].headers["x-tidemark-conversation"] == conversation
    assert len(bench.upstream.received) == 1
    assert stored_texts(one, conversation) == ["One?", "Answer 0."]


async def test_another_worker_has_the_answer_of_the_newest_turn_with_a_key(bench: Bench) -> None:
    """After the first answer has come; another request with the key is refused, and another key is another turn."""
    one, other = bench.client("two-later"), bench.client("two-later")
    first = (await send_all(one, "chat", [BODIES["chat"]], **{"idempotency-key": "a"}))[0]
    again = (await send_all(other, "chat", [BODIES["chat"]], **{"idempotency-key": "a"}))[0]
    assert (again.status_code, again.content) == (200, first.content)
    assert len(bench.upstream.received) == 1
    changed = BODIES["chat"] | {"messages": [user("Two?")]}
    refused = (await send_all(other, "chat", [changed], **{"idempotency-key": "a"}))[0]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "idempotency_key_reused")
    await send_all(other, "chat", [changed], **{"idempotency-key": "b"})
    assert len(bench.upstream.received) == 2


def kept_answers(store: redis.Redis, answer: httpx.Response) -> list[bytes]:
    """The keys of the answers that the store has of an answer's conversation."""
    conversation = answer.headers["x-tidemark-conversation"]
    return list(store.scan_iter(match=f"tm:{{{conversation[:32]}}}:k:{conversation[32:]}"))


async def test_an_answer_is_forgotten_with_its_conversation(bench: Bench, store_url: str) -> None:
    """Nothing of it is left in the store, where it lies for ten minutes at most."""
    client = bench.client("two-forgotten")
    first = (await send_all(client, "chat", [BODIES["chat"]], **{"idempotency-key": "a"}))[0]
    with redis.Redis.from_url(store_url) as store:
        assert 0 < store.ttl(kept_answers(store, first)[0]) <= 600
        path = f"/tidemark/conversations/{first.headers['x-tidemark-conversation']}"
        assert client.http.delete(path, headers=client.headers()).status_code == 200
        assert not kept_answers(store, first)


async def test_an_answer_that_cannot_be_read_is_none(bench: Bench, store_url: str) -> None:
    """A later version may write it in another way; then the upstream is asked again."""
    one, other = bench.client("two-broken"), bench.client("two-broken")
    first = (await send_all(one, "chat", [BODIES["chat"]], **{"idempotency-key": "a"}))[0]
    with redis.Redis.from_url(store_url) as store:
        for packed in (b"\x02", b"\x01\x93"):
            store.set(kept_answers(store, first)[0], packed)
            again = (await send_all(other, "chat", [BODIES["chat"]], **{"idempotency-key": packed.hex()}))[0]
            assert again.status_code == 200
    assert len(bench.upstream.received) == 3
