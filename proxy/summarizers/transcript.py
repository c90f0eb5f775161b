"""Messages as lines of a transcript, and lines of an earlier summary read back as the same.

Below all strategies: what a summarizer reads instead of JSON. Each line names its speaker, so that a summary
made of such lines can be taken apart again by the next one (cascade).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.conversation.messages import Message, ToolCall, printable

CALLED = "called "
EARLIER = "Earlier"
"""Speaker of lines whose own speaker is not told: another strategy's prose."""
NARRATIVE = "Narrative:"
"""The line behind which all of a summary is a model's prose: whatever a line there reads like, nobody said it so."""
_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool", "system": "System"}
_LINE = re.compile(
    r"(?P<speaker>User(?: \([^)\n]{1,64}\))?|Assistant|System|Tool(?: [\w.-]{1,64})?|Earlier|Open request"
    r"|Rule|Fact|Error|Decision|Files|Commands|Links|Identifiers|Numbers): (?P<text>.*)"
)
_MARKUP = re.compile(r"^\s*(?:[-*•]\s+|\d+[.)]\s+)")
_ARGUMENT_CHARS = 80
_CALL_CHARS = 240


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one speaker said at one place."""

    speaker: str
    text: str
    """Of a call it starts with ``CALLED``, and stands without a colon behind the speaker."""

    @property
    def line(self) -> str:
        """As a transcript shows it. Further lines are indented: no text can pose as another speaker."""
        return "\n  ".join(_said(self.speaker, self.text).splitlines())


def join_line(speaker: str, text: str) -> str:
    """``User: text``, ``Assistant called name(arguments)``: one line of a summary, whatever the text holds."""
    return one_line(_said(speaker, text))


def one_line(text: str) -> str:
    """The text with a blank for each line end in it, by whatever character."""
    return " ".join(text.splitlines())


def utterances(messages: Sequence[Message]) -> Iterator[Utterance]:
    """All that was said, called and answered, in order; messages without any content give nothing."""
    names: dict[str, str] = {}
    for message in messages:
        names.update({call.id: call.name for call in message.calls})
        text = " ".join([message.text, *map(_media_note, message.media)]).strip()
        if text:
            yield Utterance(_speaker(message, names), text)
        for call in message.calls:
            yield Utterance(_SPEAKERS["assistant"], call_text(call))


def read_back(summary: str) -> Iterator[Utterance]:
    """The lines of an earlier summary. Headings and bullet marks of a model's prose fall away."""
    prose = False
    for line in summary.split("\n"):  # the one line end that a summary is written with
        prose = prose or line == NARRATIVE
        found = None if prose else _LINE.fullmatch(line)
        if found:
            yield Utterance(found["speaker"], found["text"])
        elif not prose and line.startswith("Assistant " + CALLED):
            yield Utterance(_SPEAKERS["assistant"], line.removeprefix("Assistant "))
        elif line.strip() and not line.lstrip().startswith("#") and not line.rstrip().endswith(":"):
            yield Utterance(EARLIER, _MARKUP.sub("", line).strip())


def call_text(call: ToolCall) -> str:
    """``called name(key=value, ...)`` on one line, long values shortened."""
    arguments = arguments_of(call)
    if arguments is None:
        inside = shortened(" ".join(call.arguments.split()), _ARGUMENT_CHARS)
    else:
        inside = ", ".join(f"{key}={_value(value)}" for key, value in arguments.items())
    return shortened(one_line(f"{CALLED}{call.name}({inside})"), _CALL_CHARS)


def arguments_of(call: ToolCall) -> Mapping[str, object] | None:
    """The decoded arguments; None where the model did not write a JSON object."""
    try:
        arguments = json.loads(call.arguments)
        if "\\ud" in call.arguments.lower():  # half a character, perhaps: it must not reach a summary
            arguments = json.loads(printable(json.dumps(arguments, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def shortened(text: str, characters: int) -> str:
    """The text, or its beginning and its end around a mark; never longer than ``characters``."""
    if len(text) <= characters:
        return text
    head = characters // 2
    return text[:head] + "…" + text[len(text) - (characters - head - 1) :]


def _said(speaker: str, text: str) -> str:
    return f"{speaker} {text}" if text.startswith(CALLED) else f"{speaker}: {text}"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(" ".join(text.split()), _ARGUMENT_CHARS)


def _speaker(message: Message, names: Mapping[str, str]) -> str:
    speaker = _SPEAKERS[message.role]
    if message.role == "tool":
        name = names.get(message.answers or "", "") or message.name or ""
        return f"{speaker} {name}" if re.fullmatch(r"[\w.-]{1,64}", name) else speaker
    if message.role == "user" and message.name and re.fullmatch(r"[^)\n]{1,64}", message.name):
        return f"{speaker} ({message.name})"
    return speaker


def _media_note(part: Mapping[str, object]) -> str:
    """``[image_url]``, ``[file report.pdf]``: that something was there, not what was in it."""
    kind, file = part.get("type"), part.get("file")
    name = file.get("filename") if isinstance(file, dict) else part.get("filename")
    words = [str(kind)[:40] if isinstance(kind, str) else "attachment"]
    return f"[{' '.join([*words, name[:80]] if isinstance(name, str) else words)}]"
