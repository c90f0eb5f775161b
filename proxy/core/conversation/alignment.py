"""Alignment: where the messages that a client sends go on from those that are stored.

Of stored history only (``X-Tidemark-History: stored``), before the road of a request. A client sends its new messages,
or a window with some of the older ones as well; by digests it is found which are new. Nothing is appended twice,
and what client and store do not both know is told, not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.core.conversation.messages import Message

Standing = Literal["follows", "behind", "apart", "repeats", "conflicts"]
"""``follows``: the new messages go on where the stored ones end. ``behind``: the client did not know the newest stored
ones. ``apart``: the client has answers that are not stored, and none that is, so something may be missing between.
``repeats``: a turn whose answer the client did not get is asked once more. ``conflicts``: the same, but the user has
gone on since."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """How stored messages and a client's fit together."""

    standing: Standing
    base: int
    """So many of the stored messages come first; all of them, but where a turn is repeated."""
    new: int
    """The client's messages from this place on come after them."""
    unseen: int = 0
    """Stored messages that the client did not know: they stand before its new ones."""
    strange: int = 0
    """Messages that the client sent before known ones, and that are not stored: they have no place and are left out."""

    @property
    def gap(self) -> str:
        """What client and store do not both know, in words for a header; empty where there is nothing."""
        if self.standing == "apart":
            return "unknown"
        counts = {"unseen": self.unseen, "strange": self.strange}
        return ", ".join(f"{name}={count}" for name, count in counts.items() if count)


def align(stored: Sequence[Message], sent: Sequence[Message]) -> Alignment:
    """Find what is new, in a time that grows with both lengths together. No system messages are among either.

    A client that names the newest stored message goes on from there. One that begins with stored messages, an answer
    among them, and does not name the newest has missed what came since; a single question proves nothing, since a user
    may ask the same twice.
    """
    held, said = [one.digest for one in stored], [one.digest for one in sent]
    if not held or not said:
        return Alignment("follows", len(held), 0)
    end = _end_of_known(held, sent)
    if end is not None:
        known, run = end
        strange = len(set(said[: known - run]) - set(held))
        return Alignment("follows", len(held), known, strange=strange)
    runs = _runs(said, held)
    longest = max(runs)
    if not any(one.role == "assistant" for one in sent[:longest]):
        apart = any(one.role == "assistant" for one in sent)
        return Alignment("apart" if apart else "follows", len(held), 0)
    after = max(place + run for place, run in enumerate(runs) if run == longest)
    if longest < len(said):
        return Alignment("behind", len(held), longest, unseen=len(held) - after)
    asked = any(one.role == "user" for one in stored[after:])
    return Alignment("conflicts" if asked else "repeats", len(held) if asked else after, len(said))


def _end_of_known(held: Sequence[bytes], sent: Sequence[Message]) -> tuple[int, int] | None:
    """Where the client's known messages end, and how many in a row agree there; None where it names not the newest.

    The longest run wins. A client may leave out messages in the middle (the first one and the last twenty); then the
    run must hold an answer, or more than one message.
    """
    backwards = _runs(held[::-1], [one.digest for one in reversed(sent)])
    best: tuple[int, bool, int] | None = None
    for place, run in enumerate(backwards):
        end = len(sent) - place
        whole = run == end
        proof = run > 1 or (run == 1 and sent[end - 1].role == "assistant")
        if run and (whole or proof) and (best is None or (run, whole) > best[:2]):
            best = (run, whole, end)
    return (best[2], best[0]) if best else None


def _runs(pattern: Sequence[bytes], text: Sequence[bytes]) -> list[int]:
    """For each place of ``text``, how much of the beginning of ``pattern`` stands there (the Z algorithm)."""
    joined: list[bytes | None] = [*pattern, None, *text]
    length = len(joined)
    found = [0] * length
    left = right = 0
    for place in range(1, length):
        run = min(right - place, found[place - left]) if place < right else 0
        while place + run < length and joined[place + run] is not None and joined[run] == joined[place + run]:
            run += 1
        found[place] = run
        if place + run > right:
            left, right = place, place + run
    return found[len(pattern) + 1 :]
