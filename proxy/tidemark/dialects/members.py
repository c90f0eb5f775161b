"""Checks of single members that every dialect has, such as ``model`` and ``stream``.

Each dialect's parser calls them while it turns a body into a ``ModelRequest``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue, printable
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.raw_json import decode_value


def model_of(fields: Mapping[str, bytes]) -> str:
    """Read the member ``model``.

    :raises InvalidRequest: the member is missing, is not a string, or is too long
    """
    if "model" not in fields:
        raise InvalidRequest("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
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
        raise InvalidRequest(f"'{name}' must be true or false.", param=name, code="invalid_type")
    return bool(value)
