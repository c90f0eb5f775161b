"""Says what is stored of a response that its client may ask for again.

The step ``send`` begins the record (``sending.py``), and the relay completes it with the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import ContinuedRequest, ModelRequest
from tidemark.core.conversation.responses import ResponseFormat, ResponseRecord
from tidemark.core.ports import Upstream
from tidemark.pipeline.shared_accounts import account_of
from tidemark.pipeline.values import KeepResponse, PendingTurn, RequestContext

IN_BACKGROUND = (b'"queued"', b'"in_progress"')
"""States of a response that its provider makes in the background."""


def response_keeping(context: RequestContext, upstream: Upstream) -> KeepResponse | None:
    """Return what adds a request's response to the record of its turn; None if it is not to be stored."""
    request = context.request
    responses = request.dialect.responses
    if responses is None or not responses.is_kept(request.fields):
        return None
    route = context.route
    account = account_of(upstream, route)
    if account and upstream.keeps_responses(route, context.caller) is False:
        account = ""

    def keep(record: TurnRecord, reply: Reply) -> TurnRecord:
        return _with_response(record, reply, request, responses, account)

    return keep


def _with_response(
    record: TurnRecord, reply: Reply, request: ModelRequest, responses: ResponseFormat, account: str
) -> TurnRecord:
    """Return a turn's record with that of its response, if the reply is one that can be asked for again.

    :param account: the one that has the response, if tenants share it
    """
    answered = responses.response_of(reply.original) if reply.original else None
    if answered is None:
        return record
    identifier, head = answered
    background = head.get("status") in IN_BACKGROUND and head.get("background") == b"true"
    if not (background or (reply.complete and reply.message is not None)):
        return record
    items = () if background or reply.message is None else responses.items_of(reply.message.raw)
    continuation = request.continuation or ContinuedRequest()
    response = ResponseRecord(
        id=identifier,
        message_count=len(record.chain),
        model=record.model,
        created_at=record.created_at,
        tenant=record.tenant,
        tip=record.chain.tip,
        systems=_systems(request, record),
        earlier_count=continuation.earlier_count,
        earlier_systems=continuation.earlier_systems,
        head=head,
        items=[item for item, _ in items],
        upstream_has=continuation.upstream_has,
        background=background,
        account=account,
    )
    return record.with_response(response)


def _systems(request: ModelRequest, record: TurnRecord) -> list[tuple[int, bytes]]:
    """Return how many other messages stand before each system message, and the digest that the store has it by."""
    systems: list[tuple[int, bytes]] = []
    left_out = record.left_out_count
    if left_out + len(record.messages) > len(record.chain):
        for place, message in enumerate(request.messages):
            if message.is_system:
                before = place - len(systems)
                systems.append((before and left_out + before, digest_of(message.raw)))
    return systems


def learning_of_upstream(
    turn: PendingTurn, responses: ResponseFormat, earlier: str, note: Callable[[bool], None]
) -> PendingTurn:
    """Return a turn that also notes whether its upstream has looked up an earlier response.

    :param note: takes whether the response repeats the earlier one's id
    """
    inner = turn.learn

    async def learn(reply: Reply) -> None:
        answered = responses.response_of(reply.original) if reply.original else None
        note(answered is not None and responses.repeats_continuation(answered[1], earlier))
        if inner is not None:
            await inner(reply)

    return replace(turn, learn=learn)
