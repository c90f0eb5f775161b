"""What a summary lost is reported: in each response, in the log, in the lists, and word for word on demand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.features.summaries.test_changed_summaries import FIRST, ask, change, in_use, stored, summarized, writes
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, user

RULES = "Never touch the production database. Ticket OPS-4411 is about proxy/core/plan.py."


def talk() -> list[Said]:
    """A conversation whose first message is worth keeping."""
    return [user(RULES), assistant("I see."), *history(6), user("And now?")]


def receipts(client: Client, conversation: str, key: str = "", **query: Any) -> Any:
    """The answer to a question for receipts."""
    headers = {"authorization": f"Bearer {key}"} if key else client.headers()
    return client.http.get(f"/tidemark/conversations/{conversation}/receipts", params=query, headers=headers)


def compacted(client: Client, said: list[Said]) -> tuple[str, str]:
    """A turn with a new summary: the conversation's id, and what the response says of the summary."""
    got = client.chat(said, summarize="force")
    assert got.headers["x-tidemark-action"] == "forced", dict(got.headers)
    return got.headers["x-tidemark-conversation"], got.headers["x-tidemark-kept"]


def test_each_response_with_a_summary_says_what_the_summary_has(client: Client) -> None:
    """Of what was said, by kind, also where the summary is used again."""
    _, line = compacted(client, talk())
    assert line.startswith("rules 1/1")
    assert "identifiers " in line
    again = client.chat(talk())
    assert (again.headers["x-tidemark-action"], again.headers["x-tidemark-kept"]) == ("reused", line)


def test_a_request_without_a_summary_has_no_receipt(client: Client) -> None:
    """There is nothing to say."""
    assert "x-tidemark-kept" not in client.chat([user(RULES)]).headers


def test_what_was_lost_is_named(bench: Bench, client: Client) -> None:
    """Against the stored messages: each lost detail with its kind, and the numbers of all."""
    conversation = summarized(bench, client, talk())
    change(client, conversation, text="The talk was about a database. Nothing else was said.")
    (receipt,) = receipts(client, conversation).json()["data"]
    assert receipt["in_use"]
    assert receipt["kept"]["rules"] == {"total": 1, "kept": 0, "shortened": 0, "dropped": 1}
    lost = {(loss["kind"], loss["text"], loss["survival"]) for loss in receipt["lost"]}
    assert ("rules", "Never touch the production database.", "dropped") in lost
    assert ("identifiers", "OPS-4411", "dropped") in lost
    assert ("files", "proxy/core/plan.py", "dropped") in lost
    assert in_use(client, conversation)["kept"]["rules"]["dropped"] == 1


def test_an_edited_summary_is_compared_again(bench: Bench, client: Client) -> None:
    """A person who puts a rule back sees it counted."""
    conversation = summarized(bench, client, talk())
    change(client, conversation, text=f"{FIRST}\nNever touch the production database.")
    assert in_use(client, conversation)["kept"]["rules"] == {"total": 1, "kept": 1, "shortened": 0, "dropped": 0}


def test_receipts_of_a_cascade_come_by_pages(bench: Bench, client: Client) -> None:
    """Oldest first, each against all messages that its summary stands for."""
    said = talk()
    conversation = summarized(bench, client, said)
    said.append(user("Avoid tabs in proxy/core/plan.py."))
    bench.upstream.script = writes("The second summary.")
    stored(client, said)
    assert ask(client, conversation, "summarize", {"retention_tokens": 0}).status_code == 200
    page = receipts(client, conversation, limit=1).json()
    assert page["has_more"]
    rest = receipts(client, conversation, cursor=page["next_cursor"]).json()
    first, second = page["data"][0], rest["data"][0]
    assert first["summarized_messages"] < second["summarized_messages"]
    assert (first["kept"]["rules"]["total"], second["kept"]["rules"]["total"]) == (1, 2)


@pytest.mark.parametrize("limit", ["0", "x", "201"])
def test_a_limit_of_nonsense_is_refused(client: Client, limit: str) -> None:
    """As for every list."""
    got = receipts(client, "0" * 48, limit=limit)
    assert (got.status_code, got.json()["error"]["param"]) == (400, "limit")


def test_nobody_reads_another_tenants_receipts(bench: Bench, client: Client) -> None:
    """They are answered as ids of nothing are."""
    conversation = summarized(bench, client, talk())
    got, nothing = receipts(client, conversation, key="another"), receipts(client, "0" * 48)
    assert got.status_code == nothing.status_code == 404
    assert json.loads(got.text)["error"]["code"] == json.loads(nothing.text)["error"]["code"]
