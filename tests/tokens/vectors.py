"""One request for every published rule of OpenAI's accounting, with what is billed written out by hand beside it.

All of it is ours: no request or text was taken over. Where the rules come from, and against which measurements with the
API they were held: docs/counting.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from tidemark.core.conversation.messages import JsonValue

MESSAGE = 3 + 1
"""What opens and ends a message, and its role."""
NAME = 1
CALL = 3
PRIMING = 3
NAMESPACE = 9
JOINS_SYSTEM = -4
FUNCTION_RESULT = -2
TOOL_RESULT = 2

Json = dict[str, JsonValue]


@dataclass(frozen=True)
class Vector:
    """A request, the texts that are billed for it as the model sees them, and the tokens beside them."""

    rule: str
    request: Json
    texts: list[str]
    beside: int


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _system(text: str) -> Json:
    return {"role": "system", "content": text}


def _function(name: str, properties: Json | None = None, *required: str, about: str | None = None) -> Json:
    described: Json = {} if about is None else {"description": about}
    given: Json = {} if properties is None else {"parameters": _object(properties, *required)}
    return {"name": name, **described, **given}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _tools(*functions: Json) -> list[JsonValue]:
    return [{"type": "function", "function": function} for function in functions]


def _namespace(body: str) -> str:
    return "namespace functions {\n\n" + dedent(body).lstrip("\n").rstrip() + "\n\n} // namespace functions"


TIDE = _function("read_tide", {"harbour": {"type": "string", "description": "Where the gauge stands"}}, "harbour")
TIDE_TEXT = _namespace("""
    type read_tide = (_: {
    // Where the gauge stands
    harbour: string,
    }) => any;
""")
PLAIN = _function("list_boats")
PLAIN_TEXT = _namespace("type list_boats = () => any;")
ASK = _user("When can we sail?")
ASK_BILLED = ["When can we sail?"]
CALLED: Json = {"name": "read_tide", "arguments": '{"harbour":"Husum"}'}
CALL_1: Json = {"id": "call_1", "type": "function", "function": CALLED}

MESSAGES = [
    Vector(
        "each message costs its opening, its role and its text, and the reply is primed",
        {"messages": [_system("You pilot ships."), ASK, {"role": "assistant", "content": "At noon."}]},
        ["You pilot ships.", *ASK_BILLED, "At noon."],
        3 * MESSAGE + PRIMING,
    ),
    Vector(
        "a name costs one more than its tokens",
        {"messages": [{**_system("Ebb is falling water."), "name": "glossary"}, {**ASK, "name": "skipper"}]},
        ["Ebb is falling water.", "glossary", "When can we sail?", "skipper"],
        2 * MESSAGE + 2 * NAME + PRIMING,
    ),
    Vector(
        "content in parts costs what its texts cost",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "High water?"}]}]},
        ["High water?"],
        MESSAGE + PRIMING,
    ),
    Vector(
        "each call costs three more than its name and arguments, and no id",
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL_1, {**CALL_1, "id": "call_2"}]}]},
        ["read_tide", '{"harbour":"Husum"}'] * 2,
        MESSAGE + 2 * CALL + PRIMING,
    ),
    Vector(
        "a tool's result costs two more than its text, and neither name nor id",
        {"messages": [{"role": "tool", "tool_call_id": "call_1", "name": "read_tide", "content": "1.80 m"}]},
        ["1.80 m"],
        MESSAGE + TOOL_RESULT + PRIMING,
    ),
    Vector(
        "a function's result costs two less than its parts",
        {"messages": [{"role": "function", "name": "read_tide", "content": "1.80 m"}]},
        ["read_tide", "1.80 m"],
        MESSAGE + NAME + FUNCTION_RESULT + PRIMING,
    ),
    Vector(
        "a legacy call costs what a call costs",
        {"messages": [{"role": "assistant", "content": "", "function_call": CALLED}]},
        ["read_tide", '{"harbour":"Husum"}'],
        MESSAGE + CALL + PRIMING,
    ),
]

CHOICES = [
    Vector(
        "tools are a namespace and nine",
        {"messages": [ASK], "tools": _tools(TIDE)},
        [*ASK_BILLED, TIDE_TEXT],
        MESSAGE + PRIMING + NAMESPACE,
    ),
    Vector(
        "the namespace joins a system message, which gets a line end",
        {"messages": [_system("You pilot ships."), ASK], "tools": _tools(TIDE)},
        ["You pilot ships.\n", *ASK_BILLED, TIDE_TEXT],
        2 * MESSAGE + PRIMING + NAMESPACE + JOINS_SYSTEM,
    ),
    Vector(
        "it joins the first of two system messages only",
        {"messages": [_system("You pilot ships:"), _system("Be brief."), ASK], "tools": _tools(PLAIN)},
        ["You pilot ships:\n", "Be brief.", *ASK_BILLED, PLAIN_TEXT],
        3 * MESSAGE + PRIMING + NAMESPACE + JOINS_SYSTEM,
    ),
    Vector(
        "choosing auto costs nothing",
        {"messages": [ASK], "tools": _tools(PLAIN), "tool_choice": "auto"},
        [*ASK_BILLED, PLAIN_TEXT],
        MESSAGE + PRIMING + NAMESPACE,
    ),
    Vector(
        "choosing none costs one",
        {"messages": [ASK], "tools": _tools(PLAIN), "tool_choice": "none"},
        [*ASK_BILLED, PLAIN_TEXT],
        MESSAGE + PRIMING + NAMESPACE + 1,
    ),
    Vector(
        "naming a tool costs its name and seven",
        {
            "messages": [ASK],
            "tools": _tools(PLAIN),
            "tool_choice": {"type": "function", "function": {"name": "list_boats"}},
        },
        [*ASK_BILLED, PLAIN_TEXT, "list_boats"],
        MESSAGE + PRIMING + NAMESPACE + 7,
    ),
    Vector(
        "naming a function costs its name and four",
        {"messages": [ASK], "functions": [PLAIN], "function_call": {"name": "list_boats"}},
        [*ASK_BILLED, PLAIN_TEXT, "list_boats"],
        MESSAGE + PRIMING + NAMESPACE + 4,
    ),
    Vector(
        "a schema for the answer counts as its JSON",
        {
            "messages": [ASK],
            "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "object"}}},
        },
        [*ASK_BILLED, '{"name":"t","schema":{"type":"object"}}'],
        MESSAGE + PRIMING,
    ),
]


def _shaped(rule: str, function: Json, tools: str, functions: str) -> list[Vector]:
    """The same definition as one of ``tools`` and as one of ``functions``."""
    beside = MESSAGE + PRIMING + NAMESPACE
    return [
        Vector(
            f"tools: {rule}", {"messages": [ASK], "tools": _tools(function)}, [*ASK_BILLED, _namespace(tools)], beside
        ),
        Vector(
            f"functions: {rule}",
            {"messages": [ASK], "functions": [function]},
            [*ASK_BILLED, _namespace(functions)],
            beside,
        ),
    ]


_BERTH: Json = {"quay": {"type": "string"}, "number": {"type": "integer"}}
_DESCRIBED_BERTH: Json = {**_BERTH, "depth": {"type": "number", "description": "Metres at low water"}}

SHAPES = [
    *_shaped(
        "a described function without members",
        _function("list_boats", {}, about="All boats in the harbour"),
        """
        // All boats in the harbour
        type list_boats = () => any;
        """,
        """
        // All boats in the harbour
        type list_boats = () => any;
        """,
    ),
    *_shaped(
        "members without a description",
        _function("moor", _BERTH, "quay"),
        """
        type moor = (_: { quay: string, number?: number }) => any;
        """,
        """
        type moor = (_: {
        quay: string,
        number?: number,
        }) => any;
        """,
    ),
    *_shaped(
        "one member of several described",
        _function("moor", _DESCRIBED_BERTH, "quay", "depth"),
        """
        type moor = (_: {
        quay: string,
        number?: number,
        // Metres at low water
        depth: number,
        }) => any;
        """,
        """
        type moor = (_: {
        quay: string,
        number?: number,
        // Metres at low water
        depth: number,
        }) => any;
        """,
    ),
    *_shaped(
        "enums of strings and of numbers",
        _function("signal", {"flag": {"type": "string", "enum": ["red", "green"]}, "hoists": {"enum": [1, 2]}}, "flag"),
        """
        type signal = (_: { flag: "red" | "green", hoists?: 1 | 2 }) => any;
        """,
        """
        type signal = (_: {
        flag: "red" | "green",
        hoists?: 1 | 2,
        }) => any;
        """,
    ),
    *_shaped(
        "an array of plain members and one of anything",
        _function("log", {"depths": {"type": "array", "items": {"type": "number"}}, "notes": {"type": "array"}}),
        """
        type log = (_: { depths?: number[], notes?: any[] }) => any;
        """,
        """
        type log = (_: {
        depths?: number[],
        notes?: any[],
        }) => any;
        """,
    ),
    *_shaped(
        "an object inside, nothing described",
        _function("moor", {"berth": _object(_BERTH, "quay")}, "berth"),
        """
        type moor = (_: { berth: { quay: string, number?: number } }) => any;
        """,
        """
        type moor = (_: {
        berth: {
          quay: string,
          number?: number,
        },
        }) => any;
        """,
    ),
    *_shaped(
        "an object inside, described there",
        _function("moor", {"berth": {**_object(_DESCRIBED_BERTH), "description": "The place"}}),
        """
        type moor = (_: {
        // The place
        berth?: {
        quay?: string,
        number?: number,
        // Metres at low water
        depth?: number,
        },
        }) => any;
        """,
        """
        type moor = (_: {
        // The place
        berth?: {
          quay?: string,
          number?: number,
          depth?: number,
        },
        }) => any;
        """,
    ),
    *_shaped(
        "one of several kinds",
        _function("wait", {"until": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]}}, "until"),
        """
        type wait = (_: { until: string | number | null }) => any;
        """,
        """
        type wait = (_: {
        until: string | number | null,
        }) => any;
        """,
    ),
    *_shaped(
        "members without a type, null and true or false",
        _function("report", {"wind": {}, "fog": {"type": "boolean"}, "wreck": {"type": "null"}}),
        """
        type report = (_: { wind?: any, fog?: boolean, wreck?: null }) => any;
        """,
        """
        type report = (_: {
        wind?: any,
        fog?: boolean,
        wreck?: null,
        }) => any;
        """,
    ),
    Vector(
        "two tools stand in one namespace",
        {"messages": [ASK], "tools": _tools(PLAIN, TIDE)},
        [
            *ASK_BILLED,
            _namespace("""
            type list_boats = () => any;

            type read_tide = (_: {
            // Where the gauge stands
            harbour: string,
            }) => any;
            """),
        ],
        MESSAGE + PRIMING + NAMESPACE,
    ),
]

VECTORS = [*MESSAGES, *CHOICES, *SHAPES]
