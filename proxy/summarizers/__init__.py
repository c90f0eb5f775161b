"""Strategies that write a summary: ``extractive`` without a model, ``llm`` with one, ``hybrid`` with both.

Adapters beside the core: each implements ``proxy.core.ports.Summarizer``, is built in ``app`` and called
by the compactor; ``plain`` stands in where reading takes too long. They are strangers to each other; below them lie
``ledger`` (carried verbatim), ``prompts`` and ``answers`` (asking a model, judging it), ``salience`` and ``signals``
(what is worth keeping), ``transcript`` (messages as lines), ``fitting`` (the bound) and ``deadline`` (the time).
"""

from __future__ import annotations

from proxy.summarizers.extractive import ExtractiveSummarizer
from proxy.summarizers.hybrid import HybridSummarizer
from proxy.summarizers.llm import LlmSummarizer
from proxy.summarizers.plain import PlainSummarizer

__all__ = ["ExtractiveSummarizer", "HybridSummarizer", "LlmSummarizer", "PlainSummarizer"]
