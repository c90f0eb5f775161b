"""The sections of the file as small frozen classes, each key with its default, its unit and the reason.

``settings.py`` composes them. A field's ``kind`` says what its key takes; the documentation and the shipped
``config/tidemark.yaml`` are tested against these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from proxy.config import kinds
from proxy.config.masking import Address
from proxy.core.conversation.summary import Strategy, Template, TemplateName
from proxy.core.planning.budget import CompactionPolicy, OnFailure, Oversize

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Section = TypeVar("Section", bound="DataclassInstance")
Given = Mapping[str, Any]
"""The keys of a section that a file states, by field name, checked; a nested one is a ``Given`` itself."""


def takes(kind: kinds.Kind[Any]) -> Mapping[str, kinds.Kind[Any]]:
    """The metadata of a field that a key of the file sets."""
    return {"kind": kind}


Preset = Literal["library", "agent", "chat-app", "rule-based"]
"""The files of ``config/presets/``: each reproduces the numbers of one of the requirements' sources."""
Transport = Literal["own", "library"]
EMBEDDED = Address("embedded")
STORE_URL = kinds.address("redis", "rediss", "redis+cluster", "rediss+cluster", "unix", words=(EMBEDDED,))


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizerSettings:
    """Who writes the summaries of ``llm`` and ``hybrid``."""

    model: str = field(default="auto", metadata=takes(kinds.text()))
    """A ``model_name`` of the list, or any litellm model. ``auto``: the small model of the conversation's
    provider (S3 open question 4)."""
    timeout_seconds: float = field(default=60.0, metadata=takes(kinds.positive("seconds")))
    """For one summary. A small model writes 4096 tokens in about half of it."""
    cache_friendly: bool = field(default=False, metadata=takes(kinds.flag()))
    """Append the summarizer's call to the live prefix, so that its input is a provider cache hit. Off,
    because only the conversation's own model can do that, and it costs more than a small one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """When and how far conversations are compacted; the defaults are those of ``CompactionPolicy``."""

    enabled: bool = field(default=True, metadata=takes(kinds.flag()))
    """Off: the model's requests are never compacted, and the upstream refuses one that does not fit."""
    strategy: Strategy = field(default="hybrid", metadata=takes(kinds.choice(Strategy)))
    """Who summarizes. ``hybrid``: facts verbatim beside a model's narrative; ``extractive``: no model."""
    threshold: float = field(default=0.95, metadata=takes(kinds.share_or_tokens("the window")))
    """High water: compaction is due above it (FR-1.2.2: 95 %)."""
    margin: float = field(default=0.05, metadata=takes(kinds.share("the window", zero=True, one=False)))
    """Kept free for what no local count can know (FR-1.2.4: 5 %); the limit is what is left beside the reply."""
    prepare: float = field(default=0.70, metadata=takes(kinds.share("the high water", zero=True, one=True)))
    """From here on the next summary is made in the background, early enough that nobody waits for it."""
    target: float = field(default=0.45, metadata=takes(kinds.share("the limit", zero=False, one=False)))
    """Low water: a compaction brings the request down to it, so that the next one is many turns away. Of a
    threshold in tokens, where there is one."""
    retention_tokens: int = field(default=1000, metadata=takes(kinds.whole("tokens", least=0)))
    """The newest whole messages within it stay as they are (FR-1.3.2: 1000)."""
    retention_ratio: float = field(default=0.25, metadata=takes(kinds.share("the limit", zero=True, one=False)))
    """The same as a share; the larger of the two holds. 1000 tokens alone are little in a large window."""
    keep_last_messages: int = field(default=0, metadata=takes(kinds.whole("messages", least=0)))
    """At least so many stay, where the request fits with them (S2). 0: tokens and not messages fill a window."""
    max_summary_tokens: int | None = field(
        default=None, metadata=takes(kinds.or_word("auto", kinds.whole("tokens", least=64)))
    )
    """Bound of a summary. ``auto``: 5 % of the limit, between 256 (S0) and 4096 tokens."""
    min_tokens: int = field(default=2000, metadata=takes(kinds.whole("tokens", least=0)))
    """Below it nothing is compacted of itself (FR-5.4.1); at most half of the limit, for small windows."""
    min_messages: int = field(default=0, metadata=takes(kinds.whole("messages", least=0)))
    """Below this many nothing is compacted of itself (S4). 0: none."""
    min_gain: float = field(default=0.10, metadata=takes(kinds.share("the request", zero=True, one=False)))
    """A compaction that would free less is not done: it would be due again at once."""
    on_failure: OnFailure = field(default="deterministic", metadata=takes(kinds.choice(OnFailure)))
    """When no summary can be made. ``deterministic``: an extractive one, with a warning, so that no request
    fails; ``block``: 503 until one succeeds (FR-5.1.1); ``passthrough``: the request goes on as it is."""
    template: str | Template = field(default="general", metadata=takes(kinds.template(TemplateName)))
    """The summarizer's instructions (S3 open question 1): one of ours, or a Markdown file of a person's own."""
    wait_seconds: float = field(default=30.0, metadata=takes(kinds.positive("seconds")))
    """The longest that a request waits for a summary that another one is making. Clients give up after 60 s
    or more."""
    oversize: Oversize = field(default="clip", metadata=takes(kinds.choice(Oversize)))
    """A tool result that is too large even for a compacted request (FR-5.3.1). ``clip``: it loses its middle,
    visibly, since an agent that is refused for it cannot go on; ``error``: 400, as for any other message."""
    commands: bool = field(default=True, metadata=takes(kinds.flag()))
    """Whether ``/context`` and ``/summarize`` as a whole message are answered by Tidemark (S2-5)."""
    calibrate: bool = field(default=False, metadata=takes(kinds.flag()))
    """Learn a factor from the provider's own counts. Off: FR-1.1.5 decides by local counts only."""
    summarizer: SummarizerSettings = field(default_factory=SummarizerSettings)

    def policy(self) -> CompactionPolicy:
        """The same in the core's words."""
        plain = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name in _POLICY_FIELDS}
        return CompactionPolicy(
            **plain,
            summarizer_model=self.summarizer.model,
            summarizer_timeout_seconds=self.summarizer.timeout_seconds,
            summarizer_cache_friendly=self.summarizer.cache_friendly,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where conversations and summaries are kept."""

    url: Address = field(default=EMBEDDED, metadata=takes(STORE_URL))
    """``embedded``: a Valkey server of Tidemark's own in ``data_dir``, with nothing to install. Else Redis or
    Valkey, one server or a cluster."""
    ttl_days: float = field(default=30.0, metadata=takes(kinds.positive("days")))
    """A conversation that is not used for so long is forgotten. 30: a month's holiday, then privacy."""
    max_age_days: float | None = field(default=None, metadata=takes(kinds.or_word("null", kinds.positive("days"))))
    """After its first message, however much it is used. null: as long as it is used."""
    max_tenant_mb: int | None = field(
        default=1024, metadata=takes(kinds.or_word("null", kinds.whole("megabytes", least=1)))
    )
    """That one credential may store, in the store's memory. Half of ``max_mb``, so that no one fills it alone."""
    max_mb: int | None = field(default=2048, metadata=takes(kinds.or_word("null", kinds.whole("megabytes", least=16))))
    """Memory of the embedded store, which has all its data in it. 2048: some 20,000 long talks, on a small machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """What holds for one tenant in place of the section ``store``. No defaults: what is not stated is as there."""

    ttl_days: float = field(metadata=takes(kinds.positive("days")))
    max_age_days: float | None = field(metadata=takes(kinds.or_word("null", kinds.positive("days"))))
    """null: as long as it is used, also where ``store`` has a maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Conversations of which the client sends new messages only (``X-Tidemark-History: stored``)."""

    on_conflict: Literal["reject", "wait"] = field(
        default="reject", metadata=takes(kinds.choice(Literal["reject", "wait"]))
    )
    """A request while another one of its conversation is being answered. ``reject``: 409, so that a client that sends
    twice by mistake learns of it; ``wait``: one after the other."""
    wait_seconds: float = field(default=20.0, metadata=takes(kinds.positive("seconds")))
    """The longest that a request waits for the one before it; then 409 all the same. 20: before a stream's first
    keep-alive, which would settle its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How Tidemark listens."""

    host: str = field(default="127.0.0.1", metadata=takes(kinds.text()))
    """Interface. Loopback, because without a key of its own anyone who reaches it may use it."""
    port: int = field(default=8787, metadata=takes(kinds.whole("", least=0, most=65535)))
    """TCP port; 0 takes any free one."""
    workers: int = field(default=1, metadata=takes(kinds.whole("processes", least=1, most=256)))
    """Processes that share port and store. 1: enough for hundreds of streams, and simplest to watch."""
    max_body_mb: int = field(default=64, metadata=takes(kinds.whole("megabytes", least=1, most=4096)))
    """Larger requests are refused with 413. Bodies of tens of megabytes are normal where images are sent."""
    max_bodies_mb: int = field(default=256, metadata=takes(kinds.whole("megabytes", least=1)))
    """Of all bodies that a worker reads at one moment, and never less than ``max_body_mb``; beyond it the largest is
    refused with 503. 256: four of the largest."""
    max_connections: int | None = field(
        default=None, metadata=takes(kinds.or_word("auto", kinds.whole("connections", least=1)))
    )
    """Of clients, that a worker takes; for another one the idlest is closed. ``auto``: 10,000, or half of the files
    that may be open, since each request needs a connection to its upstream as well."""
    head_seconds: float = field(default=10.0, metadata=takes(kinds.positive("seconds")))
    """A request whose head is not complete then is refused with 408. Heads are one packet, so 10 is long."""
    body_seconds: float = field(default=60.0, metadata=takes(kinds.positive("seconds")))
    """A body of which nothing more comes for so long is refused with 408. 60: a mobile network's pause."""
    keepalive_seconds: float = field(default=15.0, metadata=takes(kinds.positive("seconds")))
    """A stream that is silent for so long gets an SSE comment; common gateways cut at 30 s or more."""
    notice_seconds: float = field(default=2.0, metadata=takes(kinds.none_or_more("seconds")))
    """A stream that waits so long for a summary is told so by a comment; 0 never tells (FR-1.6)."""
    allowed_origins: tuple[str, ...] = field(default=(), metadata=takes(kinds.several(kinds.origin())))
    """Origins of browser apps that may ask from another site. None: any page could ask a port of this machine."""
    forward_cookies: bool = field(default=False, metadata=takes(kinds.flag()))
    """Send a client's cookies upstream. Off: a browser sends those of every other app on this machine, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """Which code carries bytes on each side: Tidemark's own, or the library that it stands in for.

    Tidemark's own costs less CPU and bounds what a peer may take; ``docs/operations.md`` lists what a library does not.
    """

    server: Transport = field(default="own", metadata=takes(kinds.choice(Transport)))
    """Connections of clients. ``library``: uvicorn's protocol over httptools, which bounds nothing that comes in."""
    upstream: Transport = field(default="own", metadata=takes(kinds.choice(Transport)))
    """Requests to upstreams. ``library``: aiohttp, as it is where the environment names an HTTP proxy."""
    store: Transport = field(default="own", metadata=takes(kinds.choice(Transport)))
    """Commands to one server of Redis. ``library``: redis-py's pool, as it is for clusters and TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """Whose keys go upstream."""

    mode: Literal["passthrough", "keys"] = field(
        default="passthrough", metadata=takes(kinds.choice(Literal["passthrough", "keys"]))
    )
    """``passthrough``: the client's own key; ``keys``: virtual keys. The former needs no administration."""
    identity_headers: tuple[str, ...] = field(default=(), metadata=takes(kinds.several(kinds.header_name())))
    """Headers that tell tenants apart beside those that are known by their names (``server/credentials.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """How counting behaves."""

    on_failure: Literal["error", "estimate"] = field(
        default="error", metadata=takes(kinds.choice(Literal["error", "estimate"]))
    )
    """``error``: the request is refused and may be sent again (FR-5.2.1: no approximation); ``estimate``:
    length / 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFlushSettings:
    """Who is given the messages that leave the context (S0-4)."""

    enabled: bool = field(default=False, metadata=takes(kinds.flag()))
    """Off: nobody asked for it, and it writes conversations to more places."""
    worker: bool = field(default=True, metadata=takes(kinds.flag()))
    """Deliver inside ``serve``; off, only ``tidemark flush work`` does."""
    daily: bool = field(default=True, metadata=takes(kinds.flag()))
    """A JSONL file for each day and tenant in ``data_dir``. On: the one consumer that needs nothing else."""
    keep_days: int | None = field(default=30, metadata=takes(kinds.or_word("null", kinds.whole("days", least=1))))
    """Days that those files are kept; null: for good. 30: as long as the store keeps a conversation."""
    webhook: Address | None = field(default=None, metadata=takes(kinds.or_word("null", kinds.address("http", "https"))))
    """Where entries are posted, signed with ``TIDEMARK_FLUSH_SECRET``."""
    entry_points: bool = field(default=True, metadata=takes(kinds.flag()))
    """Functions of installed packages, in the group ``tidemark.memory_flush``. On: installing one is asking for it."""
    timeout_seconds: float = field(default=30.0, metadata=takes(kinds.positive("seconds")))
    """For one delivery to a function or the webhook; a model that digests a flush takes some ten."""
    attempts: int = field(default=10, metadata=takes(kinds.whole("attempts", least=1, most=100)))
    """Then it is a dead letter. 10, with doubled waits between them, are nine minutes: a consumer's deployment."""
    max_entries: int = field(default=10_000, metadata=takes(kinds.whole("entries", least=1)))
    """That the queue holds, taken ones included, so that they can be replayed; the oldest make way."""
    max_mb: int = field(default=256, metadata=takes(kinds.whole("megabytes", least=1)))
    """The same in the store's memory; packed, a flush of 100,000 tokens takes about a tenth of one."""


@dataclass(frozen=True, slots=True)
class KeyNote:
    """A key as the documentation lists it."""

    name: str
    """With its sections: ``store.url``."""
    default: str
    """As YAML writes it."""
    wanted: str


SECTIONS: Mapping[str, Any] = {
    "compaction.defaults": CompactionSettings(),
    "store": StoreSettings(),
    "history": HistorySettings(),
    "server": ServerSettings(),
    "transport": TransportSettings(),
    "auth": AuthSettings(),
    "tokenizer": TokenizerSettings(),
    "memory_flush": MemoryFlushSettings(),
}
"""The sections whose keys are all listed, at their defaults."""
ROOT_KINDS: Mapping[str, kinds.Kind[Any]] = {
    "preset": kinds.or_word("null", kinds.choice(Preset)),
    "upstream": kinds.or_word("null", kinds.address("http", "https", base=True)),
    "data_dir": kinds.or_word("null", kinds.folder()),
}
"""Keys at the top that are no section; null, their default, is none and the platform's data folder."""

_POLICY_FIELDS = frozenset(one.name for one in dataclasses.fields(CompactionPolicy))


def changed(base: Section, given: Given) -> Section:
    """``base`` with the given keys in place of its own."""
    values = {
        name: changed(getattr(base, name), value) if dataclasses.is_dataclass(getattr(base, name)) else value
        for name, value in given.items()
    }
    return dataclasses.replace(base, **values)


def key_notes() -> Iterator[KeyNote]:
    """Every key with a default, in the order of the file."""
    for name, section in SECTIONS.items():
        yield from _notes(name, section)
    for name, kind in ROOT_KINDS.items():
        yield KeyNote(name, kind.word(None), kind.wanted)


def _notes(name: str, section: Any) -> Iterator[KeyNote]:
    for one in dataclasses.fields(section):
        default = getattr(section, one.name)
        if dataclasses.is_dataclass(default):
            yield from _notes(f"{name}.{one.name}", default)
        else:
            kind: kinds.Kind[Any] = one.metadata["kind"]
            yield KeyNote(f"{name}.{one.name}", kind.word(default), kind.wanted)
