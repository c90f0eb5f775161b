"""Hooks that fail, for the tests of redaction."""

from __future__ import annotations

import threading
from typing import Any


def raises(text: str) -> str:
    """Fail as a bad hook does, with the text in its words."""
    raise ValueError(text)


def sleeps(text: str) -> str:
    """Take longer than is allowed."""
    threading.Event().wait(1.0)
    return text


def returns_nothing(_: str) -> Any:
    """Return no text."""
    return None


class _Endless:
    def __init__(self) -> None:
        self._end = threading.Event()

    def wait_forever(self, text: str) -> str:
        """Never return, until the test has ended."""
        self._end.wait()
        return text

    def release(self) -> None:
        """Let all calls return."""
        self._end.set()


never_ends = _Endless()


def refuses_walruses(text: str) -> str:
    """Fail on a text of a model, and on no text of a client."""
    if "walrus" in text:
        raise ValueError(text)
    return text


def refuses_lines(text: str) -> str:
    """Fail on any summary, which has lines, and on no message."""
    if "\n" in text:
        raise ValueError(text)
    return text
