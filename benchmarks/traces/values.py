"""The values that stand in a session, and the draw of those that the agent uses again."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Source = Literal["result", "user", "assistant"]
Place = Literal["first", "middle", "last"]
AGES: Sequence[tuple[int, int, float]] = ((1, 2, 0.38), (3, 10, 0.29), (11, 40, 0.21), (41, 10**6, 0.12))
"""How many turns ago a value last stood, from and to, and the share of the draws."""
SOURCES: Mapping[Source, float] = {"result": 0.75, "assistant": 0.13, "user": 0.12}
PLACES: Mapping[Place, float] = {"first": 0.20, "middle": 0.55, "last": 0.25}
"""The first tenth of a text, the last one, and what is between."""
KINDS: Mapping[str, float] = {
    "path": 0.20,
    "line": 0.22,
    "symbol": 0.16,
    "test": 0.10,
    "record": 0.10,
    "figure": 0.09,
    "commit": 0.07,
    "fact": 0.06,
}
EDGE = 0.1
PATTERNS: Mapping[str, re.Pattern[str]] = {
    "test": re.compile(r"tests/[\w/]+\.(?:py|spec\.ts)::\w+"),
    "path": re.compile(r"src/[\w/]+\.(?:py|ts)\b"),
    "commit": re.compile(r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8}\b"),
    "record": re.compile(r"\b[a-z]{3}_(?=[a-z]*\d)[a-z0-9]{9}\b"),
    "figure": re.compile(r"(?<![\w.,-])\d{2,5}\.\d{2,3}\b(?!s)"),
    "symbol": re.compile(r"\b(?:[a-z]+_[a-z]+_[a-z]+|[a-z]+[A-Z][a-z]+[A-Z][a-z]+)\b(?=\()"),
    "line": re.compile(r"(?m)^(?: *\d+\t|src/\S+:\d+:) *(\S.{27,})$"),
}
_FACT = re.compile(r"\[\[(.+?)\]\]", re.DOTALL)


@dataclass(frozen=True)
class Standing:
    """Where a value stood last."""

    kind: str
    turn: int
    source: Source
    place: Place


def without_marks(text: str) -> tuple[str, list[str]]:
    """Return a text without the marks of its facts, and the facts."""
    return _FACT.sub(r"\1", text), _FACT.findall(text)


def place_of(value: str, text: str) -> Place:
    """Return in which part of a text a value stands last."""
    share = text.rfind(value) / max(len(text), 1)
    return "first" if share < EDGE else "last" if share > 1 - EDGE else "middle"


class Ledger:
    """Every value that has stood in the session so far."""

    def __init__(self) -> None:
        self.standings: dict[str, Standing] = {}

    def note(self, text: str, source: Source, turn: int, facts: Collection[str] = ()) -> None:
        """Note the values of a text, and facts that stand in it again."""
        for kind, pattern in PATTERNS.items():
            for value in pattern.findall(text):
                self.standings[value] = Standing(kind, turn, source, place_of(value, text))
        again = [value for value, was in self.standings.items() if was.kind == "fact" and value in text]
        for value in (*facts, *again):
            self.standings[value] = Standing("fact", turn, source, place_of(value, text))

    def draw(self, chance: random.Random, turn: int, kinds: Collection[str] = ()) -> tuple[str, str] | None:
        """Draw a value and its kind by the assumed shares; None if there is none.

        If no value has all that was drawn, its place counts no more, then its source, then its age.
        """
        first, last, _ = chance.choices(AGES, [share for *_, share in AGES])[0]
        source = chance.choices(list(SOURCES), list(SOURCES.values()))[0]
        place = chance.choices(list(PLACES), list(PLACES.values()))[0]
        usable = [(value, at) for value, at in self.standings.items() if not kinds or at.kind in kinds]
        aged = [(value, at) for value, at in usable if first <= turn - at.turn <= last]
        sourced = [(value, at) for value, at in aged if at.source == source]
        placed = [(value, at) for value, at in sourced if at.place == place]
        for some in (placed, sourced, aged, usable):
            if some:
                there = {at.kind for _, at in some}
                weights = {kind: share for kind, share in KINDS.items() if kind in there}
                kind = chance.choices(list(weights), list(weights.values()))[0]
                return chance.choice([value for value, at in some if at.kind == kind]), kind
        return None
