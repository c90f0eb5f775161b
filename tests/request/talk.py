"""Conversations for the tests of the flow."""

from __future__ import annotations

from typing import Any

Said = dict[str, Any]


def user(text: str) -> Said:
    """A user's message."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Said:
    """An assistant's message."""
    return {"role": "assistant", "content": text}


def system(text: str) -> Said:
    """A system message."""
    return {"role": "system", "content": text}


def long(number: int, words: int = 60) -> str:
    """A text of about ``words`` tokens that is like no other."""
    return f"Point {number}: " + " ".join(f"w{number}x{i % 7}" for i in range(words // 5))


def history(turns: int, words: int = 60) -> list[Said]:
    """``turns`` exchanges, without a last question."""
    said: list[Said] = []
    for number in range(turns):
        said += [user(long(2 * number, words)), assistant(long(2 * number + 1, words))]
    return said
