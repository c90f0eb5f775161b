"""Values that must not be read by accident: they show stars wherever Python would print them.

Used by the settings for whatever a file or the environment holds of keys and passwords; the value itself is
handed out by name only.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from proxy.core.conversation.messages import JsonValue

STARS = "***"


class Secret:
    """A text that only ``reveal`` gives out."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
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
    """A URL that hides its user, its password and what its query says in ``repr``; as a string it is whole."""

    __slots__ = ()

    @property
    def shown(self) -> str:
        """The URL as a person or a log may read it: made of the parts that whoever connects reads out of it."""
        parts = urlsplit(str(self))
        if not parts.netloc and not parts.query:
            return str(self)
        # the last "@" is what ends the password, as urlsplit and redis-py have it
        _, at, place = parts.netloc.rpartition("@")
        said = (piece.partition("=") for piece in parts.query.split("&"))
        query = "&".join(f"{name}={STARS}" if equals else STARS for name, equals, _ in said)
        return (
            f"{parts.scheme}://{STARS * bool(at)}{at}{place}{parts.path}"
            + (f"?{query}" if parts.query else "")
            + (f"#{STARS}" if parts.fragment else "")
        )

    def __repr__(self) -> str:
        return repr(self.shown)


class Parameters(dict[str, JsonValue]):
    """``litellm_params``, which may hold a credential under any name: only the model's name is shown."""

    def __repr__(self) -> str:
        return repr({name: value if name == "model" else STARS for name, value in self.items()})
