"""Bodies put together from raw members."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation.messages import digest_of, render_body, render_messages, system_message
from tests.core.histories import message

KEYS = st.text(max_size=6)


@given(st.dictionaries(KEYS, st.integers()), st.dictionaries(KEYS, st.text(max_size=5), max_size=3))
def test_members_keep_their_order_and_their_bytes(members: dict[str, int], replaced: dict[str, str]) -> None:
    """What is not replaced is the client's own; what the client did not send comes last."""
    fields = {name: f" {value} ".encode() for name, value in members.items()}
    body = render_body(fields, {name: json.dumps(value).encode() for name, value in replaced.items()})
    assert json.loads(body) == members | replaced
    assert list(json.loads(body)) == [*members, *[name for name in replaced if name not in members]]


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_two_lists_of_pieces_never_share_a_digest(one: list[bytes], other: list[bytes]) -> None:
    """Every piece is framed by its length, so that no boundary can be moved."""
    assert (digest_of(*one) == digest_of(*other)) == (one == other)


def test_messages_are_forwarded_as_they_came() -> None:
    """The array holds each message's own bytes."""
    said = [message(role="user", content="ä"), system_message("b")]
    assert render_messages(said) == b"[" + said[0].raw + b"," + said[1].raw + b"]"
    assert json.loads(said[1].raw) == {"role": "system", "content": "b"}


def test_nobody_changes_a_message() -> None:
    """Requests share what was parsed: the constructor alone reaches the slots."""
    said = message(role="user", content="a", name="ann")
    for one in fields(said):
        with pytest.raises(FrozenInstanceError):
            setattr(said, one.name, None)
    assert replace(said) == said != replace(said, name=None)
    assert {said: 1}[replace(said)] == 1
