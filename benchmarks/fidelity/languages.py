"""Makes short conversations in several languages, also in those that put no space between words."""

from __future__ import annotations

import random

from benchmarks.fidelity.cases import Case, Conversation, Fact

_TEXTS = {
    "German": (
        "Wir treffen {name} am {day}. Juli um {hour}:15 Uhr in {place}.",
        (
            "Das klingt wirklich schön, ich freue mich für dich.",
            "Ja, genau, so sehe ich das auch.",
            "Danke, das hilft mir sehr.",
        ),
    ),
    "French": (
        "On a rendez-vous avec {name} le {day} juillet à {hour}h15 à {place}.",
        (
            "C'est vraiment super, je suis content pour toi.",
            "Oui, je pense la même chose.",
            "Merci, cela m'aide beaucoup.",
        ),
    ),
    "Spanish": (
        "Quedamos con {name} el {day} de julio a las {hour}:15 en {place}.",
        ("Qué bien, me alegro mucho por ti.", "Sí, yo pienso lo mismo.", "Gracias, eso me ayuda mucho."),
    ),
    "Russian": (
        "Мы встречаемся с {name} {day} июля в {hour}:15 в {place}.",
        ("Это правда здорово, я рад за тебя.", "Да, я тоже так думаю.", "Спасибо, это мне очень помогает."),
    ),
    "Chinese": (
        "我们七月{day}日{hour}点15分在{place}和{name}见面。",
        ("听起来真不错，我很为你高兴。", "是的，我也这么想。", "谢谢，这对我很有帮助。"),
    ),
    "Japanese": (
        "七月{day}日の{hour}時15分に{place}で{name}さんと会います。",
        ("それは本当に素敵ですね。", "はい、私もそう思います。", "ありがとう、とても助かります。"),
    ),
    "Korean": (
        "7월 {day}일 {hour}시 15분에 {place}에서 {name} 씨를 만나요.",
        ("정말 좋네요, 저도 기뻐요.", "네, 저도 그렇게 생각해요.", "고마워요, 큰 도움이 됐어요."),
    ),
    "Arabic": (
        "سنلتقي مع {name} يوم {day} يوليو الساعة {hour}:15 في {place}.",
        ("هذا رائع حقا، أنا سعيد من أجلك.", "نعم، أنا أفكر بنفس الطريقة.", "شكرا، هذا يساعدني كثيرا."),
    ),
    "Thai": (
        "เราจะพบ {name} วันที่ {day} กรกฎาคม เวลา {hour}:15 ที่ {place}",
        ("ฟังดูดีมากเลย ฉันดีใจกับคุณด้วย", "ใช่ ฉันก็คิดแบบนั้น", "ขอบคุณ มันช่วยฉันได้มาก"),
    ),
}
_NAMES = "Ines Tomasz Keiko Bram Farida Linus Paloma Ravi Marta Yusuf".split()
_PLACES = "Porto Tallinn Kanazawa Ghent Lagos Aarhus Oaxaca Galway Pune Bergen".split()


def in_language(language: str, seed: int, turns: int = 60) -> Case:
    """Return a conversation in one language of the table; every fourth message has a fact."""
    chance = random.Random(f"{language}{seed}")
    statement, small = _TEXTS[language]
    messages: Conversation = []
    facts: list[Fact] = []
    for number in range(turns):
        texts = list(chance.sample(small, 2))
        if number % 4 == 1:
            name, place = chance.choice(_NAMES), chance.choice(_PLACES)
            day, hour = chance.randrange(1, 29), chance.randrange(8, 20)
            texts.insert(chance.randrange(3), statement.format(name=name, place=place, day=day, hour=hour))
            facts.append(Fact(language, (name, place)))
        messages.append({"role": "assistant" if number % 2 else "user", "content": " ".join(texts)})
    return Case("languages", messages, facts)


def all_languages(seed: int) -> list[Case]:
    """Return a conversation in each language."""
    return [in_language(language, seed) for language in _TEXTS]
