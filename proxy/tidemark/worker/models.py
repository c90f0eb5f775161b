"""Makes the parts that ask models: dialects, the counter of tokens, and the upstreams.

``worker.py`` adds the parts that use the store. Neither a store nor a server is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.config import ModelEntry, Settings
from tidemark.core.conversation.request import Dialect
from tidemark.dialects.message_formats import MessageFormats
from tidemark.tokens import LocalTokenCounter
from tidemark.upstream.answer_bounds import MEGABYTE, AnswerBounds
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.upstream.wire import WireLane
from tidemark.worker.dialects import CHAT, build_dialects


class ModelParts:
    """The parts that ask models. Its state is which of them exist by now.

    :param dialects: the dialects by path; None for the usual ones
    """

    def __init__(
        self, settings: Settings, warn: Callable[[str], None], dialects: Mapping[str, Dialect] | None = None
    ) -> None:
        self.settings = settings
        self.warn = warn
        self.dialects = dialects or build_dialects()
        """By the path that each is served at."""
        self.chat = self.dialects[CHAT]
        """Also the format of requests that are counted offline, and of what stored conversations are shown in."""
        self.formats = MessageFormats(self.dialects.values())

    @cached_property
    def counter(self) -> LocalTokenCounter:
        settings = self.settings
        return LocalTokenCounter(
            on_failure=settings.tokenizer.on_failure, on_warning=self.warn, counted_as=_counted_as(settings.model_list)
        )

    @cached_property
    def model_data(self) -> LiteLLMModelData:
        return LiteLLMModelData()

    @cached_property
    def upstream(self) -> LiteLLMUpstream:
        settings = self.settings
        limits = settings.limits
        bounds = AnswerBounds(
            limits.max_error_mb * MEGABYTE, limits.max_event_mb * MEGABYTE, limits.max_answer_mb * MEGABYTE
        )
        return LiteLLMUpstream(
            [_entry(entry) for entry in settings.model_list],
            settings.upstream,
            wire=WireLane(library=settings.transport.upstream == "library", bounds=bounds),
            data=self.model_data,
            by_litellm=settings.transport.lane == "litellm",
            write_chat=self.chat.write,
        )


def _entry(entry: ModelEntry) -> Mapping[str, Any]:
    """Return an entry in LiteLLM's own form."""
    return {
        "model_name": entry.name,
        "litellm_params": dict(entry.litellm_params),
        "model_info": dict(entry.model_info),
        "lane": entry.lane,
    }


def _counted_as(entries: Iterable[ModelEntry]) -> Mapping[str, str]:
    """Return what counts the tokens of models, by the upstream's names; the first entry of a name decides."""
    stated: dict[str, str] = {}
    for entry in entries:
        if entry.counted_as:
            for name in (entry.upstream_model, entry.upstream_model.partition("/")[2]):
                stated.setdefault(name, entry.counted_as)
    return stated
