"""Strategies that write a summary: ``extractive`` without a model, ``llm`` with one, ``hybrid`` with both.

Adapters beside the core: each implements ``proxy.core.ports.Summarizer``, is built in ``app.py`` and called
by the compactor. The three are strangers to each other; below them lie ``ledger`` (carried verbatim),
``prompts`` and ``answers`` (a model asked and judged), ``salience`` and ``signals`` (what a sentence is worth),
``transcript`` (messages as lines) and ``fitting`` (the bound).
"""

from __future__ import annotations

from proxy.summarizers.extractive import ExtractiveSummarizer
from proxy.summarizers.hybrid import HybridSummarizer
from proxy.summarizers.llm import LlmSummarizer

__all__ = ["ExtractiveSummarizer", "HybridSummarizer", "LlmSummarizer"]
