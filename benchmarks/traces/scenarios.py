"""The parts of the traces that are written by hand, in ``scenarios.json``: tasks, rules, findings, an agent's speech.

A fact stands between ``[[`` and ``]]``, which are removed. Later turns use such facts as they use those of results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TEXTS: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
RULES: str = _TEXTS["rules"]
"""What the instructions of all sessions say."""
TOOLS: Mapping[str, tuple[str, Sequence[str]]] = _TEXTS["tools"]
"""The tools, with their descriptions and arguments."""
SPEECH: Mapping[str, Sequence[str]] = _TEXTS["speech"]
"""How an agent speaks of a value of each kind."""
ASIDES: Sequence[str] = _TEXTS["asides"]
"""What it says besides."""
TASKS: Sequence[str] = _TEXTS["tasks"]
"""What stands on its lists."""
FOLLOW_UPS: Sequence[str] = _TEXTS["follow_ups"]
"""What the user says after the requests of a scenario."""
PASTED: Sequence[str] = _TEXTS["pasted"]
"""How the user quotes what a program printed."""


@dataclass(frozen=True)
class Scenario:
    """What one session is about."""

    name: str
    language: str
    turns: int
    scale: float
    """How long its results are, beside the usual ones."""
    folders: Sequence[str]
    nouns: Sequence[str]
    records: Sequence[str]
    """The kinds of its service's ids."""
    subjects: Sequence[str]
    """Of its commits."""
    rules: str
    """What its instructions add to those of all."""
    requests: Sequence[str]
    """What the user says, the task first."""
    findings: Sequence[str]
    """What the agent concludes at the end of a part."""


SCENARIOS = [Scenario(**members) for members in _TEXTS["scenarios"]]
