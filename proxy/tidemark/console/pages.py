"""Answers requests for pages: it checks who visits, reads forms, and turns errors into pages.

``app/application.py`` gives it the families of pages. Every response has headers that keep out other sites, and
scripts in messages (CSP level 3).

The files of ``static/``, styles, scripts and icons, are all ours and need no network. They hold nothing secret, so they
need no session; a browser caches them until the program's version changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.console.rendering import render
from tidemark.console.sessions import COOKIE, IDLE_SECONDS, Session, Sessions, is_from_own_page
from tidemark.console.visit import MAX_FIELDS, Trouble, Visit, go_to, read_form
from tidemark.core.errors import ConversationNotFound, Forbidden, InvalidRequest, StoreUnavailable, TidemarkError
from tidemark.core.events import Role
from tidemark.core.frozen import frozen
from tidemark.server.asgi import CLIENT_GONE, ClientGone
from tidemark.server.errors import error_lines, status_of
from tidemark.server.guarding import RouteGuard, RouteRule, Visitor

Answer = Callable[[Visit], Awaitable[Response]]
"""Answers one request of one path and method."""
HOME = "/console"
CONVERSATIONS = "/console/conversations"
EVENTS = "/console/events"
"""What happens to all conversations; the pages' script listens to it."""
SIGN_IN = "/console/login"
SIGN_OUT = "/console/logout"
ANY_PAGE = "/console/{path:path}"
NOT_KNOWN = "This is no token of this server, and no key that owns a conversation here. Nothing was changed."
CONTENT_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
OLD_FORM = "Your session had ended, or the form was of an earlier one. Nothing was changed."
FOREIGN_FORM = "The form was not sent by a page of this console. Nothing was changed, and nothing of it is kept."
STORE_AWAY = "The store did not answer, so this is not known to be done. Send it again when the store is back."
_UNSEEN_FIELDS = ("version", "cursor", "preview")
SECURE_HEADERS = (
    (b"content-security-policy", CONTENT_POLICY),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_CACHED = {"cache-control": "no-cache"}


class PageFamily(Protocol):
    """A family of pages."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        """Return the method, path and answer of each page and form."""
        ...


@frozen
class ConsolePages:
    """Serves the pages. It has no state of its own."""

    sessions: Sessions
    families: Sequence[PageFamily]
    guard: RouteGuard
    troubles: Callable[[], Sequence[Trouble]] = tuple
    """Returns what does not work now; tenants are not told."""
    openid: bool = False
    """Whether the sign-in leads to a provider of OpenID, too."""

    def routes(self) -> list[BaseRoute]:
        """Return a route for each page and form, for signing in and out, and for the files of ``static/``."""
        pages = [
            Route(path, self._guarded(answer, method, path), methods=[method])
            for family in self.families
            for method, path, answer in family.answers()
        ]
        return [
            Route("/", _lead_browsers, methods=["GET"]),
            Route(SIGN_IN, self.secured(self._show_sign_in), methods=["GET"]),
            Route(SIGN_IN, self.secured(self._sign_in), methods=["POST"]),
            Route(SIGN_OUT, self._guarded(_sign_out, "POST", SIGN_OUT), methods=["POST"]),
            Route("/console/static/{name}", _serve_file, methods=["GET"]),
            *pages,
            Route(ANY_PAGE, self._guarded(_missing, "GET", ANY_PAGE), methods=["GET"]),
        ]

    def _guarded(self, answer: Answer, method: str, path: str) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that answers those whom the route's rule names, and asks others to sign in."""
        rule = self.guard.rule(method, path)

        async def handle(request: Request) -> Response:
            session, visitor = self.sessions.of(request), self.sessions.visitor(request)
            if visitor is None and self.sessions.needs_sign_in:
                return await self._to_sign_in(request)
            if visitor is None:
                raise Forbidden(
                    "Without an admin token the console answers on this machine only. Set TIDEMARK_ADMIN_TOKEN for the "
                    "server, restart it, and sign in."
                )
            form = await read_form(request) if request.method == "POST" else {}
            current = session or self.sessions.new(visitor)
            token = self.sessions.form_token(current)
            troubles = () if visitor.role == "tenant" else self.troubles()
            visit = Visit(request, current, visitor, token, self.sessions.needs_sign_in, form, troubles)
            is_made_here = session is not None and self.sessions.is_form_token(session, form.get("csrf", ""))
            if is_made_here or request.method != "POST":
                response = await self._answer(answer, rule, visit)
            elif is_from_own_page(request):
                response = _confirmation(visit)
            else:
                raise Forbidden(FOREIGN_FORM)
            renewed = current if session is None else self.sessions.renewed(current)
            if visit.parts.are_asked_for and request.method == "GET":
                renewed = None  # an open page asks by itself, so nobody need be there
            if renewed is not None and COOKIE not in response.headers.get("set-cookie", ""):
                self._write_cookie(request, response, renewed)
            return response

        return self.secured(handle)

    async def _answer(self, answer: Answer, rule: RouteRule, visit: Visit) -> Response:
        """Answer a visit once the audit log names it; what was refused or failed is named, too."""
        request, visitor = visit.request, visit.visitor
        fields = {**visit.form, **request.path_params}
        is_renewal = visit.parts.are_asked_for and request.method == "GET"
        try:
            announcement = await self.guard.admit(rule, visitor, request, fields, is_renewal=is_renewal)
        except StoreUnavailable as error:
            return _kept(visit, error)
        try:
            response = await _carry_out(answer, replace(visit, announcement=announcement))
        except Exception:
            if announcement is not None:
                announcement.note_failure()
            raise
        if announcement is not None and response.status_code >= 400:
            announcement.note_failure()
        return response

    def secured(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that turns errors into pages, and adds the headers of every page."""

        async def secured(request: Request) -> Response:
            try:
                response = await handle(request)
            except TidemarkError as error:
                response = self._error_page(request, error)
            except ClientGone:
                return Response(status_code=CLIENT_GONE)
            response.raw_headers.extend(line for line in SECURE_HEADERS if line[0].decode() not in response.headers)
            return response

        return secured

    def _error_page(self, request: Request, error: TidemarkError) -> Response:
        status = status_of(error)
        session = self.sessions.of(request)
        body = render(
            "error.html",
            path=request.url.path,
            again=_again(request, error),
            back=CONVERSATIONS if request.url.path.startswith(CONVERSATIONS + "/") else HOME,
            code=status,
            message=_words(error),
            csrf=self.sessions.form_token(session) if session else "",
            role=session.visitor.role if session else "operator",
            can_sign_out=bool(session) and self.sessions.needs_sign_in,
        )
        response = Response(body, status, media_type="text/html")
        response.raw_headers.extend(error_lines(error))
        return response

    async def _show_sign_in(self, request: Request) -> Response:
        if not self.sessions.needs_sign_in or self.sessions.of(request) is not None:
            return go_to(console_target(request.query_params.get("next", "")))
        return self._sign_in_page(request.query_params.get("next", ""))

    async def _sign_in(self, request: Request) -> Response:
        """Look at the token or key. The form has none of its own: no session exists that another site could use.

        Another site's page is refused: it could have a visitor work on as somebody else. A form that was sent after its
        session had ended is shown again, to be confirmed. Only the console's own sign-in may hand one on: another
        program could have a visitor confirm what it had written.
        """
        if not is_from_own_page(request) and {"sec-fetch-site", "origin"} & {*request.headers}:
            raise Forbidden(FOREIGN_FORM)
        form = await read_form(request)
        target, waiting = form.get("next", ""), form.get("waiting", "") if is_from_own_page(request) else ""
        visitor = await self.sessions.visitor_by(form.get("token", ""))
        if visitor is None:
            self.guard.note_refusal("sign-in.refused", Visitor("tenant"), request)
            return self._sign_in_page(target, 401, NOT_KNOWN, waiting)
        return await self.signed_in(request, visitor, go_to(console_target(target)), waiting, target)

    async def signed_in(
        self, request: Request, visitor: Visitor, response: Response, waiting: str = "", target: str = ""
    ) -> Response:
        """Begin a session, and name it in the audit log.

        :param waiting: the fields of a form that is confirmed first
        """
        session = self.sessions.new(visitor)
        await self.guard.note_sign_in(visitor, request)
        if waiting:
            fields = dict(parse_qsl(waiting, keep_blank_values=True, max_num_fields=MAX_FIELDS))
            token = self.sessions.form_token(session)
            response = _confirm(console_target(target), fields, token, can_sign_out=True, role=visitor.role)
        self._write_cookie(request, response, session)
        return response

    def _sign_in_page(self, target: str, status: int = 200, error: str = "", waiting: str = "") -> Response:
        """Return the sign-in.

        :param waiting: the fields of a form that is confirmed afterwards, as a browser sends them
        """
        values = {"next": target, "error": error, "waiting": waiting, "openid": self.openid}
        body = render("sign_in.html", path=SIGN_IN, csrf="", can_sign_out=False, role="tenant", **values)
        return Response(body, status, media_type="text/html")

    def sign_in_error(self, error: TidemarkError) -> Response:
        """Return the sign-in with what went wrong at the provider of OpenID; the token works all the same."""
        return self._sign_in_page("", status_of(error), str(error))

    async def _to_sign_in(self, request: Request) -> Response:
        """Send a visitor to the sign-in, and back to the page afterwards; what a form of the console holds is kept."""
        path = request.url.path
        if request.method == "POST" and not is_from_own_page(request):
            return self._sign_in_page(HOME, 401, FOREIGN_FORM)
        if request.method == "POST":
            fields = {name: text for name, text in (await read_form(request)).items() if name != "csrf"}
            error = "Your session has ended. Sign in to go on; what you entered is kept."
            return self._sign_in_page(quote(path), 401, error, urlencode(fields))
        return go_to(SIGN_IN, next=quote(path)) if path != HOME else go_to(SIGN_IN)

    def _write_cookie(self, request: Request, response: Response, session: Session) -> None:
        response.set_cookie(
            COOKIE,
            self.sessions.cookie(session),
            max_age=IDLE_SECONDS,
            path=HOME,
            secure=is_encrypted(request),
            httponly=True,
            samesite="strict",
        )


async def _carry_out(answer: Answer, visit: Visit) -> Response:
    """Answer a visit; a form that the store did not answer is shown once more, so that nothing of it is lost."""
    try:
        return await answer(visit)
    except StoreUnavailable as error:
        return _kept(visit, error)


def _kept(visit: Visit, error: StoreUnavailable) -> Response:
    """Return a form that is to be sent again once the store is back; without a form raise the error."""
    if visit.request.method != "POST":
        raise error
    response = _confirmation(visit, status_of(error), STORE_AWAY)
    response.raw_headers.extend(error_lines(error))
    return response


def _confirmation(visit: Visit, status: int = 403, reason: str = OLD_FORM) -> Response:
    """Return a page that shows a form which was not carried out, for the visitor to send it once more.

    Without a reason, its token is not this session's.
    """
    fields = {name: text for name, text in visit.form.items() if name != "csrf"}
    target, can_sign_out = visit.request.url.path, visit.needs_sign_in
    role = visit.visitor.role
    return _confirm(
        target, fields, visit.form_token, can_sign_out=can_sign_out, role=role, status=status, reason=reason
    )


def _confirm(
    target: str,
    fields: Mapping[str, str],
    form_token: str,
    *,
    can_sign_out: bool,
    role: Role,
    status: int = 200,
    reason: str = OLD_FORM,
) -> Response:
    values = {"fields": fields, "shown": _shown_fields(fields), "reason": reason}
    body = render("confirm.html", path=target, csrf=form_token, can_sign_out=can_sign_out, role=role, **values)
    return Response(body, status, media_type="text/html")


def _shown_fields(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a visitor entered, by readable names, without what the page itself had written into the form."""
    return {
        name.replace("_", " ").capitalize(): text
        for name, text in fields.items()
        if text and name not in _UNSEEN_FIELDS and (name, text) != ("action", "save")
    }


def console_target(wanted: str) -> str:
    """Return a page of the console; any other address would lead a visitor to another site after the sign-in."""
    path = unquote(wanted)
    is_page = path.startswith(HOME + "/") and path.isprintable() and not {"\\", "?", "#"} & set(path)
    return quote(path) if is_page and ".." not in path and not path.startswith(SIGN_IN) else HOME


def is_encrypted(request: Request) -> bool:
    """Return whether the visitor's connection has TLS, even if a reverse proxy ends it."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


async def _sign_out(visit: Visit) -> Response:
    response = go_to(SIGN_IN if visit.needs_sign_in else HOME)
    response.delete_cookie(COOKIE, path=HOME, httponly=True, samesite="strict")
    return response


def _words(error: TidemarkError) -> str:
    """Return what a page says of an error; the API's words if they are no other in a browser."""
    if isinstance(error, StoreUnavailable):
        return (
            f"{error} Requests of clients go on without it. Try again in a moment; the log and 'tidemark doctor' say "
            "more."
        )
    if isinstance(error, ConversationNotFound):
        return "There is no conversation of this id: it was forgotten, or it has expired. The list has the others."
    if isinstance(error, InvalidRequest) and error.param in ("cursor", "newer"):
        return "There is no such page of the list: the end of its address must be as a link of the list has it."
    return str(error)


def _again(request: Request, error: TidemarkError) -> str:
    """Return the address that may work next: the same page once the store is back, else without a bad parameter.

    It is empty if there is none.
    """
    url = request.url
    if request.method != "GET":
        return ""
    if isinstance(error, StoreUnavailable):
        return url.path + (f"?{url.query}" if url.query else "")
    return url.path if url.query and isinstance(error, InvalidRequest) else ""


async def _lead_browsers(request: Request) -> Response:
    """Lead who opens the server's address in a browser to the console; for a program there is nothing."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    return go_to(HOME)


async def _missing(visit: Visit) -> Response:
    return visit.page("error.html", 404, code=404, message="The console has no such page.", again="", back=HOME)


async def _serve_file(request: Request) -> Response:
    response = static_file(request.path_params["name"])
    response.raw_headers.extend(line for line in SECURE_HEADERS if line[0].decode() not in response.headers)
    return response


@cache
def _contents() -> dict[str, bytes]:
    folder = files("tidemark.console") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}


def static_file(name: str) -> Response:
    """Return a file; 404 if there is none of this name."""
    content = _contents().get(name)
    if content is None:
        return Response("There is no such file.", 404)
    return Response(content, 200, dict(_CACHED), media_type=_TYPES[name.rpartition(".")[2]])
