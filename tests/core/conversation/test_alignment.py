"""Alignment: whatever window a client sends, each message is stored once and nothing is passed over in silence."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.alignment import Alignment, align, align_newest
from tidemark.core.conversation.messages import Message
from tidemark.dialects.chat.message import parse_message


def say(role: str, text: str) -> Message:
    """A message of few words."""
    value = {"role": role, "content": text}
    return parse_message(json.dumps(value).encode(), value, 0)


def talk(count: int, first: int = 0) -> list[Message]:
    """Messages in turn, the user's first, no two alike."""
    return [say(("user", "assistant")[i % 2], f"message {i}") for i in range(first, first + count)]


MESSAGES = st.builds(say, st.sampled_from(["user", "assistant", "tool"]), st.sampled_from("abc"))
TALKS = st.lists(MESSAGES, max_size=12)


def digests(messages: list[Message]) -> list[bytes]:
    """What they are compared by."""
    return [one.digest for one in messages]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 6))
def test_any_window_that_ends_in_new_messages_appends_just_those(count: int, window: int, new: int) -> None:
    """From no known message to all of them; where no two messages are alike, this is exact."""
    stored, fresh = talk(count), talk(new, count)
    known = stored[max(0, count - window) :] if window else []
    found = align(stored, [*known, *fresh])
    if known or not any(one.role == "assistant" for one in fresh) or not stored:
        assert (found.standing, found.base) == ("follows", count)
    else:
        assert (found.standing, found.gap) == ("apart", "unknown")
    assert [*known, *fresh][found.new :] == fresh


@given(TALKS, TALKS)
def test_what_comes_of_it_ends_with_what_the_client_sent(stored: list[Message], sent: list[Message]) -> None:
    """However alike messages are: the client's newest messages are the conversation's newest, or are there already."""
    found = align(stored, sent)
    after = [*stored[: found.base], *sent[found.new :]]
    assert found.base == len(stored) or found.standing == "repeats"
    if not found.gap and found.standing in ("follows", "repeats") and sent and not _trimmed(stored, sent, found):
        assert digests(after)[-len(sent) :] == digests(sent)
    if found.new < len(sent):
        assert after[-1] == sent[-1]


@given(TALKS, TALKS, st.integers(1, 6))
def test_the_newest_stored_messages_decide_as_all_of_them_do(
    stored: list[Message], sent: list[Message], count: int
) -> None:
    """Or they say that they cannot; a client that sends a new question alone never needs the earlier ones."""
    newest = stored[-count:]
    if not newest:
        return
    found = align_newest(newest, sent)
    if found is None:
        assert any(message.role == "assistant" or message.digest in digests(newest) for message in sent)
        return
    whole = align(stored, sent)
    assert (found.standing, found.new, found.gap) == (whole.standing, whole.new, whole.gap)
    assert (found.base, whole.base) == (len(newest), len(stored))


def _trimmed(stored: list[Message], sent: list[Message], found: Alignment) -> bool:
    """Whether the client left out something in the middle of what is stored."""
    return digests(stored)[-found.new :] != digests(sent)[: found.new] if found.new else False


@given(TALKS, TALKS)
def test_sending_the_same_again_appends_nothing(stored: list[Message], sent: list[Message]) -> None:
    """What a request appended, it does not append once more when it is sent again before an answer came."""
    found = align(stored, sent)
    once = [*stored[: found.base], *sent[found.new :]]
    if found.new == 0 and sent:
        again = align(once, sent)
        assert (again.new, again.base) == (len(sent), len(once))


@given(st.integers(2, 30), st.integers(1, 10), st.integers(1, 4))
def test_messages_left_out_in_the_middle_are_not_appended_anew(count: int, last: int, new: int) -> None:
    """The first message and the last few, as many clients trim: the store has what lies between."""
    stored, fresh = talk(count), talk(new, count)
    kept = stored[-min(last, count - 1) :]
    if kept[-1].role != "assistant" and len(kept) < 2:
        return
    sent = [stored[0], *kept, *fresh]
    found = align(stored, sent)
    assert (found.standing, found.gap) == ("follows", "")
    assert sent[found.new :] == fresh


def test_a_client_that_missed_an_exchange_is_told_so() -> None:
    """Another window went on meanwhile: its messages stay, the new ones come after them."""
    stored = talk(8)
    found = align(stored, [*stored[2:6], say("user", "from the other window")])
    assert found == Alignment("behind", 8, 4, unseen=2)
    assert found.gap == "unseen=2"


def test_messages_before_the_known_ones_that_nobody_stored_are_told() -> None:
    """They have no place any more."""
    stored = talk(6)
    found = align(stored, [say("user", "never stored"), *stored[3:], say("user", "new")])
    assert found == Alignment("follows", 6, 4, strange=1)
    assert found.gap == "strange=1"


def test_answers_that_nobody_stored_show_a_gap() -> None:
    """The client went on elsewhere, and the window does not reach back to what is stored."""
    found = align(talk(4), talk(6, first=10))
    assert found == Alignment("apart", 4, 0)
    assert found.gap == "unknown"


def test_a_turn_whose_answer_was_lost_is_asked_once_more() -> None:
    """The window ends with the question, and the store has an answer that the client does not know."""
    stored = talk(6)
    assert align(stored, stored[1:5]) == Alignment("repeats", 5, 4)


def test_a_turn_that_the_user_has_gone_on_from_is_not_asked_once_more() -> None:
    """That would drop what was said since."""
    stored = talk(8)
    assert align(stored, stored[1:5]).standing == "conflicts"


def test_the_same_question_twice_is_two_questions() -> None:
    """A user may say "go on" again and again."""
    stored = [say("user", "go on"), say("assistant", "1"), say("user", "go on"), say("assistant", "2")]
    assert align(stored, [say("user", "go on")]) == Alignment("follows", 4, 0)


def test_a_question_that_was_not_answered_is_not_asked_twice() -> None:
    """The client left before the answer came, and tries again."""
    assert align(talk(3), [talk(3)[-1]]) == Alignment("follows", 3, 1)


def test_nothing_stored_is_a_beginning() -> None:
    """Answers among the first messages are the client's own examples."""
    assert align([], talk(4)) == Alignment("follows", 0, 0)


def test_a_question_whose_answer_is_known_to_be_lost_asks_for_it_anew() -> None:
    """Unless that is known, the same question once more is a new one; another question goes on behind the answer."""
    stored = talk(4)
    assert align(stored, stored[2:3], reply_lost=True) == Alignment("repeats", 3, 1)
    assert align(stored, stored[2:3]) == Alignment("follows", 4, 0)
    assert align(stored, [say("user", "another")], reply_lost=True) == Alignment("follows", 4, 0)
