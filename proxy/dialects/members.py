"""Checks of single members that every dialect has, such as ``model`` and ``stream``.

Each dialect's parser calls them while it turns a body into a ``ModelRequest``.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue, printable
from proxy.core.errors import InvalidRequest
from proxy.dialects.raw_json import decoded


def model_of(fields: Mapping[str, bytes]) -> str:
    """Read the member ``model``.

    :raises InvalidRequest: the member is missing, is no text, or is too long
    """
    if "model" not in fields:
        raise InvalidRequest("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    return checked_model(decoded(fields["model"], "model"))


def checked_model(model: JsonValue) -> str:
    """Return the name of a model, wherever a client gives one.

    :raises InvalidRequest: it is no text, or longer than ``LONGEST_MODEL_NAME``
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
    """Read a member that is true, false or null; a missing one is false.

    :raises InvalidRequest: the member has another type
    """
    if name not in fields:
        return False
    value = decoded(fields[name], name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be true or false.", param=name, code="invalid_type")
    return bool(value)
