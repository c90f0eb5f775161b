"""Reads ``privacy.redact``: regular expressions by name."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.config.kinds import Text, kind_of
from tidemark.config.reader import Reader
from tidemark.config.tree import Node
from tidemark.privacy.patterns import problem_of

_PATTERN = kind_of(Text)


def read_patterns(reader: Reader, nodes: Mapping[str, Node]) -> Mapping[str, str]:
    """Return the patterns; one that cannot be used is noted with what mends it."""
    patterns: dict[str, str] = {}
    for name, node in nodes.items():
        pattern = reader.value(node, f"privacy.redact.{name}", _PATTERN)
        if not isinstance(pattern, str):
            continue
        problem = problem_of(name, pattern)
        if problem is not None:
            reader.problem(node.line, problem)
        patterns[name] = pattern
    return patterns
