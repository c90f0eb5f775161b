"""Bodies put together from raw members."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import message
from tidemark.core.conversation.messages import system_message
from tidemark.dialects.bodies import array_of, body_of, encode_json
from tidemark.dialects.chat.dialect import ChatDialect

KEYS = st.text(max_size=6)


@given(st.dictionaries(KEYS, st.integers()), st.dictionaries(KEYS, st.text(max_size=5), max_size=3))
def test_members_keep_their_order_and_their_bytes(members: dict[str, int], replaced: dict[str, str]) -> None:
    """What is not replaced is the client's own; what the client did not send comes last."""
    fields = {name: f" {value} ".encode() for name, value in members.items()}
    body = body_of(fields, {name: json.dumps(value).encode() for name, value in replaced.items()})
    assert json.loads(body) == members | replaced
    assert list(json.loads(body)) == [*members, *[name for name in replaced if name not in members]]


def test_messages_are_forwarded_as_they_came() -> None:
    """The array has each message's own bytes, and those that the dialect writes for a message of ours."""
    said = [message(role="user", content="ä"), system_message("b")]
    raws = ChatDialect().raws_of(said)
    assert array_of(raws) == b"[" + said[0].raw + b"," + raws[1] + b"]"
    assert json.loads(raws[1]) == {"role": "system", "content": "b"}


def test_halves_of_characters_become_escapes() -> None:
    """UTF-8 has none; all other text is written as it is."""
    assert encode_json({"a": "\ud83d"}) == b'{"a":"\\ud83d"}'
    assert encode_json({"a": "\u00e4"}) == '{"a":"\u00e4"}'.encode()
