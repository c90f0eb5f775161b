"""Keeps what tenants make on carried paths apart, if they share a provider's account: files, batches, vector stores.

The endpoint that carries requests asks it before it sends one, and shows it the answer to one that may have made
something. Who made what is stored by id, without content. ``pipeline/shared_accounts.py`` has the rule.
Source: OpenAI API reference, and Anthropic's ("Message Batches", "Files").
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from tidemark.core.errors import InvalidRequest, ObjectNotFound, StoreError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Route, Upload, UpstreamReply
from tidemark.dialects.sse import EVENTS, WholeEvents, payload_of
from tidemark.pipeline.plain_replies import DecodedReply, are_known, codings_of, decode_whole, is_event_stream
from tidemark.pipeline.shared_accounts import (
    MENTIONED,
    PROVIDERS_ID,
    SharedAccounts,
    Standing,
    account_of,
    is_word,
    names_of_path,
    steps_of,
    texts_of_query,
    unescaped,
)
from tidemark.pipeline.values import BufferedReply

MODEL_CALLS = frozenset(
    [f"/audio/{task}" for task in ("speech", "transcriptions", "translations")]
    + [f"/images/{task}" for task in ("generations", "variations")]
    + ["/classify", "/completions", "/embeddings", "/fim/completions", "/moderations", "/pooling", "/rerank", "/score"]
)
"""Paths of POST requests that make nothing which has an id of its own; nothing is looked up for them."""
_GOOGLES_CALL = re.compile(r"/models/(?:[\w.@-]+/)?[\w.@-]+:[A-Za-z]+", re.ASCII)
"""The path of a call of Google's models: ``/models/x:generateContent``; its body names files by address."""
IMAGE_EDITS = "/images/edits"
"""Makes nothing that has an id, and its JSON may name files (OpenAI API reference, "Images")."""
MODEL_BATCHES = "/messages/batches"
"""Takes many requests to models, each with an id of the client's: 100,000 at most (Anthropic, "Message Batches")."""
MOST_REFERENCES = 16_384
"""Different ids that one body may name; each is looked up."""
MOST_ANSWER_BYTES = 1_048_576
"""Longer answers name nothing new: the answer to a creation is one object."""
_STEP_BYTES, _OVERLAP_BYTES = 65_536, 2048
"""How much of a body is searched at once, and how much twice: the longest id, with every character escaped."""
_QUOTED = re.compile(rb'"([A-Za-z0-9][A-Za-z0-9._:-]{3,255})"')
_MADE_LATER: Mapping[str, Sequence[str]] = {
    "batches": ("output_file_id", "error_file_id"),
    "fine_tuning": ("result_files", "fine_tuned_model"),
    "uploads": ("file",),
    "videos": ("id",),
}
"""What answers about an object name that was made for its owner, by the first part of their paths."""


@frozen
class CarriedObjects:
    """Checks and claims; it holds no state."""

    accounts: SharedAccounts

    def are_shared(self, route: Route) -> bool:
        """Return whether tenants share the account that a route leads to."""
        return bool(account_of(self.accounts.upstream, route))

    async def check(self, route: Route, method: str, path: str, body: bytes | Upload, caller: Caller) -> Sequence[str]:
        """Refuse a request for what is another tenant's.

        :param path: below the base URL, with its query
        :returns: the members of an answer that name what the caller has made by this request
        :raises ObjectNotFound: it names something of another tenant, or something that nobody may reach
        :raises StoreUnavailable: nobody knows at present
        """
        place = path.partition("?")[0]
        is_call = method == "POST" and (place in MODEL_CALLS or _GOOGLES_CALL.fullmatch(place))
        if is_call or not self.are_shared(route):
            return ()
        names = names_of_path(path)
        references = [*texts_of_query(path), *(await _references(body, place) if isinstance(body, bytes) else ())]
        standing = await self.accounts.standing(route, caller, [*names, *references])
        if standing.foreign:
            raise self._not_found(standing.foreign[0])
        is_own = any(name in standing.own for name in names)
        is_creation = method == "POST" and not names
        if not self.accounts.is_open:
            self._check_closed(names, standing, path, is_allowed=is_own or is_creation)
        family = next(iter(steps_of(path)), "")
        if is_creation and place != IMAGE_EDITS:
            return ("id", "thread_id") if family == "threads" else ("id",)
        return _MADE_LATER.get(family, ()) if is_own else ()

    async def claim(self, route: Route, caller: Caller, reply: UpstreamReply, members: Sequence[str]) -> UpstreamReply:
        """Store whose the things are that an answer names, and return the answer with all its bytes.

        Without a store the answer goes on, and nobody is known to have made them.

        :param members: those that ``check`` returned
        :raises UpstreamError: the answer broke off
        """
        if not members or not 200 <= reply.status < 300:
            return reply
        if is_event_stream(reply.headers, is_requested=False):
            return await self._claim_first(route, caller, reply, members)
        if not _is_json(reply):
            return reply
        pieces, pending, size = [], reply.body(), 0
        async for piece in pending:
            pieces.append(piece)
            size += len(piece)
            if size > MOST_ANSWER_BYTES:
                return _BegunReply(reply, pieces, pending)
        data = b"".join(pieces)
        await self._claim_names(route, caller, _read_ids(decode_whole(reply.headers, data) or b"", members))
        return BufferedReply(reply.status, reply.headers, data)

    async def _claim_first(
        self, route: Route, caller: Caller, reply: UpstreamReply, members: Sequence[str]
    ) -> UpstreamReply:
        """Do the same with a stream, whose first event names what was made (``thread.created``). No other waits.

        A stream that comes compressed is returned decoded.
        """
        codings = codings_of(reply.headers)
        if codings and are_known(codings):
            reply = DecodedReply(reply, codings)
        pieces, pending, events, size = [], reply.body(), WholeEvents(), 0
        async for piece in pending:
            pieces.append(piece)
            size += len(piece)
            payload = next(filter(None, map(payload_of, EVENTS.findall(events.feed(piece)))), b"")
            if payload:
                await self._claim_names(route, caller, _read_ids(payload, members))
            if payload or size > MOST_ANSWER_BYTES:
                break
        return _BegunReply(reply, pieces, pending)

    async def _claim_names(self, route: Route, caller: Caller, names: Sequence[str]) -> None:
        with suppress(StoreError):
            await self.accounts.claim(route, caller, names)

    def _check_closed(self, names: Sequence[str], standing: Standing, path: str, *, is_allowed: bool) -> None:
        """Refuse what Tidemark did not see made, and lists, if the account is not open to everybody.

        :raises ObjectNotFound: it is one of these
        """
        if not is_allowed:
            raise self._not_found(names[0] if names else "/v1" + path.partition("?")[0])
        for name in standing.unseen:
            if name not in names and PROVIDERS_ID.fullmatch(name):
                raise self._not_found(name)

    def _not_found(self, name: str) -> ObjectNotFound:
        """Return one error for what is another tenant's and for what nobody may reach (promise 8)."""
        return ObjectNotFound(name, is_open=self.accounts.is_open)


async def _references(body: bytes, place: str) -> Sequence[str]:
    """Return all texts of a JSON body that may be ids.

    It is searched and not parsed, so that no form of writing an id hides it from this and not from the upstream.

    :param place: the path without its query
    :raises InvalidRequest: there are too many
    """
    if body.startswith(b"--"):
        return ()  # a form, whose files may have any texts; JSON never begins so
    body = body.replace(b"\0", b"")  # some servers take UTF-16, too
    pattern = MENTIONED if place in (MODEL_BATCHES, IMAGE_EDITS) else _QUOTED
    names: set[str] = set()
    for start in range(0, len(body), _STEP_BYTES):
        if start:
            await asyncio.sleep(0)
        piece = body[start : start + _STEP_BYTES + _OVERLAP_BYTES]
        texts = [raw.decode() for raw in pattern.findall(unescaped(piece))]
        names.update(text for text in texts if not (text.isalpha() or is_word(text)))
        if len(names) > MOST_REFERENCES:
            raise InvalidRequest(
                f"The body has more than {MOST_REFERENCES} different texts that may be ids, and each is looked up. "
                "Send it in several requests.",
                code="too_many_references",
            )
    return sorted(names)


def _read_ids(data: bytes, members: Sequence[str]) -> list[str]:
    """Return the ids that an answer has in some members: as texts, as lists of texts, or of objects."""
    try:
        answer = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if not isinstance(answer, dict):
        return []
    names: list[str] = []
    for member in members:
        value = answer.get(member)
        for item in value if isinstance(value, list) else [value]:
            name = item.get("id") if isinstance(item, dict) else item
            if isinstance(name, str) and name:
                names.append(name)
    return names


def _is_json(reply: UpstreamReply) -> bool:
    return any(name == b"content-type" and b"json" in value and b"jsonl" not in value for name, value in reply.headers)


class _BegunReply:
    """An ``UpstreamReply`` whose first pieces were read already.

    :param pieces: those, oldest first
    :param pending: yields the others
    """

    def __init__(self, reply: UpstreamReply, pieces: Sequence[bytes], pending: AsyncIterator[bytes]) -> None:
        self.status, self.headers = reply.status, reply.headers
        self._reply, self._pieces, self._pending = reply, pieces, pending

    async def body(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        async for piece in self._pending:
            yield piece

    async def close(self) -> None:
        await self._reply.close()
