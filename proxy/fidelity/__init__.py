"""Measures what survives a compaction: planted facts, and the answers of LoCoMo where the user has its file.

``tidemark bench fidelity`` runs it (``proxy/cli/bench.py``). It sees a compaction from outside, as JSON in and out, so
that every strategy is measured in the same way. ``cases`` has the values; ``talks``, ``sessions`` and ``languages``
make conversations, ``locomo`` reads a file, ``survival`` compares texts, and ``measuring`` makes the figures.
"""

from __future__ import annotations

from proxy.fidelity.cases import Case, Conversation, Fact
from proxy.fidelity.generated import generated_cases
from proxy.fidelity.locomo import locomo_cases
from proxy.fidelity.measuring import Figure, measure, measure_rounds

__all__ = [
    "Case",
    "Conversation",
    "Fact",
    "Figure",
    "generated_cases",
    "locomo_cases",
    "measure",
    "measure_rounds",
]
