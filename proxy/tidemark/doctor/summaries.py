"""Tries a compaction with each summarizer that the configuration names, on a short made-up conversation."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from tidemark.core.conversation.summary import Strategy
from tidemark.core.errors import TidemarkError
from tidemark.core.ports import Caller
from tidemark.doctor.findings import Finding, Progress, Status
from tidemark.doctor.guard import Guard
from tidemark.features.offline.feature import offline_service
from tidemark.worker.worker import Worker

SUMMARY_SECONDS = 60.0
"""The longest compaction of the examination."""
_CONCURRENT = 4
"""Summaries at one time; a local model writes one after another anyway."""
_BUDGET_TOKENS = 1000
_TURNS = 24
_FACT = "OPS-4411"
"""An identifier of the conversation, which a usable summary still has."""
_ANY_MODEL = "gpt-4o"


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
        mend = "Mend its upstream, or choose strategy: extractive, which needs no model."
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
