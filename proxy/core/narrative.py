"""Repairs of a model's narrative: what a summary's prose stated that its source does not have.

``summarizers/narrative.py`` makes them, and ``compaction/writer.py`` reports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

RepairKind = Literal["number", "name", "negation", "rule"]
"""What is wrong with a statement.

``number``: a number, sum or date that stands nowhere, or beside another word; ``name``: a path, address, identifier
or version that stands nowhere; ``negation``: the contrary of what was said; ``rule``: a rule that nobody gave.
"""
REPAIR_KINDS: tuple[RepairKind, ...] = get_args(RepairKind)
RepairOutcome = Literal["replaced", "dropped", "rejected"]
"""``replaced`` by the source's own words; ``dropped``; ``rejected`` together with the whole summary."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Statements of one kind that were repaired in one way."""

    kind: RepairKind
    outcome: RepairOutcome
    count: int


_FEW = 3
"""So many wrong statements are repaired, however few the others are."""


@dataclass(frozen=True, slots=True)
class CheckedNarrative:
    """A summary's text with its narrative repaired."""

    text: str
    """With the source's own words in place of what was wrong."""
    shorter: str
    """The same with every wrong statement dropped, which costs no more tokens than the narrative did."""
    repairs: tuple[Repair, ...] = ()
    statements: int = 0
    """How many statements the narrative had."""

    @property
    def is_usable(self) -> bool:
        """Return whether the narrative is worth repairing: some of it is left, and most of a longer one was right."""
        wrong = sum(repair.count for repair in self.repairs)
        return not self.statements or (bool(self.text) and (wrong <= _FEW or 2 * wrong <= self.statements))
