"""Examines the store: whether it answers, keeps what it is given, and how fast it is."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from proxy.config import Settings
from proxy.core.errors import TidemarkError
from proxy.doctor.findings import Finding, Progress
from proxy.store.connection.client import FAILURES, StoreClient, connect
from proxy.store.connection.sentinel import connect_to_primary
from proxy.store.connection.url import at_place, names_sentinels, read_address, read_places
from proxy.store.embedded.server import EmbeddedValkey, running_url

STORE_SECONDS = 10.0
"""The longest examination of one server."""
_CHECK = "store"
_EMBEDDED = "embedded"
_PINGS = 20
_SLOW_SECONDS = 0.01
_LEAST_VERSION = (6, 2)
_MOST_SKEW_SECONDS = 5.0
_MB = 1_048_576
_FULL = 0.9
"""The share of ``maxmemory`` above which a store is nearly full."""


async def check_store(settings: Settings, progress: Progress) -> list[Finding]:
    """Examine every server that ``store.url`` names; an embedded one is started for the examination if none runs."""
    progress("store")
    with ExitStack() as stack:
        try:
            urls = await asyncio.to_thread(_urls, settings, stack)
        except TidemarkError as error:
            return [Finding(_CHECK, "error", str(error), _mend(settings))]
        results = await asyncio.gather(*(_check_server(settings, url) for url in urls))
        await asyncio.to_thread(stack.close)
    return [finding for findings in results for finding in findings]


def _urls(settings: Settings, stack: ExitStack) -> list[str]:
    """Return the address of each server."""
    url = str(settings.store.url)
    if url == _EMBEDDED:
        folder = settings.data_dir / "store"
        return [running_url(folder) or stack.enter_context(EmbeddedValkey(folder)).url]
    if names_sentinels(url):
        return [url]  # the primary, through its Sentinels
    plain, _ = read_address(url)
    if plain.startswith("unix:"):
        return [plain]
    return [at_place(plain, place) for place in read_places(plain)]


def _mend(settings: Settings) -> str:
    if str(settings.store.url) == _EMBEDDED:
        return "Read valkey.log in the folder store of the data folder, or name another store by store.url."
    return "Start the server, or correct store.url: host, port, user, password and TLS."


async def _check_server(settings: Settings, url: str) -> list[Finding]:
    """Examine one server within a bounded time."""
    client: StoreClient | None = None
    try:
        async with asyncio.timeout(STORE_SECONDS):
            client = connect_to_primary(url) if names_sentinels(url) else connect(url)
            return await _examine(client)
    except TimeoutError:
        return [Finding(_CHECK, "error", f"no answer within {STORE_SECONDS:.0f} s", _mend(settings))]
    except FAILURES as error:
        return [Finding(_CHECK, "error", f"the server does not answer: {_words(error)}", _mend(settings))]
    except TidemarkError as error:
        return [Finding(_CHECK, "error", str(error), _mend(settings))]
    finally:
        if client is not None:
            await client.aclose()


async def _examine(client: StoreClient) -> list[Finding]:
    started = time.perf_counter()
    times = []
    for _ in range(_PINGS):
        before = time.perf_counter()
        await client.call("PING")
        times.append(time.perf_counter() - before)
    facts = _facts(await client.call("INFO"))
    seconds, microseconds = await client.call("TIME")
    skew = abs(int(seconds) + int(microseconds) / 1e6 - time.time())
    latency = statistics.median(times)
    version = facts.get("valkey_version") or facts.get("redis_version", "?")
    name = "Valkey" if "valkey_version" in facts else "Redis"
    findings = [
        Finding(_CHECK, "ok", f"{name} {version} answers in {1000 * latency:.2f} ms"),
        *_version_findings(name, version),
        *await _write_findings(client),
        *_memory_findings(facts),
        *_persistence_findings(facts),
    ]
    if latency > _SLOW_SECONDS:
        mend = "Every request waits for the store twice: run it close to the proxy."
        findings.append(Finding(_CHECK, "warning", f"the store takes {1000 * latency:.0f} ms to answer", mend))
    if skew > _MOST_SKEW_SECONDS + time.perf_counter() - started:
        detail = f"the clocks of this machine and of the store are {skew:.0f} s apart"
        findings.append(Finding("clock", "warning", detail, "Set both by NTP; leases and retention go by them."))
    return findings


def _facts(answer: Any) -> Mapping[str, str]:
    """Return the fields of ``INFO``, which redis-py reads by itself."""
    if isinstance(answer, Mapping):
        return {str(name): str(value) for name, value in answer.items()}
    text = answer.decode() if isinstance(answer, bytes) else str(answer)
    lines = [line.partition(":") for line in text.splitlines() if ":" in line]
    return {name: value.strip() for name, _, value in lines}


def _version_findings(name: str, version: str) -> list[Finding]:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name == "Valkey" or numbers >= _LEAST_VERSION or not numbers:
        return []
    return [Finding(_CHECK, "error", f"Redis {version} is too old", "Use Redis 6.2 or later, or Valkey.")]


async def _write_findings(client: StoreClient) -> list[Finding]:
    """Write a key that expires by itself, and delete it."""
    key = f"tm:doctor:{secrets.token_hex(8)}"
    try:
        await client.call("SET", key, "1", "EX", 10)
        await client.call("DEL", key)
    except FAILURES as error:
        if str(error).startswith(("MOVED", "ASK")):
            return []  # a key of another server of the cluster
        if str(error).startswith("CLUSTERDOWN"):
            mend = "Give every slot a primary that is up: valkey-cli --cluster check, then --cluster fix."
            return [Finding(_CHECK, "error", f"the cluster does not serve every slot: {_words(error)}", mend)]
        mend = "Name the primary, free disk or memory, or give the user the right to write (docs/operations.md)."
        return [Finding(_CHECK, "error", f"the store takes no writes: {_words(error)}", mend)]
    return []


def _memory_findings(facts: Mapping[str, str]) -> list[Finding]:
    policy, most = facts.get("maxmemory_policy", "noeviction"), int(facts.get("maxmemory") or 0)
    if policy not in ("noeviction", "") and not (policy.startswith("volatile-ttl") and not most):
        mend = "Set maxmemory-policy noeviction: conversations are no cache, and nothing else has them."
        return [Finding(_CHECK, "error" if most else "warning", f"the store may evict conversations ({policy})", mend)]
    used = int(facts.get("used_memory") or 0)
    if most and used > _FULL * most:
        mend = "Raise maxmemory (embedded: store.max_mb), or shorten store.ttl_days."
        return [Finding(_CHECK, "warning", f"{used // _MB} of {most // _MB} MB are in use", mend)]
    return []


def _persistence_findings(facts: Mapping[str, str]) -> list[Finding]:
    failing = [name for name in ("aof_last_write_status", "rdb_last_bgsave_status") if facts.get(name, "ok") == "err"]
    if failing:
        mend = "Free disk space for the store, and look at its log."
        return [Finding(_CHECK, "error", "the store could not write its data to disk", mend)]
    if facts.get("aof_enabled") == "0":
        mend = "Set appendonly yes, unless conversations may be lost with the server."
        return [Finding(_CHECK, "warning", "the store writes no append-only file: a crash loses its newest data", mend)]
    return []


def _words(error: BaseException) -> str:
    """Return what the server or the network said."""
    cause = error.__cause__
    return cause.strerror if isinstance(cause, OSError) and cause.strerror else str(error)
