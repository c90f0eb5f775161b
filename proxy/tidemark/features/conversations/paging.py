"""Reads the query parameters of a list: ``limit``, ``cursor``, and other whole numbers.

The endpoints of stored conversations use it.
"""

from __future__ import annotations

from starlette.requests import Request

from tidemark.core.errors import InvalidRequest
from tidemark.features.conversations.pages import Page

DEFAULT_PAGE_ENTRIES = 50
MAX_PAGE_ENTRIES = 200


def page_of(request: Request) -> Page:
    """Return the page that a request asks for.

    :raises InvalidRequest: ``limit`` is no number in its range
    """
    limit = number_of(request, "limit", least=1, most=MAX_PAGE_ENTRIES)
    return Page(limit or DEFAULT_PAGE_ENTRIES, request.query_params.get("cursor"))


def number_of(request: Request, name: str, *, least: int, most: int) -> int | None:
    """Return a query parameter as a whole number; None if the request does not have it.

    :raises InvalidRequest: it is no number in its range
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise InvalidRequest(f"'{name}' must be a whole number from {least} to {most}.", param=name)
    return int(text)
