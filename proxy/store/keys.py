"""Names: where in Redis a conversation's parts are.

Used by the adapter and, through the prefix, by the scripts. All keys of a family carry one hash tag, so on a
cluster they live in one slot and one script may touch them all. ``{F}`` is the family, 32 hex characters; it
comes out of the chain, whose seed holds the tenant, so two tenants have no key in common (promise 8).

=======================  =======  ====================================================================
key                      type     holds
=======================  =======  ====================================================================
``tm:{F}:c:OWN``         hash     the conversation's record; ``base``, ``count`` and ``parent`` place it
``tm:{F}:h:OWN``         string   the chain hashes of its own messages, 16 bytes each
``tm:{F}:m:OWN``         list     its own messages (``codec.pack_message``), one for each hash
``tm:{F}:t:OWN``         list     one entry for each turn (``codec.pack_turn``)
``tm:{F}:y:OWN``         hash     every distinct system message: digest -> the client's bytes
``tm:{F}:r:OWN``         list     references to the summaries that apply (``codec.pack_reference``)
``tm:{F}:a:OWN``         string   an id that was told but not used -> the one that was
``tm:{F}:e:OWN``         set      those ids that lead to it
``tm:{F}:n:HASH``        string   a chain hash at the end of a request or reply -> who holds it
``tm:{F}:s:RECIPE:HASH`` string   a summary of the prefix with that hash (``codec.pack_summary``)
``tm:{F}:w:RECIPE:HASH`` string   the same of one that was prepared and waits for its use
``tm:{F}:q:OWN``         list     references to those that wait
``tm:{F}:l:NAME``        string   a lease: its number and what is done under it; ``NAME`` is ``OWN`` for a preparation,
                                  ``turn:OWN`` for a turn of stored history
``tm:{F}:f``             string   the number of the last lease
``tm:{F}:b:OWN``         set      the conversations that forked from it
``tm:{F}:d``             string   of a family that its client named: the conversation that its name leads to
``tm:{F}:x:OWN``         string   when it was forgotten; for ten minutes, so that no turn under way brings it back
``tm:i:OWNER``           zset     a credential's conversations by time of last use; in a slot of its own
``tm:n:DIGEST``          string   what a client calls a conversation, and by whose credential -> its id
``tm:i:all``             zset     everybody's, for the operator
``tm:{models}:v``        string   ``EPOCH:CHANGE``, the version of what is set of models; another one after every change
``tm:{models}:o``        hash     ``provider:model`` -> what a person set (``models.py``)
``tm:{models}:r``        hash     ``provider:model`` -> what was found of it
``tm:{models}:t``        zset     ``provider:model`` by the time when that was seen last
``tm:{models}:k``        hash     ``provider:model`` -> the newest calibration of anybody's, for the operator
``tm:k:OWNER``           hash     model, upstream and tool set -> their calibration (``calibrations.py``)
``tm:w:OWNER``           hash     what overflows taught of models' windows (``lessons.py``)
``tm:{flush}:s``         stream   what left the context (``flushes.py``), with a group for each consumer
``tm:{flush}:d``         stream   what a consumer did not take in the end
``tm:{flush}:k:KEY``     string   the idempotency key of an entry that was added
``tm:{flush}:o``         hash     idempotency key -> what is about to leave and was not added yet
``tm:{flush}:a:GROUP``   hash     id of an entry -> how often it was given to a consumer
``tm:{flush}:n``         hash     counts: bytes held; delivered, dead and lost by consumer
``tm:{flush}:l``         string   who delivers now
=======================  =======  ====================================================================

``OWN`` is the second part of a conversation's id, 16 hex characters; ``HASH`` and ``RECIPE`` are raw bytes.
"""

from __future__ import annotations

from proxy.core.conversation.messages import digest_of
from proxy.core.conversation.prefix import split_id


def family_prefix(family: str) -> str:
    """What all keys of a family begin with; the braces are Redis Cluster's hash tag."""
    return f"tm:{{{family}}}"


def tenant_index(owner: str) -> str:
    """The key of a credential's list of conversations."""
    return f"tm:i:{owner}"


def name(owner: str, said: str) -> str:
    """The key of what a credential's client calls a conversation; the name itself is not in it."""
    return f"tm:n:{digest_of(owner.encode(), said.encode()).hex()}"


def head(family: str) -> str:
    """The key of the conversation that a family's name leads to."""
    return f"{family_prefix(family)}:d"


def everybodys_index() -> str:
    """The key of the list of all conversations."""
    return "tm:i:all"


def lease(family: str, name: str) -> str:
    """The key of a lease."""
    return f"{family_prefix(family)}:l:{name}"


def summary(family: str, recipe: bytes, prefix: bytes, *, waiting: bool) -> bytes:
    """The key of a summary of a prefix."""
    return f"{family_prefix(family)}:{'w' if waiting else 's'}:".encode() + recipe + b":" + prefix


MODELS = "tm:{models}"
"""What the keys of the registry of models begin with: one slot, and no tenant's."""


def models_part(kind: str) -> str:
    """The key of a part of the registry."""
    return f"{MODELS}:{kind}"


FLUSHES = "tm:{flush}"
"""What the keys of the flush queue begin with: one slot, so that one script may touch them all."""


def flush_part(kind: str) -> str:
    """The key of a part of the flush queue."""
    return f"{FLUSHES}:{kind}"


def calibrations(owner: str) -> str:
    """The key of what was learned for one credential."""
    return f"tm:k:{owner}"


def lessons(owner: str) -> str:
    """The key of what overflows taught one credential."""
    return f"tm:w:{owner}"


def message_list(conversation: str) -> str:
    """The key of a conversation's own messages."""
    return _part("m", conversation)


def hash_string(conversation: str) -> str:
    """The key of the chain hashes of a conversation's own messages."""
    return _part("h", conversation)


def turn_list(conversation: str) -> str:
    """The key of a conversation's turns."""
    return _part("t", conversation)


def system_hash(conversation: str) -> str:
    """The key of a conversation's system messages."""
    return _part("y", conversation)


def _part(kind: str, conversation: str) -> str:
    family, own = split_id(conversation)
    return f"{family_prefix(family)}:{kind}:{own}"
