"""Measures what a conversation takes of the store, and whether a large store answers as fast as a small one.

``make bench-scale`` runs it, with a Valkey of its own for each size. Conversations are written by the store's own
scripts, so every record has its real format. Lookups and turns of all sizes alternate, so other load on the machine
concerns each of them alike. `docs/deployment.md` reckons with these figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import redis.asyncio

from benchmarks.counting import machine
from tidemark.core.conversation.messages import Message, Role, digest_of
from tidemark.core.conversation.prefix import chain_of, conversation_id
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.summary import SummaryRecipe
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey

RECIPE = SummaryRecipe("extractive", "general", 1)
TENANTS = 100
TOGETHER = 500
"""How many turns are written at a time."""
ROLES: tuple[Role, Role] = ("user", "assistant")
ROOT = Path(__file__).parents[1]


def prose() -> str:
    """Return English text: the documentation."""
    return " ".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))


def source() -> str:
    """Return program text, as an agent's tools return it."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "proxy" / "tidemark").rglob("*.py")))


def listing() -> str:
    """Return lines of JSON, as logs have them."""
    lines = (
        {"event": "request.served", "seconds": place * 0.013 % 7, "tokens": place % 997} for place in range(40_000)
    )
    return "\n".join(map(json.dumps, lines))


def message(place: int, text: str) -> Message:
    """Make one message, a user's or an assistant's by its place."""
    role = ROLES[place % 2]
    raw = json.dumps({"role": role, "content": text}).encode()
    return Message(raw=raw, role=role, text=text, digest=digest_of(role.encode(), text.encode()))


def turn(number: int, messages: Sequence[Message], stored: int = 0, conversation: str | None = None) -> TurnRecord:
    """Make a turn of a conversation.

    :param stored: how many of the messages were stored before
    :param conversation: its id; None where it begins
    """
    chain = chain_of(tenant_of(number), messages)
    return TurnRecord(
        tenant=tenant_of(number),
        conversation=conversation or conversation_id(chain, 0),
        chain=chain,
        stored_count=stored,
        messages=messages,
        tokens=[25] * len(messages),
        complete=True,
        model="gpt-4o",
        action="none",
        tokens_before=25 * len(messages),
        tokens_after=25 * len(messages),
        summarized=0,
        created_at=time.time(),
        usage={"prompt_tokens": 25 * len(messages), "completion_tokens": 25},
    )


def tenant_of(number: int) -> str:
    """Return the tenant of a conversation, one of a hundred."""
    return f"{number % TENANTS:032x}"


def small(number: int, count: int = 2) -> list[Message]:
    """Make the messages of a small conversation."""
    return [message(place, f"Conversation {number} has message {place}, and it is short.") for place in range(count)]


@dataclass
class Filled:
    """A store with conversations in it."""

    url: str
    codec: Codec = field(default_factory=Codec)
    count: int = 0

    def __post_init__(self) -> None:
        """Open the store."""
        self.store = RedisStore(
            self.url, self.codec, ttl_seconds=None, recall_timeout_seconds=60, record_timeout_seconds=60
        )
        self.lookups: list[float] = []
        self.records: list[float] = []

    async def fill(self, turns: Sequence[TurnRecord]) -> None:
        """Store conversations of one turn each."""
        for batch in _batches(turns):
            await asyncio.gather(*(self.store.record(single) for single in batch))
        await self.store.listing.settle()
        await self.store.usage.settle()

    async def grow(self, count: int) -> None:
        """Store small conversations until there are ``count``."""
        for first in range(self.count, count, 20 * TOGETHER):
            numbers = range(first, min(first + 20 * TOGETHER, count))
            await self.fill([turn(number, small(number)) for number in numbers])
        self.count = count

    async def ask(self, number: int) -> None:
        """Go on with a stored conversation: look it up, and store a turn."""
        messages = small(number)
        count = len(messages)
        messages += [message(2, f"And then? {time.perf_counter_ns()}"), message(3, "Then it ended.")]
        chain = chain_of(tenant_of(number), messages[:3])
        began = time.perf_counter()
        stored = await self.store.recall(chain, RECIPE)
        ended = time.perf_counter()
        assert stored.stored_count >= count
        record = turn(number, messages, stored.stored_count, stored.conversation)
        prepared = time.perf_counter()
        await self.store.record(record)
        self.records.append(time.perf_counter() - prepared)
        self.lookups.append(ended - began)

    async def memory(self) -> int:
        """Return the bytes of all keys and values."""
        async with redis.asyncio.Redis.from_url(self.url) as admin:
            facts = await admin.info("memory")
        return int(facts["used_memory_dataset"])

    async def aclose(self) -> None:
        """Close the connections."""
        await self.store.close()


def _batches(turns: Sequence[TurnRecord]) -> list[Sequence[TurnRecord]]:
    return [turns[first : first + TOGETHER] for first in range(0, len(turns), TOGETHER)]


async def bytes_of(server: EmbeddedValkey, codec: Codec, conversations: int, texts: Sequence[Sequence[str]]) -> float:
    """Return the bytes that a conversation takes, of those whose messages are ``texts`` in turn."""
    filled = Filled(server.url, codec)
    try:
        before = await filled.memory()
        talks = [
            [message(place, text) for place, text in enumerate(texts[number % len(texts)])]
            for number in range(conversations)
        ]
        await filled.fill(
            [turn(number, [message(0, f"talk {number} {time.time_ns()}"), *talk]) for number, talk in enumerate(talks)]
        )
        return (await filled.memory() - before) / conversations
    finally:
        await filled.aclose()


def talks_of(text: str, length: int, count: int, different: int = 40) -> list[list[str]]:
    """Cut conversations of ``count`` messages of ``length`` characters out of a text."""
    starts = random.Random(length)
    return [
        [text[start : start + length] for start in (starts.randrange(len(text) - length) for _ in range(count))]
        for _ in range(different)
    ]


async def print_memory(folder: Path) -> None:
    """Print bytes by length and kind of the messages, both ways."""
    print(
        f"{'messages':10} {'of':>7} {'characters':12} {'as it is':>10} {'zstd':>8} {'saved':>6}  bytes a conversation"
    )
    kinds = {"prose": prose(), "program": source(), "log lines": listing()}
    cases = [(2, 100, "prose"), (20, 100, "prose"), (200, 100, "prose"), (20, 500, "prose")]
    cases += [(20, length, kind) for kind in kinds for length in (2000, 8000)]
    with ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedValkey(folder / name)) for name in ("plain", "zstd")]
        codecs = [Codec(compress_messages=False), Codec()]
        for count, length, kind in cases:
            talks = talks_of(kinds[kind], length, count)
            number = max(40, 40_000 // count // (1 + length // 1000))
            sizes = [
                await bytes_of(server, codec, number, talks) for server, codec in zip(servers, codecs, strict=True)
            ]
            saved = 1 - sizes[1] / sizes[0]
            print(f"{count:<10} {length:>7} {kind:12} {sizes[0]:>10,.0f} {sizes[1]:>8,.0f} {saved:>6.0%}", flush=True)


async def print_times(folder: Path, sizes: Sequence[int], requests: int) -> None:
    """Print the times of lookups and turns by the number of stored conversations."""
    async with AsyncExitStack() as stack:
        stores = []
        for size in sizes:
            server = stack.enter_context(EmbeddedValkey(folder / str(size)))
            stores.append(Filled(server.url))
            stack.push_async_callback(stores[-1].aclose)
            began = time.monotonic()
            await stores[-1].grow(size)
            print(
                f"# {size:,} conversations stored in {time.monotonic() - began:.0f} s, "
                f"{await stores[-1].memory() / size:,.0f} bytes each",
                flush=True,
            )
        numbers = random.Random(1)
        for _ in range(requests):
            for filled in numbers.sample(stores, len(stores)):  # nobody always comes first
                await filled.ask(numbers.randrange(filled.count))
        print(f"{'conversations':>13} {'lookup ms, p95':>16} {'ratio':>6} {'turn ms, p95':>16} {'ratio':>6}")
        for filled in stores:
            lookups = _cells(filled.lookups, stores[0].lookups)
            print(f"{filled.count:>13,} {lookups} {_cells(filled.records, stores[0].records)}")


def _cells(times: Sequence[float], first: Sequence[float]) -> str:
    """Write median and 95th percentile in milliseconds, and the median's ratio to that of the smallest store."""
    median, high = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    return f"{1e3 * median:>7.3f}, {1e3 * high:>7.3f} {median / statistics.median(first):>6.2f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--requests", type=int, default=2_000, help="lookups and turns for each size")
    parser.add_argument("--only", choices=["memory", "times"])
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "times":
            asyncio.run(print_memory(Path(folder)))
        if arguments.only != "memory":
            asyncio.run(print_times(Path(folder), arguments.conversations, arguments.requests))


if __name__ == "__main__":
    main()
