"""The page of keys: a secret is shown by the answer to its form, and by no page after it."""

from __future__ import annotations

import html
import re

import httpx

from tests.console.conftest import Console, Visitor
from tests.request.talk import user

KEYS = "/console/keys"


def secret_of(answer: httpx.Response) -> str:
    """The secret on a page."""
    found = re.findall(r"<code>(sk-tm-\w+)</code>", answer.text)
    assert len(found) == 1, answer.text
    return str(found[0])


def address_of(visitor: Visitor, name: str) -> str:
    """The page of a key."""
    link = re.search(rf'href="(/console/keys/\w+)">{name}<', visitor.get(KEYS).text)
    assert link is not None
    return str(link[1])


def test_a_key_is_made_rotated_and_revoked(console: Console) -> None:
    """The secret is on no other page, nor in an address or a cache."""
    visitor = console.visitor()
    answer = visitor.send(KEYS, at=KEYS, name="app", models="small, small-*", requests_per_minute="5")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    secret, page = secret_of(answer), address_of(visitor, "app")
    for path in (KEYS, page):
        assert secret not in visitor.get(path).text
    assert "small, small-*" in visitor.get(KEYS).text
    assert "Requests a minute: 5" in visitor.get(KEYS).text
    rotated = visitor.send(f"{page}/rotate", at=page, grace_hours="2")
    assert secret_of(rotated) != secret
    assert "is accepted until" in rotated.text
    revoked = visitor.send(f"{page}/revoke", at=page)
    assert (revoked.status_code, revoked.headers["location"]) == (303, "/console/keys?revoked=app")
    assert "There is no key yet" in visitor.get(KEYS).text
    assert visitor.get(page).status_code == 404


def test_a_refused_form_keeps_what_was_entered_and_says_which_field_is_wrong(console: Console) -> None:
    """Nothing is made."""
    visitor = console.visitor()
    for fields, name, words in (
        ({"name": "app", "expires": "2001-01-01"}, "expires", "is in the past"),
        ({"name": "", "tenant": "shop"}, "name", "Missing required parameter: 'name'"),
        ({"name": "app", "concurrent": "many"}, "concurrent", "whole number"),
    ):
        answer = visitor.send(KEYS, at=KEYS, **fields)
        assert answer.status_code == 400
        text = html.unescape(answer.text)
        assert words in text
        assert re.search(rf'id="{name}"[^>]*aria-invalid="true"', text)
        assert all(f'value="{value}"' in text for value in fields.values() if value)
    assert "There is no key yet" in visitor.get(KEYS).text


def test_a_form_without_its_token_makes_no_key(console: Console) -> None:
    """Another site could send it."""
    visitor = console.visitor()
    visitor.http.post(KEYS, data={"csrf": "0" * 32, "name": "app"})
    assert "There is no key yet" in visitor.get(KEYS).text
    assert console.visitor(signed_in=False).http.get(KEYS).status_code == 303


def test_names_are_texts_and_never_markup(console: Console) -> None:
    """An operator may paste anything; a wrong number of hours is told."""
    visitor = console.visitor()
    visitor.send(KEYS, at=KEYS, name="<script>alert(1)</script>", tenant="<b>")
    assert "<script>alert" not in visitor.get(KEYS).text
    page = next(iter(re.findall(r"/console/keys/\w+", visitor.get(KEYS).text)))
    refused = visitor.send(f"{page}/rotate", at=page, grace_hours="soon")
    assert refused.status_code == 400
    assert "must be a number" in refused.text


def test_a_key_of_the_page_is_a_key_of_clients_only_where_they_are_asked_for_one(console: Console) -> None:
    """In ``passthrough`` it goes upstream like any other, and the page says so."""
    visitor = console.visitor()
    assert "auth: {mode: keys}" in visitor.get(KEYS).text
    secret = secret_of(visitor.send(KEYS, at=KEYS, name="app"))
    assert console.client(secret).chat([user("Hello.")]).status_code == 200
