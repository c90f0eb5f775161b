"""The form in which the log of requests has one request: times, numbers and names, and never a message.

``features/request_log`` writes and reads it, and ``features/tenants`` exports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tidemark.core.bill import NANO
from tidemark.store.codec import Codec, unreadable

PLACE = "requests"
"""What the requests of an entry are sealed for, before their owner."""
Kind = Literal[
    "as_is",
    "reused",
    "compacted",
    "forced",
    "bypassed",
    "no_summary",
    "own",
    "carried",
    "refused",
    "provider_error",
    "failed",
    "cut_short",
    "left",
]
"""What became of a request, in one word: of its action if it was answered, else of its outcome."""
_OUTCOMES: dict[str, Kind] = {
    "rejected": "refused",
    "refused": "provider_error",
    "error": "failed",
    "incomplete": "cut_short",
    "disconnected": "left",
}
_ACTIONS: dict[str, Kind] = {
    "none": "as_is",
    "reused": "reused",
    "compacted": "compacted",
    "forced": "forced",
    "bypassed": "bypassed",
    "failed": "no_summary",
}


class RequestFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The facts of one request. A new one goes to the end, with a default: older entries have none."""

    at: float
    """Unix time of its end, seconds."""
    path: str
    """The path that it came to; of one that is only carried, the beginning."""
    status: int
    outcome: str
    model: str
    program: str
    """The program that sent it, as it names itself."""
    tenant: str
    """The name of the tenant by its key; empty without ``auth.mode: keys``."""
    seconds: float
    first_byte: float | None
    action: str
    """Empty if the request ended before its conversation was identified."""
    before: int
    after: int
    cached: int | None
    """Input from the provider's prompt cache, by its own count."""
    nano: int | None
    """What it cost, in billionths of a dollar; None without a price."""
    warning: str
    code: str
    summarized: int
    """How many messages a summary stands for."""
    changes: int
    """What else was changed of the forwarded form, as ``CHANGES`` and ``MOVED``; no later look can show it."""
    conversation: str
    """Empty for none, and if nothing of the request is stored."""
    position: int
    """The position of its newest message in the conversation."""
    newest: bytes
    """The beginning of that message's id."""
    count: int = 1
    """How many alike were refused, the last of which this is."""

    @property
    def kind(self) -> Kind:
        """Return what became of the request."""
        unusual = _OUTCOMES.get(self.outcome)
        if unusual is not None:
            return unusual
        if not self.action:
            return "carried"
        return "own" if not self.after else _ACTIONS.get(self.action, "as_is")

    @property
    def usd(self) -> float | None:
        return None if self.nano is None else self.nano / NANO


RECALLED, SHORTENED, CLIPPED, MOVED = 1, 2, 4, 8
CHANGES = {
    RECALLED: "earlier messages were put back",
    SHORTENED: "tool results were written shorter",
    CLIPPED: "tool results were clipped or masked",
}
"""By bit: what a forwarded request had beside its summary. ``MOVED`` is where that stood."""
_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(list[RequestFacts]).decode


def pack_requests(codec: Codec, owner: str, requests: Sequence[RequestFacts]) -> bytes:
    """Return the bytes to store.

    :raises EncryptionKeyLost: the owner's key cannot be had
    """
    return codec.seal(_PACK(requests), owner, PLACE, owner)


def unpack_requests(codec: Codec, owner: str, packed: bytes) -> Sequence[RequestFacts]:
    """Return the requests of an entry.

    :raises RecordUnreadable: its bytes have changed, or another version wrote it
    :raises EncryptionKeyLost: the owner's key cannot be had
    """
    try:
        return _UNPACK(codec.open(packed, PLACE, owner))
    except msgspec.MsgspecError as error:
        raise unreadable(str(error)) from error
