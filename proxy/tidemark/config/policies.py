"""Defines the section ``compaction.defaults``: when a model's requests are compacted, how, and with which summarizer.

``models.py`` has the same keys for single models, and ``compaction.py`` joins both. ``sections.py`` has all other
sections.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from tidemark.config import kinds
from tidemark.config.kinds import takes
from tidemark.core.conversation.summary import Strategy, Template, TemplateName
from tidemark.core.planning.budget import CompactionPolicy, OnFailure, Oversize

DialectName = Literal["chat", "responses", "messages"]
RecallMethod = Literal["bm25"]
GONE_METHODS = {"embedding": "it gained little and is gone with its extra; write bm25, which is the default"}
_POLICY_FIELDS = frozenset(key.name for key in dataclasses.fields(CompactionPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizerSettings:
    """The model that writes the summaries of ``llm`` and ``hybrid``."""

    model: str = field(default="auto", metadata=takes(kinds.text()))
    """A ``model_name`` of the list, or any litellm model. ``auto``: the small model of the conversation's
    provider (S3 open question 4)."""
    timeout_seconds: float = field(default=60.0, metadata=takes(kinds.positive("seconds")))
    """The longest time for one summary. A small model writes 4096 tokens in about half of it."""
    cache_friendly: bool = field(default=False, metadata=takes(kinds.flag()))
    """Append the summarizer's call to the prefix in the prompt cache, so that its input is cheaper. Off, because only
    the conversation's own model can use that cache, and it costs more than a small one."""
    parallel: int = field(default=4, metadata=takes(kinds.whole("pieces", least=1)))
    """How many pieces of one long conversation are summarized at once. 4: 1,000 messages take three calls in turn in
    place of eight or more; 1 summarizes them one after the other, each with the summary of those before it."""
    revise: bool = field(default=False, metadata=takes(kinds.flag()))
    """Ask the model once more where its summary names identifiers, paths or links that stand nowhere in the
    conversation. Off, because it is another call; they are reported in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings:
    """The earlier messages that are put back into a compacted request, for its newest user message."""

    max_tokens: int | None = field(default=0, metadata=takes(kinds.or_word("auto", kinds.whole("tokens", least=0))))
    """The most tokens of them. ``auto``: 5 % of the limit; 0: none."""
    method: RecallMethod = field(default="bm25", metadata=takes(kinds.choice(RecallMethod, refusals=GONE_METHODS)))
    """How they are found. ``bm25``: by words that they share with the question."""
    tool: bool = field(default=False, metadata=takes(kinds.flag()))
    """Whether the model may search the earlier messages itself, by a function that Tidemark answers. Off, because each
    search is a request more to the upstream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """The marks and means of compaction; the defaults are those of ``CompactionPolicy``."""

    enabled: bool = field(default=True, metadata=takes(kinds.flag()))
    """Off: the model's requests are never compacted, and the upstream refuses a request that does not fit."""
    strategy: Strategy = field(default="hybrid", metadata=takes(kinds.choice(Strategy)))
    """How summaries are written. ``hybrid``: verbatim facts beside a model's narrative; ``extractive``: no model."""
    threshold: float = field(default=0.95, metadata=takes(kinds.share_or_tokens("the window")))
    """The high water: compaction is due above it (FR-1.2.2: 95 %)."""
    margin: float = field(default=0.05, metadata=takes(kinds.share("the window", zero_allowed=True, one_allowed=False)))
    """The share that no request uses, because local counts may be wrong (FR-1.2.4: 5 %). The limit is the window
    without it and without the reply reserve."""
    prepare: float = field(
        default=0.70, metadata=takes(kinds.share("the high water", zero_allowed=True, one_allowed=True))
    )
    """Above it the next summary is prepared in the background, early enough that no request waits for it."""
    target: float = field(default=0.45, metadata=takes(kinds.share("the limit", zero_allowed=False, one_allowed=False)))
    """The low water: a compaction brings the request down to it, so that the next one is many turns away. Where the
    threshold is in tokens, it is a share of the threshold."""
    retention_tokens: int = field(default=1000, metadata=takes(kinds.whole("tokens", least=0)))
    """The newest whole messages within this size stay as they are (FR-1.3.2: 1000)."""
    retention_ratio: float = field(
        default=0.25, metadata=takes(kinds.share("the limit", zero_allowed=True, one_allowed=False))
    )
    """The same as a share; the larger of the two applies. 1000 tokens alone are little in a large window."""
    keep_last_messages: int = field(default=0, metadata=takes(kinds.whole("messages", least=0)))
    """The fewest newest messages that stay, where the request fits with them (S2). 0: tokens fill a window, not
    messages."""
    max_summary_tokens: int | None = field(
        default=None, metadata=takes(kinds.or_word("auto", kinds.whole("tokens", least=64)))
    )
    """The longest summary. ``auto``: 5 % of the limit, between 256 (S0) and 4096 tokens."""
    min_tokens: int = field(default=2000, metadata=takes(kinds.whole("tokens", least=0)))
    """A smaller request is not compacted automatically (FR-5.4.1); at most half of the limit, for small windows."""
    min_messages: int = field(default=0, metadata=takes(kinds.whole("messages", least=0)))
    """A request with fewer messages is not compacted automatically (S4). 0: no such bound."""
    min_gain: float = field(
        default=0.10, metadata=takes(kinds.share("the request", zero_allowed=True, one_allowed=False))
    )
    """A compaction that would free less is not performed, because it would be due again at once."""
    on_failure: OnFailure = field(default="deterministic", metadata=takes(kinds.choice(OnFailure)))
    """What happens when no summary can be made. ``deterministic``: an extractive one, with a warning, so that no
    request fails; ``block``: 503 until one succeeds (FR-5.1.1); ``passthrough``: the request goes on as it is."""
    template: str | Template = field(default="general", metadata=takes(kinds.template(TemplateName)))
    """The summarizer's instructions (S3 open question 1): a shipped template, or the operator's own Markdown file."""
    wait_seconds: float = field(default=30.0, metadata=takes(kinds.positive("seconds")))
    """The longest that a request waits for a summary that another request is making. Clients give up after 60 s or
    more."""
    oversize: Oversize = field(default="clip", metadata=takes(kinds.choice(Oversize)))
    """What happens to a tool result that is too large even for a compacted request (FR-5.3.1). ``clip``: it visibly
    loses its middle, because a refused agent could not go on; ``error``: 400, as for any other message."""
    commands: bool = field(default=True, metadata=takes(kinds.flag()))
    """Whether Tidemark answers ``/context`` and ``/summarize`` as whole messages (S2-5)."""
    command_dialects: tuple[DialectName, ...] = field(
        default=("chat",), metadata=takes(kinds.several(kinds.choice(DialectName)))
    )
    """The client formats in which it does. Chat completions alone, because agents speak the others."""
    shorten_sentences: bool = field(default=True, metadata=takes(kinds.flag()))
    """Whether ``extractive`` drops empty words where not every sentence fits; off, it keeps sentences whole."""
    calibrate: bool = field(default=False, metadata=takes(kinds.flag()))
    """Learn a factor from the provider's own counts. Off, because FR-1.1.5 decides by local counts only."""
    recall: RecallSettings = field(default_factory=RecallSettings)
    summarizer: SummarizerSettings = field(default_factory=SummarizerSettings)

    def policy(self) -> CompactionPolicy:
        """Return the core's value of these settings."""
        plain = {key.name: getattr(self, key.name) for key in dataclasses.fields(self) if key.name in _POLICY_FIELDS}
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
