"""Defines the file's sections as frozen classes: each key has its default, its unit and the reason.

``settings.py`` composes them. A field's ``kind`` defines the values that its key accepts. Tests compare the
documentation and the shipped ``config/tidemark.yaml`` with these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tidemark.config import addresses, kinds
from tidemark.config.kinds import takes
from tidemark.config.masking import Address
from tidemark.config.policies import CompactionSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Section = TypeVar("Section", bound="DataclassInstance")
StatedKeys = Mapping[str, Any]
"""The checked keys of a section that a file states, by field name. A nested section is a value of this type too."""


Preset = Literal["library", "agent", "chat-app", "rule-based"]
"""The files of ``config/presets/``: each reproduces the numbers of one of the requirements' sources."""
Transport = Literal["own", "library"]
TransportLane = Literal["auto", "litellm"]
Compression = Literal["auto", "zstd", "none"]
EMBEDDED = Address("embedded")
_SEVERAL = ("redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
STORE_URL = addresses.address("redis", "rediss", *_SEVERAL, "unix", words=(EMBEDDED,), several=_SEVERAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The store of conversations and summaries."""

    url: Address = field(default=EMBEDDED, metadata=takes(STORE_URL))
    """``embedded``: Tidemark's own Valkey server with its data in ``data_dir``, with nothing to install. Otherwise
    Redis or Valkey, one server or a cluster."""
    ttl_days: float = field(default=30.0, metadata=takes(kinds.positive("days")))
    """A conversation that is not used for this long is deleted. 30: it outlasts a month's holiday, and then privacy
    wins."""
    max_age_days: float | None = field(default=None, metadata=takes(kinds.or_word("null", kinds.positive("days"))))
    """The longest life of a conversation after its first message. null: as long as it is used."""
    owner_days: float | None = field(default=365.0, metadata=takes(kinds.or_word("null", kinds.positive("days"))))
    """For how long after its last use it is known who made what a shared account has (``auth.shared_account``). 365:
    files stay at providers until they are deleted, and an entry has no content. null: for ever."""
    max_tenant_mb: int | None = field(
        default=1024, metadata=takes(kinds.or_word("null", kinds.whole("megabytes", least=1)))
    )
    """The most that one credential may store, in the store's memory. Half of ``max_mb``, so that no credential fills it
    alone."""
    compression: Compression = field(default="auto", metadata=takes(kinds.choice(Compression)))
    """Whether messages of 1 KB and more are compressed before they are stored. They take 40 to 90 % less memory, and
    storing one costs some 20 microseconds. auto: where every worker can read it, in new and embedded stores. zstd:
    everywhere; workers of versions before compression then leave the store alone. none: never."""
    max_mb: int | None = field(default=2048, metadata=takes(kinds.or_word("null", kinds.whole("megabytes", least=16))))
    """The memory of the embedded store, which has all its data in memory. 2048: some 20,000 long conversations, on a
    small machine."""
    wait_replicas: int = field(default=0, metadata=takes(kinds.whole("replicas", least=0, most=10)))
    """How many replicas must have a turn before it counts as stored (``WAIT``). 0: none is waited for, as most servers
    have none."""
    wait_seconds: float = field(default=0.5, metadata=takes(kinds.positive("seconds")))
    """How long they are waited for. 0.5: a replica answers within milliseconds, and the answer's last byte waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """One tenant's values in place of the section ``store``. It has no defaults: the section's values apply."""

    ttl_days: float = field(metadata=takes(kinds.positive("days")))
    max_age_days: float | None = field(metadata=takes(kinds.or_word("null", kinds.positive("days"))))
    """null: as long as it is used, also where ``store`` has a maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Conversations whose clients send new messages only (``X-Tidemark-History: stored``)."""

    on_conflict: Literal["reject", "wait"] = field(
        default="reject", metadata=takes(kinds.choice(Literal["reject", "wait"]))
    )
    """What happens to a request while another one of its conversation is being answered. ``reject``: 409, so that a
    client learns that it sent twice by mistake; ``wait``: one after the other."""
    wait_seconds: float = field(default=20.0, metadata=takes(kinds.positive("seconds")))
    """The longest that a request waits for the one before it; then it gets 409. 20: it ends before a stream's first
    keep-alive, which would fix its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The server's address and bounds."""

    host: str = field(default="127.0.0.1", metadata=takes(kinds.text()))
    """The interface. Loopback, because without a key of its own anyone who reaches the server may use it."""
    port: int = field(default=8787, metadata=takes(kinds.whole("", least=0, most=65535)))
    """The TCP port; 0 takes any free one."""
    workers: int = field(default=1, metadata=takes(kinds.whole("processes", least=1, most=256)))
    """The processes that share port and store. 1: enough for hundreds of streams, and simplest to watch."""
    max_body_mb: int = field(default=64, metadata=takes(kinds.whole("megabytes", least=1, most=4096)))
    """Larger requests are refused with 413. Bodies of tens of megabytes are normal where images are sent."""
    max_bodies_mb: int = field(default=256, metadata=takes(kinds.whole("megabytes", least=1)))
    """The bound of all bodies that a worker reads at one moment, never less than ``max_body_mb``. Beyond it the largest
    is refused with 503. 256: four of the largest."""
    max_spool_mb: int = field(default=1024, metadata=takes(kinds.whole("megabytes", least=1)))
    """How much of a form each request may keep in a temporary file until the form names its model. 1024: twice the
    largest file that OpenAI takes. Beyond it the request is refused with 413."""
    max_file_first_mb: int = field(default=64, metadata=takes(kinds.whole("megabytes", least=1)))
    """The same until a form's first field that is no file. 64: more than the longest sound or picture that OpenAI takes
    with a model."""
    max_spools_mb: int = field(default=1024, metadata=takes(kinds.whole("megabytes", least=1)))
    """The bound of all forms that a worker keeps so, never less than ``max_spool_mb``. Beyond it the credential that
    keeps most loses its largest form with 503. 1024: forty sounds of 25 MB, on the disk of a small container."""
    max_connections: int | None = field(
        default=None, metadata=takes(kinds.or_word("auto", kinds.whole("connections", least=1)))
    )
    """The most client connections of a worker; a further one closes the connection that was idle for longest. ``auto``:
    10,000, or half of the files that may be open, because each request needs a connection to its upstream as well."""
    head_seconds: float = field(default=10.0, metadata=takes(kinds.positive("seconds")))
    """A request whose head is not complete after this time is refused with 408. Heads are one packet, so 10 is long."""
    body_seconds: float = field(default=60.0, metadata=takes(kinds.positive("seconds")))
    """A body that stops arriving for this long is refused with 408. 60: a mobile network's pause."""
    form_seconds: float = field(default=600.0, metadata=takes(kinds.positive("seconds")))
    """A form that has not named its model after this time is refused with 408. 600: 64 MB at a megabit a second."""
    keepalive_seconds: float = field(default=15.0, metadata=takes(kinds.positive("seconds")))
    """A stream that is silent for this long gets an SSE comment; common gateways cut at 30 s or more."""
    notice_seconds: float = field(default=2.0, metadata=takes(kinds.none_or_more("seconds")))
    """A stream that waits this long for a summary gets a comment about it; 0 turns that off (FR-1.6)."""
    allowed_origins: tuple[str, ...] = field(default=(), metadata=takes(kinds.several(addresses.origin())))
    """Origins of browser apps of other sites. None, because otherwise any page could send requests to this machine."""
    allowed_hosts: tuple[str, ...] = field(default=(), metadata=takes(kinds.several(addresses.host_name())))
    """Names in ``Host``, besides those of loopback, under which requests are served. None: on a loopback address no
    other one is served, because a page's own name may lead there; on other addresses every name is."""
    trusted_proxies: tuple[str, ...] = field(default=(), metadata=takes(kinds.several(addresses.ip())))
    """Addresses of reverse proxies. Nobody who comes from one is the operator without the admin token. None: a proxy
    on this machine is known by the forwarding headers that most add."""
    forward_cookies: bool = field(default=False, metadata=takes(kinds.flag()))
    """Send a client's cookies upstream. Off, because a browser also sends those of every other app on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """How many model requests each worker takes, and how much of one answer of an upstream.

    Beyond the first it answers 503 ``overloaded``, beyond the second 502 ``upstream_incomplete``.
    """

    max_streams: int | None = field(
        default=None, metadata=takes(kinds.or_word("null", kinds.whole("requests", least=1)))
    )
    """The most that a worker answers at once, as streams or whole. null: as many as ``server.max_connections`` lets in,
    because 1,000 slow streams take 33 MB, and only the operator knows what the upstreams take."""
    max_waiting: int | None = field(
        default=None, metadata=takes(kinds.or_word("auto", kinds.whole("requests", least=0)))
    )
    """The most that wait: for one of these places, 20 s at most, or as large ones for a permit. ``auto``: none for a
    place, because a client that is refused at once can go to another replica; any number for a permit."""
    max_error_mb: int = field(default=1, metadata=takes(kinds.whole("megabytes", least=1, most=4096)))
    """The longest error of an upstream, which is read whole. 1: a page of a gateway has some kilobytes."""
    max_event_mb: int = field(default=16, metadata=takes(kinds.whole("megabytes", least=1, most=4096)))
    """The longest event of a stream in answer to a model request, held until its end. 16: an image in base64."""
    max_answer_mb: int = field(default=128, metadata=takes(kinds.whole("megabytes", least=1, most=4096)))
    """The longest answer to a model request, whole or as a stream. 128: three times the longest of today's models, with
    300 bytes for each of 128,000 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """The code that carries bytes on each side: Tidemark's own, or the library that it replaces.

    Tidemark's own costs less CPU and bounds what a peer may take; ``docs/operations.md`` lists what a library does not.
    """

    server: Transport = field(default="own", metadata=takes(kinds.choice(Transport)))
    """Connections of clients. ``library``: uvicorn's protocol over httptools, which bounds nothing that comes in."""
    upstream: Transport = field(default="own", metadata=takes(kinds.choice(Transport)))
    """Requests to upstreams. ``library``: aiohttp, as it is where the environment names an HTTP proxy."""
    store: Transport = field(default="own", metadata=takes(kinds.choice(Transport)))
    """Commands to one server of Redis. ``library``: redis-py's pool, as it is for TLS."""
    lane: TransportLane = field(default="auto", metadata=takes(kinds.choice(TransportLane)))
    """``litellm``: requests of every dialect go through litellm. ``auto``: only to providers of other formats than
    OpenAI's and Anthropic's, which get the client's bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """The credentials of clients and upstreams."""

    mode: Literal["passthrough", "keys"] = field(
        default="passthrough", metadata=takes(kinds.choice(Literal["passthrough", "keys"]))
    )
    """``passthrough``: the client's own key goes upstream; ``keys``: virtual keys. The first needs no
    administration."""
    shared_account: bool | None = field(default=None, metadata=takes(kinds.or_word("auto", kinds.flag())))
    """Whether the account of a configured key is open to every client. It means what Tidemark did not see anybody make,
    and lists. ``auto``: true with ``passthrough``, because such a key mostly serves one person, and false with
    ``keys``. What Tidemark saw a tenant make is that tenant's alone either way."""
    identity_headers: tuple[str, ...] = field(default=(), metadata=takes(kinds.several(addresses.header_name())))
    """Further headers that distinguish tenants, beside those of ``server/credentials.py``."""

    @property
    def shares_account(self) -> bool:
        """Return what ``shared_account`` means, with ``auto`` resolved."""
        return self.mode == "passthrough" if self.shared_account is None else self.shared_account


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """The behaviour of token counting."""

    on_failure: Literal["error", "estimate"] = field(
        default="error", metadata=takes(kinds.choice(Literal["error", "estimate"]))
    )
    """``error``: the request is refused and may be sent again (FR-5.2.1: no approximation); ``estimate``: one token for
    four characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFlushSettings:
    """The consumers of the messages that leave the context (S0-4)."""

    enabled: bool = field(default=False, metadata=takes(kinds.flag()))
    """Off, because it writes conversations to more places, which nobody asked for."""
    worker: bool = field(default=True, metadata=takes(kinds.flag()))
    """Deliver inside ``serve``; off, only ``tidemark flush work`` delivers."""
    daily: bool = field(default=True, metadata=takes(kinds.flag()))
    """Write a JSONL file for each day and tenant in ``data_dir``. On, because this consumer needs nothing else."""
    keep_days: int | None = field(default=30, metadata=takes(kinds.or_word("null", kinds.whole("days", least=1))))
    """The days until those files are deleted; null: never. 30: as long as the store has a conversation."""
    webhook: Address | None = field(
        default=None, metadata=takes(kinds.or_word("null", addresses.address("http", "https")))
    )
    """The URL that entries are posted to, signed with ``TIDEMARK_FLUSH_SECRET``."""
    entry_points: bool = field(default=True, metadata=takes(kinds.flag()))
    """Call functions of installed packages, in the group ``tidemark.memory_flush``. On, because installing one requests
    it."""
    timeout_seconds: float = field(default=30.0, metadata=takes(kinds.positive("seconds")))
    """The longest time for one delivery to a function or the webhook. A model that digests a flush takes some ten."""
    attempts: int = field(default=10, metadata=takes(kinds.whole("attempts", least=1, most=100)))
    """The attempts before an entry is a dead letter. 10, with doubled waits, take nine minutes: a consumer's
    deployment."""
    max_entries: int = field(default=10_000, metadata=takes(kinds.whole("entries", least=1)))
    """The most entries in the queue, including taken ones, so that they can be replayed; the oldest are removed."""
    max_mb: int = field(default=256, metadata=takes(kinds.whole("megabytes", least=1)))
    """The queue's bound in the store's memory; packed, a flush of 100,000 tokens takes about a tenth of a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Who gets live events beside the listeners of ``/tidemark/events``."""

    webhook: Address | None = field(
        default=None, metadata=takes(kinds.or_word("null", addresses.address("http", "https")))
    )
    """The URL that live events of all conversations are posted to, signed with ``TIDEMARK_FLUSH_SECRET``."""


SECTIONS: Mapping[str, Any] = {
    "compaction.defaults": CompactionSettings(),
    "store": StoreSettings(),
    "history": HistorySettings(),
    "server": ServerSettings(),
    "limits": LimitSettings(),
    "transport": TransportSettings(),
    "auth": AuthSettings(),
    "tokenizer": TokenizerSettings(),
    "memory_flush": MemoryFlushSettings(),
    "events": EventSettings(),
}
"""The sections whose keys are all listed, at their defaults."""
ROOT_KINDS: Mapping[str, kinds.Kind[Any]] = {
    "preset": kinds.or_word("null", kinds.choice(Preset)),
    "upstream": kinds.or_word("null", addresses.address("http", "https", base=True)),
    "data_dir": kinds.or_word("null", kinds.folder()),
}
"""The top keys that are no section. Their default is null: no preset, no upstream, the platform's data folder."""


def changed(base: Section, keys: StatedKeys) -> Section:
    """Return ``base`` with the stated keys in place of its own."""
    values = {
        name: changed(getattr(base, name), value) if dataclasses.is_dataclass(getattr(base, name)) else value
        for name, value in keys.items()
    }
    return dataclasses.replace(base, **values)
