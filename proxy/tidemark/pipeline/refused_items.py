"""Keeps encrypted items that their upstream refused out of the requests after that.

Only the organization and the family of models that made encrypted reasoning and compactions can read them. A client
that has changed the organization or the model still sends them, and the upstream would refuse each turn. So the
request is sent once more without them, and the conversation's record keeps which items this upstream refused
(docs/adr/0030). Nothing is looked at before a first refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from tidemark.core.conversation.messages import sized_digest
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.conversation.thinking import KEY_BYTES, NOWHERE
from tidemark.core.ports import Route, Upstream, UpstreamReply
from tidemark.pipeline.bound_thinking import LARGE_BYTES, pairs_of
from tidemark.pipeline.plain_replies import decode_whole, read_whole
from tidemark.pipeline.values import BufferedReply, RequestContext

REFUSED = 400
MOST_ATTEMPTS = 2
"""How often a request is sent again. The second time comes only if an item that was taken for read is refused."""
NOTICE = (
    "the upstream cannot read {count} encrypted {items} of this conversation, which another organization or model has "
    "made; sent again without {them}"
)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def watched_items(context: RequestContext) -> RefusedItems | None:
    """Return what watches over a request's encrypted items; None for a dialect without any."""
    responses = context.request.dialect.responses
    return None if responses is None else RefusedItems(responses, context)


class RefusedItems:
    """The encrypted items of one request. Its state is which of them its upstream has refused."""

    __slots__ = ("_context", "_form", "_new", "warning")

    def __init__(self, form: ResponseFormat, context: RequestContext) -> None:
        self._form = form
        self._context = context
        self._new: dict[bytes, None] = {}
        """The keys of items that were refused in this request, in order."""
        self.warning: str | None = None

    async def send(self, upstream: Upstream, request: ModelRequest, body: bytes, *, changed: bool) -> UpstreamReply:
        """Send a request without the items that were refused before; once more if others are refused.

        :raises UpstreamError: there was no answer
        """
        del changed
        context, form = self._context, self._form
        if (noted := self._noted()) and form.has_encrypted(body):
            readable = await _apart(body, form.without_items, _Keyed(context.route, noted))
            body = body if readable is None else readable
        reply = await upstream.send(context.route, body, context.caller, dialect=request.dialect, stream=request.stream)
        left_out: list[str] = []
        for attempts in range(MOST_ATTEMPTS):
            if reply.status != REFUSED or not form.has_encrypted(body):
                break
            reply, data = await _read(reply)
            rest = await _apart(body, _without_refused, data, form, all_of_them=attempts > 0)
            if rest is None:
                break
            body, refused = rest
            left_out += refused
            reply = await upstream.send(
                context.route, body, context.caller, dialect=request.dialect, stream=request.stream
            )
        if left_out and reply.status < REFUSED:  # else the words of the refusal may be the client's
            self._new |= dict.fromkeys([_key(context.route, sealed) for sealed in left_out])
            items, them = ("item", "it") if len(left_out) == 1 else ("items", "them")
            self.warning = NOTICE.format(count=len(left_out), items=items, them=them)
        return reply

    def bindings(self, reply: Reply) -> bytes:
        """Return what is to be stored of the turn: the keys of the items that were refused."""
        del reply
        return b"".join([key + NOWHERE for key in self._new])

    def _noted(self) -> frozenset[bytes]:
        """Return the keys of items that some upstream of this conversation has refused."""
        stored = self._context.stored.bindings
        if not stored:
            return frozenset(self._new)
        return frozenset([*self._new, *[key for key, bound in pairs_of(stored) if bound == NOWHERE]])


async def readable_body(reply: UpstreamReply, body: bytes, form: ResponseFormat) -> tuple[UpstreamReply, bytes | None]:
    """Return the reply to a request that is no turn, and the body to send again.

    :param body: the request's
    :returns: None in place of the body if nothing is to be sent again
    """
    if reply.status != REFUSED or not form.has_encrypted(body):
        return reply, None
    reply, data = await _read(reply)
    rest = await _apart(body, _without_refused, data, form, all_of_them=True)
    return reply, None if rest is None else rest[0]


async def _read(reply: UpstreamReply) -> tuple[UpstreamReply, bytes]:
    """Return a refusal that may be read again, and its body."""
    data = await read_whole(reply)
    return BufferedReply(reply.status, reply.headers, data), decode_whole(reply.headers, data) or data


def _without_refused(
    body: bytes, refusal: bytes, form: ResponseFormat, *, all_of_them: bool
) -> tuple[bytes, Sequence[str]] | None:
    """Return a body without the items that a refusal is about, and those; None if that is nothing to send."""
    refused = form.refused_items(refusal, body, all_of_them=all_of_them)
    readable = form.without_items(body, frozenset(refused)) if refused else None
    return None if readable is None else (readable, refused)


class _Keyed:
    """The encrypted contents whose keys were noted, as a container.

    :param noted: the keys
    """

    def __init__(self, route: Route, noted: frozenset[bytes]) -> None:
        self._route = route
        self._noted = noted

    def __contains__(self, sealed: object) -> bool:
        return isinstance(sealed, str) and _key(self._route, sealed) in self._noted


def _key(route: Route, sealed: str) -> bytes:
    """Return the digest that names an item at an upstream: another one may be able to read it."""
    text = f"{route.base_url}\0{route.upstream_model}\0{sealed}"
    return sized_digest(text.encode(errors="surrogatepass"), KEY_BYTES)


async def _apart(body: bytes, work: Callable[Concatenate[bytes, _P], _T], *rest: _P.args, **more: _P.kwargs) -> _T:
    """Do some work on a body, in a thread if it is large."""
    if len(body) > LARGE_BYTES:
        return await asyncio.to_thread(work, body, *rest, **more)
    return work(body, *rest, **more)
