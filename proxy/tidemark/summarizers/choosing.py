"""Chooses the summarizer that a model's policy names.

The writer of summaries and the identification of a request ask here (``compaction/writer.py``,
``pipeline/identify.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, assert_never

from tidemark.core.planning.budget import CompactionPolicy, ModelProfile
from tidemark.core.ports import Caller, Route, Summarizer, TokenCounter, Upstream
from tidemark.summarizers.extractive import ExtractiveSummarizer
from tidemark.summarizers.hybrid import HybridSummarizer
from tidemark.summarizers.llm import AUTO, LlmSummarizer, small_route
from tidemark.summarizers.native import NativeSummarizer


class SummarizerChoice:
    """Has a summarizer for each policy that was used; a configuration has few policies.

    :param window_of: returns the input window of a summarizer's model, or None if nobody knows it
    """

    def __init__(
        self, upstream: Upstream, counter: TokenCounter, window_of: Callable[[Route, Caller], Awaitable[int | None]]
    ) -> None:
        self._upstream = upstream
        self._counter = counter
        self._window_of = window_of
        self.extractive = ExtractiveSummarizer(counter)
        self._chosen: dict[tuple[Any, ...], Summarizer] = {}

    def of(self, profile: ModelProfile, route: Route) -> Summarizer:
        policy = profile.policy
        key = (
            policy.strategy,
            policy.template,
            policy.summarizer_model,
            policy.summarizer_cache_friendly,
            policy.summarizer_parallel,
            policy.summarizer_revise,
        )
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = self.once(profile, route)
        return chosen

    def once(self, profile: ModelProfile, _: Route) -> Summarizer:
        """Return the summarizer of a policy that a person chose for one summary; it is not kept."""
        policy = profile.policy
        if policy.strategy == "extractive":
            return self.extractive
        narrator = LlmSummarizer(self._upstream, self._counter, window_of=self._window_of, **_options(policy))
        match policy.strategy:
            case "llm":
                return narrator
            case "hybrid":
                return HybridSummarizer(self._counter, narrator)
            case "native":
                return NativeSummarizer(HybridSummarizer(self._counter, narrator), self.extractive)
            case _:
                assert_never(policy.strategy)


def summarizer_name(profile: ModelProfile, route: Route) -> str:
    """Return the model and the template that a policy's summarizer uses, as an error names them."""
    policy, model = profile.policy, profile.policy.summarizer_model
    if model in ("", AUTO):
        small = small_route(route)
        model = f"{small.provider}/{small.upstream_model}"
    template = policy.template if isinstance(policy.template, str) else policy.template.name
    return f"{model}, template {template}"


def _options(policy: CompactionPolicy) -> dict[str, Any]:
    """Return the keyword arguments of ``LlmSummarizer`` for a policy."""
    return {
        "template": policy.template,
        "model": policy.summarizer_model,
        "cache_friendly": bool(policy.summarizer_cache_friendly),
        "parallel": policy.summarizer_parallel,
        "revise": policy.summarizer_revise,
    }
