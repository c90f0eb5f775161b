"""What a carried body says of its model is read in a thread if the body is long, so that no other request waits."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tidemark.core.errors import ClientError
from tidemark.core.ports import Caller, Route, Upstream
from tidemark.pipeline.prompt_check import PromptCheck
from tidemark.server.endpoints.destinations import Destinations, ForwardedRequest
from tidemark.server.spools import Spools

pytestmark = pytest.mark.anyio
JSON = b"application/json"
PAIRS = b"application/x-www-form-urlencoded"


@pytest.fixture
def anyio_backend() -> str:
    """The product is asyncio only."""
    return "asyncio"


class OneUpstream:
    """An upstream that serves every model."""

    async def resolve(self, model: str) -> Route:
        """Any model's route."""
        return Route("wire", model, model, "openai", "http://localhost/v1")

    def sole_route(self, caller: Caller | None = None) -> Route | None:
        """None: the model decides."""
        return None if caller is not None else Route("wire", "", "", "openai", "http://localhost/v1")


def destinations() -> Destinations:
    """What finds the destination of a request whose model decides."""
    check = cast("PromptCheck", None)
    return Destinations(cast("Upstream", OneUpstream()), check, reads_models=True, spools=cast("Spools", None))


def request(kind: bytes) -> ForwardedRequest:
    """A request with a body of this media type."""
    return ForwardedRequest("/embeddings", "", [(b"content-type", kind)], Caller(b"alice", ()))


async def turns_beside(body: bytes, kind: bytes) -> int:
    """How often another task had its turn while a body's model was looked for."""
    turns = 0

    async def wait() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(wait())
    await asyncio.sleep(0)
    turns = 0
    try:
        await destinations().of_body(request(kind), body)
    except ClientError:
        pass
    finally:
        beside.cancel()
    return turns


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"x":"\\udc00","input":[' + b'"a, b",' * 100_000 + b'"c"]}', JSON),
        (b"{" + b",".join(b'"a%d":1' % at for at in range(300_000)) + b"}", JSON),
        (b"&".join([b"%6d" * 9 + b"=" + b"x" * 90_000] * 900), PAIRS),
    ],
    ids=["half a character", "members", "pairs"],
)
async def test_others_have_their_turn_while_a_long_body_is_read(body: bytes, kind: bytes) -> None:
    """On the event loop they would have none."""
    assert await turns_beside(body, kind) > 2


async def test_a_short_body_is_read_at_once() -> None:
    """A thread would cost more than the work."""
    assert await turns_beside(b'{"model":"m"}', JSON) == 0
