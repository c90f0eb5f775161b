"""Reads what a request says about a key, and writes dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from tidemark.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.grants import ApplicationKey, Quota
from tidemark.dialects.members import check_names

LONGEST_TEXT = 100
"""Characters of a name or a tenant."""
MOST_MODELS = 100
MOST_STARS = 4
"""In one name of a model: each more makes it slower to compare."""
MOST_HOURS = 24 * 365
MOST = 2**53
"""Of a quota: the largest whole number that every reader of JSON reads exactly."""
QUOTAS = ("requests_per_minute", "tokens_per_day", "concurrent")
GRACE = "grace_hours"
FIELDS = ("name", "tenant", "models", "expires", *QUOTAS)


@frozen
class KeyFields:
    """What is said of a key. A value of None says nothing; ``stated`` has the names that say something."""

    stated: frozenset[str]
    name: str | None = None
    tenant: str | None = None
    models: tuple[str, ...] = ()
    expires: float | None = None
    quota: Quota = Quota()

    def over(self, key: ApplicationKey) -> ApplicationKey:
        """Return a key with what is said of it."""
        quotas = {name: getattr(self.quota, name) for name in QUOTAS if name in self.stated}
        return replace(
            key,
            name=self.name or key.name,
            tenant=self.tenant or key.tenant,
            models=self.models if "models" in self.stated else key.models,
            expires=self.expires if "expires" in self.stated else key.expires,
            quota=replace(key.quota, **quotas),
        )


def read_fields(fields: Mapping[str, JsonValue]) -> KeyFields:
    """Read the members of a request; null resets one.

    :raises InvalidRequest: one is unknown, of another type or out of range
    """
    check_names(fields, FIELDS)
    return KeyFields(
        frozenset(fields),
        _text(fields, "name"),
        _text(fields, "tenant"),
        _models(fields.get("models")),
        _moment(fields.get("expires")),
        Quota(**{name: _bound(fields, name) for name in QUOTAS}),
    )


def read_grace(fields: Mapping[str, JsonValue]) -> float:
    """Read for how many hours the secret of before is accepted, too; without a member for none.

    :raises InvalidRequest: it is no number of hours, or another member is there
    """
    check_names(fields, (GRACE,))
    value = fields.get(GRACE, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_HOURS:
        raise InvalidRequest(f"'grace_hours' must be a number from 0 to {MOST_HOURS}.", param=GRACE)
    return float(value)


def date_of(seconds: float | None) -> str | None:
    """Write Unix seconds as ISO 8601 in UTC; None for none."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(fields: Mapping[str, JsonValue], name: str) -> str | None:
    value = fields.get(name)
    if value is None and name not in fields:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT or not value.isprintable():
        raise InvalidRequest(f"'{name}' must be a text of 1 to {LONGEST_TEXT} printable characters.", param=name)
    return value.strip()


def _models(value: JsonValue) -> tuple[str, ...]:
    if value is None:
        return ()
    names = value if isinstance(value, list) else [value]
    texts = [name.strip() for name in names if isinstance(name, str)]
    if len(texts) != len(names) or len(names) > MOST_MODELS:
        raise InvalidRequest(f"'models' must be a list of at most {MOST_MODELS} names.", param="models")
    if not texts:
        raise InvalidRequest("'models' is empty; null allows every model.", param="models")
    for name in texts:
        if not name or len(name) > LONGEST_MODEL_NAME or name.count("*") > MOST_STARS:
            raise InvalidRequest(
                f"{name[:80]!r} in 'models' is no name of a model; write 1 to {LONGEST_MODEL_NAME} characters, with "
                f"at most {MOST_STARS} *.",
                param="models",
            )
    return tuple(dict.fromkeys(texts))


def _moment(value: JsonValue) -> float | None:
    """Read a date: a day begins, and ends a key, at midnight of UTC."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise InvalidRequest("'expires' must be a date such as 2030-12-31, or 2030-12-31T18:00Z.", param="expires")
    try:
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        date_of(seconds)
    except (OverflowError, ValueError):
        raise InvalidRequest("'expires' must be within the years 1 to 9999 of UTC.", param="expires") from None
    return seconds


def _bound(fields: Mapping[str, JsonValue], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise InvalidRequest(f"'{name}' must be a whole number of 1 or more, and at most {MOST:,}.", param=name)
    return value
