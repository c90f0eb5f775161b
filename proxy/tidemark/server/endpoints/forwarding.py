"""Carries every request under ``/v1`` that no other endpoint serves: embeddings, files, audio, images, batches.

No step of the pipeline runs. Only the model is read, which decides the upstream, and ids if tenants share a
provider's account; the store keeps only who made what (``pipeline/carried_objects.py``). Bodies go on while they
arrive, and so do answers. The table of routes has it last.

Of an answer, only errors are read and kept: they are short, and Tidemark's own error replaces one that has no end.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import replace
from urllib.parse import unquote

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import ClientError, InvalidRequest, NoUpstream, TidemarkError, UpstreamError
from tidemark.core.events import Listener, Outcome
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator, Caller, Headers, Upload, Upstream, UpstreamReply
from tidemark.pipeline.carried_objects import CarriedObjects
from tidemark.pipeline.plain_replies import codings_of
from tidemark.server.allowed_models import check_carried
from tidemark.server.asgi import ARRIVES_IN_PIECES, CancelOnDisconnect, ClientGone, Response, read_body
from tidemark.server.capabilities import errors_of
from tidemark.server.encodings import decoded_body, is_encoded
from tidemark.server.endpoints.destinations import (
    Destinations,
    ForwardedRequest,
    ForwardTarget,
    is_read_whole,
    media_type,
)
from tidemark.server.quotas import CHARACTERS_A_TOKEN, Permission, Quotas
from tidemark.server.request_log import RequestLog
from tidemark.server.uploads import UNTYPED, ArrivingBody, object_or_pieces, whole_body

PREFIX = "/v1"
ACCEPT_ENCODING = b"accept-encoding"
REFUSED = 300
"""From this status on an answer that comes before the end of its request means that nobody wants the rest."""
ENDPOINTS = frozenset(
    {
        "assistants",
        "audio",
        "batches",
        "chat",
        "completions",
        "containers",
        "conversations",
        "embeddings",
        "evals",
        "files",
        "fine_tuning",
        "images",
        "messages",
        "models",
        "moderations",
        "realtime",
        "rerank",
        "responses",
        "threads",
        "uploads",
        "vector_stores",
        "videos",
    }
)
"""First parts of paths that the metrics tell apart; all others are ``other``, because clients choose them."""
JOINED_BYTES = 65_536
"""A shorter answer of known length is sent at once, with its head. It also fails as a whole."""
FIRST_ERROR = 400
LENGTH = b"content-length"
WITHOUT_BODY = frozenset({204, 304})
_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,15})')
_COUNT_BYTES = 64
"""Bytes of one piece that are looked at again with the next one."""


@frozen
class ForwardingEndpoint:
    """Serves every path and method that reach it, as an ASGI application."""

    destinations: Destinations
    objects: CarriedObjects
    upstream: Upstream
    auth: Authenticator
    quotas: Quotas
    formats: Mapping[str, ErrorFormat]
    """The error formats of dialects, by path; all other paths have OpenAI's."""
    max_body_bytes: int
    emit: Listener
    timer: Callable[[], float]

    def routes(self) -> list[BaseRoute]:
        """Return the routes, which come after those of all other endpoints.

        A path of Tidemark's own is served with its own methods only, but for what providers have on the same paths: the
        deletion of a model, Google's calls of one (``models/x:generateContent``), and OpenAI's list of completions.
        """
        return [
            Route(f"{PREFIX}/models/{{model:path}}", self, methods=["DELETE"]),
            Route(f"{PREFIX}/models/{{model:path}}:{{call}}", self, methods=["POST"]),
            Route(f"{PREFIX}/chat/completions", self, methods=["GET"]),
            _LastRoute(PREFIX + "/{path:path}", self),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        errors, headers = errors_of(scope["path"], self.formats), scope["headers"]
        log = RequestLog(scope["path"], Response(send, errors), self.timer, headers)
        log.endpoint = endpoint_of(scope["path"])
        try:
            caller = log.caller = self.auth.caller(headers)
            if scope["method"] == "POST" and self.quotas.bounds(caller):
                log.count_against(await self.quotas.take(caller, scope["path"]))
            if is_read_whole(headers) or caller.is_restricted:
                body = await read_body(receive, headers, self.max_body_bytes)
                if is_encoded(headers):
                    body = await decoded_body(body, headers, self.max_body_bytes)
                with CancelOnDisconnect(receive):
                    log.outcome = await self._answer_or_fail(log, scope, body, caller)
            else:
                scope[ARRIVES_IN_PIECES] = True
                async with ArrivingBody(receive) as arriving:
                    with CancelOnDisconnect(arriving.receive_disconnect):
                        log.outcome = await self._answer_or_fail(log, scope, arriving, caller)
        except ClientGone:
            pass  # a log's outcome is "disconnected" until another one is known
        except TidemarkError as error:
            log.note_error(error)
            await log.response.send_error(error)
            log.outcome = "rejected" if isinstance(error, ClientError) else "error"
        finally:
            log.end_permission()
            self.emit(log.to_event())

    async def _answer_or_fail(
        self, log: RequestLog, scope: Scope, body: bytes | ArrivingBody, caller: Caller
    ) -> Outcome:
        """Carry a request; every error before its answer becomes an answer."""
        try:
            return await self._carry(log, scope, body, caller)
        except TidemarkError as error:
            log.note_error(error)
            await log.response.send_error(error)
            return "rejected" if isinstance(error, ClientError) else "error"
        except OSError:
            return "disconnected"
        except Exception:
            # The boundary of the process: the client gets an error, and the server logs the cause.
            log.outcome, log.code = "error", TidemarkError.code
            await log.response.send_error(TidemarkError("Tidemark failed to serve this request; its log says why."))
            raise

    async def _carry(self, log: RequestLog, scope: Scope, body: bytes | ArrivingBody, caller: Caller) -> Outcome:
        """Find the destination, send the request and carry the answer."""
        path: str = scope["path"]
        served = "/" + "/".join(filter(None, path.split("/")))
        if path != served and served in self.formats:
            # Carried, it would pass the pipeline by: nothing stored, nothing compacted, and nobody would notice.
            raise NoUpstream(f"Tidemark serves {served}, with single slashes and none at its end.")
        headers = scope["headers"]
        codings = [line for line in headers if line[0] == ACCEPT_ENCODING]
        if codings:
            caller = replace(caller, headers=[*caller.headers, *codings])
        request = ForwardedRequest(path_below(scope), scope.get("query_string", b"").decode("latin-1"), headers, caller)
        if isinstance(body, bytes):
            destination = await self.destinations.of_body(request, body)
            check_carried(scope["method"], destination.path, body, caller, headers=headers, model=destination.model)
            return await self._send(log, scope, destination, caller, None)
        pieces = body.pieces()
        if media_type(headers) in UNTYPED:
            untyped = await self._looked_at(scope, pieces)
            if isinstance(untyped, bytes):
                destination = await self.destinations.of_body(request, untyped)
                return await self._send(log, scope, destination, caller, None)
            pieces = untyped
        destination = await self.destinations.of_upload(request, pieces)
        try:
            searchable = await self._searchable(scope, destination)
            return await self._send(log, scope, searchable, caller, body)
        finally:
            destination.close()

    async def _searchable(self, scope: Scope, destination: ForwardTarget) -> ForwardTarget:
        """Return a destination whose body is whole if it can name objects and tenants share the account.

        Some servers read JSON whatever type and coding it is said to have. Files begin otherwise, and go on unread.

        :raises BodyTooLarge: the JSON, or a body with a coding, is larger than ``max_body_bytes``
        :raises UnsupportedEncoding, InvalidRequest: its coding cannot be undone
        """
        body = destination.body
        if isinstance(body, bytes) or not self.objects.are_shared(destination.route):
            return destination
        if body.encoding:
            scope.pop(ARRIVES_IN_PIECES, None)
            whole = await whole_body(body.pieces, self.max_body_bytes)
            return replace(destination, body=await decoded_body(whole, scope["headers"], self.max_body_bytes))
        content = await self._looked_at(scope, body.pieces)
        return replace(destination, body=content if isinstance(content, bytes) else replace(body, pieces=content))

    async def _looked_at(
        self, scope: Scope, pieces: AsyncGenerator[bytes, None]
    ) -> bytes | AsyncGenerator[bytes, None]:
        return await object_or_pieces(pieces, self.max_body_bytes, lambda: scope.pop(ARRIVES_IN_PIECES, None))

    async def _send(
        self, log: RequestLog, scope: Scope, destination: ForwardTarget, caller: Caller, arriving: ArrivingBody | None
    ) -> Outcome:
        log.model = destination.model
        route, method, path, body = destination.route, scope["method"], destination.path, destination.body
        members = await self.objects.check(route, method, path, body, caller)
        if isinstance(body, bytes):  # else the time is that of the upload
            log.note_asked()
        reply = await self.upstream.forward(route, method, path, body, caller)
        if arriving is not None and reply.status >= REFUSED:
            arriving.discard()
        try:
            answer = await self.objects.claim(route, caller, reply, members)
            if log.permission is not None and log.permission.counts_tokens:
                answer = CountedReply(answer, log.permission, sent_bytes(body))
            return await carry(log, answer, is_head=method == "HEAD")
        finally:
            await reply.close()


class _LastRoute(Route):
    """A route for every method that gives way to any other route of a path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return a partial match, which starlette takes if no route matches wholly and none before it partly."""
        match, child_scope = super().matches(scope)
        return (match if match is Match.NONE else Match.PARTIAL), child_scope


class CountedReply:
    """An ``UpstreamReply`` that notes what it took: the largest count in it, else by the lengths of both bodies.

    :param request_bytes: those of the request that may be text
    """

    def __init__(self, reply: UpstreamReply, permission: Permission, request_bytes: int) -> None:
        self.status, self.headers = reply.status, reply.headers
        self._reply = reply
        self._permission = permission
        self._request_bytes = request_bytes

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the answer's pieces as they come."""
        counted, size, rest = 0, 0, b""
        async for piece in self._reply.body():
            size += len(piece)
            text = rest + piece
            counted = max([counted, *(int(total) for total in _TOTAL.findall(text))])
            rest = text[-_COUNT_BYTES:]
            # Noted with each piece: a client may leave before the last one.
            self._permission.tokens = counted or (self._request_bytes + size) // CHARACTERS_A_TOKEN
            yield piece

    async def close(self) -> None:
        await self._reply.close()


def sent_bytes(body: bytes | Upload) -> int:
    """Return the bytes of a request that may be text: forms mostly have files."""
    return len(body) if isinstance(body, bytes) and not body.startswith(b"--") else 0


def endpoint_of(path: str) -> str:
    """Return the label of a path in the metrics."""
    first = path.removeprefix(PREFIX + "/").partition("/")[0]
    return first if first in ENDPOINTS else "other"


def path_below(scope: Scope) -> str:
    """Return the path below the base URL, as the client wrote it; it begins with a slash.

    Behind a base URL without a path, anything else would name another server (``/v1%2F@elsewhere/``).

    :raises InvalidRequest: it does not begin with ``/v1/``, or leads out of the upstream's base path
    """
    raw: bytes = scope["raw_path"]
    whole = raw[len(scope["root_path"]) :].decode("latin-1")
    if not whole.startswith(PREFIX + "/"):
        raise InvalidRequest(f"The path must begin with {PREFIX}/, with no percent sign in that.", code="invalid_path")
    path = whole.removeprefix(PREFIX)
    # Some servers read what follows a semicolon as a parameter of the part, and then drop it.
    steps = {step.partition(";")[0] for step in unquote(path).replace("\\", "/").split("/")}
    if steps & {".", ".."}:
        raise InvalidRequest("The path may not contain '.' or '..' as a part.", code="invalid_path")
    return path


async def carry(log: RequestLog, reply: UpstreamReply, *, is_head: bool) -> Outcome:
    """Send an answer.

    :param is_head: the request was ``HEAD``: the answer states a length and has no body
    :return: how the exchange ended
    :raises UpstreamError: it broke off before anything of it was sent
    """
    response, length = log.response, _length_of(reply.headers)
    lines = [*log.returned(reply.headers), *log.facts()]
    body = reply.body()
    is_short = reply.status >= FIRST_ERROR or (length is not None and length <= JOINED_BYTES)
    if not is_head and is_short and reply.status not in WITHOUT_BODY:
        data = b"".join([piece async for piece in body])
        log.note_first_byte()
        if length is None:  # its end is in its framing, as the upstream's was
            await response.start(reply.status, lines)
            await response.end(data)
        else:
            await response.send_whole(reply.status, lines, data)
        return _outcome_of(reply.status)
    if length is not None and reply.status not in WITHOUT_BODY:
        lines.append((LENGTH, b"%d" % length))
    await response.start(reply.status, lines)
    try:
        await _send_pieces(log, response, body)
    except UpstreamError as error:
        log.note_error(error)
        if length is None and _is_events(lines):
            await response.send_error(error)
        return "incomplete"  # without an end the connection is closed, so the client notices
    await response.end()
    return _outcome_of(reply.status)


async def _send_pieces(log: RequestLog, response: Response, body: AsyncIterator[bytes]) -> None:
    async for piece in body:
        if log.first_byte is None:
            log.note_first_byte()
        await response.send_piece(piece)


def _outcome_of(status: int) -> Outcome:
    return "complete" if status < FIRST_ERROR else "refused"


def _length_of(headers: Headers) -> int | None:
    """Return the length that an answer states; None if it states none, or two."""
    lengths = {value for name, value in headers if name == LENGTH}
    length = lengths.pop() if len(lengths) == 1 else b""
    return int(length) if length.isdigit() else None


def _is_events(lines: Headers) -> bool:
    """Whether an answer is an event stream that an event of ours may end."""
    kinds = [value for name, value in lines if name == b"content-type"]
    return any(kind.startswith(b"text/event-stream") for kind in kinds) and not codings_of(lines)
