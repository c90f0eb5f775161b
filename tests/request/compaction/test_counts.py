"""Counts: those told of a request are of what is forwarded, and they are kept, so that nobody counts again."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

import httpx
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.histories import conversations, message
from tests.request.conftest import WINDOW, Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.examples import examples
from tests.support.scripted import says
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.tokens import LocalTokenCounter

LONG = "a sentence of some length that repeats itself. " * 900
FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
BILLED: list[dict[str, Any]] = [
    {},
    TOOLS,
    {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "look"}}},
    {**TOOLS, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
    {"functions": [FUNCTION], "function_call": {"name": "look"}},
    {"tools": [{"type": "custom", "custom": {"name": "c"}}]},
]
"""Beside the messages. Functions are told in the first system message, whosever that is."""
CREDENTIALS = map(str, count())


def same(bench: Bench, client: Client, said: list[Said], billed: dict[str, Any], **asked: str) -> httpx.Response | None:
    """Hold the header against a count of the very body that was forwarded; None where the request is refused."""
    before = len(bench.upstream.received)
    got = client.post({"model": "small", "messages": said, "max_tokens": 100, **billed}, **asked)
    if got.status_code != 200:
        assert got.json()["error"]["code"] == "context_length_exceeded"
        assert len(bench.upstream.received) == before
        return None
    sent = client.http.post("/tidemark/count", content=bench.upstream.last.body).json()["input_tokens"]
    assert int(got.headers["x-tidemark-tokens-after"]) == sent, (got.headers["x-tidemark-action"], billed)
    whole = client.http.post(
        "/tidemark/count", json={"model": bench.upstream.last.json["model"], "messages": said} | billed
    )
    assert int(got.headers["x-tidemark-tokens-before"]) == whole.json()["input_tokens"]
    return got


@pytest.mark.parametrize("billed", BILLED, ids=lambda billed: "+".join(billed) or "nothing")
@pytest.mark.parametrize(
    "place", [None, 0, 1, 6, -1], ids=["no system", "system first", "system inside", "further inside", "system late"]
)
def test_tokens_after_are_those_of_the_forwarded_body(
    bench: Bench, client: Client, place: int | None, billed: dict[str, Any]
) -> None:
    """Whatever is done to a request, and wherever the system message stands that takes the tools in."""

    def put(said: list[Said]) -> list[Said]:
        placed = [*said]
        if place is not None:
            placed.insert(place if place >= 0 else len(said) - 1, system("It is noon,\nand all is well!!"))
        return placed

    bench.upstream.script = says("Fine.")
    short, talk = [*history(3), user("And?")], [*history(20), user("Now?")]
    seen = [
        same(bench, client, put(short), billed),
        same(bench, client, put(short), billed, summarize="force", retention_tokens="10"),
        same(bench, client, put(talk), billed),
        same(bench, client, [*put(talk), assistant("Fine."), user("So?")], billed),
        same(bench, client, put(talk), billed, summarize="off"),
    ]
    actions = [got.headers["x-tidemark-action"] for got in seen if got]
    assert actions[:4] == ["none", "forced", "compacted", "reused"]
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    work: list[Said] = [{"role": "assistant", "content": None, "tool_calls": calls}]
    work.append({"role": "tool", "tool_call_id": "c", "content": long(7, 9000)})
    got = same(bench, client, [*put(talk), *work, user("And?")], billed)
    assert got
    assert got.headers["x-tidemark-action"] == "compacted"
    calls.append({**calls[0], "id": "d"})
    work.append({"role": "tool", "tool_call_id": "d", "content": "short"})
    got = same(bench, client, [*put(talk), *work], billed)
    assert got
    assert "clipped" in got.headers["x-tidemark-warning"]


@pytest.mark.parametrize("model", ["gpt-4o-scripted", "claude-scripted"], ids=["exact", "estimated"])
def test_tokens_after_are_exact_for_any_conversation(bench: Bench, model: str) -> None:
    """Random talks, tools and system messages at odd places, by a tokenizer of the model's own and by an estimate."""
    client = bench.client("any", config=WINDOW.replace("openai/scripted", f"openai/{model}"), window=1200)
    bench.upstream.script = says("Fine.")

    @given(conversations(), st.sampled_from(BILLED), st.sampled_from(["auto", "force"]))
    @settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def hold(messages: list[Any], billed: dict[str, Any], first: str) -> None:
        one = Client(client.http, next(CREDENTIALS))
        said = [json.loads(each.raw) for each in messages]
        same(bench, one, said, billed, summarize=first)
        same(bench, one, [*said, assistant("Fine."), user("So?")], billed)

    hold()


def test_a_worker_takes_over_the_counts_of_another(bench: Bench, store_url: str) -> None:
    """A count that is stored beside the message is believed, where the rules are the same and the bytes, too."""
    client = bench.client("counts", window=20_000)
    first = client.chat([user("hi")]).headers["x-tidemark-conversation"]

    async def plant(text: str, tokens: int) -> None:
        store = RedisStore(store_url, Codec(), ttl_seconds=60)
        told = await store.conversation(first)
        assert told is not None
        said = [message(**user(text)), message(**assistant("Fine."))]
        mark = (
            await LocalTokenCounter().count(ModelRequest(b"", {}, "m", tuple(said), ChatDialect()), "scripted")
        ).scheme
        chain = chain_of(told.tenant, said)
        await store.record(
            TurnRecord(
                told.tenant,
                "",
                chain,
                0,
                said,
                (tokens, 6),
                complete=True,
                model="small",
                action="none",
                tokens_before=0,
                tokens_after=0,
                summarized=0,
                created_at=1.0,
                scheme=mark,
            )
        )
        await store.close()

    asyncio.run(plant(LONG, 777))
    got = client.chat([user(LONG), assistant("Fine."), user("Go on.")])
    assert int(got.headers["x-tidemark-tokens-before"]) == 777 + 6 + 7 + 3
    asyncio.run(plant(LONG + "!", 1))
    got = client.chat([user(LONG + "!"), assistant("Fine."), user("Go on.")])
    assert int(got.headers["x-tidemark-tokens-before"]) > 5000, "a count below the least is not believed"


def test_a_long_new_message_reads_nothing_of_what_is_remembered(bench: Bench, store_url: str) -> None:
    """Work grows with the new messages only: what is new is not stored yet, and what is stored is remembered."""
    client = bench.client("warm", window=60_000)
    said = [user(LONG)]
    reads = []
    with redis.Redis.from_url(store_url) as server:
        for text in (LONG, LONG, "short", LONG):
            before = server.info("commandstats").get("cmdstat_lrange", {}).get("calls", 0)
            assert client.chat(said).status_code == 200
            reads.append(server.info("commandstats").get("cmdstat_lrange", {}).get("calls", 0) - before)
            said += [assistant("Hello there."), user(f"{len(said)} {text}")]
    assert len(set(reads[1:])) == 1, "a turn reads as much of lists whether its newest message is long or short"
