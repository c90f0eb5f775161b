"""Measures what would survive a compaction of the user's own conversations.

``tidemark bench fidelity --stored`` runs it (``tidemark/cli/bench.py``). It sees a compaction from outside, as JSON in
and out, so that every strategy is measured in the same way: ``exported`` compares, ``figures`` adds up. With
``--window``, ``production`` measures what a whole Tidemark forwards, by the driver in ``replaying``. The same figures
of conversations with known facts are made in ``benchmarks/fidelity/``.
"""

from __future__ import annotations

from tidemark.fidelity.exported import (
    LEAST_MESSAGES,
    Compact,
    Count,
    ExportedConversation,
    measure_exported,
)
from tidemark.fidelity.figures import NEWEST, Figure, Meter, Spending, Sums
