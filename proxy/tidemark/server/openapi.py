"""Makes the OpenAPI document of descriptions (``describing.py``), and serves it.

It has no secret and differs between two servers by their features alone, so everybody may read it.
Source: OpenAPI Specification 3.1.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import tidemark
from tidemark.core.conversation.messages import JsonValue
from tidemark.server.describing import (
    TEXT,
    TEXT_OR_NULL,
    WHOLE,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    Shape,
    choice,
    constant,
    members,
)

PATH = "/openapi.json"
EVERYWHERE = (400, 403, 408, 431, 500, 501, 503, 505)
"""Statuses that any request may get, whatever its path: they concern HTTP, web pages, load and faults."""
WITH_BODY = (413, 415)
_SECURITY: dict[Access, list[JsonValue]] = {
    "anybody": [],
    "tenant": [{}, {"bearer": []}, {"apiKey": []}, {"azureKey": []}, {"googleKey": []}],
    "operator": [{}, {"bearer": []}],
}
"""Each may be left out. A client of this machine without a key is a tenant, and the operator if no token is set."""
_SCHEMES: dict[str, JsonValue] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "azureKey": {"type": "apiKey", "in": "header", "name": "api-key"},
    "googleKey": {"type": "apiKey", "in": "header", "name": "x-goog-api-key"},
}
_OPENAI = members({"error": members({"message": TEXT, "type": TEXT, "param": TEXT_OR_NULL, "code": TEXT_OR_NULL})})
_ANTHROPIC = members({"type": constant("error"), "error": members({"type": TEXT, "message": TEXT})})
_ERRORS: dict[str, Shape] = {
    "OpenAIError": _OPENAI,
    "AnthropicError": _ANTHROPIC,
    "EitherError": {"anyOf": [{**_OPENAI}, {**_ANTHROPIC}]},
}
REPORT: dict[str, Shape] = {
    "X-Tidemark-Conversation": {"type": "string", "pattern": "^[0-9a-f]{48}$"},
    "X-Tidemark-Action": choice("none", "reused", "compacted", "forced", "bypassed", "failed"),
    "X-Tidemark-Tokens-Before": WHOLE,
    "X-Tidemark-Tokens-After": WHOLE,
    "X-Tidemark-Limit": WHOLE,
    "X-Tidemark-Summarized-Messages": WHOLE,
    "X-Tidemark-Strategy": choice("extractive", "llm", "hybrid", "native"),
    "X-Tidemark-Kept": TEXT,
    "X-Tidemark-Recalled-Tokens": WHOLE,
    "X-Tidemark-Saved": TEXT,
    "X-Tidemark-Warning": {"type": "string", "maxLength": 500},
    "X-Tidemark-History-Gap": TEXT,
    "X-Tidemark-Store": choice("ok", "degraded"),
}
"""The headers that report what was done to a request."""
_ABOUT = (
    "The endpoints of a Tidemark server, without the console's pages. HEAD is answered like GET, and OPTIONS with the "
    "methods of a path in Allow. An upstream's errors pass through as they are. A part of a path that names a model or "
    "is carried may have slashes."
)


class DescriptionEndpoint:
    """Serves the document, which is made when it is first asked for."""

    def __init__(self, operations: Callable[[], Sequence[Operation]]) -> None:
        self._operations = operations

    def routes(self) -> list[BaseRoute]:
        return [Route(PATH, self._show, methods=["GET"])]

    @cached_property
    def _bytes(self) -> bytes:
        return json.dumps(document(self._operations()), ensure_ascii=False).encode()

    async def _show(self, _: Request) -> Response:
        return Response(self._bytes, media_type="application/json")


def document(operations: Sequence[Operation]) -> dict[str, JsonValue]:
    """Return the OpenAPI document of some operations."""
    paths: dict[str, dict[str, JsonValue]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.1",
        "info": {"title": "Tidemark", "version": tidemark.__version__, "description": _ABOUT},
        "paths": {**paths},
        "components": {
            "schemas": {name: {**shape} for name, shape in _ERRORS.items()},
            "headers": {name: {"schema": {**shape}} for name, shape in REPORT.items()},
            "securitySchemes": _SCHEMES,
        },
    }


def _operation(operation: Operation) -> JsonValue:
    described: dict[str, JsonValue] = {"summary": operation.summary, "security": _SECURITY[operation.access]}
    if operation.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        described["requestBody"] = _body(operation.body)
    described["responses"] = _responses(operation)
    return described


def _parameter(parameter: Parameter) -> JsonValue:
    described: dict[str, JsonValue] = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "schema": {**parameter.shape},
    }
    return described | ({"description": parameter.note} if parameter.note else {})


def _body(body: Body) -> JsonValue:
    return {"required": body.required, "content": {kind: {"schema": {**body.shape}} for kind in body.media_types}}


def _responses(operation: Operation) -> JsonValue:
    statuses = {*EVERYWHERE, *operation.refusals}
    if operation.method == "GET":
        statuses.add(426)
    if operation.method in {"POST", "PUT", "PATCH"}:
        statuses.update(WITH_BODY)
    if operation.access != "anybody":
        statuses.add(401)
    responses: dict[str, JsonValue] = {
        str(status): _answer(status, answer) for status, answer in operation.answers.items()
    }
    if operation.method != "HEAD":
        refusal: JsonValue = {"application/json": {"schema": {"$ref": f"#/components/schemas/{operation.errors}"}}}
        for status in sorted(statuses - operation.answers.keys()):
            responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": refusal}
    if operation.carries:
        responses["default"] = {"description": "What the upstream answered.", "content": {"*/*": {"schema": {}}}}
    return responses


def _answer(status: int, answer: Answer) -> JsonValue:
    described: dict[str, JsonValue] = {"description": HTTPStatus(status).phrase}
    if answer.contents:
        described["content"] = {kind: {"schema": {**shape}} for kind, shape in answer.contents.items()}
    if answer.reports:
        described["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in REPORT}
    return described
