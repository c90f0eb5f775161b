"""Keeps thinking that a provider would refuse out of forwarded requests.

It stands between a fitted request and its upstream. Thinking stays only behind the prefix that it was made behind.
If an answer with thinking was made behind anything but the client's own bytes, a digest of that prefix is stored
with its turn. So one rule covers every cause: a compaction, a clip, a changed summary, recall, the search function, a
rewind (docs/adr/0030). A request that goes out as it came, of a conversation without such turns, is not looked at.

A summary that the provider wrote itself stands for the messages that it replaced: thinking behind these stays
(docs/adr/0031). The digests of a prefix are chained, so that they go on from those that the store has with the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import sized_digest
from tidemark.core.conversation.native import NativeForm
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.thinking import KEY_BYTES, NOWHERE, ThinkingFormat, checks_thinking
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Clock, Route, Upstream, UpstreamReply
from tidemark.pipeline.plain_replies import decode_whole, read_whole
from tidemark.pipeline.values import BufferedReply, RequestContext

LARGE_BYTES = 262_144
"""Larger bodies are looked at in a thread."""
REFUSED = 400
MOST_STOOD_FOR = 8
"""Digests that are stored with a provider's summary. Each compaction adds one, and no thinking lives through eight."""
NOTICE = "the upstream refused thinking that stood behind another prefix; sent again without it"
INVALID = "the upstream refused thinking whose signature is not valid; sent again without it"
_BETA = b"anthropic-beta"


class ThinkingGuard:
    """Begins ``BoundThinking`` for requests. Its state is which models of unknown names were seen to check.

    :param timer: seconds, of any origin
    """

    def __init__(self, timer: Clock) -> None:
        self._lessons: Lessons[tuple[str, str]] = Lessons(timer)
        """By address and model; what is refused is thinking behind another prefix."""

    def of(self, context: RequestContext, native: NativeForm | None = None) -> BoundThinking | None:
        """Return what watches over a request's thinking; None if its dialect or its upstream knows no check.

        :param native: the summary in the request, if the provider wrote it
        """
        form, route = context.request.dialect.bound_thinking, context.route
        if form is None:
            return None
        checks = route.thinking_binding
        if checks is None:
            checks = checks_thinking(route.upstream_model)
            if checks is None and form.is_native and self._is_taught(route, context.caller):
                checks = True
            if not checks and form.is_native:
                return BoundThinking(self, form, context, native, checks=checks)
        return BoundThinking(self, form, context, native, checks=True) if checks else None

    def _is_taught(self, route: Route, caller: Caller) -> bool:
        """Return whether the model of a route was seen to check thinking."""
        return self._lessons.refuses(caller.fingerprint, _place(route))

    def note_check(self, route: Route, caller: Caller) -> None:
        """Remember that a route's model checks thinking."""
        self._lessons.note_refused(caller.fingerprint, _place(route))


class BoundThinking:
    """The thinking of one request. Its state is what was sent last, and what is stored of its turn.

    :param checks: whether the model checks what its thinking stands behind; None if nobody knows. Every model
        checks signatures
    """

    __slots__ = (
        "_bound",
        "_checks",
        "_context",
        "_form",
        "_guard",
        "_native",
        "_prefixes",
        "_refused",
        "_sent_body",
        "warning",
    )

    def __init__(
        self,
        guard: ThinkingGuard,
        form: ThinkingFormat,
        context: RequestContext,
        native: NativeForm | None,
        *,
        checks: bool | None,
    ) -> None:
        self._guard = guard
        self._form = form
        self._context = context
        self._checks = checks
        self._native = native
        bindings = context.stored.bindings
        self._prefixes = dict(pairs_of(bindings)) if bindings else {}
        """The prefix behind which thinking was made, by its key."""
        self._sent_body: bytes | None = None
        """The body of the last request; None if it was the client's own."""
        self._bound: tuple[bytes, int] | None = None
        """The digest of that body, and how many elements it has; None until somebody asks."""
        self._refused: dict[bytes, bytes] = {}
        """Thinking that the upstream refused behind the client's own bytes."""
        self.warning: str | None = None

    async def send(self, upstream: Upstream, request: ModelRequest, body: bytes, *, changed: bool) -> UpstreamReply:
        """Send a request without the thinking that would be refused; once more if it is refused all the same.

        :param changed: whether the body says anything else than the client's own
        :raises UpstreamError: there was no answer
        """
        context, caller, out, is_dropping = self._context, self._context.caller, body, False
        is_due = (changed or self._prefixes) if self._checks else NOWHERE in self._prefixes.values()
        if is_due and self._form.is_in(body):
            out, is_dropping = await self._examined(body)
            caller = with_beta(caller, self._form.beta) if is_dropping else caller
        else:
            self._sent_body, self._bound = (body if changed else None), None
        reply = await upstream.send(context.route, out, caller, dialect=request.dialect, stream=request.stream)
        if reply.status != REFUSED or is_dropping or not self._form.is_in(body):
            return reply
        return await self._answered(upstream, request, reply, body, out)

    async def _answered(
        self, upstream: Upstream, request: ModelRequest, reply: UpstreamReply, body: bytes, out: bytes
    ) -> UpstreamReply:
        """Return the refusal, or the answer to the request without the thinking that it is about.

        :param out: what was sent of ``body``
        """
        context = self._context
        data = await read_whole(reply)
        refusal = decode_whole(reply.headers, data) or data
        place = self._form.refused_place(refusal)
        if place is None:
            return BufferedReply(reply.status, reply.headers, data)
        is_binding = self._form.is_binding(refusal)
        self._checks = self._checks or is_binding
        again, is_dropping = await self._examined(body, place)
        if again == out:  # what is stored is wrong, or the provider compares more than is known
            self._prefixes = dict.fromkeys(self._prefixes, NOWHERE)
            again, is_dropping = await self._examined(body, 0)
        caller = with_beta(context.caller, self._form.beta) if is_dropping else context.caller
        reply = await upstream.send(context.route, again, caller, dialect=request.dialect, stream=request.stream)
        if reply.status < REFUSED and is_binding:
            self._guard.note_check(context.route, context.caller)
        if reply.status < REFUSED:
            self.warning = NOTICE if is_binding else INVALID
        return reply

    def bindings(self, reply: Reply) -> bytes:
        """Return what is to be stored of a turn's thinking; nothing if all is bound to the client's own bytes."""
        pairs = dict(self._refused)
        is_bound = self._checks is not False and self._sent_body is not None
        key = self._form.key_of(reply.message.raw) if is_bound and reply.message is not None else b""
        if key:
            pairs[key] = self._prefixes.get(key) or self._prefix_sent()[0]
        return b"".join([key + prefix for key, prefix in pairs.items()])

    def sent_digests(self) -> bytes:
        """Return the digests of the body that was sent last, for the summary that will stand for it."""
        prefix = self._prefix_of(self._sent_body or self._context.request.body)
        return b"".join([prefix.head, *prefix.digests[:MOST_STOOD_FOR]])

    async def _examined(self, body: bytes, refused: int | None = None) -> tuple[bytes, bool]:
        """Return a body without invalid thinking, and whether the upstream is told to drop some itself.

        :param refused: where the upstream refused thinking; from there on, thinking of unknown prefixes goes, too
        """
        if len(body) > LARGE_BYTES:
            return await asyncio.to_thread(self._without_invalid, body, refused)
        return self._without_invalid(body, refused)

    def _without_invalid(self, body: bytes, refused: int | None) -> tuple[bytes, bool]:
        """Leave out the thinking of every answer that stands behind another prefix than it was made behind."""
        form, earlier = self._form, self._prefix_sent() if self._sent_body is not None and refused is None else None
        fields, own = form.members(body), self._context.request.fields
        elements, own_elements = form.elements(fields), form.elements(own)
        is_own = all(fields.get(name) == own.get(name) for name in form.head)
        prefix, demanded, is_dropping = _Prefix(form, fields, self._native), form.demanded(fields, elements), False
        own_digests = self._own_digests() if self._native is not None else frozenset[bytes]()
        for place, element in enumerate(elements):
            piece = element
            is_own = is_own and (refused is None or place < refused)
            if key := form.key_of(element):
                if earlier == (prefix.digest, place):
                    self._prefixes.setdefault(key, prefix.digest)  # of an earlier round of this request
                bound = self._prefixes.get(key)
                is_before = refused is None or place < refused
                is_behind_own = is_own or (is_before and not own_digests.isdisjoint(prefix.digests[1:]))
                if not self._is_valid(bound, prefix.digests, is_own=is_behind_own, is_before=is_before):
                    is_dropping = is_dropping or place >= demanded
                    piece = element if place >= demanded else form.without(element)
                    if refused is not None and bound is None:
                        self._refused[key] = NOWHERE
            if is_own:
                is_own = place < len(own_elements) and _are_same(form, piece, own_elements[place])
            prefix.add(piece)
        self._bound = (prefix.digest, len(elements))
        if prefix.elements != elements:
            body = form.joined(form.dropping(fields) if is_dropping else fields, prefix.elements)
        elif is_dropping:
            body = form.joined(form.dropping(fields), elements)
        self._sent_body = None if is_own and len(elements) == len(own_elements) else body
        return body, is_dropping

    def _is_valid(self, bound: bytes | None, prefixes: Sequence[bytes], *, is_own: bool, is_before: bool) -> bool:
        """Return whether thinking may go out.

        :param bound: the prefix that is stored of it
        :param prefixes: the prefix that it stands behind, and those that a provider's summary stands for
        :param is_own: whether it stands behind the client's own bytes
        :param is_before: whether it stands before all that was refused
        """
        if not self._checks:
            return bound != NOWHERE and is_before
        return is_own if bound is None else bound in prefixes

    def _prefix_sent(self) -> tuple[bytes, int]:
        """Return the digest of the body that was sent last, and the number of its elements."""
        if self._bound is None:
            prefix = self._prefix_of(self._sent_body or b"{}")
            self._bound = (prefix.digest, len(prefix.elements))
        return self._bound

    def _prefix_of(self, body: bytes) -> _Prefix:
        fields = self._form.members(body)
        prefix = _Prefix(self._form, fields, self._native)
        for element in self._form.elements(fields):
            prefix.add(element)
        return prefix

    def _own_digests(self) -> frozenset[bytes]:
        """Return the digests of all beginnings of the client's own request."""
        own = self._context.request.fields
        prefix = _Prefix(self._form, own)
        digests = [prefix.digest]
        for element in self._form.elements(own):
            prefix.add(element)
            digests.append(prefix.digest)
        return frozenset(digests)


class _Prefix:
    """What stands before an element: its state is a chain of digests over what each part means.

    :param native: the summary that may begin the messages, if the provider wrote it
    """

    def __init__(self, form: ThinkingFormat, fields: Mapping[str, bytes], native: NativeForm | None = None) -> None:
        self._form = form
        self.head = _chained(b"", *[form.meaning(fields.get(name) or b"null") for name in form.head])
        """The digest of the members beside the messages."""
        self.digests = [self.head]
        """The digest of everything so far, then those of all that the provider's summary stands for."""
        self.elements: list[bytes] = []
        stood_for = _parts_of(native.stands_for) if native is not None else []
        self._native = native.raws[0] if native is not None and stood_for[:1] == [self.head] else b""
        self._stood_for = stood_for[1:]

    @property
    def digest(self) -> bytes:
        """Return the digest of everything so far."""
        return self.digests[0]

    def add(self, element: bytes) -> None:
        """Add an element as it is forwarded."""
        meaning = self._form.meaning(element)
        self.digests = [_chained(digest, meaning) for digest in self.digests]
        if self._native and not self.elements and _are_same(self._form, element, self._native):
            self.digests += self._stood_for
        self.elements.append(element)


def _chained(digest: bytes, *meanings: bytes) -> bytes:
    """Return the digest of a longer prefix: from the digest of a shorter one, and what follows that."""
    return sized_digest(digest + b"".join(meanings), KEY_BYTES)


def _place(route: Route) -> tuple[str, str]:
    return route.base_url, route.upstream_model


def with_beta(caller: Caller, beta: bytes) -> Caller:
    """Return a caller whose request also names a beta; one header line may name several."""
    lines = [(name, text + b"," + beta if name == _BETA else text) for name, text in caller.headers]
    if not any(name == _BETA for name, _ in lines):
        lines.append((_BETA, beta))
    return replace(caller, headers=tuple(lines))


def without_thinking(form: ThinkingFormat, body: bytes) -> bytes:
    """Return a body without any thinking."""
    fields = form.members(body)
    return form.joined(
        fields,
        [form.without(element) if form.key_of(element) else element for element in form.elements(fields)],
    )


def _are_same(form: ThinkingFormat, element: bytes, second: bytes) -> bool:
    return element == second or form.meaning(element) == form.meaning(second)


def pairs_of(bindings: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the answers and prefixes of stored bindings, oldest first."""
    parts = _parts_of(bindings)
    return list(zip(parts[::2], parts[1::2], strict=False))


def _parts_of(digests: bytes) -> list[bytes]:
    return [digests[at : at + KEY_BYTES] for at in range(0, len(digests) - KEY_BYTES + 1, KEY_BYTES)]
