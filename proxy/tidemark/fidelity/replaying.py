"""Sends recorded conversations turn by turn through a whole Tidemark, and keeps what it forwards.

The application, its embedded store and the upstream are this process's own. The upstream answers with the recorded
replies only, so no provider is asked. ``production`` measures with it, and so does ``benchmarks/fidelity/production``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tidemark.config import (
    AuthSettings,
    EventSettings,
    MemoryFlushSettings,
    ModelEntry,
    ServerSettings,
    Settings,
    StoreSettings,
    TransportSettings,
    WindowNote,
)
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import is_summary
from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import unknown_reply
from tidemark.core.recall.quotation import CLOSING
from tidemark.core.recall.quotation import OPENING as RECALL_OPENING
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.summarizers.transcript import arguments_of
from tidemark.worker.dialects import CHAT
from tidemark.worker.stored import ModelParts

QUIET_ROUNDS = 3
"""For so many rounds of the loop nothing may be at work: a task that ends begins the next one a round later."""
MOST_HEAD_BYTES = 65_536
SUMMARIZED = b"x-tidemark-summarized-messages"
MakeApp = Callable[..., Any]
"""``create_app`` of ``tidemark/app``, which is no package below this one."""


class ReplayRefused(TidemarkError):
    """Tidemark refused a recorded request, or answered it without the upstream."""


@frozen
class Forwarded:
    """A request as the upstream got it."""

    body: bytes
    left_out: int
    """How many of the oldest messages a summary stands for, without system messages."""
    messages: Sequence[str]
    """What the messages say, with the values of their calls; neither a summary nor what is recalled."""
    summary: Sequence[str]
    """The lines of the summary."""
    recalled: Sequence[str]
    """The messages that are quoted before the newest user message, and before those since the last compaction."""

    @property
    def text(self) -> str:
        """Return all of it without the newest message, of which only the quotation counts."""
        return "\n".join([*self.messages[:-1], *self.summary, *self.recalled])


def taken_apart(messages: Iterable[Message], body: bytes = b"", left_out: int = 0) -> Forwarded:
    """Take the messages of a forwarded request apart."""
    summary: list[str] = []
    remaining: list[str] = []
    recalled: list[str] = []
    for message in messages:
        if is_summary(message):
            summary = message.text.split("\n")
            continue
        text = text_of(message)
        if text.startswith(RECALL_OPENING):
            quotes, _, text = text.partition(CLOSING)
            recalled += [quote for quote in quotes.split("\n>>>") if quote.strip()]
        remaining.append(text)
    return Forwarded(body, left_out, remaining, summary, recalled)


def text_of(message: Message) -> str:
    """Return what a message says, with the values that its calls pass."""
    values = (str(value) for call in message.calls for value in (arguments_of(call) or {}).values())
    return "\n".join([message.text, *values])


def replay_settings(
    settings: Settings, models: Iterable[str], window: int, recall: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings of a Tidemark that compacts as configured, but alone: no model, no consumer, no other store.

    It compacts in shadow mode too. No model searches, so the definition of the search function is left out.

    :param models: by the names that the conversations have; each has the same window
    :param window: of each model, in tokens
    :param recall: keys of ``compaction.recall`` in place of the configured ones
    """
    compaction = {"mode": "active", "strategy": "extractive", "commands": False, "recall": recall or {}}
    return replace(
        settings,
        model_list=tuple(_entry(settings, model, window, compaction) for model in models),
        upstream=None,
        store=StoreSettings(),
        tenants={},
        server=ServerSettings(max_body_mb=settings.server.max_body_mb),
        memory_flush=MemoryFlushSettings(),
        events=EventSettings(),
        auth=AuthSettings(),
        transport=TransportSettings(),
    )


def _entry(settings: Settings, model: str, window: int, compaction: Mapping[str, Any]) -> ModelEntry:
    """Return a model that is counted and compacted as the configured one; ``replaying`` adds the upstream."""
    entry = settings.entry_for(model)
    own = dict(entry.compaction) if entry else {}
    info = {"base_model": entry.lookup_name if entry and "*" not in entry.name else model}
    if entry is not None and entry.counted_as:
        info["tokenizer"] = entry.counted_as
    recall = {**own.get("recall", {}), **compaction["recall"], "tool": False}
    return ModelEntry(
        name=model,
        litellm_params={"model": f"openai/{model}"},
        model_info=info,
        window=WindowNote(window, unknown_reply(window)),
        compaction={**own, **compaction, "recall": recall},
    )


@dataclass
class ConversationReplay:
    """A running Tidemark with the upstream behind it. Mutable: what the upstream answers next, and what it got."""

    parts: ModelParts
    """Read and count requests as the application does."""
    app: Any = None
    lasting: set[asyncio.Task[Any]] = field(default_factory=set)
    """The tasks that work as long as the application does."""
    reply: Any = None
    """The recorded message that the upstream answers with."""
    received: list[bytes] = field(default_factory=list)
    """The bodies that the upstream got since the last request was sent."""

    async def send(self, body: bytes, reply: Any, key: str) -> Forwarded:
        """Send a chat request, wait until nothing is prepared any more, and return what the upstream got.

        :param reply: the assistant's message
        :param key: the credential; conversations of different ones do not meet
        :raises ReplayRefused: the upstream got nothing
        """
        self.reply = reply
        self.received.clear()
        status, headers, answer = await _ask(self.app, body, key)
        await self._settled()
        if status != HTTPStatus.OK or not self.received:
            raise ReplayRefused(_reason(answer))
        body = self.received[-1]
        return taken_apart((await self.read(body)).messages, body, int(headers.get(SUMMARIZED, 0)))

    async def read(self, body: bytes) -> ModelRequest:
        """Return a chat request.

        :raises InvalidRequest: it is none
        """
        return await self.parts.chat.parse(body, anonymous=True)

    async def count(self, body: bytes) -> int:
        """Return the tokens of a chat request."""
        request = await self.read(body)
        return (await self.parts.counter.count(request, request.model)).total

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request over HTTP with the recorded reply."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
            length = next((int(value) for name, _, value in lines if name == b"content-length"), 0)
            body = await reader.readexactly(length)
            if head.startswith(b"POST") and b"/chat/completions " in head.partition(b"\r\n")[0]:
                self.received.append(body)
                status, answer = b"200 OK", _completion(self.reply)
            else:
                status, answer = b"404 Not Found", b"{}"
            headers = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d" % len(answer)
            writer.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, headers, answer))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _settled(self) -> None:
        """Wait until no task is left that a request began."""
        own, quiet = asyncio.current_task(), 0
        while quiet < QUIET_ROUNDS:
            await asyncio.sleep(0)
            busy = asyncio.all_tasks() - self.lasting - {own}
            quiet = 0 if busy else quiet + 1
            if busy:
                await asyncio.wait(busy)


@asynccontextmanager
async def replaying(make_app: MakeApp, settings: Settings) -> AsyncIterator[ConversationReplay]:
    """Yield a Tidemark with these settings; everything is stopped at the end, and nothing of it stays.

    :param make_app: ``create_app``
    :param settings: as ``replay_settings`` makes them
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(EmbeddedValkey(folder / "store"))
        replay = ConversationReplay(ModelParts(settings, _unheard))
        server = await asyncio.start_server(replay.answer, "127.0.0.1", 0, limit=MOST_HEAD_BYTES)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        entries = [
            replace(entry, litellm_params={**entry.litellm_params, "api_base": url}) for entry in settings.model_list
        ]
        own = replace(settings, data_dir=folder, model_list=tuple(entries))
        replay.app = make_app(own, store_url=store.url, secret=b"of a replay", warn=_unheard)
        try:
            async with replay.app.router.lifespan_context(replay.app):
                replay.lasting = asyncio.all_tasks()
                yield replay
        finally:
            server.close()


def _unheard(_: str) -> None:
    """Take a warning about settings; the command that reads them has shown it."""


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of the replies: each ends a request with all messages before it."""
    return [
        place
        for place, message in enumerate(messages)
        if message.get("role") == "assistant" and place and messages[place - 1].get("role") in ("user", "tool")
    ]


async def _ask(app: Any, body: bytes, key: str) -> tuple[int, Mapping[bytes, bytes], bytes]:
    """Send a chat request to an ASGI application; return status, headers and body of the answer."""
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {key}".encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": CHAT,
        "raw_path": CHAT.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }
    sent, answered = asyncio.Event(), asyncio.Event()
    events: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        if sent.is_set():
            await answered.wait()
            return {"type": "http.disconnect"}
        sent.set()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Mapping[str, Any]) -> None:
        events.append(event)
        if event["type"] == "http.response.body" and not event.get("more_body"):
            answered.set()

    await app(scope, receive, send)
    answer = b"".join(event.get("body", b"") for event in events)
    return events[0]["status"], dict(events[0]["headers"]), answer


def _completion(message: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
    return json.dumps({"id": "replayed", "object": "chat.completion", "created": 0, "choices": [choice]}).encode()


def _reason(answer: bytes) -> str:
    """Return the message of an error of the API, or that there was none."""
    try:
        return str(json.loads(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "Tidemark answered the request itself."
