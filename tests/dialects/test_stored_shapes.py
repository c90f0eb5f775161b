"""Stored messages have no mark of their dialect: the shape of their bytes tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.toy import ToyDialect
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.message_formats import MessageFormats, shapes
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect

CHAT, RESPONSES, MESSAGES, TOY = ChatDialect(), ResponsesDialect(), MessagesDialect(), ToyDialect()
DIALECTS: dict[str, Dialect] = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
STORED = MessageFormats([*DIALECTS.values(), TOY])
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def raw(*items: Any) -> bytes:
    """Stored bytes; several items have a comma between them."""
    return b",".join(json.dumps(item).encode() for item in items)


SHAPES: list[tuple[set[str], bytes]] = [
    ({"chat", "responses", "messages"}, raw({"role": "user", "content": "Hi."})),
    ({"chat", "messages"}, raw({"role": "user", "content": [{"type": "text", "text": "Hi."}]})),
    ({"chat"}, raw({"role": "assistant", "content": "Hi.", "refusal": None})),
    ({"chat"}, raw({"role": "assistant", "content": None, "tool_calls": [CALL]})),
    ({"chat"}, raw({"role": "tool", "tool_call_id": "c1", "content": "x"})),
    ({"chat"}, raw({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]})),
    ({"chat"}, raw({"role": "user", "content": "Hi.", "name": "ada"})),
    ({"messages"}, raw({"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]})),
    ({"messages"}, raw({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]})),
    ({"messages"}, raw({"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}]})),
    ({"messages"}, raw({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]})),
    ({"responses"}, raw({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]})),
    ({"responses"}, raw({"type": "message", "role": "user", "content": "x"})),
    ({"responses"}, raw({"role": "user", "content": [{"type": "input_image", "image_url": "u"}]})),
    ({"responses"}, raw({"type": "function_call_output", "call_id": "c1", "output": "x"})),
    ({"responses"}, raw({"type": "reasoning", "summary": []}, {"role": "assistant", "content": "x"})),
    ({"chat", "responses"}, raw({"role": "system", "content": "Be brief."})),
    ({"chat"}, raw({"role": "system", "content": [{"type": "text", "text": "Be brief."}]})),
    (set(), raw({"who": "human", "says": "Hi."})),
]


@pytest.mark.parametrize(("names", "stored"), SHAPES, ids=[stored.decode()[:60] for _, stored in SHAPES])
def test_the_shape_tells_the_dialect(names: set[str], stored: bytes) -> None:
    """It is read, and a message that another dialect shares keeps its bytes there."""
    assert shapes(stored) == names
    assert len(STORED.read([stored])) == 1
    for name, dialect in DIALECTS.items():
        (sendable,) = STORED.sendable([stored], dialect)
        assert (sendable == dialect.as_sent(stored)) or name not in names
        assert not sendable or dialect.parse_messages([sendable])


def facts(message: Message) -> tuple[Any, ...]:
    """What stays when a message is written in another dialect."""
    calls = [(call.id, call.name, json.loads(call.arguments or "{}")) for call in message.calls]
    return (message.role, message.text.strip(), calls, message.answers)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
ARGUMENTS = st.dictionaries(TEXTS, TEXTS | st.integers(0, 9), max_size=2)
CHATS = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXTS),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "c1", "content": text}, TEXTS),
    st.builds(
        lambda text, arguments: {
            "role": "assistant",
            "content": text,
            "tool_calls": [{**CALL, "function": {"name": "look", "arguments": json.dumps(arguments)}}],
        },
        st.none() | TEXTS,
        ARGUMENTS,
    ),
)


@given(CHATS, st.permutations(list(DIALECTS)))
def test_a_message_goes_through_all_dialects_and_back(message: dict[str, Any], order: list[str]) -> None:
    """Its role, text, calls and digest stay."""
    stored = raw(message)
    (before,) = STORED.read([stored])
    for name in [*order, "chat"]:
        (stored,) = STORED.sendable([stored], DIALECTS[name])
        (after,) = STORED.read([stored])
        assert facts(after) == facts(before)
        assert after.digest == before.digest


def test_a_dialect_of_unknown_shape_knows_its_own_bytes() -> None:
    """A new dialect need not be named here."""
    own, chat = b'{"who": "human", "says": "Hi."}', raw({"role": "user", "content": "Hi."})
    assert [message.text for message in STORED.read([own, chat, own])] == ["Hi."] * 3
    assert STORED.sendable([own], TOY) == [own]
    assert json.loads(STORED.sendable([own], CHAT)[0]) == {"role": "user", "content": "Hi."}
    assert TOY.parse_messages(STORED.sendable([chat], TOY))[0].text == "Hi."


def test_what_is_of_no_dialect_is_refused() -> None:
    """Such as a message of a dialect that is not served any more."""
    with pytest.raises(InvalidRequest, match="of no dialect"):
        MessageFormats([CHAT]).read([b'{"who": "human", "says": "Hi."}'])


def test_a_system_message_has_no_place_among_messages() -> None:
    """Anthropic's format has it beside them, and refuses the role."""
    for role in ("system", "developer"):
        assert STORED.sendable([raw({"role": role, "content": "Be brief."})], MESSAGES) == [b""]


def test_what_a_model_wrote_for_itself_stays_with_its_provider() -> None:
    """No other server accepts it, and what the format lacks becomes a text."""
    answer = raw({"type": "reasoning", "id": "r", "encrypted_content": "x"}, {"role": "assistant", "content": "Yes."})
    assert json.loads(STORED.sendable([answer], CHAT)[0]) == {"role": "assistant", "content": "Yes."}
    source = {"type": "text", "media_type": "text/plain", "data": "A page."}
    document = raw({"role": "user", "content": [{"type": "document", "source": source, "context": "c"}]})
    assert json.loads(STORED.sendable([document], CHAT)[0])["content"] == [{"type": "text", "text": "A page."}]
    searched = raw({"role": "user", "content": [{"type": "search_result", "source": "u", "title": "t"}]})
    assert json.loads(STORED.sendable([searched], CHAT)[0])["content"] == [{"type": "text", "text": "[search_result]"}]
