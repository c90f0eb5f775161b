"""One request for a page: who visits, what a form holds, and the responses that a page can return.

``pages.py`` makes a visit for each request, and the families of pages answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tidemark.console.live_parts import PARTS_HEADER, LiveParts, read_shown_marks
from tidemark.console.rendering import render
from tidemark.console.sessions import Session
from tidemark.core.errors import BodyTooLarge, InvalidRequest, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.server.encodings import read_plain_body

MAX_FORM_BYTES = 1_048_576
"""The largest form; an edited summary is the longest field."""
MAX_FIELDS = 200
FORM_TYPE = "application/x-www-form-urlencoded"


@frozen
class Visit:
    """A request for a page, by somebody who may see it."""

    request: Request
    session: Session
    form_token: str
    """The value of the field ``csrf`` that each form of the page sends back."""
    needs_sign_in: bool
    form: Mapping[str, str] = field(default_factory=dict)
    """The fields of a form that was sent; empty for a page that is only opened."""

    @property
    def parts(self) -> LiveParts:
        """Return the live parts of a page that is rendered now."""
        return LiveParts(read_shown_marks(self.request.headers.get(PARTS_HEADER)))

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page, or those of its live parts that the page's script asks for.

        :param template: its file below ``templates/``
        """
        facts = {"path": self.request.url.path, "csrf": self.form_token, "can_sign_out": self.needs_sign_in}
        parts = self.parts
        body = render(template, **{**facts, "parts": parts, **values})
        if parts.are_asked_for:
            return Response(parts.changed(), status, {PARTS_HEADER: "changed"}, "text/html")
        return Response(body, status, media_type="text/html")

    def parameter(self, name: str) -> str:
        """Return a parameter of the page's address; empty without one."""
        return self.request.query_params.get(name, "")


def go_to(path: str, **parameters: str) -> Response:
    """Return a response that opens another page of the console, after a form was sent (RFC 9110, section 15.4.4)."""
    return RedirectResponse(path + ("?" + urlencode(parameters) if parameters else ""), 303)


def words_for_form(error: TidemarkError) -> str:
    """Return an error's words for somebody who fills in a form: the API's null is an empty field there."""
    return str(error).replace("or null to reset it", "or nothing")


async def read_form(request: Request) -> Mapping[str, str]:
    """Read the fields of a form; of several with one name, the last.

    :raises InvalidRequest: the body is no form, or has too many fields
    :raises BodyTooLarge: it is larger than ``MAX_FORM_BYTES``
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM_TYPE:
        raise InvalidRequest(f"A form of the console is sent as {FORM_TYPE}.")
    try:
        body = await read_plain_body(request, MAX_FORM_BYTES)
    except BodyTooLarge as error:
        raise BodyTooLarge(
            "The form is larger than 1 MB, the most that a page takes. Go back and shorten it."
        ) from error
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidRequest("The form cannot be read: it must be UTF-8, with at most 200 fields.") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}
