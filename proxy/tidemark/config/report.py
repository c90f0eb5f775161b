"""Makes the report of ``tidemark check``: all problems of a file, or its effect on each model.

It reads the file as ``serve`` does, and starts nothing. The command passes the rules of layers above as ``examine``,
which returns warnings or raises ``ConfigError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidemark.config.credentials import exposure_warnings
from tidemark.config.loading import load
from tidemark.config.models import ModelEntry, WindowNote
from tidemark.config.sections import CompactionSettings
from tidemark.config.settings import Settings
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import Template
from tidemark.core.errors import ConfigError
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import Budget, ModelProfile, ModelWindow, budget_for

Examine = Callable[[Settings], Sequence[str]]


def check_report(
    path: Path | None, environ: Mapping[str, str], examine: Examine = lambda _: ()
) -> tuple[list[str], bool]:
    """Return the lines to print, and whether the configuration can be used."""
    try:
        settings = load(path, environ)
        further = examine(settings)
    except ConfigError as error:
        problems = error.message.splitlines()
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        return [*problems, f"{count} found; nothing is started with this configuration"], False
    return list(_summary(settings, further)), True


def check_json(path: Path | None, environ: Mapping[str, str], examine: Examine = lambda _: ()) -> dict[str, JsonValue]:
    """Return the same as members of a JSON object; ``ok`` says whether the configuration can be used."""
    try:
        settings = load(path, environ)
        further = examine(settings)
    except ConfigError as error:
        return {"ok": False, "problems": [*error.message.splitlines()]}
    server, store = settings.server, settings.store
    return {
        "ok": True,
        "problems": [],
        "warnings": _warnings(settings, further),
        "file": str(settings.path) if settings.path else None,
        "preset": settings.preset,
        "host": server.host,
        "port": server.port,
        "workers": server.workers,
        "store": store.url.shown,
        "ttl_days": store.ttl_days,
        "data_dir": str(settings.data_dir),
        "models": [_effect(settings, name, entry).members() for name, entry in _entries(settings)],
    }


def _warnings(settings: Settings, further: Sequence[str]) -> list[JsonValue]:
    return [*settings.warnings, *exposure_warnings(settings), *further]


def _summary(settings: Settings, further: Sequence[str]) -> Iterator[str]:
    yield f"{settings.path or 'no file, all defaults'}: this configuration can be used"
    yield from (f"warning: {warning}" for warning in _warnings(settings, further))
    if settings.preset:
        yield f"preset {settings.preset}, replaced by the keys that the file states"
    server, store = settings.server, settings.store
    yield f"listens on {server.host}:{server.port} with {_counted(server.workers, 'worker')}"
    yield f"store {store.url.shown}, kept for {store.ttl_days:g} days after the last use"
    yield f"data in {settings.data_dir}"
    for name, entry in _entries(settings):
        yield ""
        yield from _effect(settings, name, entry).lines()


def _entries(settings: Settings) -> Iterator[tuple[str, ModelEntry | None]]:
    """Yield the entries of the list by their names, the first of each name, and None for all other models."""
    first = {entry.name: entry for entry in reversed(settings.model_list)}
    for name in dict.fromkeys(entry.name for entry in settings.model_list):
        yield name, first[name]
    if settings.upstream or not settings.model_list:
        yield ("any other model" if settings.model_list else "any model"), None


@frozen
class _ModelEffect:
    """A configuration's effect on a model: its upstream and its marks, in tokens."""

    name: str
    upstream: str
    lane: str | None
    """None if litellm's rules decide alone."""
    compaction: CompactionSettings
    window: ModelWindow
    window_source: str
    budget: Budget

    def lines(self) -> Iterator[str]:
        """Describe it for a person."""
        yield f"{self.name} -> {self.upstream}" + (f", lane {self.lane}" if self.lane else "")
        if not self.compaction.enabled:
            yield "  never compacted (enabled: false)"
            return
        budget, compaction = self.budget, self.compaction
        source, limit = self.window_source, budget.limit
        yield f"  window {self.window.window:,} ({source}), limit {limit:,} with the longest reply kept free"
        if compaction.mode == "shadow":
            yield "  shadow mode: no compaction changes a request, and what it would save is reported"
        if compaction.threshold is None:
            yield f"  high water by price, {compaction.price_floor:,} or more; without a known price as follows"
        yield (
            f"  high water {budget.high_water:,}, prepare {budget.prepare_mark:,}, "
            f"low water {budget.low_water:,}, retention {budget.retention:,}, summary {self._summary()}"
        )
        summarizer = "" if compaction.strategy == "extractive" else f", summarizer {compaction.summarizer.model}"
        template = f", template {compaction.template.name}" if isinstance(compaction.template, Template) else ""
        yield f"  {self._recall()}"
        yield f"  strategy {compaction.strategy}{summarizer}{template}, on failure {compaction.on_failure}"

    def _summary(self) -> str:
        talk, work = self.budget.summary_for(0), self.budget.summary_for(1)
        return f"{talk:,}" if talk == work else f"{work:,} to {talk:,}"

    def _recall(self) -> str:
        if self.budget.max_recall:
            return f"recall up to {self.budget.max_recall:,} for a question"
        if self.compaction.recall.max_tokens is None:
            return "no recall (auto: the limit is too small for it)"
        return "no recall (max_tokens: 0)"

    def members(self) -> dict[str, JsonValue]:
        """Describe it for a program."""
        budget, compaction = self.budget, self.compaction
        template = compaction.template
        return {
            "model": self.name,
            "upstream": self.upstream,
            "lane": self.lane,
            "enabled": compaction.enabled,
            "mode": compaction.mode,
            "price_floor": compaction.price_floor if compaction.threshold is None else None,
            "window": self.window.window,
            "window_source": self.window_source,
            "limit": budget.limit,
            "high_water": budget.high_water,
            "prepare": budget.prepare_mark,
            "low_water": budget.low_water,
            "retention": budget.retention,
            "max_summary": budget.max_summary,
            "max_work_summary": budget.summary_for(1),
            "max_recall": budget.max_recall,
            "strategy": compaction.strategy,
            "summarizer": None if compaction.strategy == "extractive" else compaction.summarizer.model,
            "template": template.name if isinstance(template, Template) else str(template),
            "on_failure": compaction.on_failure,
        }


def _effect(settings: Settings, name: str, entry: ModelEntry | None) -> _ModelEffect:
    if entry is not None:
        upstream = entry.upstream_model
    else:
        upstream = settings.upstream.shown if settings.upstream else "the provider that litellm derives from its name"
    # the words "any model" must match no glob; only the defaults apply
    compaction = settings.compaction_for(name) if entry else settings.compaction.defaults
    window, source = _window(settings, entry)
    budget = budget_for(ModelProfile(name, window, compaction.policy()), None)
    lane: str | None = entry.lane if entry else None
    if settings.transport.lane == "litellm" and lane in (None, "auto"):
        lane = "litellm"  # said of each model, since the switch stands far from the list
    return _ModelEffect(name, upstream, lane, compaction, window, source, budget)


def _window(settings: Settings, entry: ModelEntry | None) -> tuple[ModelWindow, str]:
    """Return a model's window and its source, in words."""
    window = settings.window_for(entry.name) if entry else None
    if entry is None or window is None:
        return ModelWindow(), "assumed, unless litellm's data or the upstream states it"
    unsaid = replace(entry.window, beta_windows=()) == WindowNote()
    return window, "models.yaml" if unsaid else "model_info"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
