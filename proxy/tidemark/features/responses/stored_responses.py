"""Stored responses, read and deleted by their ids: what ``/v1/responses/{id}`` answers.

Everything is read in the owner's own records, so the id of somebody else is unknown. If the upstream makes a response
in the background, only the upstream can show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import Dialect
from tidemark.core.conversation.responses import OUTPUT, ResponseFormat, ResponseRecord
from tidemark.core.errors import ModelNotFound, UpstreamError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Route, Upstream, UpstreamReply
from tidemark.features.responses.background_responses import BackgroundResponses
from tidemark.pipeline.earlier_messages import EarlierMessages
from tidemark.pipeline.plain_replies import UNSERVED, decode_whole, read_whole
from tidemark.pipeline.shared_accounts import SharedAccounts, account_of, names_of_path, texts_of_query
from tidemark.pipeline.values import BufferedReply
from tidemark.store.responses import RedisResponses

OK, REFUSED = 200, 400
_KEEPS_NONE = (400, *UNSERVED)
"""Statuses of an upstream that has nothing to delete. A server that keeps no responses may call the id a bad one."""


@frozen
class StoredResponses:
    """Reads and deletes; it holds no state."""

    upstream: Upstream
    responses: RedisResponses
    earlier: EarlierMessages
    dialect: Dialect
    format: ResponseFormat
    """That of the dialect."""
    background: BackgroundResponses
    accounts: SharedAccounts

    async def find(self, identifier: str, caller: Caller) -> ResponseRecord | None:
        """Return the caller's response with this id; None if there is none, or its conversation is gone.

        :raises StoreUnavailable: the store did not answer in time
        """
        record = await self.responses.find(owner_of(caller.fingerprint), identifier)
        return record if record is not None and record.id == identifier else None

    async def members(self, record: ResponseRecord) -> Mapping[str, bytes] | None:
        """Return the raw members of a response object, in order; None if its output is gone."""
        stored = await self.earlier.output(record, self.dialect)
        if not stored:
            return None
        output = self.format.output_of(stored, record.items)
        head = (await self.responses.with_head(record)).head
        return {name: b"[" + output + b"]" if name == OUTPUT else raw for name, raw in head.items()}

    async def poll(self, record: ResponseRecord, path: str, caller: Caller) -> UpstreamReply | None:
        """Ask the upstream for a response that it makes in the background; a finished one is stored with its turn.

        :returns: None if the upstream keeps no responses
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        reply = await self.ask_upstream(record, "GET", path, caller)
        if reply is None or reply.status != OK or _is_stream(reply):
            return reply
        body = await read_whole(reply)
        plain = decode_whole(reply.headers, body)
        if plain is not None:
            route = await self._route_of(record)
            account = "" if route is None else account_of(self.upstream, route)
            await self.background.record(replace(record, account=account), plain, caller)
        return BufferedReply(reply.status, reply.headers, body)

    async def input_items(self, record: ResponseRecord) -> Sequence[bytes]:
        """Return the items of the request that a response answered, oldest first; none of earlier requests."""
        messages = await self.earlier.own_input(record, self.dialect)
        return [raw for message in messages for _, raw in self.format.items_of(message)]

    async def forget(self, record: ResponseRecord, caller: Caller, path: str) -> UpstreamReply | None:
        """Delete a response, also at the upstream that may keep it: at each that ``ask_upstream`` would ask.

        :param path: of the response, below the base URL
        :returns: the upstream's refusal, after which nothing is deleted; None if the response is gone
        :raises UpstreamUnreachable, UpstreamTimedOut: the upstream did not answer, and nothing was deleted
        """
        route = await self._route_of(record)
        in_background = record.background or record.head.get("background") == b"true"
        if route is not None and (in_background or self.upstream.keeps_responses(route, caller) is not False):
            reply = await self.upstream.forward(route, "DELETE", path, b"", caller)
            if reply.status >= REFUSED and reply.status not in _KEEPS_NONE:
                return reply
            await reply.close()
        await self.responses.forget(owner_of(caller.fingerprint), record)
        return None

    async def ask_upstream(
        self, record: ResponseRecord | None, method: str, path: str, caller: Caller, model: str = ""
    ) -> UpstreamReply | None:
        """Ask the upstream that may keep a response; None if there is none that may tell this caller of it.

        :param record: None for a response that Tidemark does not know
        :param model: names the upstream of such a response; without one, the only upstream is asked
        :raises ModelNotFound: nobody serves ``model``
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        if record is not None:
            route = await self._route_of(record)
        else:
            route = await self.upstream.resolve(model) if model else self.upstream.sole_route()
        keeps = None if route is None else self.upstream.keeps_responses(route, caller)
        if route is None or keeps is False:
            return None
        names = names_of_path(path) if record is None else ()
        if await self.accounts.unreachable(route, caller, names, texts_of_query(path)):
            return None
        reply = await self.upstream.forward(route, method, path, b"", caller)
        if reply.status not in UNSERVED or keeps:
            return reply
        try:
            body = await read_whole(reply)
        except UpstreamError:
            return None
        is_worded = (
            b'"invalid_request_error"' in body and b"esponse" in body
        )  # OpenAI's own words for a missing response
        return BufferedReply(reply.status, reply.headers, body) if is_worded else None

    async def _route_of(self, record: ResponseRecord) -> Route | None:
        try:
            return await self.upstream.resolve(record.model)
        except ModelNotFound:
            return None


def _is_stream(reply: UpstreamReply) -> bool:
    return any(name == b"content-type" and b"event-stream" in value for name, value in reply.headers)
