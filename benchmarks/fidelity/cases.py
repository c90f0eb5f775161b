"""The values of the measure: conversations, and the facts that should survive in them.

All modules of the measure use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Conversation = list[dict[str, Any]]
"""Messages of a chat request: ``role``, ``content``, and for tools ``tool_calls`` or ``tool_call_id``."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that stands in a conversation."""

    kind: str
    """What the figures are grouped by, such as ``rule`` or ``early``."""
    words: Sequence[str]
    """Phrases that must all stand in one kept message or in one line of the summary."""
    question: str = ""
    """What is asked about the fact afterwards; empty where nobody asks."""


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation with its facts."""

    corpus: str
    """The name under which figures are shown, such as ``chat`` or ``LoCoMo``."""
    messages: Conversation
    facts: Sequence[Fact]
    loose: bool = False
    """Whether a fact survives wherever the words of its phrases stand in one line, in any order (LoCoMo)."""
