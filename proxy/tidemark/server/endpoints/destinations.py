"""Finds the upstream of a request that Tidemark does not understand, by the model that it names.

``forwarding.py`` asks it before it sends a request. The model is in the JSON body, in the form or in the query. If
the upstream has another name for it, that name takes its place; all other bytes stay.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tidemark.core.errors import InvalidRequest, ModelNotFound, NoUpstream
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Headers, Route, Upload, Upstream
from tidemark.dialects.bodies import body_of
from tidemark.dialects.forms import (
    ModelField,
    boundary_of,
    check_pairs,
    field_of_form,
    model_of_pairs,
    pairs_with_model,
)
from tidemark.dialects.json_bounds import LIGHT_BYTES, check_values
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.pipeline.prompt_check import PromptCheck
from tidemark.server.encodings import HEADER as ENCODING
from tidemark.server.encodings import is_encoded
from tidemark.server.spools import KeptBeginning, Spools
from tidemark.server.uploads import IN_MEMORY_BYTES, UNTYPED, declared_length

FORM, PAIRS = b"multipart/form-data", b"application/x-www-form-urlencoded"
LINES = (b"jsonl", b"ndjson", b"x-jsonlines")
"""Endings of media types whose bodies are many JSON values, and no object with a model."""
WITHOUT_MODEL = ("/files", "/uploads")
"""Paths whose forms name no model (OpenAI API reference, "Files" and "Uploads")."""
COMPLETIONS = "/completions"
MAX_MEMBERS = 1_000
"""Members of a JSON body; no API has a tenth of them."""
MAX_VALUES = 1_000_000
"""Members and elements in a whole JSON body. A request for embeddings may have 300,000 tokens."""
_OBJECT = re.compile(rb"\s*+\{")
Content = TypeVar("Content", bytes, str)
T = TypeVar("T")
_NO_UPSTREAM = (
    "Tidemark does not serve {path} itself, and finds no one upstream to carry it to: the request names no model. Name "
    "a model of model_list in the query (?model=...), or set TIDEMARK_UPSTREAM (upstream: in tidemark.yaml) to the "
    "OpenAI-compatible server of such requests."
)


@frozen
class ForwardedRequest:
    """What a destination is found by, beside the body."""

    path: str
    """Below the base URL, as the client wrote it."""
    query: str
    headers: Headers
    caller: Caller


@frozen
class ForwardTarget:
    """Where a request goes, and what is sent."""

    route: Route
    path: str
    """Below the base URL, with the query."""
    body: bytes | Upload
    model: str = ""
    """The model's name as the client wrote it; empty if it named none."""
    beginning: KeptBeginning | None = None

    def close(self) -> None:
        """Delete what was kept of the body."""
        if self.beginning is not None:
            self.beginning.close()


@frozen
class Destinations:
    """Finds destinations; it has no state."""

    upstream: Upstream
    check: PromptCheck
    reads_models: bool
    """Whether a model can change the route or be renamed; else all requests go to one upstream as they are."""
    spools: Spools
    """Where forms are kept until their model is known."""

    async def of_body(self, request: ForwardedRequest, body: bytes) -> ForwardTarget:
        """Return the destination of a request whose body is there.

        :raises InvalidRequest, ModelNotFound, NoUpstream: there is none
        :raises ContextLengthExceeded: it is a prompt that is too long for its model
        """
        kind = media_type(request.headers)
        if kind == FORM:
            return await self._of_form(request, body)
        if kind == PAIRS and not _OBJECT.match(body):  # curl calls every body of -d a form
            return await self._of_pairs(request, body)
        fields = await _in_thread_if_long(partial(self._members, is_json=kind not in UNTYPED), body)
        name = decode_value(fields["model"], "model") if "model" in fields else None
        if not isinstance(name, str) or not name:
            return await self._of_query(request, body)
        route = await self.upstream.resolve(name)
        if request.path == COMPLETIONS and "prompt" in fields:
            await self.check.check(route, decode_value(fields["prompt"], "prompt"), request.caller)
        if route.upstream_model != name:
            body = body_of(fields, {"model": json.dumps(route.upstream_model).encode()})
        return ForwardTarget(route, request.path + _mark(request.query), body, name)

    async def of_upload(self, request: ForwardedRequest, pieces: AsyncGenerator[bytes, None]) -> ForwardTarget:
        """Return the destination of a request whose body is still arriving.

        A form is read as far as its model; what was read of it is kept and sent first.

        :raises InvalidRequest, ModelNotFound, NoUpstream: there is none
        :raises BodyTooLarge, RequestTimedOut, ServerBusy: the model does not come within the bounds of ``spools``
        """
        length, encoding = declared_length(request.headers), _encoding_of(request.headers)
        upload = Upload(pieces, length, encoding)
        if media_type(request.headers) != FORM or not self._is_read(request):
            return await self._of_query(request, upload)
        field = ModelField(boundary_of(_content_type(request.headers)))
        beginning = KeptBeginning(self.spools, request.caller.fingerprint)
        try:
            async with beginning.collecting():
                async for piece in pieces:
                    await beginning.add(piece, has_field=field.has_field)
                    field.feed(piece)
                    if field.is_complete:
                        break
            if field.model is None:
                rest = Upload(_joined(beginning, ModelField(b""), b"", pieces), length, encoding)
                destination = await self._of_query(request, rest)
            else:
                route = await self.upstream.resolve(field.model)
                name = route.upstream_model.encode()
                longer = len(name) - (field.end - field.start)
                rest = Upload(
                    _joined(beginning, field, name, pieces), None if length is None else length + longer, encoding
                )
                destination = ForwardTarget(route, request.path + _mark(request.query), rest, field.model)
        except BaseException:  # cancelled, too: the temporary file has no other owner yet
            beginning.close()
            raise
        return ForwardTarget(destination.route, destination.path, destination.body, destination.model, beginning)

    async def _of_form(self, request: ForwardedRequest, body: bytes) -> ForwardTarget:
        """Return the destination of a form that is there as a whole."""
        if not self._is_read(request):
            return await self._of_query(request, body)
        boundary = boundary_of(_content_type(request.headers))
        field = await _in_thread_if_long(partial(field_of_form, boundary), body)
        if field.model is None:
            return await self._of_query(request, body)
        route = await self.upstream.resolve(field.model)
        if route.upstream_model != field.model:
            body = body[: field.start] + route.upstream_model.encode() + body[field.end :]
        return ForwardTarget(route, request.path + _mark(request.query), body, field.model)

    async def _of_pairs(self, request: ForwardedRequest, body: bytes) -> ForwardTarget:
        """Return the destination of an urlencoded form."""
        pairs = body.decode("latin-1")
        try:
            check_pairs(pairs)
            model = await _in_thread_if_long(model_of_pairs, pairs)
        except InvalidRequest:
            if self.reads_models:
                raise
            model = None  # every body goes to one upstream, which may refuse it itself
        if model is None:
            return await self._of_query(request, body)
        route = await self.upstream.resolve(model)
        if route.upstream_model != model:
            body = pairs_with_model(pairs, route.upstream_model).encode("latin-1")
        return ForwardTarget(route, request.path + _mark(request.query), body, model)

    async def _of_query(self, request: ForwardedRequest, body: bytes | Upload) -> ForwardTarget:
        """Return the destination by the model in the query, else the one upstream.

        :raises NoUpstream: there is no one upstream
        """
        model, sole = model_of_pairs(request.query), self.upstream.sole_route(request.caller)
        if model is not None:
            with suppress(*([ModelNotFound] if sole else [])):
                route = await self.upstream.resolve(model)
                renamed = route.upstream_model != model
                query = pairs_with_model(request.query, route.upstream_model) if renamed else request.query
                return ForwardTarget(route, request.path + _mark(query), body, model)
        if sole is None:
            raise NoUpstream(_NO_UPSTREAM.format(path="/v1" + request.path[:100]))
        return ForwardTarget(sole, request.path + _mark(request.query), body)

    def _is_read(self, request: ForwardedRequest) -> bool:
        """Whether a form is searched for a model; it is not if the query names one."""
        if model_of_pairs(request.query) is not None or not (self.reads_models or request.caller.is_restricted):
            return False
        if request.caller.is_restricted:
            return True
        return self.upstream.sole_route(request.caller) is None or not request.path.startswith(WITHOUT_MODEL)

    def _members(self, body: bytes, *, is_json: bool) -> Mapping[str, bytes]:
        """Return the members of a JSON body. If every body goes to one upstream, that may refuse it itself.

        :param is_json: whether its sender says so; a body without a type may be anything
        """
        if not body.strip():
            return {}
        try:
            check_values(body, MAX_VALUES, "The body")
            return read_members(body, bounded=False, most_members=MAX_MEMBERS)
        except InvalidRequest:
            if self.reads_models and is_json:
                raise
            return {}


def media_type(headers: Headers) -> bytes:
    """Return the media type of a body in lower case, without parameters; empty if none is stated."""
    return _content_type(headers).partition(b";")[0].strip().lower()


def is_read_whole(headers: Headers) -> bool:
    """Whether a request's body is read before it is sent: JSON, short forms, and if there is no body.

    All other bodies go on while they arrive. Some are looked at first (``uploads.object_or_pieces``).
    """
    length = declared_length(headers)
    kind = media_type(headers)
    if not length and not any(name == b"transfer-encoding" for name, _ in headers):
        return True
    if kind == FORM:
        return is_encoded(headers) or (length is not None and length <= IN_MEMORY_BYTES)
    if kind in UNTYPED:
        return is_encoded(headers)
    return kind == PAIRS or (b"json" in kind and not kind.endswith(LINES))


async def _in_thread_if_long(read: Callable[[Content], T], body: Content) -> T:
    """Return what ``read`` finds in a body. A thread reads a long one, as other requests must not wait."""
    return read(body) if len(body) <= LIGHT_BYTES else await asyncio.to_thread(read, body)


def _content_type(headers: Headers) -> bytes:
    return next((value for name, value in headers if name == b"content-type"), b"")


def _encoding_of(headers: Headers) -> bytes:
    return b", ".join(value for name, value in headers if name == ENCODING)


def _mark(query: str) -> str:
    return f"?{query}" if query else ""


async def _joined(
    beginning: KeptBeginning, field: ModelField, name: bytes, rest: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Yield a form with its model's name replaced: what was kept of it, then what still arrives."""
    async for piece in beginning.pieces(field.start, field.end, name):
        yield piece
    beginning.close()
    async for piece in rest:
        yield piece
