"""What may stand in a log line: texts without keys, without control characters, and of bounded length.

Model names, paths and the error texts of providers come from outside and may hold anything; OpenAI repeats
the client's key in its 401. Used by ``logging.py`` on every line, foreign libraries' too.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_CHARACTERS = 500
"""Longest text of one field. Enough for a provider's error, too little for a conversation."""
MAX_TRACEBACK_CHARACTERS = 20_000
STARS = "***"

_NAMES = r"api[-_]?key|key|token|secret|password|authorization"
_VENDORS = r"sk|pk|rk|gsk|xai|hf|ghp|glpat"
"""How keys begin at OpenAI, Anthropic, OpenRouter, Groq, xAI, Hugging Face, GitHub and GitLab."""
_KEYS = re.compile(
    rf"(?P<kept>\b(?:{_NAMES})[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?|\b(?:bearer|basic)\s+)[^\s\"'&,;]{{6,}}"
    rf"|\b(?:{_VENDORS})[-_][A-Za-z0-9_*.-]{{6,}}"
    r"|\bAIza[A-Za-z0-9_-]{20,}"  # Google
    r"|\bAKIA[A-Z0-9]{12,}"  # AWS
    r"|(?<=://)[^/\s]+@",  # user and password in a URL; a password may hold "@", the last one ends it
    re.IGNORECASE,
)
DIGEST = re.compile("[0-9a-f]{16,128}")
"""Ids and tenants: most of what is new in a line, and nothing that could be a key."""
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROLS_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def fit_to_log(text: str) -> str:
    """A text as it may stand in one line of a log."""
    return fit_word(text[: MAX_CHARACTERS + 1])  # the cache is bounded in bytes too, whatever comes from outside


@lru_cache(maxsize=1024)
def fit_word(text: str) -> str:
    """The same of a text that is not longer than it may be: most are the same few words again and again."""
    if DIGEST.fullmatch(text):
        return text
    shown = _CONTROLS.sub(_escaped, _KEYS.sub(_masked, text))
    return shown if len(text) <= MAX_CHARACTERS else shown[:MAX_CHARACTERS] + "..."


def fit_traceback(text: str) -> str:
    """A traceback, its lines kept; of a long one the end, which names the error."""
    return _CONTROLS_BUT_LINES.sub(_escaped, _KEYS.sub(_masked, text))[-MAX_TRACEBACK_CHARACTERS:]


def _masked(match: re.Match[str]) -> str:
    return (match["kept"] or "") + STARS + ("@" if match[0].endswith("@") else "")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
