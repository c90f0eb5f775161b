"""Makes sessions of a coding agent in Anthropic's Messages dialect, with a list of which turn uses which earlier value.

Filler is made by script, facts and speech by hand (``scenarios.py``), and all of it is the same on every machine. An
agent reads files with line numbers, changes them, reads them again, runs tests that fail with tracebacks, searches,
looks at the history, and asks a service for JSON. What a program prints agrees with what was done before.

What was assumed of real sessions, since no public count of it is known:

- Results are 70 to 75 % of the tokens of the messages, and 7 to 16 % of theirs stand in results over 2,000 tokens.
  These two are counted ones, of recorded sessions of Claude Code.
- Four turns in five use a value that stood before: a path, a line of code, a symbol, a test, an id, a figure, a commit,
  or a fact of the prose. Its last standing is one or two turns old in 40 % of the uses, 3 to 10 in 30 %, 11 to 40 in
  20 %, and older in 10 %. A value is drawn wherever it stood last, so what was read again or repeated counts as new.
- Three quarters are of results, 14 % of the agent's own texts and calls, 11 % of the user's texts.
- A fifth are of the first tenth of a text, a quarter of the last tenth, the rest of what is between.

The draw knows nothing of how a conversation is compacted. A session that is young has no old values, so the measured
shares are a little newer; ``python -m benchmarks.traces.sessions`` prints them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from benchmarks.traces.repository import Repository
from benchmarks.traces.scenarios import (
    ASIDES,
    FOLLOW_UPS,
    PASTED,
    RULES,
    SCENARIOS,
    SPEECH,
    TASKS,
    TOOLS,
    Scenario,
)
from benchmarks.traces.values import AGES, Ledger, Place, Source, place_of, without_marks
from tidemark.tokens import LocalTokenCounter

Json = dict[str, Any]
PART_TURNS = (9, 20)
"""After so many turns, from and to, the agent says what it found, and the user goes on."""
NO_USE = 0.2
TWO_CALLS = 0.12
SECOND_USE = 0.2
ASIDE_TURNS = 0.75
PASTES = 0.5
"""So many later requests of the user quote what a program printed."""
PLANS = 0.1
READS, NARROW_SEARCHES = 0.8, 0.3
"""So many paths are read, the others searched, and so many searches are of one folder."""
FAILS = 0.04
"""So many changes are refused, since the text does not stand there as the agent wrote it."""
ARGUMENTS = {"offset": "integer", "limit": "integer", "todos": "array"}
REPLIES_TO_EDITS = {"tests": 0.5, "reads": 0.2, "goes on": 0.3}


@dataclass(frozen=True)
class Use:
    """A value that the reply of a turn uses, and where it stood last."""

    turn: int
    value: str
    kind: str
    message: int
    """The newest earlier message that holds it."""
    source: Source
    place: Place
    age: int
    """How many turns before."""


@dataclass
class Trace:
    """One session: what its client sends, what the model answers, and what the answers use."""

    name: str
    system: str
    messages: list[Json] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The number of messages of each request."""
    replies: list[Json] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)

    @property
    def tools(self) -> list[Json]:
        """The tools, as a request has them."""
        return [
            {
                "name": name,
                "description": words,
                "input_schema": {
                    "type": "object",
                    "properties": {name: {"type": ARGUMENTS.get(name, "string")} for name in names},
                    "required": [name for name in names if name not in ("offset", "limit", "description")],
                },
            }
            for name, (words, names) in TOOLS.items()
        ]


def source_of(message: Json) -> Source:
    """Return whose words a message holds."""
    if message["role"] == "assistant":
        return "assistant"
    return "user" if isinstance(message["content"], str) else "result"


def texts_of(message: Json) -> list[str]:
    """Return all texts of a message: prose, arguments and results."""
    content = message["content"]
    if isinstance(content, str):
        return [content]
    return [text for block in content for text in _texts_of_block(block)]


def _texts_of_block(block: Json) -> list[str]:
    if block["type"] == "tool_use":
        return [str(value) for value in block["input"].values()]
    return [block["text"] if block["type"] == "text" else block["content"]]


class _Agent:
    """Makes one session, turn by turn."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.chance = scenario, random.Random(scenario.name)
        self.repository, self.ledger = Repository(scenario, self.chance), Ledger()
        self.trace = Trace(scenario.name, f"{RULES}\n\n{scenario.rules}")
        self.requests, self.findings = list(scenario.requests), list(scenario.findings)
        self.edited = ""
        """The file that the turn before changed."""
        self.used: list[tuple[str, str]] = []
        """The values that the present reply uses, with their kinds."""

    @property
    def turn(self) -> int:
        return len(self.trace.ends)

    def play(self) -> Trace:
        """Play all turns."""
        rest = self._begins_part()
        for number in range(self.scenario.turns):
            self.used = []
            if rest == 0 or number == self.scenario.turns - 1:
                text, facts = self._conclusion()
                self._answers([{"type": "text", "text": text}], facts)
                rest = self._begins_part()
                continue
            rest -= 1
            calls = [self._step() for _ in range(2 if self.chance.random() < TWO_CALLS else 1)]
            texts = [text for text, *_ in calls if text]
            blocks: list[Json] = [{"type": "text", "text": " ".join(texts)}] if texts else []
            results: list[Json] = []
            for place, (_, tool, arguments, printed) in enumerate(calls):
                name = f"toolu_{self.scenario.name[:2]}{number:04}{place}"
                blocks.append({"type": "tool_use", "id": name, "name": tool, "input": arguments})
                result: Json = {"type": "tool_result", "tool_use_id": name, "content": printed}
                results.append({**result, "is_error": True} if printed.startswith("Error:") else result)
            self._answers(blocks)
            self._says({"role": "user", "content": results})
        del self.trace.messages[self.trace.ends[-1] :]
        return self.trace

    def _says(self, message: Json, facts: Sequence[str] = ()) -> None:
        self.trace.messages.append(message)
        for text in texts_of(message):
            self.ledger.note(text, source_of(message), self.turn - 1, [fact for fact in facts if fact in text])

    def _answers(self, blocks: list[Json], facts: Sequence[str] = ()) -> None:
        trace, reply = self.trace, {"role": "assistant", "content": blocks}
        for value, kind in dict(self.used).items():
            for message in range(len(trace.messages) - 1, -1, -1):
                if text := next((text for text in texts_of(trace.messages[message]) if value in text), None):
                    at = source_of(trace.messages[message]), place_of(value, text)
                    age = sum(message < end for end in trace.ends) + 1
                    trace.uses.append(Use(self.turn, value, kind, message, *at, age))
                    break
        trace.ends.append(len(trace.messages))
        trace.replies.append(reply)
        self._says(reply, facts)

    def _begins_part(self) -> int:
        """Let the user speak, and return how many turns the part has."""
        if self.requests:
            text, facts = without_marks(self.requests.pop(0))
        else:
            value = self._value() or ("the tests", "")
            text, facts = self.chance.choice(FOLLOW_UPS).format(value=value[0]), []
            if self.chance.random() < PASTES:
                text += f"\n\n{self.chance.choice(PASTED)}\n\n{self.repository.tests(2, among=6)}"
        self._says({"role": "user", "content": text}, facts)
        return self.chance.randrange(*PART_TURNS)

    def _conclusion(self) -> tuple[str, list[str]]:
        """Return what the agent says at the end of a part, and its facts."""
        facts: list[str] = []
        text = self._aside(2)
        if self.findings:
            text, facts = without_marks(self.findings.pop(0))
        values = [value for value, _ in (self._uses() for _ in range(2)) if value]
        return f"{text} {self._aside(3)}\n\nTouched or checked: {'; '.join(values)}.", facts

    def _value(self, kinds: Sequence[str] = ()) -> tuple[str, str] | None:
        return self.ledger.draw(self.chance, self.turn, kinds)

    def _uses(self, kinds: Sequence[str] = ()) -> tuple[str, str]:
        """Draw a value for this reply; its text is empty if there is none."""
        drawn = self._value(kinds)
        if drawn:
            self.used.append(drawn)
        return drawn or ("", "")

    def _step(self) -> tuple[str, str, Json, str]:
        """Return what the agent says, the tool, its arguments, and what is printed."""
        chance, edited, self.edited = self.chance, self.edited, ""
        after = chance.choices(list(REPLIES_TO_EDITS), list(REPLIES_TO_EDITS.values()))[0] if edited else ""
        if after == "reads":
            return ("", "Read", *self._reading(edited))
        if after == "tests" or chance.random() < NO_USE:
            return self._routine(after if after == "tests" else "")
        value, kind = self._uses()
        if not value:
            return self._routine("tests")
        speech = chance.choice(SPEECH[kind]).format(value=value) if chance.random() < 0.6 or kind == "fact" else ""
        if chance.random() < SECOND_USE and (other := self._uses())[0]:
            speech += f" It has to agree with {other[0]}."
        if chance.random() < ASIDE_TURNS:
            speech += f" {self._aside(min(int(self.scenario.scale * chance.randrange(1, 7)), len(ASIDES)))}"
        return (speech.strip(), *self._action(value, kind))

    def _aside(self, count: int) -> str:
        a, b = self.chance.sample(self.scenario.nouns, 2)
        return " ".join(text.format(a=a, b=b) for text in self.chance.sample(ASIDES, count))

    def _routine(self, which: str) -> tuple[str, str, Json, str]:
        """What an agent does without a value: it looks around."""
        repository, chance = self.repository, self.chance
        folder = chance.choice(self.scenario.folders)
        if not which and chance.random() < PLANS / NO_USE:
            return self._plan()
        choices: Mapping[str, tuple[str, Callable[[], str]]] = {
            "tests": (f"{self._runner} tests/{folder}", lambda: repository.tests(chance.randrange(3))),
            "ls": (f"ls -la src/{folder}", lambda: repository.listing(f"src/{folder}")),
            "diff": ("git diff | head -120", repository.difference),
            "log": ("git log --stat -n 12", lambda: repository.log(chance.randrange(6, 14))),
            "list": ("curl -s localhost:8080/v1/items?limit=12", lambda: repository.records("", self._size(9))),
            "commit": (
                "git commit -am 'work in progress'",
                lambda: repository.commit(chance.choice(self.scenario.subjects)),
            ),
        }
        command, run = choices[which or chance.choice(list(choices))]
        return self._aside(chance.randrange(2)), "Bash", _bash(command), run()

    def _plan(self) -> tuple[str, str, Json, str]:
        chance = self.chance
        todos: list[Json] = []
        for task in chance.sample(TASKS, chance.randrange(4, len(TASKS))):
            a, b = chance.sample(self.scenario.nouns, 2)
            status = chance.choice(("completed", "in_progress", "pending"))
            todos.append({"content": task.format(a=a, b=b), "status": status, "activeForm": task.format(a=a, b=b)})
        return "", "TodoWrite", {"todos": todos}, "Todos have been modified successfully."

    @property
    def _runner(self) -> str:
        return "python -m pytest -q" if self.scenario.language == "py" else "npx vitest run"

    def _size(self, usual: int) -> int:
        return max(2, int(usual * self.scenario.scale * self.chance.lognormvariate(0, 0.5)))

    def _reading(self, path: str) -> tuple[Json, str]:
        limit = min(self._size(48), 170)
        offset = self.chance.randrange(max(len(self.repository.files[path]) - limit, 1))
        arguments = {"file_path": path, "offset": offset + 1, "limit": limit}
        return arguments, self.repository.read(path, offset, limit)

    def _action(self, value: str, kind: str) -> tuple[str, Json, str]:
        """Return what an agent does with a value: the tool, its arguments, and what is printed."""
        chance, repository = self.chance, self.repository
        if kind == "line":
            return self._edit(value)
        if kind == "figure":
            return self._expectation(value)
        if kind == "path" and chance.random() < READS:
            return ("Read", *self._reading(value))
        if kind in ("path", "symbol"):
            return ("Grep", *self._search(value, kind))
        match kind:
            case "commit":
                command, printed = f"git show {value}", repository.show(value)
            case "test":
                command, printed = f"{self._runner} {value}", repository.tests(chance.randrange(3), value)
            case "record":
                command = f"curl -s localhost:8080/v1/items/{value}"
                printed = repository.records(value, self._size(6))
            case _:
                command, printed = f"git log --stat --grep {json.dumps(value)}", repository.log(self._size(5))
        return "Bash", _bash(command), printed

    def _search(self, value: str, kind: str) -> tuple[Json, str]:
        """Search a file for a noun, or the code for a symbol and what looks like it."""
        chance, repository = self.chance, self.repository
        noun = chance.choice(self.scenario.nouns)
        if kind == "path":
            return {"pattern": f"{noun}.", "path": value}, repository.grep(f"{noun}.", value)
        under = f"src/{chance.choice(self.scenario.folders)}" if chance.random() < NARROW_SEARCHES else "src"
        noun = value.split("_")[1] if "_" in value else noun
        alike = repository.grep(f"{noun}.", under).split("\n")[: self._size(14)]
        return {"pattern": f"{value}|{noun}\\.", "path": under}, "\n".join([repository.grep(value, under), *alike])

    def _edit(self, line: str) -> tuple[str, Json, str]:
        """Replace a line and some of those around it."""
        repository, chance = self.repository, self.chance
        path, place = repository.place_of(line)
        added = [repository.statement() for _ in range(chance.randrange(1, 9))]
        if path:
            text = repository.files[path][place]
            added = [text[: len(text) - len(text.lstrip())] + statement for statement in added]
        if not path or chance.random() < FAILS:
            arguments = {"file_path": path or chance.choice(sorted(repository.files)), "old_string": line}
            return "Edit", {**arguments, "new_string": added[0]}, "Error: String to replace not found in file."
        first, last = max(place - chance.randrange(4), 0), place + chance.randrange(1, 5)
        old = repository.files[path][first:last]
        rest = old[place - first :] if chance.random() < 0.4 else old[place - first + 1 :]
        new = [*old[: place - first], *added, *rest]
        self.edited = path
        arguments = {"file_path": path, "old_string": "\n".join(old), "new_string": "\n".join(new)}
        return "Edit", arguments, repository.edit(path, first, last, new)

    def _expectation(self, figure: str) -> tuple[str, Json, str]:
        """Write the figure into a test, or calculate with it."""
        chance, repository = self.chance, self.repository
        if chance.random() < 0.5:
            command = f'python -c "print({figure} / {chance.uniform(1, 9):.3f})"'
            return "Bash", _bash(command), f"{float(figure) / chance.uniform(1, 9):.4f}"
        path = f"tests/{chance.choice(self.scenario.folders)}/test_{chance.choice(self.scenario.nouns)}_{self.turn}.py"
        lines = [f"EXPECTED = {figure}", "", "", *(repository.statement() for _ in range(self._size(26)))]
        return "Write", {"file_path": path, "content": "\n".join(lines)}, f"File created successfully at: {path}"


def _bash(command: str) -> Json:
    return {"command": command, "description": f"Runs {command.split(maxsplit=1)[0]}"}


@cache
def trace_of(name: str, turns: int = 0) -> Trace:
    """Return the session of a scenario, or its first turns."""
    trace = _Agent(next(scenario for scenario in SCENARIOS if scenario.name == name)).play()
    if turns:
        trace.ends, trace.replies = trace.ends[:turns], trace.replies[:turns]
        trace.messages = trace.messages[: trace.ends[-1]]
        trace.uses = [use for use in trace.uses if use.turn < turns]
    return trace


def shares(some: Sequence[Trace], member: str) -> Mapping[str, float]:
    """Return how the uses are spread over their sources, places or kinds."""
    counts = Counter(str(getattr(use, member)) for trace in some for use in trace.uses)
    return {name: count / counts.total() for name, count in sorted(counts.items())}


def shares_of_ages(some: Sequence[Trace]) -> Sequence[float]:
    """Return how the uses are spread over the ages that are drawn."""
    ages = [use.age for trace in some for use in trace.uses]
    return [sum(first <= age <= last for age in ages) / len(ages) for first, last, _ in AGES]


def main() -> None:
    """Print the size of each session, and how the uses are spread."""
    counter = LocalTokenCounter()
    some = [trace_of(scenario.name) for scenario in SCENARIOS]
    for trace in some:
        tokens = Counter[str]()
        for message in trace.messages:
            tokens[source_of(message)] += sum(counter.count_text(text, "gpt-4o") for text in texts_of(message))
        parts = ", ".join(f"{name} {count / tokens.total():.0%}" for name, count in tokens.items())
        print(f"{trace.name}: {len(trace.ends)} turns, {tokens.total()} tokens, {parts}, {len(trace.uses)} uses")
    for member in ("source", "place", "kind"):
        print(f"{member}: " + ", ".join(f"{name} {share:.0%}" for name, share in shares(some, member).items()))
    print("age: " + ", ".join(f"{share:.0%}" for share in shares_of_ages(some)))


if __name__ == "__main__":
    main()
