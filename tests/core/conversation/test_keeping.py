"""What is stored of a request: the operator and the client each say the most, and the least counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.keeping import KEEPS, is_without_text, strictest, without_texts
from tidemark.core.conversation.messages import Message, Role, digest_of
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import Keep, TurnRecord

KEEP = st.sampled_from(KEEPS)
ROLES: st.SearchStrategy[Role] = st.sampled_from(["system", "user", "assistant", "tool"])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any role and text."""
    text = draw(st.text(min_size=1, max_size=40))
    raw = text.encode("utf-8", "replace")
    return Message(raw, draw(ROLES), text, digest_of(raw))


@given(KEEP, KEEP, KEEP)
def test_the_least_counts_in_any_order(first: Keep, second: Keep, third: Keep) -> None:
    """So no request header stores what the operator does not want."""
    assert strictest(first, second, third) == strictest(strictest(third, first), second)
    assert KEEPS.index(strictest(first, second)) <= min(KEEPS.index(first), KEEPS.index(second))


@given(st.lists(st.tuples(messages(), st.integers(0, 99)), min_size=1, max_size=8))
def test_without_texts_a_turn_has_its_places_hashes_and_counts_and_nothing_of_what_was_said(
    said: list[tuple[Message, int]],
) -> None:
    """System messages are left out whole, since the chain has no place for them."""
    chain = chain_of("tenant", [message for message, _ in said])
    turn = TurnRecord(
        tenant="tenant",
        conversation="id",
        chain=chain,
        stored_count=0,
        messages=[message for message, _ in said],
        tokens=[count for _, count in said],
        complete=True,
        model="m",
        action="none",
        tokens_before=1,
        tokens_after=1,
        summarized=0,
        created_at=0.0,
        prompt_record=b"record",
    )
    stored = without_texts(turn)
    others = [(message, count) for message, count in said if not message.is_system]
    assert [(message.role, message.digest) for message in stored.messages] == [
        (message.role, message.digest) for message, _ in others
    ]
    assert list(stored.tokens) == [count for _, count in others]
    assert stored.chain == chain
    assert all(is_without_text(message.raw) for message in stored.messages)
    assert not any(is_without_text(message.raw) for message, _ in said)
    assert (stored.response, stored.prompt_record, stored.scheme) == (None, b"", "")
