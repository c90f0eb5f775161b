"""Identity: the hash chain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, message
from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.conversation.prefix import PrefixChain, chain_of, conversation_id, is_id, split_id


@given(conversations(), st.integers(0, 10))
def test_a_chain_grows_and_its_beginning_stays(messages: list[Message], cut: int) -> None:
    """The chain of a beginning is the beginning of the chain, and extending it gives the whole."""
    whole = chain_of("tenant", messages)
    part = chain_of("tenant", messages[:cut])
    assert whole.hashes[: len(part)] == part.hashes
    assert part.extended(messages[cut:]).hashes == whole.hashes
    assert part.extended(messages[cut:]).family == part.family


@given(st.binary(max_size=40), conversations())
def test_a_link_is_the_digest_of_what_was_before_and_of_the_message(seed: bytes, messages: list[Message]) -> None:
    """The bytes of a chain are a format; a chain that was read back may begin with any seed."""
    links, previous = [], seed
    for said in messages:
        if not said.is_system:
            previous = digest_of(previous, said.digest)
            links.append(previous)
    assert PrefixChain(seed, ()).extended(messages).hashes == tuple(links)


@given(st.text(max_size=4), st.text(max_size=4) | st.none())
def test_a_seed_is_the_tenants_and_its_names(tenant: str, name: str | None) -> None:
    """Remembered or made anew, it is the digest of both."""
    for _ in range(2):
        made = chain_of(tenant, [], conversation=name)
        assert made.seed == digest_of(tenant.encode(), b"v1", (name or "").encode())
        assert made.has_seed_family == (name is not None)


@given(conversations())
def test_system_messages_are_no_part_of_the_identity(messages: list[Message]) -> None:
    """Agents write clocks into them: the chain survives any change of a system message."""
    plain = [said for said in messages if not said.is_system]
    clocked = [message(role="system", content="it is 12:01"), *messages]
    assert chain_of("t", plain) == chain_of("t", messages) == chain_of("t", clocked)
    assert len(chain_of("t", messages)) == len(plain)


@given(conversations(), st.data())
def test_an_edit_changes_every_hash_after_it_and_none_before(messages: list[Message], data: st.DataObject) -> None:
    """Edits and forks fall back to the newest prefix that is still the same."""
    plain = [said for said in messages if not said.is_system]
    place = data.draw(st.integers(0, len(plain) - 1))
    edited = [*plain[:place], message(role="user", content="an edit like no other"), *plain[place + 1 :]]
    before, after = chain_of("t", plain).hashes, chain_of("t", edited).hashes
    assert before[:place] == after[:place]
    assert not set(before[place:]) & set(after[place:])


@given(conversations())
def test_two_tenants_share_no_hash(messages: list[Message]) -> None:
    """Promise 8: the same text of another tenant is another chain, family and conversation."""
    one, other = chain_of("one", messages), chain_of("other", messages)
    assert not set(one.hashes) & set(other.hashes)
    assert one.family != other.family
    assert conversation_id(one, 0) != conversation_id(other, 0)


@given(conversations(), st.text(max_size=10), st.text(max_size=10))
def test_a_name_sets_equal_conversations_apart(messages: list[Message], name: str, another: str) -> None:
    """``X-Tidemark-Conversation``: the name is part of the identity, and none is no name."""
    named, unnamed = chain_of("t", messages, conversation=name), chain_of("t", messages)
    assert (named.tip == chain_of("t", messages, conversation=another).tip) == (name == another)
    assert named.family != unnamed.family
    assert named.family == chain_of("t", messages[:1], conversation=name).family


@given(conversations(), st.integers(0, 5))
def test_an_id_leads_to_its_family_and_begins_where_a_fork_does(messages: list[Message], known: int) -> None:
    """48 hex characters; all that begins alike has one family, so one hash tag in a cluster."""
    chain = chain_of("t", messages)
    made = conversation_id(chain, known)
    assert len(made) == 48
    assert is_id(made)
    assert not any(is_id(other) for other in (made[1:], made + "0", made + "\n", "A" + made[1:]))
    assert split_id(made)[0] == chain.family
    assert made == conversation_id(chain, known), "it depends on content alone"
    if known + 1 < len(chain):
        assert made != conversation_id(chain, known + 1)
    assert chain.at(0) == chain.seed
    assert chain.at(len(chain)) == chain.tip
