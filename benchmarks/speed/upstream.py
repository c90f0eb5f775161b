"""Runs the benchmark's scripted upstream, which answers at once or in the chunks that the request asks for.

It is its own process, ``python -m benchmarks.speed.upstream PORT``. A message's text states the chunks, as in
``chunks=100 pace=20``, because every proxy forwards that; any other request gets an answer in one piece.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import cache
from typing import Any

import uvicorn

REPLY = "Noted. The next step follows from what was said before."
"""The answer without chunks; growing histories quote it."""
USAGE = {"prompt_tokens": 11, "completion_tokens": 12, "total_tokens": 23}
JSON_LINES = [(b"content-type", b"application/json"), (b"x-request-id", b"req_bench")]
STREAM_LINES = [(b"content-type", b"text/event-stream"), (b"x-request-id", b"req_bench")]
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_WISH = re.compile(rb"chunks=(\d+) pace=(\d+)")


def _answer(kind: str, **rest: Any) -> bytes:
    return json.dumps({"id": "chatcmpl-bench", "object": kind, "created": 1, "model": "bench", **rest}).encode()


def _event(**choice: Any) -> bytes:
    value = {"index": 0, "finish_reason": None, **choice}
    return b"data: " + _answer("chat.completion.chunk", choices=[value]) + b"\n\n"


def _whole(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return _answer("chat.completion", choices=[choice], usage=dict(USAGE))


WHOLE = _whole(REPLY)
RESPONSE = json.dumps(
    {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "bench",
        "output": [
            {
                "id": "msg_bench",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": REPLY, "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 11, "output_tokens": 12, "total_tokens": 23},
    }
).encode()
MESSAGE = json.dumps(
    {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [{"type": "text", "text": REPLY}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 11, "output_tokens": 12},
    }
).encode()
EMBEDDING = json.dumps(
    {
        "object": "list",
        "model": "bench",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.25] * 64, "note": REPLY}],
        "usage": {"prompt_tokens": 11, "total_tokens": 11},
    }
).encode()
"""The note is none of the API's: the client knows a whole answer by it."""
WHOLE_BY_PATH = {"/v1/responses": RESPONSE, "/v1/messages": MESSAGE, "/v1/embeddings": EMBEDDING}
"""The answers to small requests; every other path gets a chat completion."""
MODELS = json.dumps({"object": "list", "data": [{"id": "bench", "object": "model", "owned_by": "bench"}]}).encode()


@cache
def pieces(chunks: int) -> list[bytes]:
    """Return the events of a stream with so many words."""
    last = b"data: " + _answer("chat.completion.chunk", choices=[], usage=dict(USAGE)) + b"\n\ndata: [DONE]\n\n"
    words = [_event(delta={"content": f" word{place}"}) for place in range(chunks)]
    return [_event(delta={"role": "assistant", "content": ""}), *words, _event(delta={}, finish_reason="stop"), last]


def wish(body: bytes) -> tuple[int, float]:
    """Return the chunks that the newest message asks for, and the seconds between them; 0 for one piece."""
    place = body.rfind(b"chunks=")
    match = _WISH.match(body, place) if place >= 0 else None
    return (int(match[1]), int(match[2]) / 1000) if match else (0, 0.0)


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(parts)


async def _once(send: Any, data: bytes) -> None:
    lines = [*JSON_LINES, (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": 200, "headers": lines})
    await send({"type": "http.response.body", "body": data})


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer one request."""
    if scope["type"] != "http":
        return
    body = await _body(receive)
    chunks, pace = wish(body)
    if scope["method"] == "GET":
        await _once(send, MODELS)
        return
    if not chunks:
        await _once(send, WHOLE_BY_PATH.get(scope["path"], WHOLE))
        return
    if not _STREAM.search(body):  # a proxy that turns a stream into one answer
        await asyncio.sleep(chunks * pace)
        await _once(send, _whole("".join(f" word{place}" for place in range(chunks))))
        return
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_LINES})
    for piece in pieces(chunks):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if pace:
            await asyncio.sleep(pace)
    await send({"type": "http.response.body", "body": b""})


def serve(application: Any, port: int) -> None:
    """Run an application on uvicorn with its fastest settings, without logs."""
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        backlog=2048,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
    )


if __name__ == "__main__":
    serve(app, int(sys.argv[1]))
