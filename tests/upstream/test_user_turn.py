"""The summary in the user's turn: nothing is lost, nothing else moves, and roles alternate if they did before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.summary import render_text
from tidemark.upstream.user_turn import in_user_turn

Said = dict[str, Any]
SUMMARY = render_text("They spoke of walls.", 4).text
CONTENTS: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=8), st.lists(st.builds(dict, type=st.just("text"), text=st.text(max_size=4)))
)
SYSTEMS: st.SearchStrategy[Any] = st.lists(
    st.builds(dict, role=st.sampled_from(["system", "developer"]), content=CONTENTS), max_size=3
)


def message_of(role: str, content: Any) -> Said:
    """A message."""
    return {"role": role, "content": content}


def body(*messages: Said) -> bytes:
    """A request with these messages."""
    return json.dumps({"model": "m", "messages": messages, "temperature": 0.5}).encode()


def placed(*messages: Said, **how: bool) -> list[Said] | None:
    """The messages with the summary in the user's turn; None if they stay as they are."""
    changed = in_user_turn(body(*messages), **how)
    if changed is None:
        return None
    request = json.loads(changed)
    assert (request["model"], request["temperature"]) == ("m", 0.5)
    messages_of: list[Said] = request["messages"]
    return messages_of


def text_of(messages: Sequence[Said]) -> str:
    """All that is said, without what joins it."""
    texts = [
        text
        for message in messages
        for text in (
            [message["content"]]
            if isinstance(message["content"], str)
            else [part["text"] for part in message["content"]]
        )
    ]
    return "".join(texts).replace("\n", "")


def test_the_summary_opens_the_users_message_behind_it() -> None:
    """A text stays a text, parts stay parts, and the client's own system message keeps its place."""
    rules, question = message_of("system", "Be brief."), message_of("user", "And the roof?")
    assert placed(rules, message_of("system", SUMMARY), question) == [
        rules,
        message_of("user", f"{SUMMARY}\n\nAnd the roof?"),
    ]
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    part = {"type": "text", "text": SUMMARY}
    assert placed(message_of("system", SUMMARY), message_of("user", [picture])) == [message_of("user", [part, picture])]


def test_before_an_answer_the_summary_is_a_message_of_its_own() -> None:
    """Marks and the calls behind it stay."""
    call = message_of("assistant", None) | {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]}
    marked = [{"type": "text", "text": SUMMARY, "cache_control": {"type": "ephemeral"}}]
    assert placed(message_of("system", "a"), message_of("system", marked), call) == [
        message_of("system", "a"),
        message_of("user", marked),
        call,
    ]


def test_other_system_messages_at_the_beginning_become_one() -> None:
    """The bridge of the Responses API writes several, and those inside the replaced part follow the summary."""
    systems = [
        message_of("system", "one"),
        message_of("developer", "two"),
        message_of("system", SUMMARY),
        message_of("system", "three"),
    ]
    expected = [message_of("system", "one\n\ntwo\n\nthree"), message_of("user", f"{SUMMARY}\n\nhi")]
    assert placed(*systems, message_of("user", "hi")) == expected
    own = [message_of("developer", "one"), message_of("system", "two"), message_of("user", "hi")]
    assert placed(*own, is_bridged=True) == [message_of("developer", "one\n\ntwo"), message_of("user", "hi")]
    assert placed(*own) is None, "what the client sent is the client's"


def test_later_system_messages_of_a_bridge_become_the_users() -> None:
    """They join the question before them, and stay where they were behind anything else."""
    talk = [
        message_of("system", "one"),
        message_of("user", "hi"),
        message_of("system", "remember"),
        message_of("developer", "all"),
        message_of("assistant", "yes"),
        message_of("system", "go on"),
    ]
    own, question, answer = talk[0], message_of("user", "hi\n\nremember\n\nall"), talk[4]
    assert placed(*talk, is_bridged=True) == [own, question, answer, message_of("user", "go on")]
    assert placed(*talk, is_bridged=True, only_before_answer=True) is None
    with_summary = [own, message_of("system", SUMMARY), *talk[1:]]
    assert placed(*with_summary) == [own, message_of("user", f"{SUMMARY}\n\nhi"), *talk[2:]], "it is the client's"


def test_what_needs_no_change_gets_none() -> None:
    """One system message, a summary that a client wrote as its own question, no messages, no JSON."""
    assert placed(message_of("system", "a"), message_of("user", "hi"), message_of("system", "b")) is None
    assert placed(message_of("user", SUMMARY), message_of("assistant", "yes")) is None
    assert placed() is None
    assert [in_user_turn(bad) for bad in (b"{", b"{}", b'{"messages": 3}', b'{"messages": [1]}', b"[]")] == [None] * 5
    assert placed(message_of("system", SUMMARY), message_of("user", "hi"), only_before_answer=True) is None


@given(SYSTEMS, SYSTEMS, st.integers(0, 1), CONTENTS)
def test_no_word_is_lost_and_roles_alternate(before: list[Said], after: list[Said], first: int, content: Any) -> None:
    """Whatever stands before and after the summary."""
    tail = [message_of("user", content), message_of("assistant", "yes"), message_of("user", "more")][first:]
    messages = [*before, message_of("system", SUMMARY), *after, *tail]
    changed = placed(*messages)
    assert changed is not None
    roles = [message["role"] for message in changed]
    assert roles[: len(roles) - roles[::-1].index("assistant")].count("user") >= 1
    assert sum(role in {"system", "developer"} for role in roles) == bool(before or after)
    turns = [role for role in roles if role in {"user", "assistant"}]
    assert turns[0] == "user"
    assert all(one != other for one, other in pairwise(turns))
    assert sorted(text_of(changed)) == sorted(text_of(messages))
    assert changed[-2:] == tail[-2:]


def test_a_clients_own_rules_stay_its_rules_whatever_they_begin_with() -> None:
    """Only whole summaries move, and all of them: of a Tidemark behind another there are two."""
    rules = message_of("system", "Summary of earlier turns must be polite.")
    summary, question = message_of("system", SUMMARY), message_of("user", "hi")
    assert placed(rules, summary, question) == [rules, message_of("user", f"{SUMMARY}\n\nhi")]
    assert placed(rules, summary, summary, question) == [rules, message_of("user", f"{SUMMARY}\n\n{SUMMARY}\n\nhi")]


def test_what_cannot_be_joined_stays_as_it_is() -> None:
    """The upstream judges odd contents; numbers keep their digits."""
    summary = message_of("system", SUMMARY)
    assert placed(summary, message_of("user", {"text": "precious"})) is None
    assert placed(summary, message_of("user", 5)) is None
    raw = body(summary, message_of("user", [{"type": "text", "text": "hi", "weight": 0.125}]))
    changed = in_user_turn(raw.replace(b"0.125", b"1e999"))
    assert changed is not None
    assert b'"weight": 1e999' in changed
