"""Runs all checks together. None stops another: what a check raises, or does not end in time, is a finding.

The checks of this machine are here too: the configuration's warnings, the data folder, and the vocabularies that count
tokens.

A compaction is tried with each summarizer that the configuration names, on a short made-up conversation.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from tidemark.config import Settings, exposure_warnings, load
from tidemark.core.conversation.summary import Strategy
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.ports import Caller
from tidemark.doctor.encryption import check_encryption
from tidemark.doctor.findings import Finding, Progress, Status, secrets_of, without_secrets
from tidemark.doctor.guard import Guard, failure, in_thread
from tidemark.doctor.stores import check_store
from tidemark.doctor.upstreams import check_upstreams
from tidemark.features.offline.feature import offline_service
from tidemark.worker.worker import Worker

EXAMINATION_SECONDS = 180.0
"""The longest examination. Each server and model has a shorter time of its own."""
_GRACE_SECONDS = 1.0
"""For a check of several parts, so that its parts end first and are reported one by one."""
_KEY = "OPENAI_API_KEY"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SAMPLE_TEXT = "Tidemark counts tokens exactly."
_DEFAULT_MODELS = ("gpt-4o", "gpt-4")
"""Models of the two vocabularies that most others are counted by."""
SUMMARY_SECONDS = 60.0
"""The longest compaction of the examination."""
_CONCURRENT = 4
"""Summaries at one time; a local model writes one after another anyway."""
_BUDGET_TOKENS = 1000
_TURNS = 24
_FACT = "OPS-4411"
"""An identifier of the conversation, which a usable summary still has."""
_ANY_MODEL = "gpt-4o"


async def examine(
    path: Path | None,
    environ: Mapping[str, str],
    progress: Progress,
    *,
    offline: bool = False,
    models: Sequence[str] = (),
    seconds: float = EXAMINATION_SECONDS,
) -> list[Finding]:
    """Return the findings of all checks, in a fixed order.

    :param offline: ask no upstream, and no summarizer's model
    :param models: further models to ask, which entries with a pattern may serve
    :param seconds: the longest time of all together
    """
    try:
        settings = load(path, environ)
    except ConfigError as error:
        mend = "Correct the file; `tidemark schema` helps an editor to do so."
        return [Finding("configuration", "error", line, mend) for line in error.message.splitlines()]
    checks: dict[str, Awaitable[list[Finding]]] = {
        "configuration": in_thread(lambda: check_configuration(settings)),
        "data folder": in_thread(lambda: check_data_folder(settings)),
        "store": in_thread(lambda: [*asyncio.run(check_store(settings, progress)), *check_encryption(settings)]),
    }
    warnings: list[Finding] = []
    parts = _parts(settings, warnings)
    guard = Guard(asyncio.get_running_loop().time() + seconds, seconds)
    if parts is not None:
        key = environ.get(_KEY)
        caller = Caller(b"", ((b"authorization", b"Bearer " + key.encode()),) if key else ())
        checks["vocabularies"] = in_thread(lambda: check_vocabularies(parts))
        if not offline:
            checks["upstreams"] = check_upstreams(parts, caller, progress, guard, models)
            checks["summarizer"] = check_summaries(parts, caller, progress, guard, models)
    try:
        running = [guard.run(name, check, grace_seconds=_GRACE_SECONDS) for name, check in checks.items()]
        findings = [finding for results in await asyncio.gather(*running) for finding in results]
    finally:
        if parts is not None:
            await parts.upstream.aclose()
    secrets = secrets_of(settings, environ)
    return [without_secrets(finding, secrets) for finding in [*findings, *warnings]]


def _parts(settings: Settings, findings: list[Finding]) -> Worker | None:
    """Return the parts that most checks use; None if they cannot be built, which is a finding then."""
    try:
        worker = Worker(settings, lambda warning: findings.append(Finding("tokens", "warning", warning)))
        worker.catalog  # noqa: B018 - it is made now, so that what cannot be used fails here
    except Exception as error:  # noqa: BLE001 - the checks that need no model go on
        findings.append(failure("models", error))
        return None
    return worker


def check_configuration(settings: Settings) -> list[Finding]:
    """Return the warnings of a configuration that could be read."""
    warnings = [*settings.warnings, *exposure_warnings(settings)]
    if not warnings:
        return [
            Finding(
                "configuration",
                "ok",
                f"{settings.path} can be used" if settings.path else "there is no file; all values are defaults",
            )
        ]
    mend = "Change the named keys; docs/configuration.md explains each."
    return [Finding("configuration", "warning", warning, mend) for warning in warnings]


def check_data_folder(settings: Settings) -> list[Finding]:
    """Say whether the data folder can be written, by this user only."""
    folder = settings.data_dir
    mend = "Name another folder by TIDEMARK_DATA_DIR, or give this user the right to write there."
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
    except OSError as error:  # a parent may not be entered, or a name is too long
        return [Finding("data folder", "error", f"{folder} cannot be used: {error.strerror}", mend)]
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return [Finding("data folder", "error", f"{existing} cannot be written", mend)]
    if existing != folder:
        return [Finding("data folder", "ok", f"{folder} will be created")]
    exposed = [path.name for path in (folder, folder / "secret", folder / "store") if _is_open(path)]
    if exposed:
        mend = f"Run: chmod -R go-rwx {folder}"
        return [Finding("data folder", "warning", f"other users can reach {', '.join(exposed)} in {folder}", mend)]
    return [Finding("data folder", "ok", f"{folder} can be written, by this user only")]


def _is_open(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & _OTHERS)


def check_vocabularies(parts: Worker) -> list[Finding]:
    """Say whether the vocabularies that count the configured models are on this machine."""
    models = sorted({entry.upstream_model for entry in parts.settings.model_list} or set(_DEFAULT_MODELS))
    for model in models:
        try:
            parts.counter.count_text(_SAMPLE_TEXT, model)
        except TidemarkError as error:
            mend = "Install Tidemark again; its wheel brings every vocabulary, and nothing is downloaded."
            return [Finding("vocabularies", "error", str(error), mend)]
    return [Finding("vocabularies", "ok", "tokens are counted on this machine, without a network")]


async def check_summaries(
    parts: Worker, caller: Caller, progress: Progress, guard: Guard, names: Sequence[str] = ()
) -> list[Finding]:
    """Compact one conversation with each strategy in use, by the first model of it.

    If entries have patterns only, and no model is named, nothing but ``extractive`` can be tried.

    :param names: further models, which entries with a pattern may serve
    """
    settings = parts.settings
    served = [*names, *(entry.name for entry in settings.model_list if "*" not in entry.name)]
    patterns = [entry.name.replace("*", "model") for entry in settings.model_list if "*" in entry.name]
    models: dict[tuple[Strategy, str], str] = {}
    for name in served:
        compaction = settings.compaction_for(name)
        if compaction.enabled:
            models.setdefault((compaction.strategy, compaction.summarizer.model), name)
    if not models:
        models = {("extractive", ""): next(iter(patterns), _ANY_MODEL)}
    slots = asyncio.Semaphore(_CONCURRENT)

    async def examined(strategy: Strategy, name: str) -> list[Finding]:
        async with slots:
            progress(f"summarizer {strategy}")
            return [await _check(parts, caller, name, strategy)]

    running = [guard.run(f"summarizer {strategy}", examined(strategy, name)) for (strategy, _), name in models.items()]
    return [finding for results in await asyncio.gather(*running) for finding in results]


async def _check(parts: Worker, caller: Caller, model: str, strategy: Strategy) -> Finding:
    check, started = f"summarizer {strategy}", time.perf_counter()
    service = offline_service(parts)
    try:
        async with asyncio.timeout(SUMMARY_SECONDS):
            request = await service.dialect.parse(_conversation(model), anonymous=True)
            answer = json.loads(await service.compact_request(request, _BUDGET_TOKENS, strategy, caller))
    except (TimeoutError, TidemarkError) as error:
        detail = str(error) if isinstance(error, TidemarkError) else f"no summary within {SUMMARY_SECONDS:.0f} s"
        is_covered = parts.settings.compaction_for(model).on_failure == "deterministic"
        status: Status = "warning" if is_covered else "error"
        mend = "Fix its upstream, or choose strategy: extractive, which needs no model."
        if is_covered:
            mend += " Until then compactions are extractive (on_failure: deterministic)."
        return Finding(check, status, detail, mend)
    seconds = time.perf_counter() - started
    figures = f"{answer['tokens_before']:,} tokens became {answer['tokens_after']:,} in {seconds:.1f} s"
    if _FACT not in answer["summary"]:
        mend = "Choose a larger summarizer model, or strategy: hybrid, which keeps identifiers itself."
        return Finding(check, "warning", f"{figures}, and the summary lost the ticket's number", mend)
    return Finding(check, "ok", f"{figures}; rules and identifiers are still there")


def _conversation(model: str) -> bytes:
    """Return a request that is longer than its budget."""
    messages = [
        {"role": "user", "content": f"Never touch the production database. The ticket is {_FACT}."},
        {"role": "assistant", "content": "Understood."},
    ]
    for number in range(_TURNS):
        text = f"Step {number}: I looked at part {number} of the service, and its log says that all is well so far."
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"Noted. {text}"},
        ]
    messages.append({"role": "user", "content": "What is left to do?"})
    return json.dumps({"model": model, "messages": messages, "max_tokens": 100}).encode()
