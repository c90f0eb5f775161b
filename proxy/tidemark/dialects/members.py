"""Checks of single members that every dialect has, such as ``model`` and ``stream``, and of those of other bodies.

Each dialect's parser calls them while it turns a body into a ``ModelRequest``, and so do the features' endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidemark.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue, Role, printable
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.raw_json import decode_value

MAX_OUTPUT_TOKENS = 100_000_000
"""A client that sends a larger reply length made a mistake."""


def model_of(fields: Mapping[str, bytes]) -> str:
    """Read the member ``model``.

    :raises InvalidRequest: the member is missing, is not a string, or is too long
    """
    if "model" not in fields:
        raise missing("model")
    return checked_model(decode_value(fields["model"], "model"))


def checked_model(model: JsonValue) -> str:
    """Check the name of a model, wherever a client sends one, and return it.

    :raises InvalidRequest: the value is not a string, is empty, or is longer than ``LONGEST_MODEL_NAME``
    """
    if not isinstance(model, str) or not model or model != printable(model):
        raise InvalidRequest("'model' must be a non-empty string.", param="model", code="invalid_type")
    if len(model) > LONGEST_MODEL_NAME:
        raise InvalidRequest(
            f"'model' must be at most {LONGEST_MODEL_NAME} characters long, not {len(model)}.",
            param="model",
            code="string_above_max_length",
        )
    return model


def flag_of(fields: Mapping[str, bytes], name: str) -> bool:
    """Read a member that is true, false or null; a missing member is false.

    :raises InvalidRequest: the member has another type
    """
    if name not in fields:
        return False
    value = decode_value(fields[name], name)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(name, "true or false")
    return bool(value)


def token_bound(fields: Mapping[str, bytes], name: str) -> int | None:
    """Read the longest reply that a client allows; None if it says nothing.

    :raises InvalidRequest: the member has another type, or is out of range
    """
    value = decode_value(fields[name], name) if name in fields else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "a whole number")
    if not 0 <= value <= MAX_OUTPUT_TOKENS:
        raise InvalidRequest(f"'{name}' must be between 0 and the model's maximum, not {value}.", param=name)
    return value


def role_of(message: Mapping[str, JsonValue], roles: Mapping[str, Role], where: str) -> Role:
    """Return the role of a message.

    :param roles: those of the dialect, by their names in it
    :param where: the message's place, for the error's ``param``
    :raises InvalidRequest: it has none of these
    """
    name = message.get("role")
    role = roles.get(name) if isinstance(name, str) else None
    if role is None:
        raise InvalidRequest(
            f"Unknown role {name!r} at {where}.role; use one of {', '.join(roles)}.", param=f"{where}.role"
        )
    return role


def check_names(names: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse a body with an unknown member, so that a typing error shows.

    :raises InvalidRequest: it has one
    """
    unknown = next((name[:80] for name in names if name not in allowed), None)
    if unknown is not None:
        message = f"Unknown parameter: {unknown!r}; use {', '.join(allowed)}."
        raise InvalidRequest(message, param=unknown, code="unknown_parameter")


def missing(name: str) -> InvalidRequest:
    """Return the error for a member that has to be there."""
    return InvalidRequest(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


def wrong_type(name: str, wanted: str) -> InvalidRequest:
    """Return the error for a member of another type."""
    return InvalidRequest(f"'{name}' must be {wanted}.", param=name, code="invalid_type")
