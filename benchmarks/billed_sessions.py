"""Makes the sessions that are billed: by recorded sizes, of our own making, and those that have text.

A made text has values that later calls use, mostly those of the newest results.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.traces.sessions import Trace
from tidemark.core.recall.passage import handle_of
from tidemark.dialects.messages.message import read_element

WORDS = "total order invoice cart price queue worker retry config handler token cache index commit branch metric error"
"""What the made texts say."""
USER_TURNS = 15
"""A request of the user comes about so often."""
VALUES_EACH = 4
"""The values that a result prints, for later calls."""
NEAR = 0.25
"""The chance that a call uses a value of the newest result. Of the rest, as many use the one before it."""
FAR_SHARE = 0.05
"""So many calls use a value of any earlier result."""


@dataclass(frozen=True)
class Turn:
    """The sizes of one recorded turn, in tokens."""

    context: int
    """All input."""
    output: int


@dataclass(frozen=True)
class Need:
    """A value that a reply uses."""

    value: str
    handles: frozenset[str] = frozenset()
    """The handles of the earlier messages that hold it."""
    age: int = 1
    """How many turns ago it stood last."""


@dataclass
class Session:
    """One chain of messages, and which values each turn needs."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    """What a request has beside its messages; it comes before them."""
    dialect: str = "chat"
    messages: list[dict[str, Any]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The number of messages of each request."""
    replies: list[dict[str, Any]] = field(default_factory=list)
    needs: list[Sequence[Need]] = field(default_factory=list)
    """The values that each turn's reply uses."""

    def request(self, turn: int) -> dict[str, Any]:
        """Return the body of a turn's request; in the Messages dialect its newest message is marked for the cache."""
        messages = self.messages[: self.ends[turn]]
        if self.dialect == "messages":
            content = messages[-1]["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            marked = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
            messages = [*messages[:-1], {**messages[-1], "content": marked}]
        return {"model": "billed", **self.fields, "messages": messages}


@cache
def _words() -> Sequence[str]:
    return WORDS.split()


def _text(chance: random.Random, tokens: int, values: Sequence[str], number: int) -> str:
    """Make what a program prints, of about so many tokens."""
    lines, size = [], 0
    for place, value in enumerate(values):
        lines.append(f"{chance.choice(_words())}_{number}_{place} = {value}")
        size += 14
    while size < tokens:
        words = [chance.choice(_words()) for _ in range(chance.randrange(5, 14))]
        lines.append(f"{chance.randrange(1, 900):>4}  {words[0]}.{words[1]}({', '.join(words[2:])})")
        size += 2 * len(words) + 3
    chance.shuffle(lines)
    return "\n".join(lines)


def session_of(name: str, turns: Sequence[Turn]) -> Session:
    """Make the texts of a session to its recorded sizes."""
    chance, session = random.Random(name), Session(name)
    head = max(turns[0].context - 400, 200)
    session.messages.append({"role": "system", "content": _text(chance, head, (), 0)})
    session.messages.append(
        {"role": "user", "content": f"Find out why {name} fails, and mend it. " + _question(chance)}
    )
    results: list[Sequence[str]] = []
    for number, turn in enumerate(turns):
        session.ends.append(len(session.messages))
        needed = _needed(chance, results)
        session.needs.append([Need(value) for value in needed])
        call = {"name": "run", "arguments": json.dumps({"command": f"inspect {' '.join(needed)} --step {number}"})}
        text = _text(chance, max(turn.output - 60, 0), (), number) if turn.output > 100 else None
        reply: dict[str, Any] = {"role": "assistant", "content": text}
        reply["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
        session.replies.append(reply)
        growth = turns[number + 1].context - turn.context if number + 1 < len(turns) else 0
        values = [f"{chance.choice(_words())[:3].upper()}-{chance.randrange(10**5, 10**6)}" for _ in range(VALUES_EACH)]
        results.append(values)
        result = _text(chance, max(growth - turn.output, 40), values, number)
        session.messages += [reply, {"role": "tool", "tool_call_id": f"call_{number}", "content": result}]
        if chance.random() < 1 / USER_TURNS:
            session.messages.append({"role": "user", "content": _question(chance)})
    return session


def _question(chance: random.Random) -> str:
    return f"Now look at the {chance.choice(_words())} of the {chance.choice(_words())}, and keep its tests green."


def _needed(chance: random.Random, results: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Draw the values of earlier results that a call uses."""
    if not results:
        return ()
    if chance.random() < FAR_SHARE:
        return (chance.choice(chance.choice(results)),)
    back = 1
    while chance.random() > NEAR and back < len(results):
        back += 1
    return (chance.choice(results[-back]),)


def session_of_trace(trace: Trace) -> Session:
    """Return a made session with text as one that can be billed."""
    session = Session(trace.name, {"max_tokens": 4096, "system": trace.system, "tools": trace.tools}, "messages")
    session.messages, session.ends, session.replies = trace.messages, trace.ends, trace.replies
    session.needs = [[] for _ in trace.ends]
    parts = [read_element(json.dumps(message).encode(), 0) for message in trace.messages]
    for use in trace.uses:
        value = json.dumps(use.value)[1:-1].encode()
        before = [part for some in parts[: trace.ends[use.turn]] for part in some]
        handles = frozenset(handle_of(part) for part in before if value in part.raw)
        session.needs[use.turn] = [*session.needs[use.turn], Need(use.value, handles, use.age)]
    return session


def sessions_in(path: Path) -> Mapping[str, Sequence[Turn]]:
    """Read recorded usage; a chain ends if its client compacts, and a new one begins."""
    chains: dict[str, list[Turn]] = {}
    for name, session in json.loads(path.read_text()).items():
        number, before = 0, 0
        for _, fresh, output, cached, writes, *_ in session["points"]:
            context = fresh + cached + writes
            if context < before // 2:
                number += 1
            before = context
            chains.setdefault(f"{name[:6]}-{number}", []).append(Turn(context, output))
    return {name: turns for name, turns in chains.items() if len(turns) > 1}


def own_sessions() -> Mapping[str, Sequence[Turn]]:
    """Return sessions of our own making: a short one, a usual one, and one with large results."""
    sessions = {}
    for name, count, mean in (("short", 12, 900), ("usual", 120, 900), ("large", 90, 3000)):
        chance, context, turns = random.Random(name), 12_000, []
        for _ in range(count):
            output = max(40, int(chance.lognormvariate(5, 0.8)))
            turns.append(Turn(context, output))
            context += output + max(60, int(mean * chance.lognormvariate(-0.5, 1)))
        sessions[name] = turns
    return sessions
