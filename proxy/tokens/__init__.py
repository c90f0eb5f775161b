"""Local token counting: the budget's figures, with no network and nothing approximated (FR-1.1.*, NFR-7.1).

An adapter beside the core: it implements ``proxy.core.ports.TokenCounter`` and is built in ``app.py``.
``vocabulary`` is the one door to tiktoken, ``images`` and ``tools`` hold published formulas, ``media`` reads
parts that are no text, ``counting`` puts them together and remembers what was counted.
"""

from __future__ import annotations

from proxy.tokens.counting import LocalTokenCounter
from proxy.tokens.vocabulary import encoding_for

__all__ = ["LocalTokenCounter", "encoding_for"]
