"""One request for a page: who visits, what a form holds, and the responses that a page can return.

``pages.py`` makes a visit for each request, and the families of pages answer it.

A page has parts that change while it is open, and its script asks for the changed ones only. A part is an element with
an id and a mark, which changes with its content. The script names the parts that it shows with their marks in
``PARTS_HEADER``, and the answer has nothing but newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tidemark.console.rendering import render
from tidemark.console.sessions import Session
from tidemark.core.errors import BodyTooLarge, InvalidRequest, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.server.encodings import read_plain_body
from tidemark.server.guarding import Announce, Announcement, Visitor

MAX_FORM_BYTES = 1_048_576
"""The largest form; an edited summary is the longest field."""
MAX_FIELDS = 200
FORM_TYPE = "application/x-www-form-urlencoded"
PARTS_HEADER = "x-console-parts"
"""``id=mark,id=mark``. A request without it gets the whole page; an answer that has it has parts only."""
MAX_PARTS = 100
_MARK_BYTES = 6
_WORDS_OF_TIMES = re.compile(r"(?<=>)[^<>]*(?=</time>)")
"""They change with every minute, and the script keeps them up to date by itself."""
_TABLE_TAGS = frozenset({"tbody", "tr"})
"""A parser of HTML drops these outside of a table."""

Entry = TypeVar("Entry")


@frozen
class Trouble:
    """What does not work now, and what to do."""

    what: str
    then: str


@frozen
class Visit:
    """A request for a page, by somebody who may see it."""

    request: Request
    session: Session
    visitor: Visitor
    form_token: str
    """The value of the field ``csrf`` that each form of the page sends back."""
    needs_sign_in: bool
    form: Mapping[str, str] = field(default_factory=dict)
    """The fields of a form that was sent; empty for a page that is only opened."""
    troubles: Sequence[Trouble] = ()
    """What the banner of every page says."""
    announcement: Announcement | None = None
    """The entry of the audit log; None if the visit has none."""

    @property
    def announce(self) -> Announce:
        """Return what makes the entry of a form whose rule says ``by_handler``."""
        if self.announcement is None:
            raise RuntimeError("no rule has the audit log name this form")
        return self.announcement.make

    @property
    def caller(self) -> Caller | None:
        """Return whose conversations the visitor reaches; None for the operator, who reaches all.

        :raises Forbidden: it is an auditor, who reaches none
        """
        return self.visitor.caller

    @property
    def parts(self) -> LiveParts:
        """Return the live parts of a page that is rendered now."""
        return LiveParts(read_shown_marks(self.request.headers.get(PARTS_HEADER)))

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page, or those of its live parts that the page's script asks for.

        :param template: its file below ``templates/``
        """
        facts: dict[str, Any] = {
            "path": self.request.url.path,
            "csrf": self.form_token,
            "can_sign_out": self.needs_sign_in,
        }
        facts |= {"role": self.visitor.role, "troubles": self.troubles}
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


@dataclass(slots=True)
class LiveParts:
    """The parts of one page: what the visitor shows, and what the answer has.

    :param shown_marks: the marks of the parts that the visitor shows, by their ids; None when the page is opened
    """

    shown_marks: Mapping[str, str] | None = None
    _changed: list[Markup] = field(default_factory=list)
    _rendered: set[str] = field(default_factory=set)
    _depth: int = 0

    @property
    def are_asked_for(self) -> bool:
        """Whether the answer has parts only."""
        return self.shown_marks is not None

    def are_wanted(self, identifier: str) -> bool:
        """Return whether the visitor wants a part: with the whole page each, else those that are shown."""
        return self.shown_marks is None or identifier in self.shown_marks

    def live(
        self,
        identifier: str,
        caller: Callable[[], str],
        *,
        tag: str = "div",
        mark: str = "",
        after: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Markup:
        """Render a part, for ``{% call %}`` in a template.

        :param mark: what changes with the content; without one, a digest of the content
        :param attributes: others of its element; those of False are left out
        :param after: the id of the element that this part follows; such a part may come and go
        """
        if not after and not self._depth and not self.are_wanted(identifier):
            return Markup()
        self._rendered.add(identifier)
        self._depth += 1
        try:
            body = Markup(caller())  # noqa: S704 - the template has escaped what it holds
        finally:
            self._depth -= 1
        all_attributes = {name: value for name, value in (attributes or {}).items() if value is not False} | (
            {"data-after": after} if after else {}
        )
        mark = mark or _digest(f"{all_attributes}{_WORDS_OF_TIMES.sub('', body)}")
        written = Markup("").join(Markup(' {}="{}"').format(*pair) for pair in all_attributes.items())
        part = Markup('<{0} id="{1}" data-live="{2}"{3}>{4}</{0}>').format(tag, identifier, mark, written, body)
        if self.shown_marks is not None and not self._depth and self.shown_marks.get(identifier) != mark:
            self._changed.append(Markup("<table>{}</table>").format(part) if tag in _TABLE_TAGS else part)
        return part

    def live_rows(self, identifier: str, entries: Mapping[str, Entry], caller: Callable[[Entry], str]) -> Markup:
        """Render the body of a table whose rows are parts, for ``{% call(entry) %}`` in a template.

        A changed row comes by itself. The body comes if rows were added, moved or removed: of a row that the visitor
        shows it has the place only.

        :param entries: what each row shows, by the row's id
        """
        shown_rows = [name for name in entries if name in (self.shown_marks or ())]
        for name in shown_rows:
            self.live(name, partial(caller, entries[name]), tag="tr")

        def ordered_rows() -> Markup:
            return Markup("\n").join(
                Markup('<tr id="{}" data-same></tr>').format(name)
                if name in shown_rows
                else self.live(name, partial(caller, entry), tag="tr")
                for name, entry in entries.items()
            )

        order = {"data-order": self.are_asked_for and ""}
        return self.live(identifier, ordered_rows, tag="tbody", mark=_digest(" ".join(entries)), attributes=order)

    def changed(self) -> bytes:
        """Return the newer parts, and an empty element for each part that is no more."""
        removed = [
            Markup('<div id="{}" data-live data-gone></div>').format(identifier)
            for identifier in self.shown_marks or ()
            if identifier not in self._rendered
        ]
        return "\n".join([*self._changed, *removed]).encode("utf-8", "replace")


def _digest(content: str) -> str:
    return blake2b(content.encode("utf-8", "replace"), digest_size=_MARK_BYTES).hexdigest()


def read_shown_marks(header: str | None) -> Mapping[str, str] | None:
    """Read the header of a request; what is no part in it is left out."""
    if header is None:
        return None
    pairs = (pair.partition("=") for pair in islice(header.split(","), MAX_PARTS))
    return {name.strip(): mark.strip() for name, _, mark in pairs if name.strip()}
