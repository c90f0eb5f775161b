"""Names the keys under which the store holds everything.

Every adapter uses them; the scripts build the keys of a family from its prefix. All keys of a family carry one hash
tag, so on a cluster they are in one slot and one script may touch them all. ``{F}`` is the family, 32 hex characters;
it comes from the chain, whose seed holds the tenant, so two tenants have no key in common (promise 8).

=======================  =======  ====================================================================
key                      type     content
=======================  =======  ====================================================================
``tm:{F}:c:OWN``         hash     the conversation's record; ``base``, ``count`` and ``parent`` place it
``tm:{F}:h:OWN``         string   the chain hashes of its own messages, 16 bytes each
``tm:{F}:m:OWN``         list     its own messages (``Codec.pack_message``), one for each hash
``tm:{F}:t:OWN``         list     one entry for each turn (``Codec.pack_turn``)
``tm:{F}:y:OWN``         hash     every distinct system message: digest -> the client's bytes (``Codec.seal``)
``tm:{F}:r:OWN``         list     references to the summaries that apply (``references.pack_reference``)
``tm:{F}:a:OWN``         string   an id that a client got but that has no turns -> the id that has them
``tm:{F}:e:OWN``         set      the ids that lead to this conversation so
``tm:{F}:n:HASH``        string   a chain hash at the end of a request or reply -> the conversation that has it
``tm:{F}:s:RECIPE:HASH`` string   a summary of the prefix with that hash (``Codec.pack_summary``); if it absorbed
                                  system messages, the SHA-1 of their digests stands behind ``RECIPE``
``tm:{F}:w:RECIPE:HASH`` string   the same for a prepared summary that is not in use yet
``tm:{F}:q:OWN``         list     references to prepared summaries
``tm:{F}:u:RECIPE:HASH`` string   when a person replaced the summary of that prefix; for as long as one may be made
``tm:{F}:z:OWN``         list     summaries that were replaced, oldest first: the earlier versions of their prefixes
``tm:{F}:j:OWN``         list     previews of regenerated summaries, newest first (``previews.py``); for half an hour
``tm:{F}:p:OWN``         hash     what its turns cost, and what is known of the newest one (``bills.py``)
``tm:{F}:k:OWN``         string   the answer of its newest turn with an ``Idempotency-Key``, for ten minutes
                                  (``answers.py``)
``tm:{F}:l:NAME``        string   a lease: its number and its purpose; ``NAME`` is ``OWN`` for a preparation,
                                  ``turn:OWN`` for a turn of stored history
``tm:{F}:f``             string   the number of the last lease
``tm:{F}:b:OWN``         set      the conversations that forked from it
``tm:{F}:d``             string   of a family that its client named: the conversation that the name leads to
``tm:{F}:o:OWN``         hash     response id -> its record (``responses.py``); digest -> a long member of responses
``tm:{F}:g:HASH``        list     the newest 16 conversations that forked after the prefix with that hash
``tm:{F}:v:OWN``         hash     position -> the stored message that the client repeats in other words since
``tm:{F}:x:OWN``         string   when it was forgotten; for ten minutes, so that no turn under way restores it
``tm:i:OWNER``           zset     a credential's conversations by time of last use; in a slot of its own
``tm:i:all``             zset     the conversations of all credentials, for the operator
``tm:d:{tm:i:...}``      zset     conversations that were deleted from that list, by time; for ten minutes
``tm:n:DIGEST``          string   digest of a client's name for a conversation and of its credential -> the id
``tm:o:DIGEST``          string   digest of a credential and of the id of a response or of an item of its output -> the
                                  conversation's id, then the response's
``tm:cv:DIGEST``         hash     digest of a credential and of the id of a conversation of the Conversations API -> its
                                  head, and its items by their numbers (``kept_conversations.py``)
``tm:ci:OWNER``          set      the ids of a credential's conversations of the Conversations API, to weigh them
``tm:own:DIGEST``        string   digest of an account that tenants share and of the id of what it has -> who made that
``tm:accounts``          hash     ``OWNER ACCOUNT`` -> when that credential last made something there (``owners.py``)
``tm:u:OWNER``           hash     bytes that a credential has stored and imported; whether an upstream accepted it
``tm:uw:OWNER``          string   a mark that its conversations were weighed a moment ago
``tm:up:DAY``            string   bytes that credentials imported on a day before any upstream accepted them
``tm:{models}:v``        string   ``EPOCH:CHANGE``, the version of all settings of models; new after every change
``tm:{models}:s``        string   what the operator set for all models (``operator_settings.py``)
``tm:{models}:a``        hash     id of a key of the application -> its record, without the key (``features/keys``)
``tm:{models}:o``        hash     ``provider:model`` -> what the operator set (``models.py``)
``tm:{models}:r``        hash     ``provider:model`` -> what requests showed of it
``tm:{models}:t``        zset     ``provider:model`` by the time when requests showed it last
``tm:{models}:k``        hash     ``provider:model`` -> the newest calibration of any credential, for the operator
``tm:k:OWNER``           hash     model, upstream and tool set -> their calibration (``calibrations.py``)
``tm:w:OWNER``           hash     what overflows taught of models' windows (``lessons.py``)
``tm:{flush}:s``         stream   what left the context (``delivery/queue.py``), with a group for each consumer
``tm:{flush}:d``         stream   dead letters
``tm:{flush}:k:KEY``     string   the idempotency key of an entry that was added
``tm:{flush}:o``         hash     idempotency key -> a note of what is about to leave and was not added yet
``tm:{flush}:a:GROUP``   hash     id of an entry -> attempts to deliver it
``tm:{flush}:n``         hash     counts: bytes stored; entries delivered, dead and lost by consumer
``tm:{flush}:l``         string   the process that delivers now
``tm:{traffic}:m:MINUTE`` hash     figures of the requests of a minute (``features/traffic/store.py``)
``tm:{traffic}:q:NUMBER`` hash     the same for a quarter of an hour
``tm:{traffic}:h:HOUR``   hash     the same for an hour
``tm:{traffic}:*:*:m:MODEL`` hash  of one of these periods the figures of a model
``tm:{traffic}:*:*:t:OWNER`` hash  the same of a tenant
``tm:{traffic}:n:m``, ``:t`` zset  the models and the tenants that have such figures, by the minute of the newest
``tm:{traffic}:x:DIGEST`` string   digest of a tenant -> when it was erased; for ten minutes
``tm:{traffic}:b:WORKER`` string   the number of the last batch of figures that a worker added
``tm:{bill}:d:DAY``      hash     figure and model -> what the requests of a day cost (``features/bill/store.py``)
``tm:{bill}:b:WORKER``   string   the number of the last batch of figures that a worker added
``tm:{limits:OWNER}:r``   hash     second -> requests of a tenant that has a quota; with ``:KEY``, those of a key
``tm:{limits:OWNER}:c``   zset     its requests in progress, by the time when they count as ended
``tm:{limits:OWNER}:t``   hash     the day, and the tokens of that day
``tm:{event-posts}:*``            the same keys as of ``tm:{flush}``, for live events on their way to a webhook
``tm:{events}:s``        stream   the newest batches of live events (``features/live_events/store.py``), for ten minutes
``tm:{events}:l``        string   a mark that somebody listens to them
``tm:{events}:r``        hash     owner:id of a conversation -> the compaction of it that runs
``tm:{requests}:s``      stream   the log of requests (``features/request_log/store.py``); an entry is of one tenant
``tm:{requests}:n``      string   how many requests it has
``tm:{requests}:b:WORKER`` string  the number of the last batch of requests that a worker added
``tm:{requests}:x:DIGEST`` string  digest of a tenant -> when it was erased; for ten minutes
``tm:{audit}:s``         stream   the audit log (``audit_log.py``); an entry's id is its number
``tm:{audit}:h``         string   its head: number, signature of the newest entry, signature of both
``tm:aside:KEY``         any      what ``tidemark store check --repair`` moved aside (``upkeep_aside.lua``)
``tm:import:DIGEST``     string   how far the import of an exported store is (``upkeep/importing.py``); for a week
``tm:rotation``          string   the token of the ``tidemark store rotate`` that runs; for a minute after its last page
``tm:schema``            string   the number of the form in which the store holds everything (``schema.py``)
``tm:probe``             string   what a process writes to learn whether the store takes writes; for a minute
=======================  =======  ====================================================================

``OWN`` is the second part of a conversation's id, 16 hex characters; ``HASH`` and ``RECIPE`` are raw bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import split_id

CONVERSATION_KINDS = ("c", "h", "m", "t", "y", "r", "q", "z", "o", "v", "b", "e", "j", "p", "k")
"""The kinds of keys that end in ``OWN`` and are one conversation; the first is its record."""
PREFIX = "tm:"
"""The beginning of all keys."""
ASIDE = "tm:aside:"
"""The beginning of the keys of what was moved aside. The original key follows, in the same slot."""
IMPORT = "tm:import:"
"""The beginning of the keys that say how far an import is; a digest of the file's header follows."""
SCHEMA = "tm:schema"
"""Its value is the number of the store's schema."""
ACCOUNTS = "tm:accounts"
"""Which credentials made something in accounts that they share."""
ROTATION = "tm:rotation"
"""The lease of ``tidemark store rotate``."""
PROBE = "tm:probe"
"""Its value is empty; writing it shows whether the store takes writes."""


def family_prefix(family: str) -> str:
    """Return the beginning of all keys of a family; the braces are Redis Cluster's hash tag."""
    return f"tm:{{{family}}}"


def owner_index(owner: str) -> str:
    """Return the key of a credential's list of conversations."""
    return f"tm:i:{owner}"


def deleted_from(index: str) -> str:
    """Return the key of what was deleted from a list of conversations; in the slot of the list."""
    return f"tm:d:{{{index}}}"


def name(owner: str, text: str) -> str:
    """Return the key of a name that a credential's client gave a conversation; it holds a digest of the name."""
    return f"tm:n:{digest_of(owner.encode(), text.encode()).hex()}"


def response(owner: str, identifier: str) -> str:
    """Return the key that leads from an id of a response, or of an item of it, to its conversation."""
    encoded = identifier.encode(errors="surrogatepass")  # a client may send any text as an id
    return f"tm:o:{digest_of(owner.encode(), encoded).hex()}"


def kept_conversation(owner: str, identifier: str) -> str:
    """Return the key of a conversation of the Conversations API."""
    encoded = identifier.encode(errors="surrogatepass")  # a client may send any text as an id
    return f"tm:cv:{digest_of(owner.encode(), encoded).hex()}"


def kept_index(owner: str) -> str:
    """Return the key of the ids of a credential's conversations of the Conversations API."""
    return f"tm:ci:{owner}"


def owned(account: str, identifier: str) -> str:
    """Return the key of who made an object of a provider's account; ``lua/answered.lua`` knows its beginning."""
    encoded = identifier.encode(errors="surrogatepass")  # a client may send any text as an id
    return f"tm:own:{digest_of(account.encode(), encoded).hex()}"


def head(family: str) -> str:
    """Return the key of the conversation that a family's name leads to."""
    return f"{family_prefix(family)}:d"


def usage(owner: str) -> str:
    """Return the key of what a credential has stored."""
    return f"tm:u:{owner}"


def weighing(owner: str) -> str:
    """Return the key of the mark that a credential's conversations were weighed a moment ago."""
    return f"tm:uw:{owner}"


def unproven(day: int) -> str:
    """Return the key of what credentials imported on a day before any upstream accepted them.

    :param day: days since 1970
    """
    return f"tm:up:{day}"


def everybodys_index() -> str:
    """Return the key of the list of all conversations."""
    return "tm:i:all"


def lease(family: str, name: str) -> str:
    """Return the key of a lease."""
    return f"{family_prefix(family)}:l:{name}"


def summary(family: str, recipe: bytes, prefix: bytes, absorbed: Sequence[bytes] = (), *, waiting: bool) -> bytes:
    """Return the key of a summary of a prefix.

    :param absorbed: digests of the system messages that it absorbs
    """
    digests = b"".join(sorted(absorbed))
    variant = hashlib.sha1(digests, usedforsecurity=False).hexdigest().encode() if digests else b""
    return f"{family_prefix(family)}:{'w' if waiting else 's'}:".encode() + recipe + variant + b":" + prefix


MODELS = "tm:{models}"
"""The beginning of the keys of the registry of models: one slot, and no tenant's."""


def models_part(kind: str) -> str:
    """Return the key of a part of the registry."""
    return f"{MODELS}:{kind}"


FLUSHES = "tm:{flush}"
"""The beginning of the keys of the flush queue: one slot, so that one script may touch them all."""

EVENT_DELIVERIES = "tm:{event-posts}"
"""The beginning of the keys of the queue of live events for the webhook: one slot."""
EVENTS = "tm:{events}"
"""The beginning of the keys of live events: one slot."""
TRAFFIC = "tm:{traffic}"
"""The beginning of the keys of the figures of requests: one slot; some keys end with a tenant."""

BILL = "tm:{bill}"
"""The beginning of the keys of what all requests cost: one slot, and no tenant's."""


def quotas(owner: str) -> str:
    """Return the beginning of the keys of what a tenant has used of its quotas: one slot."""
    return f"tm:{{limits:{owner}}}"


REQUESTS = "tm:{requests}"
"""The beginning of the keys of the request log: one slot."""


def erased(prefix: str, owner: str) -> str:
    """Return the key of when a tenant was erased; ``request_log_add.lua`` and ``traffic_add.lua`` know its name."""
    return f"{prefix}:x:{hashlib.sha1(owner.encode(), usedforsecurity=False).hexdigest()}"


AUDIT = "tm:{audit}"
"""The beginning of the keys of the audit log: one slot, and no tenant's."""


def calibrations(owner: str) -> str:
    """Return the key of one credential's calibrations."""
    return f"tm:k:{owner}"


def lessons(owner: str) -> str:
    """Return the key of what overflows taught for one credential."""
    return f"tm:w:{owner}"


def _part(kind: str, conversation: str) -> str:
    family, own = split_id(conversation)
    return f"{family_prefix(family)}:{kind}:{own}"


message_list = partial(_part, "m")
hash_string = partial(_part, "h")
turn_list = partial(_part, "t")
version_list = partial(_part, "z")
preview_list = partial(_part, "j")
record_hash = partial(_part, "c")
newest_answer = partial(_part, "k")
answer_hash = partial(_part, "v")
system_hash = partial(_part, "y")
response_hash = partial(_part, "o")
"""Return the keys of parts of a conversation, given its id; the table above says what each has."""
