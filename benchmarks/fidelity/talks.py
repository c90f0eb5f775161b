"""Makes talks of two people with facts among small talk, by a seed.

The sentences are written for this measure. Statements of the same form that nobody asks for stand beside the facts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.fidelity.cases import Case, Conversation, Fact

_NAMES = "Ines Tomasz Keiko Bram Oluwaseun Farida Linus Paloma Siobhan Ravi Marta Yusuf".split()
_PLACES = "Porto Tallinn Kanazawa Ghent Lagos Aarhus Oaxaca Galway Pune Bergen Izmir Quito".split()
_THINGS = "kayak violin greenhouse telescope loom typewriter canoe accordion kiln sidecar".split()
_DISHES = ("mushroom risotto", "lentil soup", "plum dumplings", "fish tacos", "rye bread", "saffron rice")
_EVENTS = ("pottery fair", "chess open", "night market", "choir concert", "regatta", "seed swap")
_WHEN = ("last Friday", "two weeks ago", "yesterday", "on 14 March", "this morning", "in June 2021", "last summer")
_FACTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{when} I drove to {place} with {name} to pick up a {thing}.", ("{place}", "{thing}")),
    ("My sister {name} opened a bakery in {place}, and she sells {dish} there.", ("{name}", "{place}")),
    ("I signed up for the {event} in {place} {when}.", ("{event}", "{place}")),
    ("We sold the old {thing} to {name} for {sum} euros.", ("{name}", "{sum}")),
    ("The doctor moved my appointment to {hour}:30 because {name} is away.", ("{hour}",)),
    ("When I was {age} I lived in {place} and repaired a {thing} every weekend.", ("{age}", "{place}")),
    ("{name} taught me to cook {dish} {when}.", ("{name}", "{dish}")),
    ("I finished reading {pages} pages about a {thing} maker from {place}.", ("{pages}", "{place}")),
)
_ANSWERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "So what happened at the {event}?",
        "{name} won the first prize with a {thing} from {place}.",
        ("{name}", "{place}"),
    ),
    ("Who gave you that idea?", "It was {name}, at a {event} in {place}.", ("{name}", "{event}")),
    ("What did you make for dinner?", "Just {dish}, as {name} showed me.", ("{dish}", "{name}")),
    ("How long did it take?", "About {pages} hours, and the {thing} broke twice.", ("{pages}", "{thing}")),
)
_SMALL = (
    "Wow, that sounds {mood}! Keep it up!",
    "I totally agree, it is so important to take time for {topic}.",
    "Thanks a lot! You always know what to say about {topic}.",
    "That's {mood} to hear, I'm really happy for you and your {people}.",
    "Yeah, it was {mood} and my {people} had a good time.",
    "Never give up on {topic}, it always pays off in the end.",
    "You should be proud of your {people}, that is a {mood} step.",
    "I think {topic} always helps me to relax and to see things clearly.",
    "Oh no, I'm sorry to hear that. I hope your {people} feel better soon.",
    "It means a lot to me that we can talk about {topic}.",
    "Sounds good, let me know how it goes with {topic}!",
    "I guess my {people} all need some more {topic} now and then.",
    "That must have been a really {mood} moment for your {people}.",
    "Don't worry too much about {topic}, these things always take time.",
    "Haha, I know exactly what you mean, my {people} are the same.",
)
_MOODS = "amazing great lovely inspiring exciting wonderful special awesome touching nice fun peaceful".split()
_TOPICS = "family nature music work sleep health friendship cooking travel reading exercise painting".split()
_PEOPLE = "friends kids parents neighbours colleagues cousins".split()
_QUESTIONS = ("How have you been?", "What do you think about it?", "Did you have a good time?", "What is next for you?")


def talk(seed: int, turns: int = 160) -> Case:
    """Return a talk of ``turns`` messages, about 30 tokens each."""
    chance = random.Random(seed)
    messages: Conversation = []
    facts: list[Fact] = []
    while len(messages) < turns:
        for text, fact in _exchange(chance):
            role = "assistant" if len(messages) % 2 else "user"
            messages.append({"role": role, "content": text})
            if fact is not None:
                facts.append(fact)
    return Case("chat", messages, facts)


def _exchange(chance: random.Random) -> Iterator[tuple[str, Fact | None]]:
    """Yield one or two messages, with the fact in each."""
    values = _values(chance)
    small = [sentence.format(**values) for sentence in chance.sample(_SMALL, 3)]
    kind = chance.random()
    if kind < 0.25:
        question, answer, words = chance.choice(_ANSWERS)
        yield f"{small[0]} {question.format(**values)}", None
        yield _joined(chance, answer.format(**values), small[1:2]), _fact("answer", words, values, question)
    elif kind < 0.55:
        statement, words = chance.choice(_FACTS)
        text = statement.format(**values)
        yield _joined(chance, text[0].upper() + text[1:], small[:2]), _fact("statement", words, values)
    else:
        yield " ".join([*small[:2], chance.choice(_QUESTIONS)] if kind < 0.8 else small), None


def _joined(chance: random.Random, text: str, small: list[str]) -> str:
    sentences = [*small]
    sentences.insert(chance.randrange(len(sentences) + 1), text)
    return " ".join(sentences)


def _fact(kind: str, words: tuple[str, ...], values: dict[str, str], question: str = "") -> Fact:
    return Fact(kind, tuple(word.format(**values) for word in words), question.format(**values))


def _values(chance: random.Random) -> dict[str, str]:
    return {
        "name": chance.choice(_NAMES),
        "place": chance.choice(_PLACES),
        "thing": chance.choice(_THINGS),
        "dish": chance.choice(_DISHES),
        "event": chance.choice(_EVENTS),
        "when": chance.choice(_WHEN),
        "sum": str(chance.randrange(40, 900)),
        "hour": str(chance.randrange(8, 18)),
        "age": str(chance.randrange(9, 40)),
        "pages": str(chance.randrange(20, 400)),
        "mood": chance.choice(_MOODS),
        "topic": chance.choice(_TOPICS),
        "people": chance.choice(_PEOPLE),
    }
