"""Puts the generated cases together: single compactions, and talks that are compacted round by round."""

from __future__ import annotations

import random

from benchmarks.fidelity.cases import Case, Fact
from benchmarks.fidelity.languages import all_languages
from benchmarks.fidelity.sessions import code_session, needles
from benchmarks.fidelity.talks import talk

_RULES = (
    "Never send the list of {word} to anybody outside the team.",
    "Always ask me before you touch {word}-{number}.",
    "Do not run the {word} job before {number} o'clock.",
    "You must not book anything above {number} euros.",
)
_PLANTED = (
    ("identifier", "The ticket for the {word} is {code}."),
    ("identifier", "Our customer number at the {word} is {code}."),
    ("preference", "I prefer {word} over everything else for the reports."),
)
_WORDS = "harbour lantern orchard quarry meadow saddle thimble walnut beacon copper".split()


def generated_cases(seeds: int = 3) -> list[Case]:
    """Return all single compactions: chats, sessions of agents, needles and languages."""
    cases = [make(seed) for make in (talk, code_session, needles) for seed in range(1, seeds + 1)]
    return [*cases, *all_languages(1)]


def planted_rounds(seed: int, rounds: int = 10) -> list[Case]:
    """Return the parts of a talk, one for each round, each with rules, identifiers and preferences of its own."""
    chance = random.Random(seed)
    parts = []
    for number in range(rounds):
        part = talk(seed * 100 + number, turns=40)
        facts: list[Fact] = []
        for kind, template in (("rule", chance.choice(_RULES)), *_PLANTED):
            word, value = chance.choice(_WORDS), str(chance.randrange(100, 999))
            code = f"{word[:3].upper()}-{chance.randrange(1000, 9999)}"
            sentence = template.format(word=word, number=value, code=code)
            place = 2 * chance.randrange(len(part.messages) // 2)
            part.messages[place]["content"] += " " + sentence
            facts.append(Fact(kind, (sentence if kind == "rule" else code if "{code}" in template else sentence[:-1],)))
        parts.append(Case("rounds", part.messages, [*facts, *part.facts]))
    return parts
