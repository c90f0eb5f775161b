"""``POST /tidemark/conversations/search``: a credential finds its own conversations, by words, model and state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import Console
from tests.request.conftest import Client
from tests.request.talk import history, user

PATH = "/tidemark/conversations/search"


def search(client: Client, body: Any, parameters: str = "") -> Any:
    """Send a search; return its answer."""
    return client.http.post(PATH + parameters, json=body, headers=client.headers()).json()


def test_a_credential_finds_its_own_conversations_only(console: Console) -> None:
    """By words of a message; another credential's are never among them."""
    own, other = console.client("one"), console.client("two")
    mine = own.chat([user("Where is the lighthouse?")]).headers["x-tidemark-conversation"]
    other.chat([user("The lighthouse is closed.")])
    own.chat([user("Where is the harbour?")])
    answer = search(own, {"query": "LIGHTHOUSE"})
    assert [row["id"] for row in answer["data"]] == [mine]
    assert (answer["searched"], answer["has_more"]) == (2, False)


def test_pages_of_a_search_go_on_at_the_cursor(console: Console) -> None:
    """With the same filters."""
    client = console.client()
    stored = [client.chat([user(f"Question {place}")]).headers["x-tidemark-conversation"] for place in range(5)]
    wanted = {"query": "question", "model": "small", "state": "whole"}
    pages, cursor = list[list[str]](), ""
    while not pages or cursor:
        answer = search(client, wanted, f"?limit=2{cursor and '&cursor='}{cursor}")
        pages.append([row["id"] for row in answer["data"]])
        cursor = answer["next_cursor"] or ""
    assert [one for page in pages for one in page] == stored[::-1]


def test_rows_say_what_is_summarized_and_how_full_the_context_is(console: Console) -> None:
    """As the console's list does."""
    client = console.client()
    client.chat(history(12), summarize="force")
    (row,) = search(client, {"state": "summarized"})["data"]
    assert row["summarized_messages"] > 0
    assert 0 < row["usage_percent"] < 100


@pytest.mark.parametrize(
    ("body", "param"),
    [({"state": "old"}, "state"), ({"words": "x"}, "words"), ({"query": 1}, "query"), ({"query": "x" * 1001}, "query")],
)
def test_a_wrong_search_is_refused_by_its_member(console: Console, body: Any, param: str) -> None:
    """With the name of it."""
    answer = search(console.client(), body)
    assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", param)
