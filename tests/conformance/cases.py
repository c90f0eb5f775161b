"""The cases, as data: a request of a client, and what the upstream does with it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.scripted import Answer, Call, Received, Script, Turn, calls_tools, fails_after, refuses, tells

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
KEY = {"authorization": "Bearer sk-conformance"}
HEADERS: Mapping[str, Mapping[str, str]] = {
    "chat": {**KEY, "openai-organization": "org-1", "x-stainless-lang": "python"},
    "responses": {**KEY, "originator": "codex", "session-id": "s-1", "x-codex-window": "1"},
    "messages": {"x-api-key": "sk-conformance", "anthropic-version": "2023-06-01", "anthropic-beta": "one,two"},
}
HELLO = Turn("Hello there, from the upstream.")
SAYS_HELLO = tells(HELLO)
THOUGHT = Turn("The answer is 42.", thought="I ponder.")
CALLS = Turn("Let me see.", (Call("weather", '{"city": "Paris"}'), Call("weather", '{"city": "Rome"}')))
STRANGE = {"chat": "strange", "responses": "strange", "messages": None}
"""Codes of an error; Anthropic has types only."""
LIMITS = {"x_ratelimit_remaining_requests": "59", "retry_after": "3", "openai_processing_ms": "12"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@dataclass(frozen=True)
class Case:
    """One request, and the upstream's answer to it."""

    name: str
    dialect: str
    body: bytes
    script: Script = SAYS_HELLO
    path: str = ""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    valid: bool = True
    """Whether the body is one that the SDK's types allow; unknown members are none of theirs."""
    chunked: bool = False
    """Whether the client sends its body in chunks, without its length."""

    @property
    def content(self) -> bytes | Iterator[bytes]:
        """The body as the client sends it."""
        halves = (self.body[: len(self.body) // 2], self.body[len(self.body) // 2 :])
        return iter(halves) if self.chunked else self.body

    @property
    def target(self) -> str:
        """The path with its query."""
        return self.path or PATHS[self.dialect]

    @property
    def sent_headers(self) -> dict[str, str]:
        """The client's headers."""
        return {"content-type": "application/json", **HEADERS.get(self.dialect, KEY), **self.headers}

    @property
    def streams(self) -> bool:
        """Whether a stream is asked for."""
        return b'"stream": true' in self.body


def limited(request: Received) -> Answer:
    """An answer with the headers of rate limits."""
    return tells(HELLO)(request).with_headers(**LIMITS, request_id="req_2", set_cookie="a=1")


def overloaded(request: Received) -> Answer:
    """A refusal with a time to wait."""
    return refuses(429, "Slow down.", code=None)(request).with_headers(retry_after="7", x_should_retry="true")


def repeating(request: Received) -> Answer:
    """An answer with lines that are repeated and far apart, and with bytes that are not ASCII."""
    answer = tells(HELLO)(request)
    more = [(b"set-cookie", b"a=1"), (b"x-note", b"caf\xe9"), (b"set-cookie", b"b=2"), (b"warning", b"")]
    return replace(answer, headers=[*more, *answer.headers, (b"vary", b"b"), (b"vary", b"a")])


def odd(request: Received) -> Answer:
    """An answer with the same meaning in other bytes than most servers write."""
    answer = tells(HELLO)(request)
    pieces = [piece for piece in answer.pieces if isinstance(piece, bytes)]
    if not request.streams:
        return replace(answer, pieces=[b"\n", *pieces, b" \r\n\n"])
    first, *rest = pieces
    lines = [first.replace(b"data: ", b"data:"), *(piece.replace(b"\n", b"\r\n") for piece in rest)]
    return replace(answer, pieces=[b": welcome\n\n", b"id: 7\nretry: 100\n", *lines, b": goodbye\n\n", b"\n"])


def packed(request: Received) -> Answer:
    """An answer that the upstream compresses although nobody asked."""
    answer = tells(HELLO)(request)
    body = gzip.compress(b"".join(piece for piece in answer.pieces if isinstance(piece, bytes)), mtime=0)
    pieces = [body[place : place + 50] for place in range(0, len(body), 50)]
    return replace(answer, pieces=pieces).with_headers(content_encoding="gzip", etag='W/"1"')


def sized(request: Received) -> Answer:
    """An answer with its length."""
    answer = tells(HELLO)(request)
    length = sum(len(piece) for piece in answer.pieces if isinstance(piece, bytes))
    return answer.with_headers(content_length=str(length))


def empty(request: Received) -> Answer:
    """An answer without a body."""
    return Answer([], 204, [(b"x-request-id", b"req_3")])


def request_of(dialect: str, content: Any = "Say hello.", **members: Any) -> bytes:
    """A request with one question, in the spelling of a client that writes JSON its own way."""
    history: Any = content if isinstance(content, list) else [{"role": "user", "content": content}]
    named = {"input" if dialect == "responses" else "messages": history}
    bound = {"max_tokens": 100} if dialect == "messages" else {}
    return json.dumps({"model": "scripted", **bound, **named, **members}, indent=1).encode()


def odd_bytes(body: bytes) -> bytes:
    """The same JSON with escapes, a member that comes twice, a number's own spelling, and space around it."""
    return b" \r\n{" + b'"x": 1.50E+1, "m\\u00e9mo": "\xc3\xa9\\/", "x":  2,' + body[1:] + b"\n\n"


TOOLS: Mapping[str, Any] = {
    "chat": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
    "responses": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}],
    "messages": [{"name": "weather", "input_schema": SCHEMA}],
}
ARGUMENTS = '{"city":"Paris"}'
RESULTS: Mapping[str, Any] = {
    "chat": [
        {"role": "user", "content": "How is it?"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
    ],
    "responses": [
        {"role": "user", "content": "How is it?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "call_1", "output": "Sunny."},
    ],
    "messages": [
        {"role": "user", "content": "How is it?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny."}]},
    ],
}
PICTURES: Mapping[str, Any] = {
    "chat": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}],
    "responses": [{"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PICTURE}"}],
    "messages": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}],
}
MEMBERS: Mapping[str, Mapping[str, Any]] = {
    "chat": {"temperature": 0.5, "seed": 7, "store": True, "metadata": {"a": "b"}, "service_tier": "default"},
    "responses": {"instructions": "Be brief.", "store": False, "include": ["reasoning.encrypted_content"]},
    "messages": {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
    },
}


def cases_of(dialect: str) -> list[Case]:
    """The cases that every dialect has."""
    tools = TOOLS[dialect]
    made = []
    for kind, stream in (("whole", {}), ("streamed", {"stream": True})):
        bodies: list[tuple[str, bytes, Script]] = [
            ("text", request_of(dialect, **stream), tells(HELLO)),
            ("members", request_of(dialect, **MEMBERS[dialect], **stream), tells(THOUGHT)),
            ("calls", request_of(dialect, tools=tools, **stream), calls_tools(CALLS, HELLO)),
            ("results", request_of(dialect, RESULTS[dialect], tools=tools, **stream), calls_tools(CALLS, HELLO)),
            ("picture", request_of(dialect, [{"role": "user", "content": PICTURES[dialect]}], **stream), tells(HELLO)),
            ("limits", request_of(dialect, **stream), limited),
            ("refused", request_of(dialect, **stream), refuses(400, "No such thing.", code=STRANGE[dialect])),
            ("rate limit", request_of(dialect, **stream), overloaded),
            ("away", request_of(dialect, **stream), refuses(500, "Out of order.")),
            ("repeated headers", request_of(dialect, **stream), repeating),
            ("length", request_of(dialect, **stream), sized),
        ]
        made += [Case(f"{dialect} {kind} {name}", dialect, body, script) for name, body, script in bodies]
        plain = request_of(dialect, **stream)
        made.append(Case(f"{dialect} {kind} odd bytes", dialect, odd_bytes(plain), odd, valid=False))
        made.append(Case(f"{dialect} {kind} packed", dialect, plain, packed, valid=False))
        controls = {"x-tidemark-summarize": "off", "keep-alive": "timeout=9", "te": "trailers"}
        made.append(Case(f"{dialect} {kind} controls", dialect, plain, headers=controls))
        made.append(Case(f"{dialect} {kind} chunks", dialect, plain, chunked=True))
    unknown = request_of(dialect, member_of_tomorrow={"a": [1, 2.50, None]})
    made.append(Case(f"{dialect} whole unknown members", dialect, unknown))
    failing = fails_after(4, HELLO, "The model went away.")
    made.append(Case(f"{dialect} streamed failure", dialect, request_of(dialect, stream=True), failing, valid=False))
    return made


GENERATIONS = [case for dialect in PATHS for case in cases_of(dialect)]
"""Requests for answers of a model, in each dialect."""

FORM = (
    b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nscripted\r\n--b\r\ncontent-disposition: form-data; '
    b'name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n\x00\x01\xff\r\n--b--\r\n'
)
OCTETS = {"content-type": "application/octet-stream"}
OTHERS = [
    Case("embeddings", "", json.dumps({"model": "scripted", "input": ["a"]}).encode(), path="/v1/embeddings"),
    Case("moderations", "", b'{"model": "scripted", "input": "a"}', path="/v1/moderations"),
    Case("rerank", "", b'{"model": "scripted", "query": "a", "documents": ["b"]}', path="/v1/rerank"),
    Case("images", "", b'{"model": "scripted", "prompt": "a cat"}', path="/v1/images/generations"),
    Case("images streamed", "", b'{"model": "scripted", "stream": true}', path="/v1/images/generations"),
    Case("speech", "", b'{"model": "scripted", "input": "a", "voice": "b"}', path="/v1/audio/speech"),
    Case(
        "transcription",
        "",
        FORM,
        path="/v1/audio/transcriptions",
        headers={"content-type": "multipart/form-data; boundary=b"},
    ),
    Case("files", "", b"", path="/v1/files?limit=2&after=f_1", method="GET"),
    Case("file deleted", "", b"", path="/v1/files/f_1", method="DELETE"),
    Case("batch", "", b'{"input_file_id": "f_1"}', path="/v1/batches"),
    Case("vector store", "", b"", path="/v1/vector_stores/vs_1", method="GET"),
    Case("nothing to say", "", b"", script=empty, path="/v1/tomorrow/1", method="DELETE"),
    Case("odd bytes", "", odd_bytes(b'{"model": "scripted"}'), path="/v1/embeddings"),
    Case("repeated headers", "", b'{"model": "scripted"}', script=repeating, path="/v1/embeddings"),
    Case("packed", "", b'{"model": "scripted"}', script=packed, path="/v1/embeddings"),
    Case("length", "", b'{"model": "scripted"}', script=sized, path="/v1/embeddings"),
    Case("refused", "", b'{"model": "scripted"}', script=refuses(422, "No."), path="/v1/embeddings"),
    Case("chunks", "", b"\x00\x01\xff" * 9, path="/v1/uploads/u_1", headers=OCTETS, chunked=True),
    Case("a path of tomorrow", "", b'{"model": "scripted"}', path="/v1/tomorrow/1?x=%20y"),
    Case("count of messages", "messages", request_of("messages"), path="/v1/messages/count_tokens"),
    Case("beta of messages", "messages", request_of("messages"), path="/v1/messages?beta=true"),
    Case("query of chat", "chat", request_of("chat"), path="/v1/chat/completions?api-version=1&x=%20"),
    Case("query of responses", "responses", request_of("responses"), path="/v1/responses?trace=a%2Fb"),
]
"""Requests that are carried."""
