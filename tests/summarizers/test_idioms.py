"""Phrases of a chat are no rules, and a rule beside one is still found."""

from __future__ import annotations

import pytest

from proxy.summarizers.rules import rule_kind
from proxy.summarizers.sentences import without_lead, words_of


@pytest.mark.parametrize(
    "sentence",
    [
        "Keep it up!",
        "Keep going, you are almost there!",
        "Never give up on your dreams.",
        "Don't give up!",
        "Don't worry too much about it.",
        "I'm always here for you.",
        "Make sure to have fun!",
        "Keep in touch!",
        "Always follow your heart.",
        "Only time will tell.",
    ],
)
def test_a_phrase_of_a_chat_is_no_rule(sentence: str) -> None:
    """It takes no place among the rules of a small budget."""
    assert rule_kind(sentence, words_of(sentence)) is None


@pytest.mark.parametrize(
    "sentence",
    [
        "Keep it up, and never push to main.",
        "Don't worry, but never delete the backups.",
        "Never give up the lock before the write.",
        "Never stop the deploy job without asking.",
        "Do not let it get above 80 degrees.",
        "Keep the tests green.",
        "Always ask me before you stop by the vault.",
    ],
)
def test_a_rule_beside_a_phrase_or_like_one_is_a_rule(sentence: str) -> None:
    """A rule that is missed costs more than a phrase that is taken for one."""
    assert rule_kind(sentence, words_of(sentence)) == "directive"


CHAT = [
    "Keep up the good work!",
    "Keep going, you are doing great.",
    "Keep me posted.",
    "Keep your chin up!",
    "Keep smiling!",
    "Keep them coming!",
    "Keep the change.",
    "Never mind.",
    "Never better, thanks!",
    "Never heard of it.",
    "Never say never!",
    "Always a pleasure!",
    "Always happy to help.",
    "Only kidding!",
    "Only joking!",
    "No more questions from me.",
    "No big deal.",
    "No rush at all.",
    "No hard feelings!",
    "No pain no gain!",
    "No pun intended.",
    "No news is good news.",
    "Don't mention it!",
    "Don't be silly!",
    "Don't sweat it.",
    "Don't worry about it.",
    "Don't be so hard on yourself.",
    "Don't forget to have fun!",
    "Don't let it get you down.",
    "Stop it, you're making me blush!",
    "Stop it!",
    "Remember when we went to Rome?",
    "Remember that trip to the lake?",
    "I always love talking to you.",
    "I'll always remember that day.",
    "I must admit that was fun.",
    "You must be so proud!",
    "You must have been tired.",
    "You should never have to go through that.",
    "You can always count on me.",
    "You can only imagine.",
    "It must be hard.",
    "I need all the help I can get.",
    "Make sure you have fun!",
    "Make sure to take care of yourself.",
    "Please keep me posted!",
    "Please tell me more.",
    "Always look on the bright side.",
    "It's never too late.",
    "Better late than never.",
    "Never gonna give you up.",
    "Immer wieder gerne!",
    "Immer mit der Ruhe.",
    "Nie im Leben!",
    "Nie gehört.",
    "Immer noch nichts Neues.",
    "Niemals aufgeben!",
    "Toujours pareil !",
    "Jamais de la vie !",
    "Toujours un plaisir !",
    "Jamais deux sans trois.",
    "Siempre igual.",
    "¡Siempre es un placer!",
    "Nunca se sabe.",
    "Nunca es tarde.",
    "加油！",
    "别担心。",
    "没问题！",
    "不用谢。",
    "别客气！",
    "总是这样。",
    "頑張って！",
    "気にしないで。",
    "いつもありがとう！",
    "絶対無理だよ。",
    "まさか！",
    "心配しないで。",
    "Не за что!",
    "Не волнуйся.",
    "Никогда не поздно.",
    "Всегда пожалуйста!",
    "Всегда рад помочь.",
    "Никогда не слышал.",
    "别说了。",
    "别提了。",
    "どういたしまして！",
    "Je ne sais jamais quoi dire.",
    "Sempre così.",
    "Sempre un piacere!",
    "Non preoccuparti.",
    "Non si sa mai.",
    "Mai sentito.",
    "Non vedo l'ora!",
    "Mai dire mai!",
    "Non mollare mai!",
    "Não se preocupe.",
    "Nunca se sabe!",
    "Sempre às ordens.",
    "Nunca desista!",
    "Toujours rien.",
    "Всегда мечтала об этом.",
]
"""What people say to each other, in nine languages."""


@pytest.mark.parametrize("sentence", CHAT)
def test_courtesy_and_encouragement_are_no_rules(sentence: str) -> None:
    """In any language: such a phrase took a place of the rules until every later summary."""
    assert rule_kind(without_lead(sentence), words_of(sentence)) is None


RULES = [
    "Keep answers short.",
    "Keep it under 100 words.",
    "Keep it short.",
    "Keep the API key secret.",
    "Never touch prod.",
    "Always answer in French.",
    "Don't use emojis.",
    "Don't mention the price.",
    "Don't mention it to Ana.",
    "Never mind the tests, always run the linter first.",
    "No meetings before ten.",
    "Only use metric units.",
    "Stop using bullet points.",
    "Stop it from writing to prod.",
    "Remember that I am allergic to nuts.",
    "Remember to cite sources.",
    "Make sure all tests pass.",
    "Make sure to run the linter.",
    "You must not call the API twice.",
    "You must be concise.",
    "Please keep answers short.",
    "Please always reply in German.",
    "Never give up the lock before the commit.",
    "Antworte immer auf Deutsch.",
    "Immer zuerst die Tests laufen lassen.",
    "Niemals in main pushen.",
    "Benutze nie Emojis.",
    "Réponds toujours en français.",
    "N'utilise jamais de listes.",
    "Ne jamais supprimer la base.",
    "Utilise toujours des tabulations.",
    "Vérifie bien toujours les tests.",
    "Usa sempre le virgolette singole.",
    "Non toccare il database di produzione.",
    "Non usare mai emoji.",
    "Rispondi sempre in italiano.",
    "Rispondi in italiano.",
    "Use sempre aspas simples.",
    "Nunca apague o banco de produção.",
    "Não use emojis.",
    "Responda sempre em português.",
    "Siempre responde en español.",
    "Nunca borres la base de datos.",
    "No uses emojis nunca.",
    "I prefer tabs.",
    "I'm allergic to peanuts.",
    "请始终用中文回答。",
    "不要使用表情符号。",
    "绝对不要删除生产数据库。",
    "必须先运行测试。",
    "常に日本語で答えてください。",
    "絶対に本番に触らないでください。",
    "絵文字は使わないでください。",
    "Всегда отвечай по-русски.",
    "Никогда не удаляй базу данных.",
    "Не используй эмодзи.",
    "Нельзя трогать продакшен.",
]
"""Rules that users give, some of them in the words of a phrase."""


@pytest.mark.parametrize("sentence", RULES)
def test_a_rule_is_recognized_in_nine_languages(sentence: str) -> None:
    """Also where the words have no spaces between them."""
    assert rule_kind(sentence, words_of(sentence)) is not None
