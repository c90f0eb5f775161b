"""Renders messages as lines of a transcript, and reads the lines of an earlier summary back.

All strategies read a transcript instead of JSON. Each line names its speaker, or goes on with the one above it, so that
the next summary can split a summary of such lines again (cascade).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import repeat

from tidemark.core.conversation.messages import JsonValue, Message, ToolCall, kind_of, printable
from tidemark.core.conversation.summary import NARRATIVE
from tidemark.core.frozen import frozen
from tidemark.summarizers.days import marked_day, with_mark
from tidemark.summarizers.labels import label_of

CALLED = "called "
EARLIER = "Earlier"
"""The speaker of lines that name none, such as another strategy's prose."""
USER_SAID = "User said"
"""The speaker of a ledger's lines that look like rules of the user. They are quoted, since what looks like one may be
none: of talks that the patterns were not made for, half of it is one (docs/fidelity.md)."""
_RENAMED = {"Rule": USER_SAID}
"""How summaries of earlier versions call these speakers."""
_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool", "system": "System"}
_LINE = re.compile(
    r"(?P<speaker>User(?: \([^)\n]{1,64}\))?|Assistant|System|Tool(?: [\w.-]{1,64})?|Earlier|Open request"
    rf"|{USER_SAID}|Rule|Fact|Error|Decision|Files|Commands|Links|Identifiers|Numbers): (?P<text>.*)"
)
_INDENT = " "
"""Begins a line with the speaker of the line above: it costs no token, and a speaker two."""
_LABELLING = ("User", "Assistant", "System")
"""How the speakers begin whose labels stand once."""
_UNSEEN = frozenset({"reasoning", "thinking", "redacted_thinking", "compaction", "compaction_summary"})
"""Parts that a model wrote for itself or its provider."""
_MARKUP = re.compile(r"^\s*(?:[-*•]\s+|\d+[.)]\s+)")
_OBSERVATION = re.compile(
    r"\A\s*(?:OBSERVATION:|Observation:|EXECUTION RESULT of \[|<(?:returncode|output)>)"
    r"|\n\(Current directory: [^\n]{1,400}\)\s*\nbash-\$\s*\Z|\n\[[^\n\]]{0,200}exit code -?\d{1,9}\.?\]\s*\Z"
)
_ARGUMENT_CHARS = 80
_CALL_CHARS = 240


@frozen
class Utterance:
    """A text of one speaker at one place."""

    speaker: str
    text: str
    """For a tool call it starts with ``CALLED``, and follows the speaker without a colon."""
    call: str = field(default="", compare=False)
    """The id of the call that it is or answers; empty for all else, and in an earlier summary."""
    day: str = field(default="", compare=False)
    """The day with which an earlier summary marks it; empty for all else."""

    @property
    def line(self) -> str:
        """The line of a transcript. Further lines are indented, so that no text can imitate another speaker."""
        return "\n  ".join(_with_speaker(self.speaker, self.text).splitlines())


def join_line(speaker: str, text: str) -> str:
    """Return one line of a summary: ``User: text``, or ``Assistant called name(arguments)``."""
    return one_line(_with_speaker(speaker, text))


def one_line(text: str) -> str:
    """Return the text with a blank for each line end, whichever character ends the line."""
    return " ".join(text.splitlines())


def is_observation(message: Message, before: Message | None) -> bool:
    """Return whether a user message is what an agent without tool messages read: the output of its command.

    Known by the forms of SWE-agent, mini-SWE-agent, OpenHands and ReAct, which no person writes. A task may have one,
    too, but no message of the model before it.
    """
    is_answer = message.role == "user" and before is not None and before.role == "assistant" and not before.calls
    return is_answer and _OBSERVATION.search(message.text) is not None


def utterances(messages: Sequence[Message]) -> Iterator[Utterance]:
    """Yield texts, tool calls and results in order; a message without content yields nothing."""
    names: dict[str, str] = {}
    before: Message | None = None
    for message in messages:
        names.update({call.id: call.name for call in message.calls})
        notes = [_media_note(part) for part in message.media if kind_of(part) not in _UNSEEN]
        text = " ".join([message.text, *notes]).strip()
        if text:
            speaker = _SPEAKERS["tool"] if is_observation(message, before) else _speaker(message, names)
            yield Utterance(speaker, text, message.answers or "")
        for call in message.calls:
            yield Utterance(_SPEAKERS["assistant"], call_text(call), call.id)
        before = message


def join_lines(parts: Sequence[tuple[str, str]], days: Sequence[str] = ()) -> str:
    """Return a summary's lines: statements that share a label first, under it, then all others in their order.

    A label, a speaker and a day stand once for the lines that follow them.

    :param parts: each speaker and text
    :param days: the day of each part, if the talk states days; empty for one that has none
    """
    labels = [_split_label(speaker, text) for speaker, text in parts]
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (speaker, _), (label, statement) in zip(parts, labels, strict=True):
        if label:
            groups[speaker, label].append(statement)
    groups = {key: statements for key, statements in groups.items() if len(statements) > 1}
    speakers = list(dict.fromkeys(speaker for speaker, _ in groups))
    lines: list[str] = []
    above = ""
    for (speaker, label), texts in sorted(groups.items(), key=lambda group: speakers.index(group[0][0])):
        lines.append(_INDENT + label if speaker == above else join_line(speaker, label))
        lines += [_INDENT + text for text in texts]
        above = speaker
    above = today = ""  # an indented line would stand under the last label
    for (speaker, text), (label, _), day in zip(parts, labels, days or repeat(""), strict=bool(days)):
        if (speaker, label) not in groups:
            line, today = text if day in ("", today) else with_mark(text, day), day or today
            lines.append(_INDENT + one_line(line).strip() if speaker == above else join_line(speaker, line))
            above = "" if _is_label(text) else speaker
    return "\n".join(lines)


def _split_label(speaker: str, text: str) -> tuple[str, str]:
    """Return a statement's label and the rest; no label for a tool's result, in which the order says more."""
    if ":" not in text or not speaker.startswith(_LABELLING) or text.startswith(CALLED):
        return "", text
    label = label_of(text)
    statement = one_line(text.removeprefix(label)).strip()
    return (label, statement) if label and statement and not _is_label(statement) else ("", text)


def _is_label(text: str) -> bool:
    return text.endswith(":") and label_of(text) == text


def read_back(summary: str) -> Iterator[Utterance]:
    """Yield the lines of an earlier summary, without the headings and bullets of a model's prose.

    A statement has its label again, if that stands once for several.
    """
    is_prose, speaker, label, statements = False, "", "", 0
    for line in summary.split("\n"):  # the only line end that a summary has
        is_prose = is_prose or line == NARRATIVE
        pair = None if is_prose else _speaker_and_text(line, speaker)
        text = "" if pair is None else pair[1]
        is_indented, is_label = line.startswith(_INDENT), _is_label(text)
        if label and (pair is None or is_label or not is_indented):
            if not statements:  # a label above nothing is what was said
                yield Utterance(speaker, label)
            label = ""
        speaker = "" if pair is None else pair[0]
        if is_label:
            label, statements = text, 0
        elif pair is not None:
            statements += 1
            # A request and a ledger's rule are word for word.
            is_dated = speaker != USER_SAID and speaker.partition(" ")[0] in _SPEAKERS.values()
            day, text = marked_day(text) if is_dated else ("", text)
            yield Utterance(speaker, f"{label} {text}" if label else text, day=day)
        elif line.strip() and not line.lstrip().startswith("#") and not line.rstrip().endswith(":"):
            yield Utterance(EARLIER, _MARKUP.sub("", line).strip())
    if label and not statements:
        yield Utterance(speaker, label)


def _speaker_and_text(line: str, above: str) -> tuple[str, str] | None:
    """Return the speaker and the text of a line; None if no speaker said it.

    :param above: the speaker of the line above; empty if it has none
    """
    if match := _LINE.fullmatch(line):
        return _RENAMED.get(match["speaker"], match["speaker"]), match["text"]
    if line.startswith("Assistant " + CALLED):
        return _SPEAKERS["assistant"], line.removeprefix("Assistant ")
    if above and line.startswith(_INDENT) and not line[1:2].isspace():
        return above, line.removeprefix(_INDENT)
    return None


def call_text(call: ToolCall) -> str:
    """Return ``called name(key=value, ...)`` on one line, with long values shortened."""
    arguments = arguments_of(call)
    if arguments is None:
        inside = shortened(" ".join(call.arguments.split()), _ARGUMENT_CHARS)
    else:
        inside = ", ".join(f"{key}={_value(value)}" for key, value in arguments.items())
    return shortened(one_line(f"{CALLED}{call.name}({inside})"), _CALL_CHARS)


def arguments_of(call: ToolCall) -> Mapping[str, object] | None:
    """Return the decoded arguments; None if the model wrote no JSON object."""
    try:
        arguments = json.loads(call.arguments)
        if "\\ud" in call.arguments.lower():  # a lone surrogate, perhaps: it must not reach a summary
            arguments = json.loads(printable(json.dumps(arguments, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def shortened(text: str, characters: int) -> str:
    """Return the text, or its beginning and its end around a mark; never more than ``characters``."""
    if len(text) <= characters:
        return text
    head = characters // 2
    return text[:head] + "…" + text[len(text) - (characters - head - 1) :]


def _with_speaker(speaker: str, text: str) -> str:
    is_call = speaker == _SPEAKERS["assistant"] and text.startswith(CALLED)
    return f"{speaker} {text}" if is_call else f"{speaker}: {text}"


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


def _media_note(part: Mapping[str, JsonValue]) -> str:
    """Return a note that a medium was there, without its content: ``[image_url]``, ``[file report.pdf]``."""
    kind, file = kind_of(part), part.get("file")
    name = file.get("filename") if isinstance(file, dict) else part.get("filename")
    words = [kind[:40] or "attachment"]
    return f"[{' '.join([*words, name[:80]] if isinstance(name, str) else words)}]"
