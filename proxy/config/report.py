"""Makes the report of ``tidemark check``: all problems of a file, or its effect on each model.

It reads the file as ``serve`` does, and starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from proxy.config.exposure import exposure_warnings
from proxy.config.loading import load
from proxy.config.models import ModelEntry, WindowNote
from proxy.config.settings import Settings
from proxy.core.conversation.summary import Template
from proxy.core.errors import ConfigError
from proxy.core.planning.budget import ModelProfile, ModelWindow, budget_for


def check_report(path: Path | None, environ: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return the lines to print, and whether the configuration can be used."""
    try:
        settings = load(path, environ)
    except ConfigError as error:
        problems = error.message.splitlines()
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        return [*problems, f"{count} found; nothing is started with this configuration"], False
    return list(_summary(settings)), True


def _summary(settings: Settings) -> Iterator[str]:
    yield f"{settings.path or 'no file, all defaults'}: this configuration can be used"
    yield from (f"warning: {warning}" for warning in (*settings.warnings, *exposure_warnings(settings)))
    if settings.preset:
        yield f"preset {settings.preset}, replaced by the keys that the file states"
    server, store = settings.server, settings.store
    yield f"listens on {server.host}:{server.port} with {_counted(server.workers, 'worker')}"
    yield f"store {store.url.shown}, kept for {store.ttl_days:g} days after the last use"
    yield f"data in {settings.data_dir}"
    reported: set[str] = set()
    for entry in settings.model_list:
        if entry.name not in reported:
            reported.add(entry.name)
            yield ""
            yield from _model(settings, entry.name, entry)
    if settings.upstream or not settings.model_list:
        yield ""
        yield from _model(settings, "any other model" if settings.model_list else "any model", None)


def _model(settings: Settings, name: str, entry: ModelEntry | None) -> Iterator[str]:
    """Describe a model's upstream and its marks, in tokens."""
    if entry is not None:
        yield f"{name} -> {entry.upstream_model}, lane {entry.lane}"
    else:
        upstream = settings.upstream.shown if settings.upstream else "the provider that litellm derives from its name"
        yield f"{name} -> {upstream}"
    # the words "any model" must match no glob; only the defaults apply
    compaction = settings.compaction_for(name) if entry else settings.compaction.defaults
    if not compaction.enabled:
        yield "  never compacted (enabled: false)"
        return
    window, source = _window(settings, entry)
    budget = budget_for(ModelProfile(name, window, compaction.policy()), None)
    yield f"  window {window.window:,} ({source}), limit {budget.limit:,} with the longest reply kept free"
    yield (
        f"  high water {budget.high_water:,}, prepare {budget.prepare_mark:,}, "
        f"low water {budget.low_water:,}, retention {budget.retention:,}, summary {budget.max_summary:,}"
    )
    summarizer = "" if compaction.strategy == "extractive" else f", summarizer {compaction.summarizer.model}"
    template = f", template {compaction.template.name}" if isinstance(compaction.template, Template) else ""
    yield f"  strategy {compaction.strategy}{summarizer}{template}, on failure {compaction.on_failure}"


def _window(settings: Settings, entry: ModelEntry | None) -> tuple[ModelWindow, str]:
    """Return a model's window and its source, in words."""
    window = settings.window_for(entry.name) if entry else None
    if entry is None or window is None:
        return ModelWindow(), "assumed, unless litellm's data or the upstream states it"
    unsaid = replace(entry.window, beta_windows=()) == WindowNote()
    return window, "models.yaml" if unsaid else "model_info"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
