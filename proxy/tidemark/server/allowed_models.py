"""Keeps a key that is restricted to some models from every other one: what cannot be judged is refused.

Endpoints ask it once a request is read and before anything is sent. ``upstream/upstream.py`` looks once more at the
model of each request that it sends. A model may also be named where nobody would look for it: twice, in capitals as
Go's servers read it, as a fallback of a gateway, by a tool, or in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote_plus

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import ModelNotAllowed
from tidemark.core.ports import Caller, Headers
from tidemark.dialects.raw_json import decode_value, member_names, read_members
from tidemark.pipeline.carried_objects import IMAGE_EDITS, MODEL_CALLS

MODEL = "model"
NAMING = frozenset({MODEL, "models", "model_id", "model_list", "fallback", "fallbacks"})
"""Members that name a model, in small letters. Gateways (LiteLLM, OpenRouter) go on to a second one."""
CONTENT = frozenset(
    {"messages", "input", "system", "instructions", "prompt", "metadata", "response_format", "text", "functions"}
)
"""Top members that hold what people and programs wrote, and name no model."""
SCHEMAS = frozenset({"parameters", "input_schema", "function", "schema"})
"""Members of tools that describe arguments, which may have any name."""
_MAY_NAME = re.compile(rb"model|fallback|\\u00", re.IGNORECASE)
"""What a value contains that names a model; a name may be written with escapes."""
_UNJUDGED = (
    "This key may use some models only, and {what} may reach others. Use a key without models for it, or name one "
    "model in the body of a request that has no other."
)


def check_body(body: bytes, caller: Caller, fields: Mapping[str, bytes] | None = None) -> None:
    """Refuse a JSON body that names a model which its caller may not ask.

    :param fields: the body's top members, if they are read already
    :raises ModelNotAllowed: it does, or may
    :raises InvalidRequest: the body is no JSON object
    """
    if not caller.is_restricted:
        return
    fields = read_members(body) if fields is None else fields
    if body.count(b'"model"') > 1 or b"\\u00" in body:  # a name may be written with escapes
        if [name.lower() for name in member_names(body)].count(MODEL) > 1:
            raise unjudged("a body with two members 'model'")
    elif any(name.lower() == MODEL and name != MODEL for name in fields):
        raise unjudged("a body with two members 'model'")
    if MODEL not in fields:
        raise unjudged("a body without a member 'model'")
    for name, raw in fields.items():
        if name.lower() not in CONTENT and (_names_models(name) or _MAY_NAME.search(raw)):
            for model in _models_in(decode_value(raw, name), is_name=_names_models(name)):
                caller.check_model(model)


def check_query(query: str, caller: Caller) -> None:
    """Refuse a query that names a model, which LiteLLM's proxy takes before the body's.

    :param query: without its question mark
    :raises ModelNotAllowed: it does
    """
    if not caller.is_restricted or not query:
        return
    for pair in query.replace(";", "&").split("&"):
        name = unquote_plus(pair.partition("=")[0])
        if _names_models(name) or "deployment" in name.lower():
            raise unjudged("a query that names a model")


def check_carried(method: str, path: str, body: bytes, caller: Caller, *, headers: Headers, model: str) -> None:
    """Refuse a carried request whose models nobody can tell: files, batches, what is made elsewhere.

    :param path: below the base URL, with its query
    :param body: as it came
    :param model: the model that its body or form names; a query names it for other servers only
    :raises ModelNotAllowed: it may reach a model that its caller may not ask
    """
    if not caller.is_restricted:
        return
    place, _, query = path.partition("?")
    kinds = [value for name, value in headers if name == b"content-type"]
    if (
        method != "POST"
        or place not in MODEL_CALLS | {IMAGE_EDITS}
        or not model
        or len(kinds) > 1
        or any(kind.lower().count(b"boundary") > 1 for kind in kinds)
    ):
        raise unjudged(f"{method} /v1{place[:80]}")
    check_query(query, caller)
    caller.check_model(model)
    if body.lstrip().startswith(b"{"):
        if kinds and b"json" not in kinds[0] and not kinds[0].startswith(b"text/plain"):
            raise unjudged("JSON of another type")
        check_body(body, caller)


def unjudged(what: str) -> ModelNotAllowed:
    """Return the error of a request that may reach a model which nobody can tell."""
    return ModelNotAllowed("", _UNJUDGED.format(what=what))


def allowed_entries(entries: list[JsonValue], caller: Caller) -> list[JsonValue]:
    """Return the entries of a list of models that a caller may ask."""
    if caller.grant is None or not caller.is_restricted:
        return entries
    allows = caller.grant.allows
    return [entry for entry in entries if isinstance(entry, dict) and allows(str(entry.get("id")))]


def _names_models(name: str) -> bool:
    small = name.lower()
    return small in NAMING or small.endswith("_fallbacks")


def _models_in(value: JsonValue, *, is_name: bool) -> Iterator[str]:
    """Yield the models that a value names.

    :param is_name: whether the value stands where a model is named
    """
    if isinstance(value, str):
        if is_name:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _models_in(item, is_name=is_name)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name.lower() not in SCHEMAS:
                yield from _models_in(item, is_name=is_name or _names_models(name))
