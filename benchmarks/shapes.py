"""Conversations as they are in use, in sizes only: what a replay plans over.

Part of ``replay.py``. Every size is drawn from one seed, so that all policies meet the same conversation, and the
same one on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from proxy.core.conversation.messages import Message, Role, ToolCall, digest_of
from proxy.core.planning.budget import ModelWindow

PRIMING = 3
"""Tokens that open a reply."""


@dataclass
class Shape:
    """A conversation and the window it is held in; it grows while it is being made."""

    name: str
    window: ModelWindow
    reply_tokens: int
    """What each request asks for at most."""
    behind: int
    """Requests that are sent while a summary is made in the background."""
    messages: list[Message] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """After how many messages each request is sent."""

    def say(self, role: Role, tokens: int, *, calls: tuple[ToolCall, ...] = (), answers: str | None = None) -> None:
        """One message more."""
        number = str(len(self.messages)).encode()
        digest = digest_of(number)
        self.messages.append(Message(raw=number, role=role, text="", digest=digest, calls=calls, answers=answers))
        self.tokens.append(tokens)

    def send(self) -> None:
        """A request of all that has been said."""
        self.ends.append(len(self.messages))

    @cached_property
    def requests(self) -> Sequence[tuple[Sequence[Message], Sequence[int]]]:
        """Every request's messages with their tokens."""
        return [(self.messages[:end], self.tokens[:end]) for end in self.ends]

    @property
    def total_tokens(self) -> int:
        """Input tokens of all requests, if all of the conversation were sent each time."""
        before = [0, *accumulate(self.tokens)]
        return sum(before[end] + PRIMING for end in self.ends)


def _around(chance: random.Random, mean: int, spread: float = 0.8) -> int:
    """A size: most are smaller than the mean, a few far larger, as they are in talk."""
    return max(8, int(mean * chance.lognormvariate(-spread * spread / 2, spread)))


def chat() -> Shape:
    """400 even turns of about 730 tokens behind a system prompt of 1,200.

    The sizes are such that the policies of others give the figures that were once simulated for them: never compacting
    6.05 million at a hit of 99.5 %, to just fit 10.83 at 16 % in 332 calls, a low water of 50 % 1.67 at 94 % in 16.
    """
    shape, chance = Shape("chat, 400 turns, 32k window", ModelWindow(32_768, 1024), 1024, 1), random.Random(1)
    shape.say("system", 1200)
    for _ in range(400):
        shape.say("user", _around(chance, 130, 0.3))
        shape.send()
        shape.say("assistant", _around(chance, 600, 0.3))
    return shape


def agent() -> Shape:
    """A coding agent: few words of the user's, many rounds of calls, up to three at once, results of every size."""
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
            calls = tuple(ToolCall(one, "tool", "") for one in ids)
            shape.say("assistant", _around(chance, 180), calls=calls)
            for one in ids:
                shape.say("tool", _around(chance, 900), answers=one)
        shape.send()
        shape.say("assistant", _around(chance, 400))
    return shape


def documents() -> Shape:
    """Long documents, each with some questions about it."""
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
    """All of them."""
    yield chat()
    yield agent()
    yield documents()
