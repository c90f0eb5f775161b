"""Examines one server of the store: its version, speed, writes, memory, persistence and clock, and what it knows.

The server knows which providers' accounts several tenants have used by a configured key (``auth.shared_account``).
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tidemark.doctor.findings import Finding, Status
from tidemark.store import keys
from tidemark.store.connection.client import FAILURES, StoreClient
from tidemark.store.connection.faults import fault_of, words_within
from tidemark.store.connection.slots import SlotRange, slot_of
from tidemark.store.schema import refusal_of
from tidemark.store.watch import EVICTION_MEND, facts_of

STORE = "store"
"""The name of the check of a server."""
ACCOUNT = "account"
"""The name of the check of accounts."""
_ACCOUNT_MEND = (
    "Set auth.shared_account to false, so that each tenant reaches only what Tidemark saw it make; or true, if all of "
    "them may see the rest of the account."
)
_PINGS = 20
_SLOW_SECONDS = 0.01
_LEAST_VERSION = (6, 2)
_MOST_SKEW_SECONDS = 5.0
_MB = 1_048_576
_FULL = 0.9
"""The share of ``maxmemory`` above which a store is nearly full."""


async def examine_server(client: StoreClient, ranges: Sequence[SlotRange] | None) -> list[Finding]:
    """Return what is wrong with a server that answers; raises one of ``FAILURES`` if it does not.

    :param ranges: the slots that it has of a cluster; None if the address names no cluster
    """
    started = time.perf_counter()
    times = []
    for _ in range(_PINGS):
        before = time.perf_counter()
        await client.call("PING")
        times.append(time.perf_counter() - before)
    facts, findings = await _facts(client)
    seconds, microseconds = await client.call("TIME")
    skew = abs(int(seconds) + int(microseconds) / 1e6 - time.time())
    latency = min(times)  # the distance: whatever else this machine does can only add to it
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    name = "Redis" if "valkey_version" not in facts and version else "Valkey"
    findings = [
        Finding(STORE, "ok", f"{f'{name} {version}' if version else 'the server'} answers in {1000 * latency:.2f} ms"),
        *findings,
        *_version_findings(name, version),
        *_cluster_findings(facts, ranges),
        *await _schema_findings(client),
        *await _write_findings(client, ranges),
        *_memory_findings(facts),
        *_persistence_findings(facts),
    ]
    if latency > _SLOW_SECONDS:
        mend = "Every request waits for the store twice: run it close to the proxy."
        findings.append(Finding(STORE, "warning", f"the store takes {1000 * latency:.0f} ms to answer", mend))
    if skew > _MOST_SKEW_SECONDS + time.perf_counter() - started:
        detail = f"the clocks of this machine and of the store are {skew:.0f} s apart"
        findings.append(Finding("clock", "warning", detail, "Set both by NTP; leases and retention go by them."))
    return findings


async def _facts(client: StoreClient) -> tuple[Mapping[str, str], list[Finding]]:
    """Return the fields of ``INFO``; none, and a warning, if the user has no right to it."""
    try:
        return facts_of(await client.call("INFO")), []
    except FAILURES as error:
        if not (words := words_within(error)).startswith("NOPERM") and "has no permissions" not in words:
            raise
    detail = "its user may not ask for INFO, so version, memory policy and persistence are unknown"
    mend = "Give the user of store.url the right to INFO (ACL SETUSER ... +info)."
    return {}, [Finding(STORE, "warning", detail, mend)]


def _cluster_findings(facts: Mapping[str, str], ranges: Sequence[SlotRange] | None) -> list[Finding]:
    """Compare the kind of the address with the kind of the server."""
    if ranges is None and facts.get("cluster_enabled") == "1":
        mend = "Write redis+cluster:// in store.url: the server is one of a cluster."
        return [Finding(STORE, "error", "store.url names a single server, and it is one of a cluster", mend)]
    if ranges is not None and facts.get("cluster_enabled") == "0":
        return [Finding(STORE, "error", "store.url names a cluster, and it is none", "Write redis:// in store.url.")]
    return []


def _version_findings(name: str, version: str) -> list[Finding]:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name == "Valkey" or numbers >= _LEAST_VERSION or not numbers:
        return []
    return [Finding(STORE, "error", f"Redis {version} is too old", "Use Redis 6.2 or later, or Valkey.")]


async def _schema_findings(client: StoreClient) -> list[Finding]:
    """Compare the store's schema with the one that this program knows; a store without one is new."""
    try:
        stored = await client.call("GET", keys.SCHEMA)
    except FAILURES:
        return []  # a key of another server of the cluster; the check of writing tells of anything else
    refusal = refusal_of(stored) if isinstance(stored, bytes) else ""
    is_newer = refusal.startswith("A newer version")
    mend = "Install the version of Tidemark that wrote it, or name another store by store.url." if is_newer else ""
    return [Finding(STORE, "error", refusal, mend)] if refusal else []


async def _write_findings(client: StoreClient, ranges: Sequence[SlotRange] | None) -> list[Finding]:
    """Write a key that expires by itself, and delete it; a server of a cluster gets one of its slots."""
    if ranges is not None and not ranges:
        return []  # a replica, or a server without slots
    key = _own_key(ranges or ())
    try:
        await client.call("SET", key, "1", "EX", 10)
        await client.call("DEL", key)
    except FAILURES as error:
        if str(error).startswith(("MOVED", "ASK")):
            return []  # a key of another server of the cluster
        fault = fault_of(words_within(error))
        detail = (
            f"the store takes no writes: {error}"
            if fault is None
            else f"the store takes no writes. {fault.sentence} {error}"
        )
        mend = "Name the primary, free disk or memory, or give the user the right to write (docs/operations.md)."
        return [Finding(STORE, "error", detail, fault.mend if fault else mend)]
    return []


def _own_key(ranges: Sequence[SlotRange]) -> str:
    """Return the name of a key in one of the slots; any if there are none."""
    names = (f"tm:doctor:{secrets.token_hex(8)}" for _ in itertools.count())
    return next(
        name for name in names if not ranges or any(span.first <= slot_of(name) <= span.last for span in ranges)
    )


def _memory_findings(facts: Mapping[str, str]) -> list[Finding]:
    policy, most = facts.get("maxmemory_policy", "noeviction"), int(facts.get("maxmemory") or 0)
    if policy not in ("noeviction", ""):
        status: Status = "error" if most else "warning"  # without a bound nothing is evicted yet
        return [Finding(STORE, status, f"the store may evict conversations ({policy})", EVICTION_MEND)]
    used = int(facts.get("used_memory") or 0)
    if most and used > _FULL * most:
        mend = "Raise maxmemory (embedded: store.max_mb), or shorten store.ttl_days."
        return [Finding(STORE, "warning", f"{used // _MB} of {most // _MB} MB are in use", mend)]
    return []


def _persistence_findings(facts: Mapping[str, str]) -> list[Finding]:
    failing = [name for name in ("aof_last_write_status", "rdb_last_bgsave_status") if facts.get(name, "ok") == "err"]
    if failing:
        mend = "Free disk space for the store, and look at its log."
        return [Finding(STORE, "error", "the store could not write its data to disk", mend)]
    if facts.get("aof_enabled") == "0":
        mend = "Set appendonly yes, unless conversations may be lost with the server."
        return [Finding(STORE, "warning", "the store writes no append-only file: a crash loses its newest data", mend)]
    return []


async def check_accounts(client: StoreClient, *, is_stated: bool) -> list[Finding]:
    """Tell of each account in which several credentials have made something.

    :param is_stated: whether the configuration says that they share it; else it is a warning
    """
    try:
        fields = await client.call("HKEYS", keys.ACCOUNTS)
    except FAILURES:
        return []  # a key of another server of the cluster; the check of the store tells of anything else
    tenants = Counter(field.decode().partition(" ")[2] for field in fields)
    return [
        Finding(
            ACCOUNT,
            "ok" if is_stated else "warning",
            f"{count} credentials have made something in the one account of {account}, and each of them may list the "
            "account and reach what Tidemark did not see made",
            "" if is_stated else _ACCOUNT_MEND,
        )
        for account, count in sorted(tenants.items())
        if count > 1
    ]
