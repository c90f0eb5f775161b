"""Clipping: single tool results that are too large even for a compacted request lose their middle (FR-5.3.1).

After the plan on the road of a request, and only where its outcome would be ``CannotFit``: retention has shrunk
by then and the summary is as short as may be. ``clips_for`` decides which results become how small, ``clipped``
rewrites one. What is stored stays the original, and the newest message is never touched (promise 2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from proxy.core.conversation.messages import Message
from proxy.core.planning.cuts import open_cuts
from proxy.core.planning.plan import plan
from proxy.core.planning.situation import CannotFit, Compact, NoCompaction, PlanInput, ReuseSummary, SwapSummary

LEAST_TOKENS = 64
"""Of a clipped message: its frame, the mark, and a line or two of each end."""
LEAST_GAIN_TOKENS = 32
"""A result that is larger than a rung by less stays for the next one: the mark would take half of the gain."""
HEAD_SHARE = 0.5
"""Of what is kept: a result's beginning says what it is, its end how it came out."""
MARK = "[... {tokens:,} tokens clipped by Tidemark ...]"


@dataclass(frozen=True, slots=True)
class Clip:
    """One message that is to be made smaller."""

    place: int
    """Index in the request's messages."""
    max_tokens: int
    """Of the whole message, its frame and the mark included; a rung of the ladder."""


@dataclass(frozen=True, slots=True)
class Scissors:
    """What clipping asks of a tokenizer, for one model, and of the message's dialect."""

    count_message: Callable[[Message], int]
    count_text: Callable[[str], int]
    cut_text: Callable[[str, int], str]
    """The longest beginning of at most that many tokens."""
    replace_middle: Callable[[Message, int, int, str], Message]
    """The message with a mark in place of the characters between two places of its text; the dialect knows how."""


def clips_for(situation: PlanInput) -> tuple[Clip, ...]:
    """The fewest clips with which a request fits that does not fit otherwise; none where clipping does not help.

    The same sequence of clips is gone through for the same messages and limit: the largest first, down a ladder of
    sizes that follow from the limit alone. So a result that is clipped stays as it is for many turns (promise 5).
    """
    if situation.policy.oversize == "error" or not isinstance(plan(situation), CannotFit):
        return ()
    steps = _steps(situation)
    bound = situation.budget.max_summary
    # What was summarized stays so, and its bytes with it. A summary that was made for a larger window is made anew.
    within = situation.summary is not None and situation.summary_tokens <= bound
    return (_fewest(situation, steps, kept=True) if within else ()) or _fewest(situation, steps, kept=False)


def could_shrink(situation: PlanInput) -> bool:
    """Whether there is another way than to forward the request as it came or to refuse it."""
    planned = plan(situation)
    return not isinstance(planned, NoCompaction | CannotFit) or bool(clips_for(situation))


def _fewest(situation: PlanInput, steps: Sequence[Clip], *, kept: bool) -> tuple[Clip, ...]:
    """The shortest beginning of ``steps`` with which the plan comes out; the more are taken, the smaller it gets."""

    def fits(count: int) -> bool:
        planned = plan(replace(situation, tokens=_sizes(situation.tokens, steps[:count])))
        return not isinstance(planned, CannotFit) and (not kept or _goes_on(planned))

    if not steps or not fits(len(steps)):
        return ()
    needed = bisect_left(range(len(steps)), True, key=fits)  # noqa: FBT003 - what is looked for
    last = {clip.place: clip for clip in steps[:needed]}
    return tuple(last[place] for place in sorted(last))


def _goes_on(planned: NoCompaction | ReuseSummary | SwapSummary | Compact) -> bool:
    """Whether a stored summary is used, or taken in by the next one."""
    return isinstance(planned, ReuseSummary | SwapSummary) or (
        isinstance(planned, Compact) and planned.previous is not None
    )


def _sizes(tokens: Sequence[int], steps: Sequence[Clip]) -> list[int]:
    sizes = list(tokens)
    for clip in steps:
        sizes[clip.place] = clip.max_tokens
    return sizes


def _steps(situation: PlanInput) -> list[Clip]:
    """Every clip there could be, in the order in which they are made: the largest result first, rung by rung."""
    sizes = {place: situation.tokens[place] for place in _clippable(situation.messages)}
    steps: list[Clip] = []
    rung = situation.budget.limit // 2
    while rung >= LEAST_TOKENS:
        for place in sorted(sizes, key=lambda one: (-sizes[one], one)):
            if sizes[place] >= rung + LEAST_GAIN_TOKENS:
                steps.append(Clip(place, rung))
                sizes[place] = rung
        rung //= 2
    return steps


def _clippable(messages: Sequence[Message]) -> list[int]:
    """Places of the results that no cut can bring into a summary, but for the newest message.

    One with an image is left alone: what its text has of its tokens is not known here.
    """
    said = [place for place, message in enumerate(messages) if not message.is_system]
    cuts = open_cuts([messages[place] for place in said])
    first = next((cut for cut in range(len(said) - 1, 0, -1) if cuts[cut]), 0)
    return [
        place
        for place in said[first:-1]
        if messages[place].role == "tool" and messages[place].text and not messages[place].media
    ]


def clipped(message: Message, tokens: int, max_tokens: int, scissors: Scissors) -> Message:
    """The message with the middle of its text replaced by a mark, all other members its own bytes.

    :param tokens: of the message as it is
    :param max_tokens: of the message as it is returned; less than a frame and a mark cannot be reached
    """
    text = message.text
    framed = tokens - scissors.count_text(text)
    room = max_tokens - scissors.count_message(scissors.replace_middle(message, 0, len(text), _mark(tokens)))
    while True:
        head = scissors.cut_text(text, int(room * HEAD_SHARE)) if room > 0 else ""
        tail = _end_of(text[len(head) :], room - int(room * HEAD_SHARE), scissors)
        gone = tokens - framed - scissors.count_text(head) - scissors.count_text(tail)
        made = scissors.replace_middle(message, len(head), len(text) - len(tail), _mark(gone))
        over = scissors.count_message(made) - max_tokens
        if over <= 0 or room <= 0:
            return made
        room -= over


def _mark(tokens: int) -> str:
    return MARK.format(tokens=tokens)


def _end_of(text: str, max_tokens: int, scissors: Scissors) -> str:
    """An end of the text of at most that many tokens; characters have about as many there as where it begins."""
    if max_tokens <= 0:
        return ""
    end = text[max(len(text) - len(scissors.cut_text(text, max_tokens)), 0) :]
    while end and (tokens := scissors.count_text(end)) > max_tokens:
        end = end[len(end) - int(len(end) * max_tokens / tokens * 0.98) :]
    return end
