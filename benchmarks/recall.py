"""Measures the step ``recall`` in a compacted conversation of 5,000 messages; ``make bench-recall`` runs it.

Every question is made of words of one message that the summary stands for. The figures are the CPU time of the whole
step, which other load changes little: what is looked up, quoted, counted and put into the request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import ConversationState
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.calibration import CalibratedBudget
from tidemark.core.ports import Caller, RequestCount, Route
from tidemark.core.recall.epoch import EpochRecall
from tidemark.core.report import Report
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.pipeline.recall import Recaller
from tidemark.pipeline.recall_indexes import RecallIndexes
from tidemark.pipeline.values import Controls, FittedRequest, RequestContext
from tidemark.tokens import LocalTokenCounter

MODEL = "gpt-4o"
MESSAGES, WORDS, NEWEST, VOCABULARY = 5_000, 80, 250, 20_000
QUESTION_WORDS = 15
TENANT = "benchmark"
POLICY = CompactionPolicy(max_recall_tokens=None)
PROFILE = ModelProfile(MODEL, ModelWindow(128_000, 4096), POLICY)
ROUTE = Route("wire", MODEL, MODEL, "openai", "http://127.0.0.1/v1")


class Talk:
    """A conversation with a summary, which asks one question after the other.

    The mutable state is the random source. Common words are far more frequent than rare ones, as in a language.
    """

    def __init__(self, messages: int) -> None:
        self._chance = random.Random(5)
        self._words = [
            "".join(self._chance.choices("abcdefghijklmnoprstuvw", k=self._chance.randrange(2, 10)))
            for _ in range(VOCABULARY)
        ]
        weights = [1 / (rank + 1) for rank in range(VOCABULARY)]
        self._counter = LocalTokenCounter()
        texts = [" ".join(self._chance.choices(self._words, weights, k=WORDS)) for _ in range(messages)]
        self.messages = [_message(number, text) for number, text in enumerate(texts)]
        self._tokens = [self._counter.count_message(message, MODEL) for message in self.messages]
        self._chain = chain_of(TENANT, self.messages)
        covered = messages - NEWEST
        text = "\n".join(texts[number][:200] for number in range(0, covered, covered // 60))
        self.summary = PrefixSummary(
            self._chain.at(covered),
            covered,
            text,
            SummaryRecipe("extractive", "", 1),
            "extractive",
            "automatic",
            0.0,
            first_question=messages + 1,
        )

    def request(self, text: str, count: int = 0) -> tuple[RequestContext, FittedRequest]:
        """Return a request with a question, after its first messages; 0 stands for all of them."""
        end = count or len(self.messages)
        question = _message(end, text)
        messages = (*self.messages[:end], question)
        tokens = (*self._tokens[:end], self._counter.count_message(question, MODEL))
        context = RequestContext(
            request=ModelRequest(b"", {}, MODEL, messages, ChatDialect()),
            controls=Controls(),
            caller=Caller(b"f" * 32, ()),
            route=ROUTE,
            profile=PROFILE,
            tenant=TENANT,
            chain=self._chain.extended([question]),
            stored=ConversationState(),
            count=RequestCount(tokens, 3, "o200k_base"),
            measure=CalibratedBudget(budget_for(PROFILE, None)),
            started=0.0,
            conversation="",
        )
        forwarded = assemble(messages, self.summary)
        report = Report("", TENANT, context.budget.limit, local_tokens=sum(tokens[self.summary.covered :]) + 4_000)
        return context, FittedRequest(forwarded, report, summary=self.summary)

    def question(self) -> str:
        """Return words of a message that the summary stands for."""
        text = self.messages[self._chance.randrange(self.summary.covered)].text.split()
        return " ".join(self._chance.sample(text, QUESTION_WORDS)) + "?"

    def recaller(self, indexes: RecallIndexes) -> Recaller:
        """Return the step."""
        return Recaller(self._counter, indexes)


def _message(number: int, text: str) -> Message:
    value = {"role": "assistant" if number % 2 else "user", "content": text}
    return parse_message(json.dumps(value).encode(), value, number)


async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return the milliseconds of CPU time and of time that a step takes."""
    began, start = time.process_time(), time.perf_counter()
    await work()
    return (time.process_time() - began) * 1000, (time.perf_counter() - start) * 1000


async def measure(messages: int, questions: int) -> None:
    """Print the figures of new questions, of the steps after them, and of a message about nothing earlier."""
    talk, indexes = Talk(messages), RecallIndexes(wait_seconds=60)
    bound = budget_for(PROFILE, None).max_recall
    print(f"{messages:,} messages of {WORDS} words, {questions} questions, a bound of {bound:,} tokens")
    recaller = talk.recaller(indexes)
    context, fitted = talk.request("Thanks!")
    cpu, seconds = await timed(lambda: recaller.recall(context, fitted, talk.summary))
    print(f"  {'index':32} CPU {cpu:7.1f} ms, {seconds:7.1f} ms")
    figures: dict[str, list[tuple[float, float]]] = {}
    tokens: list[int] = []
    for _ in range(questions):
        context, fitted = talk.request(talk.question())

        async def step(context: RequestContext = context, fitted: FittedRequest = fitted) -> None:
            epoch = await recaller.recall(context, fitted, talk.summary) or EpochRecall()
            recaller.put_back(context, fitted, epoch)
            tokens.append(epoch.tokens)

        for name in ("a new question", "each further step of its turn"):
            figures.setdefault(name, []).append(await timed(step))
    for number in range(questions):
        context, fitted = talk.request(f"Thanks! {number}")

        async def nothing(context: RequestContext = context, fitted: FittedRequest = fitted) -> None:
            await recaller.recall(context, fitted, talk.summary)

        figures.setdefault("a message about nothing earlier", []).append(await timed(nothing))
    for name, times in figures.items():
        print(f"  {name:32} CPU {_line([cpu for cpu, _ in times])}; wall {_line([wall for _, wall in times])}")
    print(f"  {'recalled':32} {statistics.median(tokens):,.0f} tokens")
    await indexes.aclose()


def _line(times: Sequence[float]) -> str:
    return f"{statistics.median(times):5.2f} ms, p95 {statistics.quantiles(times, n=20)[-1]:5.2f} ms"


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--questions", type=int, default=200)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.messages, arguments.questions))


if __name__ == "__main__":
    main()
