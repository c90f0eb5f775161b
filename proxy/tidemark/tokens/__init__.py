"""Local token counting, with no network (FR-1.1.*, NFR-7.1).

This adapter implements ``tidemark.core.ports.TokenCounter``, and ``app`` builds it. ``families`` maps a model to its
encoding, ``vocabulary`` alone imports tiktoken, ``images`` and ``tools`` contain published formulas, ``media`` reads
parts that are no text, ``accounting`` adds up, and ``counting`` encodes and caches.
"""

from __future__ import annotations

from tidemark.tokens.counting import LocalTokenCounter
from tidemark.tokens.families import encoding_for

__all__ = ["LocalTokenCounter", "encoding_for"]
