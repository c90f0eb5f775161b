"""Makes talks whose facts are asked for afterwards.

Some facts are asked for twice, in the words of the talk and in other words. The others are answers of the small talk
around them (``talks.py``), of which many are alike. ``recalling.py`` measures with them what recall puts back.
"""

from __future__ import annotations

import random

from benchmarks.fidelity.cases import Case, Fact
from benchmarks.fidelity.talks import talk

TURNS = 300
_FACTS = (
    (
        "My sister Ingrid is allergic to peanuts.",
        "allergic to peanuts",
        "What is my sister Ingrid allergic to?",
        "Which food must Ingrid never eat?",
    ),
    (
        "We moved the launch to the ninth of October.",
        "ninth of October",
        "To when did we move the launch?",
        "On which date does the product go live after the launch was shifted?",
    ),
    (
        "The spare key lies under the blue flowerpot.",
        "under the blue flowerpot",
        "Where does the spare key lie?",
        "I locked myself out. Where is the other key?",
    ),
    (
        "Our landlord is called Bartholomew Pike.",
        "Bartholomew Pike",
        "What is our landlord called?",
        "Whom do we call about the rent, that is, the name of the landlord?",
    ),
    (
        "I decided to write the parser in Rust.",
        "parser in Rust",
        "In which language did I decide to write the parser?",
        "Which programming language was picked for parsing?",
    ),
    (
        "The router's password is tangerine42.",
        "tangerine42",
        "What is the router's password?",
        "How do I log in to the router?",
    ),
    (
        "Dr. Okafor told me to stop drinking coffee.",
        "stop drinking coffee",
        "What did Dr. Okafor tell me to stop?",
        "What was the advice of my doctor Okafor?",
    ),
    (
        "The invoice from Halvorsen came to 1,870 euros.",
        "1,870 euros",
        "How much was the invoice from Halvorsen?",
        "How much do we owe Halvorsen?",
    ),
    (
        "The tests fail because the clock runs in UTC.",
        "clock runs in UTC",
        "Why do the tests fail?",
        "What was the cause of the failing test suite?",
    ),
    (
        "My flight to Lisbon leaves at 6:40.",
        "leaves at 6:40",
        "When does my flight to Lisbon leave?",
        "At what time do I fly to Lisbon?",
    ),
    (
        "Please always answer me in short bullet points.",
        "short bullet points",
        "How shall you always answer me?",
        "Which format do I want answers in?",
    ),
    (
        "The staging database runs on port 5544.",
        "port 5544",
        "On which port does the staging database run?",
        "How do I connect to the database of staging?",
    ),
    (
        "Our dog Biscuit was born in Vilnius.",
        "born in Vilnius",
        "Where was our dog Biscuit born?",
        "From which city does Biscuit come?",
    ),
    (
        "Grandma's recipe needs three spoons of cardamom.",
        "three spoons of cardamom",
        "What does Grandma's recipe need?",
        "How much spice goes into the recipe of my grandmother?",
    ),
    (
        "Meine Tante wohnt jetzt in Tübingen.",
        "Tübingen",
        "Wo wohnt meine Tante jetzt?",
        "In welche Stadt ist die Tante gezogen?",
    ),
    ("Le code de la porte est 4471.", "4471", "Quel est le code de la porte ?", "Comment ouvrir la porte ?"),
    ("Моя собака боится грозы.", "боится грозы", "Чего боится моя собака?", "Что пугает собаку?"),
    ("我弟弟在成都的医院工作。", "成都的医院工作", "我弟弟在哪里工作？", "弟弟的工作地点是哪个城市？"),
    (
        "妹は毎週火曜日にピアノを習っています。",
        "毎週火曜日",
        "妹は何曜日にピアノを習っていますか？",
        "ピアノのレッスンはいつですか？",
    ),
    (
        "동생은 부산에서 카페를 운영해요.",
        "부산에서",
        "동생은 어디에서 카페를 운영해요?",
        "동생의 카페는 어느 도시에 있어요?",
    ),
)
"""A sentence, the phrase that answers, a question in its words, and one in other words."""


def question_cases(seeds: int = 3) -> list[Case]:
    """Return talks with the facts of ``_FACTS`` at random places."""
    return [_case(seed) for seed in range(1, seeds + 1)]


def _case(seed: int) -> Case:
    chance = random.Random(seed)
    small_talk = talk(1000 + seed, turns=TURNS)
    messages = [dict(message) for message in small_talk.messages]
    questions = [place for place, message in enumerate(messages) if message["role"] == "user"]
    facts = [Fact("one of many", fact.words, fact.question) for fact in small_talk.facts if fact.question]
    for sentence, answer, same_words, other_words in _FACTS:
        messages[chance.choice(questions)]["content"] += " " + sentence
        facts += [Fact("same words", (answer,), same_words), Fact("other words", (answer,), other_words)]
    return Case("questions", messages, facts)
