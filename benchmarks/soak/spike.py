"""Opens thousands of streams at once: each must be whole, or refused cleanly with 503 and served after its wait.

``__main__.py`` runs it on one worker, without bounds and with ``limits.max_streams``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.soak.clients import MODEL
from benchmarks.speed.load import connect, request
from benchmarks.speed.machine import memory_kb
from benchmarks.speed.work import CHAT_PATH

MOST_TRIES = 60
ANSWER_SECONDS = 120.0
LOOK_SECONDS = 0.25
"""Between two looks at the memory."""


@dataclass(slots=True)
class Spike:
    """What became of the streams of a spike."""

    streams: int
    whole: int = 0
    refusals: int = 0
    """Answers with 503 ``overloaded`` and ``Retry-After``, of which a stream may get several."""
    broken: Counter[str] = field(default_factory=Counter)
    """Streams that were cut short, got another answer, or were refused to the end, by what came."""
    seconds: float = 0.0
    before_kb: int = 0
    """Resident memory of Tidemark's processes before."""
    most_kb: int = 0

    @property
    def stream_kb(self) -> float:
        """Return how much memory a stream took, where all were open at once."""
        return (self.most_kb - self.before_kb) / self.streams


async def run_spike(port: int, pid: int, streams: int, pace: str) -> Spike:
    """Open all streams at once; one that is refused tries again when it may.

    :param port: Tidemark's
    :param pid: of its first process
    :param pace: what the upstream shall stream, as in ``chunks=20 pace=500``
    """
    spike = Spike(streams, before_kb=memory_kb(pid))
    watch = asyncio.create_task(_watch_memory(pid, spike))
    began = time.perf_counter()
    await asyncio.gather(*(_stream(port, f"Stream {number}: {pace}", spike) for number in range(streams)))
    spike.seconds = time.perf_counter() - began
    watch.cancel()
    await asyncio.wait([watch])
    return spike


async def _watch_memory(pid: int, spike: Spike) -> None:
    while True:
        spike.most_kb = max(spike.most_kb, memory_kb(pid))
        await asyncio.sleep(LOOK_SECONDS)


async def _stream(port: int, text: str, spike: Spike) -> None:
    messages = [{"role": "user", "content": text}]
    data = request(CHAT_PATH, json.dumps({"model": MODEL, "messages": messages, "stream": True}).encode())
    for _ in range(MOST_TRIES):
        try:
            connection = await connect(port)
            try:
                answer = await asyncio.wait_for(connection.ask(data), ANSWER_SECONDS)
            finally:
                connection.close()
        except (OSError, TimeoutError) as error:
            spike.broken[repr(error)] += 1
            return
        if answer.status == 200 and answer.tail.endswith(b"[DONE]\n\n"):
            spike.whole += 1
            return
        if answer.status != 503 or b"overloaded" not in answer.tail or not answer.retry_after:
            spike.broken[f"status {answer.status}, the last bytes {answer.tail[-60:]!r}"] += 1
            return
        spike.refusals += 1
        await asyncio.sleep(float(answer.retry_after))
    spike.broken["refused to the end"] += 1
