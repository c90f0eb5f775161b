"""Pasted requirements (S2-H2): a text full of demands leaves files, commands and errors their place in the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.summarizers.test_hybrid import Narrator
from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.dialects.chat.message import parse_message
from tidemark.summarizers import ExtractiveSummarizer, HybridSummarizer
from tidemark.summarizers.ledger import RULE, ledger_of

MODEL = "gpt-4o"
OWN_RULES = ("Never push to main.", "Always run the tests before you answer.", "The public API must not change.")
SUBJECTS = ("service", "client", "store", "scheduler", "console", "importer", "queue", "archive", "worker", "proxy")
DEMANDS = (
    "The {subject} must log every request with its identifier and shall not lose any of them on a restart.",
    "The {subject} shall answer within 200 ms at the 95th percentile and must never block the event loop.",
    "All settings of the {subject} must be documented, and no more than one of them is required to start it.",
    "A {subject} that fails must be started again; it is not allowed to take any other one with it.",
)
REQUIREMENTS = "# Requirements\n\nPlease read this and build it.\n\n" + "\n".join(
    f"{number + 1}. {demand.format(subject=subject)}"
    for number, (subject, demand) in enumerate((subject, demand) for subject in SUBJECTS for demand in DEMANDS)
)


def message(**value: object) -> Message:
    """One message as a client sends it."""
    return parse_message(json.dumps(value).encode(), value, 0)


def step(number: int) -> list[Message]:
    """One round of an agent's work: a file that is edited, a command that is run, an error that it gives."""
    edit = {"id": f"e{number}", "type": "function"}
    edit["function"] = {"name": "edit", "arguments": json.dumps({"path": f"src/part_{number}.py"})}  # type: ignore[assignment]
    run = {"id": f"r{number}", "type": "function"}
    run["function"] = {"name": "bash", "arguments": json.dumps({"command": f"pytest tests/test_{number}.py"})}  # type: ignore[assignment]
    return [
        message(role="assistant", content=f"I look at part {number}.", tool_calls=[edit, run]),
        message(role="tool", tool_call_id=f"e{number}", content="edited"),
        message(role="tool", tool_call_id=f"r{number}", content=f"ValueError: part {number} has no name\n1 failed"),
    ]


def work(first: int, last: int) -> list[Message]:
    """Rounds of an agent's work."""
    return [one for number in range(first, last) for one in step(number)]


def rounds() -> list[Sequence[Message]]:
    """What is summarized, compaction by compaction; the document is pasted in the first."""
    pasted = [message(role="user", content=" ".join(OWN_RULES)), message(role="user", content=REQUIREMENTS)]
    return [[*pasted, *work(0, 10)], work(10, 20), work(20, 30)]


@pytest.mark.anyio
@pytest.mark.parametrize("bound", [1000, 3000])
async def test_files_commands_and_errors_outlive_pasted_requirements(counter: TokenCounter, bound: int) -> None:
    """A summary of a window of 20,000 tokens, and one of 64,000; the user's own rules stay as well."""
    hybrid = HybridSummarizer(counter, Narrator("They worked on it."))
    summary: str | None = None
    for messages in rounds():
        summary = (await hybrid.summarize(SummaryTask(messages, summary, bound, MODEL))).text
        ledger = summary.partition("\nNarrative:")[0].splitlines()
        kinds = {line.split(":")[0] for line in ledger}
        assert {"User said", "Open request", "Files", "Commands", "Error"} <= kinds
        assert {f"User said: {rule}" for rule in OWN_RULES} <= set(ledger)
    assert summary is not None
    assert "src/part_29.py" in summary
    assert "pytest tests/test_29.py" in summary
    assert "part 29 has no name" in summary


def test_a_documents_demands_are_rules_that_come_after_the_users_own() -> None:
    """Where there are many, what the user says to the assistant has the first place."""
    directive = "You must never edit the file config/prod.yaml."
    ledger = ledger_of([message(role="user", content=f"{REQUIREMENTS}\n{directive}")], "")
    assert len(ledger.entries[RULE]) == 41
    assert next(entry for kind, entry in ledger.lines() if kind == RULE) == directive


def test_a_few_demands_in_a_users_own_words_are_rules() -> None:
    """However they are worded."""
    said = "The API must be versioned. Answers must be JSON. At most 3 retries. No secrets may ever be logged."
    assert len(ledger_of([message(role="user", content=said)], "").entries[RULE]) == 4


@pytest.mark.anyio
async def test_many_rules_of_the_users_own_leave_each_kind_its_share(counter: TokenCounter) -> None:
    """Sixty bans of the user's are rules all of them, and yet the newest file and error are told."""
    bans = " ".join(f"Never use port {port} for anything that is reached from outside." for port in range(60))
    hybrid = HybridSummarizer(counter, Narrator("They worked on it."))
    text = (
        await hybrid.summarize(SummaryTask([message(role="user", content=bans), *work(0, 5)], None, 1000, MODEL))
    ).text
    assert "src/part_4.py" in text
    assert "part 4 has no name" in text
    assert text.count("User said: Never use port") >= 8


@pytest.mark.anyio
async def test_extractive_keeps_the_users_rules_beside_a_document(counter: TokenCounter) -> None:
    """The document's sentences are weighed like all others, in each round of the cascade."""
    extractive = ExtractiveSummarizer(counter)
    summary: str | None = None
    for messages in rounds():
        summary = (await extractive.summarize(SummaryTask(messages, summary, 600, MODEL))).text
        assert all(rule in summary for rule in OWN_RULES)
    assert summary is not None
    assert "part_29" in summary or "part 29" in summary


@pytest.mark.anyio
@pytest.mark.parametrize("bound", [150, 400])
async def test_an_agents_instructions_leave_room_for_its_findings(counter: TokenCounter, bound: int) -> None:
    """Rules of a text that has dozens take a fifth of the bound first; those stated in talk keep their place."""
    instructions = " ".join(
        f"{number}. Always check the {subject} before you edit file number {number} of it."
        for number in range(4)
        for subject in SUBJECTS
    )
    findings = [f"The {subject} drops the field PixelWidth{number}." for number, subject in enumerate(SUBJECTS)]
    said = [
        message(role="user", content=f"Solve the issue in the importer. {instructions}"),
        message(role="user", content=" ".join(OWN_RULES)),
        *[message(role="assistant", content=finding) for finding in findings],
        message(role="user", content="Go on."),
    ]
    text = (await ExtractiveSummarizer(counter).summarize(SummaryTask(tuple(said), None, bound, MODEL))).text
    assert all(rule in text for rule in OWN_RULES)
    assert sum(f"PixelWidth{number}" in text for number in range(len(SUBJECTS))) >= (5 if bound == 150 else 10)
