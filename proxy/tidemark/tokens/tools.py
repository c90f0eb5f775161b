"""Renders tools as the provider's prompt shows them to the model: as a TypeScript namespace.

``accounting`` counts the text that is rendered here. The rule is not in the API reference. Others derived it from the
API's own counts: openai-chat-tokens for ``functions`` (2023), the OpenAI cookbook and openai-messages-token-helper for
``tools`` (2024). OpenAI's open-weight Harmony format has since shown the same form. An object without a described
member is rendered on one line, because that reproduces the counts of openai-messages-token-helper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen

_DEEPEST = 50
"""Levels of a schema that are rendered. Deeper levels count as JSON, so no schema exhausts the stack."""
_NAMES = {"integer": "number"}
_DEFINITIONS = ("$defs", "definitions")
_UNRENDERED = ("allOf", "not", "prefixItems", "patternProperties")
"""Keywords that the published rule omits. The prompt must contain them somehow, so they count as JSON."""


@frozen
class _Layout:
    """The layout of an object's members."""

    indent: int
    """Spaces before a member, for each level of the schema above it."""
    one_line: bool
    """Whether an object without a described member is rendered on one line."""
    inner_descriptions: bool
    """Whether members of members have their descriptions."""


_TOOLS = _Layout(indent=0, one_line=True, inner_descriptions=True)
_LEGACY = _Layout(indent=2, one_line=False, inner_descriptions=False)


def render_namespace(functions: Sequence[Mapping[str, JsonValue]], *, legacy: bool = False) -> str:
    """Render the namespace for function definitions (``name``, ``description``, ``parameters``).

    The two layouts were measured a year apart and differ inside the braces:

    * ``tools``: nothing is indented, and an object without a described member is on one line
    * ``functions`` (``legacy``): members are on lines of their own, indented, and members of members lose their
      descriptions
    """
    layout = _LEGACY if legacy else _TOOLS
    lines = ["namespace functions {", ""]
    for function in functions:
        name, description = function.get("name"), function.get("description")
        parameters = function.get("parameters") or function.get("input_schema")
        if description:
            lines.append(f"// {description}")
        if isinstance(parameters, dict) and parameters.get("properties"):
            lines.append(f"type {name} = (_: {_object(parameters, layout, 0)}) => any;")
        else:
            lines.append(f"type {name} = () => any;")
        lines.append("")
    lines.append("} // namespace functions")
    return "\n".join(lines)


def split_tools(entries: JsonValue) -> tuple[list[Mapping[str, JsonValue]], list[JsonValue]]:
    """Split ``tools`` or ``functions`` into function definitions and all other values.

    ``$ref`` is never followed, so circular references do no harm. Referenced definitions are counted once, as JSON,
    which is longer than the API's own form. The tools of a namespace count like all others, and the grammar of a custom
    tool as its JSON (OpenAI API reference, "Create a model response", ``tools``).
    """
    functions: list[Mapping[str, JsonValue]] = []
    others: list[JsonValue] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        body = entry.get("function", entry) if isinstance(entry, dict) else None
        if isinstance(body, dict) and isinstance(body.get("tools"), list):
            nested, unknown = split_tools(body["tools"])
            functions += nested
            others += [*unknown, {name: value for name, value in body.items() if name != "tools"}]
        elif isinstance(body, dict) and isinstance(body.get("name"), str):
            functions.append(body)
            others += [body["format"]] if body.get("format") else []
            schema = body.get("parameters") or body.get("input_schema")
            if isinstance(schema, dict):
                others += [schema[name] for name in _DEFINITIONS if schema.get(name)]
        else:
            others.append(entry)
    return functions, others


def serialised(value: JsonValue) -> str:
    """Return a value as JSON, or all its words if it is nested too deep for that."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return words(value)


def words(value: JsonValue) -> str:
    """Return all names and values of a JSON value with at least JSON's punctuation, at any depth."""
    parts: list[str] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            parts += [f'{{"{name}": ' for name in item]
            pending += item.values()
        elif isinstance(item, list):
            parts.append("[ , ]")
            pending += item
        else:
            parts.append(f'"{item}", ')
    return "\n".join(parts)


def _object(schema: Mapping[str, JsonValue], layout: _Layout, depth: int) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    members: list[str] = []
    broken = not layout.one_line
    for name, value in properties.items() if isinstance(properties, dict) else ():
        member = value if isinstance(value, dict) else {}
        if member.get("description") and (layout.inner_descriptions or depth == 0):
            members.append(f"// {member['description']}")
            broken = True
        rendered = _type(member, layout, depth)
        broken = broken or "\n" in rendered
        members.append(f"{name}{'' if name in needed else '?'}: {rendered},")
    if not members:
        return "{}"
    if not broken:
        return f"{{ {' '.join(members).removesuffix(',')} }}"
    indent = " " * layout.indent * depth
    return "\n".join(["{", *(indent + line for line in members), "}"])


def _type(schema: JsonValue, layout: _Layout, depth: int) -> str:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return serialised(schema) if depth > _DEEPEST else "any"
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list):
            return " | ".join([_type(choice, layout, depth + 1) for choice in choices])
    values, kind = schema.get("enum"), schema.get("type")
    if isinstance(values, list) and kind in ("string", "number", "integer", None):
        return " | ".join(_literals(values))
    if isinstance(kind, list):
        # Each kind is rendered once. A type that is repeated at each of 50 levels would be rendered 2**50 times.
        kinds = dict.fromkeys(str(name) for name in kind)
        return " | ".join([_plain_type(schema, name, layout, depth) for name in kinds])
    return _plain_type(schema, kind, layout, depth)


def _plain_type(schema: Mapping[str, JsonValue], kind: JsonValue, layout: _Layout, depth: int) -> str:
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, layout, depth + 1)
    if kind == "array":
        items = schema.get("items")
        return f"{_type(items, layout, depth + 1)}[]" if items else "any[]"
    if isinstance(kind, str):
        return _NAMES.get(kind, kind)
    unrendered = [schema[name] for name in _UNRENDERED if name in schema]
    return serialised(unrendered) if unrendered else "any"


def _literals(values: Iterable[JsonValue]) -> list[str]:
    return [f'"{value}"' if isinstance(value, str) else serialised(value) for value in values]
