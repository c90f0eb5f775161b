"""What a step has begun is ended, whatever becomes of the request."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidemark.pipeline.values import Result
from tidemark.pipeline.walk import Walk, walk_through

RESULT = cast("Result", object())
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """As the server."""
    return "asyncio"


class Begun:
    """Something to be ended, which notes how it was."""

    def __init__(self, ended: list[str], name: str, *, fails: bool = False) -> None:
        self._ended = ended
        self._name = name
        self._fails = fails

    async def settle(self, result: Result) -> Result:
        """Note that there is a result."""
        self._ended.append(f"{self._name} settled")
        return result

    async def abandon(self) -> None:
        """Note that there is none."""
        self._ended.append(f"{self._name} abandoned")
        if self._fails:
            raise OSError(self._name)


def walk_of(*begun: Begun) -> Walk:
    """A walk whose steps look at no request."""
    nothing: Any = None
    walk = Walk(nothing, nothing, nothing, nothing)
    walk.obligations += begun
    return walk


async def test_with_a_result_the_newest_is_settled_first() -> None:
    """Each gets the result of the one before."""
    ended: list[str] = []

    async def answer(_: Walk) -> Result:
        return RESULT

    walk = walk_of(Begun(ended, "lease"), Begun(ended, "answer"))
    assert await walk_through([answer], walk) is RESULT
    assert ended == ["answer settled", "lease settled"]


async def test_where_a_step_fails_all_are_abandoned_also_behind_one_that_fails_too() -> None:
    """Another request may wait for any of them."""
    ended: list[str] = []

    async def fail(_: Walk) -> Walk:
        raise ValueError("the step")

    walk = walk_of(Begun(ended, "first"), Begun(ended, "second", fails=True), Begun(ended, "third"))
    with pytest.raises(OSError, match="second"):
        await walk_through([fail], walk)
    assert ended == ["third abandoned", "second abandoned", "first abandoned"]
