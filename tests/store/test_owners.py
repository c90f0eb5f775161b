"""Who made what in an account that tenants share: by id, without content, on one server and on a cluster."""

from __future__ import annotations

from dataclasses import replace

from tests.store.test_stored_responses import answered
from tidemark.core.conversation.records import TurnRecord
from tidemark.store import keys
from tidemark.store.conversations import RedisStore

ACCOUNT = "https://api.example.com/v1"


def answered_at(owner: str, account: str) -> TurnRecord:
    """A turn whose response is in an account."""
    turn = answered(owner)
    assert turn.response is not None
    return replace(turn, response=replace(turn.response, account=account))


async def test_the_newest_maker_of_an_id_is_its_owner(store: RedisStore) -> None:
    """Local servers begin again with their numbers; other accounts have ids of their own."""
    await store.owners.claim(ACCOUNT, ["newest-1", "newest-2"], "alice")
    await store.owners.claim(ACCOUNT, ["newest-2"], "bob")
    names = ["newest-1", "newest-2", "newest-3"]
    assert await store.owners.owners(ACCOUNT, names) == ["alice", "bob", None]
    assert await store.owners.owners("http://elsewhere/v1", names) == [None, None, None]
    assert await store.owners.owners(ACCOUNT, []) == []


async def test_a_response_is_owned_with_its_items(store: RedisStore) -> None:
    """It is written with its turn; where the client's own key is used nothing is."""
    for account in ("", f"{ACCOUNT}/owned"):
        await store.record(answered_at("alice", account))
        found = await store.owners.owners(account, ["resp_1", "rs_1", "msg_1", "resp_2"])
        assert found == (["alice"] * 3 + [None] if account else [None] * 4)
        assert await store.responses.find("alice", "resp_1") is not None


async def test_owners_are_kept_for_their_time_and_renewed_by_use(store: RedisStore) -> None:
    """Responses for as long as conversations, and at least as long as providers keep them."""
    await store.record(answered_at("lasting", f"{ACCOUNT}/lasting"))
    at = keys.owned(f"{ACCOUNT}/lasting", "resp_1")
    assert 29 * 86_400 < await store.ask("TTL", at) <= 30 * 86_400
    await store.owners.claim(ACCOUNT, ["lasting-1"], "alice")
    assert await store.ask("TTL", keys.owned(ACCOUNT, "lasting-1")) == 365 * 86_400
    await store.ask("EXPIRE", keys.owned(ACCOUNT, "lasting-1"), 60)
    await store.owners.renew(ACCOUNT, ["lasting-1"])
    assert await store.ask("TTL", keys.owned(ACCOUNT, "lasting-1")) > 60


async def test_the_operator_learns_which_tenants_share_an_account(store: RedisStore) -> None:
    """Once for each, with no id of what they made."""
    for owner, name in (("alice", "noted-1"), ("alice", "noted-2"), ("bob", "noted-3")):
        await store.owners.claim(f"{ACCOUNT}/noted", [name], owner)
    noted = await store.ask("HKEYS", keys.ACCOUNTS)
    mine = sorted(field.decode() for field in noted if field.endswith(b"/noted"))
    assert mine == [f"alice {ACCOUNT}/noted", f"bob {ACCOUNT}/noted"]
