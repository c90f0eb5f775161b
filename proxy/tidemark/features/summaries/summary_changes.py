"""Change the summary that a stored conversation uses: preview another one, use the preview, or save an edited text.

``features/summaries/feature.py`` and the console call this. A changed summary takes the place of the one of its
prefix, so requests use it from the next one on, and later summaries continue it. The earlier text stays as a version.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import replace
from typing import cast, get_args

from tidemark.compaction.compactor import Compactor
from tidemark.compaction.order import NotSummarized
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.summary import (
    PrefixSummary,
    Strategy,
    SummaryText,
    TemplateName,
    render_summary,
    render_text,
)
from tidemark.core.errors import CompactionFailed, InvalidRequest, NoSummary, PreviewNotFound, SummaryConflict
from tidemark.core.events import Listener, SummaryReplaced
from tidemark.core.frozen import frozen
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import CompactionPolicy
from tidemark.core.ports import Caller, ChooseSummarizer, Clock, ConversationStore, TokenCounter
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.pages import SummaryInUse, SummaryPreview
from tidemark.features.summaries.compaction_requests import CompactionRequests
from tidemark.features.summaries.summarize import regeneration
from tidemark.pipeline.orders import order_of
from tidemark.pipeline.values import RequestContext
from tidemark.server.quotas import Quotas
from tidemark.store.previews import RedisPreviews
from tidemark.store.summary_replacement import RedisSummaryReplacement
from tidemark.summarizers.receipts import ReceiptWriter

STRATEGIES: tuple[str, ...] = get_args(Strategy)
TEMPLATES: tuple[str, ...] = get_args(TemplateName)
PREVIEW_SECONDS = 1800
"""How long a preview can be put into use."""
PREVIEW_BYTES = 16
LARGE_CHARACTERS = 20_000
"""A longer text is counted in a thread."""
_PREVIEW_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SHORT_TEXT = "text"
_LEAST_STEP_SECONDS = 0.001


@frozen
class PreviewOptions:
    """The options of a preview; None for what the configuration says."""

    conversation: str
    model: str | None = None
    """The model that writes the summary."""
    strategy: str | None = None
    template: str | None = None


@frozen
class _ConversationInUse:
    """A conversation, and the summary that its next request would use."""

    record: ConversationRecord
    context: RequestContext
    present: PrefixSummary


@frozen(kw_only=True)
class SummaryChanges:
    """Changes summaries; holds no state.

    :param comparison: writes the receipt of an edited text
    :param choose: builds the summarizer of a policy that a person chose
    """

    access: ArchiveAccess
    requests: CompactionRequests
    store: ConversationStore
    replacement: RedisSummaryReplacement
    previews: RedisPreviews
    compactor: Compactor
    counter: TokenCounter
    comparison: ReceiptWriter
    choose: ChooseSummarizer
    emit: Listener
    clock: Clock
    quotas: Quotas

    async def present(self, conversation: str, caller: Caller | None) -> SummaryInUse:
        """Return the summary that the conversation's next request would use.

        :param caller: None for the operator
        :raises ConversationNotFound: there is none of that id, or it is another tenant's
        :raises NoSummary: it has no summary
        """
        place = await self._place(conversation, caller)
        return self._shown(place, place.present)

    async def preview(self, options: PreviewOptions, caller: Caller | None) -> SummaryPreview:
        """Make the summary in use again, of the same messages; nothing uses the new one until somebody says so.

        :raises InvalidRequest: a strategy or template is unknown, or of no use together with the others
        :raises ModelNotFound: the model is not served
        :raises ConversationNotFound, NoSummary: see ``present``
        :raises CompactionFailed: the summarizer gave no usable text
        :raises RateLimitExceeded: the caller's quota is used up
        """
        _check(options)
        async with self.quotas.counted(caller):
            return await self._preview(options, caller)

    async def _preview(self, options: PreviewOptions, caller: Caller | None) -> SummaryPreview:
        if options.model is not None:  # the messages go to that model, so the caller must be the tenant there
            await self.access.record_for_summary(options.conversation, caller, options.model)
        place = await self._place(options.conversation, caller)
        policy = await self._policy(place.context, options, caller)
        profile = replace(place.context.profile, policy=policy)
        context = replace(place.context, profile=profile)
        planned = regeneration(context, place.present, await self.store.summaries(place.record.id))
        summarizer = self.choose(profile, context.route)
        answer = await self.compactor.preview(order_of(context, planned), summarizer, place.present.recipe)
        if isinstance(answer, NotSummarized):
            message = f"No preview could be made, and nothing was changed: {answer.reason}"
            raise CompactionFailed(message, retry_after=answer.retry_after)
        preview_id = secrets.token_bytes(PREVIEW_BYTES)
        owner = place.record.owner or place.record.tenant
        if not await self.previews.keep(
            place.record.id, preview_id, answer, place.present, PREVIEW_SECONDS, owner=owner
        ):
            raise PreviewNotFound
        present = self._shown(place, place.present)
        return SummaryPreview(preview_id.hex(), PREVIEW_SECONDS, self._shown(place, answer), present)

    async def use(self, conversation: str, preview_id: str, caller: Caller | None) -> SummaryInUse:
        """Put a preview into use as it was shown; using it twice changes nothing.

        :raises PreviewNotFound: it has expired, or is of another conversation
        :raises SummaryConflict: the summary that it was made to replace is not the one in use any more
        :raises ConversationNotFound, NoSummary: see ``present``
        """
        place = await self._place(conversation, caller)
        is_id = _PREVIEW_ID.fullmatch(preview_id) is not None
        pair = await self.previews.read(place.record.id, bytes.fromhex(preview_id)) if is_id else None
        if pair is None:
            raise PreviewNotFound
        shown, present = pair
        if replace(shown, created_at=place.present.created_at) == place.present:
            return self._shown(place, place.present)
        if present != place.present:
            raise SummaryConflict
        return await self._replace(place, shown)

    async def save(self, conversation: str, text: str, version: str | None, caller: Caller | None) -> SummaryInUse:
        """Put an edited text in the place of the summary in use; the text that stands there already changes nothing.

        :param version: of the summary that the person edited; None to replace whichever is in use
        :raises InvalidRequest: the text is empty, or has too many tokens
        :raises SummaryConflict: another summary is in use by now
        :raises ConversationNotFound, NoSummary: see ``present``
        """
        place = await self._place(conversation, caller)
        text = text.encode("utf-8", "replace").decode().strip()
        if text == place.present.text.strip():
            return self._shown(place, place.present)
        if version is not None and version != place.present.version:
            raise SummaryConflict
        tokens = await self._checked_tokens(place, text)
        stated = _still_stated(place.present.stated, text)
        edited = replace(
            place.present, text=text, edited=True, chosen=False, cause="manual", tokens=tokens, stated=stated
        )
        edited = replace(edited, native=None)  # the provider's own form has the text of before
        messages = [message for message in place.context.request.messages if not message.is_system]
        draft = SummaryText(text, "extractive")  # a person may add what nobody said
        receipt = await self.comparison.receipt(messages[: edited.covered], None, draft)
        return await self._replace(place, replace(edited, receipt=receipt))

    async def _place(self, conversation: str, caller: Caller | None) -> _ConversationInUse:
        record, route = await self.access.record_for_summary(conversation, caller, None)
        context = await self.requests.context(record, route, caller)
        if context.stored.summary is None or context.stored.summary.masked is not None:
            raise NoSummary
        return _ConversationInUse(record, context, context.stored.summary)

    async def _policy(
        self, context: RequestContext, options: PreviewOptions, caller: Caller | None
    ) -> CompactionPolicy:
        """Return the policy that a preview is made by.

        The operator has no credential of an upstream, and without a configured key only ``extractive`` works.
        """
        policy = context.profile.policy
        chosen = replace(
            policy,
            strategy=cast("Strategy", options.strategy or policy.strategy),
            template=options.template or policy.template,
            summarizer_model=options.model or policy.summarizer_model,
            summarizer_cache_friendly=policy.summarizer_cache_friendly and options.model is None,
        )
        is_chosen = options.model is not None or options.template is not None
        if chosen.strategy == "extractive" and is_chosen:
            name = "model" if options.model is not None else "template"
            raise InvalidRequest(f"'{name}' is of no use to the strategy extractive; choose llm or hybrid.", param=name)
        profile = replace(context.profile, policy=chosen)
        previewed = replace(context, profile=profile)
        if chosen.strategy == "extractive" or await self.requests.can_ask(previewed, caller):
            return chosen
        if options.strategy is None and not is_chosen:
            return replace(chosen, strategy="extractive")
        raise InvalidRequest(
            "The configuration has no key for the model that would write the summary. Add its api_key to model_list "
            "(any word, where its server wants none), or choose the strategy extractive.",
            param="strategy",
        )

    async def _checked_tokens(self, place: _ConversationInUse, text: str) -> int:
        """Return the tokens of a text's summary message.

        :raises InvalidRequest: the text is empty, or its message is beyond the bound of the conversation's model
        """
        most, frame = self._most_text_tokens(place), self._frame(place)
        allowed = f"A summary of this conversation may have 1 to {most} tokens"
        if not text:
            raise InvalidRequest(f"{allowed}, and this text is empty.", param="text", code="invalid_summary_length")
        message = render_text(text, place.present.covered, place.present.results)
        model = place.context.route.upstream_model
        count = self.counter.count_message
        tokens = (
            await asyncio.to_thread(count, message, model) if len(text) > LARGE_CHARACTERS else count(message, model)
        )
        if tokens - frame > most:
            raise InvalidRequest(
                f"{allowed}, and this text has {tokens - frame}.", param="text", code="invalid_summary_length"
            )
        return tokens

    async def _replace(self, place: _ConversationInUse, summary: PrefixSummary) -> SummaryInUse:
        """Store a summary in the place of the present one, from now on."""
        now = max(self.clock(), place.present.created_at + _LEAST_STEP_SECONDS)  # two texts never have one time
        summary = replace(summary, created_at=now)
        record = place.record
        await self.replacement.replace(record.tenant, record.id, summary, place.present)
        model = place.context.profile.name
        self.emit(
            SummaryReplaced(record.id, model, summary.edited, summary.covered, summary.tokens, record.owner or "")
        )
        return self._shown(place, summary)

    def _shown(self, place: _ConversationInUse, summary: PrefixSummary) -> SummaryInUse:
        count, context = place.context.count, place.context
        tokens = self.counter.count_message(render_summary(summary), context.route.upstream_model)
        tokens_of = {id(message): own for message, own in zip(context.request.messages, count.messages, strict=True)}
        remaining = sum(tokens_of.get(id(message), 0) for message in assemble(context.request.messages, summary))
        return SummaryInUse(
            conversation=place.record.id,
            summary=summary,
            text_tokens=tokens - self._frame(place),
            max_text_tokens=self._most_text_tokens(place),
            tokens_before=count.total,
            tokens_after=count.other_tokens + count.first_summary_tokens + tokens + remaining,
        )

    def _frame(self, place: _ConversationInUse) -> int:
        """Return the tokens of a summary message beside those of its text.

        A short text stands in it for the count, because the two marks of an empty one would be counted together.
        """
        model = place.context.route.upstream_model
        present = place.present
        whole = self.counter.count_message(render_text(_SHORT_TEXT, present.covered, present.results), model)
        return whole - self.counter.count_text(_SHORT_TEXT, model)

    def _most_text_tokens(self, place: _ConversationInUse) -> int:
        """Return the bound of a text: that of every summary of the conversation's model, without the frame."""
        return max(place.context.budget.max_summary - self._frame(place), 1)


def _still_stated(stated: str, text: str) -> str:
    """Return the ledger's lines that an edited text still states; what the person took out is taken back."""
    return "\n".join(line for line in stated.split("\n") if line.partition(": ")[2].lower() in text.lower())


def _check(options: PreviewOptions) -> None:
    """Check the names of a strategy and a template.

    :raises InvalidRequest: one is unknown
    """
    for name, value, choices in (
        ("strategy", options.strategy, STRATEGIES),
        ("template", options.template, TEMPLATES),
    ):
        if value is not None and value not in choices:
            raise InvalidRequest(f"'{name}' must be one of {', '.join(choices)}.", param=name)
