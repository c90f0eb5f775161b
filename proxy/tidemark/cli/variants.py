"""The summarizers that ``tidemark bench fidelity`` measures, and the compactions that it makes with each.

A variant is a template and a model of the strategies that ask a model; the configuration says what it leaves open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from tidemark.core.conversation.summary import Strategy, Template, TemplateName
from tidemark.core.errors import ModelNotFound, SummaryRejected, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.terminal.options import sender

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.core.receipt import Detail
    from tidemark.fidelity import Meter
    from tidemark.worker.worker import Worker


AUTO = "auto"
"""The model of a summarizer that follows the conversation's model."""


@frozen
class Variant:
    """A template and a model that are measured; None for those of the configuration."""

    template: str | Template | None = None
    model: str | None = None

    @property
    def chosen(self) -> Mapping[str, Any]:
        """Return the members of a policy that it states."""
        members = {"template": self.template, "summarizer_model": self.model}
        return {name: value for name, value in members.items() if value is not None}


async def variants_of(parts: Worker, templates: str | None, models: str | None) -> Sequence[Variant]:
    """Return a variant for each pair of the names that ``--template`` and ``--model`` list.

    :raises click.BadParameter: a template or a model is unknown; the message has those that there are
    """
    choices = _templates(parts.settings)
    for name in (chosen_templates := _names(templates)):
        if name is not None and name not in choices:
            message = f"There is no summary template {name!r}; use one of {', '.join(choices)}."
            raise click.BadParameter(message, param_hint="--template")
    for name in (chosen_models := _names(models)):
        try:
            if name not in (None, AUTO):
                await parts.upstream.resolve(name, by_operator=True)
        except ModelNotFound as error:
            raise click.BadParameter(str(error), param_hint="--model") from error
    return [Variant(choices[name] if name else None, model) for name in chosen_templates for model in chosen_models]


class Compactions:
    """Compacts with one variant, and measures what that costs.

    An answer that is no summary counts as rejected, and the deterministic summary takes its place, as on a server.

    :param advance: is called with 1 after each compaction
    """

    def __init__(
        self,
        parts: Worker,
        strategy: Strategy,
        variant: Variant,
        meter: Meter,
        *,
        advance: Callable[[int], None],
    ) -> None:
        self._parts = parts
        self._strategy = strategy
        self._variant = variant
        self._advance = advance
        from tidemark.features.offline.feature import offline_service

        self._offline = offline_service(parts)
        self._templates: dict[str, None] = {}
        self.meter = meter
        self.rejections: Counter[str] = Counter()
        """How often answers were no summary, by the reason."""
        parts.upstream.note_completions(meter.note)

    @property
    def label(self) -> tuple[str, str]:
        """Return the template and the model, as a table names them: those that were asked, if none is stated."""
        stated = None if self._variant.model == AUTO else self._variant.model
        return ", ".join(self._templates) or "-", stated or ", ".join(self.meter.models) or "-"

    async def count(self, body: bytes) -> bytes:
        return await self._offline.count(body)

    async def compact(self, body: bytes, max_tokens: int) -> bytes:
        """Compact a chat request.

        :raises TidemarkError: it cannot be compacted so far, or the upstream gave no answer
        """
        offline = self._offline
        request = await offline.dialect.parse(body, anonymous=True)
        chosen = self._chosen(request.model)
        with self.meter.timed():
            try:
                done = await offline.compact_request(request, max_tokens, self._strategy, sender(), chosen)
            except SummaryRejected as error:
                self._reject(error)
                done = await offline.compact_request(request, max_tokens, "extractive", sender())
        self._advance(1)
        return done

    async def details(self, body: bytes, compacted: bytes) -> Sequence[Detail]:
        """Compare a request with its compacted form, as loss receipts do."""
        from tidemark.summarizers.receipts import ReceiptWriter

        parse = self._offline.dialect.parse
        before, after = await parse(body, anonymous=True), await parse(compacted, anonymous=True)
        return await ReceiptWriter().details(before.messages, "", "\n".join(message.text for message in after.messages))

    def _chosen(self, model: str) -> Mapping[str, Any]:
        chosen = self._variant.chosen
        self._templates[_name_of(chosen.get("template", self._parts.settings.policy_for(model).template))] = None
        return chosen

    def _reject(self, error: TidemarkError) -> None:
        self.meter.note_rejected()
        self.rejections[str(error)] += 1


def _names(listed: str | None) -> Sequence[str | None]:
    """Return the names of a list with commas, each once; None alone for no list."""
    if listed is None:
        return [None]
    return list(dict.fromkeys(name.strip() for name in listed.split(",")))


def _templates(settings: Settings) -> Mapping[str, str | Template]:
    """Return the templates that ship, and the configuration's own by the names of their files."""
    models = ("", *settings.compaction.models, *(entry.name for entry in settings.model_list))
    configured = (settings.policy_for(model).template for model in models)
    own = {template.name.partition("@")[0]: template for template in configured if isinstance(template, Template)}
    return {name: name for name in get_args(TemplateName)} | own


def _name_of(template: str | Template) -> str:
    return template if isinstance(template, str) else template.name
