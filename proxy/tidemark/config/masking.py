"""Hides credentials: these values show stars wherever Python would print them.

The settings use these types for all keys and passwords of a file or the environment. Only an explicit call returns the
value.
"""

from __future__ import annotations

import hmac
import re
from urllib.parse import urlsplit

from tidemark.core.conversation.messages import JsonValue

STARS = "***"
UNSHOWN = "a text that is not shown, because it may be a key"
_MOST_SHOWN = 40
_WORDS = re.compile(r"(?:[A-Za-z][a-z]{0,15}|[A-Z]{1,16})(?:[ _.-](?:[A-Za-z][a-z]{0,15}|[A-Z]{1,16}))*")
_FIGURE = re.compile(r"-?[0-9][0-9.,:_]{0,7}[A-Za-z%]{0,2}")
_NAME = re.compile(r"(?:[A-Za-z]{1,16}[0-9]{0,4}|[0-9]{1,4}|\*)(?:[_.:/-](?:[A-Za-z]{1,16}[0-9]{0,4}|[0-9]{1,4}|\*))*")


def quoted(text: str) -> str:
    """Return a wrong text of a file in quotes, if it is plain words or a figure.

    Anything else may be a key, which must not get into a log.
    """
    is_plain = len(text) <= _MOST_SHOWN and (_WORDS.fullmatch(text) or _FIGURE.fullmatch(text))
    return f'"{text}"' if is_plain else UNSHOWN


def quoted_name(name: str) -> str:
    """Return a wrong name of a key or a variable in quotes, as ``quoted``; its words may end with figures."""
    return f'"{name}"' if len(name) <= _MOST_SHOWN and _NAME.fullmatch(name) else UNSHOWN


class Secret:
    """A text that only ``reveal`` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the one place that needs it."""
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(errors="replace"), other._text.encode(errors="replace"))

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({STARS})"


class Address(str):
    """A URL whose ``repr`` hides user, password and query values; as a string it is complete."""

    __slots__ = ()

    @property
    def shown(self) -> str:
        """Return the URL for a person or a log, built from the parts that a client would connect to."""
        parts = urlsplit(str(self))
        if not parts.netloc and not parts.query:
            return str(self)
        # the last "@" ends the password, as for urlsplit and redis-py
        _, at, place = parts.netloc.rpartition("@")
        parameters = (piece.partition("=") for piece in parts.query.split("&"))
        query = "&".join(f"{name}={STARS}" if equals else STARS for name, equals, _ in parameters)
        return (
            f"{parts.scheme}://{STARS * bool(at)}{at}{place}{parts.path}"
            + (f"?{query}" if parts.query else "")
            + (f"#{STARS}" if parts.fragment else "")
        )

    def __repr__(self) -> str:
        return repr(self.shown)


class Parameters(dict[str, JsonValue]):
    """``litellm_params``, whose ``repr`` shows only the model: any other value may be a credential."""

    def __repr__(self) -> str:
        return repr({name: value if name == "model" else STARS for name, value in self.items()})
