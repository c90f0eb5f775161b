"""Loads the Lua scripts of this package."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).with_name("lua")


def script(name: str) -> str:
    """Return the source of a script of this package."""
    return (_FOLDER / f"upkeep_{name}.lua").read_text("utf-8")
