"""Shares summaries between graphs and clients of the proxy, through the proxy's own store.

``langgraph.py`` takes an instance as ``store``. It uses the proxy's configuration, secret, upstream and strategy, hence
the same tenant, prefix chain and recipe, so graphs and clients find each other's summaries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, assert_never

from tidemark.compaction.record import summary_record
from tidemark.config import Settings, load
from tidemark.config.signing import stored_secret
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain, chain_of
from tidemark.core.conversation.records import response_conversation_id
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe, SummaryText, inner_systems
from tidemark.core.errors import StoreError, SummaryOutdated
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator
from tidemark.integrations.summarizing import FindSummary, SharedSummary, StoreSummary
from tidemark.pipeline.identify import tenant_of
from tidemark.server.auth import PassthroughAuth
from tidemark.store.embedded.server import url_of
from tidemark.worker.worker import Worker

_T = TypeVar("_T")
_LOG = logging.getLogger("tidemark")
CLOSE_SECONDS = 5.0


@frozen
class _Place:
    """The proxy's identity of a client with this credential and model."""

    tenant: str
    recipe: SummaryRecipe
    upstream_model: str


class SharedSummaries:
    """The summaries of one credential and model in the store of a proxy.

    The store is used by an event loop in a thread of its own, so graphs may run in any thread. If the store does not
    answer, the graph summarizes by itself, and the log reports it.

    :param model: the model's name for clients of the proxy
    :param api_key: the client's key, which distinguishes tenants; it is stored nowhere
    :param config: the proxy's configuration file; by default that of ``tidemark serve``
    :param conversation: the client's ``X-Tidemark-Conversation``, if it sends one
    :param headers: further headers of the client that are credentials
    :param environ: the proxy's environment; by default this process's
    :raises ConfigError: the configuration cannot be used
    :raises ModelNotFound: the proxy serves no such model
    """

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None = None,
        config: Path | str | None = None,
        conversation: str | None = None,
        headers: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        variables = os.environ if environ is None else environ
        path = config if config is not None else variables.get("TIDEMARK_CONFIG")
        settings = load(Path(path) if path else None, variables)
        lines = {"authorization": f"Bearer {api_key}"} if api_key is not None else {}
        lines |= {name.lower(): value for name, value in (headers or {}).items()}
        self._conversation = conversation
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidemark-shared", daemon=True)
        self._thread.start()
        self._stored: Worker | None = None
        try:
            self._place = self._submit(self._open(settings, model, lines)).result()
        except BaseException:  # interrupted, too: no caller has this object, so its thread must end here
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SharedSummaries({self._place.upstream_model})"

    def perform(self, step: FindSummary | StoreSummary) -> SharedSummary | None:
        """Find or store a summary; return None if there is no summary or no store."""
        return self._submit(self._perform(step)).result()

    async def aperform(self, step: FindSummary | StoreSummary) -> SharedSummary | None:
        """Find or store a summary without blocking the loop; see ``perform``."""
        return await asyncio.wrap_future(self._submit(self._perform(step)))

    def close(self) -> None:
        """Close the connections and end the thread; further calls do nothing."""
        if self._loop.is_closed():
            return
        if self._stored is not None:
            self._submit(self._stored.aclose()).result(CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        self._loop.close()

    def _submit(self, operation: Coroutine[Any, Any, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(operation, self._loop)

    async def _open(self, settings: Settings, model: str, lines: Mapping[str, str]) -> _Place:
        signing = settings.secrets.signing
        secret = stored_secret(settings.data_dir) if signing is None else signing.reveal()
        url = str(settings.store.url)
        url = url_of(settings.data_dir / "store") if url == "embedded" else url
        stored = self._stored = Worker(settings, _LOG.warning, store_url=url)
        encoded = [(name.encode(), value.encode()) for name, value in lines.items()]
        auth: Authenticator = PassthroughAuth(secret.encode(), identity_headers=settings.auth.identity_headers)
        caller = auth.caller(encoded)
        route = await stored.upstream.resolve(model, by_operator=True)
        profile = await stored.catalog.profile(route, caller)
        recipe = stored.summarizers.of(profile, route).recipe
        return _Place(tenant_of(caller, route), recipe, route.upstream_model)

    async def _perform(self, step: FindSummary | StoreSummary) -> SharedSummary | None:
        if self._stored is None:
            return None
        chain = chain_of(self._place.tenant, step.messages, conversation=self._conversation)
        try:
            await self._stored.store.check_schema()
            match step:
                case FindSummary():
                    return _shared(await self._find(self._stored, chain, step.messages))
                case StoreSummary():
                    return _shared(await self._keep(self._stored, chain, step))
                case _:
                    assert_never(step)
        except StoreError as error:
            _LOG.warning("the shared store was not asked: %s", error)
            return None

    async def _find(self, stored: Worker, chain: PrefixChain, messages: Sequence[Message]) -> PrefixSummary | None:
        return (await stored.store.recall(chain, self._place.recipe, inner_systems(messages))).summary

    async def _keep(self, stored: Worker, chain: PrefixChain, step: StoreSummary) -> PrefixSummary | None:
        place, shared, now = self._place, step.shared, time.time()
        memory = await stored.store.recall(chain, place.recipe, inner_systems(step.messages))
        summary = summary_record(
            chain,
            SummaryText(shared.text, "llm"),
            covered=shared.covered,
            absorbed=shared.absorbed,
            previous=memory.summary.base if memory.summary else None,
            recipe=place.recipe,
            cause="automatic",
            created_at=now,
            count=partial(stored.counter.count_message, model=place.upstream_model),
        )
        with contextlib.suppress(SummaryOutdated):  # deleted since
            return await stored.store.keep_summary(
                place.tenant, response_conversation_id(memory, chain, now), chain, summary
            )
        return None


def _shared(summary: PrefixSummary | None) -> SharedSummary | None:
    summary = summary.base if summary else None  # a graph has its results whole
    return None if summary is None else SharedSummary(summary.text, summary.covered, summary.absorbed)
