"""Makes conversations with realistic sizes, for ``replay.py`` to plan.

Every size is drawn from one seed, so that all policies get the same conversation on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from tidemark.core.conversation.messages import Message, Role, ToolCall, digest_of
from tidemark.core.planning.budget import ModelWindow

PRIMING = 3
"""The tokens that open a reply."""


@dataclass
class Shape:
    """A conversation and its window; it grows while it is being made."""

    name: str
    window: ModelWindow
    reply_tokens: int
    """The longest reply that each request asks for."""
    behind: int
    """The number of requests that are sent while a summary is prepared."""
    messages: list[Message] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The number of messages before each request."""

    def say(self, role: Role, tokens: int, *, calls: tuple[ToolCall, ...] = (), answers: str | None = None) -> None:
        """Add a message."""
        number = str(len(self.messages)).encode()
        digest = digest_of(number)
        self.messages.append(Message(raw=number, role=role, text=role, digest=digest, calls=calls, answers=answers))
        self.tokens.append(tokens)

    def send(self) -> None:
        """Add a request with all messages so far."""
        self.ends.append(len(self.messages))

    @cached_property
    def requests(self) -> Sequence[tuple[Sequence[Message], Sequence[int]]]:
        """Yield each request's messages with their tokens."""
        return [(self.messages[:end], self.tokens[:end]) for end in self.ends]

    @property
    def total_tokens(self) -> int:
        """Return the input tokens of all requests, if each sent the whole conversation."""
        before = [0, *accumulate(self.tokens)]
        return sum(before[end] + PRIMING for end in self.ends)


def _around(chance: random.Random, mean: int, spread: float = 0.8) -> int:
    """Draw a size: most are smaller than the mean, a few far larger, as in conversations."""
    return max(8, int(mean * chance.lognormvariate(-spread * spread / 2, spread)))


def chat() -> Shape:
    """Make 400 even turns of about 730 tokens after a system prompt of 1,200.

    With these sizes, other designs' policies reproduce figures of an earlier simulation: never compacting 6.05 million
    at a hit of 99.5 %, to just fit 10.83 at 16 % in 332 calls, a low water of 50 % 1.67 at 94 % in 16.
    """
    shape, chance = Shape("chat, 400 turns, 32k window", ModelWindow(32_768, 1024), 1024, 1), random.Random(1)
    shape.say("system", 1200)
    for _ in range(400):
        shape.say("user", _around(chance, 130, 0.3))
        shape.send()
        shape.say("assistant", _around(chance, 600, 0.3))
    return shape


def agent() -> Shape:
    """Make an agent's conversation: few user messages, many rounds of up to three calls, results of every size."""
    shape, chance = (
        Shape("coding agent, 500 rounds, 128k window", ModelWindow(128_000, 8192), 8192, 3),
        random.Random(2),
    )
    shape.say("system", 9000)  # instructions and tools
    for turn in range(25):
        shape.say("user", _around(chance, 150))
        for round_number in range(20):
            shape.send()
            ids = [f"{turn}.{round_number}.{which}" for which in range(chance.choice((1, 1, 1, 2, 3)))]
            calls = tuple(ToolCall(id_, "tool", "") for id_ in ids)
            shape.say("assistant", _around(chance, 180), calls=calls)
            for id_ in ids:
                shape.say("tool", _around(chance, 900), answers=id_)
        shape.send()
        shape.say("assistant", _around(chance, 400))
    return shape


def documents() -> Shape:
    """Make a conversation of long documents, each with some questions."""
    shape, chance = (
        Shape("long documents, 40 of 12k, 128k window", ModelWindow(128_000, 4096), 4096, 1),
        random.Random(3),
    )
    shape.say("system", 800)
    for _ in range(40):
        shape.say("user", chance.randrange(6000, 18_000))
        for question in range(6):
            if question:
                shape.say("user", _around(chance, 60))
            shape.send()
            shape.say("assistant", _around(chance, 450))
    return shape


def shapes() -> Iterator[Shape]:
    """Return all shapes."""
    yield chat()
    yield agent()
    yield documents()
