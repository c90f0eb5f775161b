"""What a key of the application allows its holder: which models, until when, and how much (``auth.mode: keys``)."""

from __future__ import annotations

import re
from functools import lru_cache

from tidemark.core.frozen import frozen

CACHED_PATTERNS = 1024
LONGEST_NAME = 512
"""A longer name of a model is allowed to nobody who is restricted. No model has one, and to match it takes long."""


@frozen
class Quota:
    """How much somebody may ask for; None for no bound of the kind."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    """Of requests and answers, as providers count them."""
    concurrent: int | None = None
    """Requests that are being answered at once."""

    def __bool__(self) -> bool:
        """Tell whether there is any bound."""
        return (self.requests_per_minute, self.tokens_per_day, self.concurrent) != (None, None, None)


NO_QUOTA = Quota()


@frozen
class Grant:
    """What the holder of a key may do."""

    key: str
    """The key's id, which is no secret."""
    tenant: str
    """The name of the tenant that the key stands for."""
    models: tuple[str, ...] = ()
    """Names as clients send them, ``*`` for any text; empty for every model."""
    quota: Quota = NO_QUOTA
    """The key's own, beside its tenant's."""

    def allows(self, model: str) -> bool:
        """Return whether a model may be asked, by the name that the client uses."""
        if not self.models:
            return True
        return len(model) <= LONGEST_NAME and any(_pattern(name).fullmatch(model) for name in self.models)


@frozen
class ApplicationKey:
    """A key as it is stored: everything but the key itself."""

    id: str
    name: str
    """Unique among all keys."""
    tenant: str
    digest: bytes
    """A keyed hash of the secret key."""
    created: float
    """Unix time in seconds, as all times here."""
    models: tuple[str, ...] = ()
    expires: float | None = None
    """From this moment on the key is refused; None for never."""
    quota: Quota = NO_QUOTA
    rotated: float | None = None
    former_digest: bytes = b""
    """The hash of the secret before the last rotation; empty if there is none."""
    former_until: float = 0.0
    """Until when that one is accepted, too."""


@lru_cache(CACHED_PATTERNS)
def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for a name in which ``*`` stands for any text, as in ``model_list``."""
    return re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
