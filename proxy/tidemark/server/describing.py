"""Values that describe endpoints for ``/openapi.json``: operations, parameters, bodies, shapes of JSON.

Each feature describes its own endpoints (``features/*/description.py``), and ``endpoints/description.py`` those of the
server. ``openapi.py`` makes one document of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen

Shape = Mapping[str, JsonValue]
"""A JSON Schema."""
Access = Literal["anybody", "tenant", "operator"]
"""Who gets an answer: everybody, a credential what is its own, or the admin token alone."""
JSON = "application/json"
EVENTS = "text/event-stream"

ANYTHING: Shape = {}
TEXT: Shape = {"type": "string"}
TEXT_OR_NULL: Shape = {"type": ["string", "null"]}
WHOLE: Shape = {"type": "integer", "minimum": 0}
WHOLE_OR_NULL: Shape = {"type": ["integer", "null"]}
NUMBER: Shape = {"type": "number"}
NUMBER_OR_NULL: Shape = {"type": ["number", "null"]}
TRUTH: Shape = {"type": "boolean"}
OBJECT: Shape = {"type": "object"}


def constant(text: str) -> Shape:
    """Return the shape of one text."""
    return {"const": text}


def choice(*texts: str) -> Shape:
    """Return the shape of one of some texts."""
    return {"enum": [*texts]}


def whole(least: int, most: int | None = None) -> Shape:
    """Return the shape of a whole number in a range."""
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def text(least: int, most: int) -> Shape:
    """Return the shape of a text with a number of characters in a range."""
    return {"type": "string", "minLength": least, "maxLength": most}


def list_of(shape: Shape, *, least: int = 0) -> Shape:
    """Return the shape of a list."""
    return {"type": "array", "items": {**shape}} | ({"minItems": least} if least else {})


def members(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None, *, only: bool = False) -> Shape:
    """Return the shape of an object.

    :param only: whether other members are refused
    """
    shape: dict[str, JsonValue] = {
        "type": "object",
        "properties": {name: {**member} for name, member in {**required, **(optional or {})}.items()},
    }
    if required:
        shape["required"] = [*required]
    if only:
        shape["additionalProperties"] = False
    return shape


@frozen
class Parameter:
    """A part of the path, a member of the query or a header."""

    name: str
    place: Literal["path", "query", "header"]
    shape: Shape
    note: str = ""
    required: bool = False


def in_path(name: str, note: str) -> Parameter:
    """Return a part of the path."""
    return Parameter(name, "path", {"type": "string", "minLength": 1}, note, required=True)


def in_query(name: str, shape: Shape, note: str = "", *, required: bool = False) -> Parameter:
    """Return a member of the query."""
    return Parameter(name, "query", shape, note, required)


def in_header(name: str, shape: Shape, note: str = "") -> Parameter:
    """Return a header that may be left out."""
    return Parameter(name, "header", shape, note)


@frozen
class Body:
    """The body of a request."""

    shape: Shape
    media_types: tuple[str, ...] = (JSON,)
    required: bool = True


@frozen
class Answer:
    """A successful answer: its shape by media type, and whether it has the headers that report what was done."""

    contents: Mapping[str, Shape]
    reports: bool = False


def json_answer(shape: Shape) -> Answer:
    """Return an answer in JSON."""
    return Answer({JSON: shape})


def listed(entry: Shape) -> Shape:
    """Return the shape of a whole list."""
    return members({"object": constant("list"), "data": list_of(entry)})


@frozen(kw_only=True)
class Operation:
    """One method of one path.

    A part of a path that may have slashes is named like any other: OpenAPI has no form for it.
    """

    method: str
    path: str
    summary: str
    access: Access
    answers: Mapping[int, Answer]
    parameters: Sequence[Parameter] = ()
    body: Body | None = None
    refusals: Sequence[int] = ()
    """The statuses of its errors, beside those that every operation has."""
    errors: Literal["OpenAIError", "AnthropicError", "EitherError"] = "OpenAIError"
    """The envelope of its errors."""
    carries: bool = False
    """Whether an upstream's answers pass through, so that any other status may come."""


def operation(
    access: Access,
    method: str,
    path: str,
    summary: str,
    answer: Shape | Answer,
    *parameters: Parameter,
    body: Body | None = None,
    status: int = 200,
    refusals: Sequence[int] = (),
    carries: bool = False,
) -> Operation:
    """Return an operation with one kind of answer."""
    return Operation(
        method=method,
        path=path,
        summary=summary,
        access=access,
        parameters=parameters,
        body=body,
        answers={status: answer if isinstance(answer, Answer) else json_answer(answer)},
        refusals=refusals,
        carries=carries,
    )
