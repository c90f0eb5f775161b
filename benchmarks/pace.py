"""Measures how much later each event of a paced stream arrives through Tidemark, in every dialect.

``make bench-pace`` runs it. The upstream writes the time into each event, every 20 ms; the client compares it with its
own clock, which is the same on one machine. Straight and through Tidemark take turns, so that noise hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.load import HOST, request
from benchmarks.speed.systems import TIDEMARK, free_port, start
from benchmarks.speed.upstream import WHOLE
from benchmarks.speed.work import WIDE

PACE_SECONDS = 0.02
EVENTS = 50
LIMIT_MS = 1.0
"""What Tidemark may add to an event at the median."""
_EVENT = b"event: %b\ndata: %b\n\n"


@dataclass(frozen=True)
class Format:
    """A stream in one dialect."""

    name: str
    path: str
    body: bytes
    opening: Sequence[bytes]
    delta: Callable[[str], bytes]
    """Writes the event with a text."""
    closing: Sequence[bytes]


def _event(kind: str, **members: Any) -> bytes:
    return _EVENT % (kind.encode(), json.dumps({"type": kind, **members}).encode())


def _chunk(delta: Any, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _item(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}


_QUESTION = [{"role": "user", "content": "Go."}]
_PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "model": WIDE, "output": [_item("x")]}
FORMATS = [
    Format(
        "chat",
        "/v1/chat/completions",
        json.dumps({"model": WIDE, "stream": True, "messages": _QUESTION}).encode(),
        [_chunk({"role": "assistant", "content": ""})],
        lambda text: _chunk({"content": text}),
        [_chunk({}, "stop"), b"data: [DONE]\n\n"],
    ),
    Format(
        "responses",
        "/v1/responses",
        json.dumps({"model": WIDE, "stream": True, "input": _QUESTION}).encode(),
        [
            _event("response.created", response={**_RESPONSE, "output": [], "status": "in_progress"}),
            _event("response.output_item.added", output_index=0, item={**_item(""), "content": []}),
        ],
        lambda text: _event("response.output_text.delta", **_PLACE, delta=text),
        [
            _event("response.output_item.done", output_index=0, item=_item("x")),
            _event("response.completed", response=_RESPONSE),
        ],
    ),
    Format(
        "messages",
        "/v1/messages",
        json.dumps({"model": WIDE, "stream": True, "max_tokens": 100, "messages": _QUESTION}).encode(),
        [
            _event("message_start", message={"id": "m", "role": "assistant", "content": [], "usage": {}}),
            _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        ],
        lambda text: _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        [
            _event("content_block_stop", index=0),
            _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
            _event("message_stop"),
        ],
    ),
]


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request: with a paced stream whose texts are the times of their sending, or as a whole."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(lengths[0] if lengths else 0)
        if b'"stream": true' not in body:
            lines = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(WHOLE)
            writer.write(b"HTTP/1.1 200 OK\r\n" + lines + WHOLE)
            return
        path = head.split(b" ", 2)[1].decode()
        kind = next(each for each in FORMATS if each.path == path)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(b"".join(kind.opening))
        for _ in range(EVENTS):
            await asyncio.sleep(PACE_SECONDS)
            writer.write(kind.delta(f"at={time.monotonic_ns()}."))
        writer.write(b"".join(kind.closing))
        await writer.drain()
    except asyncio.IncompleteReadError:
        pass  # a connection that was opened for a look only
    finally:
        writer.close()


async def _delays(port: int, kind: Format) -> list[float]:
    """Send one request, and return how many milliseconds after its sending each event arrived."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request(kind.path, kind.body))
    delays: list[float] = []
    while line := await reader.readline():
        now = time.monotonic_ns()
        if (place := line.find(b"at=")) >= 0:
            delays.append((now - int(line[place + 3 : line.index(b".", place)])) / 1e6)
        if kind.closing[-1].strip().splitlines()[-1] in line:
            break
    writer.close()
    if len(delays) != EVENTS:
        raise RuntimeError(f"{kind.name}: {len(delays)} of {EVENTS} events came")
    return delays


async def _measure(rounds: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the median delays in milliseconds by dialect: straight, and through Tidemark."""
    upstream_port = free_port()
    server = await asyncio.start_server(_serve, HOST, upstream_port)
    tidemark = await asyncio.to_thread(start, TIDEMARK, f"http://{HOST}:{upstream_port}", folder)
    medians: dict[str, tuple[float, float]] = {}
    try:
        for kind in FORMATS:
            delays: dict[int, list[float]] = {upstream_port: [], tidemark.port: []}
            for _ in range(rounds):
                for port in delays:
                    delays[port] += await _delays(port, kind)
            medians[kind.name] = (statistics.median(delays[upstream_port]), statistics.median(delays[tidemark.port]))
    finally:
        await asyncio.to_thread(tidemark.stop)
        server.close()
    return medians


def main() -> int:
    """Measure, print a line for each dialect, and return 1 where Tidemark adds more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8, help="streams of each dialect and way (default: 8)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-pace-") as folder:
        medians = asyncio.run(_measure(options.rounds, Path(folder)))
    for name, (straight, through) in medians.items():
        added = through - straight
        print(f"{name:<10} straight {straight:.3f} ms, through Tidemark {through:.3f} ms: {added:.3f} ms added")
    return int(any(through - straight > LIMIT_MS for straight, through in medians.values()))


if __name__ == "__main__":
    sys.exit(main())
