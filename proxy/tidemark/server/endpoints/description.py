"""Describes the endpoints of the server itself: models' requests, models, health, metrics, and all that is carried."""

from __future__ import annotations

from typing import Literal

from tidemark.server.describing import (
    ANYTHING,
    EVENTS,
    JSON,
    OBJECT,
    TEXT,
    TRUTH,
    WHOLE,
    Answer,
    Body,
    Operation,
    Parameter,
    Shape,
    choice,
    constant,
    in_header,
    in_path,
    in_query,
    json_answer,
    list_of,
    members,
    text,
    whole,
)
from tidemark.server.openapi import PATH

CONTROLS = (
    in_header("X-Tidemark-Summarize", choice("auto", "force", "off", "shadow")),
    in_header("X-Tidemark-Retention-Tokens", whole(0, 10**12 - 1)),
    in_header("X-Tidemark-Conversation", text(1, 256), "Printable characters, in UTF-8."),
    in_header("X-Tidemark-Overflow", choice("acknowledge")),
    in_header("X-Tidemark-Keep", choice("all", "summaries", "none")),
    in_header("X-Tidemark-History", {"type": "string", "pattern": "^(client|stored(; known=[0-9]{1,12})?)$"}),
    in_header("Idempotency-Key", text(1, 256), "With stored history: a request that may be sent again."),
)
"""What a client may ask of Tidemark in a model's request."""
MODEL_REFUSALS = (401, 404, 409, 429, 502, 504, 507)
_MODEL = {"model": text(1, 256)}
_STREAM = {"stream": TRUTH}
_PARTS: Shape = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}
_CONTENT: Shape = {"anyOf": [{**_PARTS}, {"type": "null"}]}
CHAT_BODY = members(
    {**_MODEL, "messages": list_of(members({"role": TEXT}, {"content": _CONTENT}), least=1)},
    {**_STREAM, "max_tokens": whole(1), "tools": list_of(OBJECT)},
)
RESPONSES_BODY = members(
    {**_MODEL, "input": _PARTS},
    {
        **_STREAM,
        "instructions": TEXT,
        "previous_response_id": TEXT,
        "conversation": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "background": TRUTH,
        "store": TRUTH,
        "max_output_tokens": whole(1),
    },
)
_SPOKEN = choice("user", "assistant", "system")
MESSAGES_BODY = members(
    {
        **_MODEL,
        "messages": list_of(members({"role": _SPOKEN, "content": _PARTS}), least=1),
        "max_tokens": whole(1),
    },
    {**_STREAM, "system": _PARTS},
)
_GENERATED = Answer({JSON: OBJECT, EVENTS: ANYTHING}, reports=True)
_MODEL_ENTRY = members({"id": TEXT}, {"context_length": WHOLE, "max_output_tokens": WHOLE})
_VERSION = in_header("anthropic-version", TEXT, "With it the answer has Anthropic's format.")
_PAGE_OF_MODELS = (
    in_query("limit", whole(1, 1000), "With anthropic-version only."),
    in_query("after_id", TEXT, "The same."),
    in_query("before_id", TEXT, "The same."),
)
_ID_OF_MODEL = in_path("model", "A model's name, which may have slashes.")
_CARRIED_PATH = in_path("path", "Anything else below /v1, with or without slashes.")
_OF_MODEL = in_query("model", TEXT, "The model whose upstream gets the request, if the body names none.")


def _generation(path: str, summary: str, shape: Shape) -> Operation:
    return Operation(
        method="POST",
        path=path,
        summary=summary,
        access="tenant",
        parameters=CONTROLS,
        body=Body(shape),
        answers={200: _GENERATED},
        refusals=MODEL_REFUSALS,
        errors=_envelope(path),
        carries=True,
    )


def _count(path: str, summary: str, shape: Shape, answer: Shape) -> Operation:
    return Operation(
        method="POST",
        path=path,
        summary=summary,
        access="tenant",
        body=Body(shape),
        answers={200: json_answer(answer)},
        refusals=MODEL_REFUSALS,
        errors=_envelope(path),
        carries=True,
    )


def _envelope(path: str) -> Literal["OpenAIError", "AnthropicError"]:
    return "AnthropicError" if path.startswith("/v1/messages") else "OpenAIError"


def _carried(method: str, path: str, summary: str, *parameters: Parameter) -> Operation:
    has_body = method in {"POST", "PUT", "PATCH"}
    kinds = (JSON, "multipart/form-data", "application/octet-stream")
    return Operation(
        method=method,
        path=path,
        summary=summary,
        access="tenant",
        parameters=(*parameters, _OF_MODEL),
        body=Body(ANYTHING, kinds, required=False) if has_body else None,
        answers={},
        refusals=(*MODEL_REFUSALS, 413, 415),
        carries=True,
    )


def _public(path: str, summary: str, answer: Answer, method: str = "GET") -> Operation:
    return Operation(method=method, path=path, summary=summary, access="anybody", answers={200: answer})


OPERATIONS = (
    _generation("/v1/chat/completions", "Forward a chat request.", CHAT_BODY),
    _generation("/v1/responses", "Forward a request of the Responses API.", RESPONSES_BODY),
    _generation("/v1/messages", "Forward a request of Anthropic's Messages API.", MESSAGES_BODY),
    _count(
        "/v1/responses/input_tokens",
        "Count the tokens of a request of the Responses API.",
        RESPONSES_BODY,
        members({"object": constant("response.input_tokens"), "input_tokens": WHOLE}),
    ),
    _count(
        "/v1/messages/count_tokens",
        "Count the tokens of a request of the Messages API.",
        members({**_MODEL, "messages": list_of(members({"role": _SPOKEN, "content": _PARTS}), least=1)}),
        members({"input_tokens": WHOLE}),
    ),
    Operation(
        method="GET",
        path="/v1/models",
        summary="List the configured models, then the upstream's own.",
        access="tenant",
        parameters=(_VERSION, *_PAGE_OF_MODELS),
        answers={200: json_answer(members({"data": list_of(_MODEL_ENTRY)}))},
        refusals=(502, 504),
        errors="EitherError",
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        summary="Show a model.",
        access="tenant",
        parameters=(_VERSION, _ID_OF_MODEL),
        answers={200: json_answer(_MODEL_ENTRY)},
        refusals=(404, 502, 504),
        errors="EitherError",
    ),
    Operation(
        method="GET",
        path="/",
        summary="Lead a browser to the console.",
        access="anybody",
        answers={303: Answer({})},
        refusals=(404,),
    ),
    _public("/", "Say that the server answers.", Answer({}), "HEAD"),
    _public("/v1", "Say that the server answers.", Answer({}), "HEAD"),
    _public("/health/liveliness", "Say that the process answers.", json_answer(members({"status": constant("alive")}))),
    _public("/health/liveness", "Say that the process answers.", json_answer(members({"status": constant("alive")}))),
    _public(
        "/health/readiness",
        "Say that the process is ready, and how the store is.",
        json_answer(
            members(
                {"status": constant("ready"), "store": choice("ok", "degraded")},
                {
                    "detail": TEXT,
                    "summarizers": constant("resting"),
                    "resting": WHOLE,
                    "load": constant("full"),
                    "eviction": TEXT,
                    "damaged_store_files": list_of(TEXT),
                    "replaced": TEXT,
                },
            )
        ),
    ),
    _public("/metrics", "Metrics for Prometheus.", Answer({"text/plain": TEXT})),
    _public(PATH, "This document.", json_answer(members({"openapi": TEXT, "paths": OBJECT}))),
    _carried("DELETE", "/v1/models/{model}", "Carry the deletion of a model to an upstream.", _ID_OF_MODEL),
    _carried(
        "POST",
        "/v1/models/{model}:{call}",
        "Carry a call of a model to an upstream.",
        _ID_OF_MODEL,
        in_path("call", "What is called, as generateContent."),
    ),
    _carried("GET", "/v1/chat/completions", "Carry the list of stored completions."),
    *(
        _carried(method, "/v1/{path}", "Carry a request to an upstream, byte by byte.", _CARRIED_PATH)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
)
"""All but those of features."""
