"""A conversation is found by its name, whatever characters that has: a client writes those of no path with percent."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.request.conftest import Client
from tests.request.talk import history, user


def ask(client: Client, method: str, name: str, part: str = "") -> tuple[int, object]:
    """Status and body of a request for a conversation by its name."""
    path = f"/tidemark/conversations/{quote(name, safe='')}{part}"
    answer = client.http.request(method, path, headers=client.headers())
    return answer.status_code, answer.text


@pytest.mark.parametrize("name", ["team/notes", "/", "a/export", "a//b/", "50%2F", "x?y#z", "../.."])
def test_a_name_may_have_any_character(client: Client, name: str) -> None:
    """Every path below it takes the whole name, and another conversation is not touched."""
    client.chat(history(6), conversation=name, summarize="force")
    client.chat([user("Another one.")], conversation="a")
    for method, part in (
        ("GET", ""),
        ("GET", "/context"),
        ("GET", "/summaries"),
        ("GET", "/receipts"),
        ("GET", "/search?q=word"),
        ("GET", "/export"),
        ("POST", "/summarize"),
        ("DELETE", ""),
    ):
        status, text = ask(client, method, name, part)
        assert status == 200, (method, part, text)
    assert ask(client, "GET", name)[0] == 404
    assert ask(client, "GET", "a")[0] == 200


def test_what_is_no_path_of_a_conversation_is_refused_as_before(client: Client) -> None:
    """A slash in another place, and a name that nobody has."""
    assert ask(client, "GET", "no/body")[0] == 404
    assert ask(client, "GET", "a", "%2Fexport/nowhere")[0] == 404
    assert ask(client, "PUT", "no/body")[0] == 405
