"""Changed echoes: which stored answers a request repeats in other words, and which it does not."""

from __future__ import annotations

import json
import random
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.echoes import repeated_branch, similarity, with_stored_answers
from tidemark.core.conversation.messages import Message
from tidemark.dialects.chat.message import parse_message

ANSWER = "The ferry to the islands leaves at seven, and the next one at nine, if the tide allows it."
LETTERS = bytes(ord(ascii_lowercase[byte % 26]) for byte in range(256))
"""A letter for each byte."""


def say(role: str, text: str, **members: object) -> Message:
    """A message of chat completions."""
    content = {"role": role, "content": text, **members}
    return parse_message(json.dumps(content).encode(), content, 0)


def answer(text: str) -> Message:
    """An answer without calls."""
    return say("assistant", text)


def calling(arguments: str, call_id: str, text: str = "") -> Message:
    """An answer that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
    return say("assistant", text, tool_calls=[call])


def prose(seed: int, words: int = 60) -> str:
    """A text that is like no other of another seed."""
    choose = random.Random(seed)
    letters = choose.randbytes(9 * words).translate(LETTERS).decode()
    lengths = choose.choices(range(2, 10), k=words)
    return " ".join(letters[9 * place : 9 * place + length] for place, length in enumerate(lengths))


ECHOES = {
    "reasoning removed": lambda text: text,
    "line ends changed": lambda text: text.replace(". ", ".\r\n"),
    "cut off": lambda text: text[: len(text) // 3],
    "cut off with a mark": lambda text: text[: len(text) // 2] + "... [truncated]",
    "footer": lambda text: f"{text}\n\n---\nMade by a machine, so check what matters.",
    "header": lambda text: f"**Assistant:** {text}",
    "reasoning quoted": lambda text: f"<think>let me see, what was it about</think>\n\n{text}",
    "spaces": lambda text: "  ".join(text.split()),
}


@pytest.mark.parametrize("change", ECHOES.values(), ids=ECHOES.keys())
@given(seed=st.integers(0, 10**6), words=st.integers(5, 3000))
def test_what_clients_do_to_an_answer_keeps_it_the_same_answer(change: object, seed: int, words: int) -> None:
    """However long it is, and also beside other answers to the same question."""
    text = prose(seed, words)
    stored = answer(f"<think>{prose(seed + 1, 40)}</think>\n\n{text}")
    echo = answer(change(text))  # type: ignore[operator]  # the table has functions only
    others = [[answer(prose(seed + number, words))] for number in (2, 3, 4)]
    place = seed % 4
    branches = [*others[:place], [stored], *others[place:]]
    assert repeated_branch([echo, say("user", "on")], branches) == (place, (0,))


def test_long_reasoning_does_not_hide_the_answer() -> None:
    """Only both ends of a long text are read."""
    stored = answer(f"<think>{prose(1, 20_000)}</think>{prose(2, 300)}")
    assert similarity(stored, answer(prose(2, 300))) == 1.0
    assert similarity(stored, answer(prose(3, 300))) == -1.0


@given(st.integers(0, 10**6), st.integers(20, 400), st.integers(20, 400))
def test_two_answers_are_not_one(seed: int, one: int, other: int) -> None:
    """Texts long enough to tell that share nearly nothing were answered apart."""
    assert repeated_branch([answer(prose(seed, one)), say("user", "on")], [[answer(prose(seed + 1, other))]]) is None


@pytest.mark.parametrize("mark", ["", "...", "[removed]", "(answer omitted)"])
def test_a_mark_in_place_of_an_answer_is_an_echo(mark: str) -> None:
    """It is too short to be another answer."""
    assert repeated_branch([answer(mark), say("user", "on")], [[answer(ANSWER)]]) == (0, (0,))


def test_of_equally_similar_answers_the_first_is_meant() -> None:
    """The store returns the newest first."""
    branches = [[answer("one " + ANSWER)], [answer("two " + ANSWER)]]
    assert repeated_branch([answer("[removed]"), say("user", "on")], branches) == (0, (0,))


def test_calls_tell_answers_apart() -> None:
    """The same call under another id is the same answer; another call is another answer, whatever the text."""
    on = say("tool", "Nothing.", tool_call_id="x")
    stored = calling('{"at": 1}', "call_1", ANSWER)
    assert repeated_branch([calling('{"at":1}', "call_1"), on], [[stored]]) == (0, (0,))
    assert repeated_branch([calling('{"at":1}', "x"), on], [[stored]]) == (0, (0,))
    assert repeated_branch([calling('{"at":2}', "call_1"), on], [[stored]]) == (0, (0,))
    assert repeated_branch([calling('{"at":2}', "x", ANSWER), on], [[stored]]) is None
    assert repeated_branch([answer(ANSWER), on], [[stored]]) == (0, (0,))


def test_the_request_must_go_on() -> None:
    """An answer at its end is the beginning of one that the model shall finish, or a rewind."""
    assert repeated_branch([answer("x")], [[answer("y")]]) is None


ROLES = st.sampled_from(["user", "assistant", "tool"])
TALK = st.lists(st.tuples(ROLES, st.sampled_from(["a", "b", ANSWER, ANSWER + " Yes."])), max_size=6)


@given(TALK, st.lists(TALK, max_size=4))
def test_a_branch_that_was_asked_otherwise_is_never_meant(
    sent: list[tuple[str, str]], stored: list[list[tuple[str, str]]]
) -> None:
    """Whatever is found: all its questions and results are in the request, and only answers differ."""
    messages = [say(role, text) for role, text in sent]
    branches = [[say(role, text) for role, text in branch] for branch in stored]
    found = repeated_branch(messages, branches)
    if found is None:
        return
    index, places = found
    branch = branches[index]
    assert places
    assert len(branch) < len(messages)
    for place, message in enumerate(branch):
        changed = place in places
        assert changed == (message.digest != messages[place].digest)
        if changed:
            assert message.role == messages[place].role == "assistant"


def test_a_changed_answer_of_a_window_is_the_stored_one_beside_the_same_message() -> None:
    """The one before it, or after it where the window begins with the answer, or none after the newest one."""
    stored = [say("user", "a"), answer(ANSWER), say("user", "b"), answer(prose(1))]
    cut = answer(ANSWER[:60])
    assert with_stored_answers(stored, [say("user", "a"), cut, say("user", "c")])[1] is stored[1]
    assert with_stored_answers(stored, [cut, say("user", "b"), answer(prose(1) + " - x")]) == stored[1:]
    assert with_stored_answers(stored, [say("user", "b"), cut]) == [say("user", "b"), cut]
    assert with_stored_answers(stored, [say("user", "c"), cut]) == [say("user", "c"), cut]
    assert with_stored_answers(stored, [cut]) == [cut]
    assert with_stored_answers(stored, [answer(prose(1)[:90]), say("user", "c")])[0] is stored[3]
    assert with_stored_answers(stored, [cut, say("user", "c")]) == [cut, say("user", "c")]


@given(TALK, TALK)
def test_only_changed_answers_are_taken_for_stored_ones(
    sent: list[tuple[str, str]], kept: list[tuple[str, str]]
) -> None:
    """Every other message stays what it is."""
    messages, stored = [say(role, text) for role, text in sent], [say(role, text) for role, text in kept]
    for before, after in zip(messages, with_stored_answers(stored, messages), strict=True):
        assert after is before or (before.role == after.role == "assistant" and after in stored)


def result(text: str, call_id: str) -> Message:
    """What a tool returned."""
    return say("tool", text, tool_call_id=call_id)


@pytest.mark.parametrize("text", ["[Old tool result content cleared]", prose(3, 900), ""])
def test_another_text_for_the_same_call_goes_on_with_the_branch(text: str) -> None:
    """Agents put a mark in the place of what a tool returned; the result of another call is another talk."""
    branch = [calling("{}", "call7"), result(prose(1), "call7"), answer(ANSWER)]
    on = say("user", "on")
    assert repeated_branch([branch[0], result(text, "call7"), branch[2], on], [branch]) == (0, (1,))
    assert repeated_branch([branch[0], result(text, "call8"), branch[2], on], [branch]) is None
    assert repeated_branch([branch[0], result(text, "call7"), answer(prose(2)), on], [branch]) is None


def test_a_question_without_what_its_agent_added_goes_on_with_the_branch() -> None:
    """A reminder leaves a question when the next one comes; the answer after it tells that it is the same question."""
    branch = [say("user", f"Repair it.\n<reminder>{prose(1)}</reminder>"), answer(ANSWER)]
    on = say("user", "on")
    assert repeated_branch([say("user", "Repair it."), branch[1], on], [branch]) == (0, (0,))
    for question, reply in (("Repair it.", answer(prose(2))), ("Repair them.", branch[1]), ("", branch[1])):
        assert repeated_branch([say("user", question), reply, on], [branch]) is None
    assert repeated_branch([say("user", "Repair it."), on], [branch[:1]]) is None
