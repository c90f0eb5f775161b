"""Turns litellm's answers into OpenAI's: a chunk becomes a server-sent event, a response a JSON object.

The translate lane uses it for every answer. It removes what litellm adds: empty fields, its cost estimate, the usage in
a chunk with choices, and the ``finish_reason`` that it invents for a stream that broke off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn

import msgspec

from tidemark.core.errors import UpstreamBroken
from tidemark.core.ports import Headers, Route
from tidemark.upstream.answer_bounds import AnswerBounds
from tidemark.upstream.errors import broken, stalled
from tidemark.upstream.headers import returned_headers
from tidemark.upstream.plain_chunks import PlainChunks
from tidemark.upstream.refusals import is_timeout, provider_message

EVENT_STREAM = (b"content-type", b"text/event-stream")
DONE = b"data: [DONE]\n\n"
"""OpenAI API reference, "Streaming": the end of a complete stream."""
PROVIDER_PREFIX = "llm_provider-"
"""litellm's prefix for the provider's own response headers."""


class StreamedReply:
    """A streamed answer; ``begin`` is called before anything is sent to the client.

    :param stream: litellm's ``CustomStreamWrapper``
    :param usage: whether the client asked for the usage chunk
    :param bounds: those of an answer
    """

    status = 200

    def __init__(self, stream: Any, route: Route, bounds: AnswerBounds, *, usage: bool) -> None:
        self.headers: Headers = (EVENT_STREAM, *answer_headers(stream))
        self._stream = stream
        self._plain = PlainChunks(stream)
        self._route = route
        self._bounds = bounds
        self._usage = usage
        self._first: Any = None
        self._id: str | None = None
        self._pending: asyncio.Future[Any] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Wait for the first chunk; a refusal of the provider is raised here, as litellm's exception."""
        try:
            self._first = await self._next()
        except BaseException:  # cancelled, too: no other code has the provider's stream
            await self.close()
            raise

    async def body(self) -> AsyncIterator[bytes]:
        """Yield a server-sent event for each chunk as it arrives, and ``[DONE]`` only after a ``finish_reason``."""
        finished, free_bytes = False, self._bounds.answer
        chunk, self._first = self._first, None
        try:
            while chunk is not None:
                for event in self._events_of(chunk):
                    # A completion has one id (the reference). For Gemini and Ollama litellm gives each chunk its own.
                    self._id = event["id"] = self._id or event.get("id")
                    if any(choice.get("finish_reason") for choice in event["choices"]):
                        self._refuse_made_up_end()
                        finished = True
                    data = b"data: " + msgspec.json.encode(event) + b"\n\n"
                    free_bytes -= len(data)
                    if free_bytes < 0:
                        self._refuse_more()
                    yield data
                chunk = await self._next()
            if not finished:
                self._end_early()
            yield DONE
        except (UpstreamBroken, GeneratorExit, asyncio.CancelledError):
            raise
        except Exception as error:  # litellm raises errors of all kinds in the middle of a stream
            raise self._broken(error) from error
        finally:
            await self.close()

    def _events_of(self, chunk: Any) -> list[dict[str, Any]]:
        plain_event = self._plain.event_of(chunk)
        if plain_event is not None:
            return [plain_event]
        events = events_of(chunk, usage=self._usage)
        if events:
            self._plain.note(events[0])
        return events

    async def close(self) -> None:
        """Cancel the call: first the read in progress, then the provider's own response."""
        if self._closed:
            return
        self._closed = True
        if self._pending is not None and not self._pending.done():
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
        provider_stream = getattr(self._stream, "completion_stream", None)
        await self._stream.aclose()
        # litellm 1.105.3 closes a provider's iterator only if it has aclose(). Anthropic's has none, so the
        # connection would stay open until garbage collection; the generator beneath it has aclose().
        for name in ("streaming_response", "response_iterator"):
            generator = getattr(provider_stream, name, None)
            if generator is not None and hasattr(generator, "aclose"):
                await generator.aclose()

    async def _next(self) -> Any:
        """Return the next chunk, or None at the end; a task of its own reads it, which ``close()`` can cancel."""
        self._pending = asyncio.ensure_future(_advance(self._stream))
        try:
            return await self._pending
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise self._broken() from None  # close() cancelled the read; its reader was not cancelled
            raise

    def _refuse_made_up_end(self) -> None:
        if made_up_end(self._stream):
            self._end_early()

    def _refuse_more(self) -> NoReturn:
        raise self._bounds.too_long_answer(self._route)

    def _end_early(self) -> NoReturn:
        raise self._broken()

    def _broken(self, error: BaseException | None = None) -> UpstreamBroken:
        if error is not None and is_timeout(error):
            return stalled(self._route)
        return broken(self._route, error, "" if error is None else provider_message(error))


async def _advance(stream: Any) -> Any:
    """Return the next chunk; None at the end, because a task cannot raise StopAsyncIteration."""
    return await anext(stream, None)


def made_up_end(stream: Any) -> bool:
    """Tell whether litellm made up the ``finish_reason`` because the provider's stream ended without one.

    It then sends "stop" after its own last chunk, though it received none
    (``CustomStreamWrapper.finish_reason_handler``). Gemini's streams do not show this, because litellm 1.105.3 reads a
    "stop" out of every chunk.
    """
    received = getattr(stream, "received_finish_reason", None) or getattr(stream, "intermittent_finish_reason", None)
    return received is None and getattr(stream, "sent_last_chunk", False) is True


def events_of(chunk: Any, *, usage: bool) -> list[dict[str, Any]]:
    """Return the events of a chunk: itself, and its usage separately, with empty ``choices`` as OpenAI sends it."""
    event = plain(chunk)
    usage_object = event.pop("usage", None)
    choices = event.setdefault("choices", [])
    events = [event] if any(choice.get("finish_reason") or choice.get("delta") for choice in choices) else []
    if usage_object and usage:
        events.append({**event, "choices": [], "usage": usage_object})
    return events


def plain(answer: Any) -> dict[str, Any]:
    """Return an answer or chunk as JSON values, without empty fields and without litellm's own additions."""
    value: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    _drop_empty_extras(value)
    for choice in value.get("choices", ()):
        for part in (choice, choice.get("message"), choice.get("delta")):
            if isinstance(part, dict):
                _drop_empty_extras(part)
        if "message" in choice:
            choice["message"].setdefault("content", None)  # required by the reference, null beside tool calls
    if isinstance(value.get("usage"), dict):
        value["usage"].pop("cost", None)  # litellm's estimate; usage must be the provider's own
    return value


def _drop_empty_extras(part: dict[str, Any]) -> None:
    for name in [name for name, item in part.items() if item == [] and name != "choices"]:
        del part[name]  # vertex_ai_safety_ratings, images, thinking_blocks, ...
    extras = part.pop("provider_specific_fields", None)
    if isinstance(extras, Mapping):
        filled = {name: item for name, item in extras.items() if item not in (None, [], {}, "")}
        if filled:
            part["provider_specific_fields"] = filled


def answer_headers(answer: Any) -> Headers:
    """Return the provider's request id and rate limits, as far as litellm passes them on."""
    hidden = getattr(answer, "_hidden_params", None) or {}
    headers = hidden.get("additional_headers") or getattr(answer, "_response_headers", None) or {}
    return returned_headers({str(name).removeprefix(PROVIDER_PREFIX): str(value) for name, value in headers.items()})
