"""Endings: how an exchange ended. The reply so far decides, and whether its turn is stored.

The relay asks when a reply is over, and gives the ending to the endpoint, which sends it to the client.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.reply import EMPTY_REPLY, Reply
from tidemark.core.errors import StoreUnavailable, TurnNotStored, UpstreamBroken
from tidemark.pipeline.values import Ending, PendingTurn

_NOT_STORED = (
    "The model answered, and the conversation store could not keep the turn, so the stored history goes on without it. "
    "Send the message again."
)
_NOT_READ = "The upstream's answer cannot be read, so it cannot be kept in the stored history. Send the message again."


def whole_ending(reply: Reply | None) -> Ending:
    """Return the ending of a reply that was no stream and came in full.

    :param reply: None if the bytes cannot be read
    """
    return Ending("complete" if reply is None or reply.complete else "incomplete", reply or EMPTY_REPLY)


def stream_ending(reply: Reply | None, broken: UpstreamBroken | None) -> Ending:
    """Return the ending of a stream. Its content decides or, if that cannot be read, how its connection ended."""
    if reply is None:
        return Ending("incomplete" if broken else "complete", error=broken)
    if reply.complete:  # if the connection broke, only its own end is missing
        return Ending("complete", reply)
    cut = broken or UpstreamBroken("The upstream ended its answer without a finish_reason.")
    return Ending("incomplete", reply, None if reply.error is not None else cut)


def unreadable_ending() -> Ending:
    """Return the ending of a turn of stored history whose reply can be carried and not be stored."""
    return Ending("error", error=TurnNotStored(_NOT_READ), stored=False)


def with_storage(ending: Ending, turn: PendingTurn, reply: Reply | None, *, stored: bool) -> Ending:
    """Return the ending of a turn that is stored or not; an error if the client relies on the store."""
    if stored and reply is not None:
        return ending
    if turn.must_be_stored and ending.error is None and ending.outcome == "complete":
        error = TurnNotStored(_NOT_READ if reply is None else _NOT_STORED)
        error.retry_after = 0.0 if reply is None else StoreUnavailable.retry_after
        return replace(ending, outcome="error", error=error, stored=False)
    return replace(ending, stored=stored)
