"""Runs all checks. None stops another: what a check raises unexpectedly is a finding of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from proxy.app import Parts
from proxy.config import load
from proxy.core.errors import ConfigError
from proxy.core.ports import Caller
from proxy.doctor.findings import Finding, Progress
from proxy.doctor.machine import check_configuration, check_data_folder, check_vocabularies
from proxy.doctor.secrecy import secrets_of, without_secrets
from proxy.doctor.stores import check_store
from proxy.doctor.summaries import check_summaries
from proxy.doctor.upstreams import check_upstreams

_KEY = "OPENAI_API_KEY"
_BUG = "This is a fault of Tidemark's own; please report it with this line."


async def examine(
    path: Path | None,
    environ: Mapping[str, str],
    progress: Progress,
    *,
    offline: bool = False,
    models: Sequence[str] = (),
) -> list[Finding]:
    """Return the findings of all checks, in a fixed order.

    :param offline: ask no upstream, and no summarizer's model
    :param models: further models to ask, which entries with a pattern may serve
    """
    try:
        settings = load(path, environ)
    except ConfigError as error:
        mend = "Correct the file; `tidemark schema` helps an editor to do so."
        return [Finding("configuration", "error", line, mend) for line in error.message.splitlines()]
    findings = [*check_configuration(settings), *check_data_folder(settings)]
    parts = Parts(settings, lambda warning: findings.append(Finding("tokens", "warning", warning)))
    key = environ.get(_KEY)
    caller = Caller(b"", ((b"authorization", b"Bearer " + key.encode()),) if key else ())
    checks: dict[str, Awaitable[list[Finding]]] = {
        "store": check_store(settings, progress),
        "vocabularies": check_vocabularies(parts),
    }
    if not offline:
        checks["upstreams"] = check_upstreams(parts, caller, progress, models)
        checks["summarizer"] = check_summaries(parts, caller, progress, models)
    try:
        for results in await asyncio.gather(*(_guarded(name, check) for name, check in checks.items())):
            findings += results
    finally:
        await parts.upstream.aclose()
    secrets = secrets_of(settings, environ)
    return [without_secrets(finding, secrets) for finding in findings]


async def _guarded(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await check
    except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others found
        return [Finding(name, "error", f"the check failed: {type(error).__name__}", _BUG)]
