"""Alignment: finds where a client's messages continue the stored ones.

The stored history mode (``X-Tidemark-History: stored``) calls it before the other steps of the pipeline. A client sends
its new messages, perhaps with some of the older ones, and digests show which are new. No message is appended twice, and
messages that only the client or only the store knows are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen

Standing = Literal["follows", "behind", "apart", "repeats", "conflicts"]
"""``follows``: the new messages come after the last stored one. ``behind``: the client did not know the newest stored
messages. ``apart``: the client has replies that are not stored, and none that is, so messages may be missing between.
``repeats``: the client repeats a turn whose reply it did not receive. ``conflicts``: the same, but the stored
conversation has later questions."""


@frozen
class Alignment:
    """How a client's messages continue the stored ones."""

    standing: Standing
    base: int
    """How many of the stored messages come first: all, except if a turn is repeated."""
    new: int
    """The index of the client's first new message."""
    unseen: int = 0
    """How many stored messages the client did not know; they come before its new ones."""
    strange: int = 0
    """How many messages the client sent before stored ones although they are not stored; they are left out."""

    @property
    def gap(self) -> str:
        """Return the gaps as a header's value; empty if there are none."""
        if self.standing == "apart":
            return "unknown"
        counts = {"unseen": self.unseen, "strange": self.strange}
        return ", ".join(f"{name}={count}" for name, count in counts.items() if count)


def align(stored: Sequence[Message], incoming: Sequence[Message], *, reply_lost: bool = False) -> Alignment:
    """Find the new messages, in a time that grows with the sum of both lengths; neither has system messages.

    A client that sends the newest stored message continues after it. A client that begins with stored messages, a
    reply among them, and does not send the newest has missed the messages since. A single question proves nothing,
    since a user may ask the same twice, unless its reply was reported as lost.

    :param reply_lost: whether the client was told that the newest stored message, a reply, is lost
    """
    stored_digests = [message.digest for message in stored]
    new_digests = [message.digest for message in incoming]
    stored_count, count = len(stored_digests), len(new_digests)
    if not stored_count or not count:
        return Alignment("follows", stored_count, 0)
    if reply_lost and stored_digests[-1 - count : -1] == new_digests:
        return Alignment("repeats", stored_count - 1, count)
    overlap = _overlap_with_newest(stored_digests, incoming)
    if overlap is not None:
        end, run = overlap
        strange = len(set(new_digests[: end - run]) - set(stored_digests))
        return Alignment("follows", stored_count, end, strange=strange)
    runs = _runs(new_digests, stored_digests)
    longest = max(runs)
    if not any(message.role == "assistant" for message in incoming[:longest]):
        apart = any(message.role == "assistant" for message in incoming)
        return Alignment("apart" if apart else "follows", stored_count, 0)
    after = max(place + run for place, run in enumerate(runs) if run == longest)
    if longest < count:
        return Alignment("behind", stored_count, longest, unseen=stored_count - after)
    has_later_question = any(message.role == "user" for message in stored[after:])
    return Alignment("conflicts", stored_count, count) if has_later_question else Alignment("repeats", after, count)


def align_newest(newest: Sequence[Message], incoming: Sequence[Message]) -> Alignment | None:
    """Find the new messages by the newest stored ones alone; None if earlier ones may decide.

    The result is that of ``align`` with all stored messages, but for ``base``, which counts the newest ones.

    :param newest: the last ones of the stored messages, at least one
    """
    digests = [message.digest for message in newest]
    answers = [message.digest for message in incoming if message.role == "assistant"]
    if not set(answers).issubset(digests):
        return None
    overlap = _overlap_with_newest(digests, incoming)
    if overlap is None:
        return None if answers else Alignment("follows", len(newest), 0)
    end, run = overlap
    if end != run or run >= len(newest):
        return None
    return Alignment("follows", len(newest), end)


def _overlap_with_newest(stored_digests: Sequence[bytes], incoming: Sequence[Message]) -> tuple[int, int] | None:
    """Find the client's messages that equal the newest stored ones: the index after them, and how many they are.

    The longest run is taken; None if the client does not send the newest stored message. A client may leave out
    messages in the middle (it sends the first one and the last twenty); then the run must have a reply, or more than
    one message.
    """
    backwards = _runs(stored_digests[::-1], [message.digest for message in reversed(incoming)])
    best: tuple[int, bool, int] | None = None
    for place, run in enumerate(backwards):
        end = len(incoming) - place
        whole = run == end
        proof = run > 1 or (run == 1 and incoming[end - 1].role == "assistant")
        if run and (whole or proof) and (best is None or (run, whole) > best[:2]):
            best = (run, whole, end)
    return (best[2], best[0]) if best else None


def _runs(pattern: Sequence[bytes], text: Sequence[bytes]) -> list[int]:
    """Return, for each place of ``text``, how many first elements of ``pattern`` stand there (the Z algorithm)."""
    joined: list[bytes | None] = [*pattern, None, *text]
    length = len(joined)
    runs = [0] * length
    start = stop = 0
    for place in range(1, length):
        run = min(stop - place, runs[place - start]) if place < stop else 0
        while place + run < length and joined[place + run] is not None and joined[run] == joined[place + run]:
            run += 1
        runs[place] = run
        if place + run > stop:
            start, stop = place, place + run
    return runs[len(pattern) + 1 :]
