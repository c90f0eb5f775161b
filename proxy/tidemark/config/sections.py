"""Defines the file's sections as frozen classes: each key has its default, its unit and the reason.

``settings.py`` composes them. A field's type defines the values that its key accepts (``kinds.py``). Tests compare the
documentation and the shipped ``config/tidemark.yaml`` with these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from tidemark.config import access_sections
from tidemark.config.addresses import HeaderName, HostName, Ip, Origin, url
from tidemark.config.kinds import (
    Auto,
    ByPrice,
    Days,
    Folder,
    Kind,
    Mark,
    Megabytes,
    Seconds,
    TemplateChoice,
    Text,
    kind_of,
    kinds_of,
    share,
    whole,
    yaml_word,
)
from tidemark.config.masking import Address
from tidemark.core.conversation.cache_marks import MarkPolicy
from tidemark.core.conversation.records import Keep
from tidemark.core.conversation.summary import Strategy
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import CompactionMode, CompactionPolicy, OnFailure, Oversize, ToolResults

Section = TypeVar("Section", bound=Struct)
StatedKeys = Mapping[str, Any]
"""The checked keys of a section that a file states, by field name. A nested section is a value of this type too."""


Preset = Literal["library", "agent", "chat-app", "rule-based"]
"""The files of ``config/presets/``: each reproduces the numbers of one of the requirements' sources."""
DialectName = Literal["chat", "responses", "messages"]
RecallMethod = Literal["bm25"]
Transport = Literal["own", "library"]
TransportLane = Literal["auto", "litellm"]
Compression = Literal["auto", "zstd", "none"]
GONE_METHODS = {"embedding": "it gained little and is gone with its extra; write bm25, which is the default"}
EMBEDDED = Address("embedded")
_SEVERAL = ("redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
StoreUrl = Annotated[Address, url("redis", "rediss", *_SEVERAL, "unix", words=(EMBEDDED,), several=_SEVERAL)]
_POLICY_FIELDS = frozenset(key.name for key in dataclasses.fields(CompactionPolicy))


class SummarizerSettings(Struct, frozen=True, kw_only=True):
    """The model that writes the summaries of ``llm`` and ``hybrid``."""

    model: Text = "auto"
    """A ``model_name`` of the list, or any litellm model. ``auto``: the small model of the conversation's
    provider (S3 open question 4)."""
    timeout_seconds: Seconds = 60.0
    """The longest time for one summary. A small model writes 4096 tokens in about half of it."""
    cache_friendly: bool | Auto = None
    """Append the summarizer's call to the prefix in the prompt cache, so that its input is cheaper. ``auto``: if the
    conversation's own model summarizes anyway, and its provider's cache is known to save. A small model costs less than
    the own one from its cache."""
    parallel: Annotated[int, whole("pieces", least=1)] = 4
    """How many pieces of one long conversation are summarized at once. 4: 1,000 messages take three calls in turn in
    place of eight or more; 1 summarizes them one after the other, each with the summary of those before it."""
    revise: bool = False
    """Ask the model once more where its summary names identifiers, paths or links that stand nowhere in the
    conversation. Off, because it is another call; they are reported in any case."""


class RecallSettings(Struct, frozen=True, kw_only=True):
    """The earlier messages that are put back into a compacted request, for its newest user message."""

    max_tokens: Annotated[int, whole("tokens", least=0)] | Auto = None
    """The most tokens of them for one question. ``auto``: 8 % of the limit, between 400 and 2,000; 0: none."""
    method: Annotated[RecallMethod, Meta(extra={"refusals": GONE_METHODS})] = "bm25"
    """How they are found. ``bm25``: by words that they share with the question."""
    tool: bool = False
    """Whether the model may search the earlier messages itself, by a function that Tidemark answers. Off, because each
    search is a request more to the upstream."""


class CompactionSettings(Struct, frozen=True, kw_only=True):
    """The marks and means of compaction; the defaults are those of ``CompactionPolicy``."""

    enabled: bool = True
    """Off: the model's requests are never compacted, and the upstream refuses a request that does not fit."""
    mode: CompactionMode = "active"
    """``shadow``: no compaction changes a request, and Tidemark reports what it would have saved."""
    strategy: Strategy = "hybrid"
    """How summaries are written. ``hybrid``: verbatim facts beside a model's narrative; ``extractive``: no model."""
    threshold: Mark | ByPrice = 0.95
    """The high water: compaction is due above it (FR-1.2.2: 95 %). ``price``: where it pays, by the model's price."""
    price_floor: Annotated[int, whole("tokens", least=1000)] = 40_000
    """The lowest high water of ``threshold: price``, because each compaction loses something."""
    margin: Annotated[float, share("the window", ge=0, lt=1)] = 0.05
    """The share that no request uses, because local counts may be wrong (FR-1.2.4: 5 %). The limit is the window
    without it and without the reply reserve."""
    prepare: Annotated[float, share("the high water", ge=0, le=1)] = 0.70
    """Above it the next summary is prepared in the background, early enough that no request waits for it."""
    target: Annotated[float, share("the limit", gt=0, lt=1)] = 0.45
    """The low water: a compaction brings the request down to it, so that the next one is many turns away. Where the
    threshold is in tokens, it is a share of the threshold."""
    retention_tokens: Annotated[int, whole("tokens", least=0)] = 1000
    """The newest whole messages within this size stay as they are (FR-1.3.2: 1000)."""
    retention_ratio: Annotated[float, share("the limit", ge=0, lt=1)] = 0.25
    """The same as a share; the larger of the two applies. 1000 tokens alone are little in a large window."""
    keep_last_messages: Annotated[int, whole("messages", least=0)] = 0
    """The fewest newest messages that stay, where the request fits with them (S2). 0: tokens fill a window, not
    messages."""
    max_summary_tokens: Annotated[int, whole("tokens", least=64)] | Auto = None
    """The longest summary. ``auto``: 5 to 30 % of the limit, by the strategy and the kind of the conversation."""
    min_tokens: Annotated[int, whole("tokens", least=0)] = 2000
    """A smaller request is not compacted automatically (FR-5.4.1); at most half of the limit, for small windows."""
    min_messages: Annotated[int, whole("messages", least=0)] = 0
    """A request with fewer messages is not compacted automatically (S4). 0: no such bound."""
    min_gain: Annotated[float, share("the request", ge=0, lt=1)] = 0.10
    """A compaction that would free less is not performed, because it would be due again at once."""
    on_failure: OnFailure = "deterministic"
    """What happens when no summary can be made. ``deterministic``: an extractive one, with a warning, so that no
    request fails; ``block``: 503 until one succeeds (FR-5.1.1); ``passthrough``: the request goes on as it is."""
    template: TemplateChoice = "general"
    """The summarizer's instructions (S3 open question 1): a shipped template, or the operator's own Markdown file."""
    wait_seconds: Seconds = 30.0
    """The longest that a request waits for a summary that another request is making. Clients give up after 60 s or
    more."""
    mask_results: bool = False
    """Whether a compaction first puts a line in the place of old tool results; if that suffices, nothing is summarized.
    Off, because of a result that is masked the model sees its size, its ends and its handle only."""
    oversize: Oversize = "clip"
    """What happens to a tool result that is too large even for a compacted request (FR-5.3.1). ``clip``: it visibly
    loses its middle, because a refused agent could not go on; ``error``: 400, as for any other message."""
    tool_results: ToolResults = "as_is"
    """How tool results go out. ``lossless``: without white space in JSON, terminal codes, blanks at line ends and
    repeats of a line. Off, because no session has shown yet that models read them as well."""
    commands: bool = True
    """Whether Tidemark answers ``/context`` and ``/summarize`` as whole messages (S2-5)."""
    command_dialects: tuple[DialectName, ...] = ("chat",)
    """The client formats in which it does. Chat completions alone, because agents speak the others."""
    shorten_sentences: bool = True
    """Whether ``extractive`` drops articles if not every sentence fits; off, it keeps sentences whole."""
    cache_marks: MarkPolicy = "auto"
    """Whether a compacted request gets cache marks if its client set none. ``auto``: at Anthropic, Bedrock, Vertex and
    OpenAI, since other servers may refuse them; ``on``: wherever the model's name is one of theirs."""
    calibrate: bool = False
    """Learn a factor from the provider's own counts. Off, because FR-1.1.5 decides by local counts only."""
    recall: RecallSettings = RecallSettings()
    summarizer: SummarizerSettings = SummarizerSettings()

    def policy(self) -> CompactionPolicy:
        plain = {key: getattr(self, key) for key in self.__struct_fields__ if key in _POLICY_FIELDS}
        if self.threshold is None:
            plain |= {"by_price": True, "threshold": CompactionPolicy().threshold}
        return CompactionPolicy(
            **plain,
            max_recall_tokens=self.recall.max_tokens,
            recall_tool=self.recall.tool,
            summarizer_model=self.summarizer.model,
            summarizer_timeout_seconds=self.summarizer.timeout_seconds,
            summarizer_cache_friendly=self.summarizer.cache_friendly,
            summarizer_parallel=self.summarizer.parallel,
            summarizer_revise=self.summarizer.revise,
        )


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The store of conversations and summaries."""

    url: StoreUrl = EMBEDDED
    """``embedded``: Tidemark's own Valkey server with its data in ``data_dir``, of the extra ``embedded``. Otherwise
    Redis or Valkey, one server or a cluster."""
    keep: Keep = "all"
    """What is stored of a request. all: messages, summaries, responses. summaries: no text but the summaries', so that
    history cannot be stored. none: nothing; then each request above the threshold is compacted anew, by rules."""
    ttl_days: Days = 30.0
    """A conversation that is not used for this long is deleted. 30: it outlasts a month's holiday, and then privacy
    wins."""
    max_age_days: Days | None = None
    """The longest life of a conversation after its first message. null: as long as it is used."""
    owner_days: Days | None = 365.0
    """For how long after its last use it is known who made what a shared account has (``auth.shared_account``). 365:
    files stay at providers until they are deleted, and an entry has no content. null: for ever."""
    max_tenant_mb: Megabytes | None = 1024
    """The most that one credential may store, in the store's memory. Half of ``max_mb``, so that no credential fills it
    alone."""
    compression: Compression = "auto"
    """Whether messages of 1 KB and more are compressed before they are stored. They take 40 to 90 % less memory, and
    storing one costs some 20 microseconds. auto: where every worker can read it, in new and embedded stores. zstd:
    everywhere; workers of versions before compression then leave the store alone. none: never."""
    max_mb: Annotated[int, whole("megabytes", least=16)] | None = 2048
    """The memory of the embedded store, which has all its data in memory. 2048: some 20,000 long conversations, on a
    small machine."""
    wait_replicas: Annotated[int, whole("replicas", least=0, most=10)] = 0
    """How many replicas must have a turn before it counts as stored (``WAIT``). 0: none is waited for, as most servers
    have none."""
    wait_seconds: Seconds = 0.5
    """How long they are waited for. 0.5: a replica answers within milliseconds, and the answer's last byte waits."""


class ModelStoreSettings(Struct, frozen=True, kw_only=True):
    """One model's values in place of the section ``store``."""

    keep: Keep | None = None
    """What is stored of its requests. null: as ``store.keep`` says."""
    ttl_days: Days | None = None
    """For how long after its last use a conversation is stored whose last request named this model. A tenant's own
    applies if it is shorter. null: as ``store`` says."""


class TenantSettings(Struct, frozen=True, kw_only=True):
    """One tenant's values in place of the section ``store``. It has no defaults: the section's values apply."""

    ttl_days: Days
    """0, which no file can state: as the model or ``store`` says."""
    max_age_days: Days | None
    """null: as long as it is used, also where ``store`` has a maximum."""


class HistorySettings(Struct, frozen=True, kw_only=True):
    """Conversations whose clients send new messages only (``X-Tidemark-History: stored``)."""

    on_conflict: Literal["reject", "wait"] = "reject"
    """What happens to a request while another one of its conversation is being answered. ``reject``: 409, so that a
    client learns that it sent twice by mistake; ``wait``: one after the other."""
    wait_seconds: Seconds = 20.0
    """The longest that a request waits for the one before it; then it gets 409. 20: it ends before a stream's first
    keep-alive, which would fix its status."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The server's address and bounds."""

    host: Text = "127.0.0.1"
    """The interface. Loopback, because without a key of its own anyone who reaches the server may use it."""
    port: Annotated[int, Meta(description="a whole number from 0 to 65535", ge=0, le=65535)] = 8787
    """The TCP port; 0 takes any free port."""
    tls: access_sections.TlsSettings = access_sections.TlsSettings()
    workers: Annotated[int, whole("processes", least=1, most=256)] = 1
    """The processes that share port and store. 1: enough for hundreds of streams, and simplest to watch."""
    max_body_mb: Annotated[int, whole("megabytes", least=1, most=4096)] = 64
    """Larger requests are refused with 413. Bodies of tens of megabytes are normal where images are sent."""
    max_bodies_mb: Megabytes = 256
    """The bound of all bodies that a worker reads at one moment, never less than ``max_body_mb``. Beyond it the largest
    is refused with 503. 256: four of the largest."""
    max_spool_mb: Megabytes = 1024
    """How much of a form each request may keep in a temporary file until the form names its model. 1024: twice the
    largest file that OpenAI takes. Beyond it the request is refused with 413."""
    max_file_first_mb: Megabytes = 64
    """The same until a form's first field that is no file. 64: more than the longest sound or picture that OpenAI takes
    with a model."""
    max_spools_mb: Megabytes = 1024
    """The bound of all forms that a worker keeps so, never less than ``max_spool_mb``. Beyond it the credential that
    keeps most loses its largest form with 503. 1024: forty sounds of 25 MB, on the disk of a small container."""
    max_connections: Annotated[int, whole("connections", least=1)] | Auto = None
    """The most client connections of a worker; a further one closes the connection that was idle for longest. ``auto``:
    10,000, or half of the files that may be open, because each request needs a connection to its upstream as well."""
    head_seconds: Seconds = 10.0
    """A request whose head is not complete after this time is refused with 408. Heads are one packet, so 10 is long."""
    body_seconds: Seconds = 60.0
    """A body that stops arriving for this long is refused with 408. 60: a mobile network's pause."""
    form_seconds: Seconds = 600.0
    """A form that has not named its model after this time is refused with 408. 600: 64 MB at a megabit a second."""
    keepalive_seconds: Seconds = 15.0
    """A stream that is silent for this long gets an SSE comment; common gateways cut at 30 s or more."""
    notice_seconds: Annotated[float, Meta(description="a number of seconds, 0 or more", ge=0)] = 2.0
    """A stream that waits this long for a summary gets a comment about it; 0 turns that off (FR-1.6)."""
    allowed_origins: tuple[Origin, ...] = ()
    """Origins of browser apps of other sites. None, because otherwise any page could send requests to this machine."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Names in ``Host``, besides those of loopback, under which requests are served. None: on a loopback address no
    other one is served, because a page's own name may lead there; on other addresses every name is."""
    trusted_proxies: tuple[Ip, ...] = ()
    """Addresses of reverse proxies. Nobody who comes from one is the operator without the admin token. None: a proxy
    on this machine is known by the forwarding headers that most add."""
    forward_cookies: bool = False
    """Send a client's cookies upstream. Off, because a browser also sends those of every other app on this machine."""


class LimitSettings(Struct, frozen=True, kw_only=True):
    """How many model requests each worker takes, and how much of one answer of an upstream.

    Beyond the first it answers 503 ``overloaded``, beyond the second 502 ``upstream_incomplete``.
    """

    per_tenant: access_sections.QuotaSettings = access_sections.QuotaSettings()
    max_streams: Annotated[int, whole("requests", least=1)] | None = None
    """The most that a worker answers at once, as streams or whole. null: as many as ``server.max_connections`` lets in,
    because 1,000 slow streams take 33 MB, and only the operator knows what the upstreams take."""
    max_waiting: Annotated[int, whole("requests", least=0)] | Auto = None
    """The most that wait: for one of these places, 20 s at most, or as large ones for a permit. ``auto``: none for a
    place, because a client that is refused at once can go to another replica; any number for a permit."""
    max_error_mb: Annotated[int, whole("megabytes", least=1, most=4096)] = 1
    """The longest error of an upstream, which is read whole. 1: a page of a gateway has some kilobytes."""
    max_event_mb: Annotated[int, whole("megabytes", least=1, most=4096)] = 16
    """The longest event of a stream in answer to a model request, held until its end. 16: an image in base64."""
    max_answer_mb: Annotated[int, whole("megabytes", least=1, most=4096)] = 128
    """The longest answer to a model request, whole or as a stream. 128: three times the longest of today's models, with
    300 bytes for each of 128,000 tokens."""


class TransportSettings(Struct, frozen=True, kw_only=True):
    """The code that carries bytes on each side: Tidemark's own, or the library that it replaces.

    Tidemark's own costs less CPU and bounds what a peer may take; ``docs/operations.md`` lists what a library does not.
    """

    server: Transport = "own"
    """Connections of clients. ``library``: uvicorn's protocol over httptools, which bounds nothing that comes in."""
    upstream: Transport = "own"
    """Requests to upstreams. ``library``: aiohttp, as it is where the environment names an HTTP proxy."""
    store: Transport = "own"
    """Commands to one server of Redis. ``library``: redis-py's pool, as it is for TLS."""
    lane: TransportLane = "auto"
    """``litellm``: requests of every dialect go through litellm. ``auto``: only to providers of other formats than
    OpenAI's and Anthropic's, which get the client's bytes."""


class AuthSettings(Struct, frozen=True, kw_only=True):
    """The credentials of clients and upstreams."""

    mode: Literal["passthrough", "keys"] = "passthrough"
    """``passthrough``: the client's own key goes upstream; ``keys``: clients have keys of Tidemark's own, and upstreams
    get configured ones alone. The first needs no administration."""
    shared_account: bool | Auto = None
    """Whether the account of a configured key is open to every client. It means what Tidemark did not see anybody make,
    and lists. ``auto``: true with ``passthrough``, because such a key mostly serves one person, and false with
    ``keys``. What Tidemark saw a tenant make is that tenant's alone either way."""
    identity_headers: tuple[HeaderName, ...] = ()
    """Further headers that distinguish tenants, beside those of ``server/credentials.py``."""

    @property
    def shares_account(self) -> bool:
        """Return what ``shared_account`` means, with ``auto`` resolved."""
        return self.mode == "passthrough" if self.shared_account is None else self.shared_account


class TokenizerSettings(Struct, frozen=True, kw_only=True):
    """The behaviour of token counting."""

    on_failure: Literal["error", "estimate"] = "error"
    """``error``: the request is refused and may be sent again (FR-5.2.1: no approximation); ``estimate``: one token for
    four characters."""


class MemoryFlushSettings(Struct, frozen=True, kw_only=True):
    """The consumers of the messages that leave the context (S0-4)."""

    enabled: bool = False
    """Off, because it writes conversations to more places, which nobody asked for."""
    worker: bool = True
    """Deliver inside ``serve``; off, only ``tidemark flush work`` delivers."""
    daily: bool = True
    """Write a JSONL file for each day and tenant in ``data_dir``. On, because this consumer needs nothing else."""
    keep_days: Annotated[int, whole("days", least=1)] | None = 30
    """The days until those files are deleted; null: never. 30: as long as the store has a conversation."""
    webhook: Annotated[Address, url("http", "https")] | None = None
    """The URL that entries are posted to, signed with ``TIDEMARK_FLUSH_SECRET``."""
    entry_points: bool = True
    """Call functions of installed packages, in the group ``tidemark.memory_flush``. On, because installing one requests
    it."""
    timeout_seconds: Seconds = 30.0
    """The longest time for one delivery to a function or the webhook. A model that digests a flush takes some ten."""
    attempts: Annotated[int, whole("attempts", least=1, most=100)] = 10
    """The attempts before an entry is a dead letter. 10, with doubled waits, take nine minutes: a consumer's
    deployment."""
    max_entries: Annotated[int, whole("entries", least=1)] = 10_000
    """The most entries in the queue, including taken ones, so that they can be replayed; the oldest are removed."""
    max_mb: Megabytes = 256
    """The queue's bound in the store's memory; packed, a flush of 100,000 tokens takes about a tenth of a megabyte."""


class EventSettings(Struct, frozen=True, kw_only=True):
    """Who gets live events beside the listeners of ``/tidemark/events``."""

    webhook: Annotated[Address, url("http", "https")] | None = None
    """The URL that live events of all conversations are posted to, signed with ``TIDEMARK_FLUSH_SECRET``."""


SECTIONS: Mapping[str, Any] = {
    "compaction.defaults": CompactionSettings,
    "store": StoreSettings,
    "history": HistorySettings,
    "server": ServerSettings,
    "limits": LimitSettings,
    "transport": TransportSettings,
    "auth": AuthSettings,
    "tokenizer": TokenizerSettings,
    "memory_flush": MemoryFlushSettings,
    "events": EventSettings,
    "request_log": access_sections.RequestLogSettings,
    "audit": access_sections.AuditSettings,
    "openid": access_sections.OpenIdSettings,
    "encryption": access_sections.EncryptionSettings,
    "privacy": access_sections.PrivacySettings,
}
"""The sections whose keys are all listed."""
ROOT_KINDS: Mapping[str, Kind] = {
    "preset": kind_of(Preset | None),
    "upstream": kind_of(Annotated[Address, url("http", "https", base=True)] | None),
    "data_dir": kind_of(Folder | None),
}
"""The top keys that are no section. Their default is null: no preset, no upstream, the platform's data folder."""


@frozen
class KeyNote:
    """A key, as the documentation lists it."""

    name: str
    """The name with its sections: ``store.url``."""
    default: str
    """The default, as YAML writes it."""
    wanted: str


def key_notes() -> Iterator[KeyNote]:
    """Yield every key with a default, in the order of the file."""
    for name, section in SECTIONS.items():
        yield from _notes(name, section())
    for name, kind in ROOT_KINDS.items():
        yield KeyNote(name, yaml_word(None), kind.wanted)


def _notes(section: str, defaults: Struct) -> Iterator[KeyNote]:
    for key, kind in kinds_of(type(defaults)).items():
        name, default = f"{section}.{key}", getattr(defaults, key)
        if kind.is_section:
            yield from _notes(name, default)
        else:
            yield KeyNote(name, yaml_word(kind.stated(default)), kind.wanted)


def changed(base: Section, keys: StatedKeys) -> Section:
    """Return ``base`` with the stated keys in place of its own."""
    values = {
        name: changed(own, value) if isinstance(own := getattr(base, name), Struct) else value
        for name, value in keys.items()
    }
    return replace(base, **values)
