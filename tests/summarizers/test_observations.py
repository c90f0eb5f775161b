"""What an agent without tool messages reads is a result of its command, and no words of its user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.request import request_of
from tidemark.summarizers.transcript import utterances

Talk = Callable[..., tuple[Message, ...]]
PROMPT = "\n(Open file: n/a)\n(Current directory: /repo)\nbash-$"
TASK = f"Fix the crash of the tide parser. Never touch vendor/.{PROMPT}"
LISTING = "\n".join(
    f"-rw-r--r-- 1 dev dev {1000 + 37 * row} Oct {1 + row % 28} 12:{row:02} harbour_{row}.c" for row in range(60)
)
OBSERVED = (
    f"{LISTING}{PROMPT}",
    f"OBSERVATION:\n{LISTING}",
    f"Observation: {LISTING}",
    f"<returncode>0</returncode>\n<output>\n{LISTING}\n</output>",
    f"EXECUTION RESULT of [bash]:\n{LISTING}",
    f"{LISTING}\n[The command completed with exit code 0.]",
    f"{LISTING}\n[Current working directory: /repo]\n[Command finished with exit code 0]",
)
SAID = (
    "I get this, why?\n" + LISTING,
    LISTING,
    "My observation: it crashes at noon.",
    "The last line said [exit code 1] and then nothing.",
    "bash-$ is what I see.",
)


@pytest.mark.parametrize("output", OBSERVED)
def test_the_output_of_a_command_is_a_result(talk: Talk, output: str) -> None:
    """In the forms of SWE-agent, mini-SWE-agent, OpenHands and ReAct."""
    speakers = [utterance.speaker for utterance in utterances(talk(TASK, "I look.\n\n```\nls -la\n```", output))]
    assert speakers == ["User", "Assistant", "Tool"]


@pytest.mark.parametrize("words", SAID)
def test_what_a_person_writes_or_pastes_is_the_persons(talk: Talk, words: str) -> None:
    """Also a log, which nothing but a question tells from an agent's."""
    speakers = [utterance.speaker for utterance in utterances(talk("Help me.", "Run `ls -la`.", words))]
    assert speakers == ["User", "Assistant", "User"]


def test_a_task_is_its_users_whatever_its_end(talk: Talk) -> None:
    """SWE-agent ends it with a prompt, too. It is what all that follows is for."""
    messages = talk(
        TASK, "I look.\n\n```\nls -la\n```", OBSERVED[0], "And now the parser.\n\n```\ncat p.c\n```", OBSERVED[0]
    )
    assert next(utterances(messages)).speaker == "User"
    request = request_of(messages)
    assert request is not None
    assert request.text.startswith("Fix the crash of the tide parser.")
    assert request_of(()) is None


@pytest.mark.anyio
async def test_a_listing_that_nobody_took_up_leaves_the_summary_to_what_was_found(
    counter: TokenCounter, talk: Talk
) -> None:
    """Its numbers had weighed more than the words of the agent."""
    steps = ("I look.\n\n```\nls -la\n```", OBSERVED[0])
    found = "The overflow is in farthest_point, since declared is trusted.\n\n```\nopen src/simplify.c\n```"
    messages = talk(TASK, *steps, found, f"142: keep[hi] = 1;{PROMPT}", "I fix it.\n\n```\nedit 142\n```")
    text = (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, None, 220, "gpt-4o"))).text
    assert "declared is trusted" in text
    assert "Never touch vendor/." in text
    assert text.count("harbour_") <= 3
