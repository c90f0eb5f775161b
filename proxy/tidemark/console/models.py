"""``/console/models``: every known model with its settings, which are edited in place.

It shows and changes what ``/tidemark/models`` and ``tidemark models`` do. The registry checks what is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from starlette.responses import Response

from tidemark.console.pages import Answer
from tidemark.console.visit import Visit, go_to, words_for_form
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest, ModelConflict
from tidemark.core.frozen import frozen
from tidemark.core.ports import NO_CREDENTIAL
from tidemark.features.model_registry.registry import ModelRegistry
from tidemark.server.errors import status_of

MODELS = "/console/models"
FIELDS: Mapping[str, str] = {
    "context_window": "Context window",
    "max_output_tokens": "Longest reply",
    "threshold": "Threshold",
    "retention_tokens": "Retention",
}
"""The fields of a form, with their labels."""
_INPUT_LENGTH = "max_input_tokens"
"""A field without an input of its own: the page shows one window. Its errors are shown with the window's."""


@frozen
class _Refusal:
    """A form that was refused: what it held, and why."""

    model: str
    entered: Mapping[str, str]
    message: str
    param: str | None
    """The field at fault; None for the model as a whole."""


@frozen
class _Row:
    """A model, as the page shows it."""

    model: Mapping[str, Any]
    """The registry's description."""
    entered: Mapping[str, str]
    """What the inputs hold, by field."""
    error: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Messages by field."""


@frozen
class ModelPages:
    """Shows and changes models, as the operator."""

    registry: ModelRegistry
    typed: Callable[[str], JsonValue]
    """Returns the value of a typed text, as the command line reads it."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [("GET", MODELS, self._show), ("POST", MODELS, self._change)]

    async def _show(self, visit: Visit) -> Response:
        return await self._page(visit, saved=visit.parameter("saved"))

    async def _change(self, visit: Visit) -> Response:
        """Save the fields of a form, or reset the model; an input without a value resets its field."""
        name, entered = visit.form.get("model", ""), {key: visit.form.get(key, "").strip() for key in FIELDS}
        try:
            if visit.form.get("action") == "reset":
                await self.registry.reset(name, NO_CREDENTIAL, None)
            else:
                fields: dict[str, JsonValue] = {
                    key: self.typed(text) if text else None for key, text in entered.items()
                }
                version = visit.form.get("version")
                await self.registry.change(name, {**fields, "version": version}, NO_CREDENTIAL, None)
        except (InvalidRequest, ModelConflict) as error:
            param = error.param if isinstance(error, InvalidRequest) else None
            refusal = _Refusal(
                name, entered, words_for_form(error), "context_window" if param == _INPUT_LENGTH else param
            )
            return await self._page(visit, status_of(error), refusal)
        return go_to(MODELS, saved=name)

    async def _page(
        self, visit: Visit, status: int = 200, refusal: _Refusal | None = None, saved: str = ""
    ) -> Response:
        listed: Any = (await self.registry.listed(NO_CREDENTIAL, None))["data"]
        rows = [_row(model, refusal) for model in listed]
        known = {row.model["id"] for row in rows}
        return visit.page("models.html", status, rows=rows, labels=FIELDS, saved=saved if saved in known else "")


def _row(model: Mapping[str, Any], refusal: _Refusal | None) -> _Row:
    """Return a model's row; after a refusal its inputs hold what was entered, and its version is the newest one."""
    if refusal is None or refusal.model != model["id"]:
        values = {key: _written(model["overrides"].get(key)) for key in FIELDS}
        return _Row(model, values)
    if refusal.param in FIELDS:
        return _Row(model, refusal.entered, errors={str(refusal.param): refusal.message})
    return _Row(model, refusal.entered, error=refusal.message)


def _written(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"
