"""Tools as the provider's prompt shows them to the model: a TypeScript namespace.

Below ``counting``, which counts the text made here. The rule is not in the API reference; it was found by
comparing many requests with the API's own counts, and reproduces them exactly (published with
openai-chat-tokens, 2023; OpenAI's open-weight Harmony format has since shown the same form).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from proxy.core.messages import JsonValue

_DEEPEST = 50
"""Levels of a schema that are rendered; what is below is taken as JSON: no schema exhausts the stack."""
_NAMES = {"integer": "number"}


def render_namespace(functions: Sequence[Mapping[str, JsonValue]]) -> str:
    """The namespace for function definitions (``name``, ``description``, ``parameters``)."""
    lines = ["namespace functions {", ""]
    for function in functions:
        name, description = function.get("name"), function.get("description")
        parameters = function.get("parameters") or function.get("input_schema")
        if description:
            lines.append(f"// {description}")
        if isinstance(parameters, dict) and parameters.get("properties"):
            lines += [f"type {name} = (_: {{", _properties(parameters, 0, 0), "}) => any;"]
        else:
            lines.append(f"type {name} = () => any;")
        lines.append("")
    lines.append("} // namespace functions")
    return "\n".join(lines)


def split_tools(entries: JsonValue) -> tuple[list[Mapping[str, JsonValue]], list[JsonValue]]:
    """The function definitions among ``tools`` or ``functions``, and the entries that are something else."""
    functions: list[Mapping[str, JsonValue]] = []
    others: list[JsonValue] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        body = entry.get("function", entry) if isinstance(entry, dict) else None
        if isinstance(body, dict) and isinstance(body.get("name"), str):
            functions.append(body)
        else:
            others.append(entry)
    return functions, others


def _properties(schema: Mapping[str, JsonValue], indent: int, depth: int) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    lines: list[str] = []
    for name, value in properties.items() if isinstance(properties, dict) else ():
        member = value if isinstance(value, dict) else {}
        if member.get("description"):
            lines.append(f"// {member['description']}")
        mark = "" if name in needed else "?"
        lines.append(f"{name}{mark}: {_type(member, indent, depth)},")
    return "\n".join(" " * indent + line for line in lines)


def _type(schema: JsonValue, indent: int, depth: int) -> str:
    """One type. ``$ref`` is not followed, so a circle of references is no circle here."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return json.dumps(schema, ensure_ascii=False) if depth > _DEEPEST else "any"
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list):
            return " | ".join(_type(choice, indent, depth + 1) for choice in choices)
    values, kind = schema.get("enum"), schema.get("type")
    if isinstance(values, list) and kind in ("string", "number", "integer", None):
        return " | ".join(f'"{value}"' if isinstance(value, str) else f"{value}" for value in values)
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}, indent, depth + 1) for one in kind)
    return _plain_type(schema, kind, indent, depth)


def _plain_type(schema: Mapping[str, JsonValue], kind: JsonValue, indent: int, depth: int) -> str:
    if kind == "object" or (kind is None and "properties" in schema):
        return "\n".join(["{", _properties(schema, indent + 2, depth + 1), "}"])
    if kind == "array":
        return f"{_type(schema['items'], indent, depth + 1)}[]" if schema.get("items") else "any[]"
    return _NAMES.get(kind, kind) if isinstance(kind, str) else "any"
