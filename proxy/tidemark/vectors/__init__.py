"""Vectors of sentences, by static vectors of their tokens (the extra ``embedding``).

Nothing here but ``loading`` is imported unless a model's ``recall.method`` is ``embedding``.
"""

from __future__ import annotations

from tidemark.vectors.loading import load_vectors

__all__ = ["load_vectors"]
