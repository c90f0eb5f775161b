"""Measures how long other requests wait while Tidemark handles a large or odd body.

``make bench-lag`` runs it. Tidemark, its store and a scripted upstream run as separate processes. While one connection
sends a body, another one asks ``/health/liveliness`` repeatedly, and the longest wait is the lag. Each shape is sent
three times, in a body that is new to the worker. The worst lag counts, and the median stands beside it. Other processes
can only make a wait longer: the first row, for which no body is sent, says how much they do.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.speed.load import HOST
from benchmarks.speed.systems import TIDEMARK, UPSTREAM, start
from benchmarks.speed.work import CHAT_PATH, NARROW, WIDE

LIMIT_MS = 50.0
"""The longest time that a body within the limits may block the event loop."""
COUNT, COMPACT = "/tidemark/count", "/tidemark/compact"
PROBE_SECONDS = 0.001
IDLE_SECONDS = 2.0
_PROBE = b"GET /health/liveliness HTTP/1.1\r\nhost: localhost\r\n\r\n"
Make = Callable[[str], bytes]
"""Makes a body; the tag makes it a different one in each round."""


@dataclass(frozen=True)
class Case:
    """One body with its endpoints."""

    name: str
    make: Make
    paths: Sequence[str] = (COUNT,)


@dataclass(frozen=True)
class Found:
    """The measurement of one body, sent once."""

    status: int
    seconds: float
    lag_ms: float


@dataclass(frozen=True)
class Row:
    """The measurements of one body at one endpoint."""

    name: str
    path: str
    megabytes: float
    rounds: Sequence[Found]

    @property
    def median_ms(self) -> float:
        """Return the lag in the middle."""
        return statistics.median([single.lag_ms for single in self.rounds])

    @property
    def worst_ms(self) -> float:
        """Return the longest lag, which is the one that counts."""
        return max([single.lag_ms for single in self.rounds])

    def __str__(self) -> str:
        """Return a line of the table."""
        first = self.rounds[0]
        figures = f"{self.megabytes:6.1f} {first.status:6} {first.seconds:8.2f}"
        return f"{self.name:42} {self.path:20} {figures} {self.median_ms:10.1f} {self.worst_ms:9.1f}"

    def saved(self) -> dict[str, object]:
        """Return everything that was found."""
        return {
            "body": self.name,
            "endpoint": self.path,
            "megabytes": self.megabytes,
            "rounds": list(map(asdict, self.rounds)),
        }


def request(model: str, messages: bytes, more: bytes = b"") -> bytes:
    """Make a chat request from encoded messages."""
    return b'{"model": "%b", "messages": [%b]%b}' % (model.encode(), messages, more)


def message(content: bytes, role: bytes = b"user") -> bytes:
    """Make one message."""
    return b'{"role": "%b", "content": %b}' % (role, content)


def talk(count: int, text: bytes) -> Make:
    """Make ``count`` short messages."""

    def make(tag: str) -> bytes:
        pairs = ((b"user", b"assistant")[place % 2] for place in range(count))
        return b",".join(
            [message(b'"%b %d %b"' % (text, place, tag.encode()), role) for place, role in enumerate(pairs)]
        )

    return make


def single(content: Make) -> Make:
    """Make one message with such a content."""
    return lambda tag: message(content(tag))


def repeated(piece: bytes, times: int, brackets: bytes = b"[]") -> Make:
    """Make a list of equal pieces, with a tag in the first one."""
    return lambda tag: brackets[:1] + b'"%b",' % tag.encode() + b",".join([piece] * times) + brackets[1:]


def text(piece: bytes, megabytes: int) -> Make:
    """Make a string of so many megabytes."""
    return lambda tag: b'"%b %b"' % (tag.encode(), piece * (megabytes * 1_000_000 // len(piece)))


def numbered(count: int) -> Make:
    """Make an object with so many members."""
    return lambda tag: b'[{"type": "w%b", ' % tag.encode() + b", ".join([b'"m%d": 1' % n for n in range(count)]) + b"}]"


def images(count: int) -> Make:
    """Make so many images by URL."""
    part = b'{"type": "image_url", "image_url": {"url": "http://a/b"}}'
    return lambda tag: b"[" + b", ".join([b'{"type": "text", "text": "%b"}' % tag.encode(), *[part] * count]) + b"]"


def tools(count: int, words: int) -> Callable[[str], bytes]:
    """Make so many tool definitions, each with so many words."""
    described = b"some words about it " * (words // 4)

    def make(tag: str) -> bytes:
        template = b'{"type": "function", "function": {"name": "f%d%b", "description": "%b", "parameters": %b}}'
        schema = b'{"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}'
        return b", ".join([template % (place, tag.encode(), described, schema) for place in range(count)])

    return make


def call(megabytes: int) -> Make:
    """Make a call whose arguments are JSON of so many megabytes."""
    inner = text(b'\\"a\\": [1, 2],', megabytes)
    return lambda tag: (
        b'{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": %b}}]}' % inner(tag)
    )


def with_tools(make: Make) -> Make:
    """Make a request with such tools."""
    return lambda tag: request(WIDE, message(b'"hello"'), b', "tools": [%b]' % make(tag))


def asking(messages: Make, model: str = WIDE) -> Make:
    """Make a request with such messages."""
    return lambda tag: request(model, messages(tag))


def empty(tag: str) -> bytes:
    """Make a million empty messages, and one with content."""
    return b'{"role":"user","content":""},' * 1_000_000 + message(b'"%b"' % tag.encode())


def beside(tag: str) -> bytes:
    """Make a short question with an unused member of 30 million numbers."""
    return request(WIDE, message(b'"%b"' % tag.encode()), b', "x": %b' % repeated(b"0", 30_000_000)(tag))


def picture(tag: str) -> bytes:
    """Make an image in base64."""
    part = b'{"type": "image_url", "image_url": {"url": "data:image/png;base64,%b"}}'
    return b"[" + part % (tag.encode() + b"A" * 60_000_000) + b"]"


HALF = b"cut \\ud83d here"
ACCENTS = "words é ".encode() * 1000 + "😀".encode()
CASES = (
    # what is refused, since there is too much of it
    Case("300,000 messages with half a character", asking(talk(300_000, HALF))),
    Case("a million members in one part", asking(single(numbered(1_000_000)))),
    Case("200,000 images in one message", asking(single(images(200_000)))),
    Case("a million empty messages", asking(empty)),
    Case("200,000 messages", asking(talk(200_000, b"word")), (COUNT, COMPACT)),
    Case("30 million numbers in an unknown member", beside),
    # what is served
    Case("20,000 messages", asking(talk(20_000, b"word")), (COUNT, COMPACT, CHAT_PATH)),
    Case("20,000 messages that do not fit", asking(talk(20_000, b"some words that are many"), NARROW), (CHAT_PATH,)),
    Case("20,000 messages with half a character", asking(talk(20_000, HALF)), (COUNT, CHAT_PATH)),
    Case("3,900 images in one message", asking(single(images(3_900))), (COUNT, CHAT_PATH)),
    Case("19,000 members in one part", asking(single(numbered(19_000))), (COUNT, CHAT_PATH)),
    Case("tools of 20 MB", with_tools(tools(1_000, 4_000)), (COUNT, CHAT_PATH)),
    Case("4,000 tools", with_tools(tools(4_000, 20)), (COUNT, CHAT_PATH)),
    Case("a text of 60 MB", asking(single(text(b"words and\\nlines ", 60))), (COUNT, CHAT_PATH)),
    Case("a text of 60 MB with an emoji", asking(single(text(ACCENTS, 60)))),
    Case("a text of 20 MB with half a character", asking(single(text(HALF, 20)))),
    Case("an image of 60 MB", asking(single(picture)), (COUNT, CHAT_PATH)),
    Case("arguments of 50 MB", asking(call(50)), (COUNT, CHAT_PATH)),
)


def head(path: str, length: int) -> bytes:
    """Make the head of a request."""
    lines = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{lines}authorization: Bearer bench\r\ncontent-length: {length}\r\n\r\n".encode()


def send_body(port: int, path: str, body: bytes, answer: list[bytes]) -> None:
    """Send a body and read the whole answer."""
    with socket.create_connection((HOST, port), timeout=300) as wire:
        got = b""
        try:
            wire.sendall(head(path, len(body)) + body)
            while piece := wire.recv(1_048_576):
                got += piece[:64] if not got else b""
        except OSError:
            pass
        answer.append(got)


@contextmanager
def probing(port: int) -> Iterator[list[float]]:
    """Ask for the worker's health repeatedly, and append each wait in seconds to the list."""
    waits: list[float] = []
    over = threading.Event()

    def probe() -> None:
        with socket.create_connection((HOST, port), timeout=300) as wire:
            while not over.is_set():
                began = time.perf_counter()
                wire.sendall(_PROBE)
                wire.recv(65_536)
                waits.append(time.perf_counter() - began)
                over.wait(PROBE_SECONDS)

    thread = threading.Thread(target=probe)
    thread.start()
    time.sleep(0.05)
    try:
        yield waits
    finally:
        time.sleep(0.1)  # what is done after the answer counts
        over.set()
        thread.join()


def measured(port: int, path: str, body: bytes) -> Found:
    """Send one body, and measure how long other requests wait."""
    with probing(port) as waits:
        answer: list[bytes] = []
        began = time.perf_counter()
        sending = threading.Thread(target=send_body, args=(port, path, body, answer))
        sending.start()
        sending.join()
        seconds = time.perf_counter() - began
    status = int(answer[0].split(b" ", 2)[1]) if answer and answer[0] else 0
    return Found(status, seconds, 1000 * max(waits))


def idle(port: int) -> Found:
    """Measure how long requests wait when no body is sent."""
    with probing(port) as waits:
        time.sleep(IDLE_SECONDS)
    return Found(200, IDLE_SECONDS, 1000 * max(waits))


def body_of(case: Case, path: str, tag: str) -> bytes:
    """Make a case's body for one endpoint."""
    body = case.make(tag)
    return b'{"max_tokens": 2000, "request": %b}' % body if path == COMPACT else body


def rows(port: int, only: str, rounds: int) -> Iterator[Row]:
    """Measure each body at its endpoints; the first row has no body."""
    yield Row("none", "", 0.0, [idle(port) for _ in range(rounds)])
    for case in (single for single in CASES if only in single.name):
        for path in case.paths:
            bodies = [body_of(case, path, f"t{place}{time.time_ns()}") for place in range(rounds)]
            yield Row(case.name, path, len(bodies[0]) / 1e6, [measured(port, path, body) for body in bodies])


def main() -> int:
    """Measure, and return whether every body stays below the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--json", type=Path, help="a file for everything that was found")
    options = parser.parse_args()
    table: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tidemark-lag-") as folder:
        upstream = start(UPSTREAM, "", Path(folder) / "upstream")
        tidemark = start(TIDEMARK, f"http://{HOST}:{upstream.port}", Path(folder) / "tidemark")
        try:
            units = f"{'MB':>6} {'status':>6} {'seconds':>8} {'median, ms':>10} {'worst, ms':>9}"
            print(f"{'body':42} {'endpoint':20} {units}")
            for row in rows(tidemark.port, options.only, options.rounds):
                print(row, flush=True)
                table.append(row)
        finally:
            tidemark.stop()
            upstream.stop()
    if options.json:
        options.json.write_text(json.dumps([row.saved() for row in table], indent=1))
    over = [row.name for row in table if row.worst_ms > LIMIT_MS]
    print(f"over {LIMIT_MS:.0f} ms: {', '.join(dict.fromkeys(over)) or 'none'}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
