"""Makes sessions of coding agents, and texts with a needle at a known place, by a seed."""

from __future__ import annotations

import random

from benchmarks.fidelity.cases import Case, Conversation, Fact

_PARTS = "importer scheduler gateway billing search mailer uploader audit session export".split()
_VERBS = ("parse", "load", "merge", "render", "flush", "route", "encode", "retry")
_STEPS = (
    "I will look at the {part} first and run its tests again.",
    "The {part} looks fine so far, let me check the next file.",
    "Running the tests of the {part} now.",
    "Let me read the code around that function before I change anything.",
)
_NEEDLE = "The access phrase for the {part} is {phrase}, as {name} wrote it down."
_WORDS = "amber birch cobalt delta ember fjord garnet hazel indigo juniper kelp lagoon".split()


def code_session(seed: int, steps: int = 40) -> Case:
    """Return a session of an agent with long results; its facts are rules, decisions, errors, values and names."""
    chance = random.Random(seed)
    messages: Conversation = [
        {"role": "user", "content": "Find out why the nightly run fails and mend it. Never push to the release branch."}
    ]
    facts = [Fact("rule", ("never push", "release branch"))]
    for number in range(steps):
        part, verb = chance.choice(_PARTS), chance.choice(_VERBS)
        line, port, code = chance.randrange(10, 900), chance.randrange(3000, 9999), f"{chance.randrange(16**7):07x}"
        path = f"src/{part}/{verb}_{number}.py"
        messages.append({"role": "assistant", "content": chance.choice(_STEPS).format(part=part)})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": _log(chance, path, line)})
        facts.append(Fact("error", (path, f"line {line}")))
        if number % 4 == 0:
            text = f"The cause is `{verb}_{number}()` in {path}: it opens port {port}. Commit {code} mends it."
            messages.append({"role": "assistant", "content": text})
            facts.append(Fact("cause", (f"{verb}_{number}", str(port))))
            facts.append(Fact("identifier", (code,)))
        if number % 10 == 5:
            text = f"We decided to keep {port + 1} for the {part} until the next release. Go on."
            messages.append({"role": "user", "content": text})
            facts.append(Fact("decision", (str(port + 1), part)))
    return Case("code", messages, facts)


def _log(chance: random.Random, path: str, line: int) -> str:
    """Return the output of a test run: many lines of no interest and one error."""
    passing = [f"tests/test_{chance.choice(_PARTS)}.py::test_{chance.choice(_VERBS)} PASSED" for _ in range(14)]
    passing.insert(chance.randrange(14), f"KeyError: 'id' in {path}, line {line}")
    return "\n".join(passing)


def needles(seed: int, turns: int = 100) -> Case:
    """Return turns with a needle in each fifth, and one in a result of a tool."""
    chance = random.Random(seed)
    messages: Conversation = []
    facts: list[Fact] = []
    for number in range(turns):
        texts = [chance.choice(_STEPS).format(part=chance.choice(_PARTS)) for _ in range(2)]
        texts.append(f"{chance.choice(_WORDS).title()} and {chance.choice(_WORDS)} are still on the list.")
        if number % (turns // 5) == turns // 10:
            phrase = "-".join(chance.sample(_WORDS, 3))
            texts.insert(1, _NEEDLE.format(part=chance.choice(_PARTS), phrase=phrase, name="Odile"))
            facts.append(Fact(f"at {number * 100 // turns} %", (phrase.replace("-", " "),)))
        messages.append({"role": "assistant" if number % 2 else "user", "content": " ".join(texts)})
    phrase = "-".join(chance.sample(_WORDS, 3))
    rows = [f"row {row}: {chance.choice(_WORDS)} ok" for row in range(60)]
    rows.insert(chance.randrange(60), f"access phrase: {phrase}")
    messages.insert(turns // 2, {"role": "tool", "tool_call_id": "n1", "content": "\n".join(rows)})
    facts.append(Fact("in a result", (phrase.replace("-", " "),)))
    return Case("needle", messages, facts)
