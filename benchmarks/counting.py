"""Measures token counting: a long conversation beside ``litellm.token_counter`` and tiktoken alone, and odd texts.

``make bench-counting`` runs it. Rounds of both are interleaved on one core and their medians taken, so that a busy
machine slows both equally. A round of ours starts with empty caches; loading a vocabulary, once in a process, is listed
apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter, encoding_for
from tidemark.tokens.vocabulary import OWNER

MODEL = "gpt-4o"
MESSAGES, TOKENS = 700, 100_000
MEGABYTE = 1_000_000
JSON_LINE = json.dumps([{"id": number, "name": f"item {number}", "price": number / 7} for number in range(30_000)])
STRESS = {
    "one letter": "a" * MEGABYTE,
    "spaces": " " * MEGABYTE,
    "line ends": "\n" * MEGABYTE,
    "digits": "0123456789" * (MEGABYTE // 10),
    "emoji": "😀" * (MEGABYTE // 4),
    "<|endoftext|>": "<|endoftext|>" * (MEGABYTE // 13),
    "base64": "QUJD/+9zQkFTRTY0" * (MEGABYTE // 16),
    "one line of JSON": JSON_LINE[:MEGABYTE],
    "prose": "The quick brown fox jumps over the lazy dog. " * (MEGABYTE // 45),
}
Values = list[dict[str, str]]


def conversation() -> Values:
    """Make messages from this repository's own pages and code, in turns of about 143 tokens."""
    root = Path(__file__).parents[1]
    paths = sorted([*root.glob("docs/**/*.md"), *root.glob("proxy/tidemark/**/*.py")])
    words = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    counter, chance = LocalTokenCounter(), random.Random(7)
    values: Values = [{"role": "system", "content": "You are a careful assistant."}]
    place, remaining = 0, TOKENS
    while len(values) < MESSAGES:
        size = int(4.2 * remaining / (MESSAGES - len(values)) * chance.uniform(0.4, 1.6))
        if place + size > len(words):
            place = chance.randrange(200)
        text = words[place : place + size]
        place += size
        values.append({"role": "assistant" if len(values) % 2 else "user", "content": text})
        remaining = max(1000, remaining - counter.count_text(text, MODEL) - 4)
    return values


def parsed(values: Values) -> ModelRequest:
    """Parse a request of these messages, as the server does."""
    messages = [parse_message(json.dumps(value).encode(), value, place) for place, value in enumerate(values)]
    return ModelRequest(b"", {}, MODEL, tuple(messages), ChatDialect())


def timed(work: Callable[[], object]) -> float:
    """Return the milliseconds that a function takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def compare(rounds: int) -> None:
    """Measure ours, litellm's and tiktoken's own in turns: the whole conversation, and the same with one message more.

    tiktoken alone encodes the same texts, in the thread that it serves quickest.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    import tiktoken

    values = conversation()
    following = [*values, {"role": "user", "content": "And now the next question, please: what is left to do?"}]
    requests = parsed(values), parsed(following)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(LocalTokenCounter().count(requests[0], MODEL))
    encode = tiktoken.get_encoding(encoding_for(MODEL)).encode_ordinary  # the one that the counter loads
    texts = [value["content"] for value in values]
    figures: dict[str, list[float]] = {name: [] for name in ("alone", "cold", "litellm", "following", "litellm again")}
    theirs = []
    for _ in range(rounds):
        counter = LocalTokenCounter()
        counter.count_text("load", MODEL)
        ours = [partial(loop.run_until_complete, counter.count(request, MODEL)) for request in requests]
        theirs = [partial(litellm.token_counter, model=MODEL, messages=messages) for messages in (values, following)]
        figures["alone"].append(timed(OWNER.submit(lambda: [encode(text) for text in texts]).result))
        figures["cold"].append(timed(ours[0]))
        figures["litellm"].append(timed(theirs[0]))
        figures["following"].append(timed(ours[1]))
        figures["litellm again"].append(timed(theirs[1]))
    totals = loop.run_until_complete(LocalTokenCounter().count(requests[0], MODEL)).total, theirs[0]()
    middle = {name: statistics.median(times) for name, times in figures.items()}
    print(
        f"{len(values)} messages: {totals[0]} tokens counted by us, {totals[1]} by litellm; {rounds} rounds, median ms"
    )
    print(f"{'':24}{'Tidemark':>10}{'litellm':>10}{'ratio':>8}")
    for title, own, other in (("cold", "cold", "litellm"), ("following turn", "following", "litellm again")):
        print(f"{title:24}{middle[own]:10.2f}{middle[other]:10.2f}{middle[other] / middle[own]:8.1f}")
    ratios = [
        f"{statistic(figures['cold']) / statistic(figures['alone']):.2f}" for statistic in (statistics.median, min)
    ]
    print(f"cold, by tiktoken's own {middle['alone']:.2f} ms: {ratios[0]} times; by the best rounds: {ratios[1]}")
    print(f"best round: {min(figures['cold']):.2f} cold, {min(figures['following']):.2f} following\n")


async def lag(text: str) -> tuple[float, float]:
    """Return the milliseconds of counting a text off the loop, and the longest pause of the loop meanwhile."""
    counter, request = LocalTokenCounter(), parsed([{"role": "user", "content": text}])
    counter.count_text("load", MODEL)
    start = previous = time.perf_counter()
    task = asyncio.create_task(counter.count(request, MODEL))
    worst = 0.0
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        worst, previous = max(worst, now - previous - 0.001), now
    await task
    return (time.perf_counter() - start) * 1000, worst * 1000


def fresh(text: str) -> int:
    """Count a text with empty caches."""
    return LocalTokenCounter().count_text(text, MODEL)


def stress() -> None:
    """Measure a megabyte of each text: tokens, time, growth from a quarter of it, and the loop's longest pause."""
    print(f"{'1 MB of':20}{'tokens':>9}{'ms':>8}{'x of 1/4 MB':>13}{'loop lag ms':>13}")
    for title, text in STRESS.items():
        small, large = (min(timed(partial(fresh, piece)) for _ in range(3)) for piece in (text[: len(text) // 4], text))
        tokens = fresh(text)
        _, worst = min((asyncio.run(lag(text)) for _ in range(3)), key=lambda result: result[1])
        print(f"{title:20}{tokens:9}{large:8.0f}{large / small:13.1f}{worst:13.1f}")


def machine() -> str:
    """Describe the machine in one line."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores, load = os.cpu_count(), os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores {model}, load {load:.1f}, {platform.python_version()}"
    )


def main() -> None:
    """Print all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds of the comparison")
    rounds = parser.parse_args().rounds
    print(machine())
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        compare(rounds)
        os.sched_setaffinity(0, cores)
    else:
        compare(rounds)
    stress()


if __name__ == "__main__":
    main()
