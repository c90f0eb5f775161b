"""Measures what survives a compaction: planted facts, and the answers of LoCoMo where the user has its file.

``tidemark bench fidelity`` runs it (``tidemark/cli/bench.py``). It sees a compaction from outside, as JSON in and out,
so that every strategy is measured in the same way. ``cases`` has the values; ``talks``, ``sessions`` and ``languages``
make conversations, ``questions`` makes some that are asked about afterwards, and ``locomo`` reads a file. ``survival``
compares texts, ``measuring`` makes the figures, ``recalling`` makes those of recall, and ``stored`` those of the user's
own conversations. ``drawing`` makes plots of them.
"""

from __future__ import annotations

from tidemark.fidelity.cases import Case, Conversation, Fact
from tidemark.fidelity.drawing import draw_figures
from tidemark.fidelity.generated import generated_cases
from tidemark.fidelity.locomo import locomo_cases
from tidemark.fidelity.measuring import Figure, measure, measure_rounds
from tidemark.fidelity.questions import question_cases
from tidemark.fidelity.recalling import measure_recall
from tidemark.fidelity.stored import ExportedConversation, StoredMeasurement, measure_stored

__all__ = [
    "Case",
    "Conversation",
    "ExportedConversation",
    "Fact",
    "Figure",
    "StoredMeasurement",
    "draw_figures",
    "generated_cases",
    "locomo_cases",
    "measure",
    "measure_recall",
    "measure_rounds",
    "measure_stored",
    "question_cases",
]
