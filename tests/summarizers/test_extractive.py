"""Rules of the extractive strategy: bounded always, deterministic, and facts outlive the cascade."""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.dialects.chat.message import parse_message
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.pieces import spoken_phrases
from tidemark.summarizers.sentences import SENTENCE_CHARS
from tidemark.summarizers.transcript import read_back

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
RULES = (
    "Never touch the production database.",
    "Always answer in French.",
    "Please don't use em-dashes in your answers.",
    "You must not push to main without a review.",
    "Only use Python 3.11, nothing newer.",
    "I prefer short answers with one recommendation.",
    "I'm allergic to peanuts, by the way.",
)
FACTS = (
    ("My name is Oluwaseun Adebayo.", "Oluwaseun Adebayo"),
    ("Our project is called Lantern.", "Lantern"),
    ("The deadline is 2026-11-15.", "2026-11-15"),
    ("The staging server is at https://staging.lantern.internal/v2.", "staging.lantern.internal/v2"),
    ("We decided to use Postgres 15 instead of MySQL.", "Postgres 15"),
    ("The budget is $4,750 for the whole quarter.", "$4,750"),
    ("Ticket JUDGE-004 has to be fixed first.", "JUDGE-004"),
    ("My dog Biscuit turned 7 in March.", "Biscuit"),
    ("The failing file is src/parser/tokens.py.", "src/parser/tokens.py"),
    ("Priya Natarajan is on call this week.", "Priya Natarajan"),
)
FILLER = (
    "Thanks, that sounds great!",
    "I think we should look at this together at some point.",
    "That makes sense to me, and I would like to hear more about it.",
    "Okay, so what would you do next in my place?",
    "Let me think about that for a moment before we go on.",
    "There are a few ways to do this, and each of them has something to be said for it.",
    "It really depends on what you want to do with it in the end.",
    "Sure! Here is a bit more about it, as you asked me to explain it.",
)


def texts(seed: int) -> list[str]:
    """A long talk in which every fact and rule is said once, among much that says little."""
    chance = random.Random(seed)
    said = [" ".join(chance.choices(FILLER, k=3)) for _ in range(80)]
    planted = [*RULES, *(text for text, _ in FACTS)]
    for place, text in zip(sorted(chance.sample(range(0, 76, 2), len(planted))), planted, strict=True):
        said[place] = f"{chance.choice(FILLER)} {text} {chance.choice(FILLER)}"
    return said


def missing(summary: str) -> list[str]:
    """Rules that do not stand in the summary, word for word."""
    return [rule for rule in RULES if rule not in summary]


async def summarize(
    counter: TokenCounter, messages: tuple[Message, ...], bound: int, previous: str | None = None
) -> str:
    """One summary."""
    return (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, previous, bound, MODEL))).text


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(5))
async def test_planted_facts_survive(counter: TokenCounter, talk: Talk, seed: int) -> None:
    """At a fifth of the text at least 80 % of the facts stand in the summary, and every rule."""
    messages = talk(*texts(seed))
    bound = sum(counter.count_message(message, MODEL) for message in messages) // 5
    text = await summarize(counter, messages, bound)
    assert missing(text) == []
    assert sum(needle in text for _, needle in FACTS) >= 8


@pytest.mark.anyio
async def test_rules_of_the_first_round_stand_in_the_fifth(counter: TokenCounter, talk: Talk) -> None:
    """Each summary takes in the one before: five rounds of new talk push no rule of the user out."""
    summary = await summarize(counter, talk(*texts(1)), 400)
    for seed in range(2, 6):
        said = [text for text in texts(seed) if not any(rule in text for rule in RULES)]
        summary = await summarize(counter, talk(*said), 400, summary)
        assert counter.count_text(summary, MODEL) <= 400
    assert missing(summary) == []


@pytest.mark.anyio
async def test_a_thousand_turns_stay_within_the_bound(counter: TokenCounter, talk: Talk) -> None:
    """The cascade has no depth limit: the bound holds, old rules stay and new facts come in."""
    chance = random.Random(7)
    summary = await summarize(counter, talk("Never delete the backups.", "Noted."), 300)
    for turn in range(1000):
        word = "".join(chance.choices("abcdefghij", k=7))
        summary = await summarize(
            counter,
            talk(f"The {word} service has port {turn + 4000}. {FILLER[turn % 8]}", "Fine."),
            300,
            summary,
        )
        assert counter.count_text(summary, MODEL) <= 300
    assert "Never delete the backups." in summary
    assert "4999" in summary


@pytest.mark.anyio
async def test_lines_name_their_speaker_and_keep_their_order(counter: TokenCounter, talk: Talk) -> None:
    """A line for each place, in order; calls with their arguments, errors, the open request last."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read_file", "arguments": '{"path": "a/b.py"}'},
    }
    messages = talk(
        "My name is Ana.",
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "line\n" * 2000 + "\nValueError: bad port 99999"},
        "The port 99999 is invalid.",
        "Fix it in src/app.py, then run the tests.",
    )
    lines = (await summarize(counter, messages, 300)).splitlines()
    assert lines[0] == "User: My name is Ana."
    assert lines[1] == "Assistant called read_file(path=a/b.py) [2002 lines]"
    assert lines[2].startswith("Tool read_file: ")
    assert "ValueError: bad port 99999" in lines[2]
    assert lines[-1] == "Open request: Fix it in src/app.py, then run the tests."


@pytest.mark.anyio
async def test_an_open_request_stays_until_the_next_one(counter: TokenCounter, talk: Talk) -> None:
    """Tool rounds without a word of the user carry the request on; a new one takes its place."""
    first = await summarize(counter, talk("Please port the parser to Rust."), 200)
    step = {"role": "assistant", "content": "I read the parser's 412 lines."}
    second = await summarize(counter, talk(step), 200, first)
    assert "Open request: Please port the parser to Rust." in second
    third = await summarize(counter, talk("Now write the benchmarks."), 200, second)
    assert "Open request: Now write the benchmarks." in third
    assert "User: Please port the parser to Rust." in third


@pytest.mark.anyio
async def test_a_newer_language_replaces_the_older_one(counter: TokenCounter, talk: Talk) -> None:
    """Of two rules that cannot both hold the newer one is kept."""
    first = await summarize(counter, talk("Always answer in French. Never touch prod.", "Fine.", "Go on."), 200)
    second = await summarize(counter, talk("Answer in German from now on.", "Fine.", "Go on."), 200, first)
    assert "Answer in German from now on." in second
    assert "Never touch prod." in second
    assert "French" not in second


@pytest.mark.anyio
@pytest.mark.parametrize("bound", [60, 400])
async def test_the_newest_value_of_the_same_statement_stands(counter: TokenCounter, talk: Talk, bound: int) -> None:
    """A budget that was raised is not told twice, and statements that differ in more stay all."""
    said = ("CONSTRAINT: The budget is $443 in all.", "Fine.", "CONSTRAINT: The budget is $803 in all.", "Fine.")
    others = (
        "CONSTRAINT: The rent is $90 in all.",
        "Fine.",
        "Never use port 81.",
        "Fine.",
        "Never use port 82.",
        "Ok.",
    )
    summary = await summarize(counter, talk(*said, *others), bound)
    assert "$443" not in summary
    assert "$803" in summary
    remaining = {line.text for line in read_back(summary)}
    assert bound == 60 or remaining >= {other for other in others if other not in ("Fine.", "Ok.")}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        ("The port is 8080.", "The port is now 9090.", "The old port is 7070."),
        ("Der Port ist 8080.", "Der Port ist jetzt 9090.", "Der alte Port ist 7070."),
        ("Le port est 8080.", "Le port est maintenant 9090.", "L'ancien port est 7070."),
        ("El puerto es 8080.", "El puerto es ahora 9090.", "El otro puerto es 7070."),
    ],
)
async def test_a_value_that_is_now_another_one_takes_the_place_of_the_older(
    counter: TokenCounter, talk: Talk, older: str, newer: str, other: str
) -> None:
    """The same in every other word; also where the older one was such an update itself, in a cascade."""
    end = ("Fine.", "Please go on with the rest of it.", "I did.", "Thanks!", "Fine.")
    summary = await summarize(counter, talk(older, "Fine.", other, "Fine.", newer, *end), 400)
    assert "8080" not in summary
    assert newer in summary
    assert "7070" in summary
    latest = newer.replace("9090", "6060")
    summary = await summarize(counter, talk(latest, *end), 400, summary)
    assert "9090" not in summary
    assert latest in summary
    assert "7070" in summary


@pytest.mark.anyio
async def test_rows_of_a_list_are_no_updates(counter: TokenCounter, talk: Talk) -> None:
    """Without a word that says so, another value may be that of another thing."""
    rows = ("The result is 12.", "Noted.", "The result is 15.", "Noted.", "Now the result is 19.", "Noted.")
    summary = await summarize(counter, talk(*rows, "Go on.", "Yes."), 400)
    assert all(value in summary for value in ("12", "15", "19"))


@pytest.mark.anyio
async def test_the_newest_of_labelled_statements_on_one_matter_comes_first(counter: TokenCounter, talk: Talk) -> None:
    """Other words for the same matter are no proof that the older one is void: it goes first, where one must go."""
    said = ("GOAL: The migration is in phase 2 of 6.", "Fine.", "FACT: Ana is on call.", "Fine.")
    messages = talk(*said, "GOAL: Migration progress: phase 4 of 6.", "Fine.", "Thanks!", "Fine.", "Thanks!", "Fine.")
    small, large = await summarize(counter, messages, 22), await summarize(counter, messages, 200)
    assert "phase 4 of 6" in small
    assert "phase 2 of 6" not in small
    assert {line.text for line in read_back(large)} >= {said[0], said[2], "GOAL: Migration progress: phase 4 of 6."}


@pytest.mark.anyio
async def test_a_statement_is_not_lost_for_repeating_the_one_that_it_replaces(
    counter: TokenCounter, talk: Talk
) -> None:
    """Words count less when they are said again; the newest value would go first, and the matter with it."""
    older, newer = (
        "FACT: The staging database runs in region Lisbon.",
        "FACT: The staging database runs in region Turin.",
    )
    other = "FACT: The night report goes to the billing office."
    said = [text for sentence in (older, other, newer, "Thanks!", "Thanks!") for text in (sentence, "Fine.")]
    lines = {line.text for line in read_back(await summarize(counter, talk(*said), 16))}
    assert lines == {newer}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("older", "newer", "beside"),
    [
        ("RULE: Ana Ferrer approves releases.", "RULE: Every release needs approval by Ravi Patel.", "fact"),
        ("RULE: Never show releases to Ana Ferrer.", "RULE: Never show a release to Ravi Patel.", "rule"),
        ("SAFETY RULE: Ana Ferrer approves releases.", "SAFETY RULE: Every release is approved by Ravi Patel.", "rule"),
        ("RULE: Releases need an approval.", "RULE: A release needs the approval by Ravi Patel.", "rule"),
    ],
)
async def test_a_rule_whose_value_changes_comes_no_longer_first(
    counter: TokenCounter, talk: Talk, older: str, newer: str, beside: str
) -> None:
    """A fact takes its place. A prohibition and a safety rule keep it, and so does what names no value."""
    fact = "FACT: Nadja Blum leads the gateway rewrite."
    said = [text for sentence in (older, fact, newer, "Thanks!", "Thanks!") for text in (sentence, "Fine.")]
    lines = {line.text for line in read_back(await summarize(counter, talk(*said), 24))}
    assert lines == {newer, older if beside == "rule" else fact}


@pytest.mark.anyio
@pytest.mark.parametrize("mark", ["?", "？", "؟"])
async def test_an_answer_comes_before_a_like_statement(counter: TokenCounter, talk: Talk, mark: str) -> None:
    """What somebody asked for will be needed; the marks of other scripts ask, too."""
    said = ("Hello.", "Ravi cooks lentils.", f"Who cooks the soup{mark}", "Bram cooks onions.", "Hello.", "Hi.")
    text = await summarize(counter, talk(*said), 7)
    assert "Bram cooks onions" in text
    assert "Ravi" not in text


@pytest.mark.anyio
@pytest.mark.parametrize("width", [64, 76, 100_000])
async def test_encoded_data_takes_no_fact_its_tokens(counter: TokenCounter, talk: Talk, width: int) -> None:
    """A pasted key or picture has its beginning at most; a digest is an identifier and stays whole."""
    encoded = base64.b64encode(random.Random(5).randbytes(9000)).decode()
    pasted = "\n".join(encoded[start : start + width] for start in range(0, len(encoded), width))
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    said = (f"The picture is data:{pasted} of Nadja.", "Fine.", f"Its digest is {digest}.", "It shows 3 boats.", "Hi.")
    text = await summarize(counter, talk(*said), 150)
    assert digest in text
    assert "3 boats" in text
    assert not any(encoded[start : start + 40] in text.partition("\n")[0] for start in range(0, 8000, 20))


@pytest.mark.anyio
async def test_rules_beyond_their_share_come_before_small_talk(counter: TokenCounter, talk: Talk) -> None:
    """Other facts have tokens of their own, and what says nothing has none."""
    rules = [f"Never open port {port} on the gateway in hall {port % 7}." for port in range(300, 330)]
    facts = ["The key lies at Nadja's.", "The alarm code is 5521.", "The Skoda is at 14 Mill Lane."]
    talked = [text for rule in rules for text in (rule, "It really depends on what you want to do with it in the end.")]
    text = await summarize(counter, talk(*facts, "Fine.", *talked), 330)
    assert all(fact.rstrip(".").split()[-1] in text for fact in facts)
    assert text.count("Never open port") >= 18
    assert "depends" not in text


@pytest.mark.anyio
async def test_sentences_stay_whole_where_the_configuration_says_so(counter: TokenCounter, talk: Talk) -> None:
    """``shorten_sentences: false``: every sentence of the summary was said as it stands."""
    said = [f"I met Keiko{place} at the pottery fair in the {place} street." for place in range(80)]
    task = SummaryTask(talk(*said), None, 300, MODEL)
    short = (await ExtractiveSummarizer(counter).summarize(task)).text
    whole = (await ExtractiveSummarizer(counter).summarize(replace(task, shorten_sentences=False))).text
    assert "at the pottery fair" not in short.partition("Open request")[0]
    assert {line.text for line in read_back(whole)} <= set(said)
    assert len(short.splitlines()) > len(whole.splitlines())


@pytest.mark.anyio
async def test_the_same_task_gives_the_same_bytes(counter: TokenCounter, talk: Talk) -> None:
    """Deterministic, and what is said twice is kept once."""
    messages = talk(*texts(3), *texts(3))
    first = await summarize(counter, messages, 1000)
    assert first == await summarize(counter, messages, 1000)
    assert first.count("Oluwaseun Adebayo") == 1


@pytest.mark.anyio
async def test_a_generous_bound_is_filled(counter: TokenCounter, talk: Talk) -> None:
    """``tidemark compact --max-tokens`` gives all that is left, and the summary uses it."""
    said = [f"Item {place} costs {place * 7} euros at shop {place % 13}." for place in range(2000)]
    text = await summarize(counter, talk(*said), 8000)
    assert 0.9 * 8000 <= counter.count_text(text, MODEL) <= 8000


def data(kind: str) -> str:
    """A tool's answer of a megabyte or less."""
    chance = random.Random(1)
    signs = "abcdefghijklmnopqrstuvwxyz0123456789+/"
    return {
        "words": lambda: " ".join("".join(chance.choices("abcdefghij", k=6)) for _ in range(20_000)),
        "one line of JSON": lambda: json.dumps([{"id": row, "took": chance.random()} for row in range(4000)]),
        "base64": lambda: "".join(chance.choices(signs, k=200_000)),
        "one word": lambda: "data " * 40_000,
        "no words": lambda: "x" * 300_000,
    }[kind]()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["words", "one line of JSON", "base64", "one word", "no words"])
@pytest.mark.parametrize("bound", [700, 5000])
async def test_a_bound_that_all_else_leaves_is_filled_with_results(
    counter: TokenCounter, talk: Talk, kind: str, bound: int
) -> None:
    """Where the bulk is one answer of a tool: what people said is all there, and the answer fills the rest."""
    messages = talk("Never touch prod. Read the log.", {"role": "tool", "content": data(kind)}, "The log is odd.")
    text = await summarize(counter, messages, bound)
    assert 0.85 * bound <= counter.count_text(text, MODEL) <= bound
    assert "Never touch prod." in text
    assert "The log is odd." in text


def test_every_process_gives_the_same_bytes(talk: Talk) -> None:
    """Python orders sets anew in each process; replicas and restarts must not differ."""
    program = """
import asyncio, json, sys
from tidemark.dialects.chat.message import parse_message
from tidemark.core.ports import SummaryTask
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.tokens import LocalTokenCounter
said = [{"role": "user", "content": text} for text in json.load(sys.stdin)]
messages = tuple(parse_message(json.dumps(one).encode(), one, 0) for one in said)
task = SummaryTask(messages, None, 600, "gpt-4o")
print(asyncio.run(ExtractiveSummarizer(LocalTokenCounter()).summarize(task)).text)
"""
    said = json.dumps([message.text for seed in range(6) for message in talk(*texts(seed))])
    made = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=said,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".:proxy"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(made) == 1


WORDS = st.text(st.sampled_from("ab .!?\n#-:{}😀中é\u200b"), max_size=60) | st.sampled_from(
    [
        "User: never do that.",
        "User said: x",
        "Narrative:",
        "https://a.b/c",
        "",
        "must " * 500,
        "a" * 3000,
        "中" * 900,
    ]
)
CALL = st.builds(
    lambda text: {
        "role": "assistant",
        "tool_calls": [{"id": text, "function": {"name": text, "arguments": text}}],
    },
    WORDS,
)
SAID = st.builds(
    lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant", "tool"]), WORDS
)


@pytest.mark.anyio
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SAID | CALL, max_size=12), st.none() | WORDS, st.sampled_from([1, 16, 17, 40, 100, 300]))
async def test_the_bound_is_always_kept(
    counter: TokenCounter, values: list[dict[str, object]], previous: str | None, bound: int
) -> None:
    """Whatever was said: no more than the bound, and never nothing where a token can be said."""
    messages = tuple(parse_message(json.dumps(value).encode(), value, 0) for value in values)
    text = await summarize(counter, messages, bound, previous)
    assert counter.count_text(text, MODEL) <= bound
    assert text.strip()


PHRASES = st.sampled_from(
    [
        "Wow, the red boat is really at pier 7 in Lagos.",
        "I am not allowed to open the very old gate.",
        "SAFETY RULE: Never push the branch on a Friday.",
        "SAFETY RULE: Do not push to main.",
        "GOAL: We are in phase 2 of 6.",
        "GOAL: Phase 3 of 6 it is.",
        "NOTES:",
        "Who has the key to the shed?",
        "It is Keiko, and she might be late.",
        "Run `make the thing` in the a/b folder.",
        "Wir treffen Ravi am 16. Juli.",
        "我们七月20日在Porto见面。",
        "called f(x)",
        "Go on.",
        "Look at part 1 of the boat.",
        "Look at part 2 of the boat.",
        "Look at part 3 of the boat.",
        "called f(4)",
    ]
)
MARKS = re.compile(r" \[\d+ (?:times|more like it)[^\]]*\]")
CONTEXT = re.compile(r"\[([^\[\]]+)\] ")
TALKS = st.lists(
    st.builds(
        lambda role, texts: {"role": role, "content": " ".join(texts)},
        st.sampled_from(["user", "assistant"]),
        st.lists(PHRASES, min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=12,
)


def stands_in_order(line: str, said: str) -> bool:
    """Whether all words of a line stand in what was said, in the same order."""
    rest = iter(said.split())
    return all(word in rest for word in line.split())


@pytest.mark.anyio
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TALKS, TALKS, st.sampled_from([20, 40, 80, 400]))
async def test_each_line_is_what_its_speaker_said_in_one_message(
    counter: TokenCounter, first: list[dict[str, str]], second: list[dict[str, str]], bound: int
) -> None:
    """Also where labels and speakers stand once, and in the next summary: words may go, none is added or moved.

    Only what stands in square brackets is not the speaker's: counts after a sentence that stands for others that are
    nearly equal, and before a short answer its question, in the words of who asked.
    """
    speakers = {"user": ("User", "Open request"), "assistant": ("Assistant",)}
    previous = None
    for said, all_said in ((first, first), (second, first + second)):
        messages = tuple(parse_message(json.dumps(value).encode(), value, 0) for value in said)
        previous = await summarize(counter, messages, bound, previous)
        for line in read_back(previous):
            if "…" in line.text:
                continue  # a request too long for the bound, with a mark where it was cut
            texts = [value["content"] for value in all_said if line.speaker in speakers[value["role"]]]
            own = MARKS.sub("", line.text)
            assert any(stands_in_order(CONTEXT.sub("", own), text) for text in texts), (line, previous)
            for question in CONTEXT.findall(own):
                assert any(stands_in_order(question, value["content"]) for value in all_said), (line, previous)


@pytest.mark.speed
@pytest.mark.anyio
@pytest.mark.parametrize("unit", ["a", " ", "😀", "never do that. ", "x\n", "/a", "1 ", "a.b@c-"])
async def test_a_message_of_a_megabyte_is_no_trouble(counter: TokenCounter, talk: Talk, unit: str) -> None:
    """No text is slow to take apart, and its summary keeps the bound."""
    text = await summarize(counter, talk(unit * (1_000_000 // len(unit)), "ok"), 64)
    assert counter.count_text(text, MODEL) <= 64


def test_denials_in_a_row_are_not_one_sentence() -> None:
    """Each goes with the sentence before it while that is short, so that many of them take no time."""
    for phrase in spoken_phrases("We take the train. " + "No. " * 400):
        assert len(phrase.plain) <= SENTENCE_CHARS
