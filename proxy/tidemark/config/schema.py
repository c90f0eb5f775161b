"""Builds the JSON Schema (2020-12) of the configuration file from the sections that the loader reads.

The types of their fields say what a key takes, and the docstrings beneath them describe it. ``tidemark schema`` prints
it, and editors validate and complete with it. Only the loader checks what the language cannot express: whole numbers
written as 1.0, marks that contradict each other, variables and files that must exist.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from tidemark.config.access_sections import QuotaSettings
from tidemark.config.kinds import Kind, Schema, Text, Tokens, kind_of, kinds_of
from tidemark.config.loading import LITELLM_SECTIONS, PLAIN_SECTIONS, TENANT
from tidemark.config.models import BETA_KEY, ENTRY_KEYS, LaneChoice, ModelEntry, ModelInfo
from tidemark.config.reader import REFERENCE
from tidemark.config.sections import ROOT_KINDS, SECTIONS, CompactionSettings, ModelStoreSettings, TenantSettings
from tidemark.config.settings import CompactionByModel, Settings
from tidemark.core.conversation.messages import JsonValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SOURCE = re.compile(r" \((?:FR-|S\d)[^()]*\)")
"""The requirement that a sentence comes from, which says nothing to somebody who writes a configuration."""


def configuration_schema() -> Schema:
    """Return the schema of the whole file."""
    properties: dict[str, JsonValue] = {
        "model_list": _model_list(),
        "compaction": _compaction(),
        **{name: _section(SECTIONS[name], SECTIONS[name]()) for name in PLAIN_SECTIONS},
    }
    store: Any = properties["store"]
    store["properties"]["tenants"] = _tenants()
    store["properties"]["models"] = {
        "description": field_descriptions(Settings)["store_models"],
        "type": ["object", "null"],
        "additionalProperties": _section(ModelStoreSettings, None),
    }
    privacy: Any = properties["privacy"]
    privacy["properties"]["redact"] = {
        "description": field_descriptions(Settings)["redact"],
        "type": "object",
        "additionalProperties": {"type": "string", "pattern": r"\S"},
    }
    limits: Any = properties["limits"]
    limits["properties"]["tenants"] = {
        "description": field_descriptions(Settings)["quotas"],
        "type": ["object", "null"],
        "additionalProperties": _section(QuotaSettings, None),
    }
    described = field_descriptions(Settings)
    for name, kind in ROOT_KINDS.items():
        properties[name] = _value(kind, described[name], default=None)
    for name in LITELLM_SECTIONS:
        properties[name] = {"description": "LiteLLM's own section, which Tidemark ignores.", "deprecated": True}
    return {
        "$schema": DIALECT,
        "title": "Tidemark's configuration",
        "description": "Every key has a default, so an empty file is a valid one.",
        **_object(properties),
        "$defs": {
            "reference": {
                "description": f"A value that is read from the environment when Tidemark starts: {REFERENCE}NAME.",
                "type": "string",
                "pattern": f"^{REFERENCE.replace('.', chr(92) + '.')}",
            },
            "compaction": _section(CompactionSettings, None),
        },
    }


def _object(properties: Mapping[str, JsonValue], description: str = "", required: tuple[str, ...] = ()) -> Any:
    """Return a table with known keys only; a table without any key is null in YAML."""
    schema: dict[str, JsonValue] = {"description": description} if description else {}
    schema |= {"type": "object" if required else ["object", "null"], "properties": dict(properties)}
    return schema | {"additionalProperties": False} | ({"required": list(required)} if required else {})


def _open(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a table that takes further keys, as LiteLLM's own do."""
    return schema | {"additionalProperties": True}


def _section(section: type[Struct], defaults: Struct | None) -> JsonValue:
    """Return the schema of a section; without defaults, a less specific value stands for a key that is left out."""
    described = field_descriptions(section)
    properties: dict[str, JsonValue] = {}
    for name, kind in kinds_of(section).items():
        default = kind.stated(getattr(defaults, name, None))
        if kind.is_section:
            properties[name] = _section(kind.type, default)
        else:
            stated = {"default": [*default] if kind.each else default} if defaults else {}
            properties[name] = _value(kind, described.get(name, ""), **stated)
    return _object(properties, class_description(section))


def _value(kind: Kind, description: str, **more: JsonValue) -> dict[str, JsonValue]:
    """Return the schema of one key, which a variable of the environment may give as well."""
    wanted = f"It takes {kind.wanted}."
    accepted: Any = with_reference(schema_of(kind))
    return {"description": f"{description} {wanted}".strip(), **accepted, **more}


def schema_of(kind: Kind) -> Schema:
    """Return the schema of a kind's values."""
    if kind.none:
        accepted: Any = schema_of(dataclasses.replace(kind, none=()))
        return {"anyOf": [{"const": kind.none[0]}, *accepted.get("anyOf", [accepted])]}
    if kind.each is not None:
        return {"type": ["array", "null"], "items": with_reference(schema_of(kind.each))}
    if kind.words:
        return {"enum": [*kind.words]}
    derived = msgspec.json.schema(kind.type)
    derived.pop("description", None)  # the words stand in the key's description
    return kind.schema or derived


def with_reference(schema: Schema) -> JsonValue:
    """Return a schema that also accepts LiteLLM's ``os.environ/NAME`` in place of the value."""
    reference: JsonValue = {"$ref": "#/$defs/reference"}
    match schema:
        case {"anyOf": [*choices], **rest} if not rest:
            return {"anyOf": [*choices, reference]}
    return {"anyOf": [dict(schema), reference]}


def _tenants() -> JsonValue:
    return {
        "description": field_descriptions(Settings)["tenants"],
        "type": ["object", "null"],
        "propertyNames": {"pattern": f"^{TENANT.pattern}$"},
        "additionalProperties": _section(TenantSettings, None),
    }


def _compaction() -> JsonValue:
    models: JsonValue = {
        "description": field_descriptions(CompactionByModel)["models"],
        "type": ["object", "null"],
        "additionalProperties": {"$ref": "#/$defs/compaction"},
    }
    defaults = _section(CompactionSettings, CompactionSettings())
    return _object({"defaults": defaults, "models": models}, class_description(CompactionSettings))


def _model_list() -> JsonValue:
    described, text = field_descriptions(ModelEntry), kind_of(Text)
    params = _object({"model": _value(text, "The model at its provider: PROVIDER/MODEL.")}, required=("model",))
    info: Any = _section(ModelInfo, None)
    info["properties"][BETA_KEY] = {
        "description": "The windows of requests with one of Anthropic's beta headers, in tokens by the header's value.",
        "type": ["object", "null"],
        "additionalProperties": with_reference(schema_of(kind_of(Tokens))),
    }
    entry: dict[str, JsonValue] = {
        "model_name": _value(text, described["name"]),
        "litellm_params": _open(params) | {"description": "The parameters for litellm: model, api_base, api_key."},
        "model_info": _open(info),
        "compaction": {"description": described["compaction"], "$ref": "#/$defs/compaction"},
        "lane": _value(kind_of(LaneChoice), "`auto`: the wire lane for OpenAI's format.", default="auto"),
    }
    return {
        "description": f"The models, in LiteLLM's syntax. {field_descriptions(Settings)['model_list']}",
        "type": ["array", "null"],
        "items": _object({key: entry[key] for key in ENTRY_KEYS}, required=("model_name", "litellm_params")),
    }


@cache
def field_descriptions(kind: type) -> Mapping[str, str]:
    """Return the descriptions of a class's fields by their names; fields without a docstring are left out."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    if not isinstance(definition, ast.ClassDef):
        return {}
    descriptions = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                descriptions[name] = cleaned(text)
    return descriptions


def class_description(kind: type) -> str:
    """Return the first statement of a class's docstring."""
    return cleaned(inspect.getdoc(kind) or "").partition(";")[0].rstrip(".") + "."


def cleaned(text: str) -> str:
    """Return a docstring as one line of Markdown without references to requirements."""
    return _SOURCE.sub("", " ".join(text.split())).replace("``", "`")
