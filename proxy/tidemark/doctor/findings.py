"""Findings: what an examination found out, and how to mend what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found out. It holds no secret."""

    check: str
    """What was examined: ``store``, ``upstream gpt-4o``."""
    status: Status
    """``error``: something would not work; ``warning``: it works, and may surprise."""
    detail: str
    mend: str = ""
    """What to do about it; empty for ``ok``."""


Progress = Callable[[str], None]
"""Is told what is examined now."""


def is_usable(findings: Iterable[Finding]) -> bool:
    """Return whether everything would work."""
    return all(finding.status != "error" for finding in findings)
