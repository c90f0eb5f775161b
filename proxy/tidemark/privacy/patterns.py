"""Compiles the patterns of ``privacy.redact``, and the hook.

The library ``regex`` stops a pattern after a time and lets other threads run meanwhile; ``re`` does neither.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping

import regex

from tidemark.core.errors import ConfigError

Redact = Callable[[str, float], str]
"""Returns a redacted text; it is given the time at which it must have ended, by ``time.monotonic``."""


def problem_of(name: str, pattern: str) -> str | None:
    """Return why a pattern cannot be used, and what mends it; None if it can."""
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        return f"privacy.redact.{name} is no regular expression: {error}. In YAML put it in single quotes"
    if compiled.fullmatch("") is not None or compiled.sub("", "") != compiled.sub("-", ""):
        return f"privacy.redact.{name} matches the empty text, so it would change every text; write + for *"
    return None


def compiled_patterns(patterns: Mapping[str, str]) -> Redact:
    """Return what puts ``[NAME]`` in the place of all that a pattern matches, pattern by pattern."""
    compiled = [(regex.compile(pattern), f"[{name}]".replace("\\", r"\\")) for name, pattern in patterns.items()]

    def redact(text: str, end: float) -> str:
        for pattern, replacement in compiled:
            text = pattern.sub(replacement, text, timeout=max(end - time.monotonic(), 0.001), concurrent=True)
        return text

    return redact


def load_hook(place: str) -> Callable[[str], str]:
    """Return the function that ``module:function`` names.

    :raises ConfigError: there is none
    """
    module, _, name = place.partition(":")
    try:
        hook = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"privacy.hook: {place} cannot be loaded ({type(error).__name__}: {error}). Install its package beside "
            "Tidemark, and write module:function."
        ) from error
    if not callable(hook):
        raise ConfigError(f"privacy.hook: {place} is no function from a text to a text.")
    found: Callable[[str], str] = hook
    return found
