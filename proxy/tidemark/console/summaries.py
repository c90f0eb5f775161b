"""``/console/conversations/{id}/summaries``: make a conversation's summary again, compare both, use one, or edit it.

The pages do what ``tidemark/features/summaries/summary_changes.py`` does for the JSON API too. The conversation's own
page changes while it is open. So these are pages of their own, and no text is lost while somebody enters it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from starlette.responses import Response

from tidemark.console.differences import Piece, differences
from tidemark.console.pages import HOME, Answer
from tidemark.console.visit import Visit, go_to
from tidemark.core.errors import ConversationNotFound, InvalidRequest, ModelNotFound, NoSummary, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.features.conversations.pages import SummaryInUse
from tidemark.features.summaries.summary_changes import (
    PREVIEW_SECONDS,
    STRATEGIES,
    TEMPLATES,
    PreviewOptions,
    SummaryChanges,
)
from tidemark.server.errors import status_of

MAX_MODELS = 200
"""Names of models that the page offers; any other one can be entered."""
_SECONDS_A_MINUTE = 60
_PREVIEW_FIELDS = ("model", "strategy", "template")
_MISSING = (ConversationNotFound, NoSummary)


@frozen
class SummaryPages:
    """Shows the forms, and carries out what they ask for.

    :param models: the names of configured models
    """

    changes: SummaryChanges
    models: Sequence[str]

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        summaries = f"{HOME}/conversations/{{id}}/summaries"
        return [
            ("GET", f"{summaries}/regenerate", self._show_choices),
            ("POST", f"{summaries}/preview", self._preview),
            ("POST", f"{summaries}/use", self._use),
            ("GET", f"{summaries}/edit", self._show_text),
            ("POST", summaries, self._save),
        ]

    async def _show_choices(self, visit: Visit) -> Response:
        present = await self.changes.present(_conversation(visit), visit.caller)
        fields = {name: visit.parameter(name) for name in _PREVIEW_FIELDS}
        return self._choices(visit, fields, present=present)

    async def _preview(self, visit: Visit) -> Response:
        """Make a preview, and show it beside the summary in use."""
        conversation = _conversation(visit)
        fields = {name: visit.form.get(name, "").strip() for name in _PREVIEW_FIELDS}
        model, strategy, template = (fields[name] or None for name in _PREVIEW_FIELDS)
        try:
            preview = await self.changes.preview(PreviewOptions(conversation, model, strategy, template), visit.caller)
        except _MISSING:
            raise
        except TidemarkError as error:
            return self._choices(visit, fields, error=error)
        texts = (preview.present.summary.text, preview.shown.summary.text)
        marked = await asyncio.to_thread(differences, *texts)
        return self._choices(
            visit, fields, present=preview.present, shown=preview.shown, preview=preview.id, marked=marked
        )

    async def _use(self, visit: Visit) -> Response:
        """Put a preview into use, and return to the conversation."""
        try:
            await self.changes.use(_conversation(visit), visit.form.get("preview", ""), visit.caller)
        except _MISSING:
            raise
        except TidemarkError as error:
            return self._choices(visit, dict.fromkeys(_PREVIEW_FIELDS, ""), error=error)
        return go_to(_address(visit))

    async def _show_text(self, visit: Visit) -> Response:
        present = await self.changes.present(_conversation(visit), visit.caller)
        return _text_page(visit, present.summary.text, present.summary.version, present=present)

    async def _save(self, visit: Visit) -> Response:
        """Save an edited text, and return to the conversation. A text that is refused is shown again, to be mended."""
        conversation, text = _conversation(visit), visit.form.get("text", "")
        version = visit.form.get("version", "")
        try:
            await self.changes.save(conversation, text, version, visit.caller)
        except _MISSING:
            raise
        except TidemarkError as error:
            try:
                present = await self.changes.present(conversation, visit.caller)
            except TidemarkError:  # the store is away
                return _text_page(visit, text, version, error=error)
            return _text_page(visit, text, present.summary.version, present=present, error=error)
        return go_to(_address(visit))

    def _choices(
        self,
        visit: Visit,
        fields: Mapping[str, str],
        *,
        present: SummaryInUse | None = None,
        shown: SummaryInUse | None = None,
        preview: str = "",
        marked: tuple[Sequence[Piece], Sequence[Piece]] = ((), ()),
        error: TidemarkError | None = None,
    ) -> Response:
        """Return the page with the fields of a preview.

        :param fields: what stands in them
        :param shown: the new summary, whose id is ``preview``
        :param marked: the texts of both summaries, in pieces
        """
        wrong = "model" if isinstance(error, ModelNotFound) else ""
        if isinstance(error, InvalidRequest):
            wrong = error.param if error.param in _PREVIEW_FIELDS else ""
        return visit.page(
            "regenerate_summary.html",
            200 if error is None else status_of(error),
            address=_address(visit),
            fields=fields,
            models=self.models[:MAX_MODELS],
            strategies=STRATEGIES,
            templates=TEMPLATES,
            present=present,
            shown=shown,
            marked=marked,
            preview=preview,
            minutes=PREVIEW_SECONDS // _SECONDS_A_MINUTE,
            error=error,
            wrong=wrong,
        )


def _text_page(
    visit: Visit,
    text: str,
    version: str,
    *,
    present: SummaryInUse | None = None,
    error: TidemarkError | None = None,
) -> Response:
    """Return the page on which a text is edited.

    :param version: the summary that the text will replace
    :param present: the summary in use; None if it cannot be read now
    """
    status = 200 if error is None else status_of(error)
    address = _address(visit)
    return visit.page(
        "edit_summary.html", status, address=address, text=text, version=version, present=present, error=error
    )


def _conversation(visit: Visit) -> str:
    return str(visit.request.path_params["id"])


def _address(visit: Visit) -> str:
    """Return the path of the conversation's page."""
    return f"{HOME}/conversations/{quote(_conversation(visit), safe='')}"
