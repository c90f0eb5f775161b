"""Makes the works that every system performs. They are new for each round, with equal bytes in equal order for all.

Texts consist of common words from a seeded generator. Every message contains the tag of its round, so no cache has it
from an earlier round. Histories grow as clients' do: each request sends the whole conversation and one turn more.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from benchmarks.speed.upstream import REPLY

WIDE, NARROW = "bench", "bench-narrow"
"""Two names of the scripted model: one with a window for everything, and one with ``NARROW_TOKENS``."""
WIDE_TOKENS, NARROW_TOKENS = 1_000_000, 64_000
CHAT_PATH = "/v1/chat/completions"
TEXT = """
the a to of and in that for with on this as are be from was by an have not or which can when will more if one all
about up time there into only new some could these two may then first other do any should after how work use need
server request file table index value error change build test branch review deploy client window token message
"""
WORDS = TEXT.split()


@dataclass(frozen=True)
class Batch:
    """The bodies of one round of a work."""

    measured: list[bytes]
    before: list[bytes] = field(default_factory=list)
    """The bodies that are sent one after another before the measurement."""


@dataclass(frozen=True)
class Work:
    """A work with its size."""

    name: str
    title: str
    make: Callable[[str], Batch]
    """Makes a batch from a tag that is unique to its round."""
    concurrency: int = 1
    limit_seconds: float = 60.0
    """The time limit in seconds; a slower system is measured by its answers within it."""
    action: str = "none"
    """The action that Tidemark must report; empty where it only carries."""
    path: str = CHAT_PATH
    """The path of its requests; peers know that of chat completions only."""
    ours: bool = False
    """Whether only Tidemark and its bounds perform the work, because peers lack the feature or would take hours."""
    repeats: int = 1
    """The repetitions in each round, for short works."""
    rounds: int | None = None
    """The most rounds, which are the last ones, for works that take long and change the processes."""


class Talk:
    """A growing conversation."""

    def __init__(self, tag: str, size: int = 440) -> None:
        self._chance = random.Random(tag)
        self._tag = tag
        self._size = size
        self._parts: list[str] = []

    def say(self, role: str, text: str) -> None:
        """Add a message."""
        self._parts.append(json.dumps({"role": role, "content": text}))

    def text(self, size: int) -> str:
        """Make a unique text of about so many bytes."""
        words = [f"{self._tag}.{len(self._parts)}:", *self._chance.choices(WORDS, k=size // 5)]
        return " ".join(words)[:size]

    def turn(self, size: int = 0) -> None:
        """Add the upstream's answer and the user's next question."""
        if self._parts:
            self.say("assistant", REPLY)
        self.say("user", self.text(size or self._size))

    def fill(self, messages: int) -> None:
        """Add messages of both sides, ending with the user's."""
        while len(self._parts) < messages - 1:
            self.say("assistant" if len(self._parts) % 2 else "user", self.text(self._size))
        if len(self._parts) % 2:
            self._parts.pop()
        self.say("user", self.text(self._size))

    def body(self, model: str = WIDE) -> bytes:
        """Return the request's body, without streaming."""
        return b'{"model": "%b", "messages": [%b]}' % (model.encode(), ", ".join(self._parts).encode())


def small(count: int) -> Callable[[str], Batch]:
    """Make requests with one short message each, so that every request begins a conversation."""

    def make(tag: str) -> Batch:
        bodies = []
        for place in range(count):
            talk = Talk(f"{tag}-{place}")
            talk.say("user", talk.text(60))
            bodies.append(talk.body())
        return Batch(bodies)

    return make


def small_in(member: str, more: str = "") -> Callable[[str], Batch]:
    """Make the same requests in another format, whose text stands in ``member``."""

    def make(tag: str) -> Batch:
        bodies = []
        for place in range(100):
            text = json.dumps(Talk(f"{tag}-{place}").text(60))
            value = text if member == "input" else f'[{{"role": "user", "content": {text}}}]'
            bodies.append(f'{{"model": "{WIDE}", {more}"{member}": {value}}}'.encode())
        return Batch(bodies)

    return make


def history(messages: int, size: int, talks: int, turns: int, model: str = WIDE) -> Callable[[str], Batch]:
    """Make conversations that the system knows, each growing by a turn with every request."""

    def make(tag: str) -> Batch:
        before, measured = [], []
        for place in range(talks):
            talk = Talk(f"{tag}-{place}", size - 36)
            talk.fill(messages)
            before.append(talk.body(model))
            for _ in range(turns):
                talk.turn()
                measured.append(talk.body(model))
        return Batch(measured, before)

    return make


def unseen(messages: int, size: int, count: int) -> Callable[[str], Batch]:
    """Make long conversations that are new to the system."""

    def make(tag: str) -> Batch:
        bodies = []
        for place in range(count):
            talk = Talk(f"{tag}-{place}", size - 36)
            talk.fill(messages)
            bodies.append(talk.body())
        return Batch(bodies)

    return make


def crossing(count: int, *, ready: int = 490, size: int = 467, jump: int = 60_000) -> Callable[[str], Batch]:
    """Make conversations with a prepared summary, and then the turn that crosses the high water."""

    def make(tag: str) -> Batch:
        before, measured = [], []
        for place in range(count):
            talk = Talk(f"{tag}-{place}", size - 36)
            talk.fill(ready)
            before.append(talk.body(NARROW))
            talk.turn(jump)
            measured.append(talk.body(NARROW))
        return Batch(measured, before)

    return make


def streams(count: int, chunks: int, pace_ms: int = 0) -> Callable[[str], Batch]:
    """Make short questions with long answers."""

    def make(tag: str) -> Batch:
        bodies = []
        for place in range(count):
            text = f"{tag}-{place}: tell it in chunks={chunks} pace={pace_ms}"
            value = {"model": WIDE, "stream": True, "stream_options": {"include_usage": True}}
            bodies.append(json.dumps({**value, "messages": [{"role": "user", "content": text}]}).encode())
        return Batch(bodies)

    return make


def works(*, quick: bool) -> list[Work]:
    """Return all works in order, or with ``quick`` those that a developer needs between changes."""
    batches = [
        Work("small", "small request", small(100), repeats=4),
        Work("history-1000", "467 KB, 1,000 messages, one turn more each", history(1000, 467, 1, 12), repeats=2),
        Work("stream-100-paced", "100 chunks at 20 ms, 10 streams at once", streams(10, 100, 20), 10),
    ]
    return batches if quick else [*batches, *dialects(), *_latency(), *_compaction(), *_endurance()]


def dialects() -> list[Work]:
    """Return the small request in the other dialects, and one that is only carried."""
    messages = small_in("messages", '"max_tokens": 1000, ')
    inputs = Work("carried", "small embedding, carried", small_in("input"), path="/v1/embeddings", ours=True, repeats=4)
    return [
        replace(inputs, name="small-responses", title="small request of Responses", path="/v1/responses"),
        replace(inputs, name="small-messages", title="small request of messages", path="/v1/messages", make=messages),
        replace(inputs, action=""),
    ]


def _latency() -> list[Work]:
    return [
        Work("small-1000", "small request, 1,000 in a row", small(1_000)),
        Work("small-16", "small request, 16 at once", small(400), 16),
        Work("history-10", "4 KB, 10 messages, one turn more each", history(10, 400, 20, 2), repeats=2),
        Work("history-100", "40 KB, 100 messages, one turn more each", history(100, 400, 8, 5), repeats=2),
        Work("history-300", "140 KB, 300 messages, one turn more each", history(300, 467, 3, 8)),
        Work("unseen-100-16", "40 KB, first seen, 16 at once", unseen(100, 400, 160), 16),
        Work("unseen-1000", "467 KB, first seen", unseen(1000, 467, 4)),
        Work("stream-100", "100 chunks, unpaced", streams(30, 100)),
        Work("stream-100-16", "100 chunks, unpaced, 16 at once", streams(96, 100), 16),
        Work("stream-1000", "1,000 chunks, unpaced", streams(5, 1000)),
        Work("stream-1000-paced", "1,000 chunks at 20 ms, 10 streams at once", streams(10, 1000, 20), 10, rounds=1),
    ]


def _compaction() -> list[Work]:
    replaced, whole = history(1000, 467, 1, 40, NARROW), history(1000, 467, 1, 40)
    return [
        Work("reused", "467 KB, a stored summary put in", replaced, action="reused", ours=True),
        Work("kept", "467 KB, the same with nothing put in", whole, ours=True),
        Work("crossing", "290 KB, crosses with a summary prepared", crossing(5), action="compacted", ours=True),
    ]


def _endurance() -> list[Work]:
    def many(tag: str) -> Batch:
        return Batch(small(20_000)(tag).measured, small(1_000)(f"{tag}-before").measured)

    return [
        Work("streams-500", "500 slow streams at once", streams(500, 20, 200), 500, rounds=2),
        Work("endurance", "20,000 small requests", many, 16, 300.0, ours=True, rounds=1),
    ]


COLD = Work("cold", "467 KB, first seen, by a worker just started", unseen(1000, 467, 1))
"""The work of every start."""
