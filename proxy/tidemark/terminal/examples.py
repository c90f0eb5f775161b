"""Writes the examples beneath the help of each command."""

from __future__ import annotations


def example(*lines: str) -> str:
    """Return the end of a command's help: what somebody may type, one command line each."""
    return "\n".join(("\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)))
