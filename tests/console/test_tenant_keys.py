"""With keys of Tidemark's own a session of the console lasts as long as its key, and may what the key may."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.conftest import TOKEN, Console, Visitor, consoled
from tests.features.keys.conftest import KEYED
from tests.request.talk import history, user
from tests.support.serving import NO_TLS


class Shop:
    """A console whose clients have keys."""

    def __init__(self, console: Console) -> None:
        self.console = console
        own = {"authorization": f"Bearer {TOKEN}"}
        self.operator = console.stack.enter_context(httpx.Client(base_url=console.url, headers=own, verify=NO_TLS))

    def create(self, name: str = "app", **fields: Any) -> dict[str, Any]:
        """Make a key."""
        return dict(self.operator.post("/tidemark/keys", json={"name": name, **fields}).json())

    def signed_in(self, key: str) -> Visitor:
        """A browser whose visitor has given a key."""
        visitor = self.console.visitor(signed_in=False)
        assert visitor.http.post("/console/login", data={"token": key}).status_code == 303
        return visitor

    def conversation(self, key: str) -> str:
        """One of a key's."""
        answer = self.console.client(key).chat([*history(6), user("sapphire")])
        self.console.settle()
        return answer.headers["x-tidemark-conversation"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A console of its own."""
    with consoled(tmp_path, config=KEYED) as console:
        yield Shop(console)


def is_in(visitor: Visitor) -> bool:
    """Whether a page is shown; else it leads to the sign-in."""
    answer = visitor.get("/console/conversations")
    assert answer.status_code in (200, 303)
    return answer.status_code == 200


def test_a_session_ends_with_its_key(shop: Shop) -> None:
    """By a revocation, by an expiry, or by a rotation; another key of the same tenant goes on."""
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    keys = [shop.create(name, tenant="shop") for name in ("revoked", "rotated", "other")]
    visitors = [shop.signed_in(key["key"]) for key in keys]
    assert all(map(is_in, visitors))
    shop.operator.delete(f"/tidemark/keys/{keys[0]['id']}")
    shop.operator.post(f"/tidemark/keys/{keys[1]['id']}/rotate", json={})
    assert list(map(is_in, visitors)) == [False, False, True]
    shop.operator.patch(f"/tidemark/keys/{keys[2]['id']}", json={"expires": soon})
    assert is_in(visitors[2])
    assert visitors[0].http.post("/console/conversations", data={"words": "x"}).status_code == 401


def test_a_session_goes_on_while_a_rotations_grace_lasts(shop: Shop) -> None:
    """As requests with the secret of before do."""
    key = shop.create()
    visitor = shop.signed_in(key["key"])
    shop.operator.post(f"/tidemark/keys/{key['id']}/rotate", json={"grace_hours": 1})
    assert is_in(visitor)
    shop.operator.post(f"/tidemark/keys/{key['id']}/rotate", json={"grace_hours": 1})
    assert not is_in(visitor)


def test_a_new_key_signs_in_before_it_has_stored_anything(shop: Shop) -> None:
    """It is known to be valid, so nobody has to send a request first."""
    assert is_in(shop.signed_in(shop.create()["key"]))


def test_the_console_asks_no_model_that_the_key_may_not(shop: Shop) -> None:
    """A summary by another model would be the operator's to pay for; the models of the key are asked."""
    key = shop.create(models=["small"])["key"]
    conversation = shop.conversation(key)
    visitor, page = shop.signed_in(key), f"/console/conversations/{conversation}"
    assert visitor.send(f"{page}/summarize", page, retention="0").status_code == 303
    received = len(shop.console.upstream.received)
    fields = {"model": "large", "strategy": "llm", "template": ""}
    refused = visitor.send(f"{page}/summaries/preview", page, **fields)
    assert refused.status_code == 403
    assert "large" in refused.text
    assert len(shop.console.upstream.received) == received
    assert visitor.send(f"{page}/summaries/preview", page, **{**fields, "model": "small"}).status_code != 403


def test_summaries_by_hand_count_against_the_keys_quota(shop: Shop) -> None:
    """In the console as in the API, so no page is a way around it."""
    key = shop.create(requests_per_minute=2)["key"]
    conversation = shop.conversation(key)
    visitor, page = shop.signed_in(key), f"/console/conversations/{conversation}"
    assert visitor.send(f"{page}/summarize", page, retention="0").status_code == 303
    over = visitor.send(f"{page}/summarize", page, retention="0")
    assert "2 requests within a minute" in over.text
    api = httpx.post(
        f"{shop.console.url}/tidemark/conversations/{conversation}/summarize",
        headers={"authorization": f"Bearer {key}"},
        verify=NO_TLS,
    )
    assert api.status_code == 429
