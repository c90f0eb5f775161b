"""What the flow needs from the world, as protocols; adapters implement them, ``app.py`` brings both together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .budget import ModelProfile
from .calibration import Calibration, CalibrationKey, Reading
from .conversation import Recollection, StoredConversation, StoredMessage, TurnRecord
from .messages import ChatRequest, JsonValue, LivePrefix, Message
from .prefix import PrefixChain
from .registry import ModelRecord, Overrides, RegistryVersion, Sighting
from .summary import RunningSummary, SummaryRecipe

Headers = Sequence[tuple[bytes, bytes]]
"""Header lines in order, repeated ones too; names in lower case."""
Lane = Literal["wire", "translate"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, as far as Tidemark needs to know."""

    fingerprint: bytes
    """HMAC of the credential; the credential itself is in ``headers`` only."""
    headers: Headers
    """The client's request headers that go upstream, credential included."""

    def __repr__(self) -> str:
        return f"Caller({self.fingerprint.hex()[:8]})"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a model's requests go."""

    lane: Lane
    name: str
    """The model's name as the client uses it; profiles and windows are looked up by it."""
    upstream_model: str
    """The model's name as the upstream uses it."""
    provider: str
    base_url: str
    """Of the wire lane: ``{base_url}/chat/completions`` is asked. May be empty on the translate lane."""
    api_key: str | None = None
    """A configured key, which takes the place of the client's."""
    headers: Headers = ()
    """Configured extra headers."""
    params: Mapping[str, JsonValue] | None = None
    """Configured ``litellm_params`` for the translate lane, credentials included."""
    timeout_seconds: float = 600.0

    def __repr__(self) -> str:
        return (
            f"Route({self.lane} {self.name} -> {self.provider}/{self.upstream_model} at {self.base_url or 'litellm'})"
        )


class UpstreamReply(Protocol):
    """An upstream's answer whose status and headers are there and whose body is on its way."""

    status: int
    headers: Headers

    def body(self) -> AsyncIterator[bytes]:
        """The body's bytes as they arrive, never gathered.

        :raises UpstreamBroken: the connection ended before the body did
        """
        ...

    async def close(self) -> None:
        """Give up the rest; the upstream call is cancelled. May be called more than once."""
        ...


class Upstream(Protocol):
    """The way to the providers: litellm decides where and how, bytes travel."""

    async def resolve(self, model: str) -> Route:
        """Where requests for ``model`` go.

        :raises ModelNotFound: nobody serves it; the message names what is configured
        """
        ...

    async def send(self, route: Route, body: bytes, caller: Caller, *, stream: bool) -> UpstreamReply:
        """Send a chat request, its ``model`` already the upstream's, and wait for status and headers.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        ...

    async def complete(
        self,
        route: Route,
        messages: Sequence[Mapping[str, JsonValue]],
        caller: Caller,
        *,
        max_tokens: int,
        timeout_seconds: float,
        live: LivePrefix | None = None,
    ) -> str:
        """One short text for a summarizer, not streamed.

        :param live: what goes before ``messages``, byte by byte
        :raises UpstreamError: there was no answer
        :raises SummaryRejected: it holds no text: tool calls or a refusal in its place, or nothing
        """
        ...


class ModelCatalog(Protocol):
    """What is known of models."""

    async def profile(self, route: Route, caller: Caller) -> ModelProfile:
        """Window and policy of a model, from the sources in DESIGN.md's order; never fails, the last is a default."""
        ...

    async def learn(
        self,
        route: Route,
        caller: Caller,
        profile: ModelProfile,
        *,
        status: int,
        body: bytes,
        sent_tokens: int,
        factor: float = 1.0,
    ) -> ModelProfile | None:
        """What an upstream's error teaches of a model's window.

        :param sent_tokens: what was sent, as counted here; the upstream may count more for the same
        :param factor: how many times more it was believed to count
        :returns: the profile to go on with, its window smaller; None when the error is none of context length
        """
        ...


@dataclass(frozen=True, slots=True)
class RequestCount:
    """The tokens of a request, by part."""

    messages: tuple[int, ...]
    """Of each message in order, its overhead included."""
    fixed: int
    """Of all else: tools, response_format, priming of the reply."""
    encoding: str
    """The tokenizer's name."""
    exact: bool = False
    """Whether this is the model's own tokenizer and its provider's accounting, and not an estimate by another's."""

    scheme: str = ""
    """The mark of the rules it was counted by, for those who store it; empty for what must not be taken over."""
    summary_first: int = 0
    """By how much ``fixed`` changes where a summary becomes the first system message, which takes the tools in."""

    @property
    def total(self) -> int:
        """Of the whole request."""
        return self.fixed + sum(self.messages)


Stored = Callable[[str, int], Awaitable[Sequence[tuple[Message, int]]]]
"""Messages of a request with their tokens, as another worker counted and stored them: by the rules of that mark, from
that position on (1 for the first non-system message)."""


class TokenCounter(Protocol):
    """Local, exact counting."""

    async def count(
        self, request: ChatRequest, model: str, *, known: int = 0, stored: Stored | None = None
    ) -> RequestCount:
        """Count a request for a model; large new text is counted off the event loop.

        :param known: how many leading non-system messages are stored with their counts
        :param stored: asked where much of that is not remembered: what another worker counted is not counted again
        :raises TokenizerFailed: FR-5.2.1, nothing is approximated
        """
        ...

    def count_message(self, message: Message, model: str) -> int:
        """Tokens of one message, its overhead included."""
        ...

    def count_text(self, text: str, model: str) -> int:
        """Tokens of a bare text."""
        ...

    def cut_text(self, text: str, model: str, max_tokens: int) -> str:
        """The longest beginning of ``text`` of at most ``max_tokens`` tokens, whole characters only."""
        ...


class ConversationStore(Protocol):
    """The one shared store of all workers (NFR-7.3, FR-4.3)."""

    async def recall(self, tenant: str, chain: PrefixChain, recipe: SummaryRecipe) -> Recollection:
        """What is known of a request's conversation: one round trip in the common case.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def record(self, turn: TurnRecord) -> str:
        """Append what a turn adds, in one atomic write; writing it twice changes nothing.

        A conversation that went on otherwise meanwhile is left as it is, and the turn becomes a fork of it.

        :returns: the id of the conversation that holds the turn now
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def keep_summary(
        self,
        tenant: str,
        conversation: str,
        chain: PrefixChain,
        summary: RunningSummary,
        *,
        waiting: bool = False,
        lease: Lease | None = None,
        replacing: bool = False,
    ) -> RunningSummary | None:
        """Store a summary of the first ``summary.covered`` messages of ``chain``; of two for one prefix, the first.

        :param replacing: in place of the one that is stored
        :param waiting: it was prepared: it is not in use until it is kept once more, without this
        :param lease: what it was made under
        :returns: the one that is stored now; None where there is none and the lease is somebody else's by now
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def summary(
        self, chain: PrefixChain, covered: int, recipe: SummaryRecipe, *, waiting: bool = False
    ) -> RunningSummary | None:
        """The stored summary of the first ``covered`` messages of ``chain``, or the one that waits for its use.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def conversation(self, conversation: str) -> StoredConversation | None:
        """A conversation's record; None when there is none."""
        ...

    async def messages(self, conversation: str, *, start: int = 1, stop: int | None = None) -> Sequence[StoredMessage]:
        """The original messages ``start`` to ``stop``, both included, a fork's earlier ones too (promise 6)."""
        ...

    async def summaries(self, conversation: str) -> Sequence[RunningSummary]:
        """All summaries of a conversation, oldest first."""
        ...

    async def ping(self) -> None:
        """:raises StoreUnavailable: the store does not answer"""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to make a summary, held by one worker of all for a while."""

    family: str
    name: str
    value: bytes
    """Another one at each taking: who holds an older one is told apart (fencing)."""


class LeaseStore(Protocol):
    """Who is making what. Every method raises ``StoreUnavailable`` when the store did not answer in time."""

    async def take(
        self, name: str, chain: PrefixChain, covered: int, recipe: SummaryRecipe, seconds: float
    ) -> Lease | None:
        """Take the lease of that name, to make a summary of the first ``covered`` messages; None where it is taken.

        Of a preparation the name is the second part of the conversation's id, so ``recall`` finds it.
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold a lease for longer; False where it has gone to somebody else."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        ...

    async def taken(self, family: str, name: str) -> bool:
        """Whether somebody holds a lease."""
        ...


class ModelStore(Protocol):
    """The registry's records (FR-4.1.3). They are the operator's: no tenant has any of their own.

    Every method raises ``StoreUnavailable`` when the store did not answer in time.
    """

    async def version(self) -> RegistryVersion:
        """Another one after every change of overrides, and after the store was emptied."""
        ...

    async def changed(self) -> tuple[RegistryVersion, Sequence[ModelRecord]]:
        """The version, and the records that a person set something of; without what was found."""
        ...

    async def records(self) -> Sequence[ModelRecord]:
        """All records, by id."""
        ...

    async def record(self, model: str) -> ModelRecord | None:
        """The record with this id."""
        ...

    async def sight(self, sighting: Sighting, now: float) -> None:
        """Keep what a request found of a model, as ``sighted`` says, and that it was seen now."""
        ...

    async def override(self, record: ModelRecord, change: Callable[[Overrides], Overrides], now: float) -> None:
        """Keep what a person set, in place of what was set before; it is the record's id that counts.

        :param change: from what is set to what shall be; asked again where somebody else was faster. What it raises
            leaves everything as it is
        """
        ...


class CalibrationStore(Protocol):
    """What was learned of providers' tokenizers. Calibration is a refinement, so nothing here fails a request."""

    async def calibration(self, key: CalibrationKey) -> Calibration:
        """Of a tool set, else of its model; the last one known where the store does not answer."""
        ...

    async def learn(self, key: CalibrationKey, counted: int, told: int, now: float) -> None:
        """Take in one more reply, for the tool set and for the model; in vain where the store does not answer."""
        ...

    async def readings(self, owner: str | None) -> Mapping[str, Sequence[Reading]]:
        """By model id, what is known to an owner; for None, the operator, the newest of each model.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...


class LessonStore(Protocol):
    """What overflows taught, by credential; packed by whoever learns. Raises ``StoreUnavailable``."""

    async def lessons(self, owner: str) -> Sequence[bytes]:
        """All that was taught to one credential."""
        ...

    async def keep_lesson(self, owner: str, name: str, packed: bytes) -> None:
        """Keep one, in place of an older one of that name."""
        ...


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """What a summarizer is given."""

    messages: Sequence[Message]
    """The messages to stand for, oldest first; system messages only where they found no room of their own."""
    previous: str | None
    """The text of the summary that came before and must be taken in (FR-1.4.2)."""
    max_tokens: int
    """Bound of the text; the summarizer keeps it, and the compactor checks it."""
    model: str
    """The conversation's model: tokens are counted as it counts them."""
    route: Route | None = None
    """Where the conversation's model is served; None outside a request (``tidemark compact``)."""
    caller: Caller | None = None
    timeout_seconds: float = 60.0
    live: LivePrefix | None = None
    """The same conversation as it is forwarded, for a summarizer that is to continue the provider's prompt cache."""


class Summarizer(Protocol):
    """A strategy. It returns text or raises; it stores nothing and renders nothing."""

    @property
    def recipe(self) -> SummaryRecipe:
        """What its summaries depend on."""
        ...

    async def summarize(self, task: SummaryTask) -> str:
        """A text that stands for ``previous`` and ``messages``, of at most ``max_tokens`` tokens.

        :raises SummaryRejected, UpstreamError: there is no usable summary
        """
        ...
