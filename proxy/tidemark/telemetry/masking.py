"""Makes texts safe for a log line: without keys and control characters, and of bounded length.

Model names, paths and the error texts of providers come from outside and may contain anything; OpenAI repeats the
client's key in its 401. ``logging.py`` uses this for every line, including those of libraries.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_CHARACTERS = 500
"""The longest text of one field: enough for a provider's error, too little for a conversation."""
MAX_TRACEBACK_CHARACTERS = 20_000
STARS = "***"

_NAMES = r"api[-_]?key|key|token|secret|password|authorization"
_VENDORS = r"sk|pk|rk|gsk|xai|hf|ghp|glpat"
"""The beginnings of keys at OpenAI, Anthropic, OpenRouter, Groq, xAI, Hugging Face, GitHub and GitLab."""
_KEYS = re.compile(
    rf"(?P<prefix>\b(?:{_NAMES})[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?|\b(?:bearer|basic)\s+)[^\s\"'&,;]{{6,}}"
    rf"|\b(?:{_VENDORS})[-_][A-Za-z0-9_*.-]{{6,}}"
    r"|\bAIza[A-Za-z0-9_-]{20,}"  # Google
    r"|\bAKIA[A-Z0-9]{12,}"  # AWS
    r"|(?<=://)[^/\s]+@",  # user and password in a URL; a password may hold "@", the last one ends it
    re.IGNORECASE,
)
DIGEST = re.compile("[0-9a-f]{16,128}")
"""Ids of conversations and tenants: most new texts of a line are ids, and no id is a key."""
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROLS_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def fit_to_log(text: str) -> str:
    """Make a text safe for one line of a log."""
    return fit_word(text[: MAX_CHARACTERS + 1])  # cutting first bounds the cache in bytes too


@lru_cache(maxsize=1024)
def fit_word(text: str) -> str:
    """Make a short text safe, with a cache, because most texts are the same few words."""
    if DIGEST.fullmatch(text):
        return text
    shown = _CONTROLS.sub(_escaped, _KEYS.sub(_masked, text))
    return shown if len(text) <= MAX_CHARACTERS else shown[:MAX_CHARACTERS] + "..."


def fit_traceback(text: str) -> str:
    """Make a traceback safe, with its lines; a long one is cut to its end, which names the error."""
    return _CONTROLS_BUT_LINES.sub(_escaped, _KEYS.sub(_masked, text))[-MAX_TRACEBACK_CHARACTERS:]


def _masked(match: re.Match[str]) -> str:
    return (match["prefix"] or "") + STARS + ("@" if match[0].endswith("@") else "")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
