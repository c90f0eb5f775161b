"""Strategies that write a summary: ``extractive`` without a model, ``llm`` with one, ``hybrid`` with both.

Each implements ``tidemark.core.ports.Summarizer``; ``app`` builds them, and ``compaction/writer.py`` calls them.
``plain`` replaces a strategy that takes too long to read the messages. The strategies do not import each other. They
share the modules below them: ``ledger`` (entries that are carried verbatim), ``prompts``, ``materials`` and ``answers``
(asking a model and judging its answer), ``salience``, ``signals``, ``results`` and ``folding`` (what is worth keeping),
``rules`` and ``revoking`` (what the user lays down and takes back), ``transcript`` (messages as lines), ``fitting``
(the bound) and ``deadline`` (the time).
"""

from __future__ import annotations

from tidemark.summarizers.extractive import ExtractiveSummarizer
from tidemark.summarizers.hybrid import HybridSummarizer
from tidemark.summarizers.llm import LlmSummarizer
from tidemark.summarizers.plain import PlainSummarizer

__all__ = ["ExtractiveSummarizer", "HybridSummarizer", "LlmSummarizer", "PlainSummarizer"]
