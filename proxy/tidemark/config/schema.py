"""Builds the JSON Schema (2020-12) of the configuration file from the sections and kinds that the loader reads.

``tidemark schema`` prints it, and editors validate and complete with it. Only the loader checks what the language
cannot express: whole numbers written as 1.0, marks that contradict each other, variables and files that must exist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidemark.config.descriptions import class_description, field_descriptions
from tidemark.config.kinds import Kind, Schema, text, with_reference
from tidemark.config.loading import LITELLM_SECTIONS, PLAIN_SECTIONS, TENANT
from tidemark.config.models import (
    BETA_KEY,
    DIALECTS,
    ENTRY_KEYS,
    FLAG,
    LANES,
    TOKENIZER,
    TOKENIZER_KEY,
    TOKENS,
    WINDOW,
    WINDOW_KEYS,
    ModelEntry,
)
from tidemark.config.policies import CompactionSettings
from tidemark.config.reading import LATER, REFERENCE
from tidemark.config.sections import ROOT_KINDS, SECTIONS, TenantSettings
from tidemark.config.settings import CompactionByModel, Settings
from tidemark.core.conversation.messages import JsonValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WINDOWS: Mapping[str, str] = {
    "max_input_tokens": "The longest input in tokens.",
    "max_output_tokens": "The longest reply in tokens.",
    "context_window": "The tokens that input and output share, where that number differs.",
}
_INFO = "The model's window, where neither `models.yaml` nor litellm knows it, and LiteLLM's other keys."


def configuration_schema() -> Schema:
    """Return the schema of the whole file."""
    properties: dict[str, JsonValue] = {
        "model_list": _model_list(),
        "compaction": _compaction(),
        **{name: _section(SECTIONS[name], name) for name in PLAIN_SECTIONS},
    }
    store: Any = properties["store"]
    store["properties"]["tenants"] = _tenants()
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
            "compaction": _section(CompactionSettings(), "compaction", has_defaults=False),
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


def _section(section: Any, path: str, *, has_defaults: bool = True) -> JsonValue:
    """Return the schema of a section.

    :param path: its name in ``LATER``
    :param has_defaults: whether a key that is left out has the section's default, and not a less specific value
    """
    kind_of_section: type = type(section)
    described = field_descriptions(kind_of_section)
    properties: dict[str, JsonValue] = {}
    for field in dataclasses.fields(section):
        default = getattr(section, field.name)
        if dataclasses.is_dataclass(default):
            properties[field.name] = _section(default, f"{path}.{field.name}", has_defaults=has_defaults)
            continue
        kind: Kind[Any] = field.metadata["kind"]
        value = _value(kind, described.get(field.name, ""))
        if f"{path}.{field.name}" in LATER:
            value["anyOf"] = [{"enum": sorted({str(default), *map(str, LATER[f"{path}.{field.name}"])})}]
        properties[field.name] = value | ({"default": _plain(kind, default)} if has_defaults else {})
    return _object(properties, class_description(kind_of_section))


def _value(kind: Kind[Any], description: str, **more: JsonValue) -> dict[str, JsonValue]:
    """Return the schema of one key, which a variable of the environment may give as well."""
    wanted = f"It takes {kind.wanted}."
    accepted: Any = with_reference(kind.schema)
    return {"description": f"{description} {wanted}".strip(), **accepted, **more}


def _plain(kind: Kind[Any], default: object) -> JsonValue:
    """Return a default as JSON."""
    if default is None:
        return None if kind.none == "null" else kind.none
    if isinstance(default, tuple):
        return [str(entry) for entry in default]
    return default if isinstance(default, bool | int | float) else str(default)


def _tenants() -> JsonValue:
    described = field_descriptions(TenantSettings)
    keys: dict[str, JsonValue] = {
        field.name: _value(field.metadata["kind"], described.get(field.name, ""))
        for field in dataclasses.fields(TenantSettings)
    }
    return {
        "description": field_descriptions(Settings)["tenants"],
        "type": ["object", "null"],
        "propertyNames": {"pattern": f"^{TENANT.pattern}$"},
        "additionalProperties": _object(keys, class_description(TenantSettings)),
    }


def _compaction() -> JsonValue:
    models: JsonValue = {
        "description": field_descriptions(CompactionByModel)["models"],
        "type": ["object", "null"],
        "additionalProperties": {"$ref": "#/$defs/compaction"},
    }
    defaults = _section(SECTIONS["compaction.defaults"], "compaction")
    return _object({"defaults": defaults, "models": models}, class_description(CompactionSettings))


def _model_list() -> JsonValue:
    described = field_descriptions(ModelEntry)
    params = _object({"model": _value(text(), "The model at its provider: PROVIDER/MODEL.")}, required=("model",))
    windows: dict[str, JsonValue] = {key: _value(TOKENS, _WINDOWS[key]) for key in WINDOW_KEYS}
    windows[BETA_KEY] = {
        "description": "The windows of requests with one of Anthropic's beta headers, in tokens by the header's value.",
        "type": ["object", "null"],
        "additionalProperties": with_reference(WINDOW.schema),
    }
    windows[TOKENIZER_KEY] = _value(
        TOKENIZER, "What counts its tokens: an encoding (`o200k_base`), or the name of a model that is counted alike."
    )
    windows["thinking_binding"] = _value(
        FLAG, "Whether the model checks what its signed thinking stands behind; without it, its name says so."
    )
    windows["native_compaction"] = _value(
        FLAG, "Whether the upstream writes summaries itself, for `strategy: native`; without it, its name says so."
    )
    windows["dialects"] = _value(DIALECTS, "The client formats that the upstream speaks itself.")
    entry: dict[str, JsonValue] = {
        "model_name": _value(text(), described["name"]),
        "litellm_params": _open(params) | {"description": "The parameters for litellm: model, api_base, api_key."},
        "model_info": _open(_object(windows, _INFO)),
        "compaction": {"description": described["compaction"], "$ref": "#/$defs/compaction"},
        "lane": _value(LANES, "`auto`: the wire lane for OpenAI's format.", default="auto"),
    }
    return {
        "description": f"The models, in LiteLLM's syntax. {field_descriptions(Settings)['model_list']}",
        "type": ["array", "null"],
        "items": _object({key: entry[key] for key in ENTRY_KEYS}, required=("model_name", "litellm_params")),
    }
