"""Measures how long the console's pages take with 100,000 conversations stored and a million requests counted.

``make bench-console`` runs it. Tidemark, a Valkey of its own and a scripted upstream are separate processes. The
conversations and the figures are written by the store's own scripts, many at a time, so every record has its real
format. Each page is asked for repeatedly over one connection, and the times are those of the whole answer.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.open_tabs import WATCHED, measure_tabs
from benchmarks.speed.load import HOST
from benchmarks.speed.systems import TIDEMARK, UPSTREAM, start
from benchmarks.speed.work import WIDE
from tidemark.core.conversation.messages import Message, Role, digest_of
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.cursors import cursor_of
from tidemark.core.events import RequestServed
from tidemark.core.report import Report
from tidemark.core.traffic import MAX_NAMES, TrafficCell, TrafficFigures
from tidemark.features.request_log.facts import facts_of
from tidemark.features.request_log.store import MAX_ENTRY, RedisRequestLog
from tidemark.features.traffic.store import RedisTraffic
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.request_facts import RequestFacts

LIMIT_MS = 100.0
"""The bound of the overview, and of any page of the list and of the log: the 95th percentile."""
LIST, OVERVIEW, REQUESTS = "/console/conversations", "/console", "/console/requests"
LOGGED = 10_000
"""Requests of the log, as many as are stored by default."""
LONG = 5_000
"""Messages of the long conversation; its page has a second."""
TOGETHER = 500
TENANT = "0" * 32
WORDS = "The tide comes in twice a day, and the harbour master writes each high water into the book."


def message(role: Role, text: str) -> Message:
    """Make one message."""
    raw = json.dumps({"role": role, "content": text}).encode()
    return Message(raw=raw, role=role, text=text, digest=digest_of(role.encode(), text.encode()))


def turn(number: int, count: int, created_at: float) -> TurnRecord:
    """Make the only turn of a conversation.

    :param count: its messages
    """
    roles: tuple[Role, Role] = ("user", "assistant")
    messages = [message(roles[place % 2], f"{WORDS} {number}.{place}") for place in range(count)]
    chain = chain_of(TENANT, messages)
    return TurnRecord(
        tenant=TENANT,
        conversation=conversation_id(chain, 0),
        chain=chain,
        stored_count=0,
        messages=messages,
        tokens=[25] * count,
        complete=True,
        model=WIDE,
        action="none",
        tokens_before=25 * count,
        tokens_after=25 * count,
        summarized=0,
        created_at=created_at,
    )


async def seed(url: str, conversations: int, requests: int) -> str:
    """Store the conversations and figures; return the id of the long conversation, which is the newest."""
    store = RedisStore(url, Codec(), ttl_seconds=None, recall_timeout_seconds=60, record_timeout_seconds=60)
    now = time.time()
    for first in range(0, conversations - 1, TOGETHER):
        numbers = range(first, min(first + TOGETHER, conversations - 1))
        turns = [turn(number, 4, now - conversations + number) for number in numbers]
        await asyncio.gather(*(store.record(single) for single in turns))
    long = turn(conversations, LONG, now)
    newest = await store.record(long)
    await seed_log(store, long, now)
    await store.listing.settle()
    traffic, minutes = RedisTraffic(store.ask), 7 * 1440
    per_minute = max(requests // minutes, 1)
    for batch, place in enumerate(range(0, minutes, TOGETHER), 1):
        span = range(place, min(place + TOGETHER, minutes))
        await traffic.add("bench", batch, {cell(int(now // 60) - minute): figures(per_minute) for minute in span})
    await store.close()
    return newest


async def seed_log(store: RedisStore, long: TurnRecord, now: float) -> None:
    """Fill the log of requests; the newest one is that of the long conversation."""
    log = RedisRequestLog(store.ask, Codec(), LOGGED, 0)
    served = RequestServed("/v1/chat/completions", 200, "complete", 0.5, 0.1, WIDE, owner=TENANT, client=b"bench/1.0")

    def logged(of: TurnRecord, position: int, at: float) -> RequestFacts:
        newest = of.chain.hashes[position - 1]
        report = Report(of.conversation, TENANT, 100_000, "none", 4000, 4000, position=position, newest=newest)
        return facts_of(replace(served, report=report), at)

    for batch, first in enumerate(range(0, LOGGED, MAX_ENTRY), 1):
        numbers = range(first, min(first + MAX_ENTRY, LOGGED))
        facts = [logged(turn(number, 4, now), 3, now - LOGGED + number) for number in numbers]
        await log.add("bench", batch, {TENANT: facts}, now)
    await log.add("bench", batch + 1, {TENANT: [logged(long, LONG - 1, now)]}, now)


def cell(minute: int) -> TrafficCell:
    """Make a minute's place: the names take turns, and there are more tenants than have figures of their own."""
    return TrafficCell(minute, f"model-{minute % MAX_NAMES}", f"{minute % (2 * MAX_NAMES):032x}")


def figures(requests: int) -> TrafficFigures:
    """Make the figures of a minute."""
    single = TrafficFigures(requests=requests, tokens_before=4000 * requests, tokens_after=900 * requests)
    for place in range(requests):
        single.overheads[place % len(single.overheads)] += 1
        single.first_bytes[place % len(single.first_bytes)] += 1
    return single


class Visitor:
    """Opens pages over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._cookie = ""

    def open(self, path: str, form: dict[str, str] | None = None) -> tuple[float, str]:
        """Return the milliseconds that a page takes, and its text.

        :param form: the fields of a form to send; None to open the page only
        :raises RuntimeError: the answer is no page
        """
        body = None if form is None else urlencode(form)
        headers = {"cookie": self._cookie}
        if form is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        began = time.perf_counter()
        self._connection.request("GET" if form is None else "POST", path, body, headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        self._cookie = (response.getheader("set-cookie") or self._cookie).partition(";")[0]
        spent = 1000 * (time.perf_counter() - began)
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status}: {text[:400]}")
        return spent, text


def places(url: str, conversations: int) -> Iterator[tuple[str, str]]:
    """Return names and addresses of pages of the list, near its beginning and its end."""

    async def entry(rank: int) -> str:
        store = RedisStore(url, Codec(), ttl_seconds=None)
        pair = await store.ask("ZREVRANGE", "tm:i:all", rank, rank, "WITHSCORES")
        await store.close()
        member, score = pair[0] if isinstance(pair[0], list | tuple) else pair
        return cursor_of(float(score), member.decode())

    yield "list, first page", LIST
    for rank in (conversations // 2, conversations - 30):
        cursor = asyncio.run(entry(rank))
        yield f"list, after {rank:,} conversations", f"{LIST}?cursor={cursor}"
        yield f"list, newer than {rank:,} conversations", f"{LIST}?newer={cursor}"
    yield "requests, the newest", REQUESTS
    yield "requests, a model that none has", f"{REQUESTS}?model=none"
    yield "requests, of one tenant with a warning", f"{REQUESTS}?tenant={TENANT[:8]}&warnings=true"
    yield "list, a state that none has", f"{LIST}?state=critical"
    yield "list, a model that none has", f"{LIST}?model=none"


def show(name: str, times: Sequence[float], size: int) -> float:
    """Print the figures of a page, and return the 95th percentile."""
    ordered = sorted(times)
    p50, p95 = ordered[len(ordered) // 2], ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    print(f"{name:44} {p50:8.1f} {p95:8.1f} {ordered[-1]:8.1f} {size / 1000:8.0f}", flush=True)
    return p95


def main() -> int:
    """Measure, and return whether the overview and the pages of the lists are within their bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=30, help="how long open overviews are measured (default: 30)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-console-") as folder, EmbeddedValkey(Path(folder) / "s") as store:
        began = time.perf_counter()
        newest = asyncio.run(seed(store.url, options.conversations, options.requests))
        print(f"{options.conversations:,} conversations stored in {time.perf_counter() - began:.0f} s")
        system = replace(TIDEMARK, environ=lambda _: {"TIDEMARK_STORE_URL": store.url})
        upstream = start(UPSTREAM, "", Path(folder) / "upstream")
        tidemark = start(system, f"http://{HOST}:{upstream.port}", Path(folder) / "tidemark")
        try:
            failures = measure(tidemark.port, store.url, newest, options)
            tabs = [measure_tabs(tidemark.port, tidemark.pid, options.seconds, watched) for watched in WATCHED]
            return failures or (0 if all(tabs) else 1)
        finally:
            tidemark.stop()
            upstream.stop()


def measure(port: int, url: str, newest: str, options: argparse.Namespace) -> int:
    """Ask for every page, and print a line for each."""
    visitor, worst = Visitor(port), 0.0
    print(f"{'page':44} {'p50, ms':>8} {'p95, ms':>8} {'most':>8} {'KB':>8}")
    windows = [(f"overview, last {window}", f"{OVERVIEW}?window={window}") for window in ("hour", "day", "week")]
    windows += [(f"{name}, of a model", f"{path}&of=model:model-1") for name, path in windows]
    for name, path in [*windows, *places(url, options.conversations)]:
        answers = [visitor.open(path) for _ in range(options.rounds)]
        worst = max(worst, show(name, [spent for spent, _ in answers], len(answers[0][1])))
    path = f"{LIST}/{newest}"
    answers = [visitor.open(path) for _ in range(max(options.rounds // 4, 1))]
    show(f"a conversation of {LONG:,} messages", [spent for spent, _ in answers], len(answers[0][1]))
    address = re.findall(rf'href="({REQUESTS}/[^"]+)"', visitor.open(f"{REQUESTS}?conversation={newest}")[1])[0]
    forms = [visitor.open(address) for _ in range(max(options.rounds // 4, 1))]
    show("both forms of a request of such a one", [spent for spent, _ in forms], len(forms[0][1]))
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', answers[0][1])
    for words in ("harbour master", "whale"):
        form = {"csrf": token[1] if token else "", "words": words}
        answers = [visitor.open(LIST, form) for _ in range(max(options.rounds // 4, 1))]
        show(f"a search for {words!r}", [spent for spent, _ in answers], len(answers[0][1]))
    print(f"overview and lists within {LIMIT_MS:.0f} ms: {'yes' if worst <= LIMIT_MS else 'no'}")
    return 0 if worst <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
