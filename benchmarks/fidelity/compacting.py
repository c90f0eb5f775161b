"""The compactions of conversations with known facts, which name no model that is served."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.fidelity.cases import Conversation
from benchmarks.fidelity.measuring import MODEL
from tidemark.cli.variants import AUTO, Compactions
from tidemark.core.errors import ModelNotFound, SummaryRejected, UpstreamError
from tidemark.core.ports import SummaryTask
from tidemark.terminal.options import sender
from tidemark.worker.worker import Worker


async def served_model(parts: Worker, model: str, *, has_own_summarizer: bool) -> str:
    """Return the model if the configuration serves it, else the first that it lists.

    :param has_own_summarizer: whether the summarizer is the one that the configuration names for it
    :raises ModelNotFound: it lists none by its whole name, or does not serve that summarizer
    """
    try:
        await parts.upstream.resolve(model)
    except ModelNotFound:
        listed = [entry.name for entry in parts.settings.model_list if "*" not in entry.name]
        if not listed:
            raise
        model = listed[0]
    summarizer = parts.settings.policy_for(model).summarizer_model
    if has_own_summarizer and summarizer != AUTO:
        await parts.upstream.resolve(summarizer, by_operator=True)
    return model


class CaseCompactions(Compactions):
    """Compacts with one variant; every conversation is one of the same model.

    :param model: None leaves the model that the requests name
    """

    def __init__(self, *arguments: Any, model: str | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._model = model

    async def count(self, body: bytes) -> bytes:
        """Count a chat request."""
        return await super().count(self._served(body))

    async def compact(self, body: bytes, max_tokens: int) -> bytes:
        """Compact a chat request.

        :raises TidemarkError: it cannot be compacted so far, or the upstream gave no answer
        """
        return await super().compact(self._served(body), max_tokens)

    async def summarize(self, previous: str | None, messages: Conversation, max_tokens: int) -> str:
        """Write one summary from the one before and further messages.

        :raises UpstreamError: the upstream gave no answer
        """
        body = json.dumps({"model": MODEL, "messages": messages}).encode()
        request = await self._offline.dialect.parse(self._served(body), anonymous=True)
        chosen = self._chosen(request.model)
        route, profile = await self._offline.situation(request.model, self._strategy, sender(), chosen)
        task = SummaryTask(request.messages, previous, max_tokens, request.model, route, sender())
        with self.meter.timed():
            try:
                summary = await self._parts.summarizers.of(profile, route).summarize(task)
            except SummaryRejected as error:
                self._reject(self._offline.explained(error, route, profile))
                summary = await self._parts.summarizers.extractive.summarize(task)
            except UpstreamError as error:
                raise self._offline.explained(error, route, profile) from error
        self._advance(1)
        return summary.source

    def _served(self, body: bytes) -> bytes:
        """Return a request with a model that is served."""
        return body if self._model is None else json.dumps({**json.loads(body), "model": self._model}).encode()
