"""Values that must not be read by accident: they show stars wherever Python would print them.

Used by the settings for whatever a file or the environment holds of keys and passwords; the value itself is
handed out by name only.
"""

from __future__ import annotations

import hmac
import re

from proxy.core.messages import JsonValue

STARS = "***"
_USER_INFO = re.compile(r"//[^/@\s]*@")


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
    """A URL that hides its user and password in ``repr``; as a string it is whole."""

    __slots__ = ()

    @property
    def shown(self) -> str:
        """The URL as a person or a log may read it."""
        return _USER_INFO.sub(f"//{STARS}@", str(self))

    def __repr__(self) -> str:
        return repr(self.shown)


class Parameters(dict[str, JsonValue]):
    """``litellm_params``, which may hold a credential under any name: only the model's name is shown."""

    def __repr__(self) -> str:
        return repr({name: value if name == "model" else STARS for name, value in self.items()})
