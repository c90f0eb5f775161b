"""Local token counting: the budget's figures, with no network (FR-1.1.*, NFR-7.1).

An adapter beside the core: it implements ``proxy.core.ports.TokenCounter`` and is built in ``app``.
``families`` says how a model is counted, ``vocabulary`` is the one door to tiktoken, ``images`` and ``tools`` hold
published formulas, ``media`` reads parts that are no text, ``accounting`` adds up, ``counting`` encodes and remembers.
"""

from __future__ import annotations

from proxy.tokens.counting import LocalTokenCounter
from proxy.tokens.families import encoding_for

__all__ = ["LocalTokenCounter", "encoding_for"]
