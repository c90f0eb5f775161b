"""Examines the store: which servers it has, whether each can be reached, and whether a cluster serves every slot.

``store_server.py`` examines each server that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tidemark.config import Settings
from tidemark.core.errors import StoreDamaged, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.doctor.findings import Finding, Progress
from tidemark.doctor.store_server import STORE, check_accounts, examine_server
from tidemark.store.connection.client import FAILURES, StoreClient, connect
from tidemark.store.connection.faults import NAME_CERTIFICATE, fault_of, words_within
from tidemark.store.connection.sentinel import connect_to_primary
from tidemark.store.connection.slots import SLOTS, SlotRange, read_ranges
from tidemark.store.connection.url import Place, at_place, names_sentinels, read_address, read_places
from tidemark.store.embedded.append_only import damage_in, folders_aside
from tidemark.store.embedded.program import ProgramMissing
from tidemark.store.embedded.server import EmbeddedValkey, memory_options, running_url

STORE_SECONDS = 10.0
"""The longest examination of one server."""
_SLOTS_SECONDS = 3.0
"""How long the servers of a cluster are asked for its slots."""
_EMBEDDED = "embedded"
REPAIR = "Run tidemark store check --repair: it loads what is whole, and keeps the damaged files beside."


@frozen
class _Server:
    """One server of the store."""

    url: str
    name: str = ""
    """Its place, if there are several."""
    ranges: Sequence[SlotRange] | None = None
    """The slots that a server of a cluster has; None if the address names no cluster."""


async def check_store(settings: Settings, progress: Progress) -> list[Finding]:
    """Examine every server of the store; an embedded one is started for the examination if none runs.

    It blocks while an embedded one starts, so it is run in a thread and an event loop of its own.
    """
    progress("store")
    with ExitStack() as stack:
        try:
            servers, findings = await _servers(settings, stack)
        except TidemarkError as error:
            mend = REPAIR if isinstance(error, StoreDamaged) else _mend(settings)
            if isinstance(error, ProgramMissing):  # its own words say the mend
                mend = ""
            return [Finding(STORE, "error", str(error), mend)]
        results = await asyncio.gather(*(_check_server(settings, server) for server in servers))
    return [*(finding for found in results for finding in found), *findings]


async def _servers(settings: Settings, stack: ExitStack) -> tuple[list[_Server], list[Finding]]:
    """Return the servers, and what is wrong with them together."""
    url = str(settings.store.url)
    if url == _EMBEDDED:
        folder = settings.data_dir / "store"
        embedded = EmbeddedValkey(folder, options=memory_options(settings.store.max_mb))
        return [_Server(running_url(folder) or stack.enter_context(embedded).url)], _findings_aside(folder)
    if names_sentinels(url):
        return [_Server(url)], []  # the primary, through its Sentinels
    plain, is_cluster = read_address(url)
    if is_cluster:
        return await _cluster(plain)
    return [_Server(plain)], []


async def _cluster(url: str) -> tuple[list[_Server], list[Finding]]:
    """Return the servers that the address names and all other primaries, and the slots that none has."""
    seeds = read_places(url)
    answers = await asyncio.gather(*(_ask_slots(at_place(url, place), place) for place in seeds))
    ranges = next((answer for answer in answers if answer is not None), None)
    places = list(dict.fromkeys([*seeds, *(span.primary for span in ranges or ())]))
    servers = []
    for place in places:
        own = [span for span in ranges or () if span.primary == place]
        servers.append(_Server(at_place(url, place), f"{place[0]}:{place[1]}", own))
    if ranges is None:  # each server's own finding says why
        return servers, []
    served = {slot for span in ranges for slot in range(span.first, span.last + 1)}
    missing = [slot for slot in range(SLOTS) if slot not in served]
    if not missing:
        return servers, []
    detail = f"the cluster does not serve every slot: {len(missing):,} of {SLOTS:,} have no server, as {missing[0]}"
    mend = "Give every slot a primary that is up: valkey-cli --cluster check, then --cluster fix."
    return servers, [Finding(STORE, "error", detail, mend)]


async def _ask_slots(url: str, place: Place) -> list[SlotRange] | None:
    """Return what one server says of the slots; None if it says nothing."""
    client: StoreClient | None = None
    try:
        async with asyncio.timeout(_SLOTS_SECONDS):
            client = connect(url)
            return read_ranges(await client.call("CLUSTER", "SLOTS"), place[0])
    except (TidemarkError, ValueError, TypeError, IndexError, *FAILURES):
        return None
    finally:
        if client is not None:
            await client.aclose()


def _findings_aside(folder: Path) -> list[Finding]:
    """Name the folders that keep damaged files, and what was wrong with them."""
    mend = "Put a backup back if something is missed; delete the folder once nothing is."
    return [
        Finding(STORE, "warning", f"damaged files were set aside in {folder / name}: {damage_in(folder / name)}", mend)
        for name in folders_aside(folder)
    ]


def _mend(settings: Settings) -> str:
    url = str(settings.store.url)
    if url == _EMBEDDED:
        return "Read valkey.log in the folder store of the data folder, or name another store by store.url."
    mend = "Start the server, or correct store.url: host, port, user, password and TLS."
    if url.startswith("rediss") and "ssl_certfile" not in url:  # the alert is often lost with the connection
        mend += f" One that wants a certificate of the client closes the connection. {NAME_CERTIFICATE}"
    return mend


async def _check_server(settings: Settings, server: _Server) -> list[Finding]:
    """Examine one server within a bounded time."""
    client: StoreClient | None = None
    try:
        async with asyncio.timeout(STORE_SECONDS):
            client = connect_to_primary(server.url) if names_sentinels(server.url) else connect(server.url)
            findings = await examine_server(client, server.ranges)
            if settings.auth.shares_account:
                findings += await check_accounts(client, is_stated=settings.auth.shared_account is True)
    except TimeoutError:
        detail, mend = f"no answer within {STORE_SECONDS:.0f} s", _mend(settings)
        if server.url.startswith("rediss"):
            mend += " A server without TLS at this port is silent: write redis:// then."
        findings = [Finding(STORE, "error", detail, mend)]
    except FAILURES as error:
        fault = fault_of(words_within(error))
        detail = f"the server does not answer: {_words(error)}"
        if fault is not None:
            detail = f"{fault.sentence} {_words(error)}"
        findings = [Finding(STORE, "error", detail, fault.mend if fault else _mend(settings))]
    except TidemarkError as error:
        findings = [Finding(STORE, "error", str(error), _mend(settings))]
    finally:
        if client is not None:
            await client.aclose()
    if not server.name:
        return findings
    return [replace(finding, detail=f"{server.name}: {finding.detail}") for finding in findings]


def _words(error: BaseException) -> str:
    """Return what the server or the network said."""
    cause = error.__cause__
    return cause.strerror if isinstance(cause, OSError) and cause.strerror else str(error)
