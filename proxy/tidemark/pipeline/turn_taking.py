"""The step ``take_turn``: a request that has its new messages only becomes one turn of a stored conversation.

It comes after ``continue_from_earlier``, and before commands are taken out. The turn has a lease until its reply has
ended, and a request that is sent again gets the answer of its first try.
"""

from __future__ import annotations

from functools import partial

from tidemark.core.conversation.request import ModelRequest
from tidemark.pipeline.repeated_turns import RepeatedTurns
from tidemark.pipeline.stored_history import HistoryTurn, StoredHistory
from tidemark.pipeline.values import Controls, Progress, Repeated, Result
from tidemark.pipeline.walk import Walk


class TakeTurn:
    """Takes turns of stored conversations; all other requests pass."""

    def __init__(self, history: StoredHistory, repeats: RepeatedTurns) -> None:
        self._history = history
        self._repeats = repeats

    async def __call__(self, walk: Walk) -> Walk | Result:
        """Take the conversation's turn, and add its earlier messages; or return the answer of an earlier try."""
        request, caller, controls = walk.request, walk.caller, walk.controls
        if controls.history != "stored" or controls.conversation is None:
            return walk
        earlier = await self._repeats.join(request, caller, controls, seconds=self._history.wait_seconds)
        if isinstance(earlier, Repeated):
            return earlier
        if earlier is not None:
            walk.obligations.append(earlier)
        turn = await self._history.start_turn(request, caller, controls)
        walk.obligations.append(turn)
        answer = await self._repeats.kept_answer(turn, request, caller, controls)
        if answer is not None:
            walk.obligations.pop()
            await turn.abandon()
            return answer
        _take_over(walk, turn, walk.progress)
        walk.read_more = partial(self._complete, walk, turn, request, controls, walk.progress)
        return walk

    async def _complete(
        self, walk: Walk, turn: HistoryTurn, request: ModelRequest, controls: Controls, progress: Progress
    ) -> None:
        """Add the messages that were left out of the turn."""
        await self._history.complete(turn, request, controls)
        _take_over(walk, turn, progress)


def _take_over(walk: Walk, turn: HistoryTurn, progress: Progress) -> None:
    """Let the walk go on with a turn's request."""
    walk.request, walk.controls, walk.place = turn.request, turn.controls, turn.place
    walk.progress = turn.reporting_to(progress)
