"""Sends commands and scripts to the store, each within a time limit.

All adapters of this package share one sender and so one connection. ``connection/`` carries the bytes; this module
adds the time limits, the outage backoff and the scripts' names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from proxy.core.conversation.prefix import is_id, split_id
from proxy.store import keys, scripts
from proxy.store.connection.call import LARGE_BYTES, LargeStoreCall, StoreCall
from proxy.store.connection.client import UNKNOWN_SCRIPT, connect
from proxy.store.connection.outage import OutageBackoff
from proxy.store.connection.probing import Probing
from proxy.store.connection.url import read_address

Ask = Callable[..., Awaitable[Any]]
"""``CommandSender.ask``, as the adapters are given it."""
RECALL_SECONDS = 0.25
"""A client waits for it before its request is forwarded; on one machine it takes a thousandth."""
RECORD_SECONDS = 1.0
"""The last byte of the response waits for it."""
_PROBE_SECONDS = 60
"""The lifetime of a probe's key."""


class CommandSender:
    """Sends commands to one store. It belongs to the event loop that uses it first.

    Its state is the connection, whether there is an outage, and the task that probes for its end.

    :param url: ``redis://``, ``rediss://``, ``unix://``; ``redis+cluster://`` or ``?cluster=true``
    :param library: send commands by redis-py, not only those to clusters and over TLS
    :raises ConfigError: the URL cannot be used
    """

    def __init__(
        self, url: str, *, recall_timeout_seconds: float, record_timeout_seconds: float, library: bool = False
    ) -> None:
        self._client = connect(url, library=library)
        self.is_cluster = read_address(url)[1]
        """Whether a script may only use keys of one slot."""
        self.backoff = backoff = OutageBackoff(self._begin_probes)
        self._probes = Probing(backoff, self.ping)
        self._record_seconds = record_timeout_seconds
        self.recalling = StoreCall(backoff, recall_timeout_seconds)
        """The time limit of what a request waits for before it is forwarded."""
        self.recording = StoreCall(backoff, record_timeout_seconds)
        """The time limit of everything else."""
        self.probing = StoreCall(backoff, record_timeout_seconds, probe=True)
        """The same limit for a call that is made during an outage too."""

    async def ask(self, *command: str | bytes | float, probe: bool = False, briefly: bool = False) -> Any:
        """Send one command within its time limit.

        :param probe: send it during an outage too
        :param briefly: wait no longer than ``recall`` does, because a client waits for its request to be forwarded
        :raises StoreUnavailable: the store did not answer in time
        """
        with self.probing if probe else self.recalling if briefly else self.recording:
            return await self._client.call(*command)

    async def ping(self) -> None:
        """Write one key, during an outage too, to learn whether the store takes writes.

        :raises StoreUnavailable: the store does not answer, or refuses to write
        """
        with self.probing:
            await self._client.call("SET", keys.PROBE, b"", "EX", _PROBE_SECONDS)
        self.backoff.wrote()

    async def run(self, script: scripts.Script, family: str, *arguments: str | bytes | float) -> Any:
        """Run a script by name, within the caller's time limit; a server that lacks it is sent the source."""
        prefix = keys.family_prefix(family)
        try:
            return await self._client.call("EVALSHA", script.sha, 1, prefix, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._client.call("EVAL", script.source, 1, prefix, *arguments)

    async def run_with_keys(self, script: scripts.Script, names: Sequence[str], *arguments: str | bytes | float) -> Any:
        """Run a script over several keys, which need not be in one slot where the store is no cluster."""
        try:
            return await self._client.call("EVALSHA", script.sha, len(names), *names, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._client.call("EVAL", script.source, len(names), *names, *arguments)

    async def run_large(self, script: scripts.Script, family: str, *arguments: str | bytes | float) -> Any:
        """Run a script whose arguments are megabytes."""
        prefix = keys.family_prefix(family)
        try:
            return await self._client.call_large("EVALSHA", script.sha, 1, prefix, *arguments)
        except UNKNOWN_SCRIPT:
            return await self._client.call_large("EVAL", script.source, 1, prefix, *arguments)

    async def read(self, script: scripts.Script, conversation: str, *more: str) -> Any:
        """Run a script over one conversation within the time limit; return nothing where the id is none.

        :raises StoreUnavailable: the store did not answer in time
        """
        if not is_id(conversation):
            return ()
        family, own = split_id(conversation)
        with self.recording:
            return await self.run(script, family, b"", 0, own, *more)

    def writing(self, size_bytes: int, *, probe: bool) -> StoreCall:
        """Return the time limit of a write by its size.

        :param probe: make the call during an outage too
        """
        if size_bytes <= LARGE_BYTES:
            return self.probing if probe else self.recording
        return LargeStoreCall(self.backoff, self._record_seconds, size_bytes, probe=probe)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def end_probes(self) -> None:
        """Stop probing."""
        await self._probes.aclose()

    def _begin_probes(self) -> None:
        self._probes.begin()
