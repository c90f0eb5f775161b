"""A console with content like that of a real one: what the pictures of the documentation show.

Everything in it is made up. The conversations go through the proxy, and their summaries are made and edited by it; only
the figures of the hours before are written into the store.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from bisect import bisect_left
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from redis.asyncio import Redis

from tests.console.conftest import TOKEN, Console
from tests.request.talk import Said, assistant, system, user
from tests.support.scripted import Received, refuses, says
from tidemark.core.bill import NANO, BillFigures
from tidemark.core.traffic import FIRST_BYTE_BOUNDS, TrafficCell, TrafficFigures
from tidemark.features.bill.store import RedisDays
from tidemark.features.traffic.store import RedisTraffic

CONFIG = """
model_list:
  - model_name: gpt-5-mini
    litellm_params: {{model: openai/gpt-5-mini, api_base: "{base}"}}
    model_info: {{max_input_tokens: 16000, max_output_tokens: 1000}}
  - model_name: qwen3-32b
    litellm_params: {{model: openai/qwen3-32b, api_base: "{base}"}}
    model_info: {{max_input_tokens: 32768, max_output_tokens: 2048}}
  - model_name: mistral-small
    litellm_params: {{model: openai/mistral-small, api_base: "{base}"}}
    model_info: {{max_input_tokens: 8192, max_output_tokens: 1024}}
compaction:
  defaults: {{strategy: {strategy}, threshold: 0.9, retention_tokens: 1500, min_tokens: 300{more}}}
"""
CONTENT: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""The texts: the long conversation ``talk`` with its ``summary``, and of ``others`` the names, models and lengths."""


def filler(seed: int, words: int) -> str:
    """A text of so many words that is like no other."""
    chance = random.Random(seed)
    return f"Note {seed}: " + " ".join(chance.choice(CONTENT["words"].split()) for _ in range(words))


def invoice_talk() -> list[Said]:
    """A long conversation with calls of tools, without its last answer."""
    said: list[Said] = [system(CONTENT["preface"])]
    for number, turn in enumerate(CONTENT["talk"], 1):
        said.append(user(turn["question"]))
        if turn["tool"]:
            arguments = json.dumps({"host": "batch-2", "date": "2026-11-17", "lines": 200 * number})
            call = {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": turn["tool"], "arguments": arguments},
            }
            said.append({"role": "assistant", "content": None, "tool_calls": [call]})
            lines = "\n".join(CONTENT["log"])
            log = "\n".join(lines.format(place % 6, 524_288 + 977 * place * number) for place in range(10))
            said.append({"role": "tool", "tool_call_id": f"call_{number}", "content": log})
        said.append(assistant(turn["reply"]))
    return said[:-1]


def respond(request: Received) -> Any:
    """Answer as a model, and write the summary where one is asked for."""
    is_summarizer = "You summarize" in str(request.messages[0]["content"])
    questions = {turn["question"]: turn["reply"] for turn in CONTENT["talk"]}
    reply = questions.get(
        request.messages[-1]["content"], "Each berth has its own line, with the rule that was applied."
    )
    return says("\n".join(CONTENT["summary"]) if is_summarizer else reply)(request)


def fill(console: Console) -> str:
    """Fill a console; returns the id of the long conversation, whose summary was edited once."""
    console.upstream.script = respond
    client = console.client()
    for place, other in enumerate(CONTENT["others"]):
        said: list[Said] = []
        for number in range(other["exchanges"]):
            seed = 1000 * place + number
            said += [user(filler(seed, other["words"])), assistant(filler(seed + 500, other["words"]))]
        asked = [*said, user("And what follows from that?")]
        named = {"conversation": other["name"]} if other["name"] else {}
        assert client.chat(asked, model=other["model"], **named).status_code == 200
    said = invoice_talk()
    answer: httpx.Response | None = None
    for end in (number for number, message in enumerate(said, 1) if message["role"] == "user"):
        answer = client.chat(said[:end], model="gpt-5-mini", conversation="Invoice export")
        assert answer.status_code == 200, answer.text
    assert answer is not None
    console.settle()
    conversation = str(answer.headers["x-tidemark-conversation"])
    admin = {"authorization": f"Bearer {TOKEN}"}
    own = f"{console.url}/tidemark/conversations/{conversation}"
    for path, body in (
        ("summarize", {"retention_tokens": 3000}),
        ("summaries", {"text": "\n".join(CONTENT["edited"])}),
    ):
        done = httpx.post(f"{own}/{path}", json=body, headers=admin, timeout=30)
        assert done.status_code == 200, done.text
    send_others(console)
    httpx.put(f"{console.url}/tidemark/models/openai:qwen3-32b", json={"threshold": 0.8}, headers=admin, timeout=30)
    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        pool.submit(lambda: asyncio.run(write_figures(console.store.url))).result()
    return conversation


def send_others(console: Console) -> None:
    """Send the requests of other programs, some of which are refused or fail."""
    for agent, key, path, body in CONTENT["requests"]:
        headers = {"user-agent": agent, "authorization": f"Bearer {key}", "x-tidemark-keep": "none"}
        console.upstream.script = (
            refuses(503, "The model is overloaded.") if body.get("user") == "overload" else respond
        )
        httpx.post(f"{console.url}{path}", json=body, headers=headers, timeout=30)
    console.upstream.script = respond


async def write_figures(url: str) -> None:
    """Write the figures of the last 26 hours, minute by minute: quiet at night, with a busy forenoon."""
    chance = random.Random(7)
    now = int(time.time() // 60)
    async with Redis.from_url(url) as client:
        traffic = RedisTraffic(client.execute_command)
        minutes = {
            TrafficCell(now - age, model, tenant): minute_figures(now - age, chance, share, seconds)
            for age in range(1, 26 * 60)
            for model, tenant, share, seconds in CONTENT["shares"]
        }
        for batch, first in enumerate(range(0, len(minutes), 300), 1):
            await traffic.add("scene", batch, dict(list(minutes.items())[first : first + 300]))
        today = now // 1440
        days = {(today - age, "gpt-5"): day_figures(chance) for age in range(7)}
        await RedisDays(client.execute_command).add("scene", 1, days)


def day_figures(chance: random.Random) -> BillFigures:
    """What the requests of one day cost."""
    paid = round(chance.uniform(5, 9) * NANO)
    share = chance.uniform(1.2, 1.6)
    return BillFigures(
        requests=9000, requests_nano=paid, summaries_nano=paid // 50, uncompacted_nano=round(paid * share)
    )


def minute_figures(minute: int, chance: random.Random, share: float, seconds: float) -> TrafficFigures:
    """The figures of one minute, of a model and a tenant.

    :param share: of all requests
    :param seconds: until the model begins to answer, at half of them
    """
    hour = minute / 60 % 24
    load = 2 + 16 * math.exp(-(((hour - 10.5) / 2.4) ** 2)) + 12 * math.exp(-(((hour - 15.5) / 2.2) ** 2))
    load *= share
    requests = max(0, round(chance.gauss(load, share + load / 8)))
    before = sum(round(chance.lognormvariate(8.6, 0.5)) for _ in range(requests))
    saved = round(before * min(0.62, 0.3 + load / share / 60))
    compacted = sum(chance.random() < 0.05 for _ in range(requests))
    figures = TrafficFigures(
        requests=requests,
        tokens_before=before,
        tokens_after=before - saved,
        tokens_saved=saved,
        compacted=compacted,
        forced=sum(chance.random() < 0.004 for _ in range(requests)),
        failed=sum(chance.random() < 0.0006 for _ in range(requests)),
        summarizer_failures=sum(chance.random() < 0.0012 for _ in range(requests)),
        cached_tokens=round((before - saved) * chance.uniform(0.55, 0.72)),
    )
    for _ in range(requests):
        figures.overheads[min(max(round(chance.gauss(11.5 + load / share / 12, 2.2)), 4), 26)] += 1
        first_byte = seconds * chance.lognormvariate(load / share / 60, 0.45)
        figures.first_bytes[bisect_left(FIRST_BYTE_BOUNDS, first_byte)] += 1
    return figures
