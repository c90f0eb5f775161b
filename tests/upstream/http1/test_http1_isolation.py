"""Promise 8 on the last hop: over shared connections nobody gets a byte of another caller's answer."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from tests.support.scripted import ByteScript, Exchange, ScriptedServer, serving
from tests.support.waiting import until
from tidemark.upstream.http1.pool import Pool

CALLERS, ROUNDS = 12, 25


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops."""
    return "asyncio", {"use_uvloop": request.param}


def moody(chance: random.Random) -> ByteScript:
    """A server that says whose request it is, in chunks, at its own pace; and now and then ends it badly."""

    async def script(exchange: Exchange) -> None:
        with suppress(RuntimeError):  # uvloop's word for a caller who has left
            await answer(exchange)

    async def answer(exchange: Exchange) -> None:
        mood = chance.random()
        if mood < 0.1:
            exchange.writer.close()
            return
        await exchange.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-whose: %b\r\n\r\n" % exchange.body)
        for _ in range(chance.randrange(1, 6)):
            await exchange.chunk(exchange.body * chance.randrange(1, 400))
            await asyncio.sleep(chance.choice([0, 0, 0.002]))
        if mood < 0.2:
            exchange.writer.close()
        else:
            await exchange.write(b"0\r\n\r\n" + (b"surplus" if mood < 0.3 else b""))

    return script


async def read_some(pool: Pool, server: ScriptedServer, whose: bytes, chance: random.Random) -> int:
    """One request of this caller, who may leave at any time; every byte of its answer is the caller's own."""
    seen = b""
    answer = await pool.ask("POST", server.base_url, [], whose, asyncio.get_running_loop().time() + 5)
    assert (b"x-whose", whose) in answer.headers
    try:
        while piece := await answer.read(5):
            seen += piece
            assert (whose * (len(seen) // len(whose) + 1)).startswith(seen)
            if chance.random() < 0.1:
                break
    finally:
        answer.close()
    return len(seen)


async def test_nobody_gets_anothers_bytes() -> None:
    """However callers leave, and however the server ends its answers."""
    chance = random.Random(7)
    pool = Pool(keepalive_seconds=4, connect_seconds=5)

    async def caller(whose: bytes, server: ScriptedServer) -> int:
        seen = 0
        for _ in range(ROUNDS):
            reading = asyncio.create_task(read_some(pool, server, whose, chance))
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() / 200)
                reading.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                seen += await reading
        return seen

    async with serving(moody(chance)) as server:
        seen = await asyncio.gather(*[caller(b"<%d>" % number, server) for number in range(CALLERS)])
        assert all(seen)
        assert CALLERS < server.connections < len(server.exchanges)  # some were kept, some were not
        await pool.aclose()
        await until(lambda: server.open == 0)
